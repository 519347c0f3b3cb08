"""A reader that has had enough is no error of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONG = "-m treadle plan examples/first.py:softmax --source"


@pytest.mark.parametrize("lines", [0, 1])
def test_output_into_a_pipe_that_closes_early(lines: int) -> None:
    done = subprocess.Popen(
        [sys.executable, *LONG.split()], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert done.stdout is not None and done.stderr is not None
    for _ in range(lines):
        done.stdout.readline()
    done.stdout.close()
    assert (done.wait(timeout=120), done.stderr.read()) == (0, "")
    done.stderr.close()
