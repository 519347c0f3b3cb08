"""Who else used the machine: a process that computes beside a measurement is seen, this one's own work is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treadle.bench.others import Others
from treadle.runtime.timing import settle

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux (/proc/stat)")


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_another_process_is_seen() -> None:
    code = "import time\nprint(flush=True)\nend = time.time() + 30\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            with Others() as others:
                time.sleep(0.6)
        finally:
            other.kill()
    assert others.share is not None and others.share > 0.3 / (os.cpu_count() or 1)


def test_settling_ends_when_nothing_runs() -> None:
    spin(0.02)
    assert 0.005 < settle(most=5.0) < 5.0
