"""Fragments spread over the threads of an agent: who holds which element, and folds that cross lanes.

The lowering engine thinks in slots: symbols that count the elements of a fragment along an axis. On a GPU some digits
of such a count are not registers of one thread but lanes of a warp, or warps. `Spot`s say which; every fragment that
spans the slot gets the distribution, and one that does not is held by all of those threads alike (replicas).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from treadle.algebra.dims import Part
from treadle.algebra.expr import ZERO, Constraint, Expr, lt, minimum, sym
from treadle.analysis.uses import PURE, Uses
from treadle.dtype.formats import DType
from treadle.ir.core import Op, Program, Region, Value
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.elementwise import Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import Mma, Reduce
from treadle.machine import form
from treadle.machine.form import Frag, FragRef, Mode, Number
from treadle.realise.blocks import Lowering
from treadle.realise.choices import Choices, LoweringBroken, NotLowered
from treadle.realise.folds import Running, identity
from treadle.realise.frame import Frame, Got, Kept, Lane, PartKey, ends, positions
from treadle.realise.keeping import clashes, gathered
from treadle.realise.pieces import between_launches


@dataclass(frozen=True)
class Spot:
    """One digit of a slot symbol: `size` values of `who`, each worth `stride` coordinates. `order` ranks digits of a
    fragment: digits of one kind count from the lowest order up."""

    order: int
    who: str
    size: int
    stride: int


@dataclass(frozen=True)
class Agent:
    """The threads of an agent as digits (order, who, size), least significant first."""

    digits: tuple[tuple[int, str, int], ...] = ()

    @property
    def warps(self) -> int:
        """How many warps it has."""
        found = 1
        for _, who, size in self.digits:
            found *= size if who == "warp" else 1
        return found


def striped(lanes: int, warps: int, vector: int, rounds: int) -> tuple[Spot, ...]:
    """A row over threads: `vector` neighbours a lane, `rounds` sweeps of a warp, each warp its own stretch of the row.

    *Ensures*: the width is `vector * lanes * rounds * warps`; digits of one value are left out.
    """
    spots = (
        Spot(0, "slot", vector, 1),
        Spot(1, "lane", lanes, vector),
        Spot(2, "slot", rounds, vector * lanes),
        Spot(3, "warp", warps, vector * lanes * rounds),
    )
    return tuple(s for s in spots if s.size > 1)


def row_agent(warps: int, lanes: int = 32) -> Agent:
    """The threads of an agent that holds rows striped: `lanes` along a row, warps, and what lanes of a warp are left
    for rows beside one another."""
    digits = ((1, "lane", lanes), (3, "warp", warps), (5, "lane", 32 // lanes))
    return Agent(tuple(d for d in digits if d[2] > 1))


def beside_rows(lanes: int, together: int) -> tuple[Spot, ...]:
    """Rows beside one another: each of the lanes that `lanes` along a row leave has one, `together` times.

    *Ensures*: as many as `32 // lanes * together`; digits of one value are left out.
    """
    spots = (Spot(5, "lane", 32 // lanes, 1), Spot(4, "slot", together, 32 // lanes))
    return tuple(s for s in spots if s.size > 1)


class LaneLowering(Lowering):
    """The lowering engine for agents of several threads.

    `spread` gives the digits of a lane of a dimension by the dimension's name; `resident` names dimensions of which an
    instance of a task region holds a whole part in one fragment (the guard bounds its extent); `exact` those of them
    that fill it (the guard says so). `by_region` has other
    decisions for single task regions, `agents` other digits of the same threads.
    """

    def __init__(
        self,
        program: Program,
        choices: Choices,
        uses: Uses,
        agent: Agent,
        spread: dict[str, tuple[Spot, ...]],
        resident: frozenset[str] = frozenset(),
    ) -> None:
        self.agent = agent
        self.spread = spread
        self.resident = resident
        self.slots = 0
        self.spots: dict[str, tuple[Spot, ...]] = {}
        self.dists: dict[str, tuple[Mode, ...]] = {}
        self.exact = frozenset[str]()
        self.by_region: dict[str, tuple[dict[str, tuple[Spot, ...]], frozenset[str], frozenset[str], Choices]] = {}
        self.agents: dict[str, Agent] = {}
        self.contracted = False
        self.neutral: dict[str, str] = {}
        super().__init__(program, choices, uses)

    elsewhere: frozenset[str] = frozenset()
    """Regions of the program that another engine realises: their tiles are in the workspace."""
    placed: Mapping[str, Kept] = {}
    """Where tiles of them are that are wanted before their regions are met."""

    def memory_order(self, axes: Sequence[Part], frame: Frame) -> list[Part]:
        if self.elsewhere and not frame.in_tasks:  # another engine writes or reads it
            return between_launches(axes)
        return super().memory_order(axes, frame)

    def skipped(self, op: Region, frame: Frame) -> bool:
        """Whether a region is another engine's; where its tiles are is known from here on."""
        if frame.in_tasks or self.region_names[id(op)] not in self.elsewhere:
            return False
        for carried, init, result in zip(op.carried, op.inits, op.results, strict=True):
            early = self.placed.get(result.name)
            frame.places[result.name] = early or self.tile_holder(carried, init, op, frame)
        return True

    def lower_parallel(self, op: Region, frame: Frame) -> None:
        if self.skipped(op, frame):
            return
        own = None if frame.in_tasks else self.by_region.get(self.region_names[id(op)])
        if own is not None:
            self.spread, self.resident, self.exact, self.choices = own
            self.rank = {name: i + 1 for i, name in enumerate(self.choices.vector)}
            self.agent = self.agents.get(self.region_names[id(op)], self.agent)
        super().lower_parallel(op, frame)

    # ---- what is kept

    def chosen_to_keep(self) -> set[str]:
        """Only what must be: registers are the place for the rest, and computing again is cheaper than a buffer that
        many threads share."""
        kept: set[str] = set(self.choices.keep)
        for op in self.program.body.walk():
            if isinstance(op, Extract) and op.fill is not None:
                kept.add(op.source.name)
            if isinstance(op, Load) and (
                not self.uses.stable(op) or (self.choices.snapshots and bool(self.uses.stored))
            ):
                kept.add(op.result.name)
        if not self.agent.digits:
            # A thread alone walks chains of gathers: what is computed twice a step doubles with every step.
            kept |= gathered(self.program, self.uses, kept)
        inserts = [op for op in self.program.body.walk() if isinstance(op, Insert)]
        kept |= {op.value.name for op in inserts if clashes(op, self.uses, kept)}
        return {n for n in kept if isinstance(self.uses.definition.get(n), PURE)}

    def absent(self, value: Value, found: str, op: Op | None) -> LoweringBroken | NotLowered:
        """Threads that hold a value in parts cannot read any element of it: such programs have other plans."""
        if not self.agent.digits:
            return super().absent(value, found, op)
        return NotLowered(
            doing=f"realising {self.program.name} for groups of threads",
            found=found,
            expected="values that each thread reads where it holds them",
            hint="the universal plan keeps them in memory of one thread",
            span=None if op is None else op.span,
        )

    # ---- distributions

    def fragment(self, hint: str, dtype: DType, slots: Sequence[str], frame: Frame, place: str = "register") -> str:
        name = super().fragment(hint, dtype, slots, frame, place)
        self.distribute(name, self.modes(slots, [frame.width(s) for s in slots], name))
        return name

    def distribute(self, name: str, dist: tuple[Mode, ...]) -> None:
        """Gives the fragment just declared its distribution."""
        self.parts.frags[-1] = replace(self.parts.frags[-1], dist=dist)
        self.dists[name] = dist

    def shaped(self, hint: str, dtype: DType, shape: tuple[int, ...], spots: Sequence[tuple[Spot, ...]]) -> str:
        """A new fragment whose axes have these digits."""
        name = self.parts.fresh(hint)
        self.parts.frags.append(Frag(name, dtype, shape))
        self.distribute(name, self.assembled_modes(spots, shape, name))
        return name

    def modes(self, slots: Sequence[str], widths: Sequence[int], name: str) -> tuple[Mode, ...]:
        """The distribution of a fragment that spans `slots`."""
        return self.assembled_modes([self.spots.get(s, ()) for s in slots], widths, name)

    def assembled_modes(self, spots: Sequence[tuple[Spot, ...]], widths: Sequence[int], name: str) -> tuple[Mode, ...]:
        """Digits of all axes in order; threads that no axis counts hold replicas."""
        if not self.agent.digits:
            return ()
        found: list[tuple[int, Mode]] = []
        taken: set[int] = set()
        for axis, (own, width) in enumerate(zip(spots, widths, strict=True)):
            if not own and width > 1:
                found.append((100 - axis, Mode("slot", width, axis, 1)))
            for spot in own:
                found.append((spot.order, Mode(spot.who, spot.size, axis, spot.stride)))
                if spot.who != "slot":
                    if spot.order in taken:
                        raise NotLowered(
                            doing=f"realising {self.program.name}",
                            found=f"two axes of fragment {name} on the same lanes",
                            expected="one axis along the lanes",
                            hint="another plan has to hold this value",
                        )
                    taken.add(spot.order)
        found += [(order, Mode(who, size, None, 0)) for order, who, size in self.agent.digits if order not in taken]
        return tuple(m for _, m in sorted(found, key=lambda f: f[0]))

    def over(
        self,
        key: PartKey,
        width: int,
        frame: Frame,
        deep: bool = False,
        whole: int = 1,
        backward: bool = False,
        among: tuple[Expr, int] | None = None,
    ) -> tuple[form.Loop, Frame]:
        loop, inner = super().over(key, width, frame, deep, whole, backward, among)
        lane = inner.lane(key)
        if lane is not None and lane.slot:
            self.settle_lane(lane)
        return loop, inner

    def settle_lane(self, lane: Lane) -> None:
        """Gives a new lane its digits."""
        spots = self.spread.get(lane.part[0].name, ())
        if spots and prod(s.size for s in spots) == lane.width:
            self.spots[lane.slot] = spots

    def new_lane(self, key: PartKey, base: Expr, width: int, frame: Frame, known: Sequence[Expr] = ()) -> Lane:
        """Fixes a part to the slots of a fragment in this frame. `known`: ends that the tile never passes."""
        slot = f"@{self.slots}"
        self.slots += 1
        live = tuple(lt(base + sym(slot), b) for b in ends(key[2]) if b not in known)
        lane = Lane(key, base, width, slot, live)
        frame.symbols.add(slot)
        frame.lanes = self.arranged((*frame.lanes, lane))
        return lane

    # ---- resident rows

    def at_blocks(self, op: Region, frame: Frame) -> None:
        for arg in op.args:
            spots = self.spread.get(arg.domain.dim.name)
            if arg.kind == "block" and spots and frame.in_tasks:
                width = prod(s.size for s in spots)
                if frame.bound(arg.name) == width:
                    key = self.key(arg.part, frame)
                    self.settle_lane(self.new_lane(key, key[1], width, frame, (key[1] + width,)))

    def body(self, op: Region, places: list[Kept], frame: Frame) -> None:
        self.at_blocks(op, frame)
        if frame.in_tasks and self.resident:
            for key in self.whole_parts(op, frame):
                width = prod(s.size for s in self.spread[key[0].name])
                extent = (key[2] - key[1]).constant
                whole = key[0].name in self.exact and key[1].constant == 0 and key[2] == key[0].extent
                lane = self.new_lane(key, key[1], width, frame, (key[2],) if whole or extent == width else ())
                self.settle_lane(lane)
        super().body(op, places, frame)

    def whole_parts(self, op: Region, frame: Frame) -> list[PartKey]:
        """Parts of resident dimensions that values of the region have, where their bounds are known at its start."""
        found: list[PartKey] = []
        for inner in op.body.walk():
            for value in inner.results:
                for part in value.type.axes:
                    if part.dim.name in self.resident and self.arg_of(part) is None:
                        key = self.key(part, frame)
                        if key not in found and frame.lane(key) is None:
                            found.append(key)
        return found

    # ---- folds

    def masked(
        self, got: Got, value: Value, coords: tuple[Expr, ...], lanes: Sequence[Lane], fill: Number, frame: Frame
    ) -> None:
        """Gives slots outside the parts the fill, where a tile is not whole."""
        live = [(x, c) for x in lanes for c in x.live]
        if not live:
            return
        at = positions(got.slots)
        where = tuple(c.substitute(at) for _, c in live)
        part = form.If(conds=(outside(lanes),), scope="agent")
        part.then.append(
            form.Compute(
                dst=got.name,
                fn="copy",
                args=(FragRef(got.name),),
                where=where,
                fill=fill,
                claim=self.claim(value, coords, got.slots, frame.live(got.slots)),
            )
        )
        frame.body.append(part)

    def filled(self, value: Value, coords: tuple[Expr, ...], fill: Number, frame: Frame) -> bool:
        """Reads a tensor's elements, and in slots outside the axes the identity of the fold that reads them first.

        Whether it did: where the value is a load, or one widened. Then it needs no mask of its own."""
        made = self.uses.definition.get(value.name)
        inner = made.source if isinstance(made, Cast) else value
        load = self.uses.definition.get(inner.name)
        if not isinstance(load, Load) or load.fill is not None or not self.uses.stable(load):
            return False
        if inner is not value and not (inner.type.dtype.is_float and inner.type.dtype.bits < value.type.dtype.bits):
            return False
        if any(v.name == n for v in (value, inner) for n in self.choices.keep):
            return False
        if not inner.type.dtype.is_float or not inner.type.dtype.has_inf:
            return False
        if any(frame.held((v.name, coords)) is not None or frame.kept(v.name) is not None for v in (value, inner)):
            return False
        got = self.define(inner, coords, frame, fill)
        if not isinstance(got.source, str):
            return False
        self.made_in.get(got.source, frame).memo.setdefault((inner.name, coords), got)
        return True

    def contribute(self, run: Running, folding: list[tuple[form.Loop, Frame]], inner: Frame) -> None:
        op = run.item.op
        # A single contribution of which `finish` joins no slots: its fold is a statement of its own.
        alone = not folding and run.slots == self.slots_of(run.coords, inner)
        if isinstance(op, Mma) or alone:
            super().contribute(run, folding, inner)
            return
        assert isinstance(op, Reduce)
        claim = self.partial(run, folding, inner, inner, len(folding), 1) if folding else None
        source = op.source
        spans = (*run.item.outer, *run.item.inner)
        at = dict(zip((p.dim for p in spans), (*run.coords, *self.coords(run.item.inner, inner)), strict=True))
        coords = tuple(at[d] for d in source.type.dims)
        fill = identity(op.monoid, source.type.dtype)
        lanes = [x for p in run.item.inner if (x := inner.lane(self.key(p, inner))) is not None]
        # Where neighbours are read one by one, as many conditions would be alive as there are slots.
        wide = all(any(s.who == "slot" and s.stride == 1 for s in self.spots.get(x.slot, ())) for x in lanes)
        filled = wide and any(x.live for x in lanes) and self.filled(source, coords, fill, inner)
        got = self.solid(self.fetch(source, coords, inner), source, coords, inner, run.slots)
        if filled:
            self.neutral[got.name] = str(fill)
        if self.neutral.get(got.name) != str(fill):
            self.masked(got, source, coords, lanes, fill, inner)
        if claim is None:
            run.acc = got.name
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

    # ---- selections that hold for a whole tile

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
        if fn == "where" and isinstance(gots[1].source, str) and not isinstance(gots[2].source, str):
            facts = self.affine(args[0], coords, value, frame)
            if facts is not None:
                return self.selected(value, op, gots[1], gots[2].source, facts, coords, frame)
        fused = self.fused(value, op, fn, args, gots, coords, frame) if fn in ("add", "sub") else None
        return fused or super().elementwise(value, op, fn, args, gots, coords, frame)

    # ---- products that only a sum reads

    def fused(
        self,
        value: Value,
        op: Op,
        fn: str,
        args: Sequence[Value],
        gots: list[Got],
        coords: tuple[Expr, ...],
        frame: Frame,
    ) -> Got | None:
        """A product and a sum, or a difference from it, as one multiply-add, where the program permits it; else None.

        The product's own statement, already there, is read by nobody then: `without_idle` takes it out.
        """
        if value.type.dtype.name not in ("f32", "f64") or self.program.numerics.get("contract", True) is False:
            return None
        product = next((i for i in range(len(args) if fn == "add" else 1) if self.lone_product(args[i], frame)), None)
        if product is None:
            return None
        made = self.uses.definition[args[product].name]
        assert isinstance(made, Elementwise)
        at = dict(zip(value.type.dims, coords, strict=True))
        factors = [self.fetch(a, tuple(at[d] for d in a.type.dims), frame) for a in made.args]
        term = gots[1 - product]
        if not any(isinstance(g.source, str) for g in (*factors, term)):
            return None
        self.contracted = True
        return self.compute(value, coords, "fma" if fn == "add" else "fms", [*factors, term], frame, op=op)

    def lone_product(self, value: Value, frame: Frame) -> bool:
        """Whether a value is a product that one operation reads, once, and that is kept nowhere."""
        made = self.uses.definition.get(value.name)
        readers = self.uses.users.get(value.name, [])
        reads = sum(v.name == value.name for r in readers for v in r.operands)
        return isinstance(made, Elementwise) and made.fn == "mul" and reads == 1 and frame.kept(value.name) is None

    def ledger(self) -> tuple[str, ...]:
        """The ledger: the permissions of the choices, and that of multiply-adds where there are any."""
        line = ("contract: products and the sums that alone read them as one multiply-add",)
        return self.choices.numerics + (line if self.contracted else ())

    def affine(
        self, cond: Value, coords: tuple[Expr, ...], value: Value, frame: Frame
    ) -> tuple[Constraint, ...] | None:
        """The condition as inequalities of coordinates, if it compares nothing else."""
        at = dict(zip(value.type.dims, coords, strict=True))
        made = self.uses.definition.get(cond.name)
        if not isinstance(made, Elementwise):
            return None
        if made.fn == "and":
            both = [self.affine(a, coords, value, frame) for a in made.args]
            return None if None in both else tuple(c for b in both if b is not None for c in b)
        if made.fn not in ("lt", "le", "gt", "ge"):
            return None
        sides = [self.affine_value(a, tuple(at[d] for d in a.type.dims), frame) for a in made.args]
        a, b = sides
        if a is None or b is None:
            return None
        gap = b - a if made.fn in ("lt", "le") else a - b
        return (Constraint(gap - 1 if made.fn in ("lt", "gt") else gap),)

    def affine_value(self, value: Value, coords: tuple[Expr, ...], frame: Frame) -> Expr | None:
        """An integer value as an expression of coordinates."""
        made = self.uses.definition.get(value.name)
        at = dict(zip(value.type.dims, coords, strict=True))
        match made:
            case Coords():
                return coords[0]
            case Index(expr=expr):
                found = self.index(expr, frame)
                return None if found.functions else found
            case Full(number=int(number)):
                return ZERO + number
            case Elementwise(fn=("add" | "sub") as fn, args=(first, second)) if value.type.dtype.name == "i64":
                a = self.affine_value(first, tuple(at[d] for d in first.type.dims), frame)
                b = self.affine_value(second, tuple(at[d] for d in second.type.dims), frame)
                return None if a is None or b is None else a + b if fn == "add" else a - b
            case _:
                return None

    def selected(
        self,
        value: Value,
        op: Op,
        taken: Got,
        other: Number,
        facts: tuple[Constraint, ...],
        coords: tuple[Expr, ...],
        frame: Frame,
    ) -> Got:
        """`where`: a copy, with the comparison only in tiles that the boundary crosses."""
        slots = self.slots_of(coords, frame)
        dst = self.fragment(value.hint or value.name, value.type.dtype, slots, frame)
        at = positions(slots)
        arg = taken if taken.slots == slots else self.solid(taken, value, coords, frame, slots)
        claim = self.claim(value, coords, slots, frame.live(slots))
        line = self.line(op)
        crossing = minimum(*(self.least(c.expr, frame) for c in facts))
        choice = form.If(conds=(Constraint(-crossing - 1),), scope="agent", origin=line)
        where = tuple(c.substitute(at) for c in facts)
        choice.then.append(
            form.Compute(
                dst=dst, fn="copy", args=(FragRef(arg.name),), where=where, fill=other, claim=claim, origin=line
            )
        )
        choice.orelse.append(form.Compute(dst=dst, fn="copy", args=(FragRef(arg.name),), claim=claim, origin=line))
        return self.append_choice(choice, dst, value, slots, frame)

    def append_choice(self, choice: form.If, dst: str, value: Value, slots: tuple[str, ...], frame: Frame) -> Got:
        """Puts a conditional where the frame stands."""
        frame.body.append(choice)
        self.made_in[dst] = frame
        return Got(dst, value.type.dtype, slots)

    def least(self, expr: Expr, frame: Frame) -> Expr:
        """The least value of an affine expression over the slots."""
        table: dict[str, int] = {}
        for lane in frame.lanes:
            if lane.slot and lane.slot in expr.symbols:
                rising = expr.coefficient(sym(lane.slot).terms[0][0][0]) > 0
                table[lane.slot] = 0 if rising else lane.width - 1
        return expr.substitute(table)


def outside(lanes: Sequence[Lane]) -> Constraint:
    """That the last slot of some tile passes the end of its part."""
    gaps = [c.expr.substitute({x.slot: x.width - 1}) for x in lanes for c in x.live]
    return Constraint(-minimum(*gaps) - 1)


def refuse_local(engine: LaneLowering, program: Program) -> None:
    """Errors: `realise/unsupported` when a value lives in memory that threads of an agent would share unordered."""
    if engine.parts.buffers and engine.agent.digits:
        names = ", ".join(b.name for b in engine.parts.buffers if b.place == "local")
        if names:
            raise NotLowered(
                doing=f"realising {program.name} for groups of threads",
                found=f"values kept in private memory: {names}",
                expected="values that fit fragments",
                hint="the universal plan keeps them in memory of one thread",
            )
