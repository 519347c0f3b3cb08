"""The rooms that only planning needs, loaded when a call finds nothing in memory or cache.

This is the one place where the driver imports by name: a kernel compiled yesterday runs without planner, judge,
emitters and compilers in memory.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from types import ModuleType

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
    return importlib.import_module(_HEAVY[name])


_planning = [threading.RLock()]


def planning() -> threading.RLock:
    """The lock under which kernels are captured, planned and compiled; calls that find their variant do not take it."""
    return _planning[0]


def _new_lock() -> None:
    """A child process may be forked while another thread plans, and has no such thread to wait for."""
    _planning[0] = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


def compile_native(text: str, name: str) -> bytes:
    """The compiler of the runtime's own machine code, loaded on first use."""
    return room("llvm").baseline_object(text, name)
