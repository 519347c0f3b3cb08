"""Scans whose axis lies along the threads, or is walked one coordinate after the other.

A tile of the axis is scanned where it is held: its prefixes need what came before the tile, which goes from tile to
tile in a register. A state of a scan is the fold of the contributions that its claim counts; which element it is the
state of hangs on those alone.
"""

from __future__ import annotations

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, const, lt, sym
from treadle.ir.ops.fold import Scan
from treadle.machine import form
from treadle.machine.form import Claim, FragRef, Number
from treadle.realise.choices import NotLowered
from treadle.realise.folds import identity
from treadle.realise.frame import Frame, Got, Lane, reference
from treadle.realise.items import Item
from treadle.realise.lanes import LaneLowering
from treadle.realise.nest import Prefixes

Loops = list[tuple[form.Loop, Frame]]


class ScanLowering(LaneLowering):
    """The lowering engine for agents of several threads, with scans."""

    def begin_scan(self, item: Item, folding: Loops, middle: Frame, inner: Frame) -> Prefixes:
        op, (part,) = scan_of(item), item.inner
        run = Prefixes(item)
        if len(folding) > 1 or not isinstance(op.merge, str):
            raise self.unsupported(op, "a scan in loops over several axes, or with a monoid of the user")
        run.slots = self.slots_of(self.coords(item.outer, middle), middle)
        if not folding and not (op.exclusive and op.results[0].type.dtype.is_float):
            return run
        dtype = op.result.type.dtype
        run.carry = self.fragment(op.result.hint or op.result.name, dtype, run.slots, middle)
        none = (Constraint(const(-1)),)
        middle.body.append(
            form.Compute(
                dst=run.carry,
                fn="copy",
                args=(self.before_all(op),),
                claim=self.state(run, none, {}, middle),
                origin=self.line(op),
            )
        )
        self.made_in[run.carry] = middle
        if folding:
            (loop, frame), lane = folding[0], self.standing(part, inner)
            holds = self.state(run, self.before(op, lane, const(0)), {}, frame)
            loop.invariants += (form.Invariant(run.carry, holds),)
        return run

    def before_all(self, op: Scan) -> Number:
        """The state of nothing: what an exclusive scan shows first."""
        dtype = op.result.type.dtype
        assert isinstance(op.merge, str)
        return 0.0 if op.merge == "add" and dtype.is_float and op.exclusive else identity(op.merge, dtype)

    def standing(self, part: Part, frame: Frame) -> Lane:
        """Where the frame stands along the axis of a scan."""
        key = self.key(part, frame)
        return frame.lane(key) or Lane(key, key[1])

    # ---- claims

    def before(self, op: Scan, lane: Lane, at: Expr, inclusive: bool = False) -> tuple[Constraint, ...]:
        """The contributions that are visited before the coordinate `at` of a tile, counted from the end that is visited
        first (`inclusive`: and that one)."""
        _, lo, hi = lane.part
        c = sym("c0")
        if op.reverse:
            first = lane.base + lane.width - 1 - at
            return (Constraint(c - first - (0 if inclusive else 1)), Constraint(c - lo), lt(c, hi))
        return (Constraint(lane.base + at - c - (0 if inclusive else 1)), Constraint(c - lo), lt(c, hi))

    def state(self, run: Prefixes, over: tuple[Constraint, ...], at: dict[str, Expr], frame: Frame) -> Claim:
        """The claim of a state with these contributions; `at`: what stands for the slots of the other axes."""
        op = run.item.op
        place = at or {s: sym(f"${i}") for i, s in enumerate(run.slots)}
        coords = dict(zip((a.dim for a in run.item.outer), self.coords(run.item.outer, frame), strict=True))
        lo = self.key(run.item.inner[0], frame)[1]
        full = tuple(coords.get(a.dim, lo).substitute(place) for a in op.result.type.axes)
        live = tuple(c.substitute(place) for c in frame.live(run.slots))
        return Claim(op.result.name, full, live, ("c0",), over)

    # ---- a tile

    def scan(self, run: Prefixes, folding: Loops, inner: Frame) -> None:
        op, (part,) = scan_of(run.item), run.item.inner
        lane = self.standing(part, inner)
        source = op.sources[0]
        axes = (*run.item.outer, part)
        at = dict(zip((a.dim for a in axes), self.coords(axes, inner), strict=True))
        coords = tuple(at[a.dim] for a in source.type.axes)
        slots = self.slots_of(coords, inner)
        if not lane.slot:
            self.walk(run, op, lane, coords, slots, folding, inner)
            return
        got = self.neutral_outside(op, lane, coords, slots, inner)
        if any(s.who == "warp" for s in self.spots.get(lane.slot, ())):
            made = self.scan_across(run, op, lane, got, slots, bool(folding), inner)
        else:
            made = self.scan_inside(run, op, lane, got, slots, bool(folding), inner)
        self.show(run, made, at, slots, inner)

    def show(self, run: Prefixes, made: FragRef, at: dict[Dim, Expr], slots: tuple[str, ...], inner: Frame) -> None:
        """The prefixes as elements of the scan."""
        value = run.item.op.result
        coords = tuple(at[a.dim] for a in value.type.axes)
        dst = self.fragment(value.hint or value.name, value.type.dtype, slots, inner)
        inner.body.append(
            form.Compute(
                dst=dst,
                fn="copy",
                args=(made,),
                claim=self.claim(value, coords, slots, inner.live(slots)),
                origin=self.line(run.item.op),
            )
        )
        self.made_in[dst] = inner
        self.claimed[dst] = value.name
        inner.memo[(value.name, coords)] = Got(dst, value.type.dtype, slots)

    def neutral_outside(
        self, op: Scan, lane: Lane, coords: tuple[Expr, ...], slots: tuple[str, ...], inner: Frame
    ) -> Got:
        """What is scanned, slots outside the axis neutral."""
        source = op.sources[0]
        assert isinstance(op.merge, str)
        fill = identity(op.merge, source.type.dtype)
        filled = bool(lane.live) and self.filled(source, coords, fill, inner)
        got = self.solid(self.fetch(source, coords, inner), source, coords, inner, slots)
        if filled:
            self.neutral[got.name] = str(fill)
        if self.neutral.get(got.name) != str(fill):
            self.masked(got, source, coords, [lane], fill, inner)
        return got

    def scan_inside(
        self, run: Prefixes, op: Scan, lane: Lane, got: Got, slots: tuple[str, ...], more: bool, inner: Frame
    ) -> FragRef:
        """Prefixes of a tile that the lanes of a warp hold."""
        assert isinstance(op.merge, str)
        axis = slots.index(lane.slot)
        place = sym(f"${axis}") if not op.reverse else const(lane.width - 1) - sym(f"${axis}")
        dst = self.fragment(op.result.hint or op.result.name, op.result.type.dtype, slots, inner)
        others = {s: sym(f"${i}") for i, s in enumerate(slots) if s != lane.slot}
        inner.body.append(
            form.Scan(
                dst=dst,
                monoid=op.merge,
                src=FragRef(got.name),
                acc=self.carried(run, slots),
                axes=(axis,),
                exclusive=op.exclusive,
                reverse=op.reverse,
                claim=self.state(run, self.before(op, lane, place, not op.exclusive), others, inner),
                origin=self.line(op),
            )
        )
        if more:
            self.carry_on(run, op, lane, dst, got, slots, inner)
        return FragRef(dst)

    def carried(self, run: Prefixes, slots: tuple[str, ...]) -> FragRef | None:
        """The operand that says what came before the tile."""
        if not run.carry:
            return None
        found = reference(Got(run.carry, run.item.op.result.type.dtype, run.slots), slots)
        assert isinstance(found, FragRef)
        return found

    def carry_on(
        self, run: Prefixes, op: Scan, lane: Lane, made: str, got: Got, slots: tuple[str, ...], inner: Frame
    ) -> None:
        """What the next tile starts from: the last prefix of this one."""
        axis = slots.index(lane.slot)
        last = const(0 if op.reverse else lane.width - 1)
        at = tuple(last if i == axis else sym(f"${i - (i > axis)}") for i in range(len(slots)))
        whole = self.before(op, lane, const(lane.width))
        if not op.exclusive:
            inner.body.append(self.pick(run, run.carry, made, at, self.state(run, whole, {}, inner)))
            return
        dtype = op.result.type.dtype
        most, rest = (self.fragment(op.result.hint or op.result.name, dtype, run.slots, inner) for _ in range(2))
        upto = self.state(run, self.before(op, lane, const(lane.width - 1)), {}, inner)
        inner.body.append(self.pick(run, most, made, at, upto))
        inner.body.append(self.pick(run, rest, got.name, at, None))
        inner.body.append(self.merged(run, run.carry, rest, FragRef(most), self.state(run, whole, {}, inner)))

    def pick(self, run: Prefixes, dst: str, src: str, at: tuple[Expr, ...], claim: Claim | None) -> form.Compute:
        """An element that another lane may hold."""
        line = self.line(run.item.op)
        return form.Compute(dst=dst, fn="pick", args=(FragRef(src, at),), claim=claim, origin=line)

    def merged(self, run: Prefixes, dst: str, src: str, acc: FragRef, claim: Claim) -> form.Fold:
        """One state more, behind what is there."""
        op = scan_of(run.item)
        assert isinstance(op.merge, str)
        return form.Fold(
            dst=dst, monoid=op.merge, src=FragRef(src), acc=acc, claim=claim, origin=self.line(run.item.op)
        )

    # ---- one coordinate after the other

    def walk(
        self,
        run: Prefixes,
        op: Scan,
        lane: Lane,
        coords: tuple[Expr, ...],
        slots: tuple[str, ...],
        folding: Loops,
        inner: Frame,
    ) -> None:
        """A step along an axis that no thread shares."""
        if not folding:
            raise self.unsupported(op, "a scan along an axis of one coordinate")
        source, dtype = op.sources[0], op.result.type.dtype
        got = self.named(self.fetch(source, coords, inner), source, coords, inner, slots)
        before = self.fragment(op.result.hint or op.result.name, dtype, run.slots, inner)
        here = self.state(run, self.before(op, lane, const(0)), {}, inner)
        inner.body.append(
            form.Compute(dst=before, fn="copy", args=(FragRef(run.carry),), claim=here, origin=self.line(op))
        )
        after = self.state(run, self.before(op, lane, const(0), True), {}, inner)
        inner.body.append(self.merged(run, run.carry, got.name, FragRef(before), after))
        axes = (*run.item.outer, run.item.inner[0])
        at = dict(zip((a.dim for a in axes), self.coords(axes, inner), strict=True))
        self.show(run, FragRef(before if op.exclusive else run.carry), at, slots, inner)

    # ---- several warps

    def scan_across(
        self, run: Prefixes, op: Scan, lane: Lane, got: Got, slots: tuple[str, ...], more: bool, inner: Frame
    ) -> FragRef:
        """Prefixes of a tile that several warps hold."""
        del run, lane, got, slots, more, inner
        raise NotLowered(
            doing=f"realising {self.program.name}",
            found=f"a scan of {op.sources[0].name} over the threads of several warps",
            expected="memory that the warps share",
            hint="another plan has one warp a row",
        )


def scan_of(item: Item) -> Scan:
    """The operation of a scan's item."""
    assert isinstance(item.op, Scan)
    return item.op
