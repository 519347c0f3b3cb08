"""The page on debugging: its file runs and prints what the page shows, and so does the debugger's session."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "debugging.md"
FENCE = re.compile(r"^```(python file|text output|text pdb)\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def blocks() -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in FENCE.finditer(PAGE.read_text())]


def run(words: list[str], folder: Path, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *words], input=text, capture_output=True, text=True, timeout=200, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}/", "")


def test_the_file_prints_what_the_page_shows(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("\n".join(t for kind, t in blocks if kind == "python file"))
    printed = run(["file.py"], tmp_path)
    for kind, text in blocks:
        if kind == "text output":
            assert all(line in printed for line in text.splitlines()), printed


def test_the_session_goes_as_the_page_shows(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    first = next(t for kind, t in blocks if kind == "python file")
    (tmp_path / "file.py").write_text(first)
    session = next(t for kind, t in blocks if kind == "text pdb").splitlines()
    typed = [line.removeprefix("(Pdb) ") for line in session if line.startswith("(Pdb) ")]
    printed = run(["-m", "pdb", "file.py"], tmp_path, "\n".join([*typed, "q", ""]))
    shown = [line for line in session if not line.startswith(("(Pdb) ", "$ "))]
    at = 0
    for line in shown:
        at = printed.find(line.removeprefix("> "), at)
        assert at >= 0, f"{line}\nin\n{printed}"
