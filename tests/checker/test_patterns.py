"""Bugs reported elsewhere, as machine text: every wrong one is refused at its statement, its right twin verified."""

from __future__ import annotations

import difflib
from dataclasses import replace

import pytest
from tests.checker.pattern_files import PAGE, Pattern, page, patterns

from treadle.algebra.expr import const
from treadle.checker import check
from treadle.driver.check import judge_text
from treadle.driver.trial import try_machine
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine, statement_lines
from treadle.machine.verify import form_problems

ALL = patterns()
SMALL = [p for p in ALL if p.seen and "wgmma" not in p.wrong]
"""Those that the simulator shows in a fraction of a second; the others run in benchmarks/machine_patterns.py."""


def test_there_are_enough_of_them() -> None:
    assert len(ALL) >= 40
    assert len({p.report for p in ALL}) >= 35


@pytest.mark.parametrize("p", ALL, ids=lambda p: p.name)
def test_the_wrong_one_is_refused_and_the_right_one_verified(p: Pattern) -> None:
    wrong, right = parse_machine(p.wrong), parse_machine(p.right)
    assert not form_problems(wrong) and not form_problems(right)
    good = check(right)
    assert good.status == "verified", str(good)
    bad = check(wrong)
    assert (bad.status, bad.judgement) == (p.status, p.judgement), str(bad)
    assert said(wrong, bad.statement) == p.at, str(bad)
    other = bad.partner
    assert ("" if other is None else said(wrong, other.statement)) == p.against, str(bad)
    assert other is None or (other.text == p.against and str(bad).splitlines()[-1].startswith("  against "))
    changed = [d for d in difflib.ndiff(body(right), body(wrong)) if d[0] in "+-"]
    assert 0 < len(changed) <= 10


# Of one statement, or of the protocol: how often, in what order and by whom barriers are used, set up and counted.
ALONE = """
arrival_of_one_thread
barriers_not_fenced
barriers_set_up_behind_the_meeting
bytes_counted_twice
bytes_of_one_operand
bytes_of_the_own_slice
cluster_begins_apart
cluster_ends_apart
count_of_one_consumer
dependent_launch_without_a_wait
empty_counts_own_consumers
ends_before_its_boxes
given_back_to_the_peer_alone
named_barrier_counts_one_side
no_step_at_all
parity_from_the_loop
parity_of_the_turn_before
partials_read_by_another_workgroup
peer_ends_before_it_is_read
peer_written_before_it_has_begun
phases_begin_again_with_each_tile
producer_runs_ahead
released_by_one_of_two_readers
ring_of_another_length
roles_deal_tasks_differently
staging_slot_begins_again
updates_in_any_order
waits_behind_its_first_read
"""


def test_a_report_of_two_accesses_names_both() -> None:
    """Every refused race or protocol names its statement; its partner too, but where no second access is at fault."""
    races = [p for p in ALL if p.judgement in ("J2", "J3")]
    assert [p.name for p in races if p.at == "-"] == ["partials_read_by_another_workgroup"]  # two nests of tasks
    assert sum(bool(p.against) for p in races) >= 28
    assert [p.name for p in races if not p.against] == ALONE.split()


@pytest.mark.parametrize("p", [p for p in ALL if p.against][:3], ids=lambda p: p.name)
def test_the_partner_is_shown_with_its_line(p: Pattern) -> None:
    judged = judge_text(p.wrong, p.name)
    shown = judged.as_json()["partner"]
    assert print_machine(judged.machine).splitlines()[shown["line"] - 1].strip().startswith(p.against)
    assert shown["text"] == p.against
    itself = shown["statement"] == judged.verdict.statement
    line = "itself, executed elsewhere or again" if itself else f"statement {shown['statement']}: {p.against}"
    assert str(judged.verdict).splitlines()[-1] == f"  against {line}"


def said(program: MachineProgram, number: int | None) -> str:
    """The statement of that number as it is printed, without its claim."""
    if number is None:
        return "-"
    stmt = list(program.statements())[number]
    line = print_machine(program).splitlines()[statement_lines(program)[id(stmt)] - 1]
    return line.strip().split(" ; ")[0]


def body(program: MachineProgram) -> list[str]:
    return print_machine(program).splitlines()


@pytest.mark.parametrize("p", SMALL, ids=lambda p: p.name)
def test_a_schedule_shows_that_it_is_wrong(p: Pattern) -> None:
    """On one workgroup, which has all tiles."""
    found = [not try_machine(on_one_workgroup(text), p.name, p.seen, 0, 4).clean for text in (p.wrong, p.right)]
    assert found == [True, False]


def on_one_workgroup(text: str) -> str:
    """The text with launches of one workgroup, where they are persistent."""
    program = parse_machine(text)
    if " over persistent" in text:
        host = program.host
        program = replace(program, host=replace(host, launches=[replace(k, grid=const(1)) for k in host.launches]))
    return print_machine(program)


def test_the_page_lists_them() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.checker.pattern_files"
