"""The rooms that only planning needs, loaded when a call finds nothing in memory or cache.

This is the one place where the driver imports by name: a kernel compiled yesterday runs without planner, judge,
emitters and compilers in memory.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from treadle.runtime.making import making as planning

__all__ = ["compile_native", "planning", "room"]

_HEAVY = {
    "build": "treadle.driver.build",
    "plan": "treadle.driver.plan",
    "predicted": "treadle.driver.predicted",
    "in_order": "treadle.driver.in_order",
    "intrinsics": "treadle.driver.intrinsics",
    "tuning": "treadle.driver.tuning",
    "tuning_progress": "treadle.driver.tuning_progress",
    "checks": "treadle.evaluate.machine",
    "interpreter": "treadle.evaluate.interpreter",
    "stepping": "treadle.evaluate.stepping",
    "sanitize": "treadle.evaluate.sanitize",
    "cuts": "treadle.evaluate.cuts",
    "llvm": "treadle.toolchain.llvm",
    "cuda": "treadle.driver.cuda_variant",
}


@functools.cache
def room(name: str) -> ModuleType:
    """The module behind a name of the table."""
    with planning():
        return importlib.import_module(_HEAVY[name])


def compile_native(text: str, name: str) -> bytes:
    """The compiler of the runtime's own machine code, loaded on first use."""
    with planning():
        return room("llvm").baseline_object(text, name)
