"""J1, J2 and J4 of writing: versions of buffers, stores that conform to them, stores of the source's elements."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.sets import Facts, is_opaque
from treadle.checker.compare import split
from treadle.checker.computing import Computing
from treadle.checker.reading import Stored, as_claim, is_promised
from treadle.checker.scatter import computed
from treadle.checker.state import Place
from treadle.checker.storage import Contents, Written, clash_elsewhere, slots
from treadle.checker.terms import (
    Elem,
    Num,
    Pieces,
    Undef,
    only,
    substituted,
    undefined,
)
from treadle.checker.verdict import Refused, Unsure, refuse
from treadle.dtype.formats import DType, bool_
from treadle.hardware.memory_model import find_ordering
from treadle.ir.core import If
from treadle.ir.infer import sub_axes
from treadle.ir.ops import access
from treadle.machine.form import (
    Claim,
    Copy,
    Let,
    MemRef,
    Store,
    StoreClaim,
    Tasks,
    Version,
)
from treadle.machine.vocabulary import BOX_EFFECTS


class Statements(Computing):
    """All rules of statements: those of `Version`, `Store` and `Let` stand here."""

    def version(self, place: Place, stmt: Version) -> None:
        """`Version`."""
        buffer = place.buffers.get(stmt.buffer)
        if buffer is None:
            raise Refused("J1", f"{stmt.buffer} is no buffer", {})
        if buffer.place == "workspace" and any(
            f.ranges and f.branch is None and isinstance(f.control, Tasks) for f in place.frames
        ):
            raise Unsure(
                "J2", f"{buffer.name} gets a version inside tasks that share it", missing="a version before the tasks"
            )
        rest = (
            undefined(f"{buffer.name} holds nothing there")
            if stmt.fill == "undef"
            else only(Num(stmt.fill, buffer.dtype))
        )
        if stmt.claim is None:
            pieces = rest
        else:
            names = slots(len(buffer.shape))
            facts = place.facts.also(*box(names, [place.expr(e) for e in buffer.shape]))
            where, term = place.claimed(as_claim(stmt.claim), facts, buffer.dtype)
            pieces = ((where, term), *rest) if where else only(term)
        place.contents[buffer.name] = place.contents[buffer.name].opened(pieces, id(stmt), len(place.frames))

    def store(self, place: Place, stmt: Store) -> None:
        """`Store`."""
        src = place.frag(stmt.src.name)
        if stmt.src.coords is not None:
            raise Unsure("J1", "a store of re-indexed slots", missing="a copy first")
        facts = place.slots(src.shape)
        where = place.constraints(stmt.where, facts)
        inside = facts.also(*where)
        if inside.contradictory:
            return
        held = place.held(stmt.src.name, None, facts)
        if stmt.dst.name in place.buffers:
            self._store_buffer(place, stmt, src.dtype, where, inside, held)
        else:
            self.store_elements(place, stmt, stmt.dst, src.shape, src.dtype, where, inside, held)

    def _store_buffer(
        self, place: Place, stmt: Store, dtype: DType, where: tuple[Constraint, ...], inside: Facts, held: Pieces
    ) -> None:
        buffer = place.buffers[stmt.dst.name]
        if dtype != buffer.dtype:
            raise Refused("J1", f"{buffer.name} is {buffer.dtype}, not {dtype}: a store does not convert", {})
        if stmt.effect != "set":
            raise Unsure("J2", f"an atomic store to {buffer.name}", missing="a rule for atomic buffers")
        if (stmt.dst.version is None) != (buffer.versions == 0):
            raise Refused("J2", f"{buffer.name} is a ring with no version named, or no ring", {})
        extents = tuple(place.expr(e) for e in buffer.shape)
        index = self.index(place, stmt.dst, inside, extents, "writes")
        contents = place.contents[buffer.name]
        if (
            not contents.layers
            or contents.layers[0].whole
            and isinstance(contents.layers[0].pieces[-1][1], Undef)
            and len(contents.layers[0].pieces) == 1
        ):
            raise Unsure("J1", f"{buffer.name} is written under no version", missing=f"a version of {buffer.name}")
        wanted = substituted(contents.layers[0].pieces, {f"${i}": e for i, e in enumerate(index)})
        if self._scattered(place, stmt, contents, index, wanted, inside, held):
            return
        self._race(place, stmt, index, inside)
        for facts, want in split(inside, wanted):
            if not isinstance(want, Undef):
                self.prove(place, facts, held, want)
        if isinstance(stmt.claim, Claim):
            own, term = place.claimed(stmt.claim, inside, dtype)
            self.prove(place, inside.also(*own), held, term)
        names = slots(len(place.frag(stmt.src.name).shape))
        event = Written(
            _written_map(names, index, where, place.frag(stmt.src.name).shape), sure=stmt.mask is None, by=stmt
        )
        place.contents[buffer.name] = contents.stored(event)

    def _scattered(
        self,
        place: Place,
        stmt: Store,
        contents: Contents,
        index: tuple[Expr, ...],
        wanted: Pieces,
        inside: Facts,
        held: Pieces,
    ) -> bool:
        """A store of a scattered update's element: noted by `scatter`."""
        if len(wanted) != 1 or not isinstance(wanted[0][1], Elem) or stmt.mask is not None:
            return False
        want = wanted[0][1]
        if not self.scatters.stored(place, stmt, contents.layers[0], want, held, inside, self.position()):
            return False
        assert isinstance(stmt.claim, Claim)
        op = self.source.defs[stmt.claim.value]
        scattered = isinstance(op, access.Insert) and computed(op)
        if contents.elsewhere and not self.scatters.apart(place, stmt, want):
            if scattered:
                raise Unsure(
                    "J2", f"tasks scatter into {stmt.dst.name}", missing="tasks that are the regions' instances"
                )
            self._race(place, stmt, index, inside)
        if scattered:
            free = tuple(f"{a}'" for a in slots(len(index)))
            event = Written(IndexMap(free, tuple(map(sym, free))), sure=False, by=stmt)
        else:
            shape = place.frag(stmt.src.name).shape
            mapped = _written_map(slots(len(shape)), index, place.constraints(stmt.where, inside), shape)
            event = Written(mapped, by=stmt)
        place.contents[stmt.dst.name] = contents.stored(event)
        return True

    def _race(self, place: Place, stmt: Store, index: tuple[Expr, ...], inside: Facts) -> None:
        name = stmt.dst.name
        contents = place.contents[name]
        if contents.elsewhere:
            clash, other = clash_elsewhere(contents, index, inside) or (None, None)
            if clash is not None and is_opaque(clash):
                raise Unsure("J2", f"two tasks may write one element of {name}", clash, missing="indices that differ")
            if clash is not None:
                raise Refused("J2", f"two tasks write the same element of {name}", clash, partner=other)

    def store_elements(
        self,
        place: Place,
        stmt: Store | Copy,
        dst: MemRef,
        shape: tuple[int, ...],
        dtype: DType,
        where: tuple[Constraint, ...],
        inside: Facts,
        held: Pieces,
    ) -> None:
        """Elements of a tensor stored, by agents or by an engine: those of the claimed source store, and their
        values."""
        claim = stmt.claim
        if not isinstance(claim, StoreClaim) or not 0 <= claim.store < len(self.source.stores):
            raise Refused("J1", f"a store to {dst.name} that claims no store of the source", {})
        op = self.source.stores[claim.store]
        effect = stmt.effect if isinstance(stmt, Store) else BOX_EFFECTS.get(stmt.engine, "set")
        if op.tensor.name != dst.name or op.tensor.dtype != dtype or op.effect != effect:
            raise Refused(
                "J1", f"the source's store {claim.store} is to {op.tensor.name} ({op.effect}, {op.tensor.dtype})", {}
            )
        if dtype.packed and find_ordering("store.packed", place.target.kind) is None:
            raise Unsure("J2", f"{dst.name} has elements that share a byte", missing="a rule for them")
        axes = sub_axes(op.subs)
        inst = place.instance(claim.instance, inside)
        for scope, branch in self.source.scopes[id(op)]:
            if isinstance(scope, If) and place.view.branches.get(self.source.element(scope.cond, {}, inst)) != branch:
                raise Refused("J1", f"store {claim.store} is not under its instance's condition", inside.sample() or {})
        if len(claim.coords) != len(axes):
            raise Refused("J1", f"the store has {len(axes)} axes, the claim {len(claim.coords)} coordinates", {})
        coords = tuple(place.expr(c, inside, ghost=True) for c in claim.coords)
        at = {a.dim: c for a, c in zip(axes, coords)}
        wanted = self.source.subscripts(op.subs, op.tensor.dims, at, inst)

        def promised(axis: int) -> bool:
            return (
                is_promised(op.subs[axis])
                and inside.equal(place.expr(dst.index[axis], inside), wanted[axis])
                and self.active(place, op, at, inst, inside)
            )

        index = self.index(place, dst, inside, tuple(d.extent for d in op.tensor.dims), "writes", promised)
        for i, w in zip(index, wanted):
            if not inside.equal(i, w):
                refuse(
                    inside,
                    Constraint(i - w, equality=True),
                    "J1",
                    f"writes another element of {op.tensor} than the source",
                )
        self.prove(place, inside, held, self.source.element(op.value, at, inst))
        masked = isinstance(stmt, Store) and self._masked(place, stmt, op, at, inst, inside)
        old = isinstance(stmt, Store) and stmt.old is not None
        self.stored(place, shape, claim, op, Stored(coords, inst, place.view.bindings, where, masked, index, old))
        if isinstance(stmt, Store) and old:
            self._hand_back(place, stmt, op, Elem(op.results[0].name, coords, self._instance(op, inst)), where)

    def _instance(self, op: access.Store, inst: Mapping[str, Expr]) -> tuple[tuple[str, Expr], ...]:
        return self.source.instance(op.results[0].name, inst)

    def _hand_back(
        self, place: Place, stmt: Store, op: access.Store, term: Elem, where: tuple[Constraint, ...]
    ) -> None:
        """The fragment that receives what the elements held before: the results of the source's store.

        The store happens exactly once for each contribution (coverage) and is atomic, so what it finds is what some
        order of the contributions finds; the source allows any that its regions and the store's own order do not
        exclude, and those are kept (coverage, order, sequence). A contribution that is skipped has 0, as in the source.
        """
        assert stmt.old is not None
        old, src = place.frag(stmt.old), place.frag(stmt.src.name)
        if op.effect == "set" or old.dtype != src.dtype or old.shape != src.shape:
            raise Refused("J1", f"{stmt.old} cannot hold what {op.tensor} held before", {})
        nests = [f.control for f in place.frames if isinstance(f.control, Tasks)]
        single = all(r.agents * r.threads == 1 for r in place.kernel.roles)
        alone = single or bool(nests) and nests[-1].over == "threads"
        if place.target.kind == "cuda" and (stmt.by or old.dist or not alone):
            raise Unsure("J5", "old values of a store that one thread executes for others", missing="tasks of threads")
        place.holds[stmt.old] = ((where, term), *undefined("no element was stored")) if where else only(term)

    def _masked(
        self, place: Place, stmt: Store, op: access.Store, at: dict[Dim, Expr], inst: dict[str, Expr], inside: Facts
    ) -> bool:
        """Whether the statement's mask is the source's `where`."""
        if stmt.mask is None:
            return False
        if op.where is None:
            raise Refused("J1", "the store is masked, the source's is not", {})
        held = self.operand(place, stmt.mask, inside, bool_)
        self.prove(place, inside, held, self.source.element(op.where, at, inst))
        return True

    def let(self, place: Place, stmt: Let) -> None:
        """`Let`."""
        place.lets[stmt.name] = place.expr(stmt.expr)


def _written_map(
    names: tuple[str, ...], index: tuple[Expr, ...], where: tuple[Constraint, ...], shape: tuple[int, ...]
) -> IndexMap:
    return IndexMap(names, index, (*box(names, shape), *where))
