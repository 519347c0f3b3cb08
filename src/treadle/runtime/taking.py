"""Calls whose layout is known, taken by one builtin: machine code of `walker_ir.py` as objects that Python calls.

`Known` has the layouts of the calls of one signature, each with an object. `Slot.take(args)` reads NumPy arguments into
the slot's argument block and returns the object of their layout, or `MISS`: about a tenth of a microsecond, where
ctypes takes one. Slots are for one call at a time; a caller takes one from the list and puts it back.
"""

from __future__ import annotations

import array
import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.runtime.errors import NativeCodeMissing
from treadle.runtime.making import making
from treadle.runtime.native import load_native
from treadle.runtime.walker_ir import PLACE, TAKE, WALKER_IR

MISS = object()
"""What a call that must take the long way gives."""

MOST = 8
"""Layouts that are compared one after the other: with more, the list begins anew."""

ALIGNED = 64
_METH_O = 8


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Builtins:
    """The two methods, or nothing where they are not to be trusted."""

    def __init__(self) -> None:
        self.tried = False
        self.methods: dict[str, _Method] = {}

    def make(self, symbol: str, *addresses: int) -> Callable[[Any], Any]:
        """A builtin with these addresses, which are its caller's to keep alive."""
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
        held = struct.pack(f"<{len(addresses)}Q", *addresses)
        return new(ctypes.addressof(self.methods[symbol]), held, ctypes.py_object())

    def ready(self) -> bool:
        """Whether there are builtins, which is tried once: they read the methods where these lie."""
        if not self.tried:
            with making():
                if not self.tried:
                    self.methods = _methods()
                    if self.methods and not _right(self):
                        self.methods = {}
                    self.tried = True
        return bool(self.methods)


_builtins = _Builtins()
_numbers = list(range(ALIGNED))
_numbers_at = array.array("q", map(id, _numbers))


def _methods() -> dict[str, _Method]:
    if bytes.__basicsize__ != 33 or object.__basicsize__ != 16:
        return {}
    try:
        code = load_native("treadle_walker", WALKER_IR, [TAKE, PLACE])
    except NativeCodeMissing:
        return {}
    return {name: _Method(name.encode(), code.addresses[name], _METH_O, None) for name in (TAKE, PLACE)}


def _right(builtins: _Builtins) -> bool:
    """Whether the builtins do on a sample what they should: an address that is placed, and a reference that is counted
    where a call is none of those known."""
    word = array.array("q", [0])
    place = builtins.make(PLACE, word.buffer_info()[0], _numbers_at.buffer_info()[0])
    raw = np.empty(ALIGNED + 8, np.uint8)
    address = int(raw.__array_interface__["data"][0])
    skip = place(raw)
    known = array.array("q", [1, 0, 0, 0, 0, 0, 0, id(MISS)])  # of one argument, and no layouts
    take = builtins.make(TAKE, 0, known.buffer_info()[0])
    before = sys.getrefcount(MISS)
    found = take(())
    counted = found is MISS and sys.getrefcount(MISS) == before + 1
    return skip == -address % ALIGNED and word[0] == address + skip and counted


class Slot:
    """An argument block with the builtins that fill it in."""

    __slots__ = ("address", "kept", "place", "take", "words")

    def __init__(self, size: int, known: int, outs: Sequence[int], kept: Any) -> None:
        self.kept = kept  # what the builtin reads
        self.words = array.array("q", bytes(8 * size))
        self.address = self.words.buffer_info()[0]
        self.take = _builtins.make(TAKE, self.address, known)
        self.place = {at: _builtins.make(PLACE, self.address + 8 * at, _numbers_at.buffer_info()[0]) for at in outs}
        """For the first word of an output: takes the bytes that were allocated for it, with room for its alignment,
        fills in the address, and returns how many bytes are before it."""


class Known:
    """Layouts of calls of one signature. `records` are the walker's; `masks` say which bits of each word of a block
    are of the layout; `outs` are the first words of outputs that calls leave out."""

    def __init__(self, count: int, records: array.array[int], masks: Sequence[int], outs: Sequence[int]) -> None:
        self._count = count
        self._records = records
        self._masks = array.array("q", masks)
        self._outs = outs
        size = len(masks)
        self._rows = array.array("q", bytes(8 * size * MOST))
        self._ids = array.array("q", bytes(8 * MOST))
        self._objects: list[Any] = []
        self._adding = threading.Lock()
        addresses = [a.buffer_info()[0] for a in (records, self._masks, self._rows, self._ids)]
        words = [count, addresses[0], size, addresses[1], 0, addresses[2], addresses[3], id(MISS)]
        self._words = array.array("q", words)
        self.slots: list[Slot] = []

    def slot(self) -> Slot:
        """Another slot, to be appended to `slots` after a call."""
        kept = self._words, self._records, self._masks, self._rows, self._ids, self._objects
        return Slot(len(self._masks), self._words.buffer_info()[0], self._outs, kept)

    def anew(self) -> Known:
        """The same without layouts."""
        return Known(self._count, self._records, self._masks, self._outs)

    @property
    def full(self) -> bool:
        """Whether no layout can be added."""
        return len(self._objects) >= MOST

    def finds(self, found: Any) -> bool:
        """Whether `take` returns it for some layout."""
        return any(o is found for o in self._objects)

    def add(self, words: array.array[int], found: Any) -> None:
        """Remembers a block's layout with what `take` returns for it, unless it is full or somebody adds."""
        # Of two threads that wrote one row, one would get what the other found. Nobody waits: whoever is adding may be
        # this very thread, before a signal, or one that a fork left behind. The layout is remembered another time.
        if not self._adding.acquire(blocking=False):
            return
        try:
            at, size = len(self._objects), len(self._masks)
            if at >= MOST:
                return
            self._objects.append(found)
            self._rows[at * size : (at + 1) * size] = words
            self._ids[at] = id(found)
            self._words[4] = at + 1  # last: another thread may be looking
        finally:
            self._adding.release()


def can_take() -> bool:
    """Whether this Python and this NumPy are as the machine code reads them."""
    return _builtins.ready()
