"""A pure nest is split and merged freely; where the outer instance owns something, that stays or gets a new home.

The owner here is a scale that is loaded once a row. A bijection of the two levels as one would leave it without an
instance to belong to: it is refused, by the rule and, forged, by the checker. Given a home in every instance, the nest
is pure and goes anywhere.
"""

from __future__ import annotations

import numpy as np
from examples.distinguishing.evidence import Case, Program, integers, report

import treadle as td
from treadle.checker.derivation import validate
from treadle.driver.rewriting import rewrite
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.plan.steps import Step
from treadle.rules import Derivation, fuse, permute, recompute, reindex, split

M, N = td.dims("M N")
BIG, TINY = {"M": 4096, "N": 1024}, {"M": 5, "N": 37}


@td.kernel
def doubled(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for i, j in td.parallel(M.each, N.each):
        Y[i, j] = X[i, j] * 2.0


@td.kernel
def scaled(S: td.Tensor[M], X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for i in td.parallel(M.each):
        s = S[i]
        for j in td.parallel(N.each):
            Y[i, j] = s * X[i, j]


def merged_and_split(d: Derivation) -> Derivation:
    """The pure nest as one flat index, turned round, in blocks of 32."""
    flat = [[{"name": "f", "dim": "F", "extent": "M*N"}]]
    d = d.then(reindex, "R0", flat, {"i": "f // N", "j": "f - N*(f // N)"}, {"f": "N*i + j"})
    return d.then(permute, "R0", ["f"], ["f"]).then(split, "R0", "f", 32)


def kept(d: Derivation) -> Derivation:
    """The owner keeps its instances, in another order; what it owns is split inside them."""
    levels = [[{"name": "p", "dim": "M"}], [{"name": "q", "dim": "N"}]]
    d = d.then(reindex, "R0", levels, {"i": "M - 1 - p", "j": "q"}, {"p": "M - 1 - i", "q": "j"})
    return d.then(split, "R1", "q", 16)


def at_home_everywhere(d: Derivation) -> Derivation:
    """The owner's load in every instance: then the nest is pure, and columns may go first."""
    return d.then(recompute, "%s", "R1").then(fuse, "R0").then(permute, "R0", ["j", "i"])


LEVELS = [[{"name": "p", "dim": "N"}], [{"name": "q", "dim": "M"}]]
MAPS = {"i": "q", "j": "p"}, {"p": "j", "q": "i"}


def programs() -> dict[str, Derivation]:
    """The derivations, from programs for f32."""
    x, s = td.like(td.f32, 8, 9), td.like(td.f32, 8)
    return {
        "merged and split": merged_and_split(Derivation(doubled.program(x))),
        "kept": kept(Derivation(scaled.program(s, x))),
        "at home everywhere": at_home_everywhere(Derivation(scaled.program(s, x))),
    }


def forged() -> str:
    """What the checker says of the refused bijection, forged: the owner's load moved along with the inner index."""
    before = scaled.program(td.like(td.f32, 8), td.like(td.f32, 8, 9))
    text = print_program(before)
    for old, new in (("i in M each", "p in N each"), ("j in N each", "q in M each"), ("S[i]", "S[p]")):
        text = text.replace(old, new)
    after = parse_program(text.replace("[i, j]", "[q, p]"), "a forgery")
    step = Step("reindex", {"at": "R0", "levels": LEVELS, "map": MAPS[0], "inverse": MAPS[1]})
    verdict = validate(before, step, after)
    return f"{verdict.status}: {verdict.reason}"


def right() -> None:
    for m, n in ((5, 37), (0, 3)):
        x, s = integers(m, n), integers(m)
        assert np.array_equal(rewrite(doubled, merged_and_split)(x), x * 2)
        for schedule in (kept, at_home_everywhere):
            assert np.array_equal(rewrite(scaled, schedule)(s, x), s[:, None] * x)


def shows() -> list[str]:
    found = [f"{name}: {', '.join(map(str, d.steps))}" for name, d in programs().items()]
    costs = [f"{c.label}: {c.seconds() * 1e6:.4g} us predicted" for c in PROGRAM.cases if "pure" not in c.label]
    return [*found, f"the refused bijection, forged: {forged()}", *costs]


def source(name: str):
    return lambda: programs()[name].program


PROGRAM = Program(
    title="2. a pure nest, and one with an owner",
    cases=[
        Case("pure, avx512", source("merged and split"), "cpu:avx512", BIG, TINY),
        Case("pure, hopper", source("merged and split"), "cuda:sm_90a", BIG, TINY),
        Case("kept, avx512", source("kept"), "cpu:avx512", BIG, TINY),
        Case("kept, hopper", source("kept"), "cuda:sm_90a", BIG, TINY),
        Case("everywhere, avx512", source("at home everywhere"), "cpu:avx512", BIG, TINY),
        Case("everywhere, hopper", source("at home everywhere"), "cuda:sm_90a", BIG, TINY),
    ],
    right=right,
    refused={
        "a bijection that breaks the prefix": (
            "rules/prefix",
            lambda: Derivation(scaled.program(td.like(td.f32, 8), td.like(td.f32, 8, 9))).then(
                reindex, "R0", LEVELS, *MAPS
            ),
        ),
        "the two levels as one": (
            "rules/prefix",
            lambda: Derivation(scaled.program(td.like(td.f32, 8), td.like(td.f32, 8, 9))).then(fuse, "R0"),
        ),
        "a map that repeats": (
            "rules/coverage",
            lambda: Derivation(doubled.program(td.like(td.f32, 8, 9))).then(
                reindex, "R0", [[{"name": "p", "dim": "M"}, {"name": "q", "dim": "N"}]], {"i": "p", "j": "q // 2"}, {}
            ),
        ),
    },
    shows=shows,
)

if __name__ == "__main__":
    report(PROGRAM)
