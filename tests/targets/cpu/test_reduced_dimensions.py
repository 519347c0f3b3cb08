"""Contractions over several reduced dimensions: what the packed operands of a worker hold is bounded, results exact."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.machine.parse import parse_machine
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.targets.cpu.families import families

CAP = 4 << 20
"""Bytes that the local buffers of one worker may take in all."""

A, B, C, D, M, N, R, S, T = td.dims("A B C D M N R S T")
U, V, Z, Y, X = td.dims("U V Z Y X")
THREE = td.dims("THREE", 3)


@td.kernel
def two(P: td.Tensor[M, A, B], Q: td.Tensor[N, A, B], W: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for a, b in td.reduce(A, B):
            acc = td.mma(P[m, a, b], Q[n, a, b], acc)
        W[m, n] = acc


@td.kernel
def image(P: td.Tensor[C, Y, X], Q: td.Tensor[N, C, R, S], W: td.Out[N, U, V]):
    td.let(U, Y.extent - R.extent + 1)
    td.let(V, X.extent - S.extent + 1)
    for n, u, v in td.parallel(N, U, V):
        acc = td.zeros(n, u, v)
        for c, r, s in td.reduce(C, R, S):
            acc = td.mma(P[c, u + r, v + s], Q[n, c, r, s], acc)
        W[n, u, v] = acc


@td.kernel
def volume(P: td.Tensor[C, Z, Y, X], Q: td.Tensor[N, C, T, R, S], W: td.Out[N, D, U, V]):
    td.let(D, Z.extent - T.extent + 1)
    td.let(U, Y.extent - R.extent + 1)
    td.let(V, X.extent - S.extent + 1)
    for n, d, u, v in td.parallel(N, D, U, V):
        acc = td.zeros(n, d, u, v)
        for c, t, r, s in td.reduce(C, T, R, S):
            acc = td.mma(P[c, d + t, u + r, v + s], Q[n, c, t, r, s], acc)
        W[n, d, u, v] = acc


@td.kernel
def by_threes(P: td.Tensor[M, A, THREE], Q: td.Tensor[N, A, THREE], W: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for a, b in td.reduce(A, THREE):
            acc = td.mma(P[m, a, b], Q[n, a, b], acc)
        W[m, n] = acc


def whole(rng: np.random.Generator, *shape: int) -> Any:
    """Small whole numbers: their sums of products are exact in f32."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def slid(p: Any, q: Any) -> Any:
    """The correlation of an image or volume with every filter."""
    windows = np.lib.stride_tricks.sliding_window_view(p, q.shape[2:], axis=tuple(range(1, p.ndim)))
    k = p.ndim - 1
    inner = [0, *range(k + 1, 2 * k + 1)]
    return np.tensordot(q, windows, axes=(list(range(1, q.ndim)), inner))


def joined(p: Any, q: Any) -> Any:
    return np.tensordot(p, q, axes=([1, 2], [1, 2]))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "first", "second", "expected"),
    [
        (two, (5, 7, 9), (6, 7, 9), joined),
        (two, (40, 70, 300), (33, 70, 300), joined),
        (by_threes, (20, 130, 3), (18, 130, 3), joined),
        (image, (2, 4, 4), (2, 2, 2, 2), slid),
        (image, (20, 9, 70), (17, 20, 3, 3), slid),
        (volume, (2, 4, 4, 4), (2, 2, 2, 2, 2), slid),
        (volume, (5, 6, 7, 20), (3, 5, 3, 2, 3), slid),
    ],
)
def test_what_a_worker_holds_is_bounded(
    kernel: Any, first: Any, second: Any, expected: Any, workers: int, with_workers: Callable[[int], int]
) -> None:
    with_workers(workers)
    rng = np.random.default_rng(0)
    p, q = whole(rng, *first), whole(rng, *second)
    assert np.array_equal(kernel(p, q), expected(p, q))
    plan = kernel.plan(p, q)
    machine = parse_machine(plan.machine())
    read = zip(machine.program.tensors, (p, q))
    # The plan is for calls whose extents lie between the same powers of two: what the largest of them holds is bounded.
    sizes = {d.name: (1 << n.bit_length()) - 1 for t, array in read for d, n in zip(t.dims, array.shape)}
    held = [b for k in machine.kernels for b in k.buffers if b.place == "local"]
    assert "universal" not in plan.explain().splitlines()[0]
    assert sum(b.dtype.bits // 8 * prod(n.evaluate(sizes) for n in b.shape) for b in held) <= CAP


@td.kernel
def at_once(P: td.Tensor[M, A, B], Q: td.Tensor[N, A, B], W: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        W[m, n] = td.mma(P[m, A, B], Q[n, A, B], td.zeros(m, n))


@pytest.mark.parametrize(("extent", "offered"), [(64, True), (8192, False)])
def test_points_that_hold_too_much_are_not_offered(extent: int, offered: bool) -> None:
    program = at_once.program(td.like(td.f32, 9, 9, 9), td.like(td.f32, 9, 9, 9))
    facts = contiguous(program, "cpu:avx512", {"M": 300, "N": 300, "A": extent, "B": extent}, workers=2)
    choice = choose(program, facts, families())
    assert (choice.plan.family == "universal") == (not offered)
    reasons = {r.family: r.reasons for r in choice.rejected}
    wanted = () if offered else ("every point exceeds a resource of the target",)
    assert reasons.get("tiled contraction", ()) == wanted
