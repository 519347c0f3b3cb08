"""Hand-overs beside a ring: a producer fills a ring, its taker hands what it made to a third role."""

from __future__ import annotations

import pytest
from tests.checker.handover_ring_text import RIGHT, fill, free, reuse, take, text

from treadle.checker import check
from treadle.driver.samples import arguments
from treadle.driver.trial import close_enough, expected
from treadle.machine.parse import parse_machine
from treadle.simulate.run import run_schedules

all_fill, all_take = (line.replace("96", "128") for line in (fill, take))
WRONG = {
    "not told": text([reuse], [], [free]),
    "stored again at once": text([fill], [take], []),
    "taken too early": text([fill, reuse], [], [take, free]),
    "waits for what comes after": text([reuse, fill], [take], [free]),
    "the producer joins both": text([all_fill, reuse], [all_take], [free], [all_fill]),
}  # fmt: skip


def clean(machine_text: str, m: int, n: int, count: int) -> bool:
    """Whether schedules find nothing."""
    machine = parse_machine(machine_text)
    arrays, scalars = arguments(machine.program, {"M": m, "N": n}, 0)
    want = expected(machine, arrays, scalars, {"M": m, "N": n})
    return run_schedules(machine, {**arrays, **scalars}, count, expected=want, same=close_enough).right


@pytest.mark.parametrize("order", [("producer", "one", "two"), ("two", "one", "producer")])
def test_a_taker_of_a_ring_hands_over(order: tuple[str, ...]) -> None:
    machine = parse_machine(RIGHT)
    roles = machine.kernels[0].roles
    if order[0] != "producer":
        roles.reverse()
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    assert clean(RIGHT, 3, 132, 8) and clean(RIGHT, 1, 4, 4)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    verdict = check(parse_machine(WRONG[name]))
    assert verdict.status != "verified", str(verdict)
    if name != "the producer joins both":
        assert not clean(WRONG[name], 3, 132, 20)
