"""`treadle plan FILE:KERNEL --target T [--machine | --source | --json] [-o FILE] ...`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from treadle.cli.parser import Parser, kernel_arguments
from treadle.cli.screen import fitted
from treadle.driver.candidates import Searching
from treadle.driver.describe import described_plans
from treadle.driver.plan import Plan
from treadle.planner.ablation import ABLATIONS
from treadle.planner.enumerate import SEARCHES


def run(argv: Sequence[str], prog: str = "treadle plan") -> int:
    """Plans a kernel and prints what was asked for; exit status 0."""
    parser = Parser(prog=prog, description="Plan a kernel, and say why this plan; no device is needed.")
    kernel_arguments(parser)
    parser.add_argument("--target", help="cpu[:avx2|amx|..|neon|sve], cuda[:sm_80|sm_90a] (default: this machine)")
    parser.add_argument("--family", help="only plans of this family")
    parser.add_argument("--ablate", choices=ABLATIONS, help="plan without some of what the search knows")
    parser.add_argument("--search", choices=list(SEARCHES), default="enumerate", help="how (default: enumerate)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="end the search after so long")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--machine", action="store_true", help="print the machine text")
    shown.add_argument("--source", action="store_true", help="print the emitted text")
    shown.add_argument("--program", action="store_true", help="print the captured program")
    shown.add_argument("--json", action="store_true", help="print the decisions")
    parser.add_argument("-o", "--out", metavar="FILE", default="-", help="write it into FILE (default: print it)")
    given = parser.parse_args(argv)
    described = (given.kernel, given.arg, given.absent, given.dim, given.set, given.target)
    how = Searching(given.search, given.budget)
    plans = described_plans(*described, given.family, given.ablate, how)
    texts = (_shown(plan, given.machine, given.source, given.program, given.json) for plan in plans)
    if given.out == "-":
        for text in texts:
            print(text)
        return 0
    written = "\n".join(texts) + "\n"
    Path(given.out).write_text(written, encoding="utf-8")
    print(f"{given.out}: {len(written.encode()) / 1e3:.0f} kB")
    return 0


def _shown(plan: Plan, machine: bool, source: bool, program: bool, as_json: bool) -> str:
    if machine:
        return plan.machine().rstrip("\n")
    if source:
        return plan.source().rstrip("\n")
    if program:
        return plan.source_program().rstrip("\n")
    if as_json:
        return json.dumps(json.loads(plan.decisions.to_json()), indent=1)
    return fitted(plan.explain())
