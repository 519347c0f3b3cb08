"""J1, J4 and J6 of single statements: each claim is derived from what the operands hold, each access stays inside.

A statement's slots are its destination's. What it leaves in the destination is recorded as the claim says, once proved,
and by computation where there is no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, ge, lt, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.monoids import BY_MERGE
from treadle.algebra.sets import Facts, is_opaque
from treadle.checker.compare import Gap, split
from treadle.checker.folds import Folds, Step, slot_names
from treadle.checker.sampling import differ
from treadle.checker.source import converted, flat
from treadle.checker.state import Place
from treadle.checker.storage import Written, clash_elsewhere, read, slots
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
    app,
    combined,
    only,
    substituted,
    undefined,
)
from treadle.checker.verdict import Refused, Spent, Unsure, refuse
from treadle.dtype.formats import DType, bool_, i64
from treadle.hardware.atoms import Atom, find_atom
from treadle.hardware.layouts import layout_problem
from treadle.ir.core import If, Sub
from treadle.ir.infer import sub_axes
from treadle.ir.ops import access
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.ir.ops.fold import Mma as SourceMma
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import (
    Claim,
    Compute,
    Copy,
    Fold,
    FragRef,
    Let,
    Load,
    MemRef,
    Mma,
    Operand,
    Store,
    StoreClaim,
    Tasks,
    Version,
)


class Statements:
    """The rules; `stored` is told of every store to a tensor, `loaded` of every load of a tensor that is stored."""

    def __init__(
        self,
        folds: Folds,
        spent: Spent,
        stored: Callable[[Place, tuple[int, ...], StoreClaim, access.Store, Stored], None],
        loaded: Callable[[Place, Load, access.Load], None],
    ) -> None:
        self.folds = folds
        self.source = folds.source
        self.compare = folds.compare
        self.spent = spent
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
        for axis, (e, extent) in enumerate(zip(ref.index, extents)):
            i = place.expr(e, facts)
            out.append(i)
            for fact in (ge(i, 0), lt(i, extent)):
                if not facts.implies(fact) and not (promised is not None and promised(axis)):
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
        return self.element(place, stmt.src, inside)

    def element(self, place: Place, ref: MemRef, inside: Facts) -> Pieces:
        """What the element of a buffer holds that an access names: of a slot of a ring, what its producer put there."""
        buffer = place.buffers[ref.name]
        extents = tuple(place.expr(e) for e in buffer.shape)
        index = self.index(place, ref, inside, extents, "reads")
        if inside.contradictory:
            return undefined("no slot")
        if (ref.version is None) != (buffer.versions == 0):
            raise Refused("J2", f"{ref.name} is accessed {'without' if ref.version is None else 'with'} a version", {})
        filled = place.filled.get(ref.name)
        if filled is not None:
            return substituted(filled, {f"${i}": e for i, e in enumerate(index)})
        return read(place.contents[ref.name], index, inside, ref.name)

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
                    and _is_promised(op.subs[axis])
                    and inside.equal(place.expr(stmt.src.index[axis], inside), wanted[axis])
                )

            promised = holds

        index = self.index(place, stmt.src, inside, tuple(d.extent for d in tensor.dims), "reads", promised)
        if tensor.name not in self.source.stored:
            return only(Cell(tensor.name, index, tensor.dtype))
        if op is None or op.tensor is not tensor:
            raise Unsure(
                "J2", f"{tensor.name} is stored by this program", missing="a claim that names the load of the source"
            )
        wanted = self.source.load_index(op, at, inst)
        where, term = place.claimed(_as_claim(stmt.claim), facts)
        if not self.active(place, op, at, inst, inside):
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
        self.loaded(place, stmt, op)
        return (((where), term), *undefined("outside the claim")) if where else only(term)

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
            if not facts.implies(ge(c, self.source.expr_at(axis.lo, inst))):
                return False
            if not facts.implies(lt(c, self.source.expr_at(axis.hi, inst))):
                return False
        return self.in_scope(place, op, inst, facts)

    def in_scope(self, place: Place, op: access.Load | access.Store, inst: dict[str, Expr], facts: Facts) -> bool:
        """Whether every scope around a source operation is one that we are in."""
        for scope, branch in self.source.scopes[id(op)]:
            if isinstance(scope, If):
                if place.view.branches.get(self.source.element(scope.cond, {}, inst)) != branch:
                    return False
            else:
                for arg in scope.args:
                    if arg.kind == "block":
                        if inst.get(f"{arg.name}.start") != place.view.bindings.get(f"{arg.name}.start"):
                            return False
                        continue
                    b = inst.get(arg.name)
                    if b is None:
                        return False
                    if b == place.view.bindings.get(arg.name):
                        continue
                    lo, hi = (self.source.expr_at(e, inst) for e in (arg.domain.lo, arg.domain.hi))
                    if not (facts.implies(ge(b, lo)) and facts.implies(lt(b, hi))):
                        return False
        return True

    # ---- computing

    def operand(self, place: Place, arg: Operand, facts: Facts, dtype: DType) -> Pieces:
        """What an operand holds at each slot."""
        if isinstance(arg, FragRef):
            coords = None if arg.coords is None else tuple(place.expr(c, facts) for c in arg.coords)
            return place.held(arg.name, coords, facts)
        if isinstance(arg, MemRef):
            raise Unsure("J1", f"{arg.name} as an operand", missing="a rule for memory operands on this target")
        return only(Num(arg, dtype))

    def operand_dtype(self, place: Place, arg: Operand) -> DType | None:
        """The dtype of a fragment operand; None for numbers."""
        if not isinstance(arg, FragRef):
            return None
        scalar = self.source.scalars.get(arg.name)
        return scalar.type.dtype if scalar is not None and arg.name not in place.frags else place.frag(arg.name).dtype

    def compute(self, place: Place, stmt: Compute) -> None:
        """`Compute`."""
        frag = place.frag(stmt.dst)
        facts = place.slots(frag.shape)
        where = place.constraints(stmt.where, facts)
        inside = facts.also(*where)
        if self._as_fold(place, stmt, inside):
            return
        pieces = self._computed(place, stmt, inside, frag.dtype)
        if where:
            rest = undefined("masked") if stmt.fill == "undef" else only(Num(stmt.fill, frag.dtype))
            pieces = (*((where + tuple(c for c in conds if c not in where), t) for conds, t in pieces), *rest)
        self.record(place, stmt.dst, stmt.claim, pieces)

    def _computed(self, place: Place, stmt: Compute, facts: Facts, dtype: DType) -> Pieces:
        if stmt.fn == "index":
            if stmt.expr is None or dtype != i64:
                raise Refused("J1", "an index is an i64 expression", {})
            return only(Idx(place.expr(stmt.expr, facts)))
        have = [self.operand_dtype(place, a) for a in stmt.args]
        known = next((d for d in (have[1:] if stmt.fn == "where" else have) if d is not None), dtype)
        lists = tuple(
            self.operand(place, a, facts, bool_ if stmt.fn == "where" and i == 0 else known)
            for i, a in enumerate(stmt.args)
        )
        if stmt.fn == "copy":
            if have and have[0] is not None and have[0] != dtype:
                raise Refused("J1", f"a copy of {have[0]} into {dtype}", {})
            return only(Num(stmt.args[0], dtype)) if have[0] is None else lists[0]  # type: ignore[arg-type]
        if stmt.fn in ("cast", "cast.saturate"):
            saturate = stmt.fn == "cast.saturate" or "saturate" in stmt.tags
            return combined(lists, lambda ts: converted(ts[0], known, dtype, saturate))
        if stmt.fn == "bitcast":
            return combined(lists, lambda ts: app("bitcast", ts, dtype))
        self._typed(stmt, [d for d in (have[1:] if stmt.fn == "where" else have) if d is not None], dtype)
        if stmt.fn == "fma":
            self._contracts()
            return combined(lists, lambda ts: app("add", (app("mul", ts[:2], dtype), ts[2]), dtype))
        return combined(lists, lambda ts: app(stmt.fn, ts, dtype))

    def _typed(self, stmt: Compute, have: list[DType], dtype: DType) -> None:
        row = ELEMENTWISE.get(stmt.fn) if stmt.fn != "fma" else (3, "f", "same")
        if row is None:
            raise Unsure("J1", f"the function {stmt.fn}", missing=f"a meaning of {stmt.fn}")
        if len(stmt.args) != row[0]:
            raise Refused("J1", f"{stmt.fn} of {len(stmt.args)} operands", {})
        wanted = bool_ if row[2] == "bool" else dtype
        if dtype != wanted or (row[2] == "same" and any(d != dtype for d in have)) or len(set(have)) > 1:
            raise Refused("J1", f"{stmt.fn} of {', '.join(map(str, have))} into {dtype}", {})

    def _contracts(self) -> None:
        if self.source.program.numerics.get("contract", True) is False:
            raise Refused("J6", "a fused multiply-add, but the program does not permit contraction", {})
        self.spent.names.add("contract")

    def _as_fold(self, place: Place, stmt: Compute, facts: Facts) -> bool:
        """A fold step written as arithmetic: `maximum(acc, x)`, `fma(a, b, acc)` with an unfinished claim."""
        if not isinstance(stmt.claim, Claim) or stmt.claim.over is None:
            return False
        op = self.source.defs.get(stmt.claim.value)
        args = stmt.args
        if (
            isinstance(op, Reduce)
            and stmt.fn in BY_MERGE
            and len(args) == 2
            and all(isinstance(a, FragRef) for a in args)
        ):
            monoid = BY_MERGE[stmt.fn].name
            # either operand may be the state so far
            first = self.operand(place, args[0], facts, place.frag(stmt.dst).dtype)
            second = self.operand(place, args[1], facts, place.frag(stmt.dst).dtype)
            state = any(isinstance(t, Part) or (isinstance(t, Elem) and t.value == op.result.name) for _, t in second)
            acc, new = (second, first) if state and not _holds_part(first, op.result.name) else (first, second)
            self._fold_step(place, stmt.dst, stmt.claim, acc, new, monoid, op.nan, (), ())
            return True
        if isinstance(op, SourceMma) and stmt.fn == "fma" and len(args) == 3:
            dtype = place.frag(stmt.dst).dtype
            a, b, acc = (self.operand(place, x, facts, dtype) for x in args)
            self._fused(op)
            self._mma_step(place, stmt.dst, stmt.claim, acc, a, b, (), ())
            return True
        return False

    # ---- folds and contractions

    def fold(self, place: Place, stmt: Fold) -> None:
        """`Fold`."""
        frag = place.frag(stmt.dst)
        facts = place.slots(frag.shape)
        src = place.frag(stmt.src.name)
        if src.dtype != frag.dtype:
            raise Refused("J1", f"a fold of {src.dtype} into {frag.dtype}", {})
        names = tuple(f"#{i}" for i in range(len(stmt.axes)))
        if stmt.src.coords is not None:
            pieces = self.operand(place, stmt.src, facts, src.dtype)
        else:
            env: dict[str, Expr] = {}
            kept = 0
            for axis in range(len(src.shape)):
                if axis in stmt.axes:
                    env[f"${axis}"] = sym(names[stmt.axes.index(axis)])
                else:
                    env[f"${axis}"] = sym(f"${kept}")
                    if kept >= len(frag.shape) or frag.shape[kept] != src.shape[axis]:
                        raise Refused(
                            "J4", f"{stmt.dst} has not the shape of {stmt.src.name} without the folded axes", {}
                        )
                    kept += 1
            if kept != len(frag.shape):
                raise Refused("J4", f"{stmt.dst} has not the shape of {stmt.src.name} without the folded axes", {})
            pieces = substituted(place.held(stmt.src.name, None, facts), env)
        acc = None if stmt.acc is None else self.operand(place, stmt.acc, facts, frag.dtype)
        claim = _as_claim(stmt.claim)
        sizes = tuple(src.shape[a] for a in stmt.axes)
        self._fold_step(place, stmt.dst, claim, acc, pieces, stmt.monoid, stmt.nan, names, sizes)

    def _fold_step(
        self,
        place: Place,
        dst: str,
        claim: Claim,
        acc: Pieces | None,
        src: Pieces,
        monoid: str,
        nan: str,
        names: tuple[str, ...],
        sizes: tuple[int, ...],
    ) -> None:
        frag = place.frag(dst)
        facts = place.slots(frag.shape)
        where, term = place.claimed(claim, facts, frag.dtype)
        assert isinstance(term, Part | Elem)
        step = Step(facts.also(*where), term, acc, names, sizes, place.view)
        self.folds.fold(step, monoid, nan, src)
        place.holds[dst] = after_claim(where, term, undefined("outside the claim"))

    def mma(self, place: Place, stmt: Mma) -> None:
        """`Mma`."""
        frag = place.frag(stmt.dst)
        facts = place.slots(frag.shape)
        claim = _as_claim(stmt.claim)
        op = self.source.defs.get(claim.value)
        if not isinstance(op, SourceMma):
            raise Refused("J1", f"the claim names {claim.value}, which is no contraction", {})
        rank = len(frag.shape)
        names = slot_names(rank, len(stmt.contracted))
        inside = facts.also(*box(names, stmt.contracted))
        atom = self._atom(place, stmt)
        if atom.fused:
            self._fused(op)
        a, b = (self._factor(place, x, inside) for x in (stmt.a, stmt.b))
        acc = None if stmt.acc is None else self.operand(place, stmt.acc, facts, frag.dtype)
        self._mma_step(place, stmt.dst, claim, acc, a, b, names, stmt.contracted)

    def _factor(self, place: Place, x: FragRef | MemRef, facts: Facts) -> Pieces:
        if isinstance(x, FragRef) and x.coords is None:
            raise Unsure("J1", f"the factor {x.name} without coordinates", missing="the factor's coordinates")
        if isinstance(x, MemRef):
            if x.name not in place.buffers:
                raise Refused("J1", f"{x.name} is no buffer", {})
            return self.element(place, x, facts)
        return self.operand(place, x, facts, place.frag(x.name).dtype)

    def _mma_step(
        self,
        place: Place,
        dst: str,
        claim: Claim,
        acc: Pieces | None,
        a: Pieces,
        b: Pieces,
        names: tuple[str, ...],
        sizes: tuple[int, ...],
    ) -> None:
        frag = place.frag(dst)
        facts = place.slots(frag.shape)
        where, term = place.claimed(claim, facts, frag.dtype)
        assert isinstance(term, Part | Elem)
        self.folds.contract(Step(facts.also(*where), term, acc, names, sizes, place.view), a, b)
        place.holds[dst] = after_claim(where, term, undefined("outside the claim"))

    def _atom(self, place: Place, stmt: Mma) -> Atom:
        atom = find_atom(place.target.name, stmt.atom)
        if atom is None:
            raise Unsure("J1", f"the atom {stmt.atom} on {place.target.name}", missing="a contract of the atom")
        frag = place.frag(stmt.dst)
        have = tuple(
            (place.frag(x.name) if isinstance(x, FragRef) else place.buffers[x.name]).dtype.name
            for x in (stmt.a, stmt.b)
        )
        problem = atom.refuses(frag.dtype.name, have, frag.shape, stmt.contracted, frag.place)
        if problem is not None:
            raise Refused("J1", f"{atom.name}: {problem}", {})
        if atom.tile[0] == 64 and place.target.kind == "cuda":
            problem = layout_problem(place.frag, stmt, frag)
            if problem is not None:
                raise Refused("J5", f"{atom.name}: {problem}", {})
        if atom.flushes and self.source.program.numerics.get("mma_subnormals", "any") == "keep":
            raise Refused("J6", f"{atom.name} flushes subnormal numbers, which the program keeps", {})
        if atom.flushes:
            self.spent.names.add("mma_subnormals")
        return atom

    def _fused(self, op: SourceMma) -> None:
        """Products are exact when they fit the accumulator; else a fused step spends the permission to contract."""
        a, b, acc = (v.type.dtype for v in (op.a, op.b, op.acc))
        if acc.is_float and a.mantissa + b.mantissa + 2 > acc.mantissa + 1:
            self._contracts()

    # ---- memory

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
            where, term = place.claimed(_as_claim(stmt.claim), facts, buffer.dtype)
            pieces = ((where, term), *rest) if where else only(term)
        place.contents[buffer.name] = place.contents[buffer.name].opened(pieces)

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
        self._race(place, buffer.name, index, inside)
        wanted = substituted(contents.layers[0].pieces, {f"${i}": e for i, e in enumerate(index)})
        for facts, want in split(inside, wanted):
            if not isinstance(want, Undef):
                self.prove(place, facts, held, want)
        if isinstance(stmt.claim, Claim):
            own, term = place.claimed(stmt.claim, inside, dtype)
            self.prove(place, inside.also(*own), held, term)
        names = slots(len(place.frag(stmt.src.name).shape))
        event = Written(_written_map(names, index, where, place.frag(stmt.src.name).shape), sure=stmt.mask is None)
        place.contents[buffer.name] = contents.stored(event)

    def _race(self, place: Place, name: str, index: tuple[Expr, ...], inside: Facts) -> None:
        contents = place.contents[name]
        if contents.elsewhere:
            clash = clash_elsewhere(contents.elsewhere, index, inside)
            if clash is not None:
                raise Refused("J2", f"two tasks write the same element of {name}", clash)

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
        effect = stmt.effect if isinstance(stmt, Store) else "set"
        if op.tensor.name != dst.name or op.tensor.dtype != dtype or op.effect != effect:
            raise Refused(
                "J1", f"the source's store {claim.store} is to {op.tensor.name} ({op.effect}, {op.tensor.dtype})", {}
            )
        if any(v.name in self.source.used for v in op.results):
            raise Unsure("J1", "an atomic store whose old values are used", missing="a rule for them")
        axes = sub_axes(op.subs)
        if len(claim.coords) != len(axes):
            raise Refused("J1", f"the store has {len(axes)} axes, the claim {len(claim.coords)} coordinates", {})
        inst = place.instance(claim.instance, inside)
        coords = tuple(place.expr(c, inside, ghost=True) for c in claim.coords)
        at = {a.dim: c for a, c in zip(axes, coords)}
        wanted = self.source.subscripts(op.subs, op.tensor.dims, at, inst)

        def promised(axis: int) -> bool:
            return (
                _is_promised(op.subs[axis])
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
        self.stored(place, shape, claim, op, Stored(coords, inst, place.view.bindings, where, masked))

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


class Stored:
    """A store to a tensor, resolved: coordinates and instance by slot, its conditions, and whether it is masked at run
    time exactly as the source says."""

    def __init__(
        self,
        coords: tuple[Expr, ...],
        inst: Mapping[str, Expr],
        bindings: Mapping[str, Expr],
        where: tuple[Constraint, ...],
        masked: bool,
    ) -> None:
        self.coords, self.inst, self.bindings, self.where, self.masked = coords, inst, bindings, where, masked


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


def _written_map(
    names: tuple[str, ...], index: tuple[Expr, ...], where: tuple[Constraint, ...], shape: tuple[int, ...]
) -> IndexMap:
    return IndexMap(names, index, (*box(names, shape), *where))


def _holds_part(pieces: Pieces, name: str) -> bool:
    return any(isinstance(t, Part | Elem) and t.value == name for _, t in pieces)


def _is_promised(sub: Sub | tuple[Sub, ...]) -> bool:
    return not isinstance(sub, tuple) and sub.promised


def _as_claim(claim: Claim | StoreClaim | None) -> Claim:
    if not isinstance(claim, Claim):
        raise Unsure("J1", "the statement carries no claim", missing="a claim")
    return claim
