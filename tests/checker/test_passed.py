"""Memory of a cluster that one role stores to and another one loads, and stores that signal beside the role of a ring:
right texts are verified and safe in every interleaving, wrong twins refused."""

from __future__ import annotations

import pytest
from tests.checker import send_ring_text as ring
from tests.checker.machine_study import truth_of
from tests.checker.passed_text import ALL, OWN, RIGHT, text
from tests.checker.peer_ring_text import STEP
from tests.checker.peer_text import FAR, MEET, NEAR, PART
from tests.checker.random_machines import Drawn

from treadle.checker import Verdict, check
from treadle.machine.parse import parse_machine


def judge(told: str) -> Verdict:
    return check(parse_machine(told))


def truth(told: str, columns: int = 50) -> str:
    sizes = ({"M": 1, "N": 40}, {"M": 3, "N": columns})
    return truth_of(parse_machine(told), Drawn("passed", told, sizes))[0]


MORE = {
    "behind a meeting": ([PART, MEET, FAR, MEET], [MEET, MEET, OWN]),
    "one more meeting": ([PART, NEAR, MEET, MEET, MEET], [MEET, ALL, MEET, MEET]),
}


@pytest.mark.parametrize("name", [*RIGHT, *MORE])
def test_what_one_role_leaves_another_one_finds_behind_a_meeting(name: str) -> None:
    told = text(*(RIGHT | MORE)[name])
    verdict = judge(told)
    assert verdict.status == "verified", str(verdict)
    assert truth(told) == "safe"


# (the two roles, judgement, what the reason says)
TWINS: dict[str, tuple[list[str], list[str], str, str]] = {
    "no meeting behind the loads": ([PART, NEAR, MEET], [MEET, ALL], "J2", "has not met"),
    "loaded before all have met": ([PART, NEAR, MEET, MEET], [ALL, MEET, MEET], "J2", "has not met"),
    "stored behind the meeting": ([PART, MEET, NEAR, MEET], [MEET, ALL, MEET], "J2", "has not met"),
    "a meeting of one role only": ([PART, NEAR, MEET, MEET], [MEET, ALL], "J5", "same order"),
    "stored twice, once too late": ([PART, NEAR, MEET, NEAR, MEET], [MEET, ALL, MEET], "J2", "has not met"),
    "nothing stored in the other workgroup": ([PART, NEAR, MEET, MEET], [MEET, OWN, MEET], "J2", "side by side"),
    "the part of the other workgroup": ([PART, FAR.replace("S@(1)[cta.rank]", "S@(1)[1 - cta.rank]"), MEET, MEET], [MEET, OWN, MEET], "J1", "it holds"),
    "only one of two receives": ([PART, FAR.replace("S@(1)", "S@(0)"), MEET, MEET], [MEET, OWN, MEET], "J1", "nothing was brought"),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_wrong_twins(name: str) -> None:
    maker, folder, judgement, reason = TWINS[name]
    told = text(maker, folder)
    verdict = judge(told)
    status = "unknown" if name == "nothing stored in the other workgroup" else "rejected"
    assert (verdict.status, verdict.judgement) == (status, judgement), str(verdict)
    assert reason in verdict.reason and (reason != "has not met" or verdict.partner is not None)
    # Parts under one another's places make the same sum: that only the claim is wrong.
    assert truth(told) == ("safe" if name == "the part of the other workgroup" else "unsafe")


def test_both_roles_store_is_not_known() -> None:
    told = text([PART, NEAR, MEET, MEET], [MEET, ALL, MEET, NEAR.replace("[t]", "[u]")])
    verdict = judge(told)
    assert (verdict.status, verdict.reason) == ("unknown", "S is stored to by 2 roles"), str(verdict)


@pytest.mark.parametrize("slots", [1, 2])
def test_sends_beside_a_ring(slots: int) -> None:
    told = ring.text(slots=slots)
    verdict = judge(told)
    assert verdict.status == "verified", str(verdict)
    assert truth(told, 52) == "safe"


SENT: dict[str, tuple[str, str]] = {
    "no meeting behind the wait": (ring.text([STEP], [x for x in ring.TAKER if x != MEET]), "J2"),
    "the producer does not meet": (ring.text([STEP]), "J5"),
    "the producer meets first": (ring.text([MEET, STEP]), "J5"),
    "half of the bytes": (ring.text().replace("(bytes = 8)", "(bytes = 4)"), "J3"),
    "the phase of the turn before": (ring.text().replace("g // 1 % 2", "(g // 1 + 1) % 2"), "J3"),
    "at the scope of the workgroup": (ring.text().replace(", cluster = 1", ""), "J2"),
    "folded before they come": (ring.text(taker=[*ring.TAKER[:4], ring.OWN, ring.WAIT, *ring.TAKER[6:]]), "J2"),
    "another role arrives, too": (ring.text([STEP, "      sync mbar.arrive got{r} by elect\n", MEET]), "J3"),
}


@pytest.mark.parametrize("name", SENT)
def test_wrong_twins_of_sends_beside_a_ring(name: str) -> None:
    told, judgement = SENT[name]
    verdict = judge(told)
    assert (verdict.status, verdict.judgement) == ("rejected", judgement), str(verdict)
    # The simulator knows nothing of scopes; one case has more interleavings than are visited.
    if name not in ("at the scope of the workgroup", "the producer does not meet"):
        assert truth(told, 52) == "unsafe"
