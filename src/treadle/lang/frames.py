"""Frames of interpreted functions, and the leaves of what their names hold.

A *leaf* is a tile or number reached from a name through lists, tuples, dicts and dataclasses. Regions carry leaves, and
a traced `if` merges them.
"""

from __future__ import annotations

import ast
import dataclasses
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from treadle.base.source import Span
from treadle.lang.objects import class_of, listed, table
from treadle.lang.source import FunctionNode, assigned_names
from treadle.lang.storage import Memory

Path = tuple[Any, ...]


class Held(str):
    """The key of what a memory holds: nothing that a user wrote, so no part of a name."""


HELD = Held("tile")


@dataclass
class GoneName:
    """What a name holds after the region or branch that first assigned it."""

    where: str
    span: Span | None


@dataclass
class Nest:
    """Something that the current statement is nested in: a staged loop, a region, a traced branch."""

    kind: str  # "loop", "if", or a region's kind
    existing: set[str] = field(default_factory=set[str])
    containers: dict[int, Any] = field(default_factory=dict[int, Any])


@dataclass
class Frame:
    """A call of an interpreted function."""

    name: str
    file: str
    locals: dict[str, Any]
    local_names: set[str]
    globals: dict[str, Any]
    closure: Callable[[str], tuple[bool, Any]]
    nest: list[Nest] = field(default_factory=list[Nest])
    parent: Frame | None = None
    written: dict[str, Span | None] = field(default_factory=dict[str, Span | None])
    """Where each name was assigned last."""
    inserted: dict[str, Any] = field(default_factory=dict[str, Any])
    """dtype of the first tile assigned to a part of a name."""


def local_names(node: FunctionNode) -> set[str]:
    """Names that belong to the function: parameters and whatever it assigns."""
    args = node.args
    names = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    names |= {a.arg for a in (args.vararg, args.kwarg) if a is not None}
    if not isinstance(node, ast.Lambda):
        names |= set(assigned_names(node.body)[0])
    return names


def cell_lookup(fn: types.FunctionType) -> Callable[[str], tuple[bool, Any]]:
    """Reads the closure of a Python function."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))

    def look(name: str) -> tuple[bool, Any]:
        cell = cells.get(name)
        if cell is None:
            return False, None
        try:
            return True, cell.cell_contents
        except ValueError:
            return False, None

    return look


# ---- containers


def is_container(x: Any) -> bool:
    """Whether leaves are looked for inside `x`."""
    return isinstance(x, (list, tuple, dict, Memory)) or (
        dataclasses.is_dataclass(x) and not isinstance(x, type) and is_user(x)
    )


def is_user(x: Any) -> bool:
    """Whether the object's class is the user's, not the language's."""
    return not type(x).__module__.startswith("treadle.")


def items(x: Any) -> list[tuple[Any, Any]]:
    """The keys and contents of a container."""
    if isinstance(x, dict):
        return list(table(x).items())
    if isinstance(x, (list, tuple)):
        return list(enumerate(listed(x)))
    if isinstance(x, Memory):
        return [(HELD, x.tile)] if hasattr(x, HELD) else []
    return [(f.name, getattr(x, f.name)) for f in dataclasses.fields(x) if hasattr(x, f.name)]


def rebuilt(x: Any, contents: dict[Any, Any]) -> Any:
    """A container like `x` with other contents."""
    if isinstance(x, dict):
        return {k: contents[k] for k in table(x)}
    if isinstance(x, list):
        return [contents[i] for i, _ in items(x)]
    if isinstance(x, tuple):
        values = [contents[i] for i, _ in items(x)]
        return class_of(x)(*values) if hasattr(class_of(x), "_fields") else tuple(values)
    made: Any = object.__new__(class_of(x))
    for key, value in (getattr(x, "__dict__", {}) | contents).items():
        object.__setattr__(made, key, value)
    return made


def put(container: Any, key: Any, value: Any) -> None:
    """Sets one entry of a mutable container or dataclass in place."""
    if isinstance(container, (list, dict)):
        container[key] = value
    else:
        object.__setattr__(container, key, value)


def walk(name: str, x: Any) -> Iterator[tuple[Path, Any]]:
    """Paths and leaves from one name, each container once."""
    seen: set[int] = set()

    def go(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
        if not is_container(value):
            yield path, value
        elif id(value) not in seen:
            seen.add(id(value))
            for key, inner in items(value):
                yield from go((*path, key), inner)

    return go((name,), x)


def mapped(x: Any, change: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """A copy of the structure with leaves changed; the same object where no leaf changes."""
    if not is_container(x):
        return change(path, x)
    found = items(x)
    new = {key: mapped(inner, change, (*path, key)) for key, inner in found}
    return x if all(new[k] is v for k, v in found) else rebuilt(x, new)


def containers(roots: dict[str, Any]) -> dict[int, Any]:
    """All mutable containers reachable from names, by identity."""
    found: dict[int, Any] = {}

    def go(x: Any) -> None:
        if not is_container(x) or id(x) in found:
            return
        if not isinstance(x, tuple):
            found[id(x)] = x
        for _, inner in items(x):
            go(inner)

    for value in roots.values():
        go(value)
    return found


class Snapshot:
    """The names of a frame and the contents of every container they reach, to be restored."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.locals = dict(frame.locals)
        self.containers = containers(frame.locals)
        self.contents = {key: items(x) for key, x in self.containers.items()}

    def restore(self) -> None:
        """Everything as it was."""
        self.frame.locals.clear()
        self.frame.locals.update(self.locals)
        self.restore_containers()

    def restore_containers(self) -> None:
        """The containers' contents as they were."""
        for key, x in self.containers.items():
            old = self.contents[key]
            if isinstance(x, list):
                x[:] = [v for _, v in old]
            elif isinstance(x, dict):
                table(x).clear()
                table(x).update(old)
            else:
                for name, value in old:
                    if getattr(x, name, None) is not value:
                        object.__setattr__(x, name, value)

    def leaves(self) -> dict[Path, Any]:
        """The leaves when the snapshot was taken (call after `restore`)."""
        return frame_leaves(self.locals)


def frame_leaves(names: dict[str, Any]) -> dict[Path, Any]:
    """All leaves of all names."""
    found: dict[Path, Any] = {}
    for name, value in names.items():
        found.update(walk(name, value))
    return found


def copied(x: Any) -> Any:
    """A copy of the containers, the leaves as they are."""
    if not is_container(x):
        return x
    return rebuilt(x, {key: copied(inner) for key, inner in items(x)})


def with_leaf(x: Any, keys: Path, value: Any) -> Any:
    """`x` with one leaf set: mutable containers in place, tuples rebuilt."""
    if not keys:
        return value
    inner = dict(items(x))[keys[0]]
    new = with_leaf(inner, keys[1:], value)
    if new is inner:
        return x
    if isinstance(x, tuple):
        return rebuilt(x, dict(items(x)) | {keys[0]: new})
    put(x, keys[0], new)
    return x


def path_text(path: Path) -> str:
    """A leaf as a user would write it: `st.m`, `pair[0]`; what a memory holds, by the name of the memory."""
    text = str(path[0])
    for key in path[1:]:
        if isinstance(key, Held):
            continue
        text += f".{key}" if isinstance(key, str) else f"[{key}]"
    return text


def path_hint(path: Path) -> str:
    """A leaf as part of a value's name: `st_m`, `pair_0`."""
    keys = [str(k) for k in path if not isinstance(k, Held)]
    return "_".join(k for k in keys if k.isidentifier() or k.isdigit())
