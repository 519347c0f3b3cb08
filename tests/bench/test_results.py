"""Files of results say where and how they were measured, and hold every sample; those that do not are listed."""

from __future__ import annotations

import re

from tests.bench.results import FOLDER, lacks, rows_of

LAST = "2026-11-30"
"""Files until this day were written before the rule; those that lack something are listed in the folder's README."""
FILES = [p for p in sorted(FOLDER.iterdir()) if p.suffix in (".json", ".jsonl")]


def listed() -> dict[str, set[str]]:
    """File -> what it lacks, of the README's table."""
    found = re.findall(r"(?m)^\| `([^`]+)` \| ([^|]+) \|", (FOLDER / "README.md").read_text())
    return {name: set(what.replace(",", "").split()) for name, what in found}


def test_results_say_where_and_how_and_hold_every_sample() -> None:
    assert [p.name for p in FILES if p.name[:10] > LAST and lacks(rows_of(p))] == []


def test_the_list_of_earlier_files_is_true_and_whole() -> None:
    found = {p.name: set(lacks(rows_of(p))) for p in FILES if p.name[:10] <= LAST}
    assert {name: what for name, what in found.items() if what} == listed()


def test_what_counts_as_lacking() -> None:
    whole = {"device": "a GPU", "method": "events", "cases": [{"ours_us": 3.0, "samples": [3.2, 3.1, 2.9]}]}
    assert lacks([whole]) == []
    assert lacks([{**whole, "cases": [{"ours_us": 3.0}]}]) == ["samples"]
    assert lacks([{"counts": {"right": 3}}]) == ["method", "device"]
    assert lacks([{"method": "counted", "cpu": "a processor", "right": 3}]) == []
