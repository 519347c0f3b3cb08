"""Which elements of a carried tile some instance of a region updates.

The variables of the region are eliminated where that is exact: an update whose subscript is an argument of the region
(plus or minus it, and what is known) or a block of it has that argument's whole domain along that axis, for the
instances of a region enumerate it; what other subscripts and domains say of the argument they say of that coordinate.
An argument that no subscript mentions must have an instance. Everything else is None: not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from treadle.algebra.dims import Dim, Part
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
        update = _Update(self.source, self.inst, [a for r in inside for a in r.args])
        todo = list(zip(op.subs, coords, strict=True))
        while todo:
            left = [(axis, c) for axis, c in todo if not update.take(axis, c)]
            if len(left) == len(todo):
                return None
            todo = left
        return update.conditions()


class _Update:
    """The instances in which one update covers an element: their arguments, as its subscripts tell them."""

    def __init__(self, source: Reader, inst: Mapping[str, Expr], args: list[RegionArg]) -> None:
        self.source, self.inst = source, dict(inst)
        self.args = {argument_symbols(a): a for a in args}
        self.unknown = {s for symbols in self.args for s in symbols}
        """Arguments of which the subscripts so far do not tell what they are."""
        self.places: dict[tuple[str, ...], Expr] = {}
        """A coordinate of the domain of each argument that a subscript mentions."""
        self.known: dict[Dim, Expr] = {}
        self.conds: list[Constraint] = []

    def take(self, axis: AxisSub, c: Expr) -> bool:
        """Whether it is known, by the arguments known so far, when this subscript selects the coordinate."""
        if isinstance(axis, tuple):
            return False
        if axis.part is not None:
            return self._part(axis.part, c)
        if axis.index is not None:
            return self._index(axis.index, c)
        tile = axis.tile
        assert tile is not None
        if self.source.deps[tile.name] & self.unknown or not all(a.dim in self.known for a in tile.type.axes):
            return False
        self.conds.append(equals(c, self.source.index_of(self.source.element(tile, self.known, self.inst))))
        return True

    def _part(self, part: Part, c: Expr) -> bool:
        symbols = (*part.lo.symbols, *part.hi.symbols)
        block = (part.lo, part.hi) == tuple(map(sym, symbols)) and symbols in self.args
        if block and symbols not in self.places:
            self.places[symbols] = c  # the blocks of a region have every element of its domain
        elif (bounds := self._bounds(part)) is not None:
            self.conds += [ge(c, bounds[0]), lt(c, bounds[1])]
        else:
            return False
        self.known[part.dim] = c
        return True

    def _index(self, index: Expr, c: Expr) -> bool:
        left = self.source.depends(index) & self.unknown
        if not left:
            self.conds.append(equals(c, self.source.expr_at(index, self.inst)))
            return True
        (one, *more) = sorted(left)
        rest, k = index - sym(one), 1
        if one in rest.symbols:
            rest, k = index + sym(one), -1
        if more or (one,) not in self.args or one in self.source.depends(rest):
            return False
        found = (c - self.source.expr_at(rest, self.inst)) * k
        self.inst[one] = self.places[one,] = found
        self.unknown.remove(one)
        return True

    def _bounds(self, part: Part) -> tuple[Expr, Expr] | None:
        if (self.source.depends(part.lo) | self.source.depends(part.hi)) & self.unknown:
            return None
        return self.source.expr_at(part.lo, self.inst), self.source.expr_at(part.hi, self.inst)

    def conditions(self) -> Conjunction | None:
        """That the arguments are in their domains; of one that no subscript mentions, that it has an instance."""
        conds = list(self.conds)
        for symbols, arg in self.args.items():
            bounds = self._bounds(arg.domain)
            if bounds is None:
                return None
            at = self.places.get(symbols)
            conds += [lt(*bounds)] if at is None else [ge(at, bounds[0]), lt(at, bounds[1])]
        return tuple(conds)
