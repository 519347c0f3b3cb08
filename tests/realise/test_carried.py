"""Tiles that regions carry: where they live, and what is copied of them."""

from __future__ import annotations

from treadle.checker import check
from treadle.ir.core import Program, Region
from treadle.ir.ops.access import Insert
from treadle.ir.parser import parse_program
from treadle.machine.form import MachineProgram, Store, Tasks, walk
from treadle.realise.parts import touched_part, versions
from treadle.realise.universal import universal

SOLVE = """
program solve
  dim M
  dim M2 alias M
  dim N
  tensor L: f32[M, M2]
  tensor B: f32[M, N]
  tensor X: f32[M, N] out
  body
    %x: f32[M2, N] = full 0.0
    region R0 serial (i in M by 4) carry (%x.1: f32[M2, N] = %x) -> (%x.2)
      region R1 serial (c in i each) carry (%x.3: f32[M2, N] = %x.1) -> (%x.4)
        %0: f32[N] = load B[c, N]
        %1: f32[M2[0 : c]] = load L[c, M2[0 : c]]
        %2: f32[M2[0 : c], N] = extract %x.3[M2[0 : c], N]
        %3: f32[N] = full 0.0
        %4: f32[N] = mma %1, %2, %3
        %5: f32[N] = sub %0, %4
        %x.5: f32[M2, N] = insert %x.3[c, N] = %5
        yield %x.5
      yield %x.4
    %6: f32[M, N] = extract %x.2[M, N]
    store X[M, N] = %6
"""

LATER = SOLVE.replace(
    "      yield %x.4\n",
    """      %7: f32[M2, N] = add %x.4, %x.1
      yield %7
""",
)

FILLED = """
program filled
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[M, N] out
  body
    %t: f32[M, N] = full uninitialised
    region R0 parallel (m in M each) carry (%t.1: f32[M, N] = %t) -> (%t.2)
      region R1 serial (n in N each) carry (%t.3: f32[M, N] = %t.1) -> (%t.4)
        %0: f32[] = load X[m, n]
        %t.5: f32[M, N] = insert %t.3[m, n] = %0
        yield %t.5
      yield %t.4
    store Y[M, N] = %t.2
"""

SHIFT = """
program shift
  dim N
  tensor X: f32[N]
  tensor Y: f32[N] out
  body
    %t: f32[N] = load X[N]
    region R0 serial (s in N each) carry (%t.1: f32[N] = %t) -> (%t.2)
      %0: f32[N[min(1, N) : N]] = extract %t.1[PART]
      %t.3: f32[N] = insert %t.1[N[min(1, N) : N]] = %0
      yield %t.3
    store Y[N] = %t.2
"""


def verified(program: Program) -> MachineProgram:
    machine = universal(program, "cpu:avx512")
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    return machine


def buffers(machine: MachineProgram) -> list[str]:
    return [b.name for b in (*machine.host.workspace, *machine.kernels[0].buffers)]


def region(program: Program, name: str) -> Region:
    return next(op for op in program.body.walk() if isinstance(op, Region) and op.name == name)


def test_a_tile_handed_from_region_to_region_stays_where_it_is() -> None:
    machine = verified(parse_program(SOLVE))
    assert [b for b in buffers(machine) if b.startswith("b_x")] == ["b_x"]
    # Zeros once, and one row an iteration: no copy of the tile in between.
    stores = [s for s in machine.statements() if isinstance(s, Store) and s.dst.name == "b_x"]
    assert len(stores) == 2


def test_a_tile_that_is_read_after_the_region_is_copied_for_it() -> None:
    machine = verified(parse_program(LATER))
    assert len([b for b in buffers(machine) if b.startswith("b_x")]) == 2


def test_an_instance_works_on_its_own_part_of_a_shared_tile() -> None:
    program = parse_program(FILLED)
    inner = region(program, "R1")
    carried = inner.carried[0]
    assert [str(p.extent) for p in touched_part(inner, carried)] == ["1", "N"]
    assert versions(inner, carried) == {"%t.3", "%t.5"}
    machine = verified(program)
    assert [str(b.shape[0]) for b in machine.kernels[0].buffers if b.place == "local"] == ["N"]
    (tasks,) = [s for s in machine.statements() if isinstance(s, Tasks)]
    assert {s.dst.name for s in walk(tasks.body) if isinstance(s, Store)} == {"b_t", "b_t_1"}


def test_a_use_of_the_whole_tile_makes_it_whole() -> None:
    text = FILLED.replace("insert %t.3[m, n] = %0", "insert %t.3[m, n] = %1").replace(
        "        %t.5", "        %9: f32[M, N] = add %t.3, %t.3\n        %1: f32[] = extract %9[m, n]\n        %t.5"
    )
    inner = region(parse_program(text), "R1")
    assert touched_part(inner, inner.carried[0]) == ()


def test_no_insert_overtakes_what_it_reads() -> None:
    moved = "N[min(1, N) : N]"
    same = verified(parse_program(SHIFT.replace("PART", moved)))
    assert len(buffers(same)) == 1
    text = SHIFT.replace("%0: f32[N[min(1, N) : N]] = extract %t.1[PART]", SHIFTED)
    program = parse_program(text)
    assert any(isinstance(op, Insert) for op in program.body.walk())
    assert len(buffers(verified(program))) == 2


SHIFTED = """%5: i64[N[min(1, N) : N]] = coords N[min(1, N) : N]
      %6: i64[] = full 1
      %7: i64[N[min(1, N) : N]] = sub %5, %6
      %8: f32[] = full 0.0
      %0: f32[N[min(1, N) : N]] = extract %t.1[%7] fill %8"""
