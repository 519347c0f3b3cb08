"""The page on the algebra: its programs run in order and print what the page shows behind each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from treadle import algebra

PAGE = Path(__file__).resolve().parents[2] / "docs" / "algebra.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.M | re.S)


def test_the_page_runs_and_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = BLOCKS.findall(PAGE.read_text())
    assert len(blocks) == PAGE.read_text().count("```python") > 5
    for program, shown in blocks:
        exec(program, names)
        assert capsys.readouterr().out == shown


def test_every_public_name_has_a_docstring_and_stands_on_the_page() -> None:
    page = PAGE.read_text()
    told = {"Access", "Conversion", "Emission", "Nested", "Order", "Staging", "TaskMapping"}  # what the others return
    multiples = {"blocked", "coalesce", "left_inverse", "multiply", "raked", "row_major", "BitLayout"}
    assert algebra.convert.__module__ == "treadle.algebra.conversions" and "Layout" in dir(algebra)
    with pytest.raises(AttributeError, match="docs/algebra.md"):
        algebra.nothing
    public = set(algebra._HOME)
    # A file of the package is an attribute of it too, once it is imported: no name may be that of a file.
    assert not public & {p.stem for p in Path(algebra.__file__).parent.glob("*.py")}
    for name in sorted(public):
        assert getattr(algebra, name).__doc__, name
        assert name in page or name in told | multiples, name
