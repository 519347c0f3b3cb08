# ruff: noqa: E501 (lines of machine text)
"""Named barriers between roles: memory is handed over and back, in the order that arrivals and waits give."""

from __future__ import annotations

import pytest
from tests.checker.random_handovers import RIGHT, fill, free, reuse, take, text

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
