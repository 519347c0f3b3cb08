"""What a kernel uses beside its arguments: globals, closures, the functions that it calls and what these use.

Their values are fixed when the kernel is captured, so a kernel that was captured must be captured again when one of
them is another. `Surroundings` remembers them and tells cheaply whether they are still the same.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, Mapping
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


class Surroundings:
    """The values of names around a definition, as they are now, and around functions that are staged values."""

    def __init__(self, definition: Definition) -> None:
        self._names: list[tuple[Mapping[str, Any], str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._held: list[tuple[Any, Any]] = []
        self._seen: set[int] = set()
        self._attributes: set[tuple[int, str]] = set()
        self._alive: list[Any] = []  # of what is in `_seen`, so that nothing else gets its identity
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

    # ---- collecting

    def _function(self, fn: types.FunctionType) -> None:
        if _is_own(fn.__module__) or not self._new(fn):
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
        if id(value) in self._seen:
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
            for name in () if _is_own(module) else used:
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


def _is_own(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in _OWN


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
