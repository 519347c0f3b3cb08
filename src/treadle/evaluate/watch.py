"""Observers of an evaluation: what `sanitize` looks for while the interpreter runs.

A `Watcher` is told of region instances, reads and writes; `Silent` does nothing. `Promises` keeps, for every open
`parallel` region, who wrote and who read each element of each tensor, and reports two instances that interfere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Part
from treadle.algebra.expr import Expr
from treadle.base.source import Span
from treadle.evaluate.tiles import Tile
from treadle.ir.core import Block, Op, Region, Tensor

Index = tuple[Any, ...]


@dataclass(frozen=True)
class Finding:
    """A broken promise or rule seen in a run: its code, what was seen, the lines and the values concerned."""

    code: str
    message: str
    span: Span | None
    other: Span | None = None

    def __str__(self) -> str:
        place = f" ({self.span})" if self.span else ""
        also = f", and {self.other}" if self.other else ""
        return f"{self.code}: {self.message}{place}{also}"


class State(Protocol):
    """What a watcher may read of a run: values and tensors by name, the ranges of parts, numbers of expressions."""

    values: dict[str, Tile]
    arrays: Mapping[str, NDArray[Any]]

    def range(self, part: Part) -> tuple[int, int]: ...

    def number(self, expr: Expr) -> Any: ...


class Silent:
    """The watcher that sees nothing."""

    def reach(self, place: Op | Block, state: State) -> None:
        """An operation runs next, or the end of a block is reached."""

    def enter(self, region: Region, instance: Mapping[str, tuple[int, int]]) -> None:
        """An instance of a region begins."""

    def leave(self, region: Region) -> None:
        """A region is over."""

    def read(self, tensor: Tensor, index: Index, op: Op) -> None:
        """Elements of a tensor are read (the index arrays broadcast together)."""

    def write(self, tensor: Tensor, index: Index, op: Op, atomic: bool) -> None:
        """Elements of a tensor are written."""

    def report(self, code: str, message: str, op: Op) -> None:
        """Something is wrong at an operation."""


@dataclass
class _Log:
    """Who touched what in one running `parallel` region. Instance numbers start at 1; 0 is nobody, -1 several."""

    region: Region
    number: int
    names: list[str]
    writer: dict[str, NDArray[np.int64]]
    reader: dict[str, NDArray[np.int64]]
    writer_op: dict[str, Op]


class Promises(Silent):
    """Collects findings; at most `limit`, one a code and pair of lines. `fresh` tensors begin without values."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], limit: int = 20, fresh: Collection[str] = ()) -> None:
        self.shapes = shapes
        self.limit = limit
        self.findings: list[Finding] = []
        self._seen: set[tuple[str, str, str]] = set()
        self._logs: list[_Log] = []
        self._written = {name: np.zeros(shapes[name], np.bool_) for name in fresh}

    def enter(self, region: Region, instance: Mapping[str, tuple[int, int]]) -> None:
        if region.kind != "parallel":
            return
        if not self._logs or self._logs[-1].region is not region:
            self._logs.append(_Log(region, 0, [""], {}, {}, {}))
        log = self._logs[-1]
        log.number += 1
        log.names.append(", ".join(f"{k} = {a}" if b == a + 1 else f"{k} = {a}..{b}" for k, (a, b) in instance.items()))

    def leave(self, region: Region) -> None:
        if self._logs and self._logs[-1].region is region:
            self._logs.pop()

    def read(self, tensor: Tensor, index: Index, op: Op) -> None:
        self._has_values(tensor, index, op)
        for log in self._logs:
            writer = log.writer.get(tensor.name)
            if writer is not None:
                self._clash(log, writer, tensor, index, op, "reads what it does not own, written by")
            reader = log.reader.setdefault(tensor.name, np.zeros(self.shapes[tensor.name], np.int64))
            now = reader[index]
            reader[index] = np.where((now == 0) | (now == log.number), log.number, -1)

    def write(self, tensor: Tensor, index: Index, op: Op, atomic: bool) -> None:
        if atomic:
            self._has_values(tensor, index, op)
        elif tensor.name in self._written:
            self._written[tensor.name][index] = True
        for log in self._logs:
            reader = log.reader.get(tensor.name)
            if reader is not None:
                self._clash(log, reader, tensor, index, op, "writes what is read by")
            if atomic:
                continue
            writer = log.writer.setdefault(tensor.name, np.zeros(self.shapes[tensor.name], np.int64))
            self._clash(log, writer, tensor, index, op, "writes what is written by")
            writer[index] = log.number
            log.writer_op[tensor.name] = op

    def report(self, code: str, message: str, op: Op) -> None:
        self._add(Finding(code, message, op.span))

    def _has_values(self, tensor: Tensor, index: Index, op: Op) -> None:
        written = self._written.get(tensor.name)
        if written is not None and not np.all(written[index]):
            self.report("read/uninitialised", f"{tensor.name} has elements that were never written", op)

    def _clash(self, log: _Log, owner: NDArray[np.int64], tensor: Tensor, index: Index, op: Op, what: str) -> None:
        held = np.asarray(owner[index])
        bad = (held != 0) & (held != log.number)
        if not bad.any():
            return
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        coords = [int(np.broadcast_to(np.asarray(i), held.shape)[where]) for i in index]
        other = int(held[where])
        who = f"the instance {log.names[other]}" if other > 0 else "several instances"
        element = f"{tensor.name}[{', '.join(map(str, coords))}]"
        message = f"the instance {log.names[log.number]} {what} {who}: {element}"
        earlier = log.writer_op.get(tensor.name)
        self._add(Finding("parallel/interference", message, op.span, earlier.span if earlier else None))

    def _add(self, finding: Finding) -> None:
        key = (finding.code, str(finding.span), str(finding.other))
        if key not in self._seen and len(self.findings) < self.limit:
            self._seen.add(key)
            self.findings.append(finding)
