"""Whole-program edits: expressions mapped, values replaced, dead operations dropped, names given.

Operations are edited in place through their dataclass fields, so that an operation class added later is covered.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any, cast

from treadle.algebra.dims import Part
from treadle.algebra.expr import Atom, Constraint, Expr, Fn, of
from treadle.base.names import Names
from treadle.ir.core import Block, Op, Program, Region, RegionArg, Sub, TileType, Value
from treadle.ir.ops.access import Store
from treadle.ir.ops.debug import Check, Print

NOT_EDITED = ("results", "carried", "span", "body", "then", "orelse", "stages", "merge", "merges")
"""Fields of operations that hold what they define, or blocks, which are walked by themselves."""

ValueChange = Callable[[Value], Value]
ExprChange = Callable[[Expr], Expr]


def operand_names(op: Op) -> set[str]:
    """Names of the values that `op` itself uses: operands, and values mentioned in its expressions and types.

    The blocks of a region or `if` are not entered.
    """
    names = {v.name for v in op.operands}
    for expr in expressions(op):
        names |= {n for n in expr.functions if n.startswith("%")}
    return names


def expressions(op: Op) -> list[Expr]:
    """All index expressions of the operation itself and of its results' types, blocks excluded."""
    found: list[Expr] = []

    def note(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    _edit(op, lambda v: v, note)
    for value in op.results:
        type_exprs(value.type, note)
    return found


def type_exprs(type: TileType, change: ExprChange) -> TileType:
    """The type with the bounds of its axes changed."""
    axes = tuple(_part(p, change) for p in type.axes)
    return type if axes == type.axes else TileType(type.dtype, axes)


def _part(part: Part, change: ExprChange) -> Part:
    lo, hi = change(part.lo), change(part.hi)
    return part if lo is part.lo and hi is part.hi else Part(part.dim, lo, hi, part.label)


def _edit(item: Any, values: ValueChange, exprs: ExprChange) -> Any:
    """`item`, a field of an operation or an operation itself, with values and expressions changed."""
    match item:
        case Value():
            return values(item)
        case Expr():
            return exprs(item)
        case Part():
            return _part(item, exprs)
        case Constraint():
            return Constraint(exprs(item.expr), item.equality)
        case Sub():
            return Sub(
                None if item.part is None else _part(item.part, exprs),
                None if item.index is None else exprs(item.index),
                None if item.tile is None else values(item.tile),
                item.promised,
            )
        case RegionArg():
            item.domain = _part(item.domain, exprs)
            item.size = None if item.size is None else exprs(item.size)
            return item
        case tuple():
            return tuple(_edit(x, values, exprs) for x in cast("tuple[Any, ...]", item))
        case list():
            contents = cast("list[Any]", item)
            contents[:] = [_edit(x, values, exprs) for x in contents]
            return contents
        case Op():
            for field in dataclasses.fields(item):
                if field.name not in NOT_EDITED:
                    setattr(item, field.name, _edit(getattr(item, field.name), values, exprs))
            return item
        case _:
            return item


def edit_block(block: Block, values: ValueChange, exprs: ExprChange) -> None:
    """Operands, expressions and result types of all operations of `block`, nested ones too, changed in place."""
    for op in block.walk():
        _edit(op, values, exprs)
        for value in (*op.results, *op.parameters):
            value.type = type_exprs(value.type, exprs)
    for inner in _blocks(block):
        inner.yields = [values(v) for v in inner.yields]


def _blocks(block: Block) -> list[Block]:
    found = [block]
    for op in block.walk():
        found.extend(op.blocks)
    return found


def replace(block: Block, table: Mapping[Value, Value]) -> None:
    """Every use of a key of `table` in `block` made a use of its value, inside expressions too."""
    by_name = {old.name: new.name for old, new in table.items()}
    edit_block(block, lambda v: table.get(v, v), _renamer(by_name))


def _renamer(by_name: Mapping[str, str]) -> ExprChange:
    def change(atom: Atom) -> Expr | None:
        if isinstance(atom, Fn) and atom.name in by_name:
            return of(Fn(by_name[atom.name], tuple(a.rewrite(change) for a in atom.args)))
        return None

    return lambda e: e.rewrite(change) if e.functions & by_name.keys() else e


def rename(program: Program) -> None:
    """Final names: `%hint`, `%hint.1`, ... in order of definition, `%0, %1, ...` without a hint; regions `R0, R1, ...`.

    *Ensures*: names are unique; the meaning is the same.
    """
    used: dict[str, int] = {}
    taken: set[str] = set()
    anonymous = 0
    by_name: dict[str, str] = {}
    given = {s.value.name for s in program.scalars}
    taken |= given
    _name_regions(program)
    for op in program.body.walk():
        for value in (*op.parameters, *op.results):
            if value.hint is None:
                new, anonymous = f"%{anonymous}", anonymous + 1
            else:
                new = f"%{value.hint}"
                while new in taken:
                    used[value.hint] = used.get(value.hint, 0) + 1
                    new = f"%{value.hint}.{used[value.hint]}"
            taken.add(new)
            by_name[value.name] = new
    renamer = _renamer(by_name)
    edit_block(program.body, lambda v: v, renamer)
    for op in program.body.walk():
        for value in (*op.parameters, *op.results):
            value.name = by_name[value.name]


def _name_regions(program: Program) -> None:
    """A name that several regions were given (a helper called twice, say) is numbered from its second use."""
    regions = [op for op in program.body.walk() if isinstance(op, Region)]
    names = Names()
    for region in regions:
        region.name = names.fresh(region.name) if region.name else ""
    free = (f"R{i}" for i in itertools.count() if f"R{i}" not in names)
    for region in regions:
        region.name = region.name or next(free)


def drop_dead(program: Program) -> None:
    """Operations without effect whose results nothing uses are removed, regions among them."""
    while _drop(program.body, _uses(program.body)):
        pass


def _uses(body: Block) -> set[str]:
    used: set[str] = set()
    for block in _blocks(body):
        used |= {v.name for v in block.yields}
        for op in block.ops:
            used |= operand_names(op)
    return used


def has_effect(op: Op) -> bool:
    """Whether the operation stores, prints or checks, itself or inside."""
    if isinstance(op, (Store, Print, Check)):
        return True
    return any(has_effect(o) for b in op.blocks for o in b.ops)


def _drop(block: Block, used: set[str]) -> bool:
    kept = [op for op in block.ops if has_effect(op) or any(v.name in used for v in op.results)]
    changed = len(kept) != len(block.ops)
    block.ops[:] = kept
    for op in kept:
        if isinstance(op, Region):
            before = list(op.body.ops)
            changed = _drop(op.body, used) or changed
            if len(before) != len(op.body.ops):
                _restage(op, before)
        for inner in op.blocks[1:] if isinstance(op, Region) else op.blocks:
            changed = _drop(inner, used) or changed
    return changed


def _restage(region: Region, before: list[Op]) -> None:
    """Stage starts count operations: they move with what was dropped before them."""
    left = {id(op) for op in region.body.ops}
    region.stages = [(name, sum(id(op) in left for op in before[:start])) for name, start in region.stages]
