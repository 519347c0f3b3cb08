"""Tiles updated at coordinates that no arithmetic tells apart: computed ones (`t[index[r]] = v[r]`), and those of
regions whose bounds are known at run time only (groups of rows).

Where such an update puts an element is known (its index is the subscript's), and by promise it is the only one there:
an integer tile names distinct elements, and instances of a `parallel` region update elements of their own. Which
elements stay as they were is not known. So a read of the whole asks three things: every element of the update has been
stored, for every instance of the regions around it; what the memory held before is what the tile held before; and that
had been written. Then each element is what the tile has there, whichever of the two it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.algebra.expr import Expr, ge, lt
from treadle.algebra.sets import Facts
from treadle.checker.compare import Compare, split
from treadle.checker.coverage import Coverage, StoreEvent, Update
from treadle.checker.reading import Stored
from treadle.checker.scopes import argument_symbols
from treadle.checker.source import Source
from treadle.checker.state import Frame, Place
from treadle.checker.storage import Contents, Layer, read
from treadle.checker.terms import Elem, Pieces, substituted
from treadle.checker.verdict import Finding
from treadle.ir.core import If, Op, Region, Value
from treadle.ir.infer import sub_axes
from treadle.ir.ops.access import Extract, Insert
from treadle.machine.form import Claim, Load, Store, Tasks, walk


@dataclass
class Scatters:
    """Scattered updates met so far, by the version statement that they are stored under."""

    source: Source
    compare: Compare
    coverage: Coverage
    updates: dict[int, Update] = field(default_factory=dict[int, Update])
    events: dict[object, list[tuple[Insert, StoreEvent]]] = field(
        default_factory=dict[object, list[tuple[Insert, StoreEvent]]]
    )
    complete: set[tuple[object, int]] = field(default_factory=set[tuple[object, int]])

    # ---- storing

    def stored(
        self, place: Place, stmt: Store, layer: Layer, want: Elem, held: Pieces, inside: Facts, position: int
    ) -> bool:
        """Whether a store is one of a scattered update's elements, for the tile that the version claims: noted so."""
        op = self.source.defs.get(stmt.claim.value) if isinstance(stmt.claim, Claim) else None
        if not isinstance(op, Insert) or layer.origin is None or not self.open(op):
            return False
        bindings = place.view.bindings
        if not self._leads_to(want.value, op, place) or not self.source.in_force(op, bindings, bindings):
            return False
        axes = sub_axes(op.subs)
        cases = list(split(inside, held))
        for facts, term in cases:
            if len(cases) != 1 or not isinstance(term, Elem) or term.value != op.value.name:
                return False
            at = self.source.coords(term)
            if any(a.dim not in at for a in axes):
                return False
            if self.compare.same(facts, term, self.source.element(op.value, at, bindings), place.view) is not None:
                return False
            for sub, c in zip(op.subs, want.coords, strict=True):
                if isinstance(sub, tuple) or not facts.equal(c, self.source.subscript(sub, at, bindings)):
                    return False
            for a in axes:
                lo, hi = self.source.expr_at(a.lo, bindings), self.source.expr_at(a.hi, bindings)
                if not (facts.implies(ge(at[a.dim], lo)) and facts.implies(lt(at[a.dim], hi))):
                    return False
            stored = Stored(
                tuple(at[a.dim] for a in axes),
                dict(bindings),
                bindings,
                place.constraints(stmt.where, inside),
                False,
                want.coords,
            )
            shape = place.frag(stmt.src.name).shape
            event = StoreEvent(self._update(op), place.frames, stored, shape, position)
            self.events.setdefault(layer.origin, []).append((op, event))
        return bool(cases)

    def open(self, op: Insert) -> bool:
        """Whether an update is at computed coordinates, or inside a region with bounds of run time."""
        regions = [s for s, _ in self.source.scopes[id(op)] if isinstance(s, Region)]
        return computed(op) or any(
            e.functions for r in regions for arg in r.args for e in (arg.domain.lo, arg.domain.hi)
        )

    def _update(self, op: Insert) -> Update:
        found = self.updates.get(id(op))
        if found is None:
            found = self.updates[id(op)] = Update(op.result.name, op.subs, op.value)
            self.source.scopes[id(found)] = self.source.scopes[id(op)]
        return found

    def _leads_to(self, value: str, op: Insert, place: Place) -> bool:
        """Whether a tile is what one update makes of what it was, through parallel regions in force."""
        made = self.source.values[value]
        while made is not op.result:
            region = self.source.defs.get(made.name)
            if not isinstance(region, Region) or region.kind != "parallel" or made not in region.results:
                return False
            if any(s not in place.view.bindings for arg in region.args for s in argument_symbols(arg)):
                return False
            i = next(i for i, v in enumerate(region.results) if v is made)
            entry, made = region.carried[i], region.body.yields[i]
            inner = self.source.defs.get(made.name)
            before = self._replaced(inner) if isinstance(inner, Insert) else _entry(inner, made)
            if before is not entry:
                return False
        return True

    def _replaced(self, op: Insert) -> Value:
        """The tile before an update, and before updates of the very same elements just before it: it replaces all that
        they put there."""
        below = op.source
        while isinstance(one := self.source.defs.get(below.name), Insert) and one.subs == op.subs:
            below = one.source
        return below

    def apart(self, place: Place, stmt: Store, want: Elem) -> bool:
        """Whether the tasks around a scattered store are instances of the regions that assemble the tile, and the store
        is the only one of them to its buffer: then no two of them meet, by the regions' promise."""
        symbols: set[str] = set()
        made = self.source.values[want.value]
        while isinstance(region := self.source.defs.get(made.name), Region):
            symbols |= {s for arg in region.args for s in argument_symbols(arg)}
            made = region.body.yields[next(i for i, v in enumerate(region.results) if v is made)]
        for f in place.frames:
            if not isinstance(f.control, Tasks):
                continue
            stores = [s for s in walk(f.control.body) if isinstance(s, Store) and s.dst.name == stmt.dst.name]
            if stores != [stmt] or not f.entering(symbols) >= {r.var for r in f.ranges}:
                return False
        return True

    # ---- reading

    def own(self, place: Place, stmt: Load, inside: Facts) -> bool:
        """Whether a load is what the instance in force reads of a tile that parallel regions assemble, and the tasks
        around it are instances of these: no other one writes the element, by the regions' promise."""
        op = self.source.defs.get(stmt.claim.value) if isinstance(stmt.claim, Claim) else None
        bindings = place.view.bindings
        if not isinstance(op, Extract) or op.fill is not None or not self.source.in_force(op, bindings, bindings):
            return False
        assert isinstance(stmt.claim, Claim)
        axes, dims = op.result.type.axes, tuple(a.dim for a in op.source.type.axes)
        at = {a.dim: place.expr(c, inside, ghost=True) for a, c in zip(axes, stmt.claim.coords, strict=True)}
        index = [place.expr(e, inside) for e in stmt.src.index]
        wanted = self.source.subscripts(op.subs, dims, at, bindings)
        if len(index) != len(wanted) or not all(inside.equal(i, w) for i, w in zip(index, wanted)):
            return False
        for a in axes:
            lo, hi = self.source.expr_at(a.lo, bindings), self.source.expr_at(a.hi, bindings)
            if not (inside.implies(ge(at[a.dim], lo)) and inside.implies(lt(at[a.dim], hi))):
                return False
        for scope, branch in self.source.scopes[id(op)]:
            if isinstance(scope, If):
                taken = place.view.branches.get(self.source.element(scope.cond, {}, bindings))
                if taken != branch:
                    return False
        symbols, entry = self._assembling(op.source)
        for f in place.frames:
            if not isinstance(f.control, Tasks):
                continue
            if not f.entering(symbols) >= {r.var for r in f.ranges}:
                return False
            for s in walk(f.control.body):
                if isinstance(s, Store) and s.dst.name == stmt.src.name:
                    made = self.source.defs.get(s.claim.value) if isinstance(s.claim, Claim) else None
                    if not isinstance(made, Insert) or self._assembling(made.result)[1] is not entry:
                        return False
        return bool(symbols)

    def _assembling(self, made: Value) -> tuple[set[str], Value]:
        """The arguments of the parallel regions inside which a version of a tile stands, and the tile before them."""
        symbols: set[str] = set()
        while True:
            op = self.source.defs.get(made.name)
            if isinstance(op, Insert) and self._inside(op):
                made = op.source
            elif isinstance(op, Region) and made in op.results and self._inside(op):
                made = op.inits[next(i for i, v in enumerate(op.results) if v is made)]
            else:
                region = next((r for r in self.source.regions.values() if any(v is made for v in r.carried)), None)
                if region is None or region.kind != "parallel":
                    return symbols, made
                symbols |= {s for arg in region.args for s in argument_symbols(arg)}
                made = region.inits[next(i for i, v in enumerate(region.carried) if v is made)]

    def _inside(self, op: Op) -> bool:
        return any(isinstance(s, Region) and s.kind == "parallel" for s, _ in self.source.scopes[id(op)])

    def whole(self, place: Place, name: str, index: tuple[Expr, ...], inside: Facts) -> Pieces | None:
        """What an element of a buffer holds whose newest version is a tile with a scattered update, all stored."""
        contents = place.contents[name]
        layer = contents.layers[0] if contents.layers else None
        events = self.events.get(layer.origin, []) if layer is not None and layer.origin is not None else []
        if layer is None or not events or len({id(op) for op, _ in events}) != 1 or contents.elsewhere:
            return None
        (op, _), origin = events[0], layer.origin
        if any(_around(e.frames, place.frames, layer.depth) for _, e in events):
            return None
        if not any(b.whole or b.written for b in contents.layers[1:]):
            return None  # what the update leaves alone was never written
        env = {f"${i}": e for i, e in enumerate(index)}
        found = substituted(layer.pieces, env)
        term = found[0][1]
        if len(found) != 1 or not isinstance(term, Elem):
            return None
        key = (origin, len(events))
        if key not in self.complete:
            try:
                self.coverage.check_update(self._update(op), [e for _, e in events])
            except Finding:
                if computed(op):
                    raise
                return None  # which elements were written is known: `storage` decides
            self.complete.add(key)
        below = Contents(contents.layers[1:], contents.elsewhere, contents.touched, contents.shape)
        old = self._before(term, op)
        for facts, have in split(inside, read(below, index, inside, name)):
            if self.compare.same(facts, have, old, place.view) is not None:
                return None
        return found

    def _before(self, term: Elem, op: Insert) -> Elem:
        """The element of the tile before the update, outside all the regions that assemble it."""
        made = self.source.values[term.value]
        if made is op.result:
            entry = self._replaced(op)
        else:
            region = self.source.defs[made.name]
            assert isinstance(region, Region)
            entry = region.inits[next(i for i, v in enumerate(region.results) if v is made)]
        return self.source.element(entry, self.source.coords(term), dict(term.inst))


def computed(op: Insert) -> bool:
    """Whether integer tiles select the elements that are replaced."""
    return any(not isinstance(s, tuple) and s.tile is not None for s in op.subs)


def _entry(inner: object, made: Value) -> Value | None:
    if not isinstance(inner, Region) or made not in inner.results:
        return None
    return inner.inits[next(i for i, v in enumerate(inner.results) if v is made)]


def _around(stored: tuple[Frame, ...], here: tuple[Frame, ...], depth: int) -> bool:
    """Whether a control between the version and the store is still being executed."""
    return len(stored) > depth and len(here) > depth and stored[depth] is here[depth]
