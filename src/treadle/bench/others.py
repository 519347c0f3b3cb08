"""How much of the machine other processes took while something was measured: a ratio of two libraries that want all
processors each says little when a third process had one of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Fields of the first line: user, nice, system, irq, softirq, and what the hypervisor gave to other machines."""


class Others:
    """`with Others() as others: measure()`, then `others.share`.

    `share`: processor time of everybody else over processor time there was, 0..1; None where the system does not tell.
    *Units*: the system counts in hundredths of a second, so that a tenth of a second says nothing yet.
    """

    def __init__(self) -> None:
        self.share: float | None = None
        self._start = (0.0, 0.0, 0.0)

    def __enter__(self) -> Others:
        self._start = (time.perf_counter(), _machine(), _own())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        wall = time.perf_counter() - self._start[0]
        busy, own = _machine() - self._start[1], _own() - self._start[2]
        if _STAT.exists() and wall > 0:
            self.share = min(1.0, max(0.0, (busy - own) / (wall * (os.cpu_count() or 1))))


def _machine() -> float:
    """Seconds for which processors were not idle, all together, since the system started."""
    try:
        fields = _STAT.read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    return sum(int(fields[i]) for i in _BUSY if i < len(fields)) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    used = os.times()
    return used.user + used.system
