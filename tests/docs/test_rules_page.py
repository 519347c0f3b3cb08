"""The page on rules: its programs run in order and print what the page shows behind them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"
BLOCKS = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)


def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCKS.findall(PAGE.read_text())
    program = tmp_path / "page.py"
    program.write_text("\n".join(text for kind, text in blocks if kind == "python"))
    runpy.run_path(str(program))
    printed = capsys.readouterr().out
    shown = [text for kind, text in blocks if kind == "text"]
    assert len(shown) >= 4
    assert [text for text in shown if text not in printed] == []
