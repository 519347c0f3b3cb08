"""Two neighbouring scopes: where one reads what the same instance of the other wrote they are one; where it reads a
neighbour's, they are not.

For neighbours there are three ways: keep two scopes (a boundary, which the planner makes of launches or of a join of
workers); take instances within which the dependence stays, here whole rows, and exchange inside the instance; or
compute the neighbour again. The wrong fusion is refused by the rule, and by the checker when it is forged.
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
from treadle.rules import Derivation, fuse_scopes, fuse_siblings, split

M, N = td.dims("M N")
BIG, TINY = {"M": 4096, "N": 4096}, {"M": 3, "N": 40}


@td.kernel
def pointwise(X: td.Tensor[M, N], Y: td.Out[M, N] = None, Z: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n] + 1.0
    for m, n in td.parallel(M, N):
        Z[m, n] = Y[m, n] * 2.0


@td.kernel
def neighbours(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    T = td.empty(M, N)
    for m, n in td.parallel(M, N):
        T[m, n] = X[m, n] * X[m, n]
    for m, n in td.parallel(M, N):
        Y[m, n] = T[m, n] - T.at(m, n - 1, fill=0.0)


def zipped(d: Derivation) -> Derivation:
    """One scope, and nothing read back."""
    return fuse_siblings(d, "R0", "R1")


def rows(d: Derivation) -> Derivation:
    """Instances that are rows: the neighbour is in the same one."""
    return d.then(split, "R0", "n", "all").then(split, "R1", "n_1", "all").then(fuse_scopes, "R0", "R1")


def forged() -> str:
    """What the checker says of the wrong fusion."""
    before = neighbours.program(td.like(td.f32, 8, 9))
    head, first, second = print_program(before).split("    region ")
    body = "\n".join(second.splitlines()[1:]).replace("m_1", "m").replace("n_1", "n").replace("%T.2[", "%T.3[")
    *keep, last = first.rstrip().splitlines()
    after = parse_program("\n".join([head + "    region " + keep[0], *keep[1:], body, last]) + "\n", "a forgery")
    inner = tuple((f"2.0.{k}", f"1.0.{k + 4}") for k in range(len(before.body.ops[2].blocks[0].ops)))
    args = {"first": "R0", "second": "R1", "disjoint": [["X", "Y"]]}
    verdict = validate(before, Step("fuse_scopes", args, (("2", None), *inner)), after)
    return f"{verdict.status}: {verdict.reason} at {verdict.counterexample}"


def right() -> None:
    for m, n in ((3, 40), (0, 3)):
        x = integers(m, n)
        square = x * x
        want = square - np.pad(square, ((0, 0), (1, 0)))[:, :n]
        assert np.array_equal(neighbours(x), want) and np.array_equal(rewrite(neighbours, rows)(x), want)
        for kernel in (pointwise, rewrite(pointwise, zipped)):
            y, z = kernel(x)
            assert np.array_equal(y, x + 1) and np.array_equal(z, (x + 1) * 2)


def shows() -> list[str]:
    x = td.like(td.f32, 8, 9)
    found = [zipped(Derivation(pointwise.program(x))), rows(Derivation(neighbours.program(x)))]
    return [
        *(f"{d.start.name}: {', '.join(map(str, d.steps))}" for d in found),
        f"the wrong fusion, forged: {forged()}",
    ]


def source(kernel, schedule=lambda d: d):
    return lambda: schedule(Derivation(kernel.program(td.like(td.f32, 8, 9)))).program


UNWAITED = Wrong("the second launch does not wait", r"\n *sync grid\.wait", "")
UNADDED = Wrong("twice what was read, not what was added", r"mul _2, 2", "mul _0, 2")
OWN = Wrong("its own element for the neighbour's", r"(T_1 = load b_T\[.*?) - 1\]", r"\1]")
ELSEWHERE = Wrong("a neighbour that another instance makes", r"(T_1 = load b_T\[)([^,]+), ", r"\1\2 - 1, ")
UNMADE = Wrong("the last element never made", r"loop n0 = 0 \.\. N step", "loop n0 = 0 .. N - 1 step")

PROGRAM = Program(
    title="3. siblings, pointwise and neighbour-reading",
    cases=[
        Case("apart, avx512", source(pointwise), "cpu:avx512", BIG, TINY),
        Case("apart, hopper", source(pointwise), "cuda:sm_90a", BIG, TINY),
        Case("zipped, avx512", source(pointwise, zipped), "cpu:avx512", BIG, TINY),
        Case("zipped, hopper", source(pointwise, zipped), "cuda:sm_90a", BIG, TINY),
        Case("neighbours, a boundary, avx512", source(neighbours), "cpu:avx512", BIG, TINY),
        Case("neighbours, a boundary, hopper", source(neighbours), "cuda:sm_90a", BIG, TINY),
        Case("neighbours, rows, avx512", source(neighbours, rows), "cpu:avx512", BIG, TINY),
        Case("neighbours, rows, hopper", source(neighbours, rows), "cuda:sm_90a", BIG, TINY),
    ],
    right=right,
    wrong={
        "apart, avx512": [Wrong("what was read, not what was added", r"= load Y\[", "= load X[")],
        "apart, hopper": [UNWAITED],
        "zipped, avx512": [UNADDED],
        "zipped, hopper": [UNADDED],
        "neighbours, a boundary, avx512": [OWN],
        "neighbours, a boundary, hopper": [UNWAITED, OWN],
        "neighbours, rows, avx512": [ELSEWHERE, UNMADE],
        "neighbours, rows, hopper": [ELSEWHERE, UNMADE],
    },
    refused={
        "the wrong fusion": (
            "rules/dependence",
            lambda: Derivation(neighbours.program(td.like(td.f32, 8, 9))).then(fuse_scopes, "R0", "R1"),
        ),
    },
    ablations={"apart, avx512": ["no-interface"], "apart, hopper": ["no-interface"]},
    whole={f"apart, {target}": f"zipped, {target}" for target in ("avx512", "hopper")},
    shows=shows,
)

if __name__ == "__main__":
    report(PROGRAM)
