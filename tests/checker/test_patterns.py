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


# Of one statement: what it breaks is no other access but a count, a number of threads, a declaration or a value.
ALONE = {
    "absent_lanes_take_part": ("0.0:f32", "max"),
    "accumulator_begun_in_the_loop": ("0.0:f32", "%a.1"),
    "another_map_without_an_exchange": ("x", "another thread"),
    "barrier_for_one_of_two": ("barrier 3", "256 threads", "128"),
    "barrier_of_some_warps": ("barrier 1", "32 threads", "64"),
    "box_from_inside_16_bytes": ("X starts at", "16 bytes"),
    "contribution_overwrites": ("store 0", "add"),
    "ends_before_its_boxes": ("bulk.wait (depth = 0)",),
    "folded_across_warps_by_lanes": ("p is folded across warps",),
    "grid_meets_without_being_resident": ("workgroups of part0 meet",),
    "index_kept_in_32_bits": ("i64",),
    "lanes_never_combined": ("not %s[t]",),
    "map_of_another_copy": ("mX",),
    "masked_load_folded_undefined": ("masked",),
    "maximum_starts_from_zero": ("0.0:f32",),
    "more_shared_memory_than_there_is": ("245760", "232448"),
    "named_barrier_for_two": ("consumer", "barrier 1"),
    "named_barrier_of_too_many": ("256 threads", "128"),
    "owner_waits_for_tasks_not_begun": ("may not begin",),
    "padding_through_a_function": ("outside the claim",),
    "pieces_that_overlap": ("the claim does not count",),
    "pitch_that_engines_cannot_take": ("pitch(W, 0)",),
    "product_of_a_product_under_another_map": ("first", "another thread"),
    "row_of_96_dealt_by_24": ("_0", "another thread"),
    "scan_with_its_operands_exchanged": ("X[t_m, n_i]", "%15"),
    "short_warp_folds_as_a_whole_one": ("4 x 24 threads", "128"),
    "stale_value_of_a_cell": ("%old[2, i]", "%now[2, i]"),
    "store_behind_the_end": ("axis 1", "extent N"),
    "tail_of_the_contraction_undefined": ("holds nothing (masked)",),
    "tiles_released_too_early": ("acc", "not configured"),
    "tiles_without_a_configuration": ("acc", "not configured"),
    "updates_and_a_meeting_inside_a_role": ("barrier 1",),
}


def test_every_report_names_the_pair_or_what_one_statement_breaks() -> None:
    """All are rejected, none is left open; of races and protocols (J2, J3) all but one are a pair of statements."""
    assert {p.status for p in ALL} == {"rejected"}
    assert [p.name for p in ALL if not p.against] == sorted(ALONE)
    assert [p.name for p in ALL if p.judgement in ("J2", "J3") and not p.against] == ["ends_before_its_boxes"]
    assert [p.name for p in ALL if p.at == "-"] == ["more_shared_memory_than_there_is"]  # of the launch
    for p in (p for p in ALL if not p.against):
        said_of_it = str(check(parse_machine(p.wrong)))
        assert all(word in said_of_it for word in ALONE[p.name]), said_of_it


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
