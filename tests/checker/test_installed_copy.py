"""`treadle check` works from an installed copy in which the rooms that plan, build and simulate are deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import treadle

GONE = ("planner", "rules", "realise", "targets", "simulate")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, without those rooms."""
    folder = tmp_path_factory.mktemp("site")
    source = Path(treadle.__file__).parent
    shutil.copytree(source, folder / "treadle", ignore=shutil.ignore_patterns("__pycache__", *GONE))
    assert not any((folder / "treadle" / room).exists() for room in GONE)
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the copy, in its folder."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "treadle", *words]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("file", "status", "verdict"),
    [
        (HERE / "patterns" / "box_without_a_fence.right.tdm", 0, "verified"),
        (HERE / "patterns" / "box_without_a_fence.wrong.tdm", 1, "rejected"),
        (HERE / "patterns" / "lanes_never_combined.right.tdm", 0, "verified"),
        (HERE / "patterns" / "tiles_released_too_early.wrong.tdm", 1, "rejected"),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_saved_texts_are_judged(copy: Path, file: Path, status: int, verdict: str) -> None:
    done = run(copy, "check", str(file), "--json")
    assert done.returncode == status, done.stdout + done.stderr
    assert json.loads(done.stdout)["status"] == verdict


def test_the_rooms_are_gone_indeed(copy: Path) -> None:
    program = "import treadle, treadle.checker; print(treadle.__file__); import treadle.planner"
    env = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(str(copy)) and "No module named 'treadle.planner'" in done.stderr
