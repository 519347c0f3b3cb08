"""The runtime's own machine code: LLVM IR text in this room, made into an object once and kept in the cache.

This room has no compiler. `install_compiler` takes one, which is asked only when an object is not cached: a process
whose cache is warm runs without.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable

from treadle.runtime.cache import content_key, default_cache
from treadle.runtime.cpu import LoadedObject, load_object
from treadle.runtime.errors import NativeCodeMissing

ObjectCompiler = Callable[[str, str], bytes]
"""`(LLVM IR text, name) -> object bytes` for the baseline of this platform."""

_compiler: list[ObjectCompiler] = []


def install_compiler(compiler: ObjectCompiler) -> None:
    """Have the runtime's own texts compiled by `compiler` when their objects are not cached."""
    _compiler[:] = [compiler]


def native_key(name: str, text: str) -> str:
    """The cache key of the object made from `text`."""
    return content_key("runtime", platform.system(), platform.machine(), name, text)


def load_native(name: str, text: str, symbols: Iterable[str]) -> LoadedObject:
    """The object of `text` in memory, for as long as the process lives.

    Errors: runtime/no-native-code.
    """
    loaded = load_object(_object(name, text), symbols, name=name)
    loaded.pin()
    return loaded


def _object(name: str, text: str) -> bytes:
    cache, key = default_cache(), native_key(name, text)
    entry = cache.get(key)
    if entry is not None and "code.o" in entry.files:
        return entry.files["code.o"]
    if not _compiler:
        raise NativeCodeMissing(
            doing=f"loading {name}, a part of the runtime",
            found="no object of it in the cache, and no compiler is installed",
            expected="one of the two",
            hint="import treadle, which installs its compiler, and keep a cache that can be written",
        )
    code = _compiler[0](text, name)
    cache.put(key, {"code.o": code}, {"what": name})
    return code
