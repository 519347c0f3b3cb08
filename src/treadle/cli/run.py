"""`treadle run FILE:KERNEL [--dim M=...] [--in X=x.npy] [--out FOLDER]`, `treadle run FILE.py`, with `--profile`."""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treadle.bench.limits import copy_bandwidth, peak_flops
from treadle.cli.parser import Parser, argument_options
from treadle.cli.screen import fitted
from treadle.driver.made_up import MadeUp, made_up
from treadle.driver.profile import Profile, Row, profiled
from treadle.dtype.formats import BY_NAME
from treadle.runtime.pool import workers
from treadle.runtime.timing import interleaved


def run(argv: Sequence[str]) -> int:
    """Runs a kernel on made-up or given arrays, or a Python file; prints what came out. Exit status 0."""
    parser = Parser(prog="treadle run", description="Run a kernel, or a file with kernels, and say what it did.")
    parser.add_argument("what", metavar="FILE:KERNEL", help="a kernel of a file, or a Python file")
    argument_options(parser)
    parser.add_argument("--in", dest="files", action="append", default=[], metavar="X=x.npy", help="an array of a file")
    parser.add_argument("--out", metavar="FOLDER", help="write the outputs there, as NAME.npy")
    parser.add_argument("--seed", type=int, default=0, help="of made-up arrays")
    parser.add_argument("--profile", action="store_true", help="where time goes, by kernel, against the limit")
    parser.add_argument("rest", nargs="*", metavar="ARG", help="arguments of a Python file")
    given = parser.parse_intermixed_args(argv)
    if Path(given.what).is_file():
        return _file(given.what, given.rest, given.profile)
    call = made_up(given.what, given.arg, given.absent, given.dim, given.set, files=given.files, seed=given.seed)
    with profiled() as profile:
        outs = _kernel(call)
    if given.out is not None:
        _write(call, outs, Path(given.out))
    if given.profile:
        print(fitted(table(profile, whole=False)))
    return 0


def _file(path: str, rest: Sequence[str], profile: bool) -> int:
    """A Python file, as Python itself would run it. It may leave by `sys.exit`, or raise: its profile is printed."""
    before = sys.argv, list(sys.path)
    sys.argv, sys.path[0] = [path, *rest], str(Path(path).resolve().parent)
    found = Profile()
    try:
        with profiled() as found:
            runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before
        if profile:
            print(fitted(table(found, whole=True)))
    return 0


def _kernel(call: MadeUp) -> list[Any]:
    """Calls the kernel, prints outputs, plan, verdict, time. Gives the outputs, then what was changed in place."""
    dims = ", ".join(f"{k} = {v}" for k, v in sorted(call.extents.items()))
    print(f"{call.program.name} at {dims}")
    call.try_promises()
    start = time.perf_counter()
    given: Any = call.kernel(**call.keywords)
    first = time.perf_counter() - start
    outs: list[Any] = [*given] if isinstance(given, tuple) else [] if given is None else [given]
    outs += [np.array(call.keywords[name]) for name in call.changed]
    for name, array in zip(call.outputs + call.changed, outs):
        print(fitted(f"  {summary(name, array)}"))
    variant = call.kernel.variants[0]
    status = variant.verdict["status"]
    print(fitted(f"  plan: {variant.plan}"))
    print(f"  verdict: {status}")
    if call.prints:
        print(f"  time: {first * 1e3:.3g} ms the first call with planning; no others, because each would print")
        return outs
    timing = interleaved({"call": call.kernel.bind(**call.keywords)}, rounds=9, warmup=2)["call"]
    print(f"  time: {timing.median * 1e6:.3g} us a call (median), {first * 1e3:.3g} ms the first one with planning")
    return outs


def summary(name: str, array: Any) -> str:
    """What an array holds, in a line."""
    values = np.asarray(array)
    shape = ", ".join(map(str, values.shape))
    head = f"{name}: {values.dtype}[{shape}]"
    if not values.size:
        return f"{head}, empty"
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    told = f"{head} from {finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}" if finite.size else head
    strange = wide.size - finite.size
    some = ", ".join(f"{v:.6g}" for v in wide.reshape(-1)[:4])
    return told + (f", {strange} not finite" if strange else "") + f"; begins {some}"


def _write(call: MadeUp, outs: Sequence[Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(call.outputs + call.changed, outs):
        np.save(folder / f"{name}.npy", np.asarray(array))


# ---- the profile


def table(profile: Profile, whole: bool) -> str:
    """Kernels by time, each with its share of the time and of what the machine could do at best.

    The limit of a call is the longer of two times: all arguments once at the speed of a copy, all contractions at the
    peak of the vector units, each on as many cores as there are workers.
    """
    limits = _Limits()
    rows = profile.by_time()
    total = profile.seconds if whole else sum(r.seconds for r in rows)
    names = max(12, *(len(row.name) for row in rows)) if rows else 12
    head = ("us a call", "of time", "of limit", "bound by", "first ms")
    lines = [f"{'kernel':<{names}}{'calls':>6}" + "".join(f"{h:>10}" for h in head)]
    plans: list[str] = []
    for row in rows:
        each = row.median
        limit, by = limits.of(row)
        share = limit / max(1, row.timed) / each if each else 0.0
        plans.append(f"  {row.name}: {(row.plans or ['-'])[0].partition(': ')[2] or '-'}")
        spent = row.seconds / total if total else 0.0
        numbers = f"{each * 1e6:>10.1f}{spent:>10.1%}{share:>10.0%}{by:>10}{row.first * 1e3:>10.1f}"
        lines.append(f"{row.name:<{names}}{row.calls:>6}{numbers}")
    if whole:
        kernels = sum(r.seconds for r in rows)
        told = "first calls plan and compile; where there are others, only these count"
        lines.append(f"kernels {kernels * 1e3:.1f} ms of {profile.seconds * 1e3:.1f} ms; {told}")
    return "\n".join([*lines, "plans", *plans])


class _Limits:
    """Peaks of this machine, measured once."""

    def __init__(self) -> None:
        self.bandwidth = 0.0
        self.peaks: dict[str, float] = {}

    def of(self, row: Row) -> tuple[float, str]:
        """Seconds that the row's work takes at best, and what bounds it."""
        threads = workers()
        self.bandwidth = self.bandwidth or threads * copy_bandwidth()
        memory = row.bytes / self.bandwidth
        compute = 0.0
        for name, flops in row.flops.items():
            if flops:
                self.peaks.setdefault(name, threads * peak_flops(BY_NAME[name]))
                compute += flops / self.peaks[name]
        return max(memory, compute), "memory" if memory >= compute else "compute"
