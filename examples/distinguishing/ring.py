"""One asynchronous producer, two consumers, a slot that is used again: the slot is free when both have read it.

The program is written as three scopes that meet in memory: two products of one operand, and their product element by
element. Seven recorded steps make one nest of it, in which both products read one tile of X. On Hopper its plan is a
ring that copy engines fill and two groups of warps read; a slot goes back when both have arrived, at no other's word.
"""

from __future__ import annotations

import re

import numpy as np
from examples.distinguishing.evidence import Case, Program, Wrong, integers, report

import treadle as td
from treadle import bf16, f32
from treadle.driver.rewriting import rewrite
from treadle.rules import Derivation, fuse_scopes, fuse_siblings, move

M, N, K = td.dims("M N K")
BIG, TINY = {"M": 2048, "N": 2048, "K": 2048}, {"M": 136, "N": 72, "K": 200}


@td.kernel
def apart(
    X: td.Tensor[M, K],
    G: td.Tensor[K, N],
    U: td.Tensor[K, N],
    P: td.Out[M, N] = None,
    Q: td.Out[M, N] = None,
    Y: td.Out[M, N] = None,
):
    for m, n in td.parallel(M, N):
        g = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            g = td.mma(X[m, k], G[k, n], g)
        P[m, n] = g
    for m, n in td.parallel(M, N):
        u = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            u = td.mma(X[m, k], U[k, n], u)
        Q[m, n] = u
    for m, n in td.parallel(M, N):
        Y[m, n] = P[m, n] * Q[m, n]


def together(d: Derivation) -> Derivation:
    """One nest: three scopes fused, then the two folds, and nothing read twice."""
    d = fuse_siblings(fuse_siblings(d, "R0", "R2"), "R0", "R4")
    return fuse_siblings(d.then(move, "0.0.2", 4), "R1", "R3")


def right() -> None:
    joined = rewrite(apart, together)
    for m, k, n in ((3, 0, 2), (33, 40, 17)):
        x, g, u = integers(m, k), integers(k, n), integers(k, n, seed=1)
        for kernel in (apart, joined):
            p, q, y = kernel(x, g, u)
            assert np.array_equal(p, x @ g) and np.array_equal(q, x @ u) and np.array_equal(y, (x @ g) * (x @ u))


def captured(dtype):
    x, w, y = td.like(dtype, 64, 64), td.like(dtype, 64, 64), td.like(f32, 64, 64)
    return apart.program(x, w, w, P=y, Q=y, Y=y)


def source(dtype):
    return lambda: together(Derivation(captured(dtype))).program


def shows() -> list[str]:
    steps = together(Derivation(captured(bf16))).steps
    found = [f"{i}. {step}" for i, step in enumerate(steps, 1)]
    for target in ("avx512", "hopper"):
        one, three = PROGRAM.case(target).seconds(), PROGRAM.case(f"apart, {target}").seconds("no-interface")
        found.append(
            f"{target}: one nest {one * 1e6:.4g} us, three scopes each by itself {three * 1e6:.4g} us, predicted"
        )
    return found


def short(found: re.Match[str]) -> str:
    """Bytes that lack a row of a box."""
    return f"{found[1]}{int(found[2]) - 128}"


def halved(found: re.Match[str]) -> str:
    """The arrivals of one consumer only."""
    return f"{found[1]}{int(found[2]) // 2}"


PROGRAM = Program(
    title="5. one producer, two consumers, a reused slot",
    cases=[
        Case("avx512", source(f32), "cpu:avx512", BIG, {"M": 10, "N": 70, "K": 40}),
        Case("amx", source(bf16), "cpu:amx", BIG, {"M": 40, "N": 72, "K": 70}),
        Case("hopper", source(bf16), "cuda:sm_90a", BIG, TINY),
        Case("apart, avx512", lambda: captured(f32), "cpu:avx512", BIG, {"M": 10, "N": 70, "K": 40}),
        Case("apart, hopper", lambda: captured(bf16), "cuda:sm_90a", BIG, {"M": 3, "N": 4, "K": 5}),
    ],
    right=right,
    wrong={
        "avx512": [
            Wrong("both consumers take one operand", r"_5 = load b__3", "_5 = load b__1"),
            Wrong("a slot of the step before", r"(version b__0 .*?) \+ k0\]", r"\1 + k0 - 256]"),
            Wrong("one consumer not started anew", r"(copy )u_2", r"\1g_2"),
        ],
        "hopper": [
            Wrong("one consumer's arrivals free the slot", r"(barrier \w+_empty count )(\d+)", halved),
            Wrong("nobody frees the slot", r"\n *sync mbar\.arrive \w+_empty\S* by warp", ""),
            Wrong(
                "the slot is free before it is read",
                r"(\n *sync wgmma\.wait \(depth = 0\))(\n *sync mbar\.arrive[^\n]*)",
                r"\2\1",
            ),
            Wrong("the producer waits for no one", r"\n *sync mbar\.wait \w+_empty[^\n]*", ""),
            Wrong("a consumer reads before the bytes are there", r"\n *sync mbar\.wait \w+_full[^\n]*", ""),
            Wrong("a box too few is expected", r"(sync mbar\.expect \S+ \(bytes = )(\d+)", short),
        ],
    },
    refused={
        "the folds before their scopes": (
            "rules/name",
            lambda: Derivation(captured(f32)).then(fuse_scopes, "R1", "R3"),
        ),
    },
    ablations={"apart, avx512": ["no-interface"], "apart, hopper": ["no-interface"]},
    whole={f"apart, {target}": target for target in ("avx512", "hopper")},
    shows=shows,
)

if __name__ == "__main__":
    report(PROGRAM)
