"""The short way of a call: positional NumPy arrays of known dtypes and ranks, whose layout was seen before.

`Ready` has, for each layout, the code that a call of the long way ended in, and which outputs to allocate. The words
that are looked up are what extents, strides and alignments the arguments have; everything that the long way decides
and refuses is a function of those and of whether arguments overlap, which is read anew each time.

Where no number is passed by value, a call of one of the last few layouts is taken in machine code
(`runtime/taking.py`), which also sees that the arrays are NumPy's and of the dtypes and ranks: `quick` needs nothing
beside the arguments.
"""

from __future__ import annotations

import array
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.runtime.launch import Block, CpuKernel, Packer
from treadle.runtime.memory import ALIGNMENT, Workspace, empty, give_workspace, take_workspace
from treadle.runtime.pool import workers
from treadle.runtime.signature import Param, ScalarParam, Signature, TensorParam
from treadle.runtime.taking import MISS, Known, Slot, can_take

__all__ = ["MISS", "Ready", "quick_key"]

_SMALL = 256 << 10
_KEPT = 4096
_EMPTY, _ARRAY = np.empty, np.ndarray
_BYTES = np.dtype(np.uint8)


_EQUAL = (int, bool, str, type(None), types.FunctionType)
"""Types whose values are the same to a kernel when they are equal and of one type."""


def quick_key(count: int, staged: dict[str, Any]) -> Any:
    """A number of arguments and staged values as a key, which is hashable; None where telling them apart takes looking
    into them."""
    parts: list[Any] = [count]
    for name, value in staged.items():
        kind = value.__class__
        if kind is float:
            if not value or value != value:  # two zeros are equal, no NaN is
                return None
        elif kind not in _EQUAL:
            return None
        parts += (name, kind, value)
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class Placed(Signature):
    """Some parameters of `whole`, in the order of a call; their words lie where `whole` has them."""

    whole: Signature

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", tuple(self.whole.offset(p.name) for p in self.params))
        object.__setattr__(self, "tail", self.whole.tail)


@dataclass(frozen=True, slots=True)
class Fresh:
    """An output that the call left out: where its words go, and the extents and strides that follow its address."""

    at: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str
    words: array.array[int]
    room: int

    def place(self, slot: Slot) -> Any:
        """A new array, with its address filled in; its other words are those of the slot's layout."""
        if self.room < _SMALL:
            raw = _EMPTY(self.room, _BYTES)
            return _ARRAY(self.shape, self.dtype, raw, slot.place[self.at](raw))
        made = empty(self.shape, self.name)
        slot.words[self.at] = made.__array_interface__["data"][0]
        return made

    def allocate(self, words: array.array[int]) -> Any:
        """A new array, with its words filled in."""
        if self.room < _SMALL:
            raw = _EMPTY(self.room, _BYTES)
            address: int = raw.__array_interface__["data"][0]
            skip = -address % ALIGNMENT
            address += skip
            made: Any = _ARRAY(self.shape, self.dtype, raw, skip)
        else:
            made = empty(self.shape, self.name)
            address = made.__array_interface__["data"][0]
        at = self.at
        words[at] = address
        words[at + 1 : at + 1 + len(self.words)] = self.words
        return made


@dataclass(slots=True)
class Target:
    """Where a layout's calls end: the code, and each output as the number of an argument or to be allocated.

    `closing` and `size` are what the first run found: the block's words behind the workspace's, and the workspace's
    bytes. A layout has one workspace size, unless numbers passed by value enter it.
    """

    kernel: CpuKernel
    outs: tuple[int | Fresh, ...]
    workers: int
    size: int = 0
    closing: array.array[int] | None = None


class Ready:
    """The short way for calls whose arguments have certain dtypes and ranks; `None` among them is left out."""

    def __init__(self, whole: Signature, given: Sequence[Param], nones: bool) -> None:
        self._packer = Packer(Placed(tuple(given), whole))
        self._given = [p.name for p in given]
        self._nones = nones
        self._tail = whole.tail
        self._pointers = [whole.offset(p.name) for p in given if isinstance(p, TensorParam)]
        self._numbers = [whole.offset(p.name) for p in given if isinstance(p, ScalarParam)]
        self._targets: dict[bytes, Target] = {}
        self._spare: list[Workspace] = []
        taken = self._packer.records is not None and not self._numbers and not nones and can_take()
        self._bare = self._none_known(whole) if taken else None
        self._known: dict[int, Known] = {}  # by how many workers there are

    def _none_known(self, whole: Signature) -> Known:
        """No layout: only addresses' last bits count, and outputs that are left out have no words yet."""
        masks = [0] * whole.words
        for param in self._packer.signature.params:
            at = whole.offset(param.name)
            masks[at : at + param.words] = [ALIGNMENT - 1, *[-1] * (param.words - 1)]
        outs = [whole.offset(p.name) for p in whole.params if isinstance(p, TensorParam) and p.out]
        records = self._packer.records
        assert records is not None
        return Known(len(self._given), records, masks, [at for at in outs if not masks[at]])

    @property
    def takes(self) -> bool:
        """Whether `quick` may be asked."""
        return self._bare is not None

    def quick(self, args: tuple[Any, ...]) -> Any:
        """Runs a call of one of the last layouts, whatever its arguments are, and returns its Outs; or `MISS`.

        *Requires*: `takes`. *Errors*: `runtime/*`.
        """
        known = self._known.get(workers())
        if known is None:
            return MISS
        try:
            slot = known.slots.pop()
        except IndexError:
            slot = known.slot()
        target = slot.take(args)
        if target is MISS:
            known.slots.append(slot)
            return MISS
        outs = [args[o] if o.__class__ is int else o.place(slot) for o in target.outs]
        held = self._workspace(target.size) if target.size else None
        if held is not None:
            slot.words[self._tail] = held.address
        code = target.kernel.entry(slot.address)
        known.slots.append(slot)
        if held is not None:
            self._give(held)
        if code:
            raise target.kernel.failure(code)
        return outs[0] if len(outs) == 1 else tuple(outs) if outs else None

    def run(self, args: tuple[Any, ...]) -> Any:
        """Runs the call and returns its Outs, or returns `MISS`. *Errors*: `runtime/*`."""
        if self._nones:
            args = tuple([a for a in args if a is not None])
        try:
            block = self._packer.pack(args)
        except (OverflowError, UserError):  # the long way says what is wrong, with the line of the call
            return MISS
        if not block.apart:
            return MISS
        target = self._targets.get(self._key(block.words))
        if target is None:
            return MISS
        outs = [args[o] if isinstance(o, int) else o.allocate(block.words) for o in target.outs]
        block.arguments = args, outs
        self._launch(target, block)
        return outs[0] if len(outs) == 1 else tuple(outs) if outs else None

    def _launch(self, target: Target, block: Block) -> None:
        """`CpuKernel.run`, with one workspace kept at hand."""
        kernel, words, tail = target.kernel, block.words, self._tail
        closing = target.closing
        if closing is None:
            held = kernel.prepare(block)
            if not self._numbers:
                target.size = held.size if held is not None else 0
                target.closing = words[tail + 1 :]
        else:
            words[tail + 1 :] = closing
            held = self._workspace(target.size) if target.size else None
            words[tail] = held.address if held is not None else 0
        code = kernel.entry(block.address)
        if held is not None:
            self._give(held)
        if code:
            raise kernel.failure(code)
        if self._bare is not None and target.closing is not None:
            self._take(self._bare, target, words)

    def _take(self, bare: Known, target: Target, words: array.array[int]) -> None:
        """Has machine code take calls of a block's layout from now on, while there are as many workers."""
        known = self._known.get(target.workers)
        if known is not None and known.finds(target):
            return
        if known is None or known.full:
            known = self._known[target.workers] = bare.anew()
        layout = words[:]
        layout[self._tail] = 0
        known.add(layout, target)

    def _give(self, held: Workspace) -> None:
        """Keeps one small workspace at hand."""
        if self._spare or held.size > _SMALL:
            give_workspace(held)
        else:
            self._spare.append(held)

    def _workspace(self, size: int) -> Workspace:
        try:
            held = self._spare.pop()
        except IndexError:
            return take_workspace(size)
        if held.size == size:
            return held
        give_workspace(held)
        return take_workspace(size)

    def learn(self, args: tuple[Any, ...], kernel: CpuKernel, whole: Signature, outs: Mapping[str, Any]) -> None:
        """Remembers where a call like this ended. `outs` has the outputs by name, in the order of the program."""
        block = self._packer.pack(tuple(a for a in args if a is not None))
        if not block.apart:
            return
        ways = tuple(
            self._given.index(name) if name in self._given else _fresh(name, whole, made) for name, made in outs.items()
        )
        if len(self._targets) > _KEPT:
            self._targets.clear()
        self._targets[self._key(block.words)] = Target(kernel, ways, workers())

    def _key(self, words: array.array[int]) -> bytes:
        """Extents, strides and alignments, and how many workers there are; not the numbers passed by value."""
        layout = words[: self._tail]
        for at in self._pointers:
            layout[at] &= ALIGNMENT - 1
        for at in self._numbers:
            layout[at] = 0
        layout.append(workers())
        return layout.tobytes()


def _fresh(name: str, whole: Signature, made: Any) -> Fresh:
    parameter = next(p for p in whole.params if p.name == name)
    strides = [s // made.itemsize for s in made.strides]
    words = array.array("q", [*made.shape, *strides])
    room = math.prod(made.shape) * made.dtype.itemsize + ALIGNMENT
    return Fresh(whole.offset(name), made.shape, made.dtype, parameter.dtype, words, room)
