"""Named barriers between roles: memory is handed over and back, in the order that arrivals and waits give."""

from __future__ import annotations

import pytest
from tests.checker import handover_some_text as some
from tests.checker.machine_study import truth_of
from tests.checker.random_handovers import RIGHT, fill, free, reuse, take, text
from tests.checker.random_machines import Drawn

from treadle.checker import check
from treadle.driver.trial import try_machine
from treadle.machine.parse import parse_machine

BOTH = {"one2": [take], "two1": [take]}
WRONG = {
    "never given back": ({"one2": [fill], "two1": [take]}, "J3"),
    "read before it is there": ({"one2": [fill, reuse], "two2": [take, free]}, "J2"),
    "given back before it is read": ({"one2": [fill, reuse], "two1": [take, free]}, "J2"),
    "filled before it is free": ({"one2": [reuse, fill], "two1": [take], "two2": [free]}, "J5"),
    "told before it is filled": ({"one1": [fill], "one2": [reuse], "two1": [take], "two2": [free]}, "J2"),
    "two arrivals": ({"one2": [fill, fill, reuse], "two1": [take], "two2": [free]}, "J3"),
    "nobody waits": ({"one2": [fill], "two1": [fill]}, "J5"),
    "not drained": ({"one1": [reuse], "one2": [fill], "two0": [free], "two1": [take], "two2": [free]}, "J3"),
    "not free at first": ({"one1": [reuse], "one2": [fill], "two1": [take], "two2": [free]}, "J5"),
    "one meeting": (BOTH, "J2"),
    "another count": ({"one2": [fill.replace("96", "64"), reuse], "two1": [take.replace("96", "64")], "two2": [free]}, "J3"),
    "one barrier for both": ({"one2": [fill, take], "two1": [take], "two2": [fill]}, "J3"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_hand_overs_are_verified_and_right(name: str) -> None:
    made = text(**RIGHT[name])
    verdict = check(parse_machine(made))
    assert verdict.status == "verified", str(verdict)
    for columns in (5, 64, 200):
        assert try_machine(made, name, {"M": 3, "N": columns}, 0, 4).clean


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_refused(name: str) -> None:
    lines, judgement = WRONG[name]
    verdict = check(parse_machine(text(**lines)))
    assert verdict.status == "rejected" and verdict.judgement == judgement, str(verdict)


def test_roles_that_go_through_other_steps_are_refused() -> None:
    made = text(**RIGHT["waits at once"]).replace("loop i = 0 .. (N + 63) // 64", "loop i = 0 .. (N + 63) // 64 + 1")
    assert check(parse_machine(made)).status == "rejected"


SIZES = ({"M": 1, "N": 40}, {"M": 2, "N": 130}, {"M": 3, "N": 64}, {"M": 2, "N": 192})
CONDITIONS = {
    "the other fills more": (some.text("64 * {v} < N", some.WHOLE), "J3", "only one of producer and consumer asks"),
    "the other fills fewer": (some.text("64 * {v} + 127 < N", some.WHOLE), "J3", "only one of producer and consumer asks"),
    "only one of the two asks": (some.text("0 <= {v}", some.WHOLE), "J3", "only one of producer and consumer asks"),
    "told before it is filled": (some.text(one1=[some.fill], one2=[some.reuse], two1=[some.take], two2=[some.free]), "J2", "not stored before"),
    "never given back": (some.text(one2=[some.fill], two1=[some.take]), "J3", "may arrive at barrier 1 twice"),
    "free at first, and only then": (some.text(two0=[some.free], one1=[some.reuse], one2=[some.fill], two1=[some.take]), "J3", "beside its steps"),
    "taken before it is there": (some.text(one2=[some.fill, some.reuse], two2=[some.take, some.free]), "J2", "not stored before"),
    "read where nothing was handed over": (some.text(rest=some.READ), "J2", "outside its step"),
}  # fmt: skip


@pytest.mark.parametrize("where", [some.WHOLE, "1 <= {v}", "64 * {v} + 64 < N"])
def test_hand_overs_under_a_condition_that_both_have(where: str) -> None:
    made = some.text(where, where)
    verdict = check(parse_machine(made))
    assert verdict.status == "verified", str(verdict)
    assert truth_of(parse_machine(made), Drawn("some", made, SIZES))[0] == "safe"


def test_free_from_the_start_under_a_condition() -> None:
    lines = {"one1": [reuse], "one2": [fill], "one3": [reuse], "two0": [free], "two1": [take], "two2": [free]}
    made = some.text(**lines)
    assert check(parse_machine(made)).status == "verified"
    assert truth_of(parse_machine(made), Drawn("some", made, SIZES))[0] == "safe"


@pytest.mark.parametrize("name", CONDITIONS)
def test_other_conditions_and_orders_are_refused(name: str) -> None:
    made, judgement, reason = CONDITIONS[name]
    verdict = check(parse_machine(made))
    assert (verdict.status, verdict.judgement) == ("rejected", judgement) and reason in verdict.reason, str(verdict)
    assert truth_of(parse_machine(made), Drawn("some", made, SIZES))[0] == "unsafe"


def test_a_condition_on_the_agent_is_no_condition_of_a_step() -> None:
    """Both say the same, of their own numbers."""
    made = some.text("w + j < N", "w + i < N")
    for role in ("one agents 1 threads 32", "two agents 1 threads 64"):
        made = made.replace(f"role {role}", f"role {role} index w")
    verdict = check(parse_machine(made))
    assert (verdict.status, verdict.judgement) == ("unknown", "J5"), str(verdict)


def test_an_agents_own_number_is_none_at_which_roles_hand_over() -> None:
    """Which number an agent's own is may hang on the agent: the judge took 1 + w of the only agent for another than 1."""
    for base, status in ((3, "verified"), (1, "rejected")):
        lines = RIGHT["waits at once"] | {"one1": [f"barrier.sync (id = {base} + w, threads = 32)"]}
        made = text(**lines).replace("role one agents 1 threads 32", "role one agents 1 threads 32 index w")
        verdict = check(parse_machine(made))
        assert verdict.status == status, str(verdict)
        truth = truth_of(parse_machine(made), Drawn("own", made, SIZES))[0]
        assert truth == ("safe" if status == "verified" else "unsafe")
    assert verdict.judgement == "J5" and verdict.partner is not None
    assert verdict.partner.text == "sync barrier.arrive (id = 1, threads = 96)"
