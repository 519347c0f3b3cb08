"""A text is rejected for what happens: where no case of a race or of a missed meeting exists, it is unknown."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import pytest
from tests.checker.pattern_files import patterns

from treadle.checker import check
from treadle.checker.verdict import Verdict
from treadle.machine.parse import parse_machine

WRONG, RIGHT = ({p.name: text(p) for p in patterns()} for text in (attrgetter("wrong"), attrgetter("right")))
LOAD = "total = load b_total[t_n_1]"
STORE = "store b_total[t_n] = _2 ; %total.3[t_n]"


def replaced(*pairs: tuple[str, str]) -> Callable[[str], str]:
    def change(text: str) -> str:
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        return text

    return change


def never(line: str) -> tuple[str, str]:
    return line, f"loop z = 0 .. 0 step 1 {{\n {line}\n }}"


def behind_another(text: str) -> str:
    """With a launch that stores nothing of it, and is not dependent, between the two."""
    between = text[text.index("kernel part0 {") : text.index("kernel part1 {")].replace("part0", "part2")
    between = between.replace(STORE, "_2 = copy _2").replace("    version b_total ; %total.2[$0]\n", "")
    told = text.replace("  launch part1 grid", "  launch part2 grid 2 threads 128\n  launch part1 grid")
    return told.replace("kernel part1 {", between + "kernel part1 {")


NESTS, DEPENDENT, RANK = "partials_read_by_another_workgroup", "dependent_launch_without_a_wait", "steps_by_rank"
LOOP = "loop j = 0 .. NT - cta.rank step 1"
OPEN: dict[str, tuple[str, Callable[[str], str]]] = {
    "nests on one workgroup": (NESTS, replaced(("grid 3", "grid 1"))),
    "nests of which one never loads": (NESTS, replaced(never(LOAD + " ; %3[t_n_1]"))),
    "nests with elements of their own": (NESTS, replaced((LOAD, "total = load b_total[t_n_1 + N]"))),
    "a launch that never stores": (DEPENDENT, replaced(never(STORE))),
    "a launch that loads other elements": (DEPENDENT, replaced((LOAD, "total = load b_total[t_n_1 + N]"))),
    "a launch that was over": (DEPENDENT, behind_another),
    "a wait in a condition": (
        DEPENDENT,
        replaced(("    tasks (t_m < M", "    if 0 < N {\n      sync grid.wait\n    }\n    tasks (t_m < M")),
    ),
    "as many steps from another one on": (RANK, replaced((LOOP, "loop j = cta.rank .. NT + cta.rank step 1"))),
    "steps that all have": (RANK, replaced((LOOP, "loop j = 0 .. 8 - cta.rank step 8"))),
}


def judged(name: str, change: Callable[[str], str]) -> Verdict:
    return check(parse_machine(change(WRONG[name])))


@pytest.mark.parametrize("name", OPEN)
def test_without_a_case_nothing_is_rejected(name: str) -> None:
    pattern, change = OPEN[name]
    before, after = judged(pattern, lambda text: text), judged(pattern, change)
    assert (before.status, after.status) == ("rejected", "unknown"), str(after)
    assert before.counterexample and after.reason == before.reason, str(after)


def test_the_case_is_of_two_workgroups() -> None:
    case = judged(NESTS, lambda text: text).counterexample
    assert case is not None
    number = case["t_m"] * case["N"] + case["t_n_1"]
    assert case["t_n_1"] == case["t_n'"] and case["t_m"] < case["M"] and case["t_n_1"] < case["N"]
    assert number // 128 % 3 != case["t_n'"] // 128 % 3


MEETINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "of one workgroup": (("cta.rank < 1",), "rejected"),
    "of one workgroup at some sizes": (("MT < 3 + cta.rank",), "rejected"),
    "of each at its own place": (("cta.rank < 1", "0 < cta.rank"), "unknown"),
    "of all by their numbers": (("cta.rank < 2",), "unknown"),
    "of all": (("0 < 1",), "verified"),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_a_meeting_is_missed_where_nothing_stands_for_it(name: str) -> None:
    conditions, status = MEETINGS[name]
    begin = "    tasks (t < MT) over clusters"
    meetings = "".join(f"    if {c} {{\n sync cluster.arrive\n sync cluster.wait\n }}\n" for c in conditions)
    verdict = check(parse_machine(RIGHT[RANK].replace(begin, meetings + begin)))
    assert verdict.status == status, str(verdict)
    assert status != "rejected" or verdict.counterexample
