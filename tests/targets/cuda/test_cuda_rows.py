"""Rows over lanes: warps and workgroups, rows held and rows swept, masked tails, exchange across warps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.realise.texts import program
from tests.targets.cuda.cuda_kit import tried

from treadle.checker import check
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.machine.form import Fold, Loop, MachineProgram, Sync, walk
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts, contiguous
from treadle.planner.enumerate import choose
from treadle.targets.cuda.row_lanes import along
from treadle.targets.cuda.row_shares import even, least, rounded
from treadle.targets.cuda.rows import Rows
from treadle.targets.cuda.shape import shape_of


def built(source: Program, sizes: dict[str, int], warps: int, held: bool, aligned: int = 64) -> MachineProgram:
    plain = contiguous(source, "cuda:sm_90a", sizes)
    facts = CallFacts(plain.target, plain.extents, plain.unit, dict.fromkeys(plain.aligned, aligned))
    point = {"warps": warps, "held": held}
    family = Rows()
    assert family.admits(source, facts) == []
    return family.build(source, facts, point, family.guard(source, facts, point))


@pytest.mark.parametrize("columns", [1, 31, 200])
@pytest.mark.parametrize(("warps", "held"), [(1, True), (1, False), (4, True), (4, False)])
def test_any_length(columns: int, warps: int, held: bool) -> None:
    for name in ("softmax", "softmax_bf16"):
        source = program(name)
        sizes = {"M": 5, "N": columns}
        machine = built(source, sizes, warps, held, 64 if columns % 8 == 0 else 2)
        tried(machine, source, sizes, tolerance=1e-2)
        assert check(machine).status == "verified"


def test_several_operands_and_a_long_row() -> None:
    source = program("layernorm")
    sizes = {"M": 3, "N": 1031}
    tried(built(source, sizes, 4, True, 4), source, sizes, tolerance=1e-2)


def test_one_exchange_has_a_barrier_of_its_own() -> None:
    source = program("two_phases")
    sizes = {"M": 40, "N": 50}
    machine = built(source, sizes, 4, True, 4)
    tried(machine, source, sizes, tolerance=1e-5, seeds=3)
    for kernel in machine.kernels:
        (role,) = kernel.roles
        (nest,) = [s for s in role.body if hasattr(s, "vars")]
        barriers = [s for s in nest.body if isinstance(s, Sync)]
        folds = [s for s in nest.body if isinstance(s, Fold)]
        assert len(barriers) == 2 and len(folds) == 2


def test_accesses_are_as_wide_as_facts_allow() -> None:
    source = program("softmax_bf16")
    wide = built(source, {"M": 5, "N": 1024}, 1, True)
    narrow = built(source, {"M": 5, "N": 1023}, 1, True, 2)
    (x,) = [f for f in wide.kernels[0].frags if f.dtype.name == "bf16"][:1]
    assert [(m.who, m.size, m.stride) for m in x.dist[:2]] == [("slot", 8, 1), ("lane", 32, 8)]
    (y,) = [f for f in narrow.kernels[0].frags if f.dtype.name == "bf16"][:1]
    assert (y.dist[0].who, y.dist[0].stride) == ("lane", 1)
    assert "N % 8 == 0" in str(wide.guard) and "N % 8 == 0" not in str(narrow.guard)


def test_widths_waste_little() -> None:
    for rounds in range(1, 500):
        assert rounds <= rounded(rounds) <= max(rounds + 1, 9 * rounds / 8)


def test_contractions_are_refused() -> None:
    source = program("linear")
    facts = contiguous(source, "cuda:sm_90a", {"M": 8, "N": 8, "K": 8})
    assert Rows().admits(source, facts) == ["it has contractions"]


@given(st.integers(1, 100_000), st.integers(1, 300))
def test_executors_are_the_fewest_of_their_rounds(tasks: int, most: int) -> None:
    chosen = even(tasks, most)
    rounds = -(-tasks // most)
    assert 1 <= chosen <= most
    assert -(-tasks // chosen) == rounds
    assert chosen == 1 or -(-tasks // (chosen - 1)) > rounds


def test_engines_bring_rows_that_leave_one_workgroup_alone_and_close_ones_ask_for_room() -> None:
    source = program("softmax_bf16")
    found = {}
    for target in ("cuda:sm_90a", "cuda:sm_80"):
        for columns in (8192, 32768):
            facts = contiguous(source, target, {"M": 4096, "N": columns})
            plan = choose(source, facts, [Rows()], []).plan
            machine = Rows().build(source, facts, plan.point, plan.guard)
            found[target, columns] = machine
            assert check(machine).status == "verified"
    brought = found["cuda:sm_90a", 32768]
    assert [r.name for r in brought.kernels[0].roles] == ["producer", "consumer"]
    close = found["cuda:sm_90a", 8192].host.launches[0]
    assert (close.threads, close.resident) == (128, 5)
    assert all(len(found["cuda:sm_80", n].kernels[0].roles) == 1 for n in (8192, 32768))  # it has no such engines


@given(st.integers(1, 16), st.integers(1, 16))
def test_registers_fit_the_workgroups_that_share_them(workgroups: int, warps: int) -> None:
    registers = least(workgroups, 32 * warps)
    assert registers % 8 == 0 and workgroups * 32 * warps * registers <= 65536


@pytest.mark.parametrize("columns", [4096, 8])
def test_lanes_lie_along_what_weighs_more(columns: int) -> None:
    source = captured_sum()
    facts = contiguous(source, "cuda:sm_90a", {"M": 4096, "N": columns})
    found = along(shape_of(source, facts))["R0"]
    assert found.dim.name == ("N" if columns > 32 else "M")  # rows shorter than a warp lie one behind the other
    point = choose(source, facts, [Rows()], []).plan.point
    machine = Rows().build(source, facts, point, Rows().guard(source, facts, point))
    assert check(machine).status == "verified"


def test_lanes_lie_along_the_largest_of_what_is_stored() -> None:
    """A number a row that is stored in front of the row itself does not give each lane a row."""
    source = parse_program(
        """program relative
  dim M
  dim N
  tensor X: f32[M, N]
  tensor T: f32[M] out
  tensor Y: f32[M, N] out
  body
    region R0 parallel (m in M)
      %0: f32[m, N] = load X[m, N]
      %1: f32[m] = reduce max %0 over N
      store T[m] = %1
      %2: f32[m, N] = sub %0, %1
      store Y[m, N] = %2
""",
        "relative",
    )
    facts = contiguous(source, "cuda:sm_90a", {"M": 4096, "N": 1000})
    assert along(shape_of(source, facts))["R0"].dim.name == "N"
    plan = choose(source, facts, [Rows()], []).plan
    assert check(Rows().build(source, facts, plan.point, plan.guard)).status == "verified"


def captured_sum() -> Program:
    return parse_program(
        """program total
  dim M
  dim N
  tensor X: f32[M, N]
  tensor Y: f32[M] out
  body
    region R0 parallel (m in M)
      %0: f32[m, N] = load X[m, N]
      %1: f32[m] = reduce add %0 over N
      store Y[m] = %1
"""
    )


PLANES = """program planes
  dim M
  dim H
  dim V
  tensor X: f32[M, H, V]
  tensor Y: f32[M] out
  tensor Z: f32[M] out
  body
    region R0 parallel (m in M each)
      %0: f32[H, V] = load X[m, H, V]
      %1: f32[] = reduce add %0 over H, V
      store Y[m] = %1
      %2: f32[] = reduce max %0 over V, H
      store Z[m] = %2
"""
"""Folds over two axes of which a fragment holds one whole."""


@pytest.mark.parametrize(("columns", "warps"), [(512, 4), (70, 1), (200, 4)])
@pytest.mark.parametrize("held", [True, False])
def test_planes_are_folded_row_by_row(columns: int, warps: int, held: bool) -> None:
    source = parse_program(PLANES)
    sizes = {"M": 3, "H": 4, "V": columns}
    machine = built(source, sizes, warps, held)
    tried(machine, source, sizes)
    assert check(machine).status == "verified"


SHUFFLED = """program shuffled
  dim M
  dim N = 4 static
  tensor X: f32[M, N]
  tensor Y: f32[M, N] out
  body
    %n: i64[N] = coords N
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]
      %0: i64[] = full 1
      %1: i64[N] = and %n, %0
      %low: i64[N] = sub %n, %1
      %2: f32[m, N] = extract %x[m, in_range(%low)]
      %3: f32[m, N] = add %2, %x
      %4: i64[] = full 2
      %5: i64[N] = and %n, %4
      %low.1: i64[N] = sub %n, %5
      %6: f32[m, N] = extract %3[m, in_range(%low.1)]
      store Y[m, N] = %6
"""
"""Elements of a row at places that are computed, twice, in fragments longer than the row."""


def test_promises_of_elements_that_lanes_hold() -> None:
    source = parse_program(SHUFFLED)
    sizes = {"M": 5}
    machine = built(source, sizes, 1, True)
    tried(machine, source, sizes)
    assert check(machine).status == "verified"
    right = print_machine(machine)
    masked = [line for line in right.splitlines() if "= load X" in line and "low" in line]
    assert masked and all("where $0 <= 3" in line for line in masked)
    # Without its lowest bit a number that is not negative stays so: this needs no promise, the next one does.
    assert check(parse_machine(right.replace("in_range(%low)", "%low"))).status == "verified"
    twins = [right.replace("in_range(%low.1)", "%low.1")]
    twins += [right.replace(line, line.replace(" where $0 <= 3", "", 1)) for line in masked]
    for twin in twins:
        assert twin != right and check(parse_machine(twin)).status != "verified"


INSIDE = {
    "owned": (
        """\
    region R0 parallel (m in M each)
      %s: f32[] = load S[m]
      region R1 parallel (n in N)
        %x: f32[n] = load X[m, n]
        %y: f32[n] = mul %x, %s
        store Y[m, n] = %y
""",
        0.0,
    ),
    "told": (
        """\
    region R0 parallel (m in M each)
      %t: f32[] = full 0.0
      %e: i32[] = load E[m]
      region R1 reduce (n in N[0:min(N, max(0, %e()))]) carry (%a: f32[] = %t) -> (%b)
        %x: f32[n] = load X[m, n]
        %f: f32[] = reduce add %x over N
        %c: f32[] = add %a, %f
        yield %c
      store Z[m] = %b
""",
        1e-5,
    ),
}
HEAD = """\
program inside
  dim M
  dim N
  tensor X: f32[M, N]
  tensor S: f32[M]
  tensor E: i32[M]
  tensor Y: f32[M, N] out
  tensor Z: f32[M] out
  body
"""


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("warps", [1, 4])
def test_lanes_go_along_the_blocks_of_regions_in_a_task(name: str, warps: int) -> None:
    text, tolerance = INSIDE[name]
    used = {"owned": ("X", "S", "Y"), "told": ("X", "E", "Z")}[name]
    lines = [line for line in HEAD.splitlines() if "tensor" not in line or line.split()[1][0] in used]
    source = parse_program("\n".join(lines) + "\n" + text)
    sizes = {"M": 3, "N": 700}
    machine = built(source, sizes, warps, True, 4)
    loops = [s for k in machine.kernels for r in k.roles for s in walk(r.body) if isinstance(s, Loop) and s.enters]
    (steps,) = {s.step.constant for s in loops}
    assert steps is not None and steps >= 32 * warps
    assert check(machine).status == "verified"
    tried(machine, source, sizes, tolerance=tolerance)
