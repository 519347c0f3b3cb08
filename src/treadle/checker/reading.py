"""J1 and J4 of reading: what a claim must prove, where an access may go, what a load brings.

A statement's slots are its destination's. What it leaves in the destination is recorded as the claim says, once proved,
and by computation where there is no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from treadle.algebra.dims import Dim
from treadle.algebra.dims import Part as Axis
from treadle.algebra.expr import Constraint, Expr, ge, lt, sym
from treadle.algebra.sets import Facts, is_opaque
from treadle.checker.compare import Gap, split
from treadle.checker.folds import Folds
from treadle.checker.promises import Promised
from treadle.checker.sampling import differ
from treadle.checker.scopes import argument_symbols, flat
from treadle.checker.state import Place
from treadle.checker.storage import Layer, read
from treadle.checker.terms import (
    Cell,
    Elem,
    Idx,
    Num,
    Part,
    Piece,
    Pieces,
    Term,
    Undef,
    only,
    substituted,
    undefined,
)
from treadle.checker.verdict import Refused, Spent, Unsure, refuse
from treadle.ir.core import If, Sub
from treadle.ir.infer import sub_axes
from treadle.ir.ops import access
from treadle.machine.form import (
    Claim,
    Load,
    MemRef,
    Store,
    StoreClaim,
)


class Scattering(Protocol):
    """The rules of `scatter`."""

    def stored(
        self, place: Place, stmt: Store, layer: Layer, want: Elem, held: Pieces, inside: Facts, position: int
    ) -> bool: ...
    def apart(self, place: Place, stmt: Store, want: Elem) -> bool: ...
    def own(self, place: Place, stmt: Load, inside: Facts) -> bool: ...
    def whole(self, place: Place, name: str, index: tuple[Expr, ...], inside: Facts) -> Pieces | None: ...


class Reading:
    """Rules that all statements share, and loads.

    `stored` is told of every store to a tensor, `loaded` of every load of a tensor that is stored.
    """

    def __init__(
        self,
        folds: Folds,
        spent: Spent,
        stored: Callable[[Place, tuple[int, ...], StoreClaim, access.Store, Stored], None],
        loaded: Callable[[Place, access.Load, Loaded], None],
    ) -> None:
        self.folds = folds
        self.source = folds.source
        self.compare = folds.compare
        self.spent = spent
        self.promises = Promised(self.source)
        self.scatters: Scattering
        self.position: Callable[[], int] = lambda: 0
        self.stored = stored
        self.loaded = loaded

    # ---- recording

    def prove(self, place: Place, facts: Facts, pieces: Pieces, want: Term) -> None:
        """*Errors*: a finding where what is held is not `want`."""
        for inner, have in split(facts, pieces):
            gap = self.compare.same(inner, have, want, place.view)
            if gap is not None and not gap.facts.contradictory:
                self.differ(place, gap, want)

    def differ(self, place: Place, gap: Gap, want: Term) -> None:
        """Raises the finding for two terms that differ: a refusal if they do at some valuation, else doubt."""
        if gap.constraint is not None:
            refuse(gap.facts, gap.constraint, "J1", f"{gap}")
        case = gap.facts.sample() or {}
        certain = isinstance(gap.have, Undef | Part) or isinstance(gap.want, Part)
        if certain or (not is_opaque(case) and differ(gap.have, gap.want, case, self.source, place.view)):
            raise Refused("J1", f"{gap} (for {want})", case)
        raise Unsure("J1", f"{gap} (for {want})", case, missing="a rule that relates the two")

    def record(self, place: Place, name: str, claim: Claim | StoreClaim | None, computed: Pieces) -> None:
        """The destination holds its claim, once proved, and otherwise what was computed."""
        frag = place.frag(name)
        if claim is None:
            place.holds[name] = computed
            return
        if isinstance(claim, StoreClaim):
            raise Refused("J1", "a claim of a store on a statement that stores nothing", {})
        facts = place.slots(frag.shape)
        where, term = place.claimed(claim, facts, frag.dtype)
        self.prove(place, facts.also(*where), computed, term)
        place.holds[name] = after_claim(where, term, computed)

    # ---- accesses

    def index(
        self,
        place: Place,
        ref: MemRef,
        facts: Facts,
        extents: tuple[Expr, ...],
        what: str,
        promised: Callable[[int], bool] | None = None,
    ) -> tuple[Expr, ...]:
        """The index tuple of an access, inside its extents for all slots. *Errors*: findings of J1 (J4 for buffers)."""
        judgement = "J4" if ref.name in place.buffers else "J1"
        if len(ref.index) != len(extents):
            raise Refused(judgement, f"{ref.name} has {len(extents)} axes, not {len(ref.index)}", {})
        out: list[Expr] = []
        told = self.promises.at(place, facts, ref.index)
        for axis, (e, extent) in enumerate(zip(ref.index, extents)):
            i = place.expr(e, facts)
            out.append(i)
            for fact in (ge(i, 0), lt(i, extent)):
                if facts.implies(fact) or (promised is not None and promised(axis)):
                    continue
                if not told.imply(fact):
                    refuse(facts, fact, judgement, f"{what} {ref.name} outside its axis {axis} of extent {extent}")
        return tuple(out)

    def load(self, place: Place, stmt: Load) -> None:
        """`Load`."""
        frag = place.frag(stmt.dst)
        facts = place.slots(frag.shape)
        where = place.constraints(stmt.where, facts)
        inside = facts.also(*where)
        if stmt.src.name in place.buffers:
            pieces = self._load_buffer(place, stmt, inside)
        else:
            pieces = self._load_tensor(place, stmt, facts, inside)
        if where:
            rest = undefined("masked") if stmt.fill == "undef" else only(Num(stmt.fill, frag.dtype))
            pieces = (*((where + tuple(c for c in conds if c not in where), t) for conds, t in pieces), *rest)
        self.record(place, stmt.dst, stmt.claim, pieces)

    def _load_buffer(self, place: Place, stmt: Load, inside: Facts) -> Pieces:
        buffer = place.buffers[stmt.src.name]
        if buffer.dtype != place.frag(stmt.dst).dtype:
            raise Refused("J1", f"{buffer.name} is {buffer.dtype}, {stmt.dst} is not: a load does not convert", {})
        contents = place.contents[buffer.name]
        if contents.elsewhere and self.scatters.own(place, stmt, inside):
            place.contents[buffer.name] = replace(contents, elsewhere=())
        try:
            return self.element(place, stmt.src, inside)
        finally:
            place.contents[buffer.name] = contents

    def element(self, place: Place, ref: MemRef, inside: Facts) -> Pieces:
        """What the element of a buffer holds that an access names: of a slot of a ring, what its producer put there."""
        buffer = place.buffers[ref.name]
        extents = tuple(place.expr(e) for e in buffer.shape)
        index = self.index(place, ref, inside, extents, "reads")
        if inside.contradictory:
            return undefined("no slot")
        # the index is inside, also where that took a lemma that a set does not know
        inside = inside.also(*(c for i, n in zip(index, extents) for c in (ge(i, 0), lt(i, n))))
        if (ref.version is None) != (buffer.versions == 0):
            raise Refused("J2", f"{ref.name} is accessed {'without' if ref.version is None else 'with'} a version", {})
        filled = place.filled.get(ref.name)
        if filled is not None and place.contents[ref.name].untouched(filled):
            found = substituted(filled, {f"${i}": e for i, e in enumerate(index)})
            for case, term in split(inside, found):
                if isinstance(term, Undef) and not term.some:
                    raise Refused("J1", f"{ref.name} is read where nothing was brought", case.sample() or {})
            return found
        whole = self.scatters.whole(place, ref.name, index, inside)
        return read(place.contents[ref.name], index, inside, ref.name) if whole is None else whole

    def _load_tensor(self, place: Place, stmt: Load, facts: Facts, inside: Facts) -> Pieces:
        tensor = next((t for t in self.source.program.tensors if t.name == stmt.src.name), None)
        if tensor is None:
            raise Refused("J1", f"{stmt.src.name} is no tensor or buffer", {})
        if tensor.dtype != place.frag(stmt.dst).dtype:
            raise Refused("J1", f"{tensor.name} is {tensor.dtype}, {stmt.dst} is not: a load does not convert", {})
        op, at, inst = self._source_load(place, stmt, inside)
        promised: Callable[[int], bool] | None = None
        if op is not None and any(s.promised for s in flat(op.subs)):
            wanted = self.source.load_index(op, at, inst)

            def holds(axis: int) -> bool:
                return (
                    self.active(place, op, at, inst, inside)
                    and is_promised(op.subs[axis])
                    and inside.equal(place.expr(stmt.src.index[axis], inside), wanted[axis])
                )

            promised = holds

        index = self.index(place, stmt.src, inside, tuple(d.extent for d in tensor.dims), "reads", promised)
        if tensor.name not in self.source.changed:
            return only(Cell(tensor.name, index, tensor.dtype))
        if op is None or op.tensor is not tensor:
            raise Unsure(
                "J2", f"{tensor.name} is stored by this program", missing="a claim that names the load of the source"
            )
        wanted = self.source.load_index(op, at, inst)
        where, term = place.claimed(as_claim(stmt.claim), facts)
        if not (self.active(place, op, at, inst, inside) and self.source.in_force(op, inst, place.view.bindings)):
            raise Unsure(
                "J2",
                f"{tensor.name} is stored by this program, and not only the instance's own elements are read",
                missing="a load of the elements of the instance in force",
            )
        for i, w in zip(index, wanted):
            if not inside.also(*where).equal(i, w):
                refuse(
                    inside.also(*where), Constraint(i - w, equality=True), "J1", f"reads another element than {term}"
                )
        shape = place.frag(stmt.dst).shape
        self.loaded(place, op, Loaded(index, shape, place.constraints(stmt.where, facts), inst))
        snapshot = self.source.snapshot(op, index, inst)
        return ((where, snapshot), *undefined("outside the claim")) if where else only(snapshot)

    def _source_load(
        self, place: Place, stmt: Load, facts: Facts
    ) -> tuple[access.Load | None, dict[Dim, Expr], dict[str, Expr]]:
        """The source load that the claim names, with the claimed coordinates and instance."""
        if not isinstance(stmt.claim, Claim):
            return None, {}, {}
        op = self.source.defs.get(stmt.claim.value)
        if not isinstance(op, access.Load):
            return None, {}, {}
        inst = place.instance(stmt.claim.instance, facts)
        axes = op.result.type.axes
        return op, {a.dim: place.expr(c, facts, ghost=True) for a, c in zip(axes, stmt.claim.coords)}, inst

    def active(
        self, place: Place, op: access.Load | access.Store, at: dict[Dim, Expr], inst: dict[str, Expr], facts: Facts
    ) -> bool:
        """Whether the claimed elements of an access exist in the source: coordinates on its axes, instance active."""
        for axis in sub_axes(op.subs):
            c = at[axis.dim]
            lo, hi = self._reach(axis, inst)
            if not (facts.implies(ge(c, lo)) and facts.implies(lt(c, hi))):
                return False
        return self.in_scope(place, op, inst, facts)

    def _reach(self, axis: Axis, inst: dict[str, Expr]) -> tuple[Expr, Expr]:
        """Where elements along an axis exist. A block of an argument that nothing binds is some block of its domain,
        and each coordinate there is in one."""
        for symbol in axis.lo.symbols - inst.keys():
            arg = self.source.by_argument[symbol][1] if symbol in self.source.by_argument else None
            if arg is not None and arg.kind == "block" and (axis.lo, axis.hi) == tuple(map(sym, argument_symbols(arg))):
                axis = arg.domain
                break
        return self.source.expr_at(axis.lo, inst), self.source.expr_at(axis.hi, inst)

    def in_scope(self, place: Place, op: access.Load | access.Store, inst: dict[str, Expr], facts: Facts) -> bool:
        """Whether every scope around a source operation is one that we are in; of a region in whose instances we are
        not, whether it has one for sure (a block of it, or the coordinate that the claim says)."""
        for scope, branch in self.source.scopes[id(op)]:
            if isinstance(scope, If):
                if place.view.branches.get(self.source.element(scope.cond, {}, inst)) != branch:
                    return False
            else:
                for arg in scope.args:
                    if any(inst.get(s) != place.view.bindings.get(s) for s in argument_symbols(arg)):
                        if arg.kind == "block" or arg.name not in inst:
                            return False
                    elif argument_symbols(arg)[0] in inst:
                        continue
                    lo, hi = (self.source.expr_at(e, inst) for e in (arg.domain.lo, arg.domain.hi))
                    b = inst.get(arg.name, lo)
                    if not (facts.implies(ge(b, lo)) and facts.implies(lt(b, hi))):
                        return False
        return True


@dataclass(frozen=True)
class Loaded:
    """A load of a tensor that is stored, resolved: the element of each slot, its conditions, its instance."""

    index: tuple[Expr, ...]
    shape: tuple[int, ...]
    where: tuple[Constraint, ...]
    inst: Mapping[str, Expr]


class Stored:
    """A store to a tensor, resolved: coordinates, instance and element by slot, its conditions, whether it is masked at
    run time exactly as the source says, and whether it hands back what the elements held before."""

    def __init__(
        self,
        coords: tuple[Expr, ...],
        inst: Mapping[str, Expr],
        bindings: Mapping[str, Expr],
        where: tuple[Constraint, ...],
        masked: bool,
        index: tuple[Expr, ...],
        old: bool = False,
    ) -> None:
        self.coords, self.inst, self.bindings, self.where, self.masked = coords, inst, bindings, where, masked
        self.index, self.old = index, old


def after_claim(where: tuple[Constraint, ...], term: Term, computed: Pieces) -> Pieces:
    """What a holder holds after its claim was proved: the claim, elsewhere the numbers that were computed there."""
    if not where:
        return only(term)
    rest: list[Piece] = []
    seen = [set(where)]
    for conds, t in computed:
        if not any(s.issubset(conds) for s in seen):
            rest.append((conds, t if isinstance(t, Num | Idx | Undef) else Undef("outside the claim")))
            seen.append(set(conds))
    if not rest or rest[-1][0]:
        rest.append(((), Undef("outside the claim")))
    return ((where, term), *rest)


def is_promised(sub: Sub | tuple[Sub, ...]) -> bool:
    """Whether a subscript carries the author's word that it is inside."""
    return not isinstance(sub, tuple) and sub.promised


def as_claim(claim: Claim | StoreClaim | None) -> Claim:
    """A statement's claim on a value. *Errors*: unknown where it carries none."""
    if not isinstance(claim, Claim):
        raise Unsure("J1", "the statement carries no claim", missing="a claim")
    return claim
