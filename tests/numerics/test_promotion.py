"""The promotion table as kernels have it, entry by entry, captured: `+`, `td.where`, Python numbers, sums."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import treadle as td
from treadle.base.errors import TreadleError
from treadle.dtype import promote as rules
from treadle.dtype.formats import ALL, DType, bf16, bool_, f4e2m1, f8e4m3, f16, f32, i4, i8, i32, u8, u64

M, N = td.dims("M N")
ARITHMETIC = [d for d in ALL if d.has_arithmetic]


@td.kernel
def added(X: td.Tensor[M], Y: td.Tensor[M], S: td.Out[M] = None, W: td.Out[M] = None, E: td.Out[M] = None):
    for m in td.parallel(M):
        S[m] = X[m] + Y[m]
        W[m] = td.where(Y[m] == Y[m], X[m], Y[m])
        E[m] = X[m] == Y[m]


def outs(kernel: Any, *given: DType, **staged: Any) -> list[DType]:
    """The dtypes of the Outs that a program stores."""
    program = kernel.program(*(td.like(d, 8) for d in given), **staged)
    return [t.dtype for t in program.tensors if t.out]


@pytest.mark.parametrize("a", ARITHMETIC, ids=str)
def test_pairs(a: DType) -> None:
    for b in ARITHMETIC:
        try:
            want = rules.promote(a, b)
        except rules.NoCommonDType as error:
            with pytest.raises(TreadleError) as caught:
                outs(added, a, b)
            assert caught.value.code == error.code
            continue
        assert outs(added, a, b) == [want, want, bool_], (a, b)


@td.kernel
def weak(X: td.Tensor[M], A: td.Out[M] = None, B: td.Out[M] = None, C: td.Out[M] = None, *, number: float):
    for m in td.parallel(M):
        A[m] = X[m] * number
        B[m] = number - X[m] if not isinstance(number, bool) else number & (X[m] != 0)
        C[m] = td.maximum(X[m], number)


@pytest.mark.parametrize("a", [d for d in ARITHMETIC if not d.is_bool], ids=str)
@pytest.mark.parametrize("number", [2, 2.5])
def test_python_numbers(a: DType, number: float) -> None:
    assert outs(weak, a, number=number) == [rules.promote_weak(a, number)] * 3


@pytest.mark.parametrize(("a", "number"), [(i8, 128), (i8, -129), (u8, -1), (u8, 256), (u64, 1 << 64)])
def test_numbers_out_of_range(a: DType, number: int) -> None:
    with pytest.raises(TreadleError) as caught:
        outs(weak, a, number=number)
    assert caught.value.code == "dtype/number-out-of-range"


@pytest.mark.parametrize(("a", "b"), [*itertools.product((f8e4m3, i4, f4e2m1), (f32, i32, bf16)), (bf16, f8e4m3)])
def test_small_formats_have_no_arithmetic(a: DType, b: DType) -> None:
    @td.kernel
    def sums(X: td.Tensor[M, a], Y: td.Tensor[M, b], S: td.Out[M, f32] = None):
        for m in td.parallel(M):
            S[m] = X[m] + Y[m]

    with pytest.raises(TreadleError) as caught:
        sums.program(td.like(a, 8), td.like(b, 8))
    assert caught.value.code == "dtype/no-arithmetic"


@td.kernel
def derived(
    X: td.Tensor[M, N], D: td.Out[M, N] = None, E: td.Out[M, N] = None, S: td.Out[M] = None, A: td.Out[M] = None
):
    for m in td.parallel(M):
        x = X[m, N]
        D[m, N] = x / x
        E[m, N] = td.exp(x)
        S[m] = x.sum(N)
        A[m] = x.mean(N)


@pytest.mark.parametrize("a", [bool_, i8, u64, f16, f32], ids=str)
def test_derived_dtypes(a: DType) -> None:
    program = derived.program(td.like(a, 4, 4))
    want = [rules.division(a), rules.function(a), rules.total(a), rules.average(a)]
    assert [t.dtype for t in program.tensors if t.out] == want


def test_reported_products() -> None:
    """U38: i32 with f16, then with bf16; f16 / f16; bf16 with fp8 is a mistake that says what to write."""
    assert rules.promote(i32, f16) == f16 and rules.promote(f16, bf16) == f32 and rules.division(f16) == f16
    with pytest.raises(TreadleError, match=r"\.to\(f32\)"):
        rules.promote(bf16, f8e4m3)
