"""What all tests share: hypothesis without deadlines, a compile cache of the run's own, GPU tests only with a GPU."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# Timings on shared machines say nothing; in CI the same examples are drawn every time.
settings.register_profile("treadle", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("treadle")


# No test reads what an earlier run compiled, and none leaves anything behind. Set here and not in a fixture: modules
# that plan kernels for their parameters do so while they are imported.
_CACHE = tempfile.TemporaryDirectory(prefix="treadle-tests-", ignore_cleanup_errors=True)
os.environ["TREADLE_CACHE"] = _CACHE.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path("/dev/nvidiactl").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
