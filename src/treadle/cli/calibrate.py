"""`treadle calibrate [--show | --forget] [--json FILE]`: coefficients of the cost model for this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from treadle.bench.calibrate import calibrate, cpu_probes
from treadle.bench.held_out import on_host
from treadle.cli.parser import Parser
from treadle.driver.calibration import drop_coefficients, keep_coefficients, kept, machine_of, place_of_coefficients
from treadle.driver.targets import features_of, host_target
from treadle.plan.facts import CallFacts
from treadle.runtime.pool import workers
from treadle.targets.cpu.rates import TERMS, coefficients


def run(argv: Sequence[str]) -> int:
    """Measures, fits and keeps; or shows what is kept; exit status 0."""
    parser = Parser(prog="treadle calibrate", description="Fit the planner's cost model to this machine.")
    parser.add_argument("--show", action="store_true", help="show what is kept, measure nothing")
    parser.add_argument("--forget", action="store_true", help="drop what is kept: hand coefficients again")
    parser.add_argument("--json", metavar="FILE", help="write coefficients, probes and raw samples; - prints them")
    given = parser.parse_args(argv)
    target = host_target()
    if given.forget:
        print("forgotten" if drop_coefficients("cpu") else "nothing was kept")
        return 0
    by_hand = coefficients(CallFacts(target, features=features_of(target))).seconds
    if given.show:
        print(_shown(target, by_hand, kept("cpu").get("targets", {}).get(target, {})))
        return 0
    found = calibrate(target, by_hand, list(cpu_probes(workers())), on_host(np.random.default_rng(0)))
    told = {**asdict(found), "machine": machine_of("cpu"), "workers": workers()}
    where = keep_coefficients(target, found.seconds, {k: told[k] for k in ("readings", "left_out", "workers")})
    if given.json is not None:
        text = json.dumps(told) + "\n"
        if given.json == "-":
            sys.stdout.write(text)
        else:
            Path(given.json).write_text(text, encoding="utf-8")
    if given.json != "-":
        print(_shown(target, by_hand, found.seconds))
        errors = f"a factor of {found.error(True):.2f}, before the fit {found.error(False):.2f}"
        print(f"predictions of {len(found.readings)} probes are off by {errors}")
        print(*(f"left out: {line}" for line in found.left_out), sep="\n")
        print(f"kept in {where}" if where is not None else "not kept: TREADLE_CACHE is off, or cannot be written")
    return 0


def _shown(target: str, by_hand: Mapping[str, float], measured: Mapping[str, float]) -> str:
    lines = [f"{machine_of('cpu')}: {target}", f"{'term':<10}{'by hand':>12}{'measured':>12}   unit"]
    for term in TERMS:
        mine = f"{measured[term.name] * 1e9:.4g} ns" if term.name in measured else "-"
        lines.append(f"{term.name:<10}{by_hand[term.name] * 1e9:>9.4g} ns{mine:>12}   {term.unit}")
    if not measured:
        place = place_of_coefficients("cpu")
        lines.append("nothing is kept" + (f" in {place}" if place is not None else ": TREADLE_CACHE is off"))
    return "\n".join(lines)
