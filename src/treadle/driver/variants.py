"""Variants of a kernel: judged, loaded plans, and which one a call gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.driver.arguments import Call
from treadle.driver.facts import ArrayFacts, CallFacts, holds
from treadle.driver.record import Record
from treadle.driver.rooms import room
from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.machine.parse import parse_machine
from treadle.runtime.cpu import load_object
from treadle.runtime.launch import CpuKernel
from treadle.runtime.signature import Signature

SMALL, MIDDLE = 64, 512
"""Extents below and from which plans tend to differ: where a second worker, packing and blocks begin to pay."""


@dataclass(repr=False)
class Variant:
    """A loaded plan with the guard it holds under; `classes` are the classes of calls that it was chosen for."""

    record: Record
    guard: Guard
    kernel: CpuKernel
    classes: set[str] = field(default_factory=set[str])

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


class Interpreted:
    """What runs a call whose outputs overlap other arguments: the reference interpreter, which works in place.

    No plan is judged for such calls yet; the meaning of the program is exact, the speed is the interpreter's.
    """

    plan = "reference interpreter (an output overlaps another argument)"

    def run(self, program: Program, call: Call) -> None:
        """Evaluates the program on the call's own arrays."""
        arrays = {name: np.asarray(a) for name, a in call.arrays.items()}
        room("interpreter").evaluate(program, arrays, call.scalars, extents=call.extents)


def load(record: Record, signature: Signature) -> Variant:
    """A record's code in memory. *Errors*: `runtime/*`."""
    meta = record.meta
    symbols = [meta["entry"], meta["workspace"]]
    loaded = load_object(record.code, symbols, name=str(meta["entry"]), features=meta["features"])
    entry = CpuKernel(
        loaded, str(meta["entry"]), signature, workspace=str(meta["workspace"]), parallel=bool(meta["parallel"])
    )
    return Variant(record, parse_machine(record.machine).guard, entry)


def call_class(facts: CallFacts, workers: int) -> str:
    """The class of a call: what plans are chosen by, coarse enough that few classes occur.

    Extents as 0, 1, small, middle, large, and whether 16 divides them; per array which axis is contiguous and how the
    address is aligned; whether arguments overlap; how many workers there are.
    """
    dims = ",".join(f"{name}={_extent_class(n)}" for name, n in sorted(facts.extents.items()))
    arrays = ",".join(f"{name}={_array_class(a)}" for name, a in sorted(facts.arrays.items()))
    names = sorted(facts.arrays)
    apart = all(facts.apart(a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    return f"{dims};{arrays};{'apart' if apart else 'overlap'};{workers}"


def _extent_class(extent: int) -> str:
    if extent <= 1:
        return str(extent)
    return "s" if extent < SMALL else "m" if extent < MIDDLE else "l"


def _array_class(array: ArrayFacts) -> str:
    unit = "".join("u" if n <= 1 or s == 1 else "0" if s == 0 else "s" for n, s in zip(array.shape, array.strides))
    aligned = 64 if array.address % 64 == 0 else 16 if array.address % 16 == 0 else 1
    return f"{unit}@{aligned}"
