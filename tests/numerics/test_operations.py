"""Every elementwise operation of every dtype on adversarial operands, on every path, against NumPy.

Paths: the reference interpreter, compiled code, the simulated machine programs of this processor and of a GPU; CUDA
text is assembled. What the language does otherwise than NumPy is listed in docs/numerics.md.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tests.dtype.oracle import exact
from tests.marks import assembled
from tests.numerics.operations import (
    Array,
    bool_ops,
    faults,
    float_ops,
    integer_ops,
    kernels,
    number_ops,
    operands,
    outputs,
    specials,
    weak_ops,
)

import treadle as td
from treadle.driver.build import choose
from treadle.driver.targets import features_of, host_target
from treadle.dtype import promote as rules
from treadle.dtype.formats import ALL, BY_NAME, DType, bf16, bool_, f16, f32, f64, i8, i64, u16, u64
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.simulate.run import simulate
from treadle.toolchain.llvm import compile_ir

M = td.dims("M")
ARITHMETIC = [d for d in ALL if d.has_arithmetic]
EACH = [pytest.param(d, k, id=f"{d}-{k.definition.name}") for d in ARITHMETIC for k in kernels(d)]
FUNCTIONS = {"exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tanh", "erf", "pow"}


def test_no_operation_is_left_out() -> None:
    """What is not here is a function with an accuracy class: tests/numerics/test_functions.py."""
    tried = {n.lower() for k in (number_ops, float_ops, integer_ops) for n in outputs(k)}
    assert tried == set(ELEMENTWISE) - FUNCTIONS


@pytest.mark.parametrize(("d", "kernel"), EACH)
def test_interpreted(d: DType, kernel: Any) -> None:
    x, y = operands(d)
    assert faults(kernel, d, x, y, kernel.reference(x, y)) == []


# Statements of every dtype are compiled one by one in tests/targets/cpu_emit; here whole kernels of each kind of dtype.
COMPILED = [p for p in EACH if p.values[0].name in ("bool", "i8", "i64", "u32", "bf16", "f32", "f64")]


@pytest.mark.parametrize(("d", "kernel"), COMPILED)
def test_compiled(d: DType, kernel: Any) -> None:
    x, y = operands(d)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no plan may give way to the interpreter
        assert faults(kernel, d, x, y, kernel(x, y)) == []


def test_the_code_of_a_remainder_is_there_once() -> None:
    """Copies of it in every lane were 204 kB and 14 seconds of compilation."""
    plan = number_ops.plan(*operands(f64))
    made = compile_ir(plan.source(), cpu_features=features_of(plan.decisions.target), name="x")
    assert len(made.object) < 60_000


# Machine programs of the other dtypes differ in nothing but the dtype's name.
SIMULATED = [p for p in EACH if p.values[0].name in ("bool", "i8", "bf16", "f32")]


@pytest.mark.parametrize(("d", "kernel"), SIMULATED)
@pytest.mark.parametrize("target", [host_target(), "cuda:sm_90a"])
def test_simulated(d: DType, kernel: Any, target: str) -> None:
    x, y = (v[::5] for v in operands(d, 40))
    special, call = kernel.prepare((x, y), {}, kind=target.partition(":")[0])
    machine = choose(special.program, target, special.facts(call)).machine
    run = simulate(machine, call.arrays, seed=1, schedule="program", symbols={"processors": 2})
    assert run.clean, run.findings[0]
    assert faults(kernel, d, x, y, [run.outputs[n] for n in outputs(kernel)]) == []


@assembled
@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("bool", bool_ops),
        ("i8", number_ops),
        ("i64", integer_ops),
        ("bf16", number_ops),
        ("f16", float_ops),
        ("f64", float_ops),
    ],
)
def test_assembled(name: str, kernel: Any) -> None:
    given = td.like(BY_NAME[name], 1000)
    plan = kernel.plan(given, given, target="cuda:sm_90a")
    assert plan.check().status == "verified"
    assert len(plan.record.code) > 1000


@td.kernel
def curved(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = td.exp(X[m])


@assembled
@pytest.mark.parametrize(
    ("d", "functions", "wide"),
    [(f64, "2ulp", True), (f32, "exact", True), (f32, "storage", True), (f32, "2ulp", False)],
)
def test_functions_are_assembled_in_their_class(d: DType, functions: str, wide: bool) -> None:
    """f64, and the classes of f32 that are rounded from it, take neither f32 expansions nor the hardware's."""
    plan = curved.plan(td.like(d, 1000), target="cuda:sm_90a", numerics=td.Numerics(functions=functions))
    assert plan.check().status == "verified"
    assert ("exp_wide" in plan.source()) == wide
    assert ("by the hardware" in plan.machine()) == (not wide)
    assert len(plan.record.code) > 1000


# ---- what is not NumPy's, or is its choice


def zeros(d: DType) -> tuple[Array, Array]:
    x = np.tile(np.array([0.0, -0.0, 0.0, -0.0], d.numpy), 9)
    y = np.tile(np.array([-0.0, 0.0, 0.0, -0.0], d.numpy), 9)
    return x, y


@pytest.mark.parametrize("name", ["bf16", "f32"])
def test_the_first_of_two_zeros_is_their_maximum(name: str) -> None:
    x, y = zeros(BY_NAME[name])
    at = [outputs(number_ops).index(n) for n in ("MAXIMUM", "MINIMUM")]
    for run in (number_ops.reference, number_ops):
        outs = run(x, y)
        for i in at:
            assert np.array_equal(np.signbit(outs[i]), np.signbit(x)), run


@pytest.mark.parametrize("d", [i8, u64, f16, f32], ids=str)
def test_numbers_are_weak(d: DType) -> None:
    """U38: a Python number takes the tile's dtype, a float beside integers makes f32."""
    x = operands(d, 20)[0]
    inner = f32 if d.is_float and d.bits < 32 else d
    with np.errstate(all="ignore"):
        wide = x.astype(inner.numpy)
        three, two = inner.numpy.type(3), inner.numpy.type(2)
        square = (wide * wide).astype(d.numpy).astype(inner.numpy)
        want = {
            "ADD": wide + three,
            "RSUB": three - wide,
            "MUL": two * wide,
            "FLOORDIV": wide // three,
            "MOD": wide % three,
            "POW": square * wide,
        }
        half = x + np.float32(0.5) if d.is_float and d.bits > 16 else x.astype(np.float32) + np.float32(0.5)
    for run in (weak_ops.reference, weak_ops):
        got = dict(zip([n for n in outputs(weak_ops)], run(x), strict=True))
        for name, value in want.items():
            assert got[name].dtype == d.numpy
            with np.errstate(over="ignore"):
                assert np.array_equal(got[name], value.astype(d.numpy), equal_nan=True), (name, run)
        dtype = rules.promote_weak(d, 0.5)
        assert got["HALF"].dtype == dtype.numpy
        assert np.array_equal(got["HALF"], half.astype(dtype.numpy), equal_nan=True), run


@td.kernel
def mixed(X: td.Tensor[M], S: td.Tensor[M], T: td.Tensor[M], A: td.Out[M] = None, B: td.Out[M] = None):
    for m in td.parallel(M):
        a = X[m] * S[m]
        A[m] = a
        B[m] = a * T[m]


def test_integer_by_two_half_formats() -> None:
    """U38: int32 times f16 is f16, times bf16 is f32, each rounded once."""
    x = np.arange(-40, 41, dtype=np.int32) * 37
    s = np.linspace(-3, 3, 81).astype(np.float16)
    t = np.linspace(0.1, 5, 81).astype(td.bf16.numpy)
    first = (x.astype(np.float16).astype(np.float32) * s.astype(np.float32)).astype(np.float16)
    for run in (mixed.reference, mixed):
        a, b = run(x, s, t)
        assert a.dtype == np.float16 and np.array_equal(a, first)
        assert b.dtype == np.float32 and np.array_equal(b, first.astype(np.float32) * t.astype(np.float32))


N = td.dims("N")


@td.kernel
def totals(
    X: td.Tensor[M, N],
    SUM: td.Out[M] = None,
    PROD: td.Out[M] = None,
    MAX: td.Out[M] = None,
    MIN: td.Out[M] = None,
    ANY: td.Out[M] = None,
    ALL: td.Out[M] = None,
):
    for m in td.parallel(M.each):
        x = X[m, N]
        SUM[m] = x.sum()
        PROD[m] = x.prod()
        MAX[m] = x.max()
        MIN[m] = x.min()
        ANY[m] = x.any()
        ALL[m] = x.all()


@td.kernel
def places(X: td.Tensor[M, N], TOP: td.Out[M] = None, LOW: td.Out[M] = None):
    for m in td.parallel(M.each):
        TOP[m] = X[m, N].argmax()
        LOW[m] = X[m, N].argmin()


@pytest.mark.parametrize("d", [bool_, i8, i64, u16, u64, f16, bf16, f32, f64], ids=str)
def test_folds(d: DType) -> None:
    """Sums and products in the dtype of `promote.total`, integers exact and wrapping; NaN stays; ties to the first."""
    rng = np.random.default_rng(4)
    special = specials(d)
    if d.is_float:  # bounded, so that what is not finite in a sum was so before
        finite = np.isfinite(exact(special))
        limit = d.numpy.type(float(d.finite_max) / 64)
        special = np.where(finite & (np.abs(exact(special)) > float(limit)), limit, special)
        rows = [np.resize(rng.permutation(special[finite]), len(special)) for _ in range(3)]
        rows += [np.resize(special[~np.isnan(exact(special))], len(special))]
    else:
        rows = [rng.permutation(special)]
    if d.is_int:
        rows += [rng.integers(int(d.finite_min), int(d.finite_max), len(special), dtype=d.numpy, endpoint=True)]
    x = np.stack([*rows, *(rng.permutation(special) for _ in range(5))])
    dtype = rules.total(d)
    with np.errstate(all="ignore"):
        wide = x.astype(dtype.numpy)
        small = x.astype(np.float32) if d.is_float and d.bits < 32 else x
        want = {
            "MAX": small.max(1),
            "MIN": small.min(1),
            "ANY": x.astype(bool).any(1),
            "ALL": x.astype(bool).all(1),
        }
        if not d.is_float:
            want |= {"SUM": wide.sum(1, dtype=dtype.numpy), "PROD": wide.prod(1, dtype=dtype.numpy)}
    for run in (places.reference, places):
        top, low = run(x)
        assert np.array_equal(top, small.argmax(1)) and np.array_equal(low, small.argmin(1)), run
    for run in (totals.reference, totals):
        got = dict(zip([n for n in outputs(totals)], run(x), strict=True))
        assert got["SUM"].dtype == got["PROD"].dtype == dtype.numpy
        assert got["MAX"].dtype == got["MIN"].dtype == d.numpy
        for name, value in want.items():
            assert np.array_equal(got[name].astype(value.dtype), value, equal_nan=value.dtype.kind == "f"), (name, run)
        if d.is_float:
            with np.errstate(invalid="ignore"):
                total, size = exact(x).sum(1), np.abs(exact(x)).sum(1)
            off = np.abs(exact(got["SUM"]) - total) <= x.shape[1] * 2.0**-(dtype.mantissa) * size
            assert np.all(off | (exact(got["SUM"]) == total) | (np.isnan(got["SUM"]) & np.isnan(total))), run


@td.kernel
def flags(X: td.Tensor[M, N, td.bool_], S: td.Out[M] = None, B: td.Out[M, td.bool_] = None):
    for m in td.parallel(M.each):
        S[m] = X[m, N].sum()
        B[m] = X[m, N].sum()


def test_a_sum_of_flags_is_stored_to_a_flag() -> None:
    """U34: 256 is true; the sum itself is an i32."""
    x = np.ones((3, 256), bool)
    x[1] = False
    for run in (flags.reference, flags):
        s, b = run(x)
        assert s.dtype == np.int32 and s.tolist() == [256, 0, 256]
        assert b.dtype == np.bool_ and b.tolist() == [True, False, True]


K = td.dims("K")


@td.kernel
def halves(X: td.Tensor[M, K, td.bf16], W: td.Tensor[K, N, td.bf16], Y: td.Out[M, N, f32] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc


@td.kernel
def compared(X: td.Tensor[M, td.bf16], Y: td.Tensor[M, td.bf16], L: td.Out[M] = None, S: td.Out[M] = None):
    for m in td.parallel(M):
        L[m] = X[m] < Y[m]
        S[m] = X[m] + Y[m]


def test_bf16_is_numbers_not_bits() -> None:
    """U80: products of small integers, a NaN in a sum, -5 < -2; each operation rounds."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, (16, 16)).astype(np.float32) for _ in range(2))
    for run in (halves.reference, halves):
        assert np.array_equal(run(x.astype(bf16.numpy), w.astype(bf16.numpy)), x @ w)
    a = np.array([-5, 1, np.nan, 256], np.float32).astype(bf16.numpy)
    b = np.array([-2, np.nan, 1, 1], np.float32).astype(bf16.numpy)
    for run in (compared.reference, compared):
        less, total = run(a, b)
        assert less.tolist() == [True, False, False, False]
        assert np.array_equal(total.astype(np.float32), np.array([-7, np.nan, np.nan, 256], np.float32), equal_nan=True)
