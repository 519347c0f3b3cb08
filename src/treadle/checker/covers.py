"""Which elements of a carried tile some instance of a region updates.

The variables of the region are eliminated where that is exact: an update whose subscript is an argument of the region,
by itself or as a block, covers the argument's whole domain along that axis, for the instances of a region enumerate it.
An argument that no subscript mentions must have an instance. Everything else is None: not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, ge, lt, sym
from treadle.algebra.expr import eq as equals
from treadle.checker.scopes import argument_symbols
from treadle.checker.terms import Elem, Term
from treadle.ir.core import AxisSub, Op, Region, RegionArg, Value
from treadle.ir.ops.access import Insert

Conjunction = tuple[Constraint, ...]


class Reader(Protocol):
    """What the program means: of `meaning.Meaning`."""

    defs: dict[str, Op]
    deps: dict[str, frozenset[str]]

    def element(self, value: Value, coords: Mapping[Dim, Expr], inst: Mapping[str, Expr]) -> Elem: ...
    def index_of(self, term: Term) -> Expr: ...
    def expr_at(self, e: Expr, inst: Mapping[str, Expr]) -> Expr: ...
    def depends(self, e: Expr) -> frozenset[str]: ...


class Cover:
    """Updates inside a region, in an instance of the regions around it."""

    def __init__(self, source: Reader, inst: Mapping[str, Expr]) -> None:
        self.source = source
        self.inst = inst

    def region(self, op: Region, at: int, coords: tuple[Expr, ...]) -> list[Conjunction] | None:
        """When some instance of the region updates the element of its `at`-th tile, as alternatives."""
        return self._value(op.body.yields[at], op.carried[at], (op,), coords)

    def _value(
        self, value: Value, carried: Value, inside: tuple[Region, ...], coords: tuple[Expr, ...]
    ) -> list[Conjunction] | None:
        found: list[Conjunction] = []
        while value is not carried:
            op = self.source.defs.get(value.name)
            if isinstance(op, Insert):
                one = self._insert(op, inside, coords)
                if one is None:
                    return None
                found.append(one)
                value = op.source
            elif isinstance(op, Region) and value in op.results:
                at = next(i for i, v in enumerate(op.results) if v is value)
                inner = self._value(op.body.yields[at], op.carried[at], (*inside, op), coords)
                if inner is None:
                    return None
                found += inner
                value = op.inits[at]
            else:
                return None
        return found

    def _insert(self, op: Insert, inside: tuple[Region, ...], coords: tuple[Expr, ...]) -> Conjunction | None:
        free: dict[tuple[str, ...], RegionArg] = {argument_symbols(a): a for r in inside for a in r.args}
        own = frozenset(s for symbols in free for s in symbols)
        conds: list[Constraint] = []
        known: dict[Dim, Expr] = {}
        tiles: list[tuple[Value, Expr]] = []
        for axis, c in zip(op.subs, coords, strict=True):
            symbols = _argument(axis)
            if not isinstance(axis, tuple) and axis.part is not None:
                known[axis.part.dim] = c
            if not isinstance(axis, tuple) and axis.tile is not None:
                tiles.append((axis.tile, c))
                continue
            if symbols in free:
                arg = free.pop(symbols)
                lo, hi = arg.domain.lo, arg.domain.hi
                if (self.source.depends(lo) | self.source.depends(hi)) & own:
                    return None
                conds += [ge(c, self.source.expr_at(lo, self.inst)), lt(c, self.source.expr_at(hi, self.inst))]
                continue
            fixed = self._fixed(axis, c, own)
            if fixed is None:
                return None
            conds += fixed
        for tile, c in tiles:  # decided where the other subscripts tell its coordinates
            if self.source.deps[tile.name] & own or not all(a.dim in known for a in tile.type.axes):
                return None
            conds.append(equals(c, self.source.index_of(self.source.element(tile, known, self.inst))))
        for arg in free.values():
            lo, hi = arg.domain.lo, arg.domain.hi
            if (self.source.depends(lo) | self.source.depends(hi)) & own:
                return None
            conds.append(lt(self.source.expr_at(lo, self.inst), self.source.expr_at(hi, self.inst)))
        return tuple(conds)

    def _fixed(self, axis: AxisSub, c: Expr, own: frozenset[str]) -> list[Constraint] | None:
        """A subscript that is the same in all instances of the regions."""
        if isinstance(axis, tuple):
            return None
        if axis.index is not None:
            if self.source.depends(axis.index) & own:
                return None
            return [equals(c, self.source.expr_at(axis.index, self.inst))]
        assert axis.part is not None
        lo, hi = axis.part.lo, axis.part.hi
        if (self.source.depends(lo) | self.source.depends(hi)) & own:
            return None
        return [ge(c, self.source.expr_at(lo, self.inst)), lt(c, self.source.expr_at(hi, self.inst))]


def _argument(axis: AxisSub) -> tuple[str, ...]:
    """The symbols of the argument that a subscript is, if it is one by itself or as a block."""
    if isinstance(axis, tuple):
        return ()
    if axis.index is not None and len(axis.index.symbols) == 1 and not axis.index.functions:
        (name,) = axis.index.symbols
        return (name,) if axis.index == sym(name) else ()
    if axis.part is not None and len(axis.part.lo.symbols) == 1 and len(axis.part.hi.symbols) == 1:
        (lo,), (hi,) = axis.part.lo.symbols, axis.part.hi.symbols
        return (lo, hi) if (axis.part.lo, axis.part.hi) == (sym(lo), sym(hi)) else ()
    return ()
