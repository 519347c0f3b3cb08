"""Which dimension lies along the lanes: the one with the elements, not the one that more accesses name."""

from __future__ import annotations

from treadle.ir.expand import expand
from treadle.ir.parser import parse_program
from treadle.plan.facts import contiguous
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
