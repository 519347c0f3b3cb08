"""Conversions, exhaustive from and to the small formats; the rounding rule against an independent table search."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from treadle.dtype import formats as f
from treadle.dtype.convert import convert, from_code, round_to
from treadle.dtype.formats import ALL, DType

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")

SMALL_FLOATS = [d for d in ALL if d.is_float and d.bits <= 8]
NARROW = [*SMALL_FLOATS, f.f16, f.bf16]


def every_value(d: DType) -> np.ndarray:
    """All values of a format of at most 16 bits."""
    if d.bits <= 8:
        return from_code(np.arange(1 << d.bits, dtype=np.uint8), d)
    return np.arange(1 << 16, dtype=np.uint16).view(d.numpy)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal values, NaN with NaN, the sign of zero included."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    zeros = (a == 0) & (b == 0)
    return bool(np.all(((a == b) & (~zeros | (np.signbit(a) == np.signbit(b)))) | (np.isnan(a) & np.isnan(b))))


def edge_floats() -> np.ndarray:
    """f32 numbers at and beside every number and midpoint of the 8-bit formats, and special values."""
    points = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, 2**-128, 2**-127])]
    for d in SMALL_FLOATS:
        values = every_value(d).astype(np.float64)
        values = np.unique(np.abs(values[np.isfinite(values)]))
        points += [values, (values[1:] + values[:-1]) / 2, values * 1.25, values[-1:] * 1.5]
    x = np.concatenate(points).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("dst", SMALL_FLOATS, ids=str)
def test_small_floats_as_ml_dtypes(dst: DType) -> None:
    x = edge_floats()
    with np.errstate(all="ignore"):
        want = x.astype(dst.numpy)
    got = convert(x, f.f32, dst)
    if dst == f.f4e2m1:
        assert got[np.isnan(x)].astype(np.float64).tolist() == [6.0] * int(np.isnan(x).sum())
        x, got, want = x[~np.isnan(x)], got[~np.isnan(x)], want[~np.isnan(x)]
    if dst == f.f8e8m0:
        # ml_dtypes rounds subnormal f32 numbers above 2^-127 upwards; test_e8m0_from_subnormals has the right ones.
        low = (np.abs(x) > 2.0**-127) & (np.abs(x) < 2.0**-126)
        got, want = got[~low], want[~low]
    assert same(got, want)


def test_e8m0_from_subnormals() -> None:
    x = np.float32(2.0**-127) * np.array([0.01, 0.5, 1.0, 1.25, 1.75, 2.0], np.float32)
    assert convert(x, f.f32, f.f8e8m0).astype(np.float64).tolist() == [2.0**-127] * 4 + [2.0**-126] * 2


@pytest.mark.parametrize("dst", [f.f16, f.bf16], ids=str)
def test_half_formats_from_f64_round_once(dst: DType) -> None:
    values = every_value(dst).astype(np.float64)
    values = np.unique(np.abs(values[np.isfinite(values)]))
    middle = (values[1:] + values[:-1]) / 2
    x = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0)])
    got = convert(x, f.f64, dst).astype(np.float64)
    n = len(middle)
    assert np.array_equal(got[n : 2 * n], values[1:])
    assert np.array_equal(got[2 * n :], values[:-1])
    even = np.where(np.arange(n) % 2 == 0, values[:-1], values[1:])
    assert np.array_equal(got[:n], even)


@pytest.mark.parametrize("dst", [d for d in NARROW if d.has_zero], ids=str)
def test_round_to_is_nearest(dst: DType) -> None:
    """Against a search in the table of all values with exact fractions."""
    values = every_value(dst).astype(np.float64)
    table = np.unique(np.abs(values[np.isfinite(values)]))
    rng = np.random.default_rng(5)
    x = rng.choice(table[1:], 300) * rng.uniform(0.5, 1.5, 300)
    x = x[x <= table[-1]]
    for value, got in zip(x, round_to(x, dst)):
        exact = Fraction(float(value))
        best = min(abs(Fraction(float(t)) - exact) for t in table[max(0, np.searchsorted(table, value) - 2) :][:4])
        assert abs(Fraction(float(got)) - exact) == best


@pytest.mark.parametrize("src", NARROW, ids=str)
def test_widening_is_exact(src: DType) -> None:
    values = every_value(src)
    assert same(convert(values, src, f.f32), values)
    assert same(convert(values, src, f.f64), values)


@pytest.mark.parametrize("src", NARROW, ids=str)
@pytest.mark.parametrize("dst", SMALL_FLOATS, ids=str)
def test_small_to_small_is_one_rounding(src: DType, dst: DType) -> None:
    values = every_value(src)
    assert same(convert(values, src, dst), convert(values.astype(np.float64), f.f64, dst))


@pytest.mark.parametrize("dst", [d for d in ALL if d.is_float and d != f.f64], ids=str)
def test_overflow_and_saturate(dst: DType) -> None:
    top = float(dst.finite_max)
    x = np.array([top * 4, np.inf, -top * 4, -np.inf, np.nan, top])
    plain = convert(x, f.f64, dst).astype(np.float64)
    tight = convert(x, f.f64, dst, saturate=True).astype(np.float64)
    beyond = np.inf if dst.has_inf else np.nan if dst.has_nan else top
    low = -top if dst.signed else np.nan
    nan = np.nan if dst.has_nan else top
    assert same(plain, np.array([beyond, beyond, -beyond if dst.signed else np.nan, low * beyond / top, nan, top]))
    assert same(tight, np.array([top, top, low, low, nan, top]))


@pytest.mark.parametrize("src", [d for d in ALL if d.is_float], ids=str)
@pytest.mark.parametrize("dst", [d for d in ALL if d.is_int], ids=str)
def test_float_to_integer(src: DType, dst: DType) -> None:
    if src.bits <= 16:
        values = every_value(src)
    else:
        x = [0.0, -0.0, 0.99, -0.99, 1.5, -1.5, np.inf, -np.inf, np.nan]
        x += [
            s * 2.0**k * (1 + e)
            for k in (3, 4, 7, 8, 31, 32, 63, 64, 70)
            for s in (1, -1)
            for e in (0, 2**-20, -(2**-20))
        ]
        values = np.array(x, src.numpy)
    got = convert(values, src, dst).tolist() if not dst.packed else convert(values, src, dst).astype(np.int64).tolist()
    for value, result in zip(values.astype(np.float64).tolist(), got):
        want = 0 if value != value else value
        if want in (np.inf, -np.inf):
            want = dst.finite_max if want > 0 else dst.finite_min
        assert result == min(max(int(want), dst.finite_min), dst.finite_max), (value, result)


@pytest.mark.parametrize("src", [d for d in ALL if d.is_int or d.is_bool], ids=str)
@pytest.mark.parametrize("dst", [d for d in ALL if d.is_int], ids=str)
def test_integer_to_integer(src: DType, dst: DType) -> None:
    values = integers(src)
    wide = convert(values, src, dst)
    clamped = convert(values, src, dst, saturate=True)
    for value, wrapped, limited in zip(as_ints(values), as_ints(wide), as_ints(clamped)):
        assert (wrapped - value) % (1 << dst.bits) == 0 and dst.finite_min <= wrapped <= dst.finite_max
        assert limited == min(max(value, dst.finite_min), dst.finite_max)


@pytest.mark.parametrize("src", [d for d in ALL if d.is_int], ids=str)
@pytest.mark.parametrize("dst", [d for d in ALL if d.is_float and d.has_zero], ids=str)
def test_integer_to_float_rounds_once(src: DType, dst: DType) -> None:
    values = integers(src)
    got = convert(values, src, dst).astype(np.float64)
    for value, result in zip(as_ints(values), got.tolist()):
        assert result == nearest(value, dst) or (result != result and nearest(value, dst) is None)


def integers(d: DType) -> np.ndarray:
    if d.is_bool:
        return np.array([False, True])
    if d.bits <= 8:
        return from_code(np.arange(1 << d.bits, dtype=np.uint8), d)
    x = {0, 1, int(d.finite_min), int(d.finite_max)}
    for k in range(d.bits):
        for e in (
            -1,
            0,
            1,
            1 << max(0, k - 9),
            (1 << max(0, k - 9)) - 1,
            (1 << max(0, k - 8)) + 1,
            (1 << max(0, k - 12)) + 1,
        ):
            x |= {(1 << k) + e, -(1 << k) - e}
    return np.array([v for v in sorted(x) if d.finite_min <= v <= d.finite_max], d.numpy)


def as_ints(a: np.ndarray) -> list[int]:
    return [int(v) for v in a.tolist()]


def nearest(value: int, d: DType) -> float | None:
    """`value` rounded to `d` with Python integers; None stands for NaN."""
    size = abs(value)
    quantum = max(0, size.bit_length() - 1 - d.mantissa)
    whole, rest = divmod(size, 1 << quantum)
    half = (1 << quantum) >> 1
    if quantum and (rest > half or (rest == half and whole % 2)):
        whole += 1
    rounded = whole << quantum
    sign = -1.0 if value < 0 else 1.0
    if rounded > d.finite_max:
        return sign * np.inf if d.has_inf else None if d.has_nan else sign * float(d.finite_max)
    return sign * float(rounded)


@pytest.mark.parametrize("src", ALL, ids=str)
def test_to_bool_is_not_zero(src: DType) -> None:
    values = every_value(src) if src.is_float and src.bits <= 16 else np.array([0, 1], src.numpy)
    assert convert(values, src, f.bool_).tolist() == (values.astype(np.float64) != 0).tolist()


def test_ml_dtypes_rounds_twice_where_we_round_once() -> None:
    x = np.array([1 + 2**-8 + 2**-40])
    assert float(convert(x, f.f64, f.bf16)[0]) == 1 + 2**-7
    assert float(x.astype(np.float32).astype(ml_dtypes.bfloat16)[0]) == 1.0
