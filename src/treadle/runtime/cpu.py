"""Object bytes into memory, and the addresses of their functions. No compiler takes part.

A kernel's entry is `i32 entry(ptr argblock)`, where the argument block is an array of 64-bit words:

    for each tensor argument   data pointer, extents[rank], strides[rank] in elements
    for each scalar argument   one word: the bit pattern, narrow formats in the low bits
    then                       workspace pointer, number of workers, address of the pool's `run`

It returns 0, or the number of the first check that failed. `launch.py` packs the block.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import platform
from collections.abc import Iterable
from typing import Any

import llvmlite.binding

from treadle.runtime.errors import HostLacksFeatures, ObjectUnusable, SymbolMissing
from treadle.runtime.host import host_features, require_tiles
from treadle.runtime.making import making
from treadle.runtime.objects import KINDS, kind_of

llvm: Any = llvmlite.binding  # ships without types

ENTRY_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
"""The C type of a kernel's entry. ctypes releases the GIL around its calls."""

_numbers = itertools.count()


@functools.cache
def _linker() -> Any:
    """The process's one linker. It is never disposed of: threads of the pool run code that it holds."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    linker = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(linker))
    return linker


class LoadedObject:
    """Object code in memory. The addresses hold as long as this object lives."""

    def __init__(self, name: str, tracker: Any, addresses: dict[str, int]) -> None:
        self.name = name
        self.addresses = addresses
        self._tracker = tracker

    def __repr__(self) -> str:
        return f"LoadedObject({self.name!r}, {sorted(self.addresses)})"

    def function(self, symbol: str, prototype: Any = ENTRY_TYPE) -> Any:
        """The function `symbol` as a ctypes callable that keeps the code in memory."""
        callable_ = prototype(self.addresses[symbol])
        callable_.keeps_alive = self
        return callable_

    def pin(self) -> None:
        """Keep the code in memory until the process ends."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))


def load_object(
    code: bytes, symbols: Iterable[str], *, name: str = "object", features: Iterable[str] = ()
) -> LoadedObject:
    """The object `code`, linked into this process, with the addresses of `symbols`.

    `features` are the flags it was compiled for.
    Errors: runtime/object-unusable, runtime/symbol-missing, runtime/host-features, runtime/tiles-refused.
    """
    wanted = frozenset(features)
    missing = wanted - host_features()
    if missing:
        raise HostLacksFeatures(
            doing=f"loading the compiled {name}",
            found="no " + ", ".join(sorted(missing)) + " in this processor",
            expected="every instruction set that the code was compiled for",
            hint="plan for this machine, or for a level that it has: cpu:avx2",
        )
    if "amx_tile" in wanted:
        require_tiles(f"loading the compiled {name}")
    _check_header(code, name)
    wanted_symbols = sorted(set(symbols))
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in wanted_symbols:
        library.export_symbol(symbol)
    try:
        with making():
            tracker = library.link(_linker(), f"{name}.{next(_numbers)}")
    except RuntimeError as error:
        raise SymbolMissing(
            doing=f"loading the compiled {name}",
            found=str(error).strip(),
            expected="the entries " + ", ".join(wanted_symbols) + ", and no symbol that this process lacks",
            pass_name="runtime.load_object",
        ) from error
    return LoadedObject(name, tracker, {symbol: int(tracker[symbol]) for symbol in wanted_symbols})


def _check_header(code: bytes, name: str) -> None:
    """LLVM may abort on bytes that are no object: they must be one of this system and processor."""
    here = (platform.system(), platform.machine())
    found = kind_of(code)
    if found is not None and found == KINDS.get(here):
        return
    raise ObjectUnusable(
        doing=f"loading the compiled {name}",
        found=f"{len(code)} bytes that begin with {code[:8].hex(' ') or 'nothing'}",
        expected="a relocatable " + (" file for ".join(KINDS[here]) if here in KINDS else "file of a known system"),
        hint="clear the cache: treadle cache clear",
        pass_name="runtime.load_object",
    )
