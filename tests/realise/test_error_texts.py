"""The exact texts of the engine's errors."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.realise.texts import program

from treadle.analysis.uses import Uses
from treadle.ir.parser import parse_program
from treadle.realise.blocks import Lowering
from treadle.realise.choices import Choices, LoweringBroken, NotLowered
from treadle.realise.frame import Frame
from treadle.realise.universal import universal

COMPUTED_FILL = """
program shift
  dim M
  tensor X: f32[M]
  tensor C: f32[M]
  tensor Y: f32[M] out
  body
    region R0 parallel (m in M each)
      %c: f32[] = load C[m]
      %x: f32[] = load X[m + 1] fill %c
      store Y[m] = %x
"""


def test_not_lowered(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(NotLowered) as caught:
        universal(parse_program(COMPUTED_FILL.strip("\n")), "cpu:avx2")
    assert str(caught.value) == snapshot


def test_lowering_broken(snapshot: SnapshotAssertion) -> None:
    source = program("softmax")
    engine = Lowering(source, Choices(), Uses(source))
    with pytest.raises(LoweringBroken) as caught:
        engine.coords(source.definitions()["%x"].results[0].type.axes[1:], Frame([]))
    assert str(caught.value) == snapshot
