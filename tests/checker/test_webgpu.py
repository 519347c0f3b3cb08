"""The barrier of a WebGPU workgroup: judged and simulated; nothing is emitted for this target yet."""

from __future__ import annotations

import pytest
from tests.checker.test_random_machines import PAIR

from treadle.checker import check
from treadle.driver.samples import arguments
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.simulate.run import run_schedules

RIGHT = PAIR.format(meet="sync workgroup.barrier").replace("target cuda:sm_80", "target webgpu")
RIGHT = RIGHT.replace("  disjoint(X, Y)\n", "  disjoint(X, Y)\n  injective(Y)\n")
RIGHT = RIGHT.replace("      store Y[$0] = y\n", "      store Y[$0] = y\n      sync workgroup.barrier\n")
RIGHT = RIGHT.replace("      store S[$0] = x\n", "      version S ; %x[$0]\n      store S[$0] = x\n")
RIGHT = RIGHT.replace("x = load X[$0]\n", "x = load X[$0] ; %x[$0]\n").replace("= y\n", "= y ; store 0 [$0]\n")
MEET, STORE = "      sync workgroup.barrier\n", "      store S[$0] = x\n"
NAMED = "      sync barrier.sync (id = 0, threads = 64)\n"


def wrong(machine: MachineProgram) -> list[str]:
    """What schedules find."""
    arrays, _ = arguments(machine.program, {"N": 64}, 0)
    return [w for _, w in run_schedules(machine, arrays, 12, expected={"Y": arrays["X"]}).failures]


def test_invocations_that_meet_are_verified() -> None:
    machine = parse_machine(RIGHT)
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    assert not wrong(machine)


PICKED = "y = pick y[63 - $0]\n      store Y[$0] = y"
WRONG = {
    "not met": ((MEET, ""), "rejected", "J2", True),
    "met too early": ((STORE + MEET, MEET + STORE), "rejected", "J2", True),
    "another target's barrier": ((MEET, NAMED), "unknown", "J2", False),
    "one lane of each subgroup": (("store Y[$0] = y", "store Y[$0] = y by warp"), "unknown", "J5", False),
    "an element of another lane": (("store Y[$0] = y", PICKED), "unknown", "J5", False),
    "an atomic store": (("store Y[$0] = y", "store Y[$0] = y effect add"), "unknown", "J2", False),
    "another target": (("target webgpu", "target cuda:sm_80"), "", "", False),
    "a cooperative launch": (("threads 64 shared 256", "threads 64 cooperative shared 256"), "unknown", "J7", False),
    "more memory than every device has": (("shared 256", "shared 20000"), "rejected", "J4", False),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    (old, new), status, judgement, seen = WRONG[name]
    assert old in RIGHT
    machine = parse_machine(RIGHT.replace(old, new, 1))
    verdict = check(machine)
    assert verdict.status != "verified", str(verdict)
    if status:
        assert (verdict.status, verdict.judgement) == (status, judgement), str(verdict)
    if seen:
        assert wrong(machine)


def test_elements_that_share_a_word() -> None:
    """Invocations store words; of narrower elements two would be stored at once."""
    verdict = check(parse_machine(RIGHT.replace("f32", "bf16")))
    assert (verdict.status, verdict.judgement) == ("unknown", "J2"), str(verdict)
    assert check(parse_machine(RIGHT.replace("f32", "f16"))).status == "verified"


def test_every_launch_is_one_of_the_device() -> None:
    second = "shared 256\n  launch main grid 1 threads 64 shared 20000\n"
    verdict = check(parse_machine(RIGHT.replace("shared 256\n", second)))
    assert (verdict.status, verdict.judgement) == ("rejected", "J4"), str(verdict)
