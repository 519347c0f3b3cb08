"""Fetching: the elements of a source value at given coordinates, as a fragment, wherever they come from.

Values are pointwise, so a value that is not kept anywhere is computed at the place of use: `fetch` recurses through the
operations that define it and appends statements, each with the claim that says which element its slots hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Atom, Constraint, Expr, ExprLike, Fn, as_expr, const, of, sym
from treadle.dtype.convert import convert
from treadle.dtype.formats import DType
from treadle.ir.core import AxisSub, Op, Value
from treadle.ir.ops.access import Extract, Load
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.machine import form
from treadle.machine.form import Fill, MemRef, Number, Operand
from treadle.realise.axes import Axes
from treadle.realise.choices import LoweringBroken, NotLowered
from treadle.realise.frame import (
    Digits,
    Frame,
    Got,
    Kept,
    in_range,
    positions,
    reference,
)


class Pull(Axes):
    """The lowering engine, second part: values on demand."""

    # ---- expressions

    def index(self, expr: Expr, frame: Frame) -> Expr:
        """A source index expression as a machine expression; elements of integer values are fetched."""
        expr = frame.subst(expr)
        if not expr.functions:
            return expr

        def change(atom: Atom) -> Expr | None:
            if not isinstance(atom, Fn) or atom.name not in self.uses.of_value:
                return None
            if atom.name in self.parameters:
                return None
            inner = tuple(self.index(a, frame) for a in atom.args)
            return self.element(self.uses.of_value[atom.name], inner, frame)

        return expr.rewrite(change)

    def element(self, value: Value, coords: tuple[Expr, ...], frame: Frame, everywhere: bool = False) -> Expr:
        """An element of an integer value as an index expression; `everywhere`: 0 where its axes end, so that conditions
        may ask for it in slots that are masked."""
        op = self.uses.definition.get(value.name)
        if isinstance(op, Elementwise) and self.countable(value):
            at = dict(zip(value.type.dims, coords, strict=True))
            left, right = (self.element(a, tuple(at[d] for d in a.type.dims), frame, everywhere) for a in op.args)
            return left + right if op.fn == "add" else left - right if op.fn == "sub" else left * right
        if isinstance(op, Coords):
            return coords[0]
        if isinstance(op, Index):
            return self.index(op.expr, frame)
        if isinstance(op, Full) and op.number is not None:
            return const(int(op.number))
        if value.name in self.parameters:
            return of(Fn(value.name))
        got = self.fetch(value, coords, frame)
        if everywhere and isinstance(got.source, str) and (live := frame.live(got.slots)):
            got = self.compute(value, coords, "copy", [got], frame, slots=got.slots, where=live, fill=0)
        return got.element() if isinstance(got.source, str) else const(int(got.source))

    def countable(self, value: Value) -> bool:
        """Whether a value is a sum or product of coordinates, index expressions and constants.

        Coordinates and extents are far below the range of i64, so that such sums do not wrap.
        """
        op = self.uses.definition.get(value.name)
        if value.type.dtype.name != "i64" or value.name in self.keeping:
            return False
        if isinstance(op, Elementwise):
            return op.fn in ("add", "sub", "mul") and all(self.countable(a) for a in op.args)
        return isinstance(op, Coords | Index) or (isinstance(op, Full) and op.number is not None)

    def subscripts(
        self,
        subs: tuple[AxisSub, ...],
        dims: tuple[Dim, ...],
        at: dict[Dim, Expr],
        frame: Frame,
        everywhere: bool = False,
    ) -> tuple[Expr, ...]:
        """The index along each axis of what is subscripted, at coordinates `at` of the result; `everywhere` as for
        `element`."""
        return tuple(self._subscript(s, d, at, frame, everywhere) for s, d in zip(subs, dims, strict=True))

    def _subscript(self, sub: AxisSub, dim: Dim, at: dict[Dim, Expr], frame: Frame, everywhere: bool) -> Expr:
        if isinstance(sub, tuple):
            if len(sub) == 1:
                return self._subscript(sub[0], dim, at, frame, everywhere)
            total = const(0)
            for one, factor in zip(sub, dim.factors, strict=True):
                total = total * factor.extent + self._subscript(one, factor, at, frame, everywhere)
            return total
        if sub.index is not None:
            return self.index(sub.index, frame)
        if sub.tile is not None:
            return self.element(sub.tile, tuple(at[d] for d in sub.tile.type.dims), frame, everywhere)
        assert sub.part is not None
        return at[sub.part.dim]

    # ---- statements

    def compute(
        self,
        value: Value,
        coords: tuple[Expr, ...],
        fn: str,
        args: Sequence[Got],
        frame: Frame,
        *,
        op: Op | None = None,
        expr: Expr | None = None,
        dtype: DType | None = None,
        slots: tuple[str, ...] | None = None,
        where: tuple[Constraint, ...] = (),
        fill: Fill = "undef",
    ) -> Got:
        """Appends a computation of `value` at `coords`."""
        spans = self.slots_of(coords, frame) if slots is None else slots
        exprs = [*coords, *([] if expr is None else [expr]), *(w.expr for w in where)]
        at = positions(spans)
        live = frame.live(spans)
        goal = self.target(frame, exprs, args, self.floor(op, frame))
        kind = value.type.dtype if dtype is None else dtype
        dst = self.fragment(value.hint or value.name, kind, spans, frame)
        operands: list[Operand] = [reference(g, spans) for g in args]
        stmt = form.Compute(
            dst=dst,
            fn=fn,
            args=tuple(operands),
            expr=None if expr is None else expr.substitute(at),
            where=tuple(w.substitute(at) for w in where),
            fill=fill,
            claim=self.claim(value, coords, spans, live),
            origin=self.line(op),
        )
        return self.append(stmt, dst, kind, spans, goal)

    def solid(self, got: Got, value: Value, coords: tuple[Expr, ...], frame: Frame, slots: tuple[str, ...]) -> Got:
        """The same elements in a fragment that spans exactly `slots`."""
        if isinstance(got.source, str) and got.slots == slots:
            return got
        return self.compute(value, coords, "copy", [got], frame, slots=slots, dtype=got.dtype)

    def named(self, got: Got, value: Value, coords: tuple[Expr, ...], frame: Frame, slots: tuple[str, ...]) -> Got:
        """The same elements in a fragment that spans `slots` and is claimed as `value` itself."""
        solid = self.solid(got, value, coords, frame, slots)
        if self.claimed.get(solid.name) == value.name:
            return solid
        return self.compute(value, coords, "copy", [solid], frame, slots=slots, dtype=solid.dtype)

    # ---- fetching

    def fetch(self, value: Value, coords: tuple[Expr, ...], frame: Frame, pad: Number | None = None) -> Got:
        """The elements of `value` at `coords` (in slot symbols), as a fragment or a number.

        `pad` is what slots outside the axes must hold.
        """
        key = (value.name, coords)
        got = frame.held(key)
        if got is None and value.name in self.uses.milestones:
            self._fetch_below(value, coords, frame)
        if got is None:
            place = frame.kept(value.name)
            if place is not None:
                got = self.from_buffer(value, coords, place[0], place[1], frame)
            else:
                got = self.define(value, coords, frame, pad)
            if isinstance(got.source, str) and pad is None:
                self.made_in.get(got.source, frame).memo.setdefault(key, got)
        return got

    def _fetch_below(self, value: Value, coords: tuple[Expr, ...], frame: Frame) -> None:
        """Fetches the milestones under a value, deepest first, so that no chain of operations recurses far."""
        found: list[tuple[Value, tuple[Expr, ...]]] = []
        seen: set[tuple[str, tuple[Expr, ...]]] = set()
        left = [(value, coords)]
        while left:
            below, there = left.pop()
            if (below.name, there) in seen or frame.kept(below.name) is not None or frame.held((below.name, there)):
                continue
            seen.add((below.name, there))
            if below is not value and below.name in self.uses.milestones:
                found.append((below, there))
            at = dict(zip(below.type.dims, there, strict=True))
            match self.uses.definition.get(below.name):
                case Elementwise(args=args, fn="where") if (truth := self.decided(args[0])) is not None:
                    operands = [args[1 if truth else 2]]
                case Elementwise(args=args):
                    operands = list(args)
                case Cast(source=source) | Bitcast(source=source):
                    operands = [source]
                case _:
                    operands = []
            left += [(v, tuple(at[d] for d in v.type.dims)) for v in operands]
        for below, there in sorted(found, key=lambda f: self.uses.milestones[f[0].name]):
            self.fetch(below, there, frame)

    def define(self, value: Value, coords: tuple[Expr, ...], frame: Frame, pad: Number | None) -> Got:
        """Computes elements from the operation that defines the value."""
        op = self.uses.definition.get(value.name)
        at = dict(zip(value.type.dims, coords, strict=True))
        dtype = value.type.dtype
        match op:
            case None if value.name in self.parameters:
                return Got(value.name, dtype)
            case Full(number=number):
                return Got(0 if number is None else number, dtype)
            case Coords():
                return self.indexed(value, op, coords, coords[0], frame)
            case Index(expr=expr):
                return self.indexed(value, op, coords, self.index(expr, frame), frame)
            case Load():
                return self.load(value, op, coords, at, frame, pad)
            case Extract():
                return self.extract(value, op, coords, at, frame)
            case Elementwise(args=args, fn="where") if (truth := self.decided(args[0])) is not None:
                chosen = args[1 if truth else 2]
                return self.fetch(chosen, tuple(at[d] for d in chosen.type.dims), frame)
            case Elementwise(args=args, fn=fn):
                gots = [self.fetch(a, tuple(at[d] for d in a.type.dims), frame) for a in args]
                return self.elementwise(value, op, fn, args, gots, coords, frame)
            case Cast(source=source, saturate=saturate):
                got = self.fetch(source, tuple(at[d] for d in source.type.dims), frame)
                if not isinstance(got.source, str):
                    return Got(_converted(got.source, source.type.dtype, dtype, saturate), dtype)
                return self.compute(value, coords, "cast.saturate" if saturate else "cast", [got], frame, op=op)
            case Bitcast(source=source):
                got = self.fetch(source, tuple(at[d] for d in source.type.dims), frame)
                if not isinstance(got.source, str):
                    got = self.solid(got, source, tuple(at[d] for d in source.type.dims), frame, ())
                return self.compute(value, coords, "bitcast", [got], frame, op=op)
            case _:
                raise self.absent(
                    value, f"{value} is needed at {', '.join(map(str, coords))} and is not kept there", op
                )

    def indexed(self, value: Value, op: Op, coords: tuple[Expr, ...], expr: Expr, frame: Frame) -> Got:
        """An index expression in a fragment; of slots outside the axes no fragment holds the elements that it names."""
        where = frame.live(self.slots_of(coords, frame)) if expr.functions else ()
        return self.compute(value, coords, "index", [], frame, op=op, expr=expr, where=where)

    def absent(self, value: Value, found: str, op: Op | None) -> LoweringBroken | NotLowered:
        """The error for elements that are in no buffer and no fragment where they are needed."""
        return LoweringBroken(
            doing=f"lowering {self.program.name}",
            found=found,
            expected=f"{value} in a buffer, where its producer stored it",
            pass_name="realise",
            span=None if op is None else op.span,
        )

    def decided(self, cond: Value) -> bool | None:
        """A condition that is a constant (broadcasting is selecting under one)."""
        made = self.uses.definition.get(cond.name)
        return bool(made.number) if isinstance(made, Full) and made.number is not None else None

    def elementwise(
        self,
        value: Value,
        op: Op,
        fn: str,
        args: Sequence[Value],
        gots: list[Got],
        coords: tuple[Expr, ...],
        frame: Frame,
    ) -> Got:
        """`fn` of operands; numbers keep the dtype of a fragment beside them, so a lone number becomes one."""
        tested = gots[1:] if fn == "where" else gots
        if value.type.dtype.is_bool and not any(isinstance(g.source, str) for g in tested) or fn == "where":
            at = dict(zip(value.type.dims, coords, strict=True))
            first = 0
            if not isinstance(gots[first].source, str):
                own = tuple(at[d] for d in args[first].type.dims)
                gots[first] = self.solid(gots[first], args[first], own, frame, self.slots_of(own, frame))
        return self.compute(value, coords, fn, gots, frame, op=op)

    def load(
        self, value: Value, op: Load, coords: tuple[Expr, ...], at: dict[Dim, Expr], frame: Frame, pad: Number | None
    ) -> Got:
        """Reads a tensor; slots outside the axes are not touched."""
        index = self.subscripts(op.subs, op.tensor.dims, at, frame, op.fill is not None)
        slots = self.slots_of([*coords, *index], frame)
        live = frame.live(slots)
        where, fill = live, "undef" if pad is None else pad
        if op.fill is not None:
            checked = [
                (i, d)
                for i, d, s in zip(index, op.tensor.dims, op.subs, strict=True)
                if isinstance(s, tuple) or s.part is None
            ]
            where = live + tuple(c for i, d in checked for c in in_range(i, 0, d.extent))
            fill = self.constant(op.fill, op)
            if pad is not None and pad != fill and live:
                got = self.load(value, op, coords, at, frame, None)
                return self.compute(value, coords, "copy", [got], frame, where=live, fill=pad)
        at_slot = positions(slots)
        goal = self.target(frame, [*coords, *index, *(w.expr for w in where)], [], self.floor(op, frame))
        dst = self.fragment(value.hint or value.name, value.type.dtype, slots, frame)
        stmt = form.Load(
            dst=dst,
            src=MemRef(op.tensor.name, tuple(i.substitute(at_slot) for i in index)),
            where=tuple(w.substitute(at_slot) for w in where),
            fill=fill,
            claim=self.claim(value, coords, slots, live),
            origin=self.line(op),
        )
        return self.append(stmt, dst, value.type.dtype, slots, goal)

    def constant(self, value: Value, op: Op) -> Number:
        """The number a fill stands for."""
        made = self.uses.definition.get(value.name)
        while isinstance(made, Cast):
            inner = self.uses.definition.get(made.source.name)
            if isinstance(inner, Full) and inner.number is not None:
                return _converted(inner.number, made.source.type.dtype, value.type.dtype, made.saturate)
            made = inner
        if isinstance(made, Full) and made.number is not None:
            return made.number
        raise self.unsupported(op, "a fill that is not a constant")

    def extract(self, value: Value, op: Extract, coords: tuple[Expr, ...], at: dict[Dim, Expr], frame: Frame) -> Got:
        """Elements of another value at subscripted coordinates."""
        stored = self.uses.forwarded(op)
        if stored is not None:
            return self.fetch(stored, tuple(at[d] for d in stored.type.dims), frame)
        source = op.source
        index = self.subscripts(op.subs, source.type.dims, at, frame, op.fill is not None)
        place = frame.kept(source.name)
        if op.fill is None:
            if place is None or frame.held((source.name, index)) is not None:
                return self.fetch(source, index, frame)
            return self.from_buffer(source, index, *place, frame, (value, coords, (), "undef"))
        if place is None:
            raise self.absent(source, f"{source} is subscripted with a fill and not kept", op)
        inside: list[Constraint] = []
        for i, axis, sub in zip(index, source.type.axes, op.subs, strict=True):
            if isinstance(sub, tuple) or sub.part is None:
                inside += in_range(i, *self.key(axis, frame)[1:])
        return self.from_buffer(
            source, index, *place, frame, (value, coords, tuple(inside), self.constant(op.fill, op))
        )

    def from_buffer(
        self,
        value: Value,
        coords: tuple[Expr, ...],
        place: Kept,
        owner: Frame,
        frame: Frame,
        filled: tuple[Value, tuple[Expr, ...], tuple[Constraint, ...], Fill] | None = None,
    ) -> Got:
        """Reads a kept value from its buffer."""
        index = tuple(self.digit(d, coords, frame) for d in place.digits)
        claimed, claim_at = (value, coords) if filled is None else filled[:2]
        slots = self.slots_of([*claim_at, *index], frame)
        live = frame.live(slots)
        covered = place.covered(coords, frame)
        where = frame.live([s for s in slots if s not in covered])
        fill: Fill = "undef"
        if filled is not None:
            where, fill = live + filled[2], filled[3]
        at = positions(slots)
        goal = self.target(frame, [*coords, *index, *(w.expr for w in where)], [], owner)
        dst = self.fragment(value.hint or value.name, place.dtype, slots, frame)
        stmt = form.Load(
            dst=dst,
            src=MemRef(place.buffer, tuple(i.substitute(at) for i in index)),
            where=tuple(w.substitute(at) for w in where),
            fill=fill,
            claim=self.claim(claimed, claim_at, slots, live),
        )
        return self.append(stmt, dst, place.dtype, slots, goal)

    def digit(self, digit: Digits, coords: tuple[Expr, ...], frame: Frame) -> Expr:
        """The index along one axis of a buffer."""
        if digit.arg:
            return frame.subst(sym(digit.arg))
        offset = coords[digit.axis] - digit.origin
        if digit.kind == "all":
            return offset
        panel, lane = split(offset, digit.width, frame)
        return panel if digit.kind == "panel" else lane


def split(expr: Expr, width: int, frame: Frame) -> tuple[Expr, Expr]:
    """Quotient and remainder of division by `width`, using that slots stay below their lanes' widths."""
    whole = Expr(tuple((m, c // width) for m, c in expr.terms if c % width == 0))
    rest = expr - whole * width
    top, known = 0, True
    for monomial, c in rest.terms:
        if monomial == ():
            top, known = top + c, known and c >= 0
            continue
        lane = next((x for x in frame.lanes if monomial == tuple(sym(x.slot).terms[0][0])), None) if c > 0 else None
        known = known and lane is not None
        top += 0 if lane is None else c * (lane.width - 1)
    if known and top < width:
        return whole, rest
    quotient = as_expr(expr) // width
    return quotient, expr - quotient * width


def _converted(number: Number, source: DType, dtype: DType, saturate: bool) -> Number:
    """A number after a conversion between formats."""
    data: Any = convert(np.asarray(number).astype(source.numpy), source, dtype, saturate)
    if dtype.is_bool:
        return bool(data)
    return float(data) if dtype.is_float else int(data)


def substituted(constraints: Sequence[Constraint], at: dict[str, ExprLike]) -> tuple[Constraint, ...]:
    """Constraints with slots renamed."""
    return tuple(c.substitute(at) for c in constraints)
