"""Which bug patterns of tests/checker/patterns adversarial schedules find, and that their right twins run clean.

    python benchmarks/machine_patterns.py [--schedules N] [--json FILE]

The judge needs no schedule: it refuses them all (`tests/checker/test_patterns.py`). This shows that they are wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.checker.pattern_files import patterns
from tests.checker.test_patterns import on_one_workgroup

from treadle.driver.calibration import machine_of
from treadle.driver.trial import try_machine


def main() -> None:
    """Runs every pair that schedules can show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=8)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    found: dict[str, object] = {"method": __doc__, "machine": machine_of("cpu")}
    for p in (p for p in patterns() if p.seen):
        begun = time.perf_counter()
        wrong, right = (
            try_machine(on_one_workgroup(t), p.name, p.seen, 0, wanted.schedules).trials for t in (p.wrong, p.right)
        )
        what = wrong.failures[0][1] if wrong.failures else ""
        found[p.name] = {"schedules": wrong.runs, "wrong": what, "right": right.right, "twin schedules": right.runs}
        print(f"{p.name}: {what or 'NOT SEEN'}; twin {'clean' if right.right else 'NOT CLEAN'}", end=" ")
        print(f"({time.perf_counter() - begun:.1f} s)", flush=True)
    if wanted.json:
        wanted.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
