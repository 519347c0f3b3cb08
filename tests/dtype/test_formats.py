"""Each format's facts against ml_dtypes and NumPy, code by code where a format is small."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from treadle.dtype import formats
from treadle.dtype.convert import bitcast, from_code, to_code
from treadle.dtype.formats import ALL, DType
from treadle.dtype.packing import pack, unpack

SMALL = [d for d in ALL if d.bits <= 8 and not d.is_bool]


@pytest.mark.parametrize("d", [d for d in ALL if d.is_float], ids=str)
def test_float_facts(d: DType) -> None:
    info = ml_dtypes.finfo(d.numpy)
    assert d.finite_max == float(info.max)
    assert d.smallest == float(info.smallest_subnormal)
    assert 2.0**d.min_exponent == float(info.smallest_normal)
    assert d.bits == (1 if d.signed else 0) + d.exponent + d.mantissa == info.bits


@pytest.mark.parametrize("d", [d for d in ALL if d.is_int], ids=str)
def test_integer_facts(d: DType) -> None:
    info = ml_dtypes.iinfo(d.numpy)
    assert (d.finite_min, d.finite_max, d.bits) == (int(info.min), int(info.max), info.bits)


@pytest.mark.parametrize("d", [d for d in SMALL if d.is_float], ids=str)
def test_special_values_by_code(d: DType) -> None:
    values = from_code(np.arange(1 << d.bits, dtype=np.uint8), d).astype(np.float64)
    assert np.isinf(values).any() == d.has_inf
    assert np.isnan(values).any() == d.has_nan
    assert (values == 0).any() == d.has_zero
    assert np.signbit(values[~np.isnan(values)]).any() == d.signed


@pytest.mark.parametrize("d", SMALL, ids=str)
def test_code_round_trip(d: DType) -> None:
    codes = np.arange(1 << d.bits, dtype=np.uint8)
    assert np.array_equal(to_code(from_code(codes, d), d), codes)


@pytest.mark.parametrize("d", [formats.i4, formats.u4, formats.f4e2m1], ids=str)
@pytest.mark.parametrize("extent", [0, 1, 2, 7, 16])
def test_packing_round_trip(d: DType, extent: int) -> None:
    codes = (np.arange(3 * extent, dtype=np.uint8) * 7 % 16).reshape(3, extent)
    packed = pack(from_code(codes, d), d)
    assert packed.shape == (3, (extent + 1) // 2)
    assert np.array_equal(to_code(unpack(packed, d, extent), d), codes)
    if extent >= 2:
        assert packed[0, 0] == codes[0, 0] | codes[0, 1] << 4


def test_bitcast_keeps_bits() -> None:
    x = np.array([1.0, -0.0, np.inf], np.float32)
    assert bitcast(x, formats.f32, formats.u32).tolist() == [0x3F800000, 0x80000000, 0x7F800000]
    nibbles = from_code(np.arange(16, dtype=np.uint8), formats.f4e2m1)
    assert bitcast(nibbles, formats.f4e2m1, formats.i4).astype(np.int64).tolist() == [*range(8), *range(-8, 0)]


def test_lookup() -> None:
    assert all(formats.named(d.name) is d and formats.from_numpy(d.numpy) is d for d in ALL)
    with pytest.raises(formats.UnknownDType):
        formats.named("f12")
    with pytest.raises(formats.UnknownDType):
        formats.from_numpy(np.complex64)
