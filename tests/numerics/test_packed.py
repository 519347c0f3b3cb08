"""Packed 4-bit dtypes and block scales: in kernels, on the interpreter and as compiled code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle as td
from treadle import bf16, f4e2m1, f8e4m3, f8e8m0, f32, i4, i32, u4
from treadle.dtype.convert import convert, from_code
from treadle.dtype.formats import DType
from treadle.dtype.packing import pack, unpack

Array = NDArray[Any]
M, N, K, B = td.dims("M N K B")
KI = td.dims("KI", 32)
KK = td.product(B, KI)
KE = td.dims("KE", 8)
K8 = td.product(B, KE)
PACKED = [i4, u4, f4e2m1]


def both(kernel: Any, *args: Any) -> Iterator[Any]:
    yield kernel.reference(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no plan may give way to the interpreter
        yield kernel(*args)


def codes(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 16, shape).astype(np.uint8)


@pytest.mark.parametrize("d", PACKED, ids=str)
@pytest.mark.parametrize("columns", [2, 200])
def test_every_pair_of_elements_is_read_low_bits_first(d: DType, columns: int) -> None:
    @td.kernel
    def widened(X: td.Tensor[M, K, d], Y: td.Out[M, K, f32] = None):
        for m in td.parallel(M):
            Y[m, K] = X[m, K].to(f32)

    held = np.arange(256, dtype=np.uint8).repeat(columns // 2).reshape(256, columns // 2)
    want = np.empty((256, columns), np.float32)
    low, high = (convert(from_code(c, d), d, f32) for c in (held[:, 0] % 16, held[:, 0] // 16))
    want[:, 0::2], want[:, 1::2] = low[:, None], high[:, None]
    for got in both(widened, held):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("d", PACKED, ids=str)
@pytest.mark.parametrize("columns", [1, 131])
def test_stores_pack_and_leave_neighbours_alone(d: DType, columns: int) -> None:
    """Odd extents: the last four bits of a row stay what they were."""

    @td.kernel
    def narrowed(X: td.Tensor[M, K, f32], Y: td.Out[M, K, d]):
        for m in td.parallel(M):
            Y[m, K] = X[m, K].to(d)

    x = (np.random.default_rng(1).normal(size=(9, columns)) * 4).astype(np.float32)
    want = pack(convert(x, f32, d), d)
    for run in (narrowed.reference, narrowed):
        y = np.full(want.shape, 0xA5, np.uint8)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(x, y)
        whole = columns // 2
        assert np.array_equal(y[:, :whole], want[:, :whole])
        assert np.array_equal(y[:, whole:] & 15, want[:, whole:] & 15)


@td.kernel
def int4_weights(
    X: td.Tensor[M, K8, f32], W: td.Tensor[N, K8, i4], S: td.Tensor[N, B, f32], Y: td.Out[M, N, f32] = None
):
    """Weights of 4 bits with a scale for 8 of them: summed within a block, then scaled."""
    for m, n in td.parallel(M.each, N):
        acc = td.zeros(n, dtype=f32)
        for b in td.reduce(B.each):
            part = td.dot(X[m, (b, KE)], W[n, (b, KE)].to(f32), over=KE)
            acc = acc + part * S[n, b]
        Y[m, n] = acc


@pytest.mark.parametrize(("rows", "columns", "blocks"), [(3, 17, 2)])
def test_weights_of_four_bits_with_block_scales(rows: int, columns: int, blocks: int) -> None:
    """Small integers and scales that are powers of two: exact."""
    rng = np.random.default_rng(rows)
    x = rng.integers(-4, 5, (rows, 8 * blocks)).astype(np.float32)
    w = from_code(codes(columns, 8 * blocks), i4)
    s = np.exp2(rng.integers(-3, 4, (columns, blocks))).astype(np.float32)
    want = x @ (w.astype(np.float32) * np.repeat(s, 8, axis=1)).T
    for run in (int4_weights.reference, int4_weights):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert np.array_equal(run(x, pack(w, i4), s), want)


@td.kernel
def scaled_fp8(
    X: td.Tensor[M, KK, f8e4m3],
    SX: td.Tensor[M, B, f8e8m0],
    W: td.Tensor[N, KK, f8e4m3],
    SW: td.Tensor[N, B, f8e8m0],
    Y: td.Out[M, N, f32] = None,
):
    """The block-scaled product of the OCP formats: fp8 elements, a power of two for 32 of them."""
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for b in td.reduce(B.each):
            part = td.mma(X[m, (b, KI)], W[n, (b, KI)], td.zeros(m, n, dtype=f32))
            acc = acc + part * (SX[m, b].to(f32) * SW[n, b].to(f32))
        Y[m, n] = acc


@pytest.mark.parametrize(("rows", "columns", "blocks"), [(7, 18, 3)])
def test_products_of_fp8_with_block_scales(rows: int, columns: int, blocks: int) -> None:
    rng = np.random.default_rng(rows)
    x = rng.integers(-4, 5, (rows, 32 * blocks)).astype(np.float32)
    w = rng.integers(-4, 5, (columns, 32 * blocks)).astype(np.float32)
    sx, sw = (np.exp2(rng.integers(-3, 4, (n, blocks))).astype(np.float32) for n in (rows, columns))
    want = (x * np.repeat(sx, 32, 1)) @ (w * np.repeat(sw, 32, 1)).T
    given = [convert(x, f32, f8e4m3), convert(sx, f32, f8e8m0), convert(w, f32, f8e4m3), convert(sw, f32, f8e8m0)]
    for run in (scaled_fp8.reference, scaled_fp8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert np.array_equal(run(*given), want)


def test_mxfp4_is_dequantised() -> None:
    """f4e2m1 elements with an f8e8m0 scale for 32: to bf16, exactly."""

    @td.kernel
    def dequantised(X: td.Tensor[M, KK, f4e2m1], S: td.Tensor[M, B, f8e8m0], Y: td.Out[M, KK, bf16] = None):
        for m, b in td.parallel(M, B.each):
            Y[m, (b, KI)] = (X[m, (b, KI)].to(f32) * S[m, b].to(f32)).to(bf16)

    elements = from_code(codes(6, 96), f4e2m1)
    scales = from_code(np.random.default_rng(2).integers(100, 150, (6, 3)).astype(np.uint8), f8e8m0)
    want = convert(elements, f4e2m1, f32) * np.repeat(convert(scales, f8e8m0, f32), 32, 1)
    for run in (dequantised.reference, dequantised):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert np.array_equal(run(pack(elements, f4e2m1), scales).astype(np.float32), want)


def test_four_bit_integers_wrap_and_saturate() -> None:
    @td.kernel
    def cut(X: td.Tensor[K, i32], A: td.Out[K, i4] = None, C: td.Out[K, i4] = None, D: td.Out[K, u4] = None):
        for k in td.parallel(K):
            A[k] = X[k].to(i4)
            C[k] = X[k].to(i4, saturate=True)
            D[k] = X[k].to(u4, saturate=True)

    x = np.arange(-40, 40, dtype=np.int32)
    for run in (cut.reference, cut):
        a, c, d = run(x)
        assert unpack(a, i4, 80).astype(int).tolist() == [((v + 8) % 16) - 8 for v in x.tolist()]
        assert unpack(c, i4, 80).astype(int).tolist() == np.clip(x, -8, 7).tolist()
        assert unpack(d, u4, 80).astype(int).tolist() == np.clip(x, 0, 15).tolist()
