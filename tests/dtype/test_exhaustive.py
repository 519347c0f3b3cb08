"""Every value of every format of at most 16 bits to every dtype; f32 and f64 at all boundaries of the small formats.

Against a table search that shares no arithmetic with the code, and against ml_dtypes, whose deviations are listed here
one by one.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.dtype.oracle import clamped, every_value, exact, rounded, same, table

from treadle.dtype import formats as f
from treadle.dtype.convert import bitcast, convert
from treadle.dtype.formats import ALL, DType

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")

SMALL = [d for d in ALL if d.bits <= 16]
SMALL_FLOATS = [d for d in SMALL if d.is_float]
WHOLE = [d for d in ALL if d.is_int]


@pytest.mark.parametrize(("src", "dst"), [*itertools.product(SMALL, SMALL_FLOATS)], ids=str)
def test_to_small_floats(src: DType, dst: DType) -> None:
    values = every_value(src)
    for saturate in (False, True):
        got = convert(values, src, dst, saturate)
        assert got.dtype == dst.numpy
        if src == dst:
            assert same(got, values)  # no event: not even an infinity is saturated away
        else:
            assert same(got, rounded(exact(values), dst, saturate))


@pytest.mark.parametrize(("src", "dst"), [*itertools.product(SMALL, (f.f32, f.f64))], ids=str)
def test_to_wide_floats_is_exact(src: DType, dst: DType) -> None:
    values = every_value(src)
    assert same(convert(values, src, dst), exact(values))
    got = exact(convert(values, src, dst, saturate=True))
    infinite = np.isinf(exact(values))
    assert same(got[~infinite], exact(values)[~infinite])
    # What holds every number still has infinities to saturate.
    assert (np.abs(got[infinite]) == float(dst.finite_max)).all()


@pytest.mark.parametrize(("src", "dst"), [*itertools.product(SMALL, WHOLE)], ids=str)
def test_to_integers(src: DType, dst: DType) -> None:
    values = every_value(src)
    low, count = int(dst.finite_min), 1 << dst.bits
    for saturate in (False, True):
        got = [int(v) for v in convert(values, src, dst, saturate).tolist()]
        if src.is_float or (saturate and not src.is_bool):
            assert got == clamped(exact(values), dst)
        else:
            assert got == [(int(v) - low) % count + low for v in exact(values).tolist()]


@pytest.mark.parametrize("src", SMALL, ids=str)
def test_to_bool(src: DType) -> None:
    """U34: any value but a zero of either sign is true, NaN too; nothing is cut to low bits."""
    assert np.array_equal(convert(every_value(src), src, f.bool_), exact(every_value(src)) != 0)


def boundaries(dst: DType, wide: DType) -> np.ndarray:
    """Numbers of `dst`, midpoints, and both neighbours of each in `wide`; special values."""
    numbers = table(dst)
    points = np.concatenate(
        [numbers, (numbers[1:] + numbers[:-1]) / 2, numbers[-1:] * np.array([[1.25], [1.5], [2]])[:, 0]]
    )
    points = np.append(points, [2 * numbers[-1] - numbers[-2], (3 * numbers[-1] - numbers[-2]) / 2])
    points = np.append(points, [0.0, numbers[numbers > 0][0] / 2, numbers[numbers > 0][0] / 4, np.inf, np.nan])
    with np.errstate(over="ignore"):
        x = points.astype(wide.numpy)
    x = np.concatenate([x, np.nextafter(x, wide.numpy.type(np.inf)), np.nextafter(x, wide.numpy.type(-np.inf))])
    x = np.append(x, [wide.numpy.type(wide.smallest), wide.numpy.type(wide.finite_max)])
    return np.concatenate([x, -x]).astype(wide.numpy)


@pytest.mark.parametrize(("wide", "dst"), [*itertools.product((f.f32, f.f64), SMALL_FLOATS)], ids=str)
def test_wide_floats_at_boundaries(wide: DType, dst: DType) -> None:
    x = boundaries(dst, wide)
    for saturate in (False, True):
        assert same(convert(x, wide, dst, saturate), rounded(x.astype(np.float64), dst, saturate))


@pytest.mark.parametrize(("wide", "dst"), [*itertools.product((f.f32, f.f64), SMALL_FLOATS)], ids=str)
def test_wide_floats_at_random(wide: DType, dst: DType) -> None:
    """Random bit patterns (all exponents), and random mantissas within the range of the format."""
    rng = np.random.default_rng(11)
    n = 1 << 15
    any_bits = rng.integers(0, 1 << 32, n * wide.bits // 32, dtype=np.uint64).astype(np.uint32).view(wide.numpy)
    numbers = table(dst)
    with np.errstate(over="ignore"):
        near = (rng.choice(numbers, n) * rng.uniform(0.5, 2, n) * rng.choice([-1, 1], n)).astype(wide.numpy)
    x = np.concatenate([any_bits, near])
    for saturate in (False, True):
        assert same(convert(x, wide, dst, saturate), rounded(x.astype(np.float64), dst, saturate))


@pytest.mark.parametrize("dst", SMALL_FLOATS, ids=str)
def test_ml_dtypes_agrees(dst: DType) -> None:
    """From every format of at most 16 bits and from f32, except where the module says otherwise."""
    sources = [(s, every_value(s)) for s in SMALL if s.is_float] + [(f.f32, boundaries(dst, f.f32))]
    for src, values in sources:
        x = exact(values).astype(np.float32)
        with np.errstate(all="ignore"):
            want = x.astype(dst.numpy)
        got = convert(values, src, dst)
        keep = np.ones(x.shape, bool)
        if not dst.has_nan:  # ml_dtypes: NaN to -0, a number like any other; here the largest, as the GPU does
            keep &= ~np.isnan(x)
        if dst == f.f8e8m0:  # ml_dtypes rounds f32 subnormals above 2^-127 upwards
            keep &= ~((np.abs(x) > 2.0**-127) & (np.abs(x) < 2.0**-126))
        if src != dst:
            assert same(got[keep], want[keep]), src
    assert (~keep).sum() < len(keep) / 2


def test_reported_cases() -> None:
    """U36: infinities and NaN are kept; overflow is the format's own, or saturates where asked."""
    half = np.array([np.inf, -np.inf, 65504.0], np.float16)
    assert exact(convert(half, f.f16, f.f8e5m2)).tolist() == [np.inf, -np.inf, np.inf]
    assert exact(convert(half, f.f16, f.f8e5m2, saturate=True)).tolist() == [57344.0, -57344.0, 57344.0]
    nan = np.array([0x7F, 0xFF], np.uint8).view(f.f8e4m3.numpy)
    assert np.isnan(exact(convert(nan, f.f8e4m3, f.bf16))).all()
    x = np.array([448.0, 464.0, 465.0], np.float32)
    assert np.array_equal(exact(convert(x, f.f32, f.f8e4m3)), [448.0, 448.0, np.nan], equal_nan=True)
    assert exact(convert(x, f.f32, f.f8e4m3, saturate=True)).tolist() == [448.0] * 3


BITCASTS = [(a, b) for a in ALL for b in ALL if a.bits == b.bits and not a.is_bool and not b.is_bool]


@pytest.mark.parametrize(("src", "dst"), BITCASTS, ids=str)
def test_bitcasts_keep_every_bit(src: DType, dst: DType) -> None:
    """There and back, every pattern of at most 16 bits, NaN payloads and both zeros included."""
    if src.bits <= 16:
        values = every_value(src)
    else:
        patterns = np.random.default_rng(3).integers(0, 1 << 32, 4096 * src.bits // 32, dtype=np.uint64)
        values = patterns.astype(np.uint32).view(src.numpy)
    there = bitcast(values, src, dst)
    assert there.dtype == dst.numpy and there.shape == values.shape
    back = bitcast(there, dst, src)
    if src.packed:
        assert np.array_equal(back.view(np.uint8) & 15, values.view(np.uint8) & 15)
    else:
        assert there.tobytes() == values.tobytes() == back.tobytes()
