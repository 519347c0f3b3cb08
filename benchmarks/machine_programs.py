"""Random small machine programs, judged, and tried in every interleaving.

    python benchmarks/machine_programs.py [--count N] [--first SEED] [--jobs N] [--seconds S] [--json FILE]
        [--journal FILE] [--only SHAPE ...]

Never may the judge verify what some interleaving shows wrong (a hole: exit status 1); of what all interleavings show
right, it should verify nearly everything. The programs are those of tests/checker/random_machines.py. With
`--journal` a study goes on where the last one ended: what was found is kept there, a line each, with the version of the
judge's rules and the shapes that were drawn from; the counts are of all lines of this study.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.checker.machine_study import Finding, study
from tests.checker.random_machines import SHAPES

from treadle.checker.verdict import VERSION
from treadle.driver.calibration import machine_of

HEAD = ("method", "machine", "kinds", "refused although safe", "holes")
"""What a report says that its last line does not."""


def main() -> int:
    """Studies the seeds and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(SHAPES), help="shapes to draw")
    wanted = parser.parse_args()
    begun = time.perf_counter()
    about = {"version": VERSION, "only": sorted(wanted.only)}
    found = known(wanted.journal, about)
    done = {f.seed for f in found}
    seeds = [s for s in range(wanted.first, wanted.first + wanted.count) if s not in done]
    with multiprocessing.Pool(wanted.jobs) as pool:
        for finding in pool.imap_unordered(partial(study, only=tuple(wanted.only)), seeds):
            found.append(finding)
            if wanted.journal:
                with wanted.journal.open("a") as file:
                    file.write(json.dumps({**about, **asdict(finding)}) + "\n")
            if finding.verdict == "verified" and finding.truth == "unsafe":
                print(f"HOLE {finding}", flush=True)
            if len(found) % 500 == 0:
                print(f"{len(found)} programs, {time.perf_counter() - begun:.0f} s", flush=True)
            if time.perf_counter() - begun > wanted.seconds:
                break
    report = {"method": __doc__, "machine": machine_of("cpu"), "judge": VERSION, **summary(found)}
    report["seconds"] = round(time.perf_counter() - begun, 1)
    for kind, row in report["kinds"].items():
        print(kind, row)
    print({k: v for k, v in report.items() if k not in HEAD})
    for why, count in report["refused although safe"].items():
        print(f"  {count}: {why}")
    if wanted.json:
        wanted.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if report["holes"] else 0


def known(journal: Path | None, about: dict) -> list[Finding]:
    """What a study has found before."""
    if journal is None or not journal.exists():
        return []
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return [
        Finding(**{k: v for k, v in line.items() if k not in about})
        for line in lines
        if all(line[k] == v for k, v in about.items())
    ]


def summary(found: list[Finding]) -> dict:
    """Counts by shape; the holes; why safe programs were refused."""
    kinds: dict[str, dict[str, int]] = {}
    for f in found:
        row = kinds.setdefault(f.kind, {"programs": 0, "safe": 0, "safe verified": 0, "unsafe": 0, "large": 0})
        row["programs"] += 1
        row[f.truth] += 1
        row["safe verified"] += f.truth == "safe" and f.verdict == "verified"
    safe = [f for f in found if f.truth == "safe"]
    verified = sum(f.verdict == "verified" for f in safe)
    refused = Counter(f"{f.kind}: {f.judge}" for f in safe if f.verdict != "verified")
    return {
        "programs": len(found),
        "safe": len(safe),
        "unsafe": sum(f.truth == "unsafe" for f in found),
        "too many states": sum(f.truth == "large" for f in found),
        "safe and verified": verified,
        "share": round(verified / max(1, len(safe)), 4),
        "states": sum(f.states for f in found),
        "holes": [asdict(f) for f in found if f.verdict == "verified" and f.truth == "unsafe"],
        "kinds": dict(sorted(kinds.items())),
        "refused although safe": dict(refused.most_common(40)),
    }


if __name__ == "__main__":
    sys.exit(main())
