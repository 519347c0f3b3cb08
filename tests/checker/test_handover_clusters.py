"""Roles that hand over by named barriers in a cluster that meets within their work: right texts are verified and safe
in every interleaving, wrong twins are refused and are not."""

from __future__ import annotations

import pytest
from tests.checker.handover_cluster_text import BLOCKS, FILL, GIVER, TAKE, fill, free, reuse, take, text
from tests.checker.machine_study import truth_of
from tests.checker.peer_text import ALL, MEET, NEAR
from tests.checker.random_machines import Drawn

from treadle.checker import check
from treadle.machine.parse import parse_machine


def truth(told: str) -> str:
    sizes = ({"M": 1, "N": 40}, {"M": 3, "N": 50})
    return truth_of(parse_machine(told), Drawn("handover", told, sizes))[0]


def moved(role: str, variable: str, told: str = BLOCKS) -> str:
    """The text with the meeting of one role in front of its loop."""
    head, tail = told.split(f"  role {role}")
    at = tail.index(f"      loop {variable} = 0")
    end = tail.index(MEET, at)
    return f"{head}  role {role}{tail[:at]}{MEET}{tail[at:end]}{tail[end + len(MEET) :]}"


def without(told: str, word: str) -> str:
    """The text without the lines that end so."""
    return "".join(line for line in told.splitlines(keepends=True) if not line.rstrip().endswith(word))


RIGHT = {
    "both": text(),
    "free by the meeting alone": text([FILL, fill, MEET, MEET], [take, TAKE, NEAR, MEET, ALL, MEET]),
    "filled between the meetings": text([MEET, FILL, fill, MEET, MEET], [MEET, take, TAKE, NEAR, MEET, ALL, MEET]),
    "a loop of blocks, then a meeting": BLOCKS,
    "a meeting, then a loop of blocks": moved("two", "i", moved("one", "j")),
}
WRONG = {
    "no way back": (without(BLOCKS, "(id = 2, threads = 64)"), "J3"),
    "no meeting behind the loads of parts": (text([FILL, fill, MEET], [take, TAKE, NEAR, MEET, ALL]), "J2"),
    "the giver meets first": (text([MEET, FILL, fill, reuse, MEET]), "J5"),
    "taken behind the meeting, told before": (text([FILL, MEET, fill, reuse, MEET]), "J5"),
    "one meeting fewer": (text([FILL, fill, MEET, reuse]), "J5"),
    "the part is read before all have met": (text(GIVER, [take, TAKE, free, NEAR, ALL, MEET, MEET]), "J2"),
    "not taken": (text([FILL, fill, MEET, reuse, MEET], [TAKE, take, free, NEAR, MEET, ALL, MEET]), "J2"),
    "a meeting in front of the blocks of one": (moved("one", "j"), "J5"),
    "a meeting in front of the blocks of the other": (moved("two", "i"), "J5"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_hand_overs_and_meetings(name: str) -> None:
    verdict = check(parse_machine(RIGHT[name]))
    assert verdict.status == "verified", str(verdict)
    assert truth(RIGHT[name]) == "safe"


@pytest.mark.parametrize("name", WRONG)
def test_wrong_twins(name: str) -> None:
    told, judgement = WRONG[name]
    verdict = check(parse_machine(told))
    assert (verdict.status, verdict.judgement) == ("rejected", judgement), str(verdict)
    # Who has ended is not waited for: one who meets less often is missed by nobody here, if others come more often.
    assert truth(told) == ("safe" if name == "one meeting fewer" else "unsafe")
