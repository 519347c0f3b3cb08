"""Clusters whose threads read or write the shared memory of other workgroups, and their wrong twins."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checker.peer_text import MEET, READ, WRITE
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import close_enough, expected
from treadle.machine.form import MachineProgram
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.simulate.run import run_schedules
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda

BARRIER = "      sync barrier.sync (id = 0, threads = 64)\n"


def trials(machine: MachineProgram, m: int, n: int, count: int) -> list[str]:
    """What goes wrong under `count` schedules."""
    x = np.random.default_rng(m * n).integers(-4, 5, (m, n)).astype(np.float32)
    arrays = {"X": x, "Y": np.full(m, np.nan, np.float32)}
    want = expected(machine, arrays, {}, {"M": m, "N": n})
    return [what for _, what in run_schedules(machine, arrays, count, 0, expected=want, same=close_enough).failures]


GOODBYE = "    }\n    sync cluster.arrive\n    sync cluster.wait\n"


def test_a_meeting_that_ends_each_task_is_a_goodbye() -> None:
    machine = parse_machine(READ.replace(GOODBYE, "    }\n"))
    assert check(machine).status == "verified"
    assert not trials(machine, 3, 50, 6)


@pytest.mark.parametrize("text", [READ, WRITE], ids=["read", "write"])
def test_right_ones_are_verified_and_run(text: str) -> None:
    machine = parse_machine(text)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    for m, n in ((3, 50), (1, 20), (5, 64)):
        assert not trials(machine, m, n, 6)


def between(text: str, first: str, second: str) -> str:
    """With other lines in place of the two meetings within a task."""
    head, body, tail = text.split(MEET)
    return head + first + body + second + tail


WRONG = {
    "read, not met before": (between(READ, "", MEET), "J2", (1, 40)),
    "read, not met behind": (between(READ, MEET, ""), "J2", (3, 40)),
    "read, own threads met before": (between(READ, BARRIER, MEET), "J2", (1, 40)),
    "read, own threads met behind": (between(READ, MEET, BARRIER), "J2", (4, 40)),
    "read, half a meeting": (between(READ, "      sync cluster.arrive\n", MEET), "J5", None),
    "written, not met before": (between(WRITE, "", MEET), "J2", (1, 40)),
    "written, not met behind": (between(WRITE, MEET, ""), "J2", (4, 40)),
    "written, own threads met before": (between(WRITE, BARRIER, MEET), "J2", (1, 40)),
    "written, own threads met behind": (between(WRITE, MEET, BARRIER), "J2", (4, 40)),
    "a wait without an arrival": (
        READ.replace("    sync cluster.arrive\n    sync cluster.wait\n    tasks", "    sync cluster.wait\n    tasks"),
        "J2",
        (1, 40),
    ),
    "a wait alone, and no goodbye": (
        READ.replace(
            "    sync cluster.arrive\n    sync cluster.wait\n    tasks",
            "    let one = 1\n    sync cluster.wait\n    tasks",
        ).replace("    }\n    sync cluster.arrive\n    sync cluster.wait\n", "    }\n"),
        "J2",
        (1, 40),
    ),
    "the part of the other": (READ.replace("S@(i)[0]", "S@(1 - i)[0]"), "J1", None),
    "a workgroup that is not there": (READ.replace("S@(i)[0]", "S@(i + 1)[0]"), "J4", (1, 40)),
    "the own part twice": (READ.replace("S@(i)[0]", "S[0]"), "J1", (3, 50)),
    "left to one only": (WRITE.replace("      store S@(1)[cta.rank] = p by elect\n", ""), "J1", (1, 40)),
    "one place for both": (WRITE.replace("S@(0)[cta.rank]", "S@(0)[0]"), "J1", (1, 40)),
    "stored by all": (READ.replace("if cta.rank == 0 scope", "if cta.rank <= 1 scope"), "J1", (1, 40)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    text, judgement, seen = WRONG[name]
    machine = parse_machine(text)
    verdict = check(machine)
    assert verdict.status != "verified" and verdict.judgement == judgement, str(verdict)
    if seen is not None:
        assert trials(machine, *seen, 20)


@pytest.mark.parametrize("text", [READ, WRITE], ids=["read", "write"])
def test_no_mutant_is_accepted_and_wrong(text: str) -> None:
    machine = parse_machine(text)
    seen, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::3]:
        if judged(mutant) != "verified" or executed(mutant.program) in seen:
            continue
        seen.add(executed(mutant.program))
        count += 1
        for m, n in ((3, 50), (1, 5)):
            assert not trials(mutant.program, m, n, 3), str(mutant)
    assert count


@assembled
@pytest.mark.parametrize("text", [READ, WRITE], ids=["read", "write"])
def test_they_assemble(text: str) -> None:
    emitted = emit(parse_machine(text))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="sums")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert "mapa" in emitted.source and not [m for m in compiled.messages if m.code]
