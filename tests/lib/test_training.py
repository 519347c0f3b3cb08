"""The example that trains with library kernels alone learns."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "library_training.py"


def test_the_example_learns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # nothing may be left to the interpreter
        assert runpy.run_path(str(EXAMPLE))["main"](80) > 0.9
