"""Hand-overs beside a ring: a producer fills a ring, its taker hands what it made to a third role."""

from __future__ import annotations

import pytest
from tests.checker.handover_both_text import (
    ADD,
    FILL,
    FILL_A,
    FILL_B,
    FILL_HALVES,
    GET,
    GIVE,
    HAND,
    REUSE,
    TAKE,
    TAKE_A,
    TAKE_B,
    halves,
    right,
)
from tests.checker.handover_both_text import text as both_text
from tests.checker.handover_ring_text import RIGHT, fill, free, reuse, take, text

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.samples import arguments
from treadle.driver.trial import close_enough, expected
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
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


BOTH = {
    "told first, one slot": right(1),
    "told first": right(2),
    "takes its ring first": both_text(2, [FILL_A, FILL_B], [TAKE_A, HAND, FILL, REUSE], [TAKE_B, TAKE, GET, GIVE, ADD]),
    "filled in the other order": both_text(
        2, [FILL_B, FILL_A], [TAKE_A, HAND, FILL, REUSE], [TAKE, GET, GIVE, TAKE_B, ADD]
    ),
    "the memory is free first": both_text(
        3, [FILL_A, FILL_B], [TAKE_A, REUSE, HAND, FILL], [GIVE, TAKE, GET, TAKE_B, ADD]
    ),
}
BOTH |= {
    "a ring in a loop": halves(2, [FILL_HALVES, FILL_B], [TAKE, GET, GIVE, TAKE_B, ADD]),
    "a ring in a loop, filled behind one that is taken later": halves(
        1, [FILL_B, FILL_HALVES], [TAKE, GET, GIVE, TAKE_B, ADD]
    ),
    "a ring in a loop, filled last": halves(1, [FILL_B, FILL_HALVES], [TAKE_B, TAKE, GET, GIVE, ADD]),
}
BOTH_WRONG = {
    "each waits for the other": (
        both_text(2, [FILL_A, FILL_B], [TAKE_A, HAND, REUSE, FILL], [TAKE, GET, GIVE, TAKE_B, ADD]),
        True,
    ),
    "read before it is told": (
        both_text(2, [FILL_A, FILL_B], [TAKE_A, HAND, FILL, REUSE], [TAKE_B, GET, TAKE, GIVE, ADD]),
        True,
    ),
    "stored before it is free": (
        both_text(2, [FILL_A, FILL_B], [TAKE_A, HAND, FILL, REUSE], [TAKE, GIVE, GET, TAKE_B, ADD]),
        True,
    ),
    "the producer waits to be told, behind a ring that waits for it": (
        both_text(
            1,
            [f"sync {all_take}\n", FILL_A, FILL_B],
            [TAKE_A, HAND, f"sync {all_fill}\n", REUSE],
            [f"sync {all_take}\n", GET, GIVE, TAKE_B, ADD],
        ),
        True,
    ),
}


@pytest.mark.parametrize("name", BOTH)
def test_two_takers_of_rings_hand_over(name: str) -> None:
    verdict = check(parse_machine(BOTH[name]))
    assert verdict.status == "verified", str(verdict)
    for m, n in ((3, 192), (2, 4), (1, 128), (3, 260)):  # steps of a loop: V + 1, 1, V, V + 3 of two slots
        assert clean(BOTH[name], m, n, 4)


@pytest.mark.parametrize("name", BOTH_WRONG)
def test_wrong_hand_overs_of_two_takers_are_not(name: str) -> None:
    wrong, seen = BOTH_WRONG[name]
    verdict = check(parse_machine(wrong))
    assert verdict.status != "verified", str(verdict)
    assert not seen or not clean(wrong, 3, 260, 20)


def test_no_mutant_of_two_takers_is_accepted_and_wrong() -> None:
    machine = parse_machine(right(2))
    known, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::8]:
        if judged(mutant) != "verified" or executed(mutant.program) in known:
            continue
        known.add(executed(mutant.program))
        count += 1
        assert clean(print_machine(mutant.program), 3, 196, 3), str(mutant)
    assert count
