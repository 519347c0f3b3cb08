"""Shared memory of other workgroups beside a ring that another role fills: right ones and wrong twins."""

from __future__ import annotations

import pytest
from tests.checker.peer_ring_text import RIGHT, STEP, TAKE, text
from tests.checker.peer_text import ALL, BEGIN, MEET, NEAR
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import try_machine
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda

BACK = "      sync fence.proxy.async\n      sync mbar.arrive empty{c}\n      advance c\n"
LATE = text([STEP, MEET, MEET], [TAKE.replace(BACK, ""), NEAR, MEET, BACK, ALL, MEET])


def clean(machine_text: str, m: int, n: int, count: int) -> bool:
    """Whether schedules find nothing."""
    return try_machine(machine_text, "peers", {"M": m, "N": n}, 0, count).clean


@pytest.mark.parametrize("right", [RIGHT, LATE], ids=["at once", "given back behind a meeting"])
def test_takers_of_a_ring_read_other_workgroups(right: str) -> None:
    verdict = check(parse_machine(right))
    assert verdict.status == "verified", str(verdict)
    for m, n in ((1, 52), (5, 20), (7, 64), (9, 4)):  # of two clusters: 1, 3 (V + 1), 4, 5 steps
        assert clean(right, m, n, 3)


OWN = "      sync barrier.sync (id = 1, threads = 64)\n"
WRONG = {
    "the other role does not meet": (text([STEP], [TAKE, NEAR, MEET, ALL, MEET]), True),
    "the other role meets once": (text([STEP, MEET], [TAKE, NEAR, MEET, ALL, MEET]), None),
    "met before it is filled": (text([MEET, STEP, MEET], [TAKE, NEAR, MEET, ALL, MEET]), True),
    "not met before": (text([STEP, MEET], [TAKE, NEAR, ALL, MEET]), True),
    "not met behind": (text([STEP, MEET], [TAKE, NEAR, MEET, ALL]), True),
    "own threads met": (text([STEP, MEET], [TAKE, NEAR, OWN, ALL, MEET]), True),
    "half a meeting": (text([STEP, MEET, MEET], [TAKE, NEAR, MEET.splitlines()[0] + "\n", ALL, MEET]), None),
    "in another loop": (
        text([STEP, f"      loop g = 0 .. 2 step 1 {{\n{MEET}      }}\n"], [TAKE, NEAR, MEET, ALL, MEET]),
        None,
    ),
    "no goodbye": (RIGHT[: RIGHT.rindex(BEGIN)] + "  }\n}\n", None),
    "the part of the other": (RIGHT.replace("S@(i)[0]", "S@(1 - i)[0]"), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    wrong, seen = WRONG[name]
    verdict = check(parse_machine(wrong))
    assert verdict.status != "verified", str(verdict)
    assert not seen or not clean(wrong, 7, 52, 20)


def test_no_mutant_is_accepted_and_wrong() -> None:
    machine = parse_machine(RIGHT)
    known, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::6]:
        if judged(mutant) != "verified" or executed(mutant.program) in known:
            continue
        known.add(executed(mutant.program))
        count += 1
        assert clean(print_machine(mutant.program), 5, 44, 2), str(mutant)
    assert count


@assembled
def test_they_assemble() -> None:
    emitted = emit(parse_machine(RIGHT))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="sums")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert not [m for m in compiled.messages if m.code]
