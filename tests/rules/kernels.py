"""Kernels on which rules are tried, their programs, and runs of programs on integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import treadle as td
from treadle.evaluate.cuts import Random
from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program

M, N, K = td.dims("M N K")


@td.kernel
def contract(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc


@td.kernel
def siblings(X: td.Tensor[M, N], Y: td.Out[M, N], Z: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n] + 1.0
    for m, n in td.parallel(M, N):
        Z[m, n] = Y[m, n] * 2.0


@td.kernel
def tiles(X: td.Tensor[M, N], Y: td.Out[M, N]):
    T = td.empty(M, N)
    for m, n in td.parallel(M, N):
        T[m, n] = X[m, n] + 1.0
    for m, n in td.parallel(M, N):
        Y[m, n] = T[m, n] * 2.0


@td.kernel
def continued(X: td.Tensor[M, N], Y: td.Out[M, N]):
    T = td.zeros(M, N)
    for m in td.parallel(M):
        T[m, N] = X[m, N]
    for m in td.parallel(M):
        T[m, N] = T[m, N] + X[m, N]
    for m in td.parallel(M):
        Y[m, N] = T[m, N]


@td.kernel
def neighbours(X: td.Tensor[M, N], Y: td.Out[M, N]):
    T = td.empty(M, N)
    for m, n in td.parallel(M, N):
        T[m, n] = X[m, n] + 1.0
    for m, n in td.parallel(M, N):
        Y[m, n] = T[m, n] + T.at(m, n - 1, fill=0.0)


@td.kernel
def owned(S: td.Tensor[M], X: td.Tensor[M, N], Y: td.Out[M, N]):
    for i in td.parallel(M.each):
        s = S[i]
        for j in td.parallel(N.each):
            Y[i, j] = s + X[i, j]


@td.kernel
def pure(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for i, j in td.parallel(M.each, N.each):
        Y[i, j] = X[i, j] * 2.0


@td.kernel
def ordered_sum(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros(M)
    for n in td.reduce(N, order=td.ordered):
        s = s + X[:, n].sum(n)
    Y[M] = s


@td.kernel
def left_sum(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros(M)
    for n in td.reduce(N.each, order=td.fold_left):
        s = s + X[:, n]
    Y[M] = s


@td.kernel
def recurrence(X: td.Tensor[M, N], Y: td.Out[M, N]):
    s = td.zeros(M)
    for n in td.serial(N.each):
        s = s * 0.5 + X[:, n]
        Y[:, n] = s


@td.kernel
def two_chains(X: td.Tensor[N], Y: td.Out[N], Z: td.Out[N]):
    for i in td.serial(N.each):
        Y[i] = X[i] + 1.0
    for i in td.serial(N.each):
        Z[i] = X[i] * 2.0


@td.kernel
def late_reader(X: td.Tensor[N], Y: td.Out[N], Z: td.Out[N]):
    for i in td.serial(N.each):
        Y[i] = X[i] + 1.0
    for i in td.serial(N.each):
        Z[i] = Y[N.extent - 1 - i] * 2.0


@td.kernel
def sums(X: td.Tensor[M, N, K], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N, K].sum(N, K, order=td.ordered)


@td.kernel
def snapshots(X: td.Tensor[M], W: td.Tensor[N], Y: td.Out[M], Z: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m] = X[m] * 3.0
    for i in td.parallel(M.each):
        y = Y[i]
        Y[i] = y + 1.0
        for j in td.parallel(N.each):
            Z[i, j] = y + W[j]


@td.kernel
def crossed(X: td.Tensor[M], Y: td.Out[M], Z: td.Out[M]):
    for i in td.serial(M.each):
        Y[i] = X[i]
        Y[M.extent - 1 - i] = 7.0
        Z[i] = Y[i]


@td.kernel
def largest(X: td.Tensor[M, N], Y: td.Out[M], Z: td.Out[M]):
    for m in td.parallel(M):
        top, low = td.full(m, value=-100.0), td.full(m, value=100.0)
        for n in td.reduce(N.by(4)):
            x = X[m, n]
            top = td.maximum(top, x.max(n))
            low = td.minimum(low, x.min(n))
        Y[m] = top
        Z[m] = low


@td.kernel
def last_one(X: td.Tensor[N], Y: td.Out[N]):
    for i in td.serial(N.each):
        Y[i] = X[i] - X[N.extent - 1]


@td.kernel
def backwards(X: td.Tensor[N], Y: td.Out[N]):
    s = td.zeros()
    for n in td.serial(N.by(3).reversed):
        s = s * 0.5 + X[n].sum(n)
        Y[n] = s


@td.kernel
def in_turn(X: td.Tensor[M], Y: td.Out[M], Z: td.Out[M]):
    for m in td.parallel(M.each):
        Y.add_at(m // 2, X[m], order=td.ordered)
        Z[m] = X[m]
    for m in td.parallel(M.each):
        Y.add_at(m // 2, X[m] * 0.5, order=td.ordered)


@td.kernel
def counts(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y.add_at(m // 2, X[m])
    for m in td.parallel(M.each):
        Y.add_at(m // 2, X[m] * 2.0)


@dataclass
class Line:
    """The map x -> a x + b: composition is associative, and does not commute."""

    a: Any
    b: Any


composed = td.Monoid(lambda: Line(1.0, 0.0), lambda f, g: Line(f.a * g.a, f.a * g.b + f.b), commutative=False)


@td.kernel
def lines(A: td.Tensor[M, N], B: td.Tensor[M, N], Y: td.Out[M], Z: td.Out[M]):
    for m in td.parallel(M):
        f, s = Line(td.full(m, value=2.0), td.zeros(m)), td.zeros(m)
        for n in td.reduce(N.each, order=td.ordered):
            f = composed(f, Line(A[m, n] - B[m, n] + 1.0, B[m, n]))
            s = s + A[m, n]
        Y[m] = f.a + 16.0 * f.b
        Z[m] = s


@td.kernel
def strides(X: td.Tensor[M, K], W: td.Tensor[K, N], a: td.Tensor[K], Y: td.Out[M, N]):
    """Both operands need the same places."""
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            at = k.coords // 4
            acc = td.mma(X[m, k] * a.at(at, fill=0.0), W[k, n] + a.at(at, fill=0.0), acc)
        Y[m, n] = acc


def program(kernel, **extents) -> Program:
    """The program for contiguous f32 arguments."""
    if isinstance(kernel, Program):
        return kernel
    given = {"M": 8, "N": 9, "K": 10} | extents
    definition = kernel.definition
    shapes = [[given[d.name] for d in p.dims] for p in definition.parameters.values() if p.kind == "tensor"]
    return kernel.program(*(td.like(np.float32, *s) for s in shapes))


SIZES = ({"M": 5, "N": 7, "K": 11}, {"M": 1, "N": 1, "K": 1}, {"M": 0, "N": 3, "K": 2}, {"M": 4, "N": 8, "K": 0})
"""Ragged, single, and empty ones."""


def run(p: Program, extents: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """All arrays after a run on small integers, blocks cut and instances ordered at random."""
    random = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for t in p.tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in t.dims)
        arrays[t.name] = random.integers(-4, 5, shape).astype(t.dtype.numpy)
    evaluate(p, arrays, extents=extents, cuts=Random(seed))
    return arrays


def same(a: Program, b: Program, sizes=SIZES) -> bool:
    """Whether two programs store the same on all sizes."""
    for seed, extents in enumerate(sizes):
        x, y = run(a, extents, seed), run(b, extents, seed)
        if any(not np.array_equal(x[n], y[n]) for n in x):
            return False
    return True


def reread(p: Program) -> Program:
    """The program from its own text."""
    return parse_program(print_program(p), "a test")


@td.kernel
def at_once(X: td.Tensor[M, N], W: td.Tensor[N], Y: td.Out[M, N], Z: td.Out[M, N]):
    x = X[M, N] * W[N]
    Y[M, N] = x + 1.0
    Z[M, N] = x - Y[M, N]


@td.kernel
def everything(X: td.Tensor[M, N], Y: td.Out[N]):
    total = td.zeros(N)
    for m in td.reduce(M):
        total = total + X[m, N].sum(m)
    Y[N] = total
