"""A pure nest is split and merged freely; where the outer instance owns something, that stays or gets a new home.

The owner here is a scale that is loaded once a row. A bijection of the two levels as one would leave it without an
instance to belong to: it is refused, by the rule and, forged, by the checker. Given a home in every instance, the nest
is pure and goes anywhere. An owner that costs something, the largest element of a row, is first written as a scope of
its own; two steps give it to the rows that use it, and the ablation takes it away again.
"""

from __future__ import annotations

import numpy as np
from examples.distinguishing.evidence import Case, Program, Wrong, integers, report

import treadle as td
from treadle.checker.derivation import validate
from treadle.driver.rewriting import rewrite
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.plan.steps import Step
from treadle.rules import Derivation, fuse, fuse_siblings, permute, recompute, reindex, split

M, N = td.dims("M N")
BIG, TINY, WHOLE = {"M": 4096, "N": 1024}, {"M": 5, "N": 37}, {"M": 5, "N": 1024}


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


@td.kernel
def relative(X: td.Tensor[M, N], T: td.Out[M] = None, Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        T[m] = X[m, N].max(N)
    for m in td.parallel(M):
        Y[m, N] = X[m, N] - T[m]


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


def owned(d: Derivation) -> Derivation:
    """A row's largest element belongs to the instance that uses it, which reads the row once for both."""
    return fuse_siblings(d, "R0", "R1")


LEVELS = [[{"name": "p", "dim": "N"}], [{"name": "q", "dim": "M"}]]
MAPS = {"i": "q", "j": "p"}, {"p": "j", "q": "i"}


def programs() -> dict[str, Derivation]:
    """The derivations, from programs for f32."""
    x, s = td.like(td.f32, 8, 9), td.like(td.f32, 8)
    return {
        "merged and split": merged_and_split(Derivation(doubled.program(x))),
        "kept": kept(Derivation(scaled.program(s, x))),
        "at home everywhere": at_home_everywhere(Derivation(scaled.program(s, x))),
        "owned": owned(Derivation(relative.program(x))),
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
        top = x.max(1, initial=-np.inf)
        for kernel in (relative, rewrite(relative, owned)):
            t, y = kernel(x)
            assert np.array_equal(t, top) and np.array_equal(y, x - top[:, None])


def shows() -> list[str]:
    found = [f"{name}: {', '.join(map(str, d.steps))}" for name, d in programs().items()]
    costs = [f"{c.label}: {c.seconds() * 1e6:.4g} us predicted" for c in PROGRAM.cases if "pure" not in c.label]
    return [*found, f"the refused bijection, forged: {forged()}", *costs]


def source(name: str):
    return lambda: programs()[name].program


def unowned():
    return relative.program(td.like(td.f32, 8, 9))


PURE = [
    Wrong("the last block left out", r"(tasks \(t_f_o < \(M\*N \+ )31\)", r"\g<1>0)"),
    Wrong("another element of the flat index", r"(load X\[.*) - 1\] origin", r"\1 - 2] origin"),
]
KEPT = [
    Wrong("the scale of another row", r"load S\[M - t_p - 1\]", "load S[t_p]"),
    Wrong("a last part that is not cut", r"min\(N, q_o0 \+ 16\) step 1", "q_o0 + 16 step 1"),
    Wrong("one instance for all rows", r"\(t_p < M\)", "(t_p < min(M, 1))"),
]
EVERYWHERE = [
    Wrong("the scale of the column", r"load S\[t_i\]", "load S[t_j]"),
    Wrong("rows entered as columns", r"\(j = t_j, i = t_i\)", "(j = t_i, i = t_j)"),
]
UNWAITED = [Wrong("the second launch does not wait", r"\n *sync grid\.wait", "")]
OWNED = {
    "avx512": [Wrong("lanes apart at the end", r"fold max (\w+) axes \(0\)", r"copy \1[0]")],
    "hopper": [Wrong("the largest of the next row", r"store T\[t_m\]", "store T[min(t_m + 1, M - 1)]")],
}


PROGRAM = Program(
    title="2. a pure nest, and one with an owner",
    cases=[
        Case("pure, avx512", source("merged and split"), "cpu:avx512", BIG, TINY),
        Case("pure, hopper", source("merged and split"), "cuda:sm_90a", BIG, TINY),
        Case("kept, avx512", source("kept"), "cpu:avx512", BIG, TINY),
        Case("kept, hopper", source("kept"), "cuda:sm_90a", BIG, TINY),
        Case("everywhere, avx512", source("at home everywhere"), "cpu:avx512", BIG, TINY),
        Case("everywhere, hopper", source("at home everywhere"), "cuda:sm_90a", BIG, TINY),
        Case("owned, avx512", source("owned"), "cpu:avx512", BIG, TINY),
        Case("owned, hopper", source("owned"), "cuda:sm_90a", BIG, WHOLE),
        Case("unowned, avx512", unowned, "cpu:avx512", BIG, TINY),
        Case("unowned, hopper", unowned, "cuda:sm_90a", BIG, WHOLE),
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
    wrong={
        f"{label}, {target}": twins
        for label, twins in (("pure", PURE), ("kept", KEPT), ("everywhere", EVERYWHERE))
        for target in ("avx512", "hopper")
    }
    | {f"owned, {target}": twins for target, twins in OWNED.items()}
    | {"unowned, hopper": UNWAITED},
    ablations={"unowned, avx512": ["no-interface"], "unowned, hopper": ["no-interface"]},
    whole={f"unowned, {target}": f"owned, {target}" for target in ("avx512", "hopper")},
    shows=shows,
)

if __name__ == "__main__":
    report(PROGRAM)
