"""Ordered regions whose elements run through all iterations one by one, and those in which they need each other."""

from __future__ import annotations

from itertools import product

import pytest

import treadle as td
from treadle import lib
from treadle.checker import check
from treadle.driver.candidates import families
from treadle.ir.core import Program, Region
from treadle.ir.expand import expand
from treadle.plan.facts import CallFacts
from treadle.planner.enumerate import choose
from treadle.realise.items import runs_apart

B, N, G = td.dims("B N G")


@td.kernel
def chains(X: td.Tensor[G, B, N], Y: td.Out[G, N]):
    for g in td.parallel(G.each):
        s = td.zeros(N)
        for b in td.serial(B.each):
            s = s * 0.5 + X[g, b, N]
        Y[g, N] = s


@td.kernel
def mixed(X: td.Tensor[G, B, N], Y: td.Out[G, N]):
    for g in td.parallel(G.each):
        s = td.zeros(N)
        for b in td.serial(B.each):
            s = s * 0.5 + X[g, b, N] / X[g, b, N].sum(N)
        Y[g, N] = s


def captured(kernel: td.Kernel, **staged: object) -> Program:
    return expand(kernel.definition.capture({}, staged))


@pytest.mark.parametrize(("kernel", "apart"), [(chains, True), (mixed, False)])
def test_what_runs_apart(kernel: td.Kernel, apart: bool) -> None:
    program = captured(kernel)
    (loop,) = (o for o in program.body.walk() if isinstance(o, Region) and o.kind == "serial")
    assert runs_apart(loop) is apart


@pytest.mark.parametrize("kernel", [chains, mixed, lib.cumsum, lib.groupnorm_backward])
@pytest.mark.parametrize("extent", [1, 2, 65])
def test_every_plan_is_verified(kernel: td.Kernel, extent: int) -> None:
    program = captured(kernel, **({"groups": 2} if kernel is lib.groupnorm_backward else {}))
    symbols = {s for d in program.dims for s in d.extent.symbols} - set(program.lets)
    known = families("cpu:avx512")
    for axes in product((0, 1), repeat=2):
        unit = frozenset((t.name, min(axes[t.out], len(t.dims) - 1)) for t in program.tensors if t.dims)
        facts = CallFacts("cpu:avx512", extents=dict.fromkeys(symbols, extent), unit=unit, disjoint=True)
        choice = choose(program, facts, known)
        for one in (choice.best, *choice.others):
            family = next(f for f in known if f.name == one.plan.family)
            machine = family.build(program, facts, one.plan.point, one.plan.guard)
            assert check(machine).status == "verified", one.plan.line()
