"""Integers: index expressions, sets, and the layouts that say where data is and who works on it.

Start at `expr.py` for what every room uses. Layouts come in three fragments, integer layouts (`layouts.py`), maps of
bits (`bits.py`) and placements (`placements.py`), between which `crossings.py` translates; task mappings (`tasks.py`)
say who does what, orders (`orders.py`) where a point lies, `conversions.py` and `staging.py` how data gets from one
distribution to another. The names of this package are public, and loaded when they are first used; `docs/algebra.md`
shows them at work.
"""

from __future__ import annotations

import importlib
from typing import Any

# module -> the public names that it has
_CHAPTERS = {
    "bits": ("BitLayout",),
    "conversions": ("Conversion", "convert"),
    "crossings": (
        *("bits_of_layout", "bits_of_placement", "layout_of_bits", "layout_of_placement", "layout_of_tasks"),
        *("placement_of_bits", "placement_of_layout"),
    ),
    "emission": ("Emission",),  # its function has the name of the file, which is a name of this package too
    "layouts": (
        *("Layout", "LayoutUndefined", "Swizzle", "blocked", "coalesce", "common_vector", "complement", "compose"),
        *("divide", "left_inverse", "multiply", "raked", "right_inverse", "row_major"),
    ),
    "orders": ("General", "Grouped", "Nested", "Order", "Permuted", "antidiagonal", "tiled"),
    "placements": ("Placement",),
    "positions": ("factored", "settled"),
    "staging": ("Access", "Staging", "stage"),
    "tasks": ("TaskMapping", "repeat", "spatial"),
}
_HOME = {name: module for module, names in _CHAPTERS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"treadle.algebra has no {name!r}: see docs/algebra.md for its names")
    value = getattr(importlib.import_module(f"treadle.algebra.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_HOME, *(name for name in globals() if name.startswith("__"))})
