"""The short way of a call: positional NumPy arrays of known dtypes and ranks, whose layout was seen before.

`Ready` has, for each layout, the code that a call of the long way ended in, and which outputs to allocate. The words
that are looked up are what extents, strides and alignments the arguments have; everything that the long way decides
and refuses is a function of those and of whether arguments overlap, which is read anew each time.
"""

from __future__ import annotations

import array
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.base.errors import UserError
from treadle.runtime.launch import Block, CpuKernel, Packer
from treadle.runtime.memory import ALIGNMENT, Workspace, empty, give_workspace, take_workspace
from treadle.runtime.pool import workers
from treadle.runtime.signature import Param, ScalarParam, Signature, TensorParam

MISS = object()
"""What `Ready.run` returns for a call that must take the long way."""

_SMALL = 256 << 10
_KEPT = 4096


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

    def allocate(self, words: array.array[int]) -> Any:
        """A new array, with its words filled in."""
        size = math.prod(self.shape) * self.dtype.itemsize
        if size < _SMALL:
            raw = np.empty(size + ALIGNMENT, np.uint8)
            address: int = raw.__array_interface__["data"][0]
            skip = -address % ALIGNMENT
            address += skip
            made: Any = np.ndarray(self.shape, self.dtype, raw, skip)
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
            if self._spare or held.size > _SMALL:
                give_workspace(held)
            else:
                self._spare.append(held)
        if code:
            raise kernel.failure(code)

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
        self._targets[self._key(block.words)] = Target(kernel, ways)

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
    return Fresh(whole.offset(name), made.shape, made.dtype, parameter.dtype, array.array("q", [*made.shape, *strides]))
