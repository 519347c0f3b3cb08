"""What a test may not leave behind in its process, where others run after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.runtime import pool


@contextmanager
def unchanged() -> Iterator[None]:
    """What runs inside leaves as many workers, the same CPUs and the same `TREADLE_WORKERS`. Other workers or CPUs have
    later tests plan something else, in an order that no one knows. *Ensures*: workers and CPUs are as before behind it.
    *Errors*: AssertionError that names what was left."""
    cpus, named, workers = _cpus(), os.environ.get("TREADLE_WORKERS"), pool.workers()
    yield
    left, after = pool.workers(), _cpus()
    if after != cpus:
        os.sched_setaffinity(0, cpus)
    if left != workers:
        pool.set_workers(workers)
    assert left == workers, f"{left} workers are left, and there were {workers}"
    assert after == cpus, f"the CPUs {sorted(after)} are left, and there were {sorted(cpus)}"
    assert os.environ.get("TREADLE_WORKERS") == named, "another TREADLE_WORKERS is left"


def _cpus() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
