"""The mechanised core, compiled once for the tests of this folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROOF = Path(__file__).parents[2] / "proof"
CHAPTERS = ("Order", "Fold", "Remap", "Tasks", "Region", "Fusion", "Ring", "Explore", "Protocol")


def run(*command: str, folder: Path, text: str | None = None) -> str:
    """What a command printed, warnings after it. *Errors*: the test fails with all of it when the command does."""
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled theories; skips where Coq is not installed (Debian's package `coq`)."""
    if shutil.which("coqc") is None:
        pytest.skip("needs Coq 8.16 (Debian's package coq)")
    folder = tmp_path_factory.mktemp("proof")
    for source in PROOF.iterdir():
        if source.suffix in (".v", ".ml"):
            shutil.copy(source, folder)
    for chapter in CHAPTERS:
        run("coqc", "-q", "-Q", ".", "Treadle", f"{chapter}.v", folder=folder)
    return folder
