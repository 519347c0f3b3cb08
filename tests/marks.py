"""Marks of tests that need what a machine may not have."""

from __future__ import annotations

import importlib.util

import pytest

assembled = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None, reason="the extra treadle[cuda] is not installed"
)
"""NVIDIA's compiler and assembler, which are wheels of an extra; CI installs it, a bare checkout runs the rest."""
