"""Folds and contractions: accumulators, the contributions they have taken so far, the joining of slots."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, eq, lt, maximum, sym
from treadle.dtype.formats import DType
from treadle.ir.core import Op, Value
from treadle.ir.ops.access import Load
from treadle.ir.ops.fold import Mma, Reduce
from treadle.machine import form
from treadle.machine.form import Claim, FragRef, Invariant, Number
from treadle.realise.frame import Frame, Got, Kept, PartKey, fragment_names, positions, reference
from treadle.realise.items import Item
from treadle.realise.matrix import Matrix
from treadle.realise.storage import wide, zero


@dataclass(eq=False)
class Running:
    """A fold under way: its accumulator and what describes the contributions folded so far; `names` of the coordinates
    of `item.inner`, in that order."""

    item: Item
    acc: str
    slots: tuple[str, ...]
    coords: tuple[Expr, ...]
    names: tuple[str, ...] = ()
    done: bool = False

    @property
    def bound(self) -> tuple[str, ...]:
        """The names in the order of the operation's dimensions, as claims bind them."""
        return tuple(f"c{i}" for i in range(len(self.names)))


class Folds(Matrix):
    """The lowering engine, fifth part: folds."""

    @abstractmethod
    def virtual(self, value: Value) -> bool:
        """Whether the value is computed at each use."""

    def begin(self, item: Item, folding: list[tuple[form.Loop, Frame]], middle: Frame, inner: Frame) -> Running:
        """Sets up the accumulator of a fold before its loops."""
        op = item.op
        coords = self.coords(item.outer, middle)
        result = op.result
        folded = op.dims if isinstance(op, Reduce) else tuple(p.dim for p in item.inner)
        names = tuple(f"c{folded.index(p.dim)}" for p in item.inner)
        extra = {
            lane.slot
            for part in item.inner
            if (lane := inner.lane(self.key(part, inner))) is not None and lane.slot and self.in_lanes(op)
        }
        slots = inner.slot_order(frozenset(self.slots_of(coords, inner)) | extra)
        run = Running(item, "", slots, coords, names)
        if not folding:
            return run
        if isinstance(item.target, str) and isinstance(op, Mma):
            run.acc = item.target
            return run
        dtype = result.type.dtype
        if isinstance(op, Mma) and self.in_tiles(op):
            run.acc = self.tile_start(op, coords, slots, self.partial(run, folding, middle, inner, None), middle)
            return run
        run.acc = self.partial_sums(run, inner)
        start: Got
        if isinstance(op, Mma):
            start = self.fetch(op.acc, coords, middle)
        else:
            assert isinstance(op, Reduce)
            start = Got(identity(op.monoid, dtype), dtype)
        claim = self.partial(run, folding, middle, inner, None)
        middle.body.append(
            form.Compute(dst=run.acc, fn="copy", args=(reference(start, slots),), claim=claim, origin=self.line(op))
        )
        self.made_in[run.acc] = middle
        return run

    def in_lanes(self, op: Op) -> bool:
        """Whether a fold has a partial result in each lane, joined at the end."""
        return not isinstance(op, Mma) or op.result.name in self.choices.along

    def together(self, run: Running, slot: str) -> int:
        """How many neighbouring coordinates each lane along a folded slot takes at a step."""
        folded = slot in run.slots and slot not in self.own_slots(run)
        return self.choices.along.get(run.item.op.result.name, 1) if folded else 1

    def own_slots(self, run: Running) -> set[str]:
        """Slots of a fold's result."""
        return set(fragment_names(run.coords))

    def partial_sums(self, run: Running, inner: Frame) -> str:
        """The fragment of a fold's accumulator."""
        result = run.item.op.result
        if result.name not in self.choices.along:
            return self.fragment(result.hint or result.name, result.type.dtype, run.slots, inner)
        shape = tuple(inner.width(s) // self.together(run, s) for s in run.slots)
        return self.parts.fragment(result.hint or result.name, result.type.dtype, shape)

    def partial(
        self,
        run: Running,
        folding: list[tuple[form.Loop, Frame]],
        frame: Frame,
        inner: Frame,
        level: int | None,
        step: int = 0,
    ) -> Claim:
        """The claim of an accumulator: contributions of all tiles lexicographically before the loops' position.

        `level`: how many loops are entered (None: none, so nothing is folded); `step` is added to the last counter.
        """
        at = positions(run.slots)
        over: list[Constraint] = []
        bases: list[tuple[str, Expr, Expr, int, str]] = []
        for part, name in zip(run.item.inner, run.names, strict=True):
            key = self.key(part, inner)
            lane = inner.lane(key)
            if lane is None:
                over.append(eq(sym(name), key[1]))
                continue
            over += [Constraint(sym(name) - key[1]), lt(sym(name), key[2])]
            bases.append((name, lane.base, key[1], lane.width, lane.slot))
        order = {loop.var: i for i, (loop, _) in enumerate(folding)}
        bases.sort(key=lambda b: min((order[s] for s in b[1].symbols if s in order), default=-1))
        # An axis that a fragment holds whole is under no loop: a tile has all of it or nothing.
        looped = [b for b in bases if any(s in order for s in b[1].symbols)]
        if level is None:
            over.append(lt(sym(looped[0][0]), looped[0][2]))
        elif run.item.backward:
            over += _later(looped[:level], step)
        else:
            over += _earlier(looped[:level], step)
        for number, (name, _, lo, width, slot) in enumerate(bases):
            if width > 1 and slot in run.slots:
                many = self.together(run, slot)
                behind = sym(name) - lo - sym(slot) * many - sym(f"e{number}") * width
                over += [eq(behind, 0)] if many == 1 else [Constraint(behind), lt(behind, many)]
        coords = tuple(c.substitute(at) for c in run.coords)
        live = tuple(c.substitute(at) for c in frame.live(self.slots_of(run.coords, inner)))
        return Claim(run.item.op.result.name, coords, live, run.bound, tuple(c.substitute(at) for c in over))

    def invariants(self, running: list[Running], folding: list[tuple[form.Loop, Frame]]) -> None:
        """What accumulators hold at the head of each folding loop."""
        for level, (loop, frame) in enumerate(folding):
            inner = folding[-1][1]
            loop.invariants += tuple(
                Invariant(run.acc, self.partial(run, folding, frame, inner, level + 1)) for run in running
            )

    def contribute(self, run: Running, folding: list[tuple[form.Loop, Frame]], inner: Frame) -> None:
        """One step of a fold: the contributions at the coordinates where the frame stands."""
        op = run.item.op
        claim = self.partial(run, folding, inner, inner, len(folding), 1) if folding else None
        if isinstance(op, Mma):
            self.multiply(run, op, claim, inner)
            return
        assert isinstance(op, Reduce)
        source = op.source
        at = dict(
            zip((p.dim for p in (*run.item.outer, *run.item.inner)), (*run.coords, *self.coords(run.item.inner, inner)))
        )
        coords = tuple(at[d] for d in source.type.dims)
        got = self.named(self.fetch(source, coords, inner), source, coords, inner, run.slots)
        folded = [
            c for part in run.item.inner if (lane := inner.lane(self.key(part, inner))) is not None for c in lane.live
        ]
        if folded:
            fill = identity(op.monoid, source.type.dtype)
            got = self.compute(
                source, coords, "copy", [got], inner, slots=run.slots, where=tuple(folded), fill=fill, dtype=got.dtype
            )
        if claim is None:
            # A single contribution: the fold of one element.
            run.acc = self.fragment(op.result.hint or op.result.name, op.result.type.dtype, run.slots, inner)
            whole = self.claim(op.result, run.coords, run.slots, inner.live(run.slots))
            inner.body.append(
                form.Fold(
                    dst=run.acc, monoid=op.monoid, src=FragRef(got.name), nan=op.nan, claim=whole, origin=self.line(op)
                )
            )
            return
        inner.body.append(
            form.Fold(
                dst=run.acc,
                monoid=op.monoid,
                src=FragRef(got.name),
                acc=FragRef(run.acc),
                nan=op.nan,
                claim=claim,
                origin=self.line(op),
            )
        )

    def may_fuse(self, op: Mma) -> bool:
        """Whether products need no rounding of their own: the program permits it, or the accumulator holds them."""
        a, b, acc = (v.type.dtype for v in (op.a, op.b, op.acc))
        exact = not acc.is_float or a.mantissa + b.mantissa + 1 <= acc.mantissa
        return exact or self.program.numerics.get("contract", True) is not False

    def multiply(self, run: Running, op: Mma, claim: Claim | None, inner: Frame) -> None:
        """One contraction statement."""
        at = {p.dim: c for p, c in zip(run.item.outer, run.coords, strict=True)}
        at |= {p.dim: c for p, c in zip(run.item.inner, self.coords(run.item.inner, inner), strict=True)}
        dtype = op.result.type.dtype
        atom = self.choices.atoms.get(op.result.name, "fma")
        if atom == "fma" and not self.may_fuse(op):
            atom = "muladd"
        if atom.startswith("amx"):
            self.multiply_tiles(run, op, atom, claim, at, inner)
            return
        gots = [self.operand(v, tuple(at[d] for d in v.type.dims), dtype, atom, inner) for v in (op.a, op.b)]
        slots = run.slots
        if claim is None:
            acc = self.fetch(op.acc, run.coords, inner)
            if isinstance(run.item.target, str):
                run.acc = run.item.target
            else:
                run.acc = self.fragment(op.result.hint or op.result.name, dtype, slots, inner)
                acc = self.solid(acc, op.acc, run.coords, inner, slots)
            claim = self.claim(op.result, run.coords, slots, inner.live(slots))
            acc_ref = FragRef(acc.name)
        else:
            acc_ref = FragRef(run.acc)
        deep = tuple(
            lane.slot
            for part in run.item.inner
            if (lane := inner.lane(self.key(part, inner))) is not None and lane.slot
        )
        if self.in_lanes(op):
            a, b = (self.along(g, run) for g in gots)
            contracted = tuple(many for s in deep if (many := self.together(run, s)) > 1)
        else:
            numbered = (*slots, *deep)
            refs = [reference(g, numbered) for g in gots]
            a, b = (r if isinstance(r, FragRef) else FragRef("") for r in refs)
            contracted = tuple(inner.width(s) for s in deep)
        inner.body.append(
            form.Mma(
                dst=run.acc,
                acc=acc_ref,
                a=FragRef(a.name, a.coords or tuple(sym(f"${i}") for i in range(len(gots[0].slots)))),
                b=FragRef(b.name, b.coords or tuple(sym(f"${i}") for i in range(len(gots[1].slots)))),
                atom=atom,
                contracted=contracted,
                claim=claim,
                origin=self.line(op),
            )
        )
        self.made_in.setdefault(run.acc, inner)

    def along(self, got: Got, run: Running) -> FragRef:
        """A factor of a contraction with lanes along what it sums: group `i` of its coordinates for lane `i`."""
        at: list[Expr] = []
        for slot in got.slots:
            many = self.together(run, slot)
            place = sym(f"${run.slots.index(slot)}")
            at.append(place if many == 1 else place * many + sym(f"${len(run.slots)}"))
        return FragRef(got.name, tuple(at))

    def multiply_tiles(
        self, run: Running, op: Mma, atom: str, claim: Claim | None, at: dict[Dim, Expr], inner: Frame
    ) -> None:
        """One contraction statement of a matrix unit."""
        deep = [
            lane.slot
            for part in run.item.inner
            if (lane := inner.lane(self.key(part, inner))) is not None and lane.slot
        ]
        if claim is None or len(deep) != 1 or len(run.slots) != 2:
            raise self.broken(op, "a shape without rows, lanes and depth")
        refs = [
            self.tile_operand(v, tuple(at[d] for d in v.type.dims), run.slots[1], deep[0], inner) for v in (op.a, op.b)
        ]
        rows, lanes = refs if refs[0].coords == (sym("$0"), sym("$2")) else refs[::-1]
        inner.body.append(
            form.Mma(
                dst=run.acc,
                acc=FragRef(run.acc),
                a=rows,
                b=lanes,
                atom=atom,
                contracted=(inner.width(deep[0]),),
                claim=claim,
                origin=self.line(op),
            )
        )

    def operand(self, value: Value, coords: tuple[Expr, ...], dtype: DType, atom: str, frame: Frame) -> Got:
        """An operand of a contraction, from its packed copy if any; for multiply-adds converted exactly."""
        slots = self.slots_of(coords, frame)
        packed = frame.kept(wide(value.name))
        if packed is not None:
            key = (wide(value.name), coords)
            got = frame.held(key)
            if got is None:
                got = self.from_buffer(value, coords, *packed, frame)
                self.made_in[got.name].memo[key] = got
            return got
        beyond = tuple(c for lane in frame.lanes if lane.deep and lane.slot in slots for c in lane.live)
        if beyond and isinstance(self.uses.definition.get(value.name), Load) and self.virtual(value):
            # Slots beyond the contracted dimension are multiplied too: by zeros.
            got = self.define(value, coords, frame, zero(value.type.dtype))
        else:
            got = self.named(self.fetch(value, coords, frame), value, coords, frame, slots)
            if beyond and self.choices.along:
                fill = zero(value.type.dtype)
                got = self.compute(value, coords, "copy", [got], frame, slots=slots, where=frame.live(slots), fill=fill)
        if got.dtype == dtype or atom not in ("fma", "muladd"):
            return got
        return self.compute(value, coords, "cast", [got], frame, slots=slots, dtype=dtype)

    def finish(self, run: Running, place: Kept | None, folding: list[tuple[form.Loop, Frame]], middle: Frame) -> None:
        """After the loops: joins the slots of a running fold, and puts the result where it is read."""
        op, result = run.item.op, run.item.op.result
        slots = self.slots_of(run.coords, middle)
        acc = run.acc
        if run.slots != slots:
            assert isinstance(op, Reduce | Mma)
            axes = tuple(i for i, s in enumerate(run.slots) if s not in slots)
            acc = self.fragment(result.hint or result.name, result.type.dtype, slots, middle)
            middle.body.append(
                form.Fold(
                    dst=acc,
                    monoid="add" if isinstance(op, Mma) else op.monoid,
                    src=FragRef(run.acc),
                    axes=axes,
                    nan="propagate" if isinstance(op, Mma) else op.nan,
                    claim=self.claim(result, run.coords, slots, middle.live(slots)),
                    origin=self.line(op),
                )
            )
        got = Got(acc, result.type.dtype, slots)
        self.made_in.setdefault(acc, middle)
        middle.memo[(result.name, run.coords)] = got
        if place is not None:
            self.put(result, got, run.coords, place, middle)

    def depth_of(self, key: PartKey, contraction: bool) -> int:
        """Slots along a folded axis: what the atom contracts at once, or the lanes of a running fold."""
        if contraction:
            return self.choices.depth.get(key[0].name, 1)
        return self.width_of(key, False)


def _earlier(bases: Sequence[tuple[str, Expr, Expr, int, str]], step: int) -> list[Constraint]:
    """Coordinates of tiles lexicographically before the given bases, the last moved on by `step` tiles.

    "c0 is in an earlier tile, or in this one and c1 is in an earlier tile, ...": `max(a, b) >= 0` says "a or b".
    """
    found: list[Constraint] = []
    strict: list[Expr] = []
    for number, (name, base, _, width, _) in enumerate(bases):
        last = number == len(bases) - 1
        moved = base + width * step if last else base
        before = moved - 1 - sym(name)
        if not last:
            found.append(Constraint(maximum(*strict, before + width)))
        strict.append(before)
    found.append(Constraint(maximum(*strict)))
    return found


def _later(bases: Sequence[tuple[str, Expr, Expr, int, str]], step: int) -> list[Constraint]:
    """Coordinates lexicographically behind the given ones, the last moved down by `step`."""
    found: list[Constraint] = []
    strict: list[Expr] = []
    for number, (name, base, *_) in enumerate(bases):
        last = number == len(bases) - 1
        behind = sym(name) - 1 - (base - step if last else base)
        if not last:
            found.append(Constraint(maximum(*strict, behind + 1)))
        strict.append(behind)
    found.append(Constraint(maximum(*strict)))
    return found


def identity(monoid: str, dtype: DType) -> Number:
    """What a built-in monoid starts from."""
    if monoid == "add":
        return -0.0 if dtype.is_float else 0
    if monoid == "mul":
        return 1.0 if dtype.is_float else 1
    if monoid in ("and", "or"):
        return monoid == "and" if dtype.is_bool else (-1 if monoid == "and" else 0)
    low = monoid == "max"
    if dtype.is_bool:
        return not low
    if dtype.is_float and dtype.has_inf:
        return float("-inf") if low else float("inf")
    return dtype.finite_min if low else dtype.finite_max
