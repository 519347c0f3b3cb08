"""The mutation table of docs/status.md: every mutant of the machine programs of a few kernels, judged and simulated.

    ./dev mutate [--sample N] [--schedules N] [--only PATTERN] [--json FILE]

Prints a Markdown table. Without --sample all mutants are judged; each one that the judge accepts runs 1,000 adversarial
schedules over several shapes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import treadle as td
from treadle.driver.build import choose
from treadle.driver.describe import described_facts
from treadle.driver.mutation import Study, study
from treadle.dtype.formats import bf16, f32
from treadle.lib.attention import attention
from treadle.lib.linear import gated_linear, linear
from treadle.lib.rows import softmax
from treadle.machine.form import MachineProgram


@dataclass(frozen=True)
class Subject:
    """A machine program to mutate, and the shapes on which survivors run."""

    name: str
    kernel: Any
    dtypes: dict[str, Any]
    target: str
    shapes: tuple[dict[str, int], ...]
    staged: dict[str, Any] = field(default_factory=dict)
    family: str | None = None
    large: dict[str, int] = field(default_factory=dict)

    def program(self) -> MachineProgram:
        """The machine program of the best plan for large arguments."""
        definition = self.kernel.__treadle_definition__
        program = definition.capture(self.dtypes, self.staged, frozenset(self.dtypes), extents=self.extents())
        facts = described_facts(program, self.large)
        return choose(program, self.target, facts, (), family=self.family).machine

    def extents(self) -> dict[str, int]:
        return {k: v for k, v in self.large.items() if k == "D" and self.target.startswith("cuda")}


ROWS = ({"M": 3, "N": 5}, {"M": 2, "N": 70}, {"M": 1, "N": 1})
PRODUCT = ({"M": 3, "N": 5, "K": 4}, {"M": 30, "N": 34, "K": 3}, {"M": 2, "N": 3, "K": 260})
KEYS = ({"B": 1, "H": 1, "Sq": 3, "Sk": 5, "D": 4}, {"B": 1, "H": 2, "Sq": 2, "Sk": 130, "D": 3})
BIG = {"M": 4096, "N": 4096, "K": 4096, "B": 4, "H": 16, "Sq": 4096, "Sk": 4096, "D": 64}
CUDA_PRODUCT = ({"M": 130, "N": 264, "K": 136},)
CUDA_KEYS = ({"B": 1, "H": 1, "Sq": 70, "Sk": 150, "D": 64},)

GATED = dict.fromkeys(("X", "gate", "up", "Y"), bf16)

SUBJECTS = (
    Subject("softmax f32", softmax, {"X": f32, "Y": f32}, "cpu:avx512", ROWS, large=BIG),
    Subject("softmax f32, universal", softmax, {"X": f32, "Y": f32}, "cpu:avx512", ROWS, family="universal", large=BIG),
    Subject(
        "linear f32",
        linear,
        {"X": f32, "W": f32, "bias": f32, "Y": f32},
        "cpu:avx512",
        PRODUCT,
        {"act": td.relu},
        large=BIG,
    ),
    Subject(
        "gated_linear bf16",
        gated_linear,
        dict.fromkeys(("X", "gate", "up", "Y"), bf16),
        "cpu:avx512",
        PRODUCT,
        large=BIG,
    ),
    Subject("attention f32", attention, dict.fromkeys("QKVY", f32), "cpu:avx512", KEYS, large=BIG),
    Subject("softmax f32", softmax, {"X": f32, "Y": f32}, "cuda:sm_90a", ROWS, large=BIG),
    Subject(
        "linear bf16",
        linear,
        {"X": bf16, "W": bf16, "bias": bf16, "Y": bf16},
        "cuda:sm_90a",
        CUDA_PRODUCT,
        {"act": td.relu},
        large=BIG,
    ),
    Subject("attention bf16", attention, dict.fromkeys("QKVY", bf16), "cuda:sm_90a", CUDA_KEYS, large=BIG),
)


OUTCOMES = ("bad form", "rejected", "unknown", "accepted, never wrong", "accepted, not run", "HOLE")


def row(subject: Subject, result: Study, seconds: float) -> str:
    """One line of the Markdown table."""
    by = Counter[str]()
    for (_, outcome), count in result.counts.items():
        by[outcome] += count
    cells = [by[o] for o in ("bad form", "rejected", "unknown", "accepted, never wrong", "accepted, not run", "HOLE")]
    return (
        f"| {subject.name} | {subject.target} | {result.total} | " + " | ".join(map(str, cells)) + f" | {seconds:.0f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge and simulate every mutant of a few machine programs.")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a regular expression for 'NAME TARGET'")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(
        "| program | target | mutants | bad form | rejected | unknown | accepted, never wrong | not run | holes | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    data: dict[str, Any] = {}
    holes = 0
    for subject in SUBJECTS:
        if given.only and not re.search(given.only, f"{subject.name} {subject.target}"):
            continue
        start = time.perf_counter()
        result = study(
            subject.program(), subject.shapes, given.schedules, given.sample, given.seed, show=sys.stderr.isatty()
        )
        print(row(subject, result, time.perf_counter() - start), flush=True)
        data[f"{subject.name} on {subject.target}"] = result.as_json()
        holes += len(result.holes)
        for hole in result.holes:
            print(f"  HOLE {hole}", file=sys.stderr)
    if given.json is not None:
        given.json.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
