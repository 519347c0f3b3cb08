"""The Python on the page of the language is one program, and runs; the names that it lists exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import treadle as td

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 3
    file = tmp_path / "language.py"
    file.write_text("\n".join(blocks))
    runpy.run_path(str(file))


def test_names_of_the_page_exist() -> None:
    text = PAGE.read_text()
    names = set(re.findall(r"\btd\.([a-z_0-9]+)", text, flags=re.I))
    names |= {word for listed in re.findall(r"`td\.((?:\w+ )+\w+)`", text) for word in listed.split()}
    assert [name for name in sorted(names) if not hasattr(td, name)] == []
