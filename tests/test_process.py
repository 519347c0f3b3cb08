"""What `unchanged` says of a test that leaves something behind, and that it puts it right."""

from __future__ import annotations

import os

import pytest
from tests.process import unchanged

from treadle.runtime import pool


def test_what_is_put_back_is_nothing() -> None:
    with unchanged():
        before = pool.workers()
        pool.set_workers(1)
        pool.set_workers(before)


def test_workers_that_are_left() -> None:
    before = pool.workers()
    if before < 2:
        pytest.skip("needs two workers")
    with pytest.raises(AssertionError, match=f"1 workers are left, and there were {before}"), unchanged():
        pool.set_workers(1)
    assert pool.workers() == before


def test_a_setting_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="another TREADLE_WORKERS is left"), unchanged():
        monkeypatch.setenv("TREADLE_WORKERS", "77")


def test_cpus_that_are_left() -> None:
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs, and a system with masks of them")
    cpus = os.sched_getaffinity(0)
    with pytest.raises(AssertionError, match="the CPUs .* are left"), unchanged():
        os.sched_setaffinity(0, {min(cpus)})
    assert os.sched_getaffinity(0) == cpus
