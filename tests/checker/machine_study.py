"""What the judge and the exhaustive oracle say of a random machine program.

The oracle: at each of the program's extents it is simulated whole under two schedules, its results are compared with
the reference interpreter's, and all interleavings of the recorded events are visited (`interleavings.py`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from tests.checker.interleavings import TooMany, explore
from tests.checker.random_machines import Drawn, random_machine

from treadle.checker import check
from treadle.driver.samples import arguments
from treadle.driver.trial import close_enough, expected
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.verify import form_problems
from treadle.simulate.run import record


@dataclass(frozen=True)
class Finding:
    """`truth`: "safe", "unsafe" or "large" (too many states); `why` the oracle's words, or the judge's."""

    seed: int
    kind: str
    verdict: str
    truth: str
    why: str
    judge: str
    states: int


def study(seed: int, only: tuple[str, ...] = ()) -> Finding:
    """Both verdicts on the program of a seed. An unsafe program needs no further extents."""
    drawn = random_machine(seed, only)
    program = parse_machine(drawn.text)
    problems = form_problems(program)
    assert not problems, f"seed {seed}: {problems[0]}"
    verdict = check(program)
    truth, why, states = truth_of(program, drawn)
    said = "" if verdict.status == "verified" else f"{verdict.judgement}: {verdict.reason}"
    return Finding(seed, drawn.kind, verdict.status, truth, why, said, states)


def truth_of(program: MachineProgram, drawn: Drawn) -> tuple[str, str, int]:
    """What all interleavings at all extents show."""
    states, large = 0, False
    for number, extents in enumerate(drawn.sizes):
        extents = {
            **extents,
            **{d.name: int(d.extent.constant or 0) for d in program.program.dims if d.name not in extents},
        }
        arrays, scalars = arguments(program.program, extents, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = expected(program, arrays, scalars, extents)
            for seed in (2 * number, 2 * number + 1):
                run, replayer = record(program, {**arrays, **scalars}, seed=seed, max_steps=200_000, told=True)
                if run.findings:
                    return "unsafe", str(run.findings[0]), states
                if any(not close_enough(want[name], run.outputs[name]) for name in want):
                    return "unsafe", "the results differ", states
        assert replayer is not None
        try:
            seen = explore(replayer)
        except TooMany:
            large = True
            continue
        states += seen.states
        if seen.wrong:
            return "unsafe", seen.wrong, states
    return ("large" if large else "safe"), "", states
