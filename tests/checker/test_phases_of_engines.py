"""Cooperative launches whose phases have rings, copies of threads or clusters: right ones, and what is missing."""

from __future__ import annotations

import pytest
from tests.checker.phase_text import FENCE, MEET, clusters, copies, ring
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import try_machine
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda


def clean(machine_text: str, m: int, n: int, count: int) -> bool:
    """Whether schedules find nothing."""
    return try_machine(machine_text, "phases", {"M": m, "N": n}, 0, count).clean


RIGHT = {"a ring": ring(), "copies of threads": copies(), "a fence behind the meeting": ring(fence="", behind=FENCE)}


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_verified_and_run(name: str) -> None:
    verdict = check(parse_machine(RIGHT[name]))
    assert verdict.status == "verified", str(verdict)
    for m, n in ((3, 196), (2, 4), (1, 128)):  # V + 2, 1, V steps of two slots
        assert clean(RIGHT[name], m, n, 3)


def test_clusters_that_meet_are_verified_and_run() -> None:
    machine = parse_machine(clusters())
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    assert not two_sums(clusters(), 5, 50, 4)


def two_sums(text: str, m: int, n: int, count: int) -> list[object]:
    """What goes wrong under schedules."""
    return list(try_machine(text, "clusters", {"M": m, "N": n}, 0, count).trials.failures)


# Without a meeting a workgroup finds its own rows: no schedule shows that.
WRONG = {
    "no fence": (ring(fence=""), True),
    "a fence of one thread": (ring(fence=FENCE.replace("\n", " by elect\n")), True),
    "a fence before the stores": (ring(fence="").replace("    version W", f"{FENCE}    version W"), True),
    "not met": (ring(meet="", other_meet=""), None),
    "a role that does not meet": (ring(other_meet=""), True),
    "not cooperative": (ring().replace(" cooperative", ""), True),
    "barriers set up before the meeting": (
        ring(other_meet="").replace("    tasks (u < M)", f"{MEET}    tasks (u < M)"),
        None,
    ),
    "boxes of another map": (ring().replace("W[u, 64 * h + $1]", "W[u, 64 * h + $1 + 4]"), True),
    "copies not waited for": (copies(wait=""), True),
    "copies, not met": (copies(meet=""), None),
    "clusters, not met": (clusters(meet=""), None),
    "clusters, not cooperative": (clusters(flags=""), None),
    "clusters that do not begin together": (clusters(begin=""), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    wrong, seen = WRONG[name]
    assert wrong not in RIGHT.values() and wrong != clusters()
    verdict = check(parse_machine(wrong))
    assert verdict.status != "verified", str(verdict)
    assert not seen or not clean(wrong, 3, 196, 20)


@pytest.mark.parametrize("name", ["a ring", "copies of threads"])
def test_no_mutant_is_accepted_and_wrong(name: str) -> None:
    machine = parse_machine(RIGHT[name])
    known, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::9]:
        if judged(mutant) != "verified" or executed(mutant.program) in known:
            continue
        known.add(executed(mutant.program))
        count += 1
        assert clean(print_machine(mutant.program), 3, 132, 2), str(mutant)
    assert count


@assembled
@pytest.mark.parametrize("text", [ring(), copies(), copies(arch="sm_90a"), clusters()])
def test_they_assemble(text: str) -> None:
    emitted = emit(parse_machine(text))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="squares")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert "grid_meet(arrivals, 1u)" in emitted.source and not [m for m in compiled.messages if m.code]
    assert emitted.launches[0].cooperative
