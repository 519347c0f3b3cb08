"""Bugs reported elsewhere, as machine text: every wrong one is refused at its statement, its right twin verified."""

from __future__ import annotations

import difflib
from dataclasses import replace

import pytest
from tests.checker.pattern_files import PAGE, Pattern, page, patterns

from treadle.algebra.expr import const
from treadle.checker import check
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
    changed = [d for d in difflib.ndiff(body(right), body(wrong)) if d[0] in "+-"]
    assert 0 < len(changed) <= 10


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
