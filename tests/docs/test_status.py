"""What docs/status.md says was measured lies in the files that it names."""

from __future__ import annotations

import re

import pytest
from tests.bench.results import FOLDER

PAGE = (FOLDER.parents[1] / "docs" / "status.md").read_text()
SUFFIXES = (".json", ".jsonl", ".txt")


def cells_of_files() -> list[str]:
    """The last cell of each row of the tables that end with a column `file`."""
    found: list[str] = []
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, flags=re.M):
        head, _, *rows = table.splitlines()
        if head.split("|")[-2].strip() == "file":
            found += [row.split("|")[-2] for row in rows]
    return found


def test_tables_name_files_of_results() -> None:
    names = {name for cell in cells_of_files() for name in re.findall(r"`([^`]+)`", cell)}
    days = {name: name if name.startswith("2026-") else f"2026-11-30-{name}" for name in names}
    assert len(names) > 30
    assert [n for n, day in days.items() if not any((FOLDER / f"{day}{end}").is_file() for end in SUFFIXES)] == []


def test_every_row_of_these_tables_names_one() -> None:
    assert [cell for cell in cells_of_files() if "`" not in cell] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(2026-[\w.-]+\.(?:jsonl?|txt))`", PAGE))))
def test_files_named_in_full_are_there(name: str) -> None:
    assert (FOLDER / name).is_file()
