"""Copies of programs and blocks that share nothing which a pass may edit: operations, lists, region arguments.

Dimensions, tensors and spans are identities or constants and stay what they are.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, cast

from treadle.algebra.dims import Part
from treadle.algebra.expr import Atom, Expr, Fn, Sym, of
from treadle.base.names import Names
from treadle.ir.core import AxisSub, Block, If, Merge, Op, Program, Region, RegionArg, Sub, TileType, Value
from treadle.ir.ops.fold import Fold, Scan

NESTED = ("results", "carried", "span", "body", "then", "orelse", "stages", "merge", "merges")


def clone_program(program: Program) -> Program:
    """A copy whose blocks, operations and values are its own; value and region names are the same.

    *Ensures*: it prints as `program` does.
    """
    cloner = Cloner(lambda v: Value(v.name, v.type, v.hint))
    for parameter in program.scalars:
        cloner.values[parameter.value.name] = parameter.value
    made = copy.copy(program)
    made.dims, made.tensors, made.scalars = list(program.dims), list(program.tensors), list(program.scalars)
    made.lets, made.requires, made.hidden = dict(program.lets), list(program.requires), list(program.hidden)
    made.body = cloner.block(program.body)
    return made


class Cloner:
    """Copies blocks; `values` says what stands for a value by name, `fresh` makes the values that the copy defines.

    With `names` (a block that is copied more than once), regions' arguments get fresh names too, and regions none.
    """

    def __init__(self, fresh: Callable[[Value], Value], names: Names | None = None) -> None:
        self.fresh = fresh
        self.names = names
        self.values: dict[str, Value] = {}
        self.symbols: dict[str, Expr] = {}

    # ---- blocks and operations

    def block(self, block: Block) -> Block:
        """The copy of a block."""
        made = Block()
        for op in block.ops:
            made.ops.append(self.op(op))
        made.yields = [self.value(v) for v in block.yields]
        return made

    def op(self, op: Op) -> Op:
        """The copy of an operation, whose results stand for the old ones from now on."""
        made = copy.copy(op)
        if isinstance(made, Region) and isinstance(op, Region):
            self.region(made, op)
        else:
            self.fields(made, op)
        if isinstance(made, If) and isinstance(op, If):
            made.then, made.orelse = self.block(op.then), self.block(op.orelse)
        elif isinstance(made, Fold | Scan) and isinstance(op, Fold | Scan) and isinstance(op.merge, Merge):
            made.merge = self.merge(op.merge)
        made.results = [self.define(v) for v in op.results]
        return made

    def region(self, made: Region, op: Region) -> None:
        made.inits = [self.value(v) for v in op.inits]
        made.merges = [self.merge(m) for m in op.merges]
        made.args = [self.arg(a) for a in op.args]
        made.stages = list(op.stages)
        made.carried = [self.define(v) for v in op.carried]
        made.body = self.block(op.body)
        if self.names is not None:
            made.name = ""

    def arg(self, arg: RegionArg) -> RegionArg:
        domain, size = self.part(arg.domain), None if arg.size is None else self.expr(arg.size)
        made = dataclasses.replace(arg, domain=domain, size=size)
        if self.names is not None:
            made.name = self.names.fresh(arg.name)
            self.symbols[arg.name] = made.index
            self.symbols |= {f"{arg.name}.start": made.part.lo, f"{arg.name}.stop": made.part.hi}
        return made

    def merge(self, merge: Merge) -> Merge:
        """The copy of a monoid."""
        identity = self.block(merge.identity)
        left, right = [self.define(v) for v in merge.left], [self.define(v) for v in merge.right]
        return dataclasses.replace(merge, left=left, right=right, body=self.block(merge.body), identity=identity)

    def fields(self, made: Op, op: Op) -> None:
        for field in dataclasses.fields(op):
            if field.name not in NESTED:
                setattr(made, field.name, self.item(getattr(op, field.name)))

    # ---- what fields hold

    def item(self, item: Any) -> Any:
        """The copy of a field's content."""
        match item:
            case Value():
                return self.value(item)
            case Expr():
                return self.expr(item)
            case Part():
                return self.part(item)
            case Sub():
                return self.sub(item)
            case tuple():
                return tuple(self.item(x) for x in cast("tuple[Any, ...]", item))
            case list():
                return [self.item(x) for x in cast("list[Any]", item)]
            case _:
                return item

    def sub(self, sub: Sub) -> AxisSub:
        part = None if sub.part is None else self.part(sub.part)
        index = None if sub.index is None else self.expr(sub.index)
        return Sub(part, index, None if sub.tile is None else self.value(sub.tile), sub.promised)

    def value(self, value: Value) -> Value:
        """What stands for a value."""
        return self.values.get(value.name, value)

    def define(self, value: Value) -> Value:
        """A new value for one that the copied block defines."""
        made = self.fresh(value)
        made.type = self.type(value.type)
        self.values[value.name] = made
        return made

    def type(self, type: TileType) -> TileType:
        """A type with the symbols and values of its bounds replaced."""
        return TileType(type.dtype, tuple(self.part(a) for a in type.axes))

    def part(self, part: Part) -> Part:
        """A part with the symbols and values of its bounds replaced."""
        lo, hi = self.expr(part.lo), self.expr(part.hi)
        return part if lo is part.lo and hi is part.hi else Part(part.dim, lo, hi, part.label)

    def expr(self, expr: Expr) -> Expr:
        """An expression with symbols and values replaced."""
        if not (expr.symbols & self.symbols.keys()) and not (expr.functions & self.values.keys()):
            return expr
        return expr.rewrite(self.atom)

    def atom(self, atom: Atom) -> Expr | None:
        if isinstance(atom, Sym):
            return self.symbols.get(atom.name)
        if isinstance(atom, Fn) and atom.name in self.values:
            return of(Fn(self.values[atom.name].name, tuple(a.rewrite(self.atom) for a in atom.args)))
        return None
