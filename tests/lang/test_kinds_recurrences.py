"""Scans and recurrences against loops over NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lang.kinds import recurrences as k
from tests.lang.kinds.ways import UNIT, Array, agrees, framed, ints, reals

SHAPES = [(1, 1), (3, 0), (2, 9), (3, 17)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_running_sum(shape: tuple[int, int], exclusive: bool, reverse: bool) -> None:
    x = ints(*shape)
    seen = x[:, ::-1] if reverse else x
    want = np.cumsum(seen, axis=1) - (seen if exclusive else 0)
    want = want[:, ::-1] if reverse else want
    called = shape == (3, 17) and exclusive
    agrees(k.running_sum, framed(x), wants=want, exclusive=exclusive, reverse=reverse, called=called)


def test_running_max() -> None:
    x = ints(3, 12)
    x[1, 4] = np.nan
    agrees(k.running_max, framed(x), wants=np.maximum.accumulate(x, axis=1))
    want = [[int(np.argmax(row[: t + 1])) for t in range(12)] for row in x[[0, 2]]]
    agrees(k.running_argmax, framed(x[[0, 2]]), wants=np.array(want))


@pytest.mark.parametrize("shape", SHAPES)
def test_segmented_sum(shape: tuple[int, int]) -> None:
    x, first = ints(*shape), ints(*shape, low=0, high=2, dtype=bool)
    want = np.zeros_like(x)
    for b, t in np.ndindex(*shape):
        want[b, t] = x[b, t] + (0 if first[b, t] or t == 0 else want[b, t - 1])
    agrees(k.segmented_sum, framed(x), framed(first), wants=want, called=shape == (2, 9))


def recurrence(a: Array, x: Array) -> Array:
    h, found = np.zeros_like(x[:, 0]) if x.shape[1] else None, []
    for t in range(x.shape[1]):
        h = a[:, t] * h + x[:, t]
        found.append(h)
    return np.stack(found, 1) if found else np.zeros_like(x)


@pytest.mark.parametrize("length", [0, 1, 2, 11])
def test_linear_recurrence(length: int) -> None:
    a, x = ints(2, length, 3, low=-1, high=2), ints(2, length, 3)
    want, called = recurrence(a, x), length == 11
    agrees(k.linear_recurrence, framed(a), framed(x), wants=want, called=called)
    agrees(k.linear_recurrence_carried, framed(a), framed(x), wants=want, called=False)
    last = want[:, -1, 0] if length else np.zeros(2, np.float32)
    agrees(k.linear_recurrence_reduced, framed(a[:, :, 0]), framed(x[:, :, 0]), wants=last, called=called)


@pytest.mark.parametrize("chunk", [1, 4, 32])
def test_state_space(chunk: int) -> None:
    batch, length, states = 2, 10, 3
    x, b, c = reals(batch, length), reals(batch, length, states), reals(batch, length, states)
    a = np.array([0.9, 0.5, 0.25], np.float32)
    h, want = np.zeros((batch, states)), np.zeros((batch, length))
    size, sizes = np.zeros((batch, states)), np.zeros((batch, length))
    for t in range(length):
        h = h * a + b[:, t] * x[:, t, None]
        want[:, t] = (c[:, t] * h).sum(1)
        size = size * a + np.abs(b[:, t] * x[:, t, None])
        sizes[:, t] = (np.abs(c[:, t]) * size).sum(1)
    # A contribution passes a product, at most `length` decays of two roundings each (powers of a chunk as well), the
    # sum over states and that of chunks: units of what the same recurrence makes of sizes.
    bound = (4 * length + states + 4) * UNIT * sizes
    agrees(k.state_space, x, a, b, c, wants=want, bound=bound, chunk=chunk, called=chunk == 4)


@pytest.mark.parametrize("length", [0, 1, 2, 5, 8])
def test_matrix_products(length: int) -> None:
    a = ints(2, length, 3, 3, low=-1, high=2)
    prefixes = np.zeros_like(a)
    total = np.broadcast_to(np.eye(3, dtype=np.float32), (2, 3, 3))
    for t in range(length):
        total = total @ a[:, t]
        prefixes[:, t] = total
    agrees(k.matrix_product, framed(a), wants=total, called=length == 5)
    agrees(k.matrix_prefixes, framed(a), wants=prefixes, called=False)


def test_moving_average() -> None:
    x = ints(2, 9)
    want = np.zeros_like(x)
    for b in range(2):
        s = x[b, 0]
        for t in range(9):
            s = s + np.float32(0.5) * (x[b, t] - s)
            want[b, t] = s
    agrees(k.moving_average, framed(x), wants=want, called=False)  # 2^-8ths of small integers: exact
