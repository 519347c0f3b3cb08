"""J1 and J6 of computing: elementwise functions, folds and contractions in fragments."""

from __future__ import annotations

from treadle.algebra.expr import Constraint, Expr, sym
from treadle.algebra.maps import box
from treadle.algebra.monoids import BY_MERGE
from treadle.algebra.sets import Facts
from treadle.checker.folds import Step, slot_names
from treadle.checker.permissions import granted
from treadle.checker.reading import Reading, after_claim, as_claim
from treadle.checker.state import Place
from treadle.checker.terms import (
    Elem,
    Idx,
    Num,
    Part,
    Pieces,
    app,
    combined,
    converted,
    only,
    substituted,
    undefined,
)
from treadle.checker.verdict import Refused, Unsure
from treadle.dtype.formats import DType, bool_, i64
from treadle.hardware.atoms import Atom, find_atom
from treadle.hardware.layouts import layout_problem
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.ir.ops.fold import Mma as SourceMma
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import (
    Claim,
    Compute,
    Fold,
    FragRef,
    MemRef,
    Mma,
    Operand,
    Scan,
)

_FUSED = {"fma": "add", "fms": "sub"}
"""What a fused operation does with the product and its third operand."""


class Computing(Reading):
    """Rules of `Compute`, `Fold` and `Mma`."""

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
            for c in where:
                if not place.slots(frag.shape).also(*place.claimed(as_claim(stmt.claim), facts)[0]).implies(c):
                    raise Unsure("J1", f"a step of a fold where {c}", missing="the condition in the claim")
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
        own = next((m for m in self.source.program.intrinsics if m.name == stmt.fn), None)
        if own is not None:
            wanted = [p.type.dtype for p in own.params]
            if dtype != own.result or len(have) != len(wanted) or any(d not in (None, w) for d, w in zip(have, wanted)):
                raise Refused("J1", f"{stmt.fn} of {', '.join(map(str, have))} into {dtype}", {})
            self.spent.names.add(f"intrinsic {stmt.fn} ({own.numerics})")  # the author's word
            terms = tuple(self.operand(place, a, facts, w) for a, w in zip(stmt.args, wanted))
            return combined(terms, lambda ts: app(stmt.fn, ts, dtype))
        known = next((d for d in (have[1:] if stmt.fn == "where" else have) if d is not None), dtype)
        lists = tuple(
            self.operand(place, a, facts, bool_ if stmt.fn == "where" and i == 0 else known)
            for i, a in enumerate(stmt.args)
        )
        if stmt.fn in ("copy", "pick"):
            if have and have[0] is not None and have[0] != dtype:
                raise Refused("J1", f"a copy of {have[0]} into {dtype}", {})
            first = stmt.args[0]
            return lists[0] if isinstance(first, (FragRef, MemRef)) else only(Num(first, dtype))
        if stmt.fn in ("cast", "cast.saturate"):
            saturate = stmt.fn == "cast.saturate" or "saturate" in stmt.tags
            return combined(lists, lambda ts: converted(ts[0], known, dtype, saturate))
        if stmt.fn == "bitcast":
            return combined(lists, lambda ts: app("bitcast", ts, dtype))
        self._typed(stmt, [d for d in (have[1:] if stmt.fn == "where" else have) if d is not None], dtype)
        if stmt.fn in _FUSED:
            self._contracts()
            return combined(lists, lambda ts: app(_FUSED[stmt.fn], (app("mul", ts[:2], dtype), ts[2]), dtype))
        return combined(lists, lambda ts: app(stmt.fn, ts, dtype))

    def _typed(self, stmt: Compute, have: list[DType], dtype: DType) -> None:
        row = ELEMENTWISE.get(stmt.fn) if stmt.fn not in _FUSED else (3, "f", "same")
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
            self._fold_step(place, stmt.dst, stmt.claim, acc, new, monoid, "propagate", (), ())
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
        claim = as_claim(stmt.claim)
        sizes = tuple(src.shape[a] for a in stmt.axes)
        self._fold_step(place, stmt.dst, claim, acc, pieces, stmt.monoid, stmt.nan, names, sizes)

    def scan(self, place: Place, stmt: Scan) -> None:
        """`Scan`: at each slot of its axis, a fold in order of the slots that stand before it there."""
        frag, src = place.frag(stmt.dst), place.frag(stmt.src.name)
        facts = place.slots(frag.shape)
        if src.dtype != frag.dtype or src.shape != frag.shape or stmt.src.coords is not None or len(stmt.axes) != 1:
            raise Refused("J1", f"a scan of {src.dtype}{list(src.shape)} into {frag.dtype}{list(frag.shape)}", {})
        (axis,) = stmt.axes
        here, other = sym(f"${axis}"), sym("#0")
        gap = other - here if stmt.reverse else here - other
        within = (Constraint(gap - 1 if stmt.exclusive else gap),)
        pieces = substituted(place.held(stmt.src.name, None, facts), {f"${axis}": other})
        acc = None if stmt.acc is None else self.operand(place, stmt.acc, facts, frag.dtype)
        where, term = place.claimed(as_claim(stmt.claim), facts, frag.dtype)
        assert isinstance(term, Part | Elem)
        step = Step(
            facts.also(*where),
            term,
            acc,
            ("#0",),
            (frag.shape[axis],),
            place.view,
            within,
            not stmt.reverse,
        )
        self.folds.fold(step, stmt.monoid, stmt.nan, pieces)
        place.holds[stmt.dst] = after_claim(where, term, undefined("outside the claim"))

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
        claim = as_claim(stmt.claim)
        op = self.source.defs.get(claim.value)
        if not isinstance(op, SourceMma):
            raise Refused("J1", f"the claim names {claim.value}, which is no contraction", {})
        rank = len(frag.shape)
        names = slot_names(rank, len(stmt.contracted))
        inside = facts.also(*box(names, stmt.contracted))
        atom = self._atom(place, stmt)
        if atom.fused:
            self._fused(op)
        if stmt.contracted and atom.name != "fma" and frag.dtype.is_float:
            self.spent.names.add("regroup")  # the sum inside an atom has the atom's own order
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
        if atom.spends:
            if not granted(self.source.program.numerics, atom.spends):
                raise Refused("J6", f"{atom.name} spends {atom.spends}, which the program does not grant", {})
            self.spent.names.add(atom.spends)
        return atom

    def _fused(self, op: SourceMma) -> None:
        """Products are exact when they fit the accumulator; else a fused step spends the permission to contract."""
        a, b, acc = (v.type.dtype for v in (op.a, op.b, op.acc))
        if acc.is_float and a.mantissa + b.mantissa + 2 > acc.mantissa + 1:
            self._contracts()


def _holds_part(pieces: Pieces, name: str) -> bool:
    return any(isinstance(t, Part | Elem) and t.value == name for _, t in pieces)
