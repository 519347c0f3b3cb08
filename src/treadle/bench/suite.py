"""Running a suite: check first, then interleave ours with each peer, and one row a case and peer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from treadle.base.errors import UserError
from treadle.bench.case import Case, Finished
from treadle.bench.cases import cpu_cases
from treadle.bench.limits import copy_bandwidth, peak_flops
from treadle.bench.others import Others
from treadle.bench.peers import everywhere, peers_of
from treadle.bench.stencils import stencil_cases
from treadle.driver.calibration import machine_of
from treadle.driver.targets import host_target
from treadle.runtime.pool import workers
from treadle.runtime.timing import Timing, interleaved

CROWDED = 0.03
"""The share of the machine that others may take; a case is measured again when they took more."""

SCATTERED = 0.25
"""The spread of a side's samples above which a case is measured again."""

METHOD = (
    "both sides checked against the oracle, then timed in turn on the host's clock, each called once untimed before; "
    "medians of samples; a case is timed again while others use the machine, and the calmest try is kept"
)
"""How the times of a row were taken; each row says it."""

TRIES = 4
PAUSE = 2.0
"""Seconds between such tries."""


class WrongResult(UserError):
    """A side of a benchmark whose result is not right: it is not timed."""

    code = "bench/wrong-result"


class NoCase(UserError):
    """A pattern that no case matches."""

    code = "bench/no-case"


class HasName(Protocol):
    """A case of a suite."""

    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=HasName)


class HasJson(Protocol):
    """A row of a table."""

    def as_json(self) -> str:
        """One line of JSON."""
        ...


@dataclass(frozen=True)
class Row:
    """One case against one peer (or none). Units: microseconds; `ratio` is peer time / our time. `others`: the share of
    the machine that other processes took meanwhile."""

    case: str
    target: str
    dtype: str
    shape: tuple[int, ...]
    threads: int
    peer: str
    ours_us: float
    peer_us: float | None
    ratio: float | None
    ours_spread: float
    peer_spread: float | None
    limit_share: float
    verdict: str
    compile_ms: float
    plan: str
    others: float | None
    machine: str
    method: str
    ours_samples_us: tuple[float, ...]
    peer_samples_us: tuple[float, ...] | None

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))


def selected(pattern: str | None) -> list[Case]:
    """The CPU cases whose name the regular expression matches. *Errors*: `bench/no-case`."""
    return among([*cpu_cases(), *stencil_cases()], pattern)


def among(cases: list[Named], pattern: str | None) -> list[Named]:
    """Those whose name the regular expression matches. *Errors*: `bench/no-case`."""
    try:
        found = [c for c in cases if pattern is None or re.search(pattern, c.name)]
    except re.error:
        found = []
    if not found:
        names = ", ".join(c.name for c in cases)
        raise NoCase(
            doing="choosing benchmark cases",
            found=f"no case that {pattern!r} matches",
            expected=f"a regular expression for one of {names}",
            hint="leave --case out for all of them",
        )
    return found


def run_case(case: Case, peers: list[str] | None, rounds: int) -> Iterator[Row]:
    """Rows of a case. *Errors*: `bench/wrong-result`."""
    inputs = case.make(np.random.default_rng(0))
    want = case.oracle(inputs)
    bound = case.tolerance(inputs, want)
    out = case.room()
    ours = case.bind(inputs, out)
    _check(case, "treadle", ours, out, want, bound)
    variant = case.kernel.variants[-1]
    seconds = variant.record.meta["seconds"]
    threads = workers()
    limit = max(case.flops / (threads * peak_flops(case.dtype)), case.bytes / (threads * copy_bandwidth()))
    made: dict[str, Callable[[Any, Any], Any] | None] = dict(peers_of(case, peers, threads)) or {"": None}
    for name, make in made.items():
        # One peer at a time: what the threads of others do is not measured.
        side: Callable[[], Any] = ours
        if make is not None:
            theirs = case.room()
            with everywhere(name):
                side = make(inputs, theirs)
                # A peer may use another form of the same function in 16 bits: twice the bound, so it is not refused.
                _check(case, name, side, theirs, want, 2 * bound)
        timed, others = alone({"ours": ours, "peer": side}, rounds)
        mine, theirs_t = timed["ours"], timed["peer"]
        yield Row(
            case=case.name,
            target=host_target(),
            dtype=case.dtype.name,
            shape=case.shape,
            threads=threads,
            peer=name or "none",
            ours_us=mine.median * 1e6,
            peer_us=theirs_t.median * 1e6 if name else None,
            ratio=theirs_t.median / mine.median if name else None,
            ours_spread=mine.spread,
            peer_spread=theirs_t.spread if name else None,
            limit_share=limit / mine.median,
            verdict=str(variant.verdict["status"]),
            compile_ms=1e3 * sum(seconds.values()),
            plan=variant.plan,
            others=others,
            machine=machine_of("cpu"),
            method=METHOD,
            ours_samples_us=tuple(1e6 * s for s in mine.samples),
            peer_samples_us=tuple(1e6 * s for s in theirs_t.samples) if name else None,
        )


def alone(sides: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, Timing], float | None]:
    """The timings of the calmest try, and the share of the machine that others took during it.

    A try is calm when others took little of the machine and no side's samples lie far apart.
    """
    best: tuple[float, dict[str, Timing], float | None] | None = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
        with Others() as others:
            timed = interleaved(sides, rounds=rounds, settled=True)
        share = others.share or 0.0
        unrest = max(share / CROWDED, *(t.spread / SCATTERED for t in timed.values()))
        if best is None or unrest < best[0]:
            best = unrest, timed, others.share
        if best[0] <= 1.0:
            break
    assert best is not None
    return best[1:]


def _check(case: Case, side: str, run: Callable[[], Any], out: Any, want: Any, bound: Any) -> None:
    out[...] = np.nan if (case.result or case.dtype).is_float else -1
    run()
    if isinstance(run, Finished):
        run.finish()
    off = np.abs(out.astype(np.float64) - want)
    if not bool((off <= bound).all()):
        with np.errstate(divide="ignore", invalid="ignore"):  # a bound of 0 asks for equality
            worst = np.unravel_index(int(np.nanargmax(np.where(np.isnan(off), np.inf, off / bound))), off.shape)
        raise WrongResult(
            doing=f"checking {case.name} by {side} before it is timed",
            found=f"{out[worst]} at {tuple(map(int, worst))}",
            expected=f"{want[worst]} within the derived bound",
            hint="report this case" if side == "treadle" else "leave this peer out with --peers",
        )


def write_rows(path: str, rows: Sequence[HasJson]) -> None:
    """Appends rows as JSON Lines to a file; "-" prints them."""
    text = "".join(row.as_json() + "\n" for row in rows)
    if path == "-":
        print(text, end="")
    else:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
