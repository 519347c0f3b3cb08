"""`td.print` in compiled code: what a launch left in hidden tensors, shown as the interpreter shows it.

The expanded program stores the values of each print, and flags of those to show (`ir.prints`). The stores stand where
the prints stood: walking over them, through the coordinates of the regions around, gives the order of the interpreter.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.driver.arguments import Call
from treadle.driver.rooms import room
from treadle.ir.core import Block, Program, Region, RegionArg
from treadle.ir.ops.access import Store
from treadle.ir.prints import unrecordable

MOST = 1 << 22
"""How many elements the prints of a launch may keep; the interpreter runs a call with more."""


def kept_by_none(program: Program, extents: Mapping[str, int]) -> str | None:
    """Why no launch of an expanded program keeps what it prints, if so; the interpreter prints it."""
    found = unrecordable(program)
    if found is not None:
        op, why = found
        return f"td.print({op.label!r}){'' if op.span is None else f' at {op.span}'} {why}"
    return f"td.print shows more than {MOST:,} elements" if too_many(program, extents) else None


def too_many(program: Program, extents: Mapping[str, int]) -> bool:
    """Whether the prints of an expanded program keep more elements than `MOST`."""
    kept = [h.tensor for h in program.hidden if h.kind == "print"]
    return sum(_size(t.dims, extents) for t in kept) > MOST


def _size(dims: Any, extents: Mapping[str, int]) -> int:
    size = 1
    for d in dims:
        size *= max(0, int(d.extent.evaluate(extents)))
    return size


def show(program: Program, call: Call) -> None:
    """Prints what the launch of an expanded program left."""
    labels = {h.tensor.name: h.messages[0] for h in program.hidden if h.kind == "print"}
    if not labels:
        return
    flags = {a.tensor.name: b.tensor.name for a, b in itertools.pairwise(program.hidden) if a.kind == "print"}
    names = (*labels, *flags.values())
    views = {n: call.views[n] for n in names}
    on_gpu = call.device != "cpu"
    here = room("cuda").images(views) if on_gpu else nullcontext({n: call.arrays[n] for n in names})
    with here as arrays:
        _Shower(labels, flags, arrays, call.extents).block(program.body, {})


class _Shower:
    """Walks over the stores of prints in the order of the interpreter."""

    def __init__(
        self,
        labels: Mapping[str, str],
        flags: Mapping[str, str],
        arrays: Mapping[str, NDArray[Any]],
        extents: Mapping[str, int],
    ) -> None:
        self.labels = labels
        self.flags = flags
        self.arrays = arrays
        self.extents = extents

    def block(self, block: Block, at: dict[str, int]) -> None:
        for op in block.ops:
            if isinstance(op, Store) and op.tensor.name in self.labels:
                self.one(op, at)
            elif isinstance(op, Region):
                if self.prints(op.body):
                    self.region(op, at)
            else:
                for inner in op.blocks:
                    self.block(inner, at)

    def prints(self, block: Block) -> bool:
        return any(isinstance(op, Store) and op.tensor.name in self.labels for op in block.walk())

    def region(self, op: Region, at: dict[str, int]) -> None:
        """Every coordinate that an instance may have: flags tell those that there were."""
        each = [a for a in op.args if a.kind == "each"]
        for found in itertools.product(*(self.coordinates(a) for a in each)):
            self.block(op.body, at | {a.name: c for a, c in zip(each, found, strict=True)})

    def coordinates(self, arg: RegionArg) -> range:
        count = max(0, int(arg.domain.dim.extent.evaluate(self.extents)))
        return range(count)[::-1] if arg.reversed else range(count)

    def one(self, op: Store, at: Mapping[str, int]) -> None:
        name = op.tensor.name
        outer = tuple(int(s.index.evaluate(at)) for s in op.subs if not isinstance(s, tuple) and s.index is not None)
        values, shown = self.arrays[name][outer], self.arrays[self.flags[name]][outer]
        dims = op.tensor.dims[len(outer) :]
        for place in np.argwhere(np.asarray(shown)).tolist():
            where = ", ".join(f"{d} = {c}" for d, c in zip(dims, place, strict=True))
            value = values[tuple(place)]
            print(f"{self.labels[name]}[{where}] = {value}" if where else f"{self.labels[name]} = {value}")
