"""`treadle explain FILE:KERNEL`: the plan and the reasons for it."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.cli import plan


def run(argv: Sequence[str]) -> int:
    """What `treadle plan` prints without further options."""
    return plan.run(argv, "treadle explain")
