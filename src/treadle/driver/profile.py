"""Where the time of a program goes, kernel by kernel: every call and every bound launch is timed and sized.

Times are those of the host: on a CPU a call is over when it returns; on a GPU it is a launch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from treadle.base.errors import TreadleError
from treadle.driver.kernel import Kernel
from treadle.dtype.formats import DType, f32
from treadle.ir.core import Block, Program, Region
from treadle.ir.ops.fold import Mma

SAMPLES = 4096
"""Calls of a kernel whose times are kept for a median."""


@dataclass(frozen=True)
class Work:
    """What a call cannot do without. Units: `bytes` of all arguments once; `flops` of contractions, over whole
    dimensions; `dtype` is that of their operands."""

    bytes: float = 0.0
    flops: float = 0.0
    dtype: DType = f32


@dataclass
class Row:
    """One kernel: how often it ran, how long, the work of all its runs, and the plans that ran. `first` is what the
    first call took, planning and compiling included; `seconds` has the others, and `first` where there is no other."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    first: float = 0.0
    bytes: float = 0.0
    flops: dict[str, float] = field(default_factory=dict[str, float])
    timed: int = 0
    samples: list[float] = field(default_factory=list[float], repr=False)
    kernel: Any = field(default=None, repr=False)

    @property
    def median(self) -> float:
        """Seconds of a call in the middle (of the first few thousand)."""
        return statistics.median(self.samples) if self.samples else 0.0

    @property
    def plans(self) -> list[str]:
        """The plans of the kernel, one line each."""
        return [str(v.plan) for v in self.kernel.variants] if self.kernel is not None else []


@dataclass
class Profile:
    """Rows by kernel, and the seconds of the whole."""

    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    seconds: float = 0.0

    def by_time(self) -> list[Row]:
        """Rows, the longest first."""
        return sorted(self.rows.values(), key=lambda r: r.seconds, reverse=True)

    def add(self, kernel: Kernel, seconds: float, work: Work) -> None:
        """A run of a kernel."""
        row = self.rows.setdefault(id(kernel), Row(kernel.definition.name, kernel=kernel))
        row.calls += 1
        if row.calls == 1:
            row.first, row.seconds, row.timed = seconds, seconds, 1
            row.bytes, row.flops, row.samples = work.bytes, {work.dtype.name: work.flops}, [seconds]
            return
        if row.calls == 2:  # the first call planned and compiled: it says nothing of the others
            row.seconds, row.timed, row.bytes, row.flops, row.samples = 0.0, 0, 0.0, {}, []
        row.seconds += seconds
        row.timed += 1
        if len(row.samples) < SAMPLES:
            row.samples.append(seconds)
        row.bytes += work.bytes
        row.flops[work.dtype.name] = row.flops.get(work.dtype.name, 0.0) + work.flops


@contextmanager
def profiled() -> Generator[Profile]:
    """Times every call of every kernel inside the block; calls of other threads too."""
    found = Profile()
    known: dict[Any, Work] = {}
    call, bind = Kernel.__call__, Kernel.bind

    def timed_call(self: Kernel, *args: Any, **staged: Any) -> Any:
        start = time.perf_counter()
        outs = call(self, *args, **staged)
        seconds = time.perf_counter() - start
        found.add(self, seconds, _work(self, args, staged, known))
        return outs

    def timed_bind(self: Kernel, *args: Any, **staged: Any) -> Any:
        launch, work = bind(self, *args, **staged), _work(self, args, staged, known)
        return _TimedLaunch(launch, partial(found.add, self, work=work))

    start = time.perf_counter()
    Kernel.__call__, Kernel.bind = timed_call, timed_bind
    try:
        yield found
    finally:
        Kernel.__call__, Kernel.bind = call, bind
        found.seconds = time.perf_counter() - start


class _TimedLaunch:
    """A bound launch whose runs are told."""

    def __init__(self, launch: Any, tell: Callable[[float], None]) -> None:
        self._launch = launch
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)

    def __call__(self, *args: Any) -> Any:
        start = time.perf_counter()
        outs = self._launch(*args)
        self._tell(time.perf_counter() - start)
        return outs


def _work(kernel: Kernel, args: tuple[Any, ...], staged: Mapping[str, Any], known: dict[Any, Work]) -> Work:
    shapes = [(getattr(a, "shape", None), str(getattr(a, "dtype", ""))) for a in (*args, *staged.values())]
    key = (id(kernel), repr(shapes), repr(sorted(staged)))
    if key not in known:
        try:
            special, call = kernel.prepare(args, dict(staged), allocate=False)
        except TreadleError:  # an argument that planning does not take described, as an output that is read first
            known[key] = Work()
        else:
            size = sum(v.size * v.itemsize for v in call.views.values())
            flops, dtype = flops_of(special.program, call.extents)
            known[key] = Work(float(size), flops, dtype)
    return known[key]


def flops_of(program: Program, extents: Mapping[str, int]) -> tuple[float, DType]:
    """Multiplications and additions of the contractions of a program, each over its whole dimensions, and the dtype of
    the operands of the largest. Those over ranges that only a run tells (rows of sequences that lie one behind the
    other) are left out: nobody knows how many they are."""
    total, most, dtype = 0.0, 0.0, f32

    def walk(block: Block, around: tuple[Any, ...]) -> None:
        nonlocal total, most, dtype
        for op in block.ops:
            inside = around
            if isinstance(op, Region):
                inside = (*around, *(a.domain.dim for a in op.args))
                if any(e.functions for a in op.args for e in (a.domain.lo, a.domain.hi)):
                    continue
            axes = [a for v in op.operands for a in v.type.axes] if isinstance(op, Mma) else []
            if isinstance(op, Mma) and not any(e.functions for a in axes for e in (a.lo, a.hi)):
                dims = dict.fromkeys((*around, *(d for v in op.operands for d in v.type.dims)))
                flops = 2.0
                for dim in dims:
                    flops *= max(0, int(dim.extent.evaluate(extents)))
                total += flops
                if flops > most:
                    most, dtype = flops, op.a.type.dtype
            for inner in op.blocks:
                walk(inner, inside)

    walk(program.body, ())
    return total, dtype
