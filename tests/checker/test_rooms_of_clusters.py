"""Workspace that workgroups of clusters store to, each elements of its own, and the next launch reads."""

from __future__ import annotations

import pytest
from tests.checker.machine_study import truth_of
from tests.checker.peer_text import MINE
from tests.checker.random_machines import Drawn
from tests.checker.room_text import text

from treadle.checker import check
from treadle.machine.parse import parse_machine

SIZES = ({"M": 1, "N": 40}, {"M": 3, "N": 50})
TURNED = "version P ; %s[$0] over (n) : " + MINE.format("(1 - $1)")


def truth(told: str) -> str:
    return truth_of(parse_machine(told), Drawn("room", told, SIZES))[0]


RIGHT = {
    "a part each": text(),
    "no meeting between tasks": text(meet=""),
    "the other one's place": text("store P[t, 1 - cta.rank] = p by elect", TURNED, load="P[u, 1 - i]"),
    "under a condition that holds": text("store P[t, cta.rank] = p where 0 <= t by elect"),
}
WRONG = {
    "one place for both": (text("store P[t, 0] = p by elect"), "J2", "two tasks"),
    "one row for all tasks": (text("store P[0, cta.rank] = p by elect"), "J2", "two tasks"),
    "only one stores": (text("store P[t, cta.rank] = p where cta.rank == 0 by elect"), "J1", "not been written"),
    "the other one's place": (text("store P[t, 1 - cta.rank] = p by elect"), "J1", "it holds"),
    "read at the other one's place": (text(load="P[u, 1 - i]"), "J1", "it holds"),
    "a place outside": (text("store P[t, cta.rank + 1] = p by elect"), "J4", "outside"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_parts_in_the_workspace_are_found_by_the_next_launch(name: str) -> None:
    verdict = check(parse_machine(RIGHT[name]))
    assert verdict.status == "verified", str(verdict)
    assert truth(RIGHT[name]) == "safe"


@pytest.mark.parametrize("name", WRONG)
def test_wrong_twins(name: str) -> None:
    told, judgement, reason = WRONG[name]
    verdict = check(parse_machine(told))
    assert (verdict.status, verdict.judgement) == ("rejected", judgement), str(verdict)
    assert reason in str(verdict)


def test_what_a_launch_in_clusters_stores_it_does_not_load() -> None:
    told = text(more="      p = load P[t, cta.rank]\n")
    verdict = check(parse_machine(told))
    assert (verdict.status, verdict.reason) == ("unknown", "P is written in clusters"), str(verdict)
