"""What all tests share: hypothesis without deadlines, a compile cache of the run's own, GPU tests only with a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Timings on shared machines say nothing; in CI the same examples are drawn every time.
settings.register_profile("treadle", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("treadle")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads what an earlier run compiled, and none leaves anything behind."""
    before = os.environ.get("TREADLE_CACHE")
    os.environ["TREADLE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["TREADLE_CACHE"]
    else:
        os.environ["TREADLE_CACHE"] = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path("/dev/nvidiactl").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
