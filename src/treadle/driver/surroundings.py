"""What a kernel uses beside its arguments: globals, closures, the functions that it calls and what these use.

Their values are fixed when the kernel is captured, so a kernel that was captured must be captured again when one of
them is another. `Surroundings` remembers them and tells cheaply whether they are still the same.

What lies inside packages that are installed, other than the kernel's own, is not looked at: a name of theirs that the
user's code reads is watched, what their functions read is not.
"""

from __future__ import annotations

import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from treadle.base.errors import TreadleError
from treadle.lang.definition import Definition
from treadle.lang.staging import freeze

_GONE = object()
_OWN = frozenset(("treadle", "numpy", "ml_dtypes", *sys.stdlib_module_names))
"""Packages whose names nobody rebinds."""

_SETS: tuple[type[Any], ...] = (set,)
_DICTS: tuple[type[Any], ...] = (dict,)
_SEQUENCES: tuple[type[Any], ...] = (list, tuple, set)
_DEEPEST = 3
"""How far functions are looked for inside containers and objects."""
_MOST = 2_000
"""How many functions and objects are looked into: a program is made of fewer."""


class Surroundings:
    """The values of names around a definition, as they are now, and around functions that are staged values."""

    def __init__(self, definition: Definition) -> None:
        self._names: list[tuple[Mapping[str, Any], str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._held: list[tuple[Any, Any]] = []
        self._seen: set[int] = set()
        self._attributes: set[tuple[int, str]] = set()
        self._alive: list[Any] = []  # of what is in `_seen`, so that nothing else gets its identity
        self._home = _package(definition.fn.__module__)
        self._function(definition.fn)

    def add(self, values: Iterable[Any]) -> None:
        """Watches what staged values use, too."""
        for value in values:
            self._value(value, ())

    def changed(self) -> bool:
        """Whether a name has another value, or something mutable holds something else."""
        for names, name, value in self._names:
            if names.get(name, _GONE) is not value:
                return True
        for cell, value in self._cells:
            if _contents(cell) is not value:
                return True
        return any(_state(value) != state for value, state in self._held)

    @property
    def watched(self) -> int:
        """How many names, cells and objects are compared."""
        return len(self._names) + len(self._cells) + len(self._held)

    # ---- collecting

    def _foreign(self, module: str | None) -> bool:
        """Whether a module belongs to an installed package that is not the kernel's."""
        package = _package(module)
        return package in _OWN or (package != self._home and _installed(package))

    def _function(self, fn: types.FunctionType) -> None:
        if self._foreign(fn.__module__) or not self._new(fn):
            return
        used = tuple(dict.fromkeys(_names(fn.__code__)))
        for name in used:
            if name in fn.__globals__:
                self._watch(fn.__globals__, name, used)
        for cell in fn.__closure__ or ():
            self._cells.append((cell, _contents(cell)))
            self._value(_contents(cell), used)

    def _watch(self, names: Mapping[str, Any], name: str, used: tuple[str, ...]) -> None:
        self._names.append((names, name, names[name]))
        self._value(names[name], used)

    def _new(self, value: Any) -> bool:
        if id(value) in self._seen or len(self._seen) >= _MOST:
            return False
        self._seen.add(id(value))
        self._alive.append(value)
        return True

    def _value(self, value: Any, used: tuple[str, ...], depth: int = 0) -> None:
        """What a value is made of; `used` are the attributes that the code around it may read."""
        definition = getattr(value, "__treadle_definition__", None)
        if isinstance(definition, Definition):
            self._function(definition.fn)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, (types.ModuleType, type)):
            module = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
            for name in () if _package(module) in _OWN else used:
                if name in vars(value) and (id(value), name) not in self._attributes:
                    self._attributes.add((id(value), name))
                    self._alive.append(value)
                    self._watch(vars(value), name, used)
        elif isinstance(value, (np.ndarray, *_SEQUENCES, *_DICTS)) or hasattr(value, "__dict__"):
            self._object(value, used, depth)

    def _object(self, value: Any, used: tuple[str, ...], depth: int) -> None:
        if not self._new(value):
            return
        own = type(value).__module__.startswith("treadle")
        if not own:
            self._held.append((value, _state(value)))
        for inner in _inside(value) if depth < _DEEPEST else ():
            # Objects of the language do not change; what they hold may be functions of the user.
            if not own or isinstance(inner, types.FunctionType):
                self._value(inner, used, depth + 1)


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


@lru_cache(maxsize=1024)
def _installed(package: str) -> bool:
    """Whether a package's files are where packages are installed, not the user's own."""
    module = sys.modules.get(package)
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    if not isinstance(file, str):
        return False
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return any(Path(file).is_relative_to(f) for f in folders if f)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _GONE


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that code reads beside its own, those of functions and comprehensions inside it among them."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _inside(value: Any) -> Iterable[Any]:
    """The objects in a container or in an object's attributes."""
    if isinstance(value, _SEQUENCES):
        return value
    if isinstance(value, np.ndarray):
        return ()
    return [held for _, held in _pairs(value)]


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    held = cast("dict[Any, Any]", value if isinstance(value, dict) else vars(value))
    return list(held.items())


def _state(value: Any) -> Any:
    """What a mutable object holds, to be compared."""
    try:
        if isinstance(value, _SETS):
            return frozenset(freeze(v) for v in value)
        if isinstance(value, (np.ndarray, *_SEQUENCES)):
            return freeze(value)
        return freeze(_pairs(value))
    except (TreadleError, RecursionError):  # too large, or inside itself: never part of a program
        return None
