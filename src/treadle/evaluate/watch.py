"""Observers of an evaluation: what `sanitize` looks for while the interpreter runs.

A `Watcher` is told of region instances, reads and writes; `Silent` does nothing. `Promises` keeps, for every running
region whose instances promise to be independent, who wrote and who read each element of the tensors that are stored
to, and reports two instances that interfere. Tensors that share memory are watched by their places in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Part
from treadle.algebra.expr import Expr
from treadle.base.source import Span
from treadle.evaluate.spaces import Spaces
from treadle.evaluate.tiles import Tile
from treadle.ir.core import Block, Op, Program, Region, Tensor
from treadle.ir.ops.access import Store

Index = tuple[Any, ...]
Places = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Finding:
    """A broken promise or rule seen in a run: its code, what was seen, the lines, instances and values concerned."""

    code: str
    message: str
    span: Span | None
    other: Span | None = None
    instances: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()

    def __str__(self) -> str:
        place = f" ({self.span})" if self.span else ""
        also = f", and {self.other}" if self.other else ""
        return f"{self.code}: {self.message}{place}{also}"

    def __repr__(self) -> str:
        return f"<{self}>"


class State(Protocol):
    """What a watcher may read of a run: values and tensors by name, the ranges of parts, numbers of expressions."""

    values: dict[str, Tile]
    arrays: Mapping[str, NDArray[Any]]

    def range(self, part: Part) -> tuple[int, int]: ...

    def number(self, expr: Expr) -> Any: ...


class Silent:
    """The watcher that sees nothing."""

    prints = True
    """Whether `td.print` shows anything: not where a program runs several times to be looked at."""

    laws = False
    """Whether the laws of the user's monoids are put to the test on the states of the run."""

    def reach(self, place: Op | Block, state: State) -> None:
        """An operation runs next, or the end of a block is reached."""

    def enter(self, region: Region, instance: Mapping[str, tuple[int, int]]) -> None:
        """An instance of a region begins."""

    def leave(self, region: Region) -> None:
        """A region is over."""

    def sees(self, tensor: Tensor) -> bool:
        """Whether it wants to be told of reads of a tensor now."""
        return False

    def read(self, tensor: Tensor, index: Index, op: Op) -> None:
        """Elements of a tensor are read (the index arrays broadcast together)."""

    def write(self, tensor: Tensor, index: Index, op: Op, atomic: bool) -> None:
        """Elements of a tensor are written."""

    def report(self, code: str, message: str, op: Op, other: Op | None = None, instances: tuple[str, ...] = ()) -> None:
        """Something is wrong at an operation, and another one that it does not go with."""


def instance_text(instance: Mapping[str, tuple[int, int]]) -> str:
    """An instance by the coordinates or blocks of its arguments."""
    return ", ".join(f"{k} = {a}" if b == a + 1 else f"{k} = {a}..{b}" for k, (a, b) in instance.items())


@dataclass
class _Touches:
    """Who touched the places of a space last: instance numbers (0 nobody, -1 several), and by which operation."""

    who: NDArray[np.int64]
    what: NDArray[np.int64]


@dataclass
class _Log:
    """One running region whose instances promise to be independent. Instance numbers start at 1."""

    region: Region
    spaces: set[int]
    number: int = 0
    names: list[str] = field(default_factory=lambda: [""])
    touched: dict[tuple[str, int], _Touches] = field(default_factory=dict[tuple[str, int], _Touches])


class Promises(Silent):
    """Collects findings; at most `limit`, one a code and pair of lines. `fresh` tensors begin without values."""

    prints = False
    laws = True

    def __init__(
        self,
        program: Program,
        shapes: Mapping[str, tuple[int, ...]],
        spaces: Spaces,
        limit: int = 20,
        fresh: Collection[str] = (),
    ) -> None:
        self.shapes = shapes
        self.spaces = spaces
        self.limit = limit
        self.findings: list[Finding] = []
        self.ops = list(program.body.walk())
        self.writer = {t: np.zeros(shapes[t], np.int64) for t in _stored(program.body.ops) if t in shapes}
        """For each element of the tensors that are stored to, the number of the operation that wrote it last."""
        self._number = {id(op): i + 1 for i, op in enumerate(self.ops)}
        self._seen: set[tuple[str, str, str]] = set()
        self._logs: list[_Log] = []
        self._stored: dict[int, set[int]] = {}
        self._free: dict[int, bool] = {}
        self._written = {name: np.zeros(shapes[name], np.bool_) for name in fresh}

    def writer_of(self, tensor: str, at: tuple[int, ...]) -> Op | None:
        """The operation that wrote an element last."""
        number = int(self.writer[tensor][at])
        return self.ops[number - 1] if number else None

    # ---- instances

    def enter(self, region: Region, instance: Mapping[str, tuple[int, int]]) -> None:
        free = self._free.get(id(region))
        if free is None:
            free = self._free[id(region)] = _independent(region)
        if not free:
            return
        if not self._logs or self._logs[-1].region is not region:
            self._logs.append(_Log(region, self._stored_spaces(region)))
        log = self._logs[-1]
        log.number += 1
        log.names.append(instance_text(instance))

    def leave(self, region: Region) -> None:
        if self._logs and self._logs[-1].region is region:
            self._logs.pop()

    def _stored_spaces(self, region: Region) -> set[int]:
        if id(region) not in self._stored:
            names = _stored(region.body.ops)
            self._stored[id(region)] = {self.spaces.views[n].space for n in names if n in self.spaces.views}
        return self._stored[id(region)]

    # ---- accesses

    def sees(self, tensor: Tensor) -> bool:
        if tensor.name in self._written:
            return True
        space = self.spaces.views[tensor.name].space
        for log in self._logs:
            if space in log.spaces:
                return True
        return False

    def read(self, tensor: Tensor, index: Index, op: Op) -> None:
        self._has_values(tensor, index, op)
        view = self.spaces.views[tensor.name]
        for log in self._logs:
            if view.space in log.spaces:
                places = view.places(index)
                for kind, words in (("write", "written by"), ("atomic", "updated by")):
                    self._clash(log, kind, places, tensor, index, op, f"reads what it does not own, {words}")
                self._touch(log, "read", view.space, places, op)

    def write(self, tensor: Tensor, index: Index, op: Op, atomic: bool) -> None:
        if atomic:
            self._has_values(tensor, index, op)
        elif tensor.name in self._written:
            self._written[tensor.name][index] = True
        self.writer[tensor.name][index] = self._number[id(op)]
        view = self.spaces.views[tensor.name]
        for log in self._logs:
            places = view.places(index)
            self._clash(log, "read", places, tensor, index, op, "writes what is read by")
            self._clash(log, "write", places, tensor, index, op, "writes what is written by")
            if not atomic:
                self._clash(log, "atomic", places, tensor, index, op, "writes what is updated by")
            self._touch(log, "atomic" if atomic else "write", view.space, places, op)

    def report(self, code: str, message: str, op: Op, other: Op | None = None, instances: tuple[str, ...] = ()) -> None:
        self._add(Finding(code, message, op.span, None if other is None else other.span, instances))

    def _has_values(self, tensor: Tensor, index: Index, op: Op) -> None:
        written = self._written.get(tensor.name)
        if written is not None and not np.all(written[index]):
            self.report("read/uninitialised", f"{tensor.name} has elements that were never written", op)

    def _touches(self, log: _Log, kind: str, space: int) -> _Touches:
        key = (kind, space)
        if key not in log.touched:
            size = self.spaces.sizes[space]
            log.touched[key] = _Touches(np.zeros(size, np.int64), np.zeros(size, np.int64))
        return log.touched[key]

    def _touch(self, log: _Log, kind: str, space: int, places: Places, op: Op) -> None:
        touches = self._touches(log, kind, space)
        now = touches.who[places]
        touches.who[places] = np.where((now == 0) | (now == log.number), log.number, -1)
        touches.what[places] = self._number[id(op)]

    def _clash(self, log: _Log, kind: str, places: Places, tensor: Tensor, index: Index, op: Op, what: str) -> None:
        touches = log.touched.get((kind, self.spaces.views[tensor.name].space))
        if touches is None:
            return
        held = touches.who[places]
        bad = (held != 0) & (held != log.number)
        if not bad.any():
            return
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        shape = held.shape[:-1]
        coords = [int(np.broadcast_to(np.asarray(i), shape)[where[:-1]]) for i in index]
        other = int(held[where])
        who = f"the instance {log.names[other]}" if other > 0 else "several instances"
        element = f"{tensor.name}[{', '.join(map(str, coords))}]"
        message = f"the instance {log.names[log.number]} {what} {who}: {element}"
        earlier = self.ops[int(touches.what[places][where]) - 1]
        names = (log.names[log.number], *((log.names[other],) if other > 0 else ()))
        self._add(Finding("parallel/interference", message, op.span, earlier.span, names))

    def _add(self, finding: Finding) -> None:
        key = (finding.code, str(finding.span), str(finding.other))
        if key not in self._seen and len(self.findings) < self.limit:
            self._seen.add(key)
            self.findings.append(finding)


def _independent(region: Region) -> bool:
    """Whether instances promise that none reads or writes what another writes: also those of a fold that stores."""
    if region.kind == "parallel":
        return True
    return region.kind == "reduce" and region.order in ("unordered", "ordered") and bool(_stored(region.body.ops))


def _stored(ops: list[Op]) -> set[str]:
    """Names of the tensors that the operations store to, nested ones too."""
    found: set[str] = set()
    for op in ops:
        if isinstance(op, Store):
            found.add(op.tensor.name)
        for block in op.blocks:
            found |= _stored(block.ops)
    return found
