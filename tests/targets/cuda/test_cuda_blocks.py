"""Contractions by multiply-add out of shared memory."""

from __future__ import annotations

import re

import pytest
from tests.realise.texts import program
from tests.targets.cuda.cuda_kit import arguments, clean, tried

from treadle.checker import check
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.simulate.run import simulate
from treadle.targets.cuda.blocks import Blocks

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
    for rows, columns, step, threads in ((64, 64, 16, 256), (128, 256, 32, 256), (128, 128, 16, 128)):
        point = {"rows": rows, "columns": columns, "step": step, "versions": 2, "raster": "panels"}
        point["threads"] = threads
        machine = family.build(source, facts, point, family.guard(source, facts, point))
        assert check(machine).status == "verified"
        clean(machine)


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
