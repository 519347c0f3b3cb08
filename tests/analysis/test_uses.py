"""Facts about programs: users, homes, effects, costs of computing again."""

from __future__ import annotations

from tests.realise.texts import program

from treadle.analysis.uses import Uses
from treadle.ir.core import Region
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.fold import Mma
from treadle.ir.parser import parse_program

TWICE = """
program twice
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[M, N] out
  body
    %t0: f32[M, N] = full uninitialised
    region R0 parallel (m in M) carry (%t: f32[M, N] = %t0) -> (%t1)
      %x: f32[m, N] = load X[m, N]
      %a: f32[M, N] = insert %t[m, N] = %x
      %y: f32[m, N] = extract %a[m, N]
      %z: f32[m, N] = add %y, %x
      %b: f32[M, N] = insert %a[m, N] = %z
      yield %b
    store Y[M, N] = %t1
"""


def test_users_include_index_expressions_and_yields() -> None:
    uses = Uses(program("ragged"))
    (region,) = (op for op in uses.users["%lo"] if isinstance(op, Region))
    assert region.name == "R1"
    assert any(isinstance(op, Region) and op.name == "R1" for op in uses.users["%n"])


def test_stores_and_ifs_are_numbered_in_walk_order() -> None:
    uses = Uses(program("branch"))
    assert sorted(uses.store_number.values()) == [0] and sorted(uses.if_number.values()) == [0]
    assert list(uses.stored) == ["Y"] and set(uses.loaded) == {"X", "F"}


def test_a_load_is_stable_while_nothing_stores_to_its_tensor() -> None:
    for name, stable in (("softmax", True), ("in_place", False)):
        uses = Uses(program(name))
        loads = [op for op in uses.program.body.walk() if isinstance(op, Load)]
        assert loads and all(uses.stable(op) is stable for op in loads)


def test_weight_counts_what_would_be_computed_again() -> None:
    uses = Uses(program("softmax"))
    value = uses.of_value
    assert uses.weight(value["%x"]) == 1
    assert uses.weight(value["%e"]) > 12 > uses.weight(value["%d"])
    # A value that is kept costs one read.
    assert uses.weight(value["%e"], frozenset({"%d"})) == 13


def test_contractions_are_found_at_any_depth() -> None:
    uses = Uses(program("swiglu"))
    (outer,) = uses.program.body.ops
    assert [m.result.name for m in uses.contractions(outer)] == ["%gn", "%un"]
    assert uses.contains(outer, Mma) and not uses.contains(outer, Extract)


def test_a_part_that_is_written_twice_is_forwarded_and_overwritten() -> None:
    uses = Uses(parse_program(TWICE.strip("\n")))
    inserts = [op for op in uses.program.body.walk() if isinstance(op, Insert)]
    (read,) = (op for op in uses.program.body.walk() if isinstance(op, Extract))
    assert uses.forwarded(read) is uses.of_value["%x"]
    assert [uses.overwritten(op) for op in inserts] == [True, False]
