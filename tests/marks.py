"""Marks of tests that need what a machine may not have. Each says what: `needs ...` (tests/test_house.py holds it)."""

from __future__ import annotations

import importlib.util

import pytest

from treadle.runtime.host import host_features
from treadle.toolchain.features import LEVELS

ASSEMBLER = all(importlib.util.find_spec(package) for package in ("cuda", "nvidia"))
"""Whether NVIDIA's compiler and disassembler are here: wheels of an extra, which CI installs; the rest runs without."""
assembled = pytest.mark.skipif(not ASSEMBLER, reason="needs the extra treadle[cuda] (NVRTC, nvdisasm)")


def assembler() -> None:
    """Skips a test that turns out to assemble CUDA text, where `assembled` would skip those beside it too."""
    if not ASSEMBLER:
        pytest.skip("needs the extra treadle[cuda] (NVRTC, nvdisasm)")


def processor(*names: str) -> pytest.MarkDecorator:
    """A test of code that only a processor with all of these levels or features runs."""
    wanted = frozenset[str]().union(*(LEVELS.get(name, {name}) for name in names))
    lacking = sorted(wanted - host_features())
    return pytest.mark.skipif(bool(lacking), reason=f"needs a processor with {', '.join(lacking)}")
