"""The runtime's tests keep what they make in a cache of their own, and give the runtime the toolchain's compiler."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator

import pytest

from treadle.runtime import cache, native
from treadle.runtime.cpu import LoadedObject, load_object
from treadle.toolchain.llvm import compile_ir


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        before, held = os.environ.get("TREADLE_CACHE"), list(cache._default)
        os.environ["TREADLE_CACHE"] = folder
        cache._default.clear()
        native.install_compiler(lambda text, name: compile_ir(text, cpu_features="", name=name).object)
        yield folder
        cache._default[:] = held
        if before is None:
            del os.environ["TREADLE_CACHE"]
        else:
            os.environ["TREADLE_CACHE"] = before


@pytest.fixture(scope="session")
def load() -> Callable[..., LoadedObject]:
    """`load(text, *symbols)`: LLVM IR for the baseline, in memory."""

    def loader(text: str, *symbols: str) -> LoadedObject:
        return load_object(compile_ir(text, cpu_features="", name="test").object, symbols, name="test")

    return loader
