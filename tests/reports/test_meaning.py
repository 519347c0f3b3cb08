"""What values mean: memory order, tails, scans, NaN and ties, small types, conversions, promotion, staged branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.reports.ways import close, everywhere

import treadle as td

M, N, H = td.dims("M N H")
TWO = td.dims("TWO", 2)
HALVES = td.product(TWO, H)


# U07: a store in one shape, a load of the same elements in another.


@td.kernel
def scaled_then_rotated(X: td.Tensor[M, HALVES], Y: td.Out[M, HALVES] = None):
    for m in td.parallel(M.each):
        x = X[m, HALVES]
        Y[m, HALVES] = x * 2
        for h in td.serial(H):
            a, b = Y[m, (0, h)], Y[m, (1, h)]
            Y[m, (0, h)] = -b
            Y[m, (1, h)] = a


@pytest.mark.parametrize("m, h", [(1, 1), (5, 8), (3, 33)])
def test_u07_a_store_is_seen_by_loads_of_other_shapes(m: int, h: int) -> None:
    x = np.arange(m * 2 * h, dtype=np.float32).reshape(m, 2 * h)
    a, b = 2 * x[:, :h], 2 * x[:, h:]
    y = np.zeros_like(x)
    assert scaled_then_rotated.sanitize(x, y) == []
    assert np.array_equal(scaled_then_rotated.reference(x), np.concatenate([-b, a], 1))
    for _ in range(3):
        assert np.array_equal(scaled_then_rotated(x), np.concatenate([-b, a], 1))


# U16 and U19: tails take part in nothing.


@td.kernel
def row_statistics(X: td.Tensor[M, N], Y: td.Out[M] = None, S: td.Out[M] = None, L: td.Out[M, N] = None, *, block=None):
    for m in td.parallel(M):
        x = X[m, N]
        top = x.max(N)
        Y[m] = top
        S[m] = x.sum(N)
        L[m, N] = x - top - td.log(td.exp(x - top).sum(N))


@td.kernel
def top_by_blocks(X: td.Tensor[M, N], Y: td.Out[M] = None, *, block=8):
    for m in td.parallel(M):
        top = td.full(m, value=-float("inf"))
        for n in td.reduce(N.by(block)):
            top = td.maximum(top, X[m, n].max(N))
        Y[m] = top


def framed(x: Any) -> Any:
    """The same values in the middle of an array of NaN."""
    held = np.full((x.shape[0] + 4, x.shape[1] + 9), np.nan, x.dtype)
    held[2:-2, 4:-5] = x
    return held[2:-2, 4:-5]


@pytest.mark.parametrize("n", [11, 65])
def test_u16_u19_absent_elements_take_part_in_nothing(n: int) -> None:
    x = framed(-1 - np.random.default_rng(n).random((9, n), np.float32))
    top, total, logs = row_statistics(x)
    wide = x.astype(np.float64)
    assert np.array_equal(top, x.max(1)) and (top < 0).all()
    assert close(total, wide.sum(1), 1e-5 * n)
    shifted = wide - wide.max(1, keepdims=True)
    assert close(logs, shifted - np.log(np.exp(shifted).sum(1, keepdims=True)), 1e-5)
    assert row_statistics.sanitize(x) == []
    for block in (4, 64):
        assert np.array_equal(everywhere(top_by_blocks, x, block=block), x.max(1))


def test_u19_what_was_never_written_is_found() -> None:
    @td.kernel
    def half_filled(X: td.Tensor[N], Y: td.Out[()] = None):
        t = td.empty(N)
        for n in td.parallel(N[1:]):
            t[n] = X[n]
        Y[()] = t.max()

    found = half_filled.sanitize(np.ones(5, np.float32))
    assert [f.code for f in found] == ["read/uninitialised"]
    assert "t" in found[0].message and found[0].span is not None
    assert np.isnan(half_filled.reference(np.ones(5, np.float32)))


# U20: scans keep the order of their operands.

weighted = td.Monoid((0, 1), lambda a, b: (a[0] * b[1] + b[0], a[1] * b[1]))


@td.kernel
def running(X: td.Tensor[M, N, td.i64], G: td.Tensor[M, N, td.i64], Y: td.Out[M, N, td.i64] = None):
    for m in td.parallel(M):
        total, _ = td.scan((X[m, N], G[m, N]), N, weighted)
        Y[m, N] = total


@pytest.mark.parametrize("n", [1, 2, 3, 8, 63, 64, 65, 128, 200, 1024])
def test_u20_a_scan_is_the_loop(n: int) -> None:
    random = np.random.default_rng(n)
    x, g = random.integers(-5, 6, (3, n)), random.integers(-1, 3, (3, n))
    expected, state = np.zeros_like(x), np.zeros(3, np.int64)
    for i in range(n):
        state = state * g[:, i] + x[:, i]  # wraps as the kernel does
        expected[:, i] = state
    assert n > 200 or running.sanitize(x, g) == []
    assert np.array_equal(running.reference(x, g), expected)
    assert np.array_equal(running(x, g), expected)


# U24 and U26: which of several is the greatest.


@td.kernel
def positions(X: td.Tensor[M, N], F: td.Out[M] = None, S: td.Out[M] = None):
    for m in td.parallel(M):
        F[m] = X[m, N].argmax(N)
        S[m] = X[m, N].argmax(N, nan="ignore")


def test_u24_nan_by_one_rule_everywhere() -> None:
    nan, inf = np.nan, np.inf
    rows = [[nan, 5, 7], [3, nan, 9], [inf, nan, 2], [nan, nan, nan], [-inf, -inf, -inf], [nan, -inf, nan], [1, 2, 2]]
    x = np.array(rows, np.float32)
    first, skipping = everywhere(positions, x)
    assert first.tolist() == [0, 1, 1, 0, 0, 0, 1]
    assert skipping.tolist() == [2, 2, 0, 0, 0, 1, 1]
    assert first.dtype == skipping.dtype == np.int64


later = td.Monoid(
    (-(2**31), -1), lambda a, b: (td.maximum(a[0], b[0]), td.where(b[0] >= a[0], b[1], a[1])), laws="declared"
)


@td.kernel
def ties(X: td.Tensor[M, N, td.i32], F: td.Out[N] = None, L: td.Out[N] = None):
    for n in td.parallel(N):
        F[n] = X[M, n].argmax(M)
        _, last = td.fold((X[M, n], M.coords.to(td.i32)), M, later)
        L[n] = last


def test_u26_the_first_of_equals_or_the_last() -> None:
    x = np.random.default_rng(3).integers(0, 3, (13, 17)).astype(np.int32)
    first, last = everywhere(ties, x)
    assert np.array_equal(first, x.argmax(0))
    assert np.array_equal(last, 12 - x[::-1].argmax(0))


# U34: sums of bools.


@td.kernel
def counted(X: td.Tensor[M, N, td.bool_], C: td.Out[N] = None, A: td.Out[N, td.bool_] = None):
    for n in td.parallel(N):
        s = X[M, n].sum(M)
        C[n] = s
        A[n] = s


@pytest.mark.parametrize("m", [0, 1, 127, 128, 256, 300])
def test_u34_a_sum_of_bools_is_a_count(m: int) -> None:
    x = np.ones((m, 3), np.bool_)
    x[:, 1] = False
    count, some = everywhere(counted, x)
    assert count.dtype == np.int32 and count.tolist() == [m, 0, m]
    assert some.dtype == np.bool_ and some.tolist() == [m > 0, False, m > 0]


# U36: infinities and NaN through small formats.


@td.kernel
def through(X: td.Tensor[N], Y: td.Out[N] = None, Z: td.Out[N] = None, *, to=td.f8e5m2):
    for n in td.parallel(N):
        Y[n] = X[n].to(to)
        Z[n] = X[n].to(to, saturate=True)


def test_u36_infinities_and_nan_are_kept() -> None:
    half = np.array([np.inf, -np.inf, np.nan, 1.0, 60000.0], np.float16)
    y, z = through.reference(half, to=td.f8e5m2)
    called_y, called_z = through(half, to=td.f8e5m2)
    for got in (y, called_y):
        wide = got.astype(np.float32)
        assert wide[0] == np.inf and wide[1] == -np.inf and np.isnan(wide[2]) and wide[3] == 1
    assert np.array_equal(z.astype(np.float32), called_z.astype(np.float32), equal_nan=True)
    single = np.array([465.0, 448.0, -1e9, np.nan, 0.25], np.float32)
    for run in (through.reference, through):
        y, z = run(single, to=td.f8e4m3)
        assert np.isnan(y.astype(np.float32)[[0, 2, 3]]).all() and y.astype(np.float32)[4] == 0.25
        assert z.astype(np.float32).tolist()[:3] == [448.0, 448.0, -448.0]
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    for run in (through.reference, through):
        wide, _ = run(codes, to=td.bf16)
        assert np.array_equal(wide.astype(np.float32), codes.astype(np.float32), equal_nan=True)


# U38: one table of promotion.


@td.kernel
def multiplied(X: td.Tensor[N], Z: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N):
        Y[n] = X[n] * Z[n]


@pytest.mark.parametrize(
    "a, b, result",
    [
        ("int32", "float16", "float16"),
        ("int32", "bfloat16", "bfloat16"),
        ("float16", "bfloat16", "float32"),
        ("int8", "uint8", "int16"),
        ("int64", "float32", "float32"),
        ("bfloat16", "float32", "float32"),
        ("bool", "int8", "int8"),
        ("float16", "float16", "float16"),
    ],
)
def test_u38_mixed_operands_follow_the_table(a: str, b: str, result: str) -> None:
    kinds = {"bfloat16": ml_dtypes.bfloat16}
    x, z = (np.array([0, 1, 1, 0]).astype(kinds.get(k, k)) for k in (a, b))
    for p, q in ((x, z), (z, x)):
        y = everywhere(multiplied, p, q)
        assert y.dtype == np.dtype(kinds.get(result, result)) and y.astype(int).tolist() == [0, 1, 1, 0]


@td.kernel
def scaled_twice(
    X: td.Tensor[N, td.i32],
    s: td.Scalar[td.f16],
    t: td.Scalar[td.bf16],
    Y: td.Out[N] = None,
    Z: td.Out[N] = None,
    Q: td.Out[N] = None,
):
    for n in td.parallel(N):
        y = X[n] * s
        Y[n] = y
        Z[n] = y * t
        Q[n] = y / s


def test_u38_tiles_times_numbers_and_quotients() -> None:
    x = np.arange(4, dtype=np.int32)
    y, z, q = scaled_twice.reference(x, np.float16(1.5), ml_dtypes.bfloat16(2))
    assert [a.dtype.name for a in (y, z, q)] == ["float16", "float32", "float16"]
    assert np.array_equal(y, x * 1.5) and np.array_equal(z, x * 3) and np.array_equal(q, x)
    called = scaled_twice(x, np.float16(1.5), ml_dtypes.bfloat16(2))
    assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip((y, z, q), called, strict=True))
    with pytest.raises(td.TreadleError) as caught:
        multiplied(np.ones(3, ml_dtypes.bfloat16), np.ones(3, ml_dtypes.float8_e4m3fn))
    assert caught.value.code == "dtype/no-arithmetic" and "f8e4m3" in caught.value.found


@td.kernel
def times(X: td.Tensor[N], Y: td.Out[N] = None, *, by=1):
    for n in td.parallel(N):
        Y[n] = X[n] * by


def test_u38_the_table_of_the_page_entry_by_entry() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "numerics.md").read_text()
    table = page.split("<!-- generated: promotion -->")[1].split("<!-- end of promotion -->")[0]
    rows = [[c.strip(" *`") for c in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")]
    heads, entries = rows[0][1:], 0
    for name, *results in (r for r in rows[1:] if "---" not in r[0]):
        x = td.like(named(name), 4)
        for other, result in zip(heads, results, strict=True):
            entries += 1
            if result == "mistake":
                with pytest.raises(td.TreadleError) as caught:
                    multiplied.program(x, td.like(named(other), 4))
                assert caught.value.code == "dtype/no-common"
                continue
            python = {"Python int": 1, "Python float": 1.5}.get(other)
            made = times.program(x, by=python) if python else multiplied.program(x, td.like(named(other), 4))
            assert [t.dtype.name for t in made.tensors if t.out] == [result], (name, other)
    assert entries == 13 * 15


def named(dtype: str) -> Any:
    return getattr(td, "bool_" if dtype == "bool" else dtype)


# U54: a staged branch that is not taken is not evaluated.


@td.kernel
def guarded(X: td.Tensor[N], Y: td.Out[N] = None, *, strict=False, limit=None):
    for n in td.parallel(N.each):
        if X[n] > 2:
            Y[n] = 1.0
        else:
            if strict:
                assert limit is not None and limit < 0, "a limit below zero"
            Y[n] = X[n]


def test_u54_a_dead_branch_is_never_evaluated() -> None:
    x = np.arange(5, dtype=np.float32)
    assert everywhere(guarded, x).tolist() == [0, 1, 2, 1, 1]
    with pytest.raises(td.TreadleError) as caught:
        guarded(x, strict=True, limit=3)
    assert caught.value.code == "capture/python-error" and "a limit below zero" in caught.value.found


# U80: the interpreter computes with values, not with bits.


@td.kernel
def bf16_product(A: td.Tensor[M, N, td.bf16], B: td.Tensor[N, H, td.bf16], Y: td.Out[M, H, td.bf16] = None):
    for m in td.parallel(M):
        Y[m, H] = td.mma(A[m, N], B[N, H], td.zeros(m, H)).to(td.bf16)


@td.kernel
def bf16_order(X: td.Tensor[N, td.bf16], Z: td.Tensor[N, td.bf16], L: td.Out[N] = None, S: td.Out[()] = None):
    L[N] = X[N] < Z[N]
    S[()] = X[N].sum()


def test_u80_small_floats_are_values() -> None:
    random = np.random.default_rng(5)
    a, b = (random.integers(-2, 3, (11, 11)).astype(ml_dtypes.bfloat16) for _ in range(2))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(everywhere(bf16_product, a, b).astype(np.float32), expected)
    x = np.array([-5, -2, 3, -0.0, 1], ml_dtypes.bfloat16)
    z = np.array([-2, -5, 4, 0.0, np.nan], ml_dtypes.bfloat16)
    less, total = everywhere(bf16_order, x, z)
    assert less.tolist() == [True, False, True, False, False] and total == -3
    assert np.isnan(everywhere(bf16_order, z, x)[1])
