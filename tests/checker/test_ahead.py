"""Rings whose consumer takes a step ahead, and steps under conditions that both sides have: the right texts are verified
and safe in every interleaving, every wrong twin is refused and goes wrong in some run."""

from __future__ import annotations

import pytest
from tests.checker.ahead_text import taken, text
from tests.checker.machine_study import truth_of
from tests.checker.random_machines import Drawn

from treadle.checker import Verdict, check
from treadle.machine.parse import parse_machine


def judge(told: str) -> Verdict:
    return check(parse_machine(told))


def truth(told: str, slots: int = 2) -> str:
    """What all interleavings show with no iteration, one, as many as slots less one, slots, and one more."""
    trips = sorted({0, 1, max(1, slots - 1), slots, slots + 1})
    sizes = tuple({"M": 9 if n == 1 else 5, "N": max(0, 32 * n - 4)} for n in trips)
    return truth_of(parse_machine(told), Drawn("ahead", told, sizes))[0]


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_step_ahead_is_verified_and_safe(slots: int) -> None:
    verdict = judge(text(slots))
    assert verdict.status == "verified", str(verdict)
    assert truth(text(slots), slots) == "safe"


def test_a_step_ahead_without_a_condition_where_there_is_an_iteration() -> None:
    told = text(first="{take}").replace("  align(W) >= 16\n", "  align(W) >= 16\n  1 <= N\n")
    assert judge(told).status == "verified"
    without = judge(text(first="{take}"))
    assert without.status == "rejected" and without.judgement == "J5"


BOTH = """      if 0 < NT {{
{first}      }}
      loop j = 0 .. NT step 1 {{
{second}        if j + 1 < NT {{
{again}        }}
      }}
"""


def both_ahead(told: str) -> str:
    """The producer fills in the order in which the consumer takes."""
    begin = told.index("      loop j = 0")
    end = told.index("    }\n  }\n  role consumer")
    fill = told[begin:end].split("NT step 1 {\n")[1].rsplit("      }\n", 1)[0]
    one, two = fill.split("        sync mbar.wait emptyB")
    body = BOTH.format(
        first=one.replace("32 * j", "0"),
        second="        sync mbar.wait emptyB" + two,
        again=one.replace("32 * j", "32 * (j + 1)"),
    )
    return told[:begin] + body + told[end:]


def test_a_producer_that_is_ahead_too() -> None:
    told = both_ahead(text())
    verdict = judge(told)
    assert verdict.status == "verified", str(verdict)
    assert truth(told) == "safe"
    apart = told.replace("if j + 1 < NT", "if j + 2 < NT", 1)  # the producer's
    verdict = judge(apart)
    assert (verdict.status, verdict.judgement) == ("rejected", "J5") and truth(apart) == "unsafe"


SECOND = """        sync mbar.arrive emptyB{d}
        advance d
"""
LATE = """        if 1 <= j {
          sync mbar.arrive emptyB{d - 1}
        }
        advance d
"""
LAST = """      if 0 < NT {
        sync mbar.arrive emptyB{d - 1}
      }
"""


def late(last: str = LAST) -> str:
    """The other ring is given back a step late, the last step only where there is one."""
    told = text().replace(SECOND, LATE)
    for old, new in (("fullB count 1 versions 1", "fullB count 1 versions 2"), ("d % 2", "d // 2 % 2")):
        told = told.replace(old, new)
    told = told.replace("emptyB count 32 versions 1 @ 1576", "emptyB count 32 versions 2 @ 2112")
    told = told.replace("fullB count 1 versions 2 tx @ 1568", "fullB count 1 versions 2 tx @ 2096")
    told = told.replace("(q // 1 + 1) % 2", "(q // 2 + 1) % 2").replace("versions 1 @ 1024", "versions 2 @ 1024")
    told = told.replace("A count 1 versions 2 tx @ 1536", "A count 1 versions 2 tx @ 2048")
    told = told.replace("A count 32 versions 2 @ 1552", "A count 32 versions 2 @ 2064").replace(
        "shared 1584", "shared 2128"
    )
    return told[: told.rindex("    }\n  }\n}")] + last + told[told.rindex("    }\n  }\n}") :]


def test_the_last_step_is_given_back_where_there_is_one() -> None:
    verdict = judge(late())
    assert verdict.status == "verified", str(verdict)
    assert truth(late()) == "safe"
    for wrong in (LAST.replace("0 < NT", "1 < NT"), LAST.replace("0 < NT", "0 <= NT"), "", LAST + LAST):
        verdict = judge(late(wrong))
        assert verdict.status == "rejected" and verdict.judgement == "J3", str(verdict)
        # Where no tile has an iteration, an arrival too many meets nobody.
        assert truth(late(wrong)) == ("safe" if "0 <= NT" in wrong else "unsafe"), wrong


STEP = taken(2, "j + 1", "          ")
ONE = taken(1, "j + 1", "          ")
FENCE = "          sync fence.proxy.async\n"
TWINS: list[tuple[str, str, str, str]] = [
    ("nothing in front of the loop", text(first=""), "J5", "the consumer waits for fullB"),
    ("in front of it only for two iterations", text(first="      if 1 < NT {\n{take}      }\n"), "J5", "same rings in the same order"),
    ("in front of it always", text(first="      if 0 <= NT {\n{take}      }\n"), "J5", "same rings in the same order"),
    ("one step too few", text(ahead="        if j + 2 < NT {\n{take}        }\n"), "J5", "same rings in the same order"),
    ("one step too many", text(ahead="        if j < NT {\n{take}        }\n"), "J5", "same rings in the same order"),
    ("in the first iterations", text(ahead="        if 1 <= j {\n{take}        }\n"), "J5", "same rings in the same order"),
    ("always", text(ahead="{take}"), "J5", "same rings in the same order"),
    ("two steps ahead", text().replace(STEP, taken(2, "j + 2", "          ")), "J1", "X"),
    ("this iteration's block", text().replace(STEP, taken(2, "j", "          ")), "J1", "X"),
    ("the slot behind", text().replace("load A{c}[$0, $1] ; %x[4 * t + $0, 32 * (j", "load A{c + 1}[$0, $1] ; %x[4 * t + $0, 32 * (j"), "J2", "slot"),
    ("the phase of the turn before", text().replace(STEP, STEP.replace("c // 2 % 2", "(c // 2 + 1) % 2")), "J3", "phase"),
    ("not given back inside", text().replace(STEP, STEP.replace("          sync mbar.arrive emptyA{c}\n", "")), "J3", "given back once"),
    ("given back inside before it is read", text(1).replace(ONE, "\n".join(ONE.splitlines()[i] for i in (0, 3, 2, 1, 4)) + "\n"), "J2", "given back"),
    ("no fence inside", text(1).replace(ONE, ONE.replace(FENCE, "")), "J2", "read"),
    ("no wait inside", text().replace(STEP, STEP.split("\n", 1)[1]), "J3", "not waited for"),
    ("it does not move on inside", text().replace("          advance c\n", ""), "J3", "not in its step"),
    ("it moves on twice inside", text().replace("          advance c\n", 2 * "          advance c\n"), "J3", "two places"),
    ("another counter inside", text().replace(STEP, STEP.replace("{c}", "{d}").replace("c //", "d //").replace("advance c", "advance d")), "J3", "counter"),
    ("read behind its step", text().replace("        y = add x, w where", "        x = load A{c - 1}[$0, $1]\n        y = add x, w where"), "J2", "slot"),
    ("the other ring's step is ahead too", text().replace("%w[4 * t + $0, 32 * j + $1] where", "%w[4 * t + $0, 32 * j + $1 + 32] where", 1), "J1", "W"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "judgement", "reason"), [t[1:] for t in TWINS], ids=[t[0] for t in TWINS])
def test_wrong_twins(told: str, judgement: str, reason: str) -> None:
    assert told != text()
    verdict = judge(told)
    assert verdict.status == "rejected" and verdict.judgement == judgement, str(verdict)
    assert reason in str(verdict)


def test_what_the_twins_do() -> None:
    """Each of them goes wrong in some interleaving, but for those that only claim what is not so."""
    claims = {"two steps ahead", "this iteration's block", "the other ring's step is ahead too"}
    safe = [
        name for name, told, *_ in TWINS if name not in claims and truth(told, 2 if "c // 2" in told else 1) != "unsafe"
    ]
    assert safe == []


def test_bounds_and_conditions_do_not_hang_on_an_agent() -> None:
    """The producer's number is 0; of consumers, the second one would take fewer steps under the same words."""
    named = text().replace("agents 1 threads 32 counters", "agents 1 threads 32 index a counters")
    assert judge(named).status == "verified"
    for told in (
        named.replace("j = 0 .. NT step", "j = 0 .. NT - a step"),
        named.replace("if 0 < NT {", "if a < NT {"),
    ):
        verdict = judge(told)
        assert verdict.status != "verified" and verdict.judgement == "J5", str(verdict)


def test_a_last_step_is_not_given_back_by_what_a_fragment_holds_behind_the_loop() -> None:
    """It is assigned anew between the loop that it bounds and the condition."""
    told = late(LAST.replace("      if 0 < NT {", "      n = index expr NT - 1\n      if 0 < n() {"))
    told = told.replace("  frag x f32[4, 32]", "  frag n i64[] dist (lane 32 axis - stride 0)\n  frag x f32[4, 32]", 1)
    begin = told.index("role consumer")
    told = told[:begin] + told[begin:].replace("      if 0 < NT {", "      n = index expr NT\n      if 0 < NT {", 1)
    told = told[:begin] + told[begin:].replace("j = 0 .. NT step", "j = 0 .. n() step", 1)
    verdict = judge(told)
    assert verdict.status == "rejected" and "not every step is given back once" in verdict.reason, str(verdict)
