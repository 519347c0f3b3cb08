"""Calls in which an output lies on an input: the input is read from a copy where that means the same.

A compiled plan takes its arguments as apart. An instance of a parallel region never stores what another one reads, by
its promise; so a copy of the input, made before the launch, has what every load finds that comes before the stores of
its own instance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from treadle.driver.arguments import Call, over_memory
from treadle.ir.core import Block, If, Program, Region
from treadle.ir.ops.access import Load, Store
from treadle.runtime.arrays import view
from treadle.runtime.launch import called_with


def copies_suffice(program: Program, read: Collection[str], stored: Collection[str]) -> bool:
    """Whether every load of the tensors `read` comes before any store to those `stored` that it could meet."""
    return copies_suffice_in(program.body, read, stored)


def copies_suffice_in(block: Block, read: Collection[str], stored: Collection[str]) -> bool:
    """The same of one block."""
    return _before(block, read, stored, False) is not None


def _before(block: Block, read: Collection[str], stored: Collection[str], after: bool) -> bool | None:
    """Whether something has been stored after the block; None where a load comes after a store. `after`: before."""
    for op in block.ops:
        if isinstance(op, Load) and op.tensor.name in read and after:
            return None
        if isinstance(op, Store) and op.tensor.name in stored:
            after = True
        if isinstance(op, Region | If):
            inner = [o for b in op.blocks for o in b.walk()]
            stores = any(isinstance(o, Store) and o.tensor.name in stored for o in inner)
            loads = any(isinstance(o, Load) and o.tensor.name in read for o in inner)
            if loads and stores and isinstance(op, Region) and op.kind in ("serial", "pipeline"):
                return None  # an iteration reads what an earlier one stored
            for nested in op.blocks:
                if _before(nested, read, stored, after) is None:
                    return None
            after = after or stores
    return after


class Refreshing(Protocol):
    """A call whose inputs are copies, which take the values of the arguments anew before each launch."""

    call: Call

    def refresh(self) -> None: ...

    def close(self) -> None: ...


class Copies:
    """A call whose inputs `names` are copied before each launch."""

    def __init__(self, call: Call, names: Sequence[str]) -> None:
        self._pairs: list[tuple[Any, Any]] = []
        views, arrays = dict(call.views), dict(call.arrays)
        for name in names:
            old = over_memory(call.views[name])
            made = np.empty(old.shape, old.dtype)
            self._pairs.append((made, old))
            arrays[name], views[name] = made, view(made, name=name)
        self.call = replace(call, views=views, arrays=arrays)

    def refresh(self) -> None:
        """Takes the values that the inputs have now."""
        for made, old in self._pairs:
            made[...] = old

    def close(self) -> None:
        """Nothing: the copies go with the call."""


class CopyingLaunch:
    """A call made ready that copies inputs before each launch."""

    def __init__(self, launch: Any, copies: Refreshing) -> None:
        self._launch = launch
        self._copies = copies
        self.outs = copies.call.outs

    def __repr__(self) -> str:
        return repr(self._launch)

    def __call__(self, *given: Any) -> Any:
        """Copies, launches, returns the Outs. *Errors*: `call/bound`."""
        if given:
            raise called_with(self, given)
        self._copies.refresh()
        self._launch()
        return self.outs

    launch = __call__
