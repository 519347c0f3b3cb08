"""Gangs: workers of a CPU that run each task together, and their wrong twins."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checker.gang_text import GANG, MEET

from treadle.base.errors import TreadleError
from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import close_enough, expected
from treadle.machine.form import MachineProgram
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.simulate.run import run_schedules
from treadle.targets.cpu.emit import emit

FEATURES = "sse3 ssse3 sse4_1 sse4_2 popcnt cx16 avx avx2 fma f16c bmi1 bmi2 lzcnt movbe".split()


def trials(machine: MachineProgram, m: int, n: int, count: int) -> list[str]:
    """What goes wrong under `count` schedules."""
    x = np.random.default_rng(m * n).integers(-4, 5, (m, n)).astype(np.float32)
    arrays = {"X": x, "Y": np.full(m, np.nan, np.float32)}
    want = expected(machine, arrays, {}, {"M": m, "N": n})
    return [what for _, what in run_schedules(machine, arrays, count, 0, expected=want, same=close_enough).failures]


def test_a_gang_is_verified_and_runs() -> None:
    machine = parse_machine(GANG)
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    for m, n in ((3, 10), (1, 1), (4, 0), (0, 3)):
        assert not trials(machine, m, n, 8)


def test_no_text_is_emitted_yet() -> None:
    with pytest.raises(TreadleError) as refused:
        emit(parse_machine(GANG), FEATURES)
    assert refused.value.code == "emit/cpu-unsupported"


def between(first: str, second: str) -> str:
    """With other lines in place of the two meetings."""
    head, body, tail = GANG.split(MEET)
    return head + first + body + second + tail


WRONG = {
    "not met before": (between("", MEET), "J2", (2, 9)),
    "not met behind": (between(MEET, ""), "J2", (5, 9)),
    "some meet": (between(f"      if w <= 1 {{\n{MEET}      }}\n", MEET), "J5", (2, 9)),
    "more meetings of some": (between(f"      loop u = 0 .. w + 1 step 1 {{\n{MEET}      }}\n", MEET), "J5", (2, 9)),
    "another's place": (GANG.replace("store S[w] = p", "store S[0] = p"), "J1", (2, 9)),
    "two fold": (GANG.replace("if w == 0 {", "if w <= 1 {"), "J1", (2, 9)),
    "fewer workers than the launch says": (GANG.replace("agents 3", "agents 2"), "J7", (2, 9)),
    "no room": (GANG.replace("shared 64", "shared 8"), "J4", None),
    "tasks of single workers": (GANG.replace("over gangs", "over workers"), "J5", None),
    "overlapping arguments": (GANG.replace("  disjoint(X, Y)\n", ""), "J7", None),
    "a meeting outside": (GANG.replace("    tasks (t", "    sync gang.sync\n    tasks (t"), "J5", None),
    "a part twice": (GANG.replace("loop j = w ..", "loop j = 0 .."), "J1", (2, 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    text, judgement, seen = WRONG[name]
    machine = parse_machine(text)
    verdict = check(machine)
    assert verdict.status != "verified" and verdict.judgement == judgement, str(verdict)
    if seen is not None:
        assert trials(machine, *seen, 20)


def test_no_mutant_is_accepted_and_wrong() -> None:
    machine = parse_machine(GANG)
    seen, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::2]:
        if judged(mutant) != "verified" or executed(mutant.program) in seen:
            continue
        seen.add(executed(mutant.program))
        count += 1
        for m, n in ((3, 7), (2, 1)):
            assert not trials(mutant.program, m, n, 3), str(mutant)
    assert count
