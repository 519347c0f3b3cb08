"""The table of faults from elsewhere names tests that exist, and every test of a report is in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_and_the_tests_name_each_other() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reports.md").read_text()))
    texts = [p.read_text() for p in (ROOT / "tests" / "reports").glob("test_*.py")]
    tests = [t for text in texts for t in re.findall(r"^def (test_\w+)", text, flags=re.M)]
    assert [n for n in sorted(named) if not any(t.startswith(n) for t in tests)] == []
    assert [t for t in tests if re.match(r"test_u\d", t) and not any(t.startswith(n) for n in named)] == []


def test_the_pairs_of_machine_texts_exist() -> None:
    told = (ROOT / "docs" / "reports.md").read_text().split("## As machine programs")[1]
    named = set(re.findall(r"`(\w+)`", told))
    there = {p.name.removesuffix(".wrong.tdm") for p in (ROOT / "tests" / "checker" / "patterns").glob("*.wrong.tdm")}
    assert len(named) >= 20 and named <= there, sorted(named - there)
