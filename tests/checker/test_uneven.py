"""Tasks of which some arrive: how many, a number says that the word's own variables tell."""

from __future__ import annotations

import pytest
from tests.checker.test_counters import trials
from tests.checker.uneven_text import COUNT, LAST, uneven
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda

RIGHT = {
    "a grid": uneven(),
    "workgroups that stay": uneven(over="persistent", launch="grid 3 threads 32"),
    "tickets": uneven(over="tickets", launch="grid 3 threads 32"),
    "more tasks than there are parts": uneven(most=3, launch="grid 3*M threads 32"),
    "named": uneven(some="s < parts", of="parts").replace(
        "      if s < parts", f"      let parts = {COUNT}\n      if s < parts"
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_verified_and_run(name: str) -> None:
    machine = parse_machine(RIGHT[name])
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    for m, n in ((5, 96), (2, 40), (1, 0), (3, 64)):
        assert not trials(machine, m, n, 4)


WRONG = {
    "one too few": (uneven(of=f"{COUNT} - 1"), True),
    "one too many": (uneven(of=f"{COUNT} + 1"), True),
    "two of each": (uneven(of="2", most=3, some="s < 1 + t % 2", launch="grid 3*M threads 32"), True),
    "all tasks arrive": (uneven(some="s < 3", most=3, launch="grid 3*M threads 32"), True),
    "no task where there is a part": (uneven(some="s < COUNT - 1"), True),
    "fewer tasks than parts": (uneven(most=1, launch="grid M threads 32"), None),
    "nobody may arrive": (uneven(some="s < t % 2", of="t % 2"), True),
    "the first of two": (uneven(some="1 <= s"), True),
    "arrivals behind a condition": (
        uneven(last=f"        if 1 <= s scope workgroup {{\n{LAST}        }}\n"),
        None,
    ),
    "another part": (uneven().replace("store P[t, s] = p", "store P[t, 1 - s] = p"), True),
    "blocks cut elsewhere": (uneven().replace("+ s) + 4 - 3*t) step", "+ s) + 3 - 3*t) step"), True),
    "a part left out": (uneven().replace("loop i = 0 .. ", "loop i = 1 .. "), True),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    wrong, seen = WRONG[name]
    assert wrong not in RIGHT.values()
    verdict = check(parse_machine(wrong))
    assert verdict.status != "verified", str(verdict)
    assert not seen or trials(parse_machine(wrong), 5, 96, 20)


def test_no_mutant_is_accepted_and_wrong() -> None:
    machine = parse_machine(RIGHT["workgroups that stay"])
    known, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::6]:
        if judged(mutant) != "verified" or executed(mutant.program) in known:
            continue
        known.add(executed(mutant.program))
        count += 1
        for m, n in ((5, 90), (1, 33)):
            assert not trials(mutant.program, m, n, 3), str(mutant)
    assert count


@assembled
def test_they_assemble() -> None:
    emitted = emit(parse_machine(RIGHT["workgroups that stay"]))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="sums")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert "arrives_last" in emitted.source and not [m for m in compiled.messages if m.code]
