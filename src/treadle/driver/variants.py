"""Variants of a kernel: judged, loaded plans, and which one a call gets."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from treadle.driver.arguments import Call
from treadle.driver.devices import apart, stacked
from treadle.driver.facts import ArrayFacts, CallFacts, holds
from treadle.driver.packed import element_arrays
from treadle.driver.record import Record
from treadle.driver.rooms import room
from treadle.ir.core import Program
from treadle.ir.devices import split_devices
from treadle.ir.guard import Guard
from treadle.plan.grain import Reach
from treadle.runtime.cpu import load_object
from treadle.runtime.launch import CpuKernel, called_with
from treadle.runtime.signature import Signature

SMALL, MIDDLE = 64, 512
"""Extents below and from which plans of a GPU tend to differ: where packing and blocks pay."""


@dataclass(repr=False)
class Variant:
    """A loaded plan with the guard it holds under.

    `classes` are the classes of calls that it runs; `planned` those among them that it was the planner's choice for;
    `reach`, on a CPU, how far in each.
    """

    record: Record
    guard: Guard
    kernel: Any  # a CpuKernel, or a CudaKernel
    classes: set[str] = field(default_factory=set[str])
    planned: set[str] = field(default_factory=set[str])
    reach: dict[str, Reach] = field(default_factory=dict[str, Reach])

    def __repr__(self) -> str:
        return f"<variant {self.plan}: {self.verdict['status']}>"

    @property
    def plan(self) -> str:
        """The plan in one line."""
        return self.record.plan

    @property
    def verdict(self) -> Mapping[str, Any]:
        """The judge's verdict."""
        return self.record.verdict

    def admits(self, facts: CallFacts) -> bool:
        """Whether the plan holds for a call."""
        return holds(self.guard, facts)

    def distance(self, cls: str) -> int:
        """How far a class of calls is from the nearest one that this plan was chosen for.

        Extents count by the steps between their sizes, anything else by whether it differs: a plan for the next smaller
        products is nearer than one for small ones.
        """
        return min(class_distance(cls, c) for c in self.planned)

    def lies(self, cls: str) -> bool:
        """Whether this plan was chosen for a call whose arrays lie as those of the class: contiguous along the same
        axes, aligned alike."""
        return layout_of(cls) in map(layout_of, self.planned)


@contextmanager
def on_host(program: Program, call: Call, *, stack: bool = False) -> Generator[tuple[Program, dict[str, Any]]]:
    """What the interpreter takes: the program, and the call's arrays in place, or copied (from a GPU, 4-bit ones, lists
    for several devices) and at the end back.

    Lists that lie on an output stay as they are, unless `stack`: the program is then the one with a tensor an array.
    """
    here = nullcontext(call.as_numpy()) if call.device == "cpu" else room("cuda").images(call.views)
    with here as arrays, ExitStack() as kept:
        if call.lists and (stack or apart(call.lists, arrays, [t.name for t in program.tensors if t.out])):
            arrays = kept.enter_context(stacked(call.lists, arrays))
        elif call.lists:
            program = split_devices(program)
        names = {t.name for t in program.tensors}
        whole = element_arrays(program, call.extents, {n: arrays[n] for n in arrays if n in names})
        yield program, kept.enter_context(whole)


class Interpreted:
    """What runs calls that no judged plan covers: the reference interpreter, in place, exact and slow.

    `reason` says why. Arrays are read and written where they lie.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"<variant {self.plan}>"

    @property
    def plan(self) -> str:
        """The plan in one line."""
        return f"reference interpreter ({self.reason})"

    @property
    def verdict(self) -> Mapping[str, Any]:
        """No machine program, nothing to judge."""
        return {"status": "none", "reason": self.reason}

    def run(self, program: Program, call: Call) -> None:
        """Evaluates the program on the call's own arrays; those of a GPU are copied here and back."""
        with on_host(program, call) as (run, arrays):
            room("interpreter").evaluate(run, arrays, call.scalars, extents=call.extents)


class InterpretedLaunch:
    """A call bound to its arguments that the reference interpreter runs."""

    def __init__(self, variant: Interpreted, program: Program, call: Call) -> None:
        self.variant = variant
        self.program = program
        self.call = call
        self.outs = call.outs

    def __repr__(self) -> str:
        return f"<bound {self.program.name}, {self.variant.plan}>"

    def __call__(self, *given: Any) -> Any:
        """Runs again; returns the Outs. *Errors*: `call/bound`."""
        if given:
            raise called_with(self, given)
        self.variant.run(self.program, self.call)
        return self.outs

    launch = __call__


def load(record: Record, signature: Signature) -> Variant:
    """A record's code in memory. *Errors*: `runtime/*`."""
    meta = record.meta
    if str(meta["target"]).startswith("cuda"):
        return Variant(record, record.guard, room("cuda").CudaKernel(record, signature))
    symbols = [meta["entry"], meta["workspace"]]
    loaded = load_object(record.code, symbols, name=str(meta["entry"]), features=meta["features"])
    entry = CpuKernel(
        loaded, str(meta["entry"]), signature, workspace=str(meta["workspace"]), parallel=bool(meta["parallel"])
    )
    return Variant(record, record.guard, entry)


def call_class(facts: CallFacts, workers: int, kind: str = "cpu", streams: bool = False) -> str:
    """The class of a call: what plans are chosen by, coarse enough that few classes occur.

    Extents, on a CPU between powers of two (how many bits they have), on a GPU as 0, 1, small, middle, large, and large
    ones further: how many tasks there are for its multiprocessors, and how much of a row a thread can hold; per array
    which axis is contiguous; which arguments overlap; how many workers there are; on a CPU whether the arrays
    are too large for its last cache (`streams`). On a GPU also how addresses and pitches are aligned (no plan of
    the CPU asks).
    """
    tell = _bits if kind == "cpu" else _extent_class_gpu
    dims = ",".join(f"{name}={tell(n)}" for name, n in sorted(facts.extents.items()))
    arrays = ",".join(f"{name}={_array_class(a, kind)}" for name, a in sorted(facts.arrays.items()))
    names = sorted(facts.arrays)
    apart = all(facts.apart(a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    met = (
        "apart"
        if apart
        else "overlap"
        if not facts.same
        else "same " + "+".join(sorted(map("-".join, map(sorted, facts.same))))
    )
    beyond = "beyond the cache" if kind == "cpu" and streams else ""
    return f"{dims};{arrays};{met};{workers};{beyond}"


def layout_of(cls: str) -> str:
    """How arrays lie, of a class of calls on a GPU; on a CPU plans for others are not that much slower: nothing."""
    arrays = cls.split(";")[1]
    return arrays if "@" in arrays else ""


def spared(variants: Sequence[Variant]) -> Variant | None:
    """The variant that is missed least: of those whose ways for arrays to lie others were planned for too, the one
    nearest to such another. None where each has a way of its own."""
    best: tuple[int, Variant] | None = None
    for one in variants:
        others = [o for o in variants if o is not one]
        if not one.planned or not all(any(o.lies(c) for o in others) for c in one.planned):
            continue
        far = max(min(o.distance(c) for o in others if o.lies(c)) for c in one.planned)
        if best is None or far < best[0]:
            best = far, one
    return None if best is None else best[1]


SIZES = "01smlxh"
"""The classes of extents on a GPU, in order."""


def class_distance(first: str, second: str) -> int:
    """The distance of two classes of calls of one kernel."""
    ours, theirs = first.split(";"), second.split(";")
    sizes = [abs(_step(a) - _step(b)) for a, b in zip(ours[0].split(","), theirs[0].split(","), strict=True) if a]
    rest = [re.split("[,;]", ";".join(c[1:])) for c in (ours, theirs)]
    return sum(sizes) + sum(a != b for a, b in zip(*rest, strict=True))


def _step(said: str) -> int:
    """The place of the class of an extent among its like."""
    size = said.partition("=")[2]
    return int(size) if size.isdigit() else SIZES.index(size)


def _bits(extent: int) -> str:
    return str(extent.bit_length())


def _extent_class_gpu(extent: int) -> str:
    if extent <= 1:
        return str(extent)
    return next((size for size, end in zip("smlx", (SMALL, MIDDLE, 2048, 8192), strict=True) if extent < end), "h")


def _array_class(array: ArrayFacts, kind: str) -> str:
    unit = "".join("u" if n <= 1 or s == 1 else "0" if s == 0 else "s" for n, s in zip(array.shape, array.strides))
    if kind == "cpu":
        return unit
    aligned = 64 if array.address % 64 == 0 else 16 if array.address % 16 == 0 else 1
    # Engines copy rows that begin at whole chunks: operands of other pitches have plans of their own.
    steps = [s for n, s in zip(array.shape, array.strides) if n > 1 and s != 1]
    # They count upwards: rows that run backwards are like those of any pitch.
    pitch = next(p for p in (16, 8, 4, 2, 1) if p == 1 or all(s >= 0 and s % p == 0 for s in steps))
    return f"{unit}@{aligned}/{pitch}"
