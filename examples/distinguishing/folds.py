"""A fold whose order matters, one whose order does not, and a scan: what an order policy grants, and what it does not.

The product of 2x2 matrices does not commute: leaves keep their order, groups are free. A sum of integers commutes:
lanes may stripe it. A scan shows every prefix, so that it is no fold at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from examples.distinguishing.evidence import Case, Program, Wrong, integers, report

import treadle as td
from treadle.driver.rewriting import rewrite
from treadle.rules import Derivation, factor, permute, split_k

M, N = td.dims("M N")
BIG, TINY = {"M": 4096, "N": 4096}, {"M": 4, "N": 40}


@dataclass
class Matrix:
    a: Any
    b: Any
    c: Any
    d: Any


def times(x: Matrix, y: Matrix) -> Matrix:
    return Matrix(x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d)


product = td.Monoid(lambda: Matrix(1.0, 0.0, 0.0, 1.0), times, commutative=False)


@td.kernel
def matrices(
    A: td.Tensor[M, N],
    B: td.Tensor[M, N],
    C: td.Tensor[M, N],
    D: td.Tensor[M, N],
    P: td.Out[M] = None,
    Q: td.Out[M] = None,
    R: td.Out[M] = None,
    S: td.Out[M] = None,
):
    for m in td.parallel(M):
        x = td.fold(Matrix(A[m, N], B[m, N], C[m, N], D[m, N]), N, product, order=td.ordered)
        P[m] = x.a
        Q[m] = x.b
        R[m] = x.c
        S[m] = x.d


@td.kernel
def powers(A: td.Tensor[M, N], B: td.Tensor[M, N], P: td.Out[M] = None, Q: td.Out[M] = None):
    for m in td.parallel(M):
        s = Matrix(td.full(m, value=1.0), td.zeros(m), td.zeros(m), td.full(m, value=1.0))
        for n in td.reduce(N.each, order=td.ordered):
            s = product(s, Matrix(A[m, n], B[m, n], 1.0, A[m, n]))
        P[m] = s.a
        Q[m] = s.b


@td.kernel
def unordered_matrices(A: td.Tensor[M, N], B: td.Tensor[M, N], P: td.Out[M] = None):
    for m in td.parallel(M):
        x = td.fold(Matrix(A[m, N], B[m, N], B[m, N], A[m, N]), N, product, order=td.unordered)
        P[m] = x.a


@td.kernel
def total(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N)


@td.kernel
def chain(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N, order=td.fold_left)


@td.kernel
def region(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N):
            s = s + X[m, n].sum(n)
        Y[m] = s


@td.kernel
def in_order(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N, order=td.ordered):
            s = s + X[m, n].sum(n, order=td.ordered)
        Y[m] = s


@td.kernel
def exact(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each, order=td.fold_left):
            s = s + X[m, n]
        Y[m] = s


@td.kernel
def prefixes(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Add)


def chunks(d: Derivation) -> Derivation:
    """Chunks side by side, their sums folded: what every order but an exact chain grants."""
    return split_k(d, "R1", "n", 512)


def matrices_in_chunks(d: Derivation) -> Derivation:
    """Chunks of the product that does not commute, multiplied in order."""
    return d.then(factor, "R1", "n", 4)


def right() -> None:
    for m, n in ((2, 0), (5, 67)):
        x = integers(m, n)
        for kernel in (total, chain, in_order, exact, rewrite(region, chunks), rewrite(in_order, chunks)):
            assert np.array_equal(kernel(x), x.sum(1)), kernel
        assert np.array_equal(prefixes(x), np.cumsum(x, 1))
        parts = [np.random.default_rng(k).integers(-1, 2, (m, min(n, 12))).astype(np.float32) for k in range(4)]
        want = np.broadcast_to(np.eye(2, dtype=np.float32), (m, 2, 2))
        for k in range(min(n, 12)):
            want = want @ np.stack([p[:, k] for p in parts], 1).reshape(m, 2, 2)
        a, b = parts[0], parts[1]
        want_power = np.broadcast_to(np.eye(2, dtype=np.float32), (m, 2, 2))
        for k in range(min(n, 12)):
            want_power = want_power @ np.stack([a[:, k], b[:, k], np.ones_like(a[:, k]), a[:, k]], 1).reshape(m, 2, 2)
        for kernel in (powers, rewrite(powers, matrices_in_chunks)):
            p, q = kernel(a, b)
            assert np.array_equal(p, want_power[:, 0, 0]) and np.array_equal(q, want_power[:, 0, 1])
        for have, entry in zip(matrices(*parts), want.reshape(m, 4).T, strict=True):
            assert np.array_equal(have, entry)


def first(kernel) -> Derivation:
    return Derivation(kernel.program(td.like(td.f32, 8, 9)))


def source(kernel, schedule=lambda d: d, count=1):
    return lambda: schedule(Derivation(kernel.program(*[td.like(td.f32, 8, 9)] * count))).program


def compared() -> list[str]:
    """What the permissions are worth, as the cost models price them."""
    found: list[str] = []
    for target in ("avx512", "hopper"):
        costs = {n: PROGRAM.case(f"{n}, {target}").seconds() for n in ("sum", "chain", "prefixes")}
        found.append(f"{target}: " + ", ".join(f"{n} {s * 1e6:.4g} us predicted" for n, s in costs.items()))
    return found


WITHDRAWN = Wrong("the policy of the source withdrawn", r"(reduce add \S+ over N)", r"\1 order fold_left")
REVERSED = Wrong("leaves from the end", r"(load A\[[^\]]*?)n_i\]", r"\1N - n_i - 1]")
BACKWARDS = Wrong("chunks from the last", r"load b_s_a\[n_chunks_i", "load b_s_a[(N + 3) // 4 - n_chunks_i - 1")
WITHOUT_FIRST = Wrong("a chunk left out", r"loop n_chunks = 0 ", "loop n_chunks = 1 ")
SHORT = Wrong("the first leaf left out", r"loop n = 0 ", "loop n = 1 ")
APART = Wrong("lanes never combined", r"fold add _1 axes \(0\)", "copy _1[0]")

PROGRAM = Program(
    title="4. an ordered fold, a commutative sum, a scan",
    cases=[
        Case("matrices, avx512", source(matrices, count=4), "cpu:avx512", BIG, {"M": 4, "N": 6}),
        Case("matrices, hopper", source(matrices, count=4), "cuda:sm_90a", BIG, {"M": 4, "N": 6}),
        Case("matrices in chunks, avx512", source(powers, matrices_in_chunks, 2), "cpu:avx512", BIG, {"M": 4, "N": 6}),
        Case("matrices in chunks, hopper", source(powers, matrices_in_chunks, 2), "cuda:sm_90a", BIG, {"M": 4, "N": 6}),
        Case("sum, avx512", source(total), "cpu:avx512", BIG, TINY),
        Case("sum, hopper", source(total), "cuda:sm_90a", BIG, TINY),
        Case("chunks, avx512", source(region, chunks), "cpu:avx512", BIG, TINY),
        Case("chunks, hopper", source(region, chunks), "cuda:sm_90a", BIG, TINY),
        Case("chain, avx512", source(chain), "cpu:avx512", BIG, TINY),
        Case("chain, hopper", source(chain), "cuda:sm_90a", BIG, TINY),
        Case("prefixes, avx512", source(prefixes), "cpu:avx512", BIG, TINY),
        Case("prefixes, hopper", source(prefixes), "cuda:sm_90a", BIG, {"M": 2, "N": 4096}),
    ],
    right=right,
    wrong={
        f"{label}, {target}": twins
        for target in ("avx512", "hopper")
        for label, twins in {
            "matrices": [REVERSED],
            "matrices in chunks": [BACKWARDS],
            "sum": [WITHDRAWN, APART],
            "chunks": [WITHOUT_FIRST],
            "chain": [SHORT],
        }.items()
    }
    | {
        "prefixes, avx512": [Wrong("every prefix one short", r"(store b__\d+\[n_i, \$0\] = )_7", r"\1_4")],
        "prefixes, hopper": [
            Wrong("a warp's own sum counted twice", r"(scan add \S+ axes \(0\)) exclusive", r"\1"),
            Wrong("sums of warps read before they are there", r"\n *sync barrier\.sync[^\n]*", ""),
        ],
    },
    refused={
        "an unordered fold of what does not commute": (
            "reduce/not-commutative",
            lambda: unordered_matrices.program(td.like(td.f32, 8, 9), td.like(td.f32, 8, 9)),
        ),
        "leaves in order, permuted": ("rules/order", lambda: first(in_order).then(permute, "R1", ["n"], ["n"])),
        "an exact chain, in chunks": ("rules/chain", lambda: first(exact).then(factor, "R1", "n", 4)),
    },
    ablations={
        f"{label}, {target}": ["no-permission"]
        for label in ("sum", "chunks", "prefixes")
        for target in ("avx512", "hopper")
    },
    shows=compared,
)

if __name__ == "__main__":
    report(PROGRAM)
