"""Contractions by multiply-add out of shared memory."""

from __future__ import annotations

import re
from itertools import product

import pytest
from tests.realise.texts import program
from tests.targets.cuda.cuda_kit import arguments, clean, tried

from treadle.checker import check
from treadle.ir.guard import Aligned, Pitch
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.realise.blocked import across, agent, down
from treadle.simulate.run import simulate
from treadle.targets.cuda.blocks import Blocks
from treadle.targets.cuda.emit import emit

SIZES = {"M": 70, "N": 75, "K": 21, "B": 2}


def built(name: str, sizes: dict[str, int], versions: int = 2) -> MachineProgram:
    source = program(name)
    family, facts = Blocks(), contiguous(source, "cuda:sm_80", sizes)
    assert family.admits(source, facts) == []
    point = {"rows": 64, "columns": 64, "step": 16, "versions": versions, "raster": "row"}
    return family.build(source, facts, point, family.guard(source, facts, point))


@pytest.mark.parametrize("versions", [1, 2])
@pytest.mark.parametrize("name", ["linear", "linear_t", "linear_bf16", "swiglu", "batched"])
def test_any_format_and_storage_order(name: str, versions: int) -> None:
    machine = built(name, SIZES, versions)
    tried(machine, program(name), SIZES, tolerance=1e-4)
    assert check(machine).status == "verified"


@pytest.mark.parametrize("depth", [0, 1, 16, 17, 32, 33, 64])
def test_slots_in_turn_at_any_depth(depth: int) -> None:
    machine = built("linear", SIZES)
    tried(machine, program("linear"), {"M": 130, "N": 5, "K": depth}, tolerance=1e-4, symbols={"workgroups": 2})


def test_two_workgroups_of_half_as_many_threads() -> None:
    source, sizes = program("linear"), {"M": 150, "N": 70, "K": 40}
    family, facts = Blocks(), contiguous(source, "cuda:sm_90a", sizes)
    point = {"rows": 128, "columns": 128, "step": 16, "versions": 2, "raster": "row", "threads": 128}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    (launch,) = machine.host.launches
    assert (launch.threads, launch.resident) == (128, 2)
    assert check(machine).status == "verified"
    tried(machine, source, sizes, tolerance=1e-4)


def test_the_next_block_in_registers_assembles_without_spills() -> None:
    source = program("linear")
    facts = contiguous(source, "cuda:sm_90a", dict.fromkeys("MNK", 4096))
    family = Blocks()
    for rows, columns, step, threads in (
        (64, 64, 16, 256),
        (64, 128, 32, 256),
        (128, 256, 32, 256),
        (128, 128, 16, 128),
    ):
        point = {"rows": rows, "columns": columns, "step": step, "versions": 2, "raster": "panels"}
        point["threads"] = threads
        machine = family.build(source, facts, point, family.guard(source, facts, point))
        assert check(machine).status == "verified"
        clean(machine)


@pytest.mark.parametrize("threads", [128, 256])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (64, 128), (128, 64), (128, 256)])
def test_half_a_warp_reads_sixteen_bytes_at_once(rows: int, columns: int, threads: int) -> None:
    # Two lanes that differ in one of the two lowest bits read the same place, for both operands; the lanes of a warp
    # read 4 x 8 fours, each of another place, and all threads together every row and column.
    digits = agent(threads).digits
    found: dict[str, list[int]] = {"rows": [], "columns": []}
    for name, spots in (("rows", down(rows, threads)), ("columns", across(columns))):
        strides = {(s.order, s.who): s.stride for s in spots}
        for thread in range(threads):
            rest, first = thread, 0
            for order, who, size in digits:
                first += rest % size * strides.get((order, who), 0)
                rest //= size
            found[name].append(first)
        slots = [s for s in spots if s.who == "slot"]
        offsets = {sum(c * s.stride for c, s in zip(at, slots)) for at in product(*(range(s.size) for s in slots))}
        assert {4 * n for n in range({"rows": rows, "columns": columns}[name] // 4)} == {
            f + o for f in found[name] for o in offsets if (f + o) % 4 == 0
        }
        warp = found[name][:32]
        assert any(all(warp[i] == warp[i ^ bit] for i in range(32)) for bit in (1, 2))
    assert len(set(zip(found["rows"][:32], found["columns"][:32]))) == 32
    assert len(set(zip(found["rows"], found["columns"]))) == threads


def test_addresses_of_a_loop_leave_the_iteration_to_the_instruction() -> None:
    source = program("linear")
    facts = contiguous(source, "cuda:sm_90a", dict.fromkeys("MNK", 4096))
    family = Blocks()
    point = {"rows": 128, "columns": 64, "step": 32, "versions": 2, "raster": "panels", "threads": 256}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    lines = emit(machine).source.splitlines()
    heads = [i for i, line in enumerate(lines) if "#pragma unroll 16" in line]
    assert len(heads) == 2  # a half of the block each, as a loop
    for head in heads:
        variable = re.search(r"for \(int (\w+) = ", lines[head + 1])
        assert variable is not None
        body = lines[head + 2 : head + 60]
        firsts = [line for line in body if re.search(r"const int q\d+ = ", line)]
        loads = [line for line in body if "*(const uint4*)" in line]
        assert len(firsts) == 2 and not any(variable[1] in line for line in firsts)
        assert loads and all(re.search(rf"smem \+ q\d+ \+ \d+ \* {variable[1]}\b", line) for line in loads)


def test_results_leave_by_sixteen_bytes_where_rows_are_whole_chunks() -> None:
    source, family = program("linear"), Blocks()
    point = {"rows": 128, "columns": 64, "step": 32, "versions": 2, "raster": "panels", "threads": 256}
    stored: dict[int, int] = {}
    for columns in (4096, 4095):
        facts = contiguous(source, "cuda:sm_90a", {"M": 4096, "N": columns, "K": 4096})
        guard = family.guard(source, facts, point)
        assert (Aligned("Y", 16) in guard.facts, Pitch("Y", 0, 4) in guard.facts) == (columns == 4096,) * 2
        text = emit(family.build(source, facts, point, guard)).source
        stored[columns] = text.split("// store Y[")[1].count("*(uint4*)")
    assert stored == {4096: 8, 4095: 0}  # of a thread's 32 results, four by four


WRONG = {
    "no meeting behind the first block": lambda t: _without(t, 0),
    "no meeting in an iteration": lambda t: _without(t, 1),
    "the next block in the slot that is read": lambda t: _in_iterations(t, r"\+ 1\) % 2", ") % 2"),
    "the slot of the next block is read": lambda t: re.sub(r"(load _?\w+s\[)\((k0 // 16)\) % 2", r"\1(\2 + 1) % 2", t),
    "one slot": lambda t: re.sub(r"(f32\[)2(, 16, 68\])", r"\g<1>1\2", t),
    "the meeting before the last stores": lambda t: _earlier(t),
}


def _without(text: str, number: int) -> str:
    lines = text.splitlines()
    places = [i for i, line in enumerate(lines) if "sync barrier.sync" in line]
    return "\n".join(lines[: places[number]] + lines[places[number] + 1 :])


def _in_iterations(text: str, what: str, by: str) -> str:
    return "\n".join(re.sub(what, by, line) if " store " in line else line for line in text.splitlines())


def _earlier(text: str) -> str:
    lines = text.splitlines()
    place = [i for i, line in enumerate(lines) if "sync barrier.sync" in line][1]
    last = max(i for i, line in enumerate(lines[:place]) if line.lstrip().startswith("store "))
    return "\n".join([*lines[:last], lines[place], *lines[last:place], *lines[place + 1 :]])


@pytest.mark.parametrize("name", WRONG)
def test_slots_in_the_wrong_turn_are_refused(name: str) -> None:
    right = print_machine(built("linear", SIZES))
    wrong = WRONG[name](right)
    assert wrong != right
    machine = parse_machine(wrong)
    assert check(machine).status in ("rejected", "unknown")
    sizes = {"M": 10, "N": 5, "K": 70}
    args = arguments(program("linear"), sizes)
    assert any(simulate(machine, args, seed=seed).findings for seed in range(4))


def test_a_chain_is_refused() -> None:
    source = program("attention")
    facts = contiguous(source, "cuda:sm_90a", {"B": 1, "H": 1, "Q": 64, "S": 64})
    (reason,) = Blocks().admits(source, facts)
    assert "chain of contractions" in reason
