"""The way of a kernel, stage by stage, in one list: program -> plan -> machine program -> verdict -> text -> artifact.

`STAGES` names them in order; `Timeline` records how long each took. A stage takes what the one before gives, and
nothing else happens between them.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

STAGES = (
    ("capture", "the user's function -> program"),
    ("verify", "the program's form"),
    ("expand", "scans, sorting, monoids of the user, checks, ... -> regions and plain operations"),
    ("plan", "program and facts -> plans, best first"),
    ("realise", "plan -> machine program with its witness"),
    ("judge", "machine program -> verdict, for all sizes of its guard"),
    ("emit", "machine program -> LLVM IR or CUDA C++"),
    ("assemble", "text -> object or cubin, and what is read back from it"),
    ("load", "object or cubin -> callable"),
)


@dataclass
class Timeline:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Adds the time of a block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
