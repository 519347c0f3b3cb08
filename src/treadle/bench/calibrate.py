"""Fitting the cost model's coefficients to a machine: microbenchmarks that each excite one term, and least squares.

A probe is a kernel of the language on a shape, at a point of a family that is fixed by rules, not chosen: so the fit
never depends on the coefficients that it finds. Every probe is planned, judged and compiled as any call is. What a
probe takes is known to the model by its counts; non-negative coefficients are fitted to the relative errors of all
probes together, and stay where they were as far as no probe tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import treadle as td
from treadle.base.errors import LimitError
from treadle.bench.fit import Model, fitted
from treadle.bench.held_out import Array
from treadle.bench.regret import Timer, on_cpu
from treadle.bench.subject import Refused, Subject
from treadle.dtype.formats import DType, bf16, f32
from treadle.lib.activations import activation
from treadle.lib.products import matmul
from treadle.plan.family import Setting
from treadle.plan.plan import Plan


class NoProbe(LimitError):
    """A target for which no probe can run."""

    code = "bench/no-probe"


@dataclass(frozen=True)
class Probe:
    """A kernel on a shape. `excites`: the term it is there for; `point`: settings that are fixed, where the family has
    them; of the rest each axis has its preferred setting."""

    excites: str
    kernel: Any = field(repr=False)
    arguments: Callable[[Array], Sequence[Any]] = field(repr=False)
    family: str
    point: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    label: str = ""
    staged: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


FEW, MANY = {"act": td.relu}, {"act": td.gelu}
"""An element's work: as few instructions as a row can have, which leaves its traffic; and many of them."""


def rows(rows: int, columns: int, dtype: DType = f32) -> Callable[[Array], Sequence[Any]]:
    """Two arrays of rows."""
    return lambda array: [array((rows, columns), dtype), array((rows, columns), dtype)]


def matrices(m: int, n: int, k: int, dtype: DType = f32) -> Callable[[Array], Sequence[Any]]:
    """Both operands of a product, nothing to add, its result in f32."""
    return lambda array: [array((m, k), dtype), array((k, n), dtype), None, array((m, n), f32)]


def cpu_probes(workers: int) -> Iterator[Probe]:
    """The probes of a CPU: traffic and arithmetic of one core, what several add, and products."""
    for excites, size in (("l2", 16), ("l3", 512), ("memory", 12288)):
        point: dict[str, Setting] = {"workers": 1, "rows": 4}
        yield Probe(excites, activation, rows(size, 1024), "vector sweep", point, f"{size}x1024", FEW)
    for columns in (512, 2048):
        point = {"workers": 1, "rows": 16}
        yield Probe("simple", activation, rows(64, columns), "vector sweep", point, f"64x{columns}", MANY)
    # Only what is handed out costs a task.
    shared: dict[str, Setting] = {"workers": workers, "rows": 1}
    yield Probe("task", activation, rows(8192, 16), "vector sweep", shared, "8192x16", FEW)
    yield Probe("fork", activation, rows(4, 64), "vector sweep", shared, "4x64", FEW)
    # All operands are packed, so that a product is multiply-adds, loads from panels, and copies.
    alone: dict[str, Setting] = {"workers": 1, "lanes": "N", "packed": True, "held": False}
    for dtype, atom, excites in ((f32, "fma", "fma"), (bf16, "dpbf16", "pair"), (bf16, "amx.tdpbf16ps", "tile")):
        for m, n, k in ((256, 384, 256), (512, 768, 768)):
            point = {**alone, "atom": atom}
            yield Probe(excites, matmul, matrices(m, n, k, dtype), "tiled contraction", point, f"{m}x{n}x{k}")
    # Narrow register blocks load more for each multiply-add.
    for columns in (16, 64):
        point = {**alone, "atom": "fma", "columns": columns}
        yield Probe("load", matmul, matrices(512, 768, 512), "tiled contraction", point, f"columns {columns}")
    # Sums of few products are stored and loaded for almost each of them, in blocks that the first cache holds.
    for k in (4, 12):
        point = {"workers": 1, "lanes": "N", "atom": "fma", "columns": 64, "held": False, "outer": 14, "inner": 256}
        yield Probe("l1", matmul, matrices(576, 768, k), "tiled contraction", {**point, "packed": False}, f"deep {k}")
    # Each element of the large operand is packed and used few times.
    for m, n, k in ((28, 2048, 512), (28, 4096, 256)):
        point = {**alone, "atom": "fma"}
        yield Probe("packing", matmul, matrices(m, n, k), "tiled contraction", point, f"{m}x{n}x{k}")


def cuda_probes() -> Iterator[Probe]:
    """The probes of a GPU."""
    for size in (64, 4096, 65536):
        yield Probe("memory", activation, rows(size, 4096), "rows", {"warps": 4}, f"{size}x4096", FEW)
    yield Probe("launch", activation, rows(8, 256), "rows", {"warps": 1}, "8x256", FEW)
    yield Probe("simple", activation, rows(16384, 1024), "rows", {"warps": 4}, "16384x1024", MANY)
    point: dict[str, Setting]
    for m, n, k in ((2048, 2048, 2048), (4096, 4096, 1024)):
        point = {"consumers": 2, "columns": 256, "step": 64, "versions": 4}
        yield Probe("product", matmul, matrices(m, n, k, bf16), "streams", point, f"{m}x{n}x{k}")
    for m in (64, 256):
        point = {"consumers": 1, "columns": 128, "step": 64, "versions": 4}
        yield Probe("cache", matmul, matrices(m, 8192, 8192, bf16), "streams", point, f"{m}x8192x8192")


@dataclass(frozen=True)
class Reading:
    """A probe that ran: what it took, and what was predicted before and after the fit. Units: microseconds."""

    excites: str
    label: str
    plan: str
    samples_us: tuple[float, ...]
    before_us: float
    after_us: float


@dataclass(frozen=True)
class Calibration:
    """Coefficients of a target: seconds a unit, by term; what they were; the probes; those that cannot run here."""

    target: str
    seconds: dict[str, float]
    before: dict[str, float]
    readings: tuple[Reading, ...]
    left_out: tuple[str, ...]

    def error(self, after: bool) -> float:
        """The typical (geometric mean) factor between predicted and measured times."""
        logs = [abs(math.log((r.after_us if after else r.before_us) / least(r.samples_us))) for r in self.readings]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0


def calibrate(
    target: str, coefficients: Mapping[str, float], probes: Sequence[Probe], array: Array, timer: Timer = on_cpu
) -> Calibration:
    """Runs the probes and fits. `coefficients`: those to begin with, which also say which terms there are.

    *Errors*: `bench/no-probe` where none can run.
    """
    subjects: list[tuple[Probe, Subject, Plan]] = []
    readings: list[tuple[float, ...]] = []
    left_out: list[str] = []
    for probe in probes:
        subject = Subject(probe.kernel, probe.arguments(array), probe.staged)
        plan = _plan(probe, subject)
        made = Refused("the family has no such point") if plan is None else subject.make(plan)
        if isinstance(made, Refused) or plan is None:
            reason = made.reason if isinstance(made, Refused) else ""
            left_out.append(f"{probe.excites} {probe.label}: {reason}")
            continue
        subjects.append((probe, subject, plan))
        readings.append(timer({"probe": made.run}, 9)["probe"].samples)
    if not subjects:
        raise NoProbe(
            doing=f"calibrating {target}",
            found="; ".join(left_out) or "no probes",
            expected="a probe that runs on this machine",
            hint="treadle doctor tells what this machine can run",
        )
    models = [_model(subject, plan) for _, subject, plan in subjects]
    seconds = fitted(models, [least(r) for r in readings], coefficients)
    told = [
        Reading(
            probe.excites,
            probe.label,
            plan.line(),
            tuple(s * 1e6 for s in samples),
            subject.cost(plan, coefficients).total * 1e6,
            subject.cost(plan, seconds).total * 1e6,
        )
        for (probe, subject, plan), samples in zip(subjects, readings, strict=True)
    ]
    return Calibration(target, seconds, dict(coefficients), tuple(told), tuple(left_out))


def _model(subject: Subject, plan: Plan) -> Model:
    return lambda seconds: subject.cost(plan, seconds).total


def _plan(probe: Probe, subject: Subject) -> Plan | None:
    """The point of a probe: the first that has its settings and can run."""
    fits = [
        p
        for p in subject.plans()
        if p.family == probe.family and all(p.point.get(n, v) == v for n, v in probe.point.items())
    ]
    family = subject.families[probe.family]
    if not fits:
        return None
    axes = {a.name: a.values for a in family.axes(subject.special.expanded, subject.facts)}
    return min(fits, key=lambda p: [axes[n].index(v) for n, v in p.point.items()])


def least(samples: Sequence[float]) -> float:
    """What a plan takes when nobody disturbs it: noise only ever adds."""
    return min(samples)
