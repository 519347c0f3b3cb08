"""What shapes tell of extents: the steps that emitters write as code, and the numbers that the host works out."""

from __future__ import annotations

import pytest

from treadle.algebra.expr import ONE, const
from treadle.ir.extents import extent_sources, told_extents
from treadle.ir.parser import parse_program

HEADS = """
program heads
  dim T
  dim G
  dim R
  dim P
  dim GR = G*R
  tensor X: f32[T, GR]
  tensor Y: f32[P, G] out
  tensor Z: f32[T, GR] out
  let P = R + 1
  body
    %x: f32[T, GR] = load X[T, GR]
    store Z[T, GR] = %x
"""


@pytest.fixture(scope="module")
def heads():
    return parse_program(HEADS.strip("\n"))


def test_a_source_mentions_only_earlier_symbols(heads) -> None:
    seen: set[str] = set()
    for source in extent_sources(heads):
        needed = source.divisor.symbols if source.expr is None else source.expr.symbols
        assert needed <= seen
        seen.add(source.symbol)
    assert seen == {"T", "G", "R", "P"}


def test_an_axis_of_its_own_goes_before_a_let_and_a_product(heads) -> None:
    told = {s.symbol: (s.tensor, s.axis, s.divisor, s.expr) for s in extent_sources(heads)}
    assert told["P"] == ("Y", 0, ONE, None) and told["T"] == ("X", 0, ONE, None)
    tensor, axis, divisor, expr = told["R"]
    assert (tensor, axis, expr) == ("X", 1, None) and divisor.substitute({"G": 7}) == const(7)


@pytest.mark.parametrize(
    "shapes, wanted",
    [
        ({"X": (5, 12), "Y": (5, 3)}, {"T": 5, "G": 3, "R": 4, "P": 5}),
        ({"X": (5, 0), "Y": (1, 3)}, {"T": 5, "G": 3, "R": 0, "P": 1}),
        # No whole quotient, an empty factor, or two unknown factors: nothing is guessed.
        ({"X": (5, 13), "Y": (5, 3)}, {"T": 5, "G": 3, "P": 5}),
        ({"X": (5, 0), "Y": (1, 0)}, {"T": 5, "G": 0, "P": 1}),
        ({"X": (5, 12)}, {"T": 5}),
        ({}, {}),
    ],
)
def test_what_shapes_tell(heads, shapes: dict[str, tuple[int, ...]], wanted: dict[str, int]) -> None:
    assert told_extents(heads, shapes) == wanted


def test_a_required_equation_tells_what_is_left() -> None:
    program = parse_program("program p\n  dim S\n  dim S1\n  require -S + S1 - 1 == 0\n  tensor X: f32[S1]\n  body\n")
    assert told_extents(program, {"X": (5,)}) == {"S1": 5, "S": 4}
    # An equation that no extent meets gives 0, and is broken by it.
    assert told_extents(program, {"X": (0,)}) == {"S1": 0, "S": 0} and not program.requires[0].holds({"S1": 0, "S": 0})
