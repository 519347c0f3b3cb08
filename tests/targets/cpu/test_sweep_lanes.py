"""Which dimension lies along the lanes: the one with the elements, not the one that more accesses name."""

from __future__ import annotations

import pytest
from tests.realise import texts
from tests.realise.oracle import agrees
from tests.targets.cpu.test_families import facts_for, runner
from tests.targets.cpu_emit.kit import HOST_LEVELS

import treadle as td
from treadle.checker import check
from treadle.ir.expand import expand
from treadle.ir.parser import parse_program
from treadle.lib.reductions import rows_max
from treadle.lib.rows import softmax
from treadle.plan.facts import contiguous
from treadle.plan.family import points
from treadle.targets.cpu.shape import shape_of
from treadle.targets.cpu.sweep import VectorSweep

ROWS = """
program rows
  dim M
  dim N
  tensor X: f32[M, N]
  tensor A: f32[M] out
  tensor B: f32[M] out
  body
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]
      %0: f32[m] = reduce max %x over N
      %1: f32[m] = reduce add %x over N
      store A[m] = %0
      store B[m] = %1
"""


def test_numbers_of_rows_do_not_decide_the_lanes() -> None:
    program = expand(parse_program(ROWS))
    facts = contiguous(program, "cpu:avx512", {"M": 4096, "N": 4096}, workers=2)
    axes = {a.name: a.values for a in VectorSweep().axes(program, facts)}
    assert axes["lanes"] == ("N",) and len(axes["rows"]) > 1
    point = {name: values[0] for name, values in axes.items()}
    assert VectorSweep().task_count(shape_of(program, facts), point) == 256


@pytest.mark.skipif("avx512" not in HOST_LEVELS, reason="needs AVX-512")
def test_short_rows_fill_their_fragments() -> None:
    """Rows of three vectors lie in fragments of three, and rows of other lengths are right under the same plan."""
    source = texts.program("softmax")
    facts = facts_for(source, "avx512", {"M": 90, "N": 48})
    family = VectorSweep()
    chosen = min(points(family.axes(source, facts)), key=lambda p: family.cost(source, facts, p).total)
    assert chosen["vector"] == 48
    machine = family.build(source, facts, chosen, family.guard(source, facts, chosen))
    assert check(machine).status == "verified"
    for columns in (1, 16, 33, 47, 48, 49, 96, 130):
        agrees("softmax", source, runner(machine, facts), {"M": 7, "N": columns})
    for columns, widest in ((64, 64), (100, 64), (32, 64)):
        few = facts_for(source, "avx512", {"M": 90, "N": columns})
        assert {a.name: a.values for a in family.axes(source, few)}["vector"] == (widest, 32, 16)


def test_rows_that_are_searched_are_not_asked_for_ahead() -> None:
    for kernel, ahead in ((rows_max, False), (softmax, True)):
        source = expand(kernel.program(td.like(td.f32, 4096, 4096)))
        facts = contiguous(source, "cpu:avx512", {"M": 4096, "N": 4096}, workers=2)
        assert {a.name: a.values for a in VectorSweep().axes(source, facts)}["ahead"] == (ahead,)
