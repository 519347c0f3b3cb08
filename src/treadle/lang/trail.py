"""Recording the trail of a capture: each statement, when it is captured, and what the names of its function hold.

The records are raw while the capture runs (regions are captured several times, operations are dropped and renamed);
`Recorder.settled` makes the `Trail` of the finished program from what is left.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from treadle.algebra.dims import Part
from treadle.algebra.expr import Atom, Expr, Fn, of
from treadle.ir.core import Block, Op, Program, Region, Value
from treadle.ir.trail import Call, Step, Trail
from treadle.lang.dims import PartRef
from treadle.lang.frames import Frame, GoneName, copied, mapped
from treadle.lang.source import FunctionNode
from treadle.lang.subscript import TensorRef
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.ir.builder import Builder

Raw = tuple[int, Call, int, dict[str, Any], bool]


class Recorder:
    """What one capture records. A step belongs to the block that is open and to the operations made so far in it."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.raw: dict[Block, list[Raw]] = {}
        self.calls: list[Call] = []

    @contextmanager
    def calling(self, frame: Frame, node: FunctionNode) -> Generator[None]:
        """Steps inside belong to this call."""
        caller = self.calls[-1] if self.calls else None
        self.calls.append(Call(frame.name, frame.file, node.lineno, frame.globals, caller))
        try:
            yield
        finally:
            self.calls.pop()

    def step(self, frame: Frame, node: ast.AST, *, stop: bool = False) -> None:
        """A statement of the current call is captured next."""
        if not self.calls:
            return
        block, call, line = self.builder.block, self.calls[-1], getattr(node, "lineno", 0)
        call.lines.add(line)
        call.last = line
        kept = self.raw.setdefault(block, [])
        at = len(block.ops)
        while kept and kept[-1][0] > at:  # operations were taken back, and their statements with them
            kept.pop()
        kept.append((at, call, line, {n: copied(v) for n, v in frame.locals.items()}, stop))

    def stop(self) -> None:
        """The statement recorded last says `breakpoint()`."""
        kept = self.raw.get(self.builder.block)
        if kept:
            kept[-1] = (*kept[-1][:4], True)

    # ---- the finished trail

    def order(self, program: Program) -> dict[Block, list[Op]]:
        """The operations of every block, before dead ones are dropped."""
        blocks = [program.body, *(b for op in program.body.walk() for b in op.blocks)]
        return {b: list(b.ops) for b in blocks if b in self.raw}

    def settled(self, order: dict[Block, list[Op]], before: dict[str, Value]) -> Trail:
        """The trail of a program whose dead operations were dropped since `order`, and whose values were renamed:
        `before` has them by their names of the capture."""
        trail = Trail(mapped=mapped)
        names = {old: v.name for old, v in before.items()}
        for block, ops in order.items():
            left = {id(op) for op in block.ops}
            for at, call, line, values, stop in self.raw[block]:
                found = {n: _settled(v, names) for n, v in values.items() if not isinstance(v, GoneName)}
                step = Step(call, line, found, stop)
                anchor = next((op for op in ops[at:] if id(op) in left), None)
                place = trail.at_end.setdefault(block, []) if anchor is None else trail.before.setdefault(anchor, [])
                place.append(step)
        return trail


def values_by_name(program: Program) -> dict[str, Value]:
    """Every value of a program by its present name."""
    found = {s.value.name: s.value for s in program.scalars}
    for op in program.body.walk():
        found |= {v.name: v for v in (*(op.carried if isinstance(op, Region) else ()), *op.results)}
    return found


def _settled(x: Any, names: dict[str, str]) -> Any:
    """What a name held, with the program's values in place of traced ones."""

    def renamed(atom: Atom) -> Expr | None:
        if isinstance(atom, Fn) and atom.name in names:
            return of(Fn(names[atom.name], tuple(a.rewrite(renamed) for a in atom.args)))
        return None

    def expression(e: Expr) -> Expr:
        return e.rewrite(renamed) if e.functions & names.keys() else e

    def leaf(_: Any, value: Any) -> Any:
        if isinstance(value, Tile):
            return value.known_value or (None if value.expr is None else expression(value.expr))
        if isinstance(value, TensorRef):
            return value.tensor
        if isinstance(value, PartRef):
            return _part(value.part, expression)
        return value

    return mapped(x, leaf)


def _part(part: Any, change: Callable[[Expr], Expr]) -> Any:
    """The part with its bounds changed; what is none (a handle that the user made by hand) as it is."""
    return Part(part.dim, change(part.lo), change(part.hi)) if isinstance(part, Part) else part
