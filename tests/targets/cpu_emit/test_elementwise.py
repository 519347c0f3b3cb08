"""Every elementwise operation and conversion against the reference, bit for bit where the language says so."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, S, program

from treadle.algebra.expr import const, lt, sym
from treadle.dtype.convert import convert
from treadle.dtype.formats import BY_NAME, DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u32, u64
from treadle.evaluate.scalar import apply
from treadle.ir.guard import Unit
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.machine.form import Compute, Frag, FragRef, Load, Loop, MemRef, Store
from treadle.math.numpy_ops import apply as expanded
from treadle.math.numpy_wide import apply_wide
from treadle.math.table import FUNCTIONS, expansion, wide_expansion
from treadle.targets.cpu.emit.errors import EmitIllFormed

FLOATS = (f16, bf16, f32, f64)
INTEGERS = (i8, i16, i32, i64, u8, u32, u64)
EXPANDED = "exp exp2 log log2 log1p expm1 sin cos tanh erf pow rsqrt".split()


def values(dtype: DType, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Random bit patterns, small numbers, and the special values of the dtype."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_)
    raw = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype.numpy).copy()
    small = rng.integers(-9, 10, count)
    raw[::3] = (small if dtype.kind != "uint" else np.abs(small)).astype(dtype.numpy)[::3]
    special: list[Any] = [0, 1, dtype.finite_max, dtype.finite_min]
    if dtype.is_float:
        tiny = dtype.smallest
        special += [-0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, tiny, -tiny, 2.0**dtype.min_exponent]
        raw[1::3] = (rng.standard_normal(count) * 100).astype(dtype.numpy)[1::3]
    with np.errstate(all="ignore"):
        for i, x in enumerate(special):
            raw[(7 * i + 1) % count] = np.asarray(x).astype(dtype.numpy)
    return raw


def elementwise(name: str, args: tuple[DType, ...], result: DType, level: str, functions: str = "2ulp") -> Compiled:
    """`Y = name(A0, A1, ...)` over one dimension, 16 lanes at a time with a tail."""
    i, n = sym("i"), sym("N")
    inside = (lt(i + S[0], n),)
    names = [f"A{k}" for k in range(len(args))]
    body: list[Any] = [Load(dst=a.lower(), src=MemRef(a, (i + S[0],)), where=inside, fill=1) for a in names]
    body.append(Compute(dst="y", fn=name, args=tuple(FragRef(a.lower()) for a in names)))
    body.append(Store(dst=MemRef("Y", (i + S[0],)), src=FragRef("y"), where=inside))
    frags = [Frag(a.lower(), d, (16,)) for a, d in zip(names, args)] + [Frag("y", result, (16,))]
    tensors = [(a, d, "N") for a, d in zip(names, args)] + [("Y", result, "N")]
    loop = Loop(var="i", lo=const(0), hi=n, step=const(16), body=body)
    facts = [Unit(t[0], 0) for t in tensors]
    return Compiled(program(tensors, [loop], frags, level=level, facts=facts, numerics={"functions": functions}))


def same(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: DType) -> bool:
    """Equal bits, any NaN equal to any, zeros by sign too."""
    if not dtype.is_float:
        return bool((got == want).all())
    a, b = got.astype(np.float64), want.astype(np.float64)
    return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())


DIRECT = [
    (name, dtype)
    for name, (_, kinds, _) in ELEMENTWISE.items()
    if name not in EXPANDED
    for dtype in (bool_, *INTEGERS, *FLOATS)
    if dtype.kind[0] in kinds
]


@cache
def grouped(dtype: DType) -> tuple[str, ...]:
    return tuple(name for name, d in DIRECT if d == dtype)


@pytest.mark.parametrize("dtype", [bool_, *INTEGERS, *FLOATS], ids=str)
def test_direct_operations(dtype: DType) -> None:
    level = HOST_LEVELS[-1] if dtype.bits != 32 else HOST_LEVELS[0]
    for name in grouped(dtype):
        arity, _, kind = ELEMENTWISE[name]
        kinds = (bool_, dtype, dtype) if name == "where" else (dtype,) * arity
        result = bool_ if kind == "bool" else dtype
        run = elementwise(name, kinds, result, level)
        args = [values(d, 203, 10 + k) for k, d in enumerate(kinds)]
        out = np.zeros(203, result.numpy)
        run(**{f"A{k}": a for k, a in enumerate(args)}, Y=out)
        want = apply(name, dtype, *args)
        if name in ("maximum", "minimum") and dtype.is_float:
            # Which zero of two comes is NumPy's choice.
            want, out = (np.where(x == 0, np.zeros_like(x), x) for x in (want, out))
        assert same(out, want.astype(result.numpy), result), (name, dtype)


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_extrema_on_every_level(level: str, dtype: DType) -> None:
    """Vectors may be longer than the registers of a level: no instruction is named that it has not."""
    x, y = (values(dtype, 203, seed) for seed in (10, 11))
    for name in ("maximum", "minimum"):
        out = np.zeros(203, dtype.numpy)
        elementwise(name, (dtype, dtype), dtype, level)(A0=x, A1=y, Y=out)
        want = apply(name, dtype, x, y)
        want, out = (np.where(v == 0, np.zeros_like(v), v) for v in (want, out))  # whichever zero of two
        assert same(out, want.astype(dtype.numpy), dtype)


CASTS = [(a, b) for a in (bool_, *INTEGERS, *FLOATS) for b in (bool_, *INTEGERS, *FLOATS) if a != b]


@pytest.mark.parametrize("source", [bool_, *INTEGERS, *FLOATS], ids=str)
def test_conversions(source: DType) -> None:
    for target in [b for a, b in CASTS if a == source]:
        for saturate in (False, True):
            run = elementwise("cast.saturate" if saturate else "cast", (source,), target, HOST_LEVELS[-1])
            x = values(source, 1003, 21)
            out = np.zeros(1003, target.numpy)
            run(A0=x, Y=out)
            assert same(out, convert(x, source, target, saturate), target), (source, target, saturate)


def test_every_bf16_rounding_pattern() -> None:
    """All upper halves with the lower halves around a tie: every f32 that rounds in a different way."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for level in HOST_LEVELS:
        run = elementwise("cast", (f32,), bf16, level)
        for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
            x = (upper | np.uint32(lower)).view(np.float32)
            out = np.zeros(x.shape, bf16.numpy)
            run(A0=x, Y=out)
            assert (out.view(np.uint16) == convert(x, f32, bf16).view(np.uint16)).all()


@pytest.mark.parametrize("name", EXPANDED)
@pytest.mark.parametrize("level", HOST_LEVELS)
def test_functions_are_the_expansions_bit_for_bit(name: str, level: str) -> None:
    arity = ELEMENTWISE[name][0]
    args = [values(f32, 4001, 30 + k) for k in range(arity)]
    run = elementwise(name, (f32,) * arity, f32, level)
    out = np.zeros(4001, np.float32)
    run(**{f"A{k}": a for k, a in enumerate(args)}, Y=out)
    assert same(out, expanded(expansion(name, target="cpu").expand, *args), f32)


def test_functions_of_small_floats_round_once() -> None:
    x = values(bf16, 999, 40)
    out = np.zeros(999, bf16.numpy)
    elementwise("exp", (bf16,), bf16, HOST_LEVELS[-1])(A0=x, Y=out)
    assert same(out, convert(expanded(expansion("exp").expand, convert(x, bf16, f32)), f32, bf16), bf16)


def test_bitcast_keeps_bits() -> None:
    for a, b in ((f32, i32), (i32, f32), (f64, u64), (bf16, i16), (i16, f16)):
        x = values(a, 77, 41)
        out = np.zeros(77, b.numpy)
        elementwise("bitcast", (a,), b, HOST_LEVELS[-1])(A0=x, Y=out)
        assert (out.view(np.uint8) == x.view(np.uint8)).all()


@pytest.mark.parametrize("name", [n for n in EXPANDED if FUNCTIONS[n].wide])
def test_functions_of_f64_are_the_expansions_bit_for_bit(name: str) -> None:
    arity = ELEMENTWISE[name][0]
    args = [values(f64, 501, 50 + k) for k in range(arity)]
    out = np.zeros(501)
    elementwise(name, (f64,) * arity, f64, HOST_LEVELS[-1])(**{f"A{k}": a for k, a in enumerate(args)}, Y=out)
    assert same(out, apply_wide(wide_expansion(name).expand, *args), f64)


@pytest.mark.parametrize("accuracy", ["exact", "storage"])
def test_exact_functions_are_rounded_from_f64(accuracy: str) -> None:
    x = values(f32, 501, 51)
    out = np.zeros(501, np.float32)
    elementwise("exp", (f32,), f32, HOST_LEVELS[-1], accuracy)(A0=x, Y=out)
    with np.errstate(all="ignore"):
        assert same(out, apply_wide(wide_expansion("exp").expand, x).astype(np.float32), f32)


def test_formats_without_arithmetic_are_refused() -> None:
    with pytest.raises(EmitIllFormed, match="add of f8e4m3"):
        elementwise("add", (BY_NAME["f8e4m3"],) * 2, BY_NAME["f8e4m3"], HOST_LEVELS[-1])


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2", "f8e8m0"])
def test_fp8_there_and_back(name: str, level: str) -> None:
    """Every code; the conversions of every dtype are in tests/numerics."""
    d = BY_NAME[name]
    codes = np.arange(256, dtype=np.uint8).view(d.numpy)
    wide, back = np.zeros(256, np.float32), np.zeros(256, d.numpy)
    elementwise("cast", (d,), f32, level)(A0=codes, Y=wide)
    assert same(wide, convert(codes, d, f32), f32)
    elementwise("cast", (f32,), d, level)(A0=wide, Y=back)
    assert np.array_equal(back.view(np.uint8), convert(wide, f32, d).view(np.uint8))
