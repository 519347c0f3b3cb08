"""A ragged gather: what is known when it is planned, and what only the arrays say.

Rows are grouped by expert: group e has the rows `order[start[e] : start[e + 1]]` of X, and its own weights. That
extents fit and tensors are apart are facts of the call and stand in the guard. Which rows there are, and how many, are
dependences on data: the program promises that an index is one, ranges are clamped, and the plan keeps what reads
`start` and `order` in front of what they decide. Nothing is padded, and an empty group is no work.
"""

from __future__ import annotations

import numpy as np
from examples.distinguishing.evidence import Case, Program, Wrong, integers, report

import treadle as td
from treadle import bf16, f32, i32

T, R, E, E1, K, N = td.dims("T R E E1 K N")
BIG = {"T": 4096, "R": 8192, "E": 8, "E1": 9, "K": 1024, "N": 1024}
TINY = {"T": 5, "R": 9, "E": 3, "E1": 4, "K": 6, "N": 7}
EVEN = {**TINY, "K": 24, "N": 8}
"""Rows that engines bring."""


@td.kernel
def grouped(
    X: td.Tensor[T, K],
    W: td.Tensor[E, K, N],
    order: td.Tensor[R, i32],
    start: td.Tensor[E1, i32],
    Y: td.Out[R, N] = None,
):
    td.require(E1.extent == E.extent + 1)
    for e in td.parallel(E.each):
        for r, n in td.parallel(R[start[e] : start[e + 1]], N):
            acc = td.zeros(r, n, dtype=f32)
            row = td.in_range(order[r], T)
            for k in td.reduce(K):
                acc = td.mma(X[row, k], W[e, k, n], acc)
            Y[r, n] = acc


@td.kernel
def gathered_first(
    X: td.Tensor[T, K],
    W: td.Tensor[E, K, N],
    order: td.Tensor[R, i32],
    start: td.Tensor[E1, i32],
    G: td.Out[R, K] = None,
    Y: td.Out[R, N] = None,
):
    td.require(E1.extent == E.extent + 1)
    for r in td.parallel(R):
        G[r, K] = X[td.in_range(order[r], T), K]
    for e in td.parallel(E.each):
        for r, n in td.parallel(R[start[e] : start[e + 1]], N):
            acc = td.zeros(r, n, dtype=f32)
            for k in td.reduce(K):
                acc = td.mma(G[r, k], W[e, k, n], acc)
            Y[r, n] = acc


@td.kernel
def unproved(X: td.Tensor[T, K], order: td.Tensor[R, i32], Y: td.Out[R, K] = None):
    for r in td.parallel(R):
        Y[r, K] = X[order[r], K]


@td.kernel
def overlapping(X: td.Tensor[R, K], start: td.Tensor[E1, i32], Y: td.Out[R, K] = None):
    for e in td.parallel(E1.each):
        for r in td.parallel(R[start[e] :]):  # wrong: groups overlap
            Y[r, K] = X[r, K] * 2.0


def arguments(t: int, sizes: list[int], k: int, n: int):
    """Rows, weights, a random order, and where groups of those sizes start."""
    rows = sum(sizes)
    start = np.cumsum([0, *sizes]).astype(np.int32)
    order = np.random.default_rng(rows).integers(0, t, rows).astype(np.int32)
    return integers(t, k), integers(len(sizes), k, n), order, start


def right() -> None:
    for t, sizes, k, n in ((5, [2, 0, 7], 6, 7), (37, [11, 4, 8, 17, 7, 6, 8, 13], 16, 9)):
        x, w, order, start = arguments(t, sizes, k, n)
        want = np.zeros((len(order), n), np.float32)
        for e in range(len(sizes)):
            want[start[e] : start[e + 1]] = x[order[start[e] : start[e + 1]]] @ w[e]
        assert np.array_equal(grouped(x, w, order, start), want)
        assert np.array_equal(gathered_first(x, w, order, start)[1], want)


def captured(kernel, dtype):
    outs = {"Y": td.like(f32, 9, 7)} | ({"G": td.like(dtype, 9, 6)} if kernel is gathered_first else {})
    x, w = td.like(dtype, 5, 6), td.like(dtype, 3, 6, 7)
    return kernel.program(x, w, td.like(i32, 9), td.like(i32, 4), **outs)


def source(kernel, dtype):
    return lambda: captured(kernel, dtype)


def shows() -> list[str]:
    """The facts of the call that the plan rests on, apart from what the arrays say."""
    found: list[str] = []
    for label in ("avx512", "hopper"):
        guard = str(PROGRAM.case(label).plan().guard).splitlines()
        assert not any("start" in f and "[" in f for f in guard)
        found.append(f"{label} holds when: {'; '.join(guard)}")
    x, start = integers(6, 3), np.array([0, 2, 4], np.int32)
    codes = {f.code for f in overlapping.sanitize(x, start)}
    return [*found, f"groups that overlap, sanitized: {', '.join(sorted(codes))}"]


PROGRAM = Program(
    title="7. a ragged gather (its static half)",
    cases=[
        Case("avx512", source(grouped, f32), "cpu:avx512", BIG, TINY),
        Case("hopper", source(grouped, bf16), "cuda:sm_90a", BIG, EVEN),
        Case("gathered first, avx512", source(gathered_first, f32), "cpu:avx512", BIG, TINY),
        Case("gathered first, hopper", source(gathered_first, bf16), "cuda:sm_90a", BIG, EVEN),
    ],
    right=right,
    wrong={
        label: [
            Wrong("the end of another group", r"(= load start\[\w+ \+ )1(\] origin)", r"\g<1>2\2"),
            Wrong("the row of another choice", r"(= load order\[)([^\]]+)\]", r"\1\2 + 1]"),
            Wrong("an output that may lie on the order", r"\n *disjoint\(order, Y\)", ""),
        ]
        for label in ("avx512", "hopper")
    },
    refused={
        "an index that nothing promises": (
            "bounds/unproved",
            lambda: unproved.program(td.like(f32, 5, 6), td.like(i32, 9)),
        ),
    },
    ablations={"gathered first, avx512": ["no-interface"], "gathered first, hopper": ["no-interface"]},
    shows=shows,
)

if __name__ == "__main__":
    report(PROGRAM)
