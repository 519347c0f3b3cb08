"""What all tests share: hypothesis without deadlines, a compile cache of the run's own, GPU tests only with a GPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.process import unchanged

from treadle.runtime import pool

# Timings on shared machines say nothing; in CI the same examples are drawn every time.
settings.register_profile("treadle", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("treadle")


# No test reads what an earlier run compiled, and none leaves anything behind. Set here and not in a fixture: modules
# that plan kernels for their parameters do so while they are imported.
_CACHE = tempfile.TemporaryDirectory(prefix="treadle-tests-", ignore_cleanup_errors=True)
os.environ["TREADLE_CACHE"] = _CACHE.name


@pytest.fixture(autouse=True)
def left_as_it_was() -> Iterator[None]:
    """A test that leaves the process another than it found it is told so, and the others get what there was."""
    with unchanged():
        yield


@pytest.fixture
def with_workers(left_as_it_was: None) -> Iterator[Callable[[int], int]]:
    """Has what follows in a test run on so many workers, as far as there are cores."""
    before = pool.workers()
    yield pool.set_workers
    pool.set_workers(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path("/dev/nvidiactl").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
