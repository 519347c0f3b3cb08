"""Steps of a derivation as data: what a rewrite was told, and where it left each operation.

A step has the kind of its rule, the arguments of the call, and a forward map: the path that an operation of the program
before has in the program after, or nothing where it is gone. Operations that the map does not mention kept their paths.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from treadle.base.errors import TreadleError, UserError
from treadle.ir.core import Program
from treadle.ir.parser import parse_program

Argument = int | str | bool | list[Any] | dict[str, Any]

FORMAT = (1, 0)
"""Version of the saved form of a derivation."""

PROGRAM_KINDS = (
    "reindex",
    "split",
    "fuse",
    "permute",
    "serialise",
    "move",
    "distribute",
    "dematerialise",
    "recompute",
    "materialise",
    "relayout",
    "factor",
    "regroup",
    "products",
    "gather",
    "apart",
    "fuse_scopes",
    "split_scopes",
    "specialise",
    "enclose",
)
"""Kinds of steps that change a program."""

PLAN_KINDS = ("bind", "distribute", "retime", "refine", "guard")
"""Kinds of steps that change the decisions of a plan."""

DECIDES: dict[str, tuple[str, ...]] = {
    "bind": ("workers", "warps", "consumers", "raster", "turns", "shared"),
    "retime": ("versions", "flight", "ahead"),
    "refine": ("atom", "exact"),
}
"""The axes of families by what they decide; every other axis says how data and work are laid out ("distribute")."""


def decided_by(axis: str) -> str:
    """The kind of step that changes an axis of a family."""
    return next((kind for kind, axes in DECIDES.items() if axis in axes), "distribute")


@dataclass(frozen=True)
class Step:
    """One step. `args` are JSON data; `forward` lists the paths that changed, `None` for what is gone."""

    kind: str
    args: Mapping[str, Argument]
    forward: tuple[tuple[str, str | None], ...] = field(default=())

    def moved(self, path: str) -> str | None:
        """The path after the step of the operation that had `path` before it."""
        return dict(self.forward).get(path, path)

    def data(self) -> dict[str, Any]:
        """As JSON data. *Ensures*: `Step.of(s.data()) == s`."""
        return {"kind": self.kind, "args": dict(self.args), "forward": [list(pair) for pair in self.forward]}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Step:
        """The step of `data()`. *Errors*: `KeyError`, `TypeError`, `ValueError` for other data."""
        args = cast("dict[str, Argument]", dict(data["args"]))
        forward = tuple((str(old), None if new is None else str(new)) for old, new in data["forward"])
        return cls(str(data["kind"]), args, forward)

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{k}={_shown(v)}' for k, v in self.args.items())})"


def _shown(value: Argument) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {_shown(v)}' for k, v in value.items())}}}"
    return str(value)


class StepUnreadable(UserError):
    """A saved derivation that cannot be read, or a step of an unknown kind."""

    code = "rules/unreadable"


class Saved(ABC):
    """What is saved as text."""

    @abstractmethod
    def to_json(self) -> str:
        """The saved form."""

    @classmethod
    @abstractmethod
    def from_json(cls, text: str) -> Self:
        """What was saved. *Errors*: `rules/unreadable`."""

    def save(self, path: str | Path) -> None:
        """Writes the saved form."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What was saved at `path`. *Errors*: `rules/unreadable`."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise unreadable(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise unreadable(f"{path}: no text") from error


def read_record(text: str) -> tuple[list[Program], list[Step]]:
    """The programs and steps of a saved derivation, one program more than steps; nothing is replayed.

    *Errors*: `rules/unreadable`.
    """
    return record_of(loaded(text))


def record_of(data: Any) -> tuple[list[Program], list[Step]]:
    """`read_record` of what is loaded. *Errors*: `rules/unreadable`."""
    with reading():
        told = of_this_version(data)
        texts = [told["program"], *(s["program"] for s in told["steps"])]
        return [parse_program(t, "the derivation") for t in texts], [Step.of(s) for s in told["steps"]]


def loaded(text: str) -> dict[str, Any]:
    """The data of a saved form. *Errors*: `rules/unreadable`."""
    with reading():
        return of_this_version(json.loads(text))


def of_this_version(data: Any) -> dict[str, Any]:
    """The data, where it is of a form that this version reads. *Errors*: `rules/unreadable`, and inside `reading`."""
    if data["format"][0] != FORMAT[0]:
        raise unreadable(f"format {'.'.join(map(str, data['format']))}")
    return cast("dict[str, Any]", data)


@contextmanager
def reading() -> Generator[None]:
    """Whatever goes wrong with saved data inside is wrong with what was saved. *Errors*: `rules/unreadable`."""
    try:
        yield
    except StepUnreadable:
        raise
    except (AttributeError, LookupError, ValueError, TypeError, RecursionError, TreadleError) as error:
        raise unreadable(str(error).splitlines()[0]) from error


def unreadable(found: str) -> StepUnreadable:
    """The error for a text that is no saved derivation."""
    return StepUnreadable(
        doing="loading a derivation",
        found=found,
        expected=f"a derivation saved by this version, format {FORMAT[0]}.x",
        hint="derive the program again and save it",
    )
