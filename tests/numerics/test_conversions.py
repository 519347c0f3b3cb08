"""`.to` on every path, every value of every small format: interpreter, compiled code, simulated machine program.

`treadle.dtype.convert` is the oracle here; `tests/dtype` holds it against tables and ml_dtypes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.dtype.oracle import every_value, exact, same

import treadle as td
from treadle import (
    bf16,
    bool_,
    f4e2m1,
    f8e4m3,
    f8e5m2,
    f8e8m0,
    f16,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    i64,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from treadle.dtype.convert import convert
from treadle.dtype.formats import ALL, DType
from treadle.dtype.packing import pack

Array = NDArray[Any]
M = td.dims("M")


def to_floats(src: DType) -> Any:
    @td.kernel
    def floats(
        X: td.Tensor[M, src],
        A: td.Out[M, f16] = None,
        B: td.Out[M, bf16] = None,
        C: td.Out[M, f32] = None,
        D: td.Out[M, f64] = None,
        E: td.Out[M, f8e4m3] = None,
        F: td.Out[M, f8e5m2] = None,
        G: td.Out[M, f8e8m0] = None,
        *,
        saturate: bool,
    ):
        for m in td.parallel(M):
            x = X[m]
            A[m] = x.to(f16, saturate=saturate)
            B[m] = x.to(bf16, saturate=saturate)
            C[m] = x.to(f32, saturate=saturate)
            D[m] = x.to(f64, saturate=saturate)
            E[m] = x.to(f8e4m3, saturate=saturate)
            F[m] = x.to(f8e5m2, saturate=saturate)
            G[m] = x.to(f8e8m0, saturate=saturate)

    return floats


def to_integers(src: DType) -> Any:
    @td.kernel
    def integers(
        X: td.Tensor[M, src],
        A: td.Out[M, bool_] = None,
        B: td.Out[M, i8] = None,
        C: td.Out[M, i16] = None,
        D: td.Out[M, i32] = None,
        E: td.Out[M, i64] = None,
        F: td.Out[M, u8] = None,
        G: td.Out[M, u16] = None,
        H: td.Out[M, u32] = None,
        J: td.Out[M, u64] = None,
        *,
        saturate: bool,
    ):
        for m in td.parallel(M):
            x = X[m]
            A[m] = x.to(bool_, saturate=saturate)
            B[m] = x.to(i8, saturate=saturate)
            C[m] = x.to(i16, saturate=saturate)
            D[m] = x.to(i32, saturate=saturate)
            E[m] = x.to(i64, saturate=saturate)
            F[m] = x.to(u8, saturate=saturate)
            G[m] = x.to(u16, saturate=saturate)
            H[m] = x.to(u32, saturate=saturate)
            J[m] = x.to(u64, saturate=saturate)

    return integers


def to_four_bits(src: DType) -> Any:
    @td.kernel
    def four_bits(
        X: td.Tensor[M, src],
        A: td.Out[M, i4] = None,
        B: td.Out[M, u4] = None,
        C: td.Out[M, f4e2m1] = None,
        *,
        saturate: bool,
    ):
        for m in td.parallel(M):
            x = X[m]
            A[m] = x.to(i4, saturate=saturate)
            B[m] = x.to(u4, saturate=saturate)
            C[m] = x.to(f4e2m1, saturate=saturate)

    return four_bits


KERNELS = {
    "floats": (to_floats, (f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0)),
    "integers": (to_integers, (bool_, i8, i16, i32, i64, u8, u16, u32, u64)),
}


def values_of(d: DType) -> Array:
    """All values of a small format; of a wide one those that small formats tell apart, and random ones."""
    if d.bits <= 16:
        return every_value(d)
    rng = np.random.default_rng(2)
    if d.is_int:
        edge = [
            int(d.finite_min),
            int(d.finite_max),
            *(s * (1 << k) + e for k in range(d.bits) for s in (1, -1) for e in (-1, 0, 1)),
        ]
        shifted = rng.integers(0, 1 << 62, 4000) >> rng.integers(0, 62, 4000)
        inside = [v for v in edge + shifted.tolist() if d.finite_min <= v <= d.finite_max]
        return np.array(inside, d.numpy)
    small = np.concatenate([exact(every_value(s)) for s in ALL if s.is_float and s.bits <= 16])
    small = np.unique(small[np.isfinite(small)])
    with np.errstate(over="ignore"):
        points = np.concatenate([small[::7], (small[1:] + small[:-1])[::7] / 2]).astype(d.numpy)
        limits = [
            s * (2.0**k + e) for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1) for e in (-1, -0.5, 0, 0.5, 1)
        ]
        points = np.concatenate([points, np.array(limits, d.numpy)])
        points = np.concatenate(
            [points, np.nextafter(points, d.numpy.type(np.inf)), np.nextafter(points, d.numpy.type(-np.inf))]
        )
    bits = rng.integers(0, 1 << 32, 8192 * d.bits // 32, dtype=np.uint64).astype(np.uint32).view(d.numpy)
    return np.concatenate([points, bits, np.array([0.0, -0.0, np.inf, -np.inf, np.nan], d.numpy)])


def agree(got: Array, want: Array, d: DType) -> bool:
    """Integers equal; floats equal with the sign of zero, NaN with NaN."""
    return same(got, want) if d.is_float else bool(np.array_equal(got, want))


# All pairs of the other dtypes are tried one statement at a time with the emitter (tests/targets/cpu_emit).
COMPILED = [
    pytest.param(src, which, saturate, id=f"{src}-{which}{'-saturate' if saturate else ''}")
    for src in ALL
    for which in KERNELS
    for saturate in (False, True)
    # What cannot overflow, and floats into integers, do not saturate otherwise.
    if not src.packed
    and src in (bool_, u64, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0)
    and not (saturate and src not in ((f32, f64, f8e5m2) if which == "floats" else (u64,)))
]


@pytest.mark.parametrize(("src", "which", "saturate"), COMPILED)
def test_compiled(src: DType, which: str, saturate: bool) -> None:
    kernel, targets = KERNELS[which]
    values = values_of(src)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no plan may give way to the interpreter
        outs = kernel(src)(values, saturate=saturate)
    for got, dst in zip(outs, targets, strict=True):
        assert agree(got, convert(values, src, dst, saturate), dst), dst


@pytest.mark.parametrize("src", ALL, ids=str)
def test_interpreted(src: DType) -> None:
    """Kernels of 4-bit arguments take two elements a byte, low bits first; an odd extent leaves the last high bits."""
    values = values_of(src)[:4095]
    given = pack(values, src) if src.packed else values
    for kernel, targets in KERNELS.values():
        outs = kernel(src).reference(given, saturate=False)
        for got, dst in zip(outs, targets, strict=True):
            assert agree(got, convert(values, src, dst), dst), dst


@pytest.mark.parametrize("src", ALL, ids=str)
@pytest.mark.parametrize("saturate", [False, True], ids=["overflow", "saturate"])
def test_four_bits_interpreted(src: DType, saturate: bool) -> None:
    values = values_of(src)[:4094]
    outs = to_four_bits(src).reference(pack(values, src) if src.packed else values, saturate=saturate)
    for got, dst in zip(outs, (i4, u4, f4e2m1), strict=True):
        assert got.dtype == np.uint8
        assert np.array_equal(got, pack(convert(values, src, dst, saturate), dst)), dst
