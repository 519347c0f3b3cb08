"""The Python of each page of the tutorial, and of each page for newcomers, is one program, and runs as native code."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest
from tests.docs.language_reference import CHAPTERS, FILE, public, reference

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PAGES = [*sorted((DOCS / "tutorial").glob("*.md")), *sorted((DOCS / "coming_from").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_runs(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert any("assert" in block for block in blocks), "a page shows what comes out"
    file = tmp_path / f"page_{page.stem.replace('-', '_')}.py"
    file.write_text("\n".join(blocks))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a plan that is not verified, so that the interpreter runs
        runpy.run_path(str(file))


def test_the_pages_are_all_there() -> None:
    assert len(PAGES) >= 9


def test_the_reference_is_what_the_docstrings_say() -> None:
    assert FILE.read_text() == reference(), "run: python -m tests.docs.language_reference"


def test_the_reference_has_every_public_name() -> None:
    listed = [name for names in CHAPTERS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) == public()
