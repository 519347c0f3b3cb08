"""One step of the meaning of an element of the source, as a decision list over other elements.

Folds, contractions and loop-carried values have no step of their own: they are met by the rules of `folds` and by
invariants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Atom, Constraint, Expr, Fn, Sym, ge, lt
from treadle.algebra.expr import eq as equals
from treadle.checker.covers import Cover
from treadle.checker.scopes import Scopes, View, argument_symbols
from treadle.checker.terms import (
    ANY,
    EXTREMA,
    Any,
    App,
    Cell,
    Elem,
    Idx,
    Num,
    Part,
    Piece,
    Pieces,
    Term,
    Undef,
    app,
    converted,
    keeps_values,
    only,
    opaque_index,
    quotient,
)
from treadle.checker.verdict import Unsure
from treadle.dtype.formats import DType, i64, u64
from treadle.ir.core import AxisSub, If, Region, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Mma, Reduce, Scan
from treadle.ir.ranges import reach

_LONG = (600, 40)
"""Weight and depth of what is still written out in full."""


class Meaning(Scopes):
    """The embedded program and the meaning of its elements."""

    @cached_property
    def _settled(self) -> dict[object, dict[Term, Term]]:
        return {}

    @cached_property
    def _indexed(self) -> dict[object, dict[Term, Expr]]:
        return {}

    # ---- elements

    def rank(self, name: str) -> int:
        """Position of a value's definition, for unfolding the later one first."""
        op = self.defs.get(name)
        return -1 if op is None else self.order[id(op)]

    def dtype(self, term: Term) -> DType | None:
        """The term's dtype."""
        match term:
            case Num(_, dtype) | Cell(_, _, dtype) | App(_, _, dtype):
                return dtype
            case Idx():
                return i64
            case Elem(value, _, _) | Part(value, _, _, _, _):
                return self.values[value].type.dtype
            case _:
                return None

    def widened_once(self, term: Term) -> Term | None:
        """The operand of a conversion that keeps every value (bf16 to f32), or None: what a product sees through."""
        if isinstance(term, Elem):
            op = self.defs.get(term.value)
            if isinstance(op, Cast) and keeps_values(op.source.type.dtype, op.dtype, op.saturate):
                return self.element(op.source, self.coords(term), dict(term.inst))
        if isinstance(term, App) and term.fn == "cast":
            inner = self.dtype(term.args[0])
            if inner is not None and keeps_values(inner, term.dtype):
                return term.args[0]
        return None

    def element(self, value: Value | str, coords: Mapping[Dim, Expr], inst: Mapping[str, Expr]) -> Elem:
        """The element of a value at coordinates by dimension. *Errors*: `Unsure` when the instance is not
        determined."""
        v = self.values[value] if isinstance(value, str) else value
        try:
            at = tuple(coords[axis.dim] for axis in v.type.axes)
        except KeyError as missing:
            raise Unsure("J1", f"{v.name} has an axis along {missing}, its use has none", missing="axes") from None
        return Elem(v.name, at, self.instance(v.name, inst))

    def instance(self, name: str, inst: Mapping[str, Expr]) -> tuple[tuple[str, Expr], ...]:
        """The arguments that the value depends on, with their bindings."""
        found: list[tuple[str, Expr]] = []
        for symbol in sorted(self.deps[name]):
            if symbol not in inst:
                raise Unsure(
                    "J1",
                    f"{name} depends on {symbol}, which no enclosing statement binds",
                    missing=f"an `enters` or `instance` that binds {symbol}",
                )
            found.append((symbol, inst[symbol]))
        return tuple(found)

    def coords(self, elem: Elem | Part) -> dict[Dim, Expr]:
        """An element's coordinates by dimension."""
        return {axis.dim: c for axis, c in zip(self.values[elem.value].type.axes, elem.coords)}

    def expr_at(self, e: Expr, inst: Mapping[str, Expr]) -> Expr:
        """A source index expression in an instance: arguments replaced, values of tiles as opaque functions."""
        if not e.symbols & self.by_argument.keys() and not e.functions:
            return e

        def change(atom: Atom) -> Expr | None:
            if isinstance(atom, Sym) and atom.name in self.by_argument:
                if atom.name not in inst:
                    raise Unsure("J1", f"nothing binds {atom.name}", missing=f"a binding of {atom.name}")
                return inst[atom.name]
            if isinstance(atom, Fn) and atom.name in self.values:
                args = tuple(a.rewrite(change) for a in atom.args)
                return self.index_of(Elem(atom.name, args, self.instance(atom.name, inst)))
            return None

        return e.rewrite(change)

    numbers: Mapping[str, int] = {}
    """Symbols whose values the guard says: the same index is then the same expression."""

    def index_of(self, term: Term, view: View | None = None) -> Expr:
        """An integer element as an index expression: exact where it is index arithmetic, opaque otherwise."""
        view = view or View()
        known = self._indexed.setdefault(view.key, {})
        found = known.get(term)
        if found is None:
            found = known[term] = self._index_of(term, view).substitute(self.numbers)
        return found

    def _index_of(self, term: Term, view: View) -> Expr:
        settled = self.settle(term, view)
        match settled:
            case Idx(expr):
                return expr
            case Num(value, dtype) if dtype.is_int and dtype.finite_min <= value <= dtype.finite_max:
                return Expr(()) + int(value)
            case Any():
                return opaque_index(term)  # whatever it is, not what another undefined element is
            case App("cast", (inner,), dtype) if self._widens(inner, dtype):
                return self.index_of(inner, view)
            case App(fn, _, dtype) if dtype == u64 and fn != "and":
                return opaque_index(settled)  # of words that machines take for signed ones where they are indices
            case App(fn, args, dtype) if fn in EXTREMA and dtype.is_int and ANY not in args:
                return EXTREMA[fn](*(self.index_of(a, view) for a in args))  # a clamp, whatever it is of
            case App(fn, (a, Num(c, _)), dtype) if dtype.is_int and a != ANY and (rule := quotient(fn, c)) is not None:
                return rule(self.index_of(a, view))  # of whatever integer is divided
            case App("add" | "sub", (a, b), dtype) if dtype == i64 and self._size(settled) < 2**63:
                left, right = self.index_of(a, view), self.index_of(b, view)
                return left + right if settled.fn == "add" else left - right
            case App("sub", (a, App("and", (b, Num(c, _)), _) as low), dtype) if (
                dtype == i64 and a == b and quotient("and", c)
            ):
                # Of any number its lowest bits can be taken away: what is left is a multiple of a power of two.
                return self.index_of(a, view) - self.index_of(low, view)
            case _:
                return opaque_index(settled)

    def _widens(self, inner: Term, dtype: DType) -> bool:
        """Whether a conversion keeps every integer."""
        have = self.dtype(inner)
        return have is not None and have.is_int and dtype.is_int and keeps_values(have, dtype)

    def _size(self, term: Term) -> int:
        """What an integer cannot exceed in size: index arithmetic without opaque numbers is far below 64 bits."""
        match term:
            case Idx(expr):
                return 2**61 if not expr.functions else min(2**63, reach(expr, {}, self.opaque_range)[1])
            case Num(value, dtype) if dtype.is_int:
                return abs(int(value))
            case App("cast", (inner,), dtype) if self._widens(inner, dtype):
                have = self.dtype(inner)
                return 2**63 if have is None else 2**have.bits
            case App("mod" | "and" as fn, (a, Num(c, _)), dtype) if dtype.is_int and a != ANY and quotient(fn, c):
                return int(c)
            case App("floordiv", (a, Num(c, _)), dtype) if dtype == i64 and a != ANY and c > 0:
                return 2**63 // int(c) + 1
            case App("add" | "sub", (a, b), dtype) if dtype == i64:
                return self._size(a) + self._size(b)
            case _:
                return 2**63

    def settle(self, term: Term, view: View) -> Term:
        """The term unfolded as long as one case decides, its arguments too (for index arithmetic and conditions).

        An element whose meaning is a long chain of operations stays that element: it is opaque under its own name.
        """
        known = self._settled.setdefault(view.key, {})
        parts: dict[Term, tuple[Term, ...]] = {}
        todo = [term]
        while todo:  # chains are longer than Python's stack
            one = todo[-1]
            if one not in known:
                if one not in parts:
                    parts[one] = self._parts(one, view)
                left = [p for p in parts[one] if p not in known]
                if left:
                    todo += left
                    continue
                known[one] = self._joined(one, tuple(known[p] for p in parts[one]))
            todo.pop()
        return known[term]

    def _parts(self, term: Term, view: View) -> tuple[Term, ...]:
        """What a term is made of: an element's own meaning, the arguments of a function."""
        if isinstance(term, Elem):
            pieces = self.unfold(term, view)
            return (pieces[0][1],) if pieces is not None and len(pieces) == 1 else ()
        return term.args if isinstance(term, App) else ()

    def _joined(self, term: Term, parts: tuple[Term, ...]) -> Term:
        if isinstance(term, Elem):
            return parts[0] if parts and all(a <= b for a, b in zip(parts[0].size, _LONG)) else term
        if isinstance(term, App):
            have = self.dtype(parts[0]) if term.fn in ("cast", "cast.saturate") else None
            if have is not None:
                return converted(parts[0], have, term.dtype, term.fn == "cast.saturate")
            return app(term.fn, parts, term.dtype)
        return term

    # ---- one step of meaning

    def unfold(self, elem: Elem, view: View) -> Pieces | None:
        """The element in terms of others, or None where the value has no pointwise definition."""
        op = self.defs.get(elem.value)
        at, inst = self.coords(elem), dict(elem.inst)
        match op:
            case Full():
                return only(ANY if op.number is None else Num(op.number, op.result.type.dtype))
            case Coords():
                return only(Idx(elem.coords[0]))
            case Index():
                return only(Idx(self.expr_at(op.expr, inst)))
            case Elementwise():
                return only(app(op.fn, tuple(self.element(a, at, inst) for a in op.args), op.result.type.dtype))
            case Cast():
                return only(converted(self.element(op.source, at, inst), op.source.type.dtype, op.dtype, op.saturate))
            case Bitcast():
                return only(app("bitcast", (self.element(op.source, at, inst),), op.dtype))
            case Load():
                return self._unfold_load(op, at, inst)
            case Extract():
                return self._unfold_extract(op, at, inst)
            case Insert():
                return self._unfold_insert(op, elem, at, inst)
            case If():
                return self._unfold_if(op, elem, at, inst, view)
            case Reduce() if op.nan != "ignore" and all((b - a).constant == 1 for a, b in self.domain_at(op, inst)):
                lows = {d: lo for d, (lo, _) in zip(op.dims, self.domain_at(op, inst))}
                return only(self.element(op.source, dict(at) | lows, inst))  # one contribution is its own fold
            case Region():
                return self._unfold_region(op, elem, at, inst, view)
            case _:
                return None

    def subscript(self, sub: Sub, at: Mapping[Dim, Expr], inst: Mapping[str, Expr]) -> Expr:
        """The index that one subscript selects for a result coordinate."""
        if sub.part is not None:
            return at[sub.part.dim]
        if sub.tile is not None:
            return self.index_of(self.element(sub.tile, at, inst))
        assert sub.index is not None
        return self.expr_at(sub.index, inst)

    def subscripts(
        self, subs: tuple[AxisSub, ...], dims: tuple[Dim, ...], at: Mapping[Dim, Expr], inst: Mapping[str, Expr]
    ) -> tuple[Expr, ...]:
        """The index tuple of an access for a result coordinate; factors of a product axis combine row-major."""
        out: list[Expr] = []
        for axis, dim in zip(subs, dims, strict=True):
            if isinstance(axis, tuple):
                total = Expr(())
                for sub, factor in zip(axis, dim.factors, strict=True):
                    total = total * factor.extent + self.subscript(sub, at, inst)
                out.append(total)
            else:
                out.append(self.subscript(axis, at, inst))
        return tuple(out)

    def load_index(self, op: Load, at: Mapping[Dim, Expr], inst: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """The tensor element that a load's result coordinate reads."""
        return self.subscripts(op.subs, op.tensor.dims, at, inst)

    def _unfold_load(self, op: Load, at: Mapping[Dim, Expr], inst: Mapping[str, Expr]) -> Pieces:
        """A cell of the tensor inside it, the fill outside. Of a tensor that the program stores, the cell as this load
        finds it in this instance: a snapshot, which nothing but this load names."""
        index = self.load_index(op, at, inst)
        cell = Cell(op.tensor.name, index, op.tensor.dtype)
        if op.tensor.name in self.changed:
            cell = self.snapshot(op, index, inst)
        if op.fill is None:
            return only(cell)
        inside: list[Constraint] = []
        for i, dim in zip(index, op.tensor.dims):
            inside += [ge(i, 0), lt(i, self.expr_at(dim.extent, inst))]
        return ((tuple(inside), cell), ((), self.element(op.fill, at, inst)))

    def snapshot(self, op: Load, index: tuple[Expr, ...], inst: Mapping[str, Expr]) -> Cell:
        """What a load of a stored tensor finds at `index`, in an instance of all the regions around it.

        One load in one instance reads once, so equal cells have equal values; different loads, or instances, are never
        equal by this rule.
        """
        when = tuple(e for _, e in self.instance(op.result.name, inst))
        return Cell(f"{op.tensor.name} at {op.result.name}", (*index, *when), op.tensor.dtype)

    def _unfold_extract(self, op: Extract, at: Mapping[Dim, Expr], inst: Mapping[str, Expr]) -> Pieces:
        axes = op.source.type.axes
        index = self.subscripts(op.subs, tuple(a.dim for a in axes), at, inst)
        source = self.element(op.source, {a.dim: i for a, i in zip(axes, index)}, inst)
        if op.fill is None:
            return only(source)
        inside: list[Constraint] = []
        for i, axis, sub in zip(index, axes, op.subs):
            if isinstance(sub, tuple) or sub.part != axis:  # a whole axis is never left
                inside += [ge(i, self.expr_at(axis.lo, inst)), lt(i, self.expr_at(axis.hi, inst))]
        return ((tuple(inside), source), ((), self.element(op.fill, at, inst)))

    def _unfold_insert(self, op: Insert, elem: Elem, at: Mapping[Dim, Expr], inst: Mapping[str, Expr]) -> Pieces | None:
        covered = self.insert_cover(op, elem.coords, inst)
        if covered is None:
            return None
        conds, value_at = covered
        return ((conds, self.element(op.value, value_at, inst)), ((), self.element(op.source, at, inst)))

    def insert_cover(
        self, op: Insert, coords: tuple[Expr, ...], inst: Mapping[str, Expr]
    ) -> tuple[tuple[Constraint, ...], dict[Dim, Expr]] | None:
        """When an update covers an element, and which coordinates of the value it takes.

        An integer tile decides where the other subscripts tell its coordinates (`T[i, d[i]]`); None elsewhere.
        """
        conds: list[Constraint] = []
        value_at: dict[Dim, Expr] = {}
        tiles: list[tuple[Value, Expr]] = []
        for axis, c in self._factored(op, coords):
            if axis.part is not None:
                conds += [ge(c, self.expr_at(axis.part.lo, inst)), lt(c, self.expr_at(axis.part.hi, inst))]
                value_at[axis.part.dim] = c
            elif axis.index is not None:
                conds.append(equals(c, self.expr_at(axis.index, inst)))
            elif axis.tile is not None:
                tiles.append((axis.tile, c))
        for tile, c in tiles:
            if not all(a.dim in value_at for a in tile.type.axes):
                return None
            conds.append(equals(c, self.index_of(self.element(tile, value_at, inst))))
        return tuple(conds), value_at

    def _factored(self, op: Insert, coords: tuple[Expr, ...]) -> Iterator[tuple[Sub, Expr]]:
        """The subscripts with their coordinates; along a product axis those of its factors, the last one fastest."""
        for axis, dim, c in zip(op.subs, (a.dim for a in op.source.type.axes), coords, strict=True):
            if not isinstance(axis, tuple):
                yield axis, c
                continue
            rest = c
            for i in reversed(range(len(axis))):
                extent = dim.factors[i].extent
                yield axis[i], rest % extent if i else rest
                rest = rest // extent

    def _unfold_if(self, op: If, elem: Elem, at: Mapping[Dim, Expr], inst: Mapping[str, Expr], view: View) -> Pieces:
        which = next(i for i, v in enumerate(op.results) if v.name == elem.value)
        cond = self.element(op.cond, {}, inst)
        taken = view.branches.get(cond)
        if taken is not None:
            return only(self.element((op.then if taken else op.orelse).yields[which], at, inst))
        yes, no = (self.element(b.yields[which], at, inst) for b in (op.then, op.orelse))
        return only(App("where", (cond, yes, no), op.results[which].type.dtype))

    def _unfold_region(
        self, op: Region, elem: Elem, at: Mapping[Dim, Expr], inst: Mapping[str, Expr], view: View
    ) -> Pieces | None:
        mine = [s for arg in op.args for s in argument_symbols(arg)]
        inside = op.kind == "parallel" and all(s in view.bindings for s in mine)
        for i, (init, carried, result, out) in enumerate(zip(op.inits, op.carried, op.results, op.body.yields)):
            if carried.name == elem.value and op.kind == "parallel":  # an instance starts from the entry value
                return only(self.element(init, at, inst))
            if result.name == elem.value and not inside:
                return self._assembled(op, i, elem, at, inst)
            if result.name == elem.value:
                # by the promise of `parallel`, the instance that covers an element is the only one
                here = dict(inst) | {s: view.bindings[s] for s in view.bindings}
                return self._own_part(op, out, carried, elem.coords, here)
        return None

    def _assembled(
        self, op: Region, i: int, elem: Elem, at: Mapping[Dim, Expr], inst: Mapping[str, Expr]
    ) -> Pieces | None:
        """After a region that only updates parts of a tile: what no instance covers is the entry value. What some
        instance covers has no step of its own here, an opaque cell of the result, unless its value is the same in
        whatever instance."""
        given = self._given(op, i, elem, inst)
        if given is not None:
            return (given, *only(self.element(op.inits[i], at, inst)))
        covers = Cover(self, inst).region(op, i, elem.coords)
        if covers is None:
            return None
        cell = Cell(f"assembled {elem.value}", (*elem.coords, *(e for _, e in elem.inst)), op.results[i].type.dtype)
        return (*((conds, cell) for conds in covers), *only(self.element(op.inits[i], at, inst)))

    def _given(self, op: Region, i: int, elem: Elem, inst: Mapping[str, Expr]) -> Piece | None:
        """Where instances of a region put elements of one value at their own coordinates into a tile, and that element.

        Every argument is an axis of the update, so each coordinate of the domains is in one instance; and the value
        depends on no argument but by its coordinates, so that its element is the same whichever instance that is.
        """
        made = self.defs.get(op.body.yields[i].name)
        if not isinstance(made, Insert) or made.source is not op.carried[i] or (op, None) != self.scopes[id(made)][-1]:
            return None
        mine = {s for arg in op.args for s in argument_symbols(arg)}
        if self.deps[made.value.name] & mine:
            return None
        domains = {arg.part: arg.domain for arg in op.args if arg.kind == "block"}
        conds: list[Constraint] = []
        value_at: dict[Dim, Expr] = {}
        for sub, c in zip(made.subs, elem.coords, strict=True):
            part = None if isinstance(sub, tuple) else sub.part
            if part is None or part.dim in value_at:
                return None
            covered = domains.pop(part, part)
            if (covered.lo.symbols | covered.hi.symbols) & mine:
                return None
            conds += [ge(c, self.expr_at(covered.lo, inst)), lt(c, self.expr_at(covered.hi, inst))]
            value_at[part.dim] = c
        if domains or any(arg.kind != "block" for arg in op.args):
            return None
        return tuple(conds), self.element(made.value, value_at, inst)

    def _own_part(
        self, region: Region, value: Value, carried: Value, coords: tuple[Expr, ...], inst: Mapping[str, Expr]
    ) -> Pieces | None:
        """What the instance in force has put into an element by its updates; nothing where it has no update of it.

        A parallel region inside it is entered by its instance in force: an element that this one covers is its, by the
        promise of the inner region; any other element may be one of its other instances', so the list ends there. What
        some instance of a region inside it covers is, after that region, an element of its result.
        """
        if value is carried:
            return only(Undef("this instance does not cover the element"))
        op = self.defs.get(value.name)
        if isinstance(op, Region) and (region, None) in self.scopes[id(op)]:
            at = next(i for i, v in enumerate(op.results) if v is value)
            if op.kind == "parallel" and all(s in inst for arg in op.args for s in argument_symbols(arg)):
                return self._own_part(op, op.body.yields[at], op.carried[at], coords, inst)
            covers = Cover(self, inst).region(op, at, coords)
            rest = self._own_part(region, op.inits[at], carried, coords, inst)
            if covers is None or rest is None:
                return None
            whole = Elem(value.name, coords, self.instance(value.name, inst))
            return (*((conds, whole) for conds in covers), *rest)
        if not isinstance(op, Insert) or (region, None) not in self.scopes[id(op)]:
            return None
        covered = self.insert_cover(op, coords, inst)
        rest = self._own_part(region, op.source, carried, coords, inst)
        if covered is None or rest is None:
            return None
        conds, value_at = covered
        return ((conds, self.element(op.value, value_at, inst)), *rest)

    # ---- folds

    def domain_at(self, op: Reduce | ArgReduce | Mma | Scan, inst: Mapping[str, Expr]) -> list[tuple[Expr, Expr]]:
        """The ranges of the folded axes in an instance."""
        return [(self.expr_at(lo, inst), self.expr_at(hi, inst)) for lo, hi in self.domain(op)]

    def contributions(
        self, op: Reduce | Mma | Scan, inst: Mapping[str, Expr], coords: tuple[Expr, ...] = ()
    ) -> tuple[Constraint, ...]:
        """All contributions of an element of a fold or contraction: constraints on `?0, ?1, ...` in the order of its
        folded dims. Of a scan they hang on the element's `coords`."""
        out: list[Constraint] = []
        for i, (lo, hi) in enumerate(self.domain(op)):
            d = bound_symbol(i)
            out += [ge(d, self.expr_at(lo, inst)), lt(d, self.expr_at(hi, inst))]
        if isinstance(op, Scan):
            d, at = bound_symbol(0), coords[op.results[0].type.dims.index(op.dim)]
            gap = d - at if op.reverse else at - d
            out.append(Constraint(gap - 1 if op.exclusive else gap))
        return tuple(out)


def bound_symbol(i: int) -> Expr:
    """The canonical symbol of the i-th folded coordinate."""
    return Expr(((((Sym(f"?{i}")),), 1),))
