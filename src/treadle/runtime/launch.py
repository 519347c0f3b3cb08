"""From arguments to a running CPU kernel: pack a block of words, call the entry.

`Packer` turns a call's arguments into a `Block`; all variants of a kernel share it, and guards read its words.
`CpuKernel` is loaded code that runs on a block. `CpuLaunch` is a call made ready once: running it again is one native
call, about as dear as any ctypes call.
"""

from __future__ import annotations

import array
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.base.source import user_position
from treadle.runtime import pool as worker_pool
from treadle.runtime.arrays import ArrayView, numpy_dtype, same_device
from treadle.runtime.cpu import LoadedObject
from treadle.runtime.errors import BoundCalledWith, KernelFailed, NativeCodeMissing, SymbolMissing
from treadle.runtime.making import making
from treadle.runtime.memory import Workspace, give_workspace, take_workspace
from treadle.runtime.native import load_native
from treadle.runtime.signature import ScalarParam, Signature, TensorParam, scalar_word, tensor_view
from treadle.runtime.walker_ir import (
    ALIGNED_FLAG,
    APART,
    MAY_MEET,
    RECORD_WORDS,
    SYMBOL,
    WALKER_IR,
    WRITEABLE_FLAG,
)

Words = Sequence[int]
WorkspaceSize = int | str | Callable[[Words], int]
"""Bytes; or the name of a function `i64 name(ptr argblock)` of the object; or a function of the block's words."""

_WALK_TYPE = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.py_object, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_SIZE_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class _Walker:
    """The machine code that reads NumPy arguments, or None where it is not to be trusted."""

    def __init__(self) -> None:
        self.tried = False
        self.walk: Callable[[Any, int, int, int], int] | None = None

    def get(self) -> Callable[[Any, int, int, int], int] | None:
        if not self.tried:
            with making():
                if not self.tried:
                    self.walk = _trusted_walk()
                    self.tried = True
        return self.walk


_walker = _Walker()


def _trusted_walk() -> Callable[[Any, int, int, int], int] | None:
    """The walker, if it reads sample arrays just as Python does."""
    if tuple.__basicsize__ != 24 or object.__basicsize__ != 16:
        return None
    try:
        walk = load_native("treadle_walker", WALKER_IR, [SYMBOL]).function(SYMBOL, _WALK_TYPE)
    except NativeCodeMissing:
        return None
    base = np.zeros((6, 10), np.float32)
    frozen = base[1:, 2:]
    frozen.flags.writeable = False
    for sample in (base, base[::-2, 1::3], base.T, frozen, np.zeros((0, 3), np.float32)):
        signature = Signature((ScalarParam("s", "i64"), TensorParam("x", "f32", 2)))
        words = array.array("q", bytes(8 * signature.words))
        records = _records(signature)
        if walk((0, sample), 2, records.buffer_info()[0], words.buffer_info()[0]) != APART:
            return None
        address = int(sample.__array_interface__["data"][0])
        if list(words[1:6]) != [address, *sample.shape, *(stride // 4 for stride in sample.strides)]:
            return None
    wanted = Signature((TensorParam("x", "f32", 2, out=True),))
    words = array.array("q", bytes(8 * wanted.words))
    refused = (frozen, base[0], base.astype(np.float64), np.broadcast_to(base[0], (6, 10)), None)
    pair = Signature((TensorParam("x", "f32", 2), TensorParam("y", "f32", 2, out=True)))
    room, records = array.array("q", bytes(8 * pair.words)), _records(pair)
    for x, y, said in ((base[:3], base[3:], APART), (base[:4], base[3:], MAY_MEET), (base[:0], base, APART)):
        if walk((x, y), 2, records.buffer_info()[0], room.buffer_info()[0]) != said:
            return None
    outcomes = [walk((bad,), 1, _records(wanted).buffer_info()[0], words.buffer_info()[0]) for bad in refused]
    return walk if outcomes == [0] * len(refused) else None


def _records(signature: Signature) -> array.array[int]:
    """The walker's records. NumPy's dtype objects for these formats live as long as the process."""
    words: list[int] = []
    for param, at in zip(signature.params, signature.offsets):
        if isinstance(param, ScalarParam):
            words += [0] * RECORD_WORDS
            continue
        dtype = numpy_dtype(param.dtype)
        flags = ALIGNED_FLAG | (WRITEABLE_FLAG if param.out else 0)
        shift = dtype.itemsize.bit_length() - 1
        words += [1, id(np.ndarray), id(dtype), param.rank, shift, flags, at, int(param.out), 0, 0]
    return array.array("q", words)


class Block:
    """An argument block: its words, their address, and what keeps the memory they point to alive.

    `apart` is True when no output lies among the addresses of another array argument. It is False also where strides
    interleave; `arrays.overlaps` on two `Packer.views` tells more.
    """

    __slots__ = ("address", "apart", "arguments", "words")

    def __init__(self, size: int) -> None:
        self.words = array.array("q", bytes(8 * size))
        self.address = self.words.buffer_info()[0]
        self.apart = False
        self.arguments: Any = None


class Packer:
    """Arguments of one signature into blocks."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._records = _records(signature)
        self._records_address = self._records.buffer_info()[0]
        self._dtypes = [numpy_dtype(param.dtype) for param in signature.params]
        self._count = len(signature.params)
        self._walk = _walker.get()
        self._scalars = [
            (i, at, param)
            for i, (param, at) in enumerate(zip(signature.params, signature.offsets))
            if isinstance(param, ScalarParam)
        ]

    @property
    def records(self) -> array.array[int] | None:
        """The walker's records, where arrays are read in machine code."""
        return self._records if self._walk is not None else None

    def pack(self, arguments: tuple[Any, ...]) -> Block:
        """A block with all words of `arguments`; the closing words are the kernel's to fill.

        Errors: array/*.
        """
        block = Block(self.signature.words)
        self.pack_into(block, arguments)
        return block

    def pack_into(self, block: Block, arguments: tuple[Any, ...]) -> None:
        """`pack` into a block that nobody uses."""
        first = 0
        if self._walk is not None:
            first = self._walk(arguments, self._count, self._records_address, block.address)
        if first >= 0:
            self._pack_slowly(block, arguments)
        else:
            block.apart = first == APART
        for i, at, param in self._scalars:
            block.words[at] = scalar_word(arguments[i], param)
        block.arguments = arguments

    def _pack_slowly(self, block: Block, arguments: tuple[Any, ...]) -> None:
        """One by one in Python, with every check and every error."""
        signature = self.signature
        signature.check_count(len(arguments))
        views = [
            (param, at, tensor_view(argument, param))
            for param, at, argument in zip(signature.params, signature.offsets, arguments)
            if isinstance(param, TensorParam)
        ]
        same_device((param.name, seen) for param, _, seen in views)
        for _, at, seen in views:
            block.words[at : at + 1 + 2 * len(seen.shape)] = array.array(
                "q", [_signed(seen.ptr), *seen.shape, *seen.strides]
            )
        block.apart = _apart([(param.out, seen) for param, _, seen in views])

    def views(self, block: Block) -> dict[str, ArrayView]:
        """The arrays of a packed block by parameter name: for exact questions that words alone do not answer."""
        return {
            param.name: tensor_view(argument, param)
            for param, argument in zip(self.signature.params, block.arguments)
            if isinstance(param, TensorParam)
        }


def _apart(views: Sequence[tuple[bool, ArrayView]]) -> bool:
    """Whether no output's addresses meet those of another array."""
    spans = [seen.span for _, seen in views]
    for i, (out, _) in enumerate(views):
        for j, (low, high) in enumerate(spans):
            if out and i != j and low < spans[i][1] and spans[i][0] < high:
                return False
    return True


def _signed(address: int) -> int:
    return address if address < 1 << 63 else address - (1 << 64)


class CpuKernel:
    """Loaded code with its signature.

    `workspace` is what it needs beside its arguments. `parallel` kernels call the pool; `static` ones want task `t`
    on worker `t % workers`. `checks` gives the messages of the numbers that the entry may return.
    """

    def __init__(
        self,
        loaded: LoadedObject,
        entry: str,
        signature: Signature,
        *,
        workspace: WorkspaceSize = 0,
        parallel: bool = True,
        static: bool = False,
        checks: Mapping[int, str] | None = None,
    ) -> None:
        self.name = loaded.name
        self.signature = signature
        self.parallel = parallel
        self.checks = dict(checks or {})
        self.entry: Callable[[int], int] = loaded.function(entry)
        self._workspace = self._workspace_function(loaded, workspace)
        self._tail = signature.tail
        self._run_address = 0
        if parallel:
            pool = worker_pool.pool()
            self._run_address = pool.run_static_address if static else pool.run_address

    def _workspace_function(self, loaded: LoadedObject, size: WorkspaceSize) -> int | Callable[[Block], int]:
        if isinstance(size, int):
            return size
        if callable(size):
            return lambda block: int(size(block.words))
        if size not in loaded.addresses:
            raise SymbolMissing(
                doing=f"loading the compiled {loaded.name}",
                found=f"no function {size}",
                expected="the function that tells the size of the workspace",
                pass_name="runtime.launch",
            )
        native = loaded.function(size, _SIZE_TYPE)
        return lambda block: int(native(block.address))

    def prepare(self, block: Block) -> Workspace | None:
        """Fill the closing words of `block`; returns the workspace to give back afterwards, if one is needed."""
        words, tail = block.words, self._tail
        words[tail + 1] = worker_pool.workers() if self.parallel else 1
        words[tail + 2] = self._run_address
        need = self._workspace
        if not isinstance(need, int):
            need = need(block)
        if need <= 0:
            words[tail] = 0
            return None
        held = take_workspace(need)
        words[tail] = held.address
        return held

    def run(self, block: Block) -> None:
        """Run on `block`. Errors: runtime/check-failed."""
        held = self.prepare(block)
        code = self.entry(block.address)
        if held is not None:
            give_workspace(held)
        if code:
            raise self.failure(code)

    def ready(self, block: Block) -> Callable[[], None]:
        """What runs on `block` again and again."""
        return lambda: self.run(block)

    def failure(self, code: int) -> KernelFailed:
        """The error for a number that the entry returned."""
        return KernelFailed(
            doing=f"running {self.name}",
            found=self.checks.get(code, f"check number {code} of the kernel failed"),
            expected="every td.check of the kernel to hold",
            hint="run kernel.sanitize on the same arguments to see the instance and its values",
        )


def called_with(launch: Any, given: Sequence[Any]) -> BoundCalledWith:
    """The error of a bound call that is given arguments: it has its own."""
    return BoundCalledWith(
        doing=f"running {launch!r}",
        found=f"{len(given)} argument{'s' * (len(given) > 1)}",
        expected="none: it runs on those that it is bound to",
        hint="write into the bound arrays, or call the kernel itself",
        span=user_position(),
    )


class CpuLaunch:
    """A kernel bound to its arguments. Calling it runs it again and returns the Outs.

    Keeps the arguments, the workspace and the code alive. Calls from several threads run one after the other when
    there is a workspace to share; what they write is the same arrays in any case.
    """

    def __init__(self, kernel: CpuKernel, block: Block, outs: Any) -> None:
        self.kernel = kernel
        self.block = block
        self.outs = outs
        self._workspace = kernel.prepare(block)
        self._lock = None
        if self._workspace is not None:
            self._lock = threading.Lock()
            _locked.add(self)
            weakref.finalize(self, give_workspace, self._workspace).atexit = False
        self._entry = kernel.entry
        self._address = block.address

    def __repr__(self) -> str:
        given = zip(self.kernel.signature.params, self.block.arguments)
        told = [f"{p.name}{list(a.shape) if hasattr(a, 'shape') else ''}" for p, a in given if a is not None]
        return f"<bound {self.kernel.name.removeprefix('treadle_')}: {', '.join(told)}>"

    def __call__(self, *given: Any) -> Any:
        """Run; returns the Outs. Errors: runtime/check-failed, call/bound."""
        if given:
            raise called_with(self, given)
        if self._lock is None:
            code = self._entry(self._address)
        else:
            with self._lock:
                code = self._entry(self._address)
        if code:
            raise self.kernel.failure(code)
        return self.outs

    launch = __call__

    def renew(self) -> None:
        """Makes the lock anew, which another thread may have held in the parent of a fork."""
        self._lock = threading.Lock()


_locked: weakref.WeakSet[CpuLaunch] = weakref.WeakSet()


def _new_locks() -> None:
    """In a child of a fork no other thread runs a bound call, whatever the parent's threads did."""
    for one in _locked:
        one.renew()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_new_locks)


def bind(kernel: CpuKernel, packer: Packer, arguments: tuple[Any, ...]) -> CpuLaunch:
    """`kernel` bound to `arguments`, all of them given. Errors: array/*."""
    return CpuLaunch(kernel, packer.pack(arguments), outs_of(packer.signature, arguments))


def call(kernel: CpuKernel, packer: Packer, arguments: tuple[Any, ...]) -> Any:
    """Run `kernel` on `arguments`, all of them given; returns the Outs. Errors: array/*, runtime/check-failed."""
    kernel.run(packer.pack(arguments))
    return outs_of(packer.signature, arguments)


def outs_of(signature: Signature, arguments: tuple[Any, ...]) -> Any:
    """The one Out of a call, or the tuple of several; None when there is none."""
    outs = signature.outs
    if len(outs) == 1:
        return arguments[outs[0]]
    return tuple(arguments[i] for i in outs) if outs else None
