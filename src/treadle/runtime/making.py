"""The lock under which kernels are planned, compiled and loaded, for which a fork waits.

A child of a fork has one thread. What others held at that moment is held for ever in the child: locks of Python's
imports and of LLVM among them, which nobody can make anew. So a fork takes this lock first: nobody is then inside any
of these, and the child finds all of them free.
"""

from __future__ import annotations

import os
import threading

_making = [threading.RLock()]


def making() -> threading.RLock:
    """The lock; calls that find their variant do not take it."""
    return _making[0]


def _hold() -> None:
    _making[0].acquire()


def _give() -> None:
    _making[0].release()


def _renew() -> None:
    _making[0] = threading.RLock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_hold, after_in_parent=_give, after_in_child=_renew)
