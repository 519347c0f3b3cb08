"""The mutation table of docs/status.md: every mutant of the machine programs of a few kernels, judged and simulated.

    ./dev mutate [--sample N] [--schedules N] [--only PATTERN] [--jobs N] [--journal FILE] [--json FILE]

Prints a Markdown table. Without --sample all mutants are judged; each one that the judge accepts runs 1,000 adversarial
schedules over several shapes: one of each shape simulated whole, the others replays of it, once for all mutants whose
threads do the same to one another. A study that was broken off goes on from its journal.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import treadle as td
from treadle.algebra.expr import as_expr, minimum
from treadle.driver.build import choose
from treadle.driver.calibration import machine_of
from treadle.driver.describe import described_facts
from treadle.driver.mutation import Study, study
from treadle.dtype.formats import bf16, f32
from treadle.lib.attention import attention
from treadle.lib.linear import gated_linear, linear
from treadle.lib.rows import softmax
from treadle.machine.form import MachineProgram


@dataclass(frozen=True)
class Subject:
    """A machine program to mutate, and the shapes on which survivors run. `resident`: so many workgroups at most, as on
    a device of few multiprocessors; the others' tiles are theirs."""

    name: str
    kernel: Any
    dtypes: dict[str, Any]
    target: str
    shapes: tuple[dict[str, int], ...]
    staged: dict[str, Any] = field(default_factory=dict)
    family: str | None = None
    large: dict[str, int] = field(default_factory=dict)
    resident: int | None = None

    def program(self) -> MachineProgram:
        """The machine program of the best plan for large arguments."""
        definition = self.kernel.__treadle_definition__
        program = definition.capture(self.dtypes, self.staged, frozenset(self.dtypes), extents=self.extents())
        facts = described_facts(program, self.large)
        machine = choose(program, self.target, facts, (), family=self.family).machine
        if self.resident is None:
            return machine
        launches = [replace(k, grid=as_expr(minimum(k.grid, self.resident))) for k in machine.host.launches]
        return replace(machine, host=replace(machine.host, launches=launches))

    def extents(self) -> dict[str, int]:
        return {k: v for k, v in self.large.items() if k == "D" and self.target.startswith("cuda")}


# Extents below, at and above the blocks of each program, one dimension at a time: a bound that nothing crosses is not
# tried. The GPU's persistent programs have two workgroups, so that one has several tiles and a ring goes round more
# often than it has slots.
ROWS = ({"M": 3, "N": 5}, {"M": 2, "N": 130}, {"M": 1, "N": 64}, {"M": 258, "N": 2})
PRODUCT = (
    {"M": 3, "N": 5, "K": 4},
    {"M": 30, "N": 70, "K": 18},
    {"M": 1, "N": 64, "K": 16},
    {"M": 261, "N": 3, "K": 2},
    {"M": 2, "N": 530, "K": 3},
    {"M": 2, "N": 3, "K": 390},
)
PAIRED = (
    {"M": 3, "N": 5, "K": 4},
    {"M": 30, "N": 50, "K": 35},
    {"M": 4, "N": 48, "K": 32},
    {"M": 131, "N": 3, "K": 2},
    {"M": 2, "N": 490, "K": 3},
    {"M": 2, "N": 3, "K": 390},
)
KEYS = (
    {"B": 1, "H": 1, "Sq": 3, "Sk": 5, "D": 4},
    {"B": 2, "H": 2, "Sq": 2, "Sk": 7, "D": 18},
    {"B": 1, "H": 1, "Sq": 130, "Sk": 3, "D": 2},
    {"B": 1, "H": 1, "Sq": 2, "Sk": 255, "D": 3},
    {"B": 1, "H": 1, "Sq": 64, "Sk": 6, "D": 16},
)
BIG = {"M": 4096, "N": 4096, "K": 4096, "B": 4, "H": 16, "Sq": 4096, "Sk": 4096, "D": 64}
CUDA_ROWS = ({"M": 3, "N": 4}, {"M": 2, "N": 4096}, {"M": 2, "N": 260}, {"M": 1, "N": 1028})
CUDA_PRODUCT = ({"M": 258, "N": 8, "K": 136}, {"M": 70, "N": 264, "K": 72}, {"M": 1, "N": 8, "K": 330})
CUDA_KEYS = (
    {"B": 1, "H": 3, "Sq": 10, "Sk": 20, "D": 64},
    {"B": 1, "H": 1, "Sq": 200, "Sk": 140, "D": 64},
    {"B": 1, "H": 1, "Sq": 10, "Sk": 520, "D": 64},
)
WHOLE_KEYS = (  # what the guard of a plan without masks for the last block of keys admits
    {"B": 1, "H": 1, "Sq": 10, "Sk": 128, "D": 64},
    {"B": 1, "H": 1, "Sq": 10, "Sk": 256, "D": 64},
    {"B": 1, "H": 3, "Sq": 10, "Sk": 128, "D": 64},
    {"B": 1, "H": 1, "Sq": 200, "Sk": 256, "D": 64},
    {"B": 1, "H": 1, "Sq": 10, "Sk": 640, "D": 64},
)

GATED = dict.fromkeys(("X", "gate", "up", "Y"), bf16)
LINEAR = dict.fromkeys(("X", "W", "bias", "Y"), f32)
RELU = {"act": td.relu}

SUBJECTS = (
    Subject("softmax f32", softmax, {"X": f32, "Y": f32}, "cpu:avx512", ROWS, large=BIG),
    Subject("softmax f32, universal", softmax, {"X": f32, "Y": f32}, "cpu:avx512", ROWS, family="universal", large=BIG),
    Subject("linear f32", linear, LINEAR, "cpu:avx512", PRODUCT, RELU, large=BIG),
    Subject("gated_linear bf16", gated_linear, GATED, "cpu:avx512", PAIRED, large=BIG),
    Subject("attention f32", attention, dict.fromkeys("QKVY", f32), "cpu:avx512", KEYS, large=BIG),
    Subject("softmax f32", softmax, {"X": f32, "Y": f32}, "cuda:sm_90a", CUDA_ROWS, large=BIG),
    Subject(
        "linear bf16",
        linear,
        dict.fromkeys(LINEAR, bf16),
        "cuda:sm_90a",
        CUDA_PRODUCT,
        RELU,
        large=BIG,
        resident=2,
    ),
    Subject("attention bf16", attention, dict.fromkeys("QKVY", bf16), "cuda:sm_90a", WHOLE_KEYS, large=BIG, resident=2),
    Subject(
        "attention bf16, ragged",
        attention,
        dict.fromkeys("QKVY", bf16),
        "cuda:sm_90a",
        CUDA_KEYS,
        large={**BIG, "Sk": 4001},
        resident=2,
    ),
)


OUTCOMES = ("bad form", "rejected", "unknown")
MEANINGS = ("same execution", "slack", "speed-only", "needless synchronisation")
HEADS = ("program", "target", "mutants", *OUTCOMES, "accepted", *MEANINGS, "not run", "holes", "s")


def row(subject: Subject, result: Study, seconds: float) -> str:
    """One line of the Markdown table."""
    by, means = result.outcomes(), result.meanings()
    cells = [
        subject.name,
        subject.target,
        result.total,
        *(by[o] for o in OUTCOMES),
        len(result.accepted) + len(result.holes),
        *(means[m] for m in MEANINGS),
        by["accepted, not run"],
        len(result.holes),
        f"{seconds:.0f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge and simulate every mutant of a few machine programs.")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a regular expression for 'NAME TARGET'")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--journal", type=Path, help="where answers are kept as they come, to go on from")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print("| " + " | ".join(HEADS) + " |")
    print("|" + "---|" * len(HEADS))
    data: dict[str, Any] = {"method": __doc__, "machine": machine_of("cpu")}
    holes = 0
    for subject in SUBJECTS:
        if given.only and not re.search(given.only, f"{subject.name} {subject.target}"):
            continue
        start = time.perf_counter()
        result = study(
            subject.program(),
            subject.shapes,
            given.schedules,
            given.sample,
            given.seed,
            show=sys.stderr.isatty(),
            jobs=given.jobs,
            journal=given.journal,
        )
        print(row(subject, result, time.perf_counter() - start), flush=True)
        data[f"{subject.name} on {subject.target}"] = {"shapes": subject.shapes, **result.as_json()}
        holes += len(result.holes)
        for hole in result.holes:
            print(f"  HOLE {hole}", file=sys.stderr)
        if given.json is not None:
            given.json.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
