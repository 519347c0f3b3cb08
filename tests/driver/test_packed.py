"""4-bit arguments: arrays of u8 with two elements a byte along the last axis."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import treadle as td
from treadle import f4e2m1, f32, i4, u4
from treadle.base.errors import TreadleError
from treadle.driver.packed import in_bytes, in_elements
from treadle.dtype.packing import pack, unpack

M, K, N = td.dims("M K N")


@td.kernel
def weighted(X: td.Tensor[M, K], W: td.Tensor[N, K, i4], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[n, k].to(f32), acc)
        Y[m, n] = acc


@td.kernel
def widened(W: td.Tensor[M, K, f4e2m1], Y: td.Out[M, K] = None):
    for m, k in td.parallel(M, K):
        Y[m, k] = W[m, k].to(f32)


@td.kernel
def narrowed(X: td.Tensor[M, K, f32], Y: td.Out[M, K, u4] = None):
    for m, k in td.parallel(M, K):
        Y[m, k] = X[m, k].to(u4)


@td.kernel
def flipped(X: td.Tensor[M, u4], Y: td.Out[M, u4] = None):
    for m in td.parallel(M):
        Y[m] = (15 - X[m].to(td.i32)).to(u4)


def four_bits(rng: np.random.Generator, dtype, *shape: int) -> np.ndarray:
    """Random elements, one byte each."""
    codes = rng.integers(0, 256, in_bytes(dtype, shape), dtype=np.uint8)
    return unpack(codes, dtype, shape[-1])


@pytest.fixture(autouse=True)
def native():
    """No call may fall back to the reference interpreter."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("extent", [8, 7, 1, 0, 64, 131, 200])
def test_a_contraction_with_packed_weights(extent: int) -> None:
    rng = np.random.default_rng(extent)
    x, w = rng.integers(-4, 5, (3, extent)).astype(np.float32), four_bits(rng, i4, 5, extent)
    want = x @ w.astype(np.float32).T
    for run in (weighted.reference, weighted, weighted):
        assert (run(x, pack(w, i4)) == want).all()
    assert (weighted.bind(x, pack(w, i4))() == want).all() and weighted.sanitize(x, pack(w, i4)) == []


def test_without_another_argument_a_row_has_two_elements_a_byte() -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    y = widened(codes)
    assert y.shape == (16, 32) and (y == unpack(codes, f4e2m1, 32).astype(np.float32)).all()
    out = np.full((16, 31), np.nan, np.float32)
    assert (widened(codes, out) == unpack(codes, f4e2m1, 31).astype(np.float32)).all()


def test_packed_outputs_given_and_left_out() -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    want = pack(x.astype(u4.numpy), u4)
    y = narrowed(x)
    assert y.dtype == np.uint8 and y.shape == (3, 3) and (y == want).all()
    given = np.full((3, 6), 0xEE, np.uint8)[:, ::2]
    for run in (narrowed, narrowed.reference):
        given[...] = 0xEE
        assert run(x, given) is given
        # The half byte behind an odd row is nobody's.
        assert (given[:, :2] == want[:, :2]).all() and (given[:, 2] == want[:, 2] | 0xE0).all()


def test_a_packed_array_stored_into_itself() -> None:
    x = np.arange(8, dtype=np.uint8)
    want = 255 - x
    assert flipped(x, x) is x and (x == want).all()
    with pytest.raises(TreadleError) as caught:
        flipped.reference(x[1:], x[:-1])
    assert caught.value.code == "call/overlap"
    want = 255 - x[1:]
    assert (flipped(x[1:], x[:-1]) == want).all()  # as if the input had been read before


@pytest.mark.parametrize("wrong", [(3, 5), (3, 3), (3, 0)])
def test_rows_of_another_length(wrong: tuple[int, int]) -> None:
    with pytest.raises(TreadleError) as caught:
        weighted(np.ones((2, 8), np.float32), np.zeros(wrong, np.uint8))
    assert caught.value.code == "call/extent-conflict"


def test_planning_needs_whole_rows() -> None:
    plan = weighted.plan(td.like(f32, 4, 8), td.like(i4, 5, 8))
    assert plan.check().status == "verified" and "treadle_weighted" in plan.source()
    with pytest.raises(TreadleError) as caught:
        td.like(i4, 5, 8, strides=(8, 1))
    assert caught.value.code == "call/like"


def test_shapes_in_bytes_and_elements() -> None:
    assert [in_bytes(i4, s) for s in ((), (3,), (2, 4))] == [(), (2,), (2, 2)]
    assert [in_elements(i4, s) for s in ((), (3,), (2, 4))] == [(), (6,), (2, 8)]
    assert in_bytes(f32, (3,)) == in_elements(f32, (3,)) == (3,)


@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (5, 33), (4, 130), (17, 257)])
def test_vectors_that_begin_in_either_half(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[1])
    w = four_bits(rng, f4e2m1, *shape)
    packed, wide = pack(w, f4e2m1), w.astype(np.float32)
    out = np.full(shape, np.nan, np.float32)
    assert (widened(packed, out) == wide).all()
    for skip in (1, 2, 3):
        if shape[1] > skip:
            # A window of the row that begins inside a byte.
            part = np.full((shape[0], shape[1] - skip), np.nan, np.float32)
            assert (window(packed, part, out, skip=skip) == wide[:, skip:]).all()
    x = rng.integers(0, 16, shape).astype(np.float32)
    want = pack(x.astype(u4.numpy), u4)
    assert (narrowed(x) == want).all()
    rows = np.zeros((shape[0], 2 * in_bytes(u4, shape)[1] + 3), np.uint8)
    backward = rows[:, 2 * in_bytes(u4, shape)[1] : 0 : -2]
    narrowed(x, backward)  # bytes two apart, last first
    assert (backward == want).all() and (rows[:, 1::2] == 0).all()


@td.kernel
def window(W: td.Tensor[M, K, f4e2m1], Y: td.Out[M, N], Z: td.Tensor[M, K], *, skip=1):
    td.let(N, K.extent - skip)
    for m, n in td.parallel(M, N):
        Y[m, n] = W[m, td.in_range(n + skip, K)].to(f32) + 0.0 * Z[m, td.in_range(n + skip, K)]
