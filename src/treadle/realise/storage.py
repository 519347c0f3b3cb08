"""Loops over fragments and buffers for values: the engine's part between fetching and grouping."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, ceildiv, const, lt, minimum, sym
from treadle.dtype.formats import DType
from treadle.ir.core import Value
from treadle.ir.ops.fold import Mma
from treadle.machine import form
from treadle.machine.form import Claim, FragRef, MemRef, Number
from treadle.realise.choices import Digit, Pack
from treadle.realise.frame import Digits, Frame, Got, Kept, Lane, PartKey, ends, positions, surely
from treadle.realise.pull import Pull

Loops = list[tuple[form.Loop | form.Tasks, Frame]]
"""Controls being written, outermost first, each with the frame of its body."""


class Storage(Pull):
    """The lowering engine, third part: loops and buffers."""

    rank: dict[str, int]
    leading: str
    shares: dict[str, int]

    # ---- loops

    def width_of(self, key: PartKey, contraction: bool) -> int:
        """Slots of a fragment along this part."""
        table = self.choices.tile if contraction else self.choices.sweep
        width = table.get(key[0].name, 1)
        extent = (key[2] - key[1]).constant
        if extent == 1:
            return 1
        if contraction or key[0].name == self.leading:
            return width
        return self.shares.get(key[0].name, 1)

    def lead(self, groups: Sequence[Sequence[PartKey]]) -> None:
        """Chooses the dimension along the lanes for loops over these parts, and the slots of the others beside it.

        Code grows with the slots of a fragment: each dimension gets what the ones before it leave that occur with it in
        a group of parts.
        """
        sweep = self.choices.sweep
        together = [{k[0].name for k in keys if sweep.get(k[0].name, 1) > 1} for keys in groups]
        names = sorted({n for g in together for n in g}, key=lambda n: (-self.rank.get(n, 0), n))
        self.leading = names[0] if names else ""
        self.shares = {}
        for name in names:
            taken = sweep[self.leading]
            for other, share in self.shares.items():
                if other != self.leading and any(name in g and other in g for g in together):
                    taken *= share
            room = max(1, self.choices.slots // taken)
            even = 1 << (room.bit_length() - 1)
            self.shares[name] = sweep[name] if name == self.leading else min(sweep[name], even)

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
        """A loop over the tiles of a part, and the frame of its body. The loop is not yet in the outer body.

        `deep`: the slots are contracted together; `whole`: the tiles fill a multiple of so many coordinates;
        `backward`: from the last tile to the first; `among`: of tiles in packets of so many, those of one packet.
        """
        dim, lo, hi = key
        count = (
            self.parts.tiles(lo, hi, width) if whole <= width else self.parts.tiles(lo, hi, whole) * (whole // width)
        )
        first = const(0) if among is None else among[0] * among[1]
        count = count if among is None else minimum(const(among[1]), count - first)
        loop = form.Loop(var=self.parts.fresh(f"{dim.name.lower()}"), lo=const(0), hi=count, step=const(1))
        inner = frame.child(loop.body)
        base = lo + (first + sym(loop.var)) * width
        if backward:
            base = hi - 1 - sym(loop.var) if width == 1 else lo + (count - 1 - sym(loop.var)) * width
        inner.symbols.add(loop.var)
        if width == 1:
            lane = Lane(key, base)
        else:
            slot = f"@{self.slots}"
            self.slots += 1
            inner.symbols.add(slot)
            # A bound at a multiple of the width above `lo` is implied by the loop's own count.
            open_ends = [b for b in ends(hi) if (gap := (b - lo).constant) is None or gap % width]
            lane = Lane(key, base, width, slot, tuple(lt(base + sym(slot), b) for b in open_ends), deep)
        inner.lanes = self.arranged((*frame.lanes, lane))
        return loop, inner

    def in_packets(self, key: PartKey, width: int, frame: Frame) -> tuple[Loops, Frame]:
        """A loop over the tiles of a part, packets of which are tasks; and the frame of its body."""
        assert self.choices.share is not None
        along = self.choices.share[1 if key[0].name == self.leading else 0]
        packet = max(1, along // width)
        number = self.parts.fresh(f"t_{key[0].name.lower()}")
        tasks = form.Tasks(vars=(number,), counts=(self.parts.tiles(key[1], key[2], width * packet),), over="workers")
        outer = frame.child(tasks.body, barrier=True)
        outer.symbols.add(number)
        loop, inner = self.over(key, width, outer, among=(sym(number), packet))
        return [(tasks, outer), (loop, inner)], inner

    def arranged(self, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
        """Lanes with those along vector registers last."""
        return tuple(sorted(lanes, key=lambda x: (x.deep, self.rank.get(x.part[0].name, 0))))

    def nest_order(self, keys: Sequence[PartKey]) -> list[PartKey]:
        """Loop order of axes: as given, vector axes innermost."""
        return sorted(keys, key=lambda k: self.rank.get(k[0].name, 0))

    def close(self, loops: Sequence[tuple[form.Loop | form.Tasks, Frame]]) -> None:
        """Puts finished loops into the bodies around them, innermost first."""
        for loop, inner in reversed(loops):
            assert inner.parent is not None
            inner.parent.body.append(loop)

    # ---- buffers

    def keep_place(self, value: Value, frame: Frame) -> Kept:
        """The buffer of a kept value, in the layout that its readers want."""
        pack = next((p for p in self.choices.laid_out if p.value == value.name), None)
        if pack is None:
            return self.allocate(value, frame)
        return self.allocate(value, frame, pack.layout, self.packed_dtype(pack), pack.whole)

    def packed_dtype(self, pack: Pack) -> DType:
        """The dtype of a packed operand."""
        value = self.uses.of_value[pack.value]
        readers = [u for u in self.uses.users.get(value.name, []) if isinstance(u, Mma)]
        return readers[0].result.type.dtype if pack.wide and readers else value.type.dtype

    def place_name(self, value: Value) -> str:
        """The key under which readers find a value's buffer."""
        return wide(value.name) if any(p.value == value.name for p in self.choices.laid_out) else value.name

    def allocate(
        self,
        value: Value,
        frame: Frame,
        layout: Sequence[Digit] | None = None,
        wider: DType | None = None,
        whole: Sequence[tuple[str, int]] = (),
        own: tuple[Part, ...] = (),
        instances: Sequence[str] = (),
    ) -> Kept:
        """A buffer for the elements of a value that this frame's instance needs, or for those in `own`; `whole` and
        `instances` as in `Pack`."""
        dtype = value.type.dtype if wider is None else wider
        axes = {p.dim.name: (i, p) for i, p in enumerate(own or value.type.axes)}
        digits = [Digits(-1, const(0), self.size_of(self.args[n].domain.dim), arg=n) for n in instances]
        padded: set[int] = set()
        tiles: list[tuple[int, int]] = []
        if layout is None:
            layout = [(p.dim.name, "all", 1) for p in self.memory_order(own or value.type.axes, frame)]
        for name, kind, width in layout:
            axis, part = axes[name]
            if self.single(part, frame):
                continue
            key = self.key(part, frame)
            lane = frame.lane(key)
            if lane is not None:
                if lane.slot:
                    digits.append(Digits(axis, lane.base, const(lane.width)))
                continue
            limit = self.limit(part, frame)
            room = const(limit) if limit is not None else self.room(part, frame)
            origin = key[1] if room is not None else const(0)
            size = self.size_of(part.dim) if room is None else room
            filled = dict(whole).get(name, 1)
            if filled > 1:
                size = ceildiv(size, filled) * filled
                if kind == "all":
                    padded.add(axis)
            if kind == "all":
                tile = self.choices.tile.get(name, 1) if value.name in self.choices.whole_tiles else 1
                if tile > 1:
                    tiles.append((axis, tile))
                    even = size.constant is not None and size.constant % tile == 0
                    size = size if even else size + (tile - 1)
                digits.append(Digits(axis, origin, size))
            elif kind == "panel":
                digits.append(Digits(axis, key[1], ceildiv(size, width), kind, width))
            else:
                digits.append(Digits(axis, key[1], const(width), kind, width))
                padded.add(axis)
        shape = tuple(d.size for d in digits)
        name = self.parts.buffer(value.hint or value.name, dtype, shape, frame.in_tasks)
        fill = zero(dtype) if padded else None
        return Kept(name, dtype, tuple(digits), frozenset(padded), fill, tuple(tiles), own)

    def memory_order(self, axes: Sequence[Part], frame: Frame) -> list[Part]:
        """The axes of a buffer, the contiguous one last: as given, vector axes innermost."""
        del frame
        return sorted(axes, key=lambda p: self.rank.get(p.dim.name, 0))

    def size_of(self, dim: Dim) -> Expr:
        """The extent of a dimension, as the host knows it."""
        return dim.extent

    def version(self, value: Value, place: Kept, frame: Frame) -> None:
        """Says what the buffer holds from here on."""
        fill: form.Fill = "undef" if place.fill is None else place.fill
        frame.body.append(form.Version(buffer=place.buffer, fill=fill, claim=self.contents(value, place, frame)))

    def contents(self, value: Value, place: Kept, frame: Frame) -> Claim:
        """The claim that a buffer holds the elements of a value, in the buffer's `$i`."""
        coords: list[Expr] = []
        where: list[Constraint] = []
        for axis, part in enumerate(place.parts(value)):
            digits = {d.kind: (i, d) for i, d in enumerate(place.digits) if d.axis == axis}
            if not digits:
                key = self.key(part, frame)
                lane = frame.lane(key)
                coords.append(key[1] if lane is None else lane.base)
                continue
            if "all" in digits:
                i, d = digits["all"]
                coord = d.origin + sym(f"${i}")
            else:
                (i, p), (j, _) = digits["panel"], digits["lane"]
                coord = p.origin + sym(f"${i}") * p.width + sym(f"${j}")
            coords.append(coord)
            key = self.key(part, frame)
            lane = frame.lane(key)
            if lane is not None:
                where += [c.substitute({lane.slot: coord - lane.base}) for c in lane.live]
            else:
                where += [Constraint(coord - key[1])]
                spans = [d for d in place.digits if d.axis == axis and d.kind == "all"]
                # The shape of the buffer itself implies a bound at its end.
                where += [lt(coord, b) for b in ends(key[2]) if not spans or b != spans[0].origin + spans[0].size]
        where = [w for w in where if not surely(w)]
        told = tuple((d.arg, sym(f"${i}")) for i, d in enumerate(place.digits) if d.arg)
        return Claim(value.name, tuple(coords), tuple(where), instance=told)

    def put(
        self, value: Value, got: Got, coords: tuple[Expr, ...], place: Kept, frame: Frame, name: Value | None = None
    ) -> None:
        """Stores a fragment's elements of a value into its buffer, claimed as those of `name` when that is given."""
        index = tuple(self.digit(d, coords, frame) for d in place.digits)
        slots = self.slots_of([*coords, *index], frame)
        solid = self.solid(got, value, coords, frame, slots)
        if solid.dtype != place.dtype:
            solid = self.compute(value, coords, "cast", [solid], frame, slots=slots, dtype=place.dtype)
        names = positions(slots)
        covered = place.covered(coords, frame)
        live = frame.live([s for s in slots if s not in covered])
        frame.body.append(
            form.Store(
                dst=MemRef(place.buffer, tuple(i.substitute(names) for i in index)),
                src=FragRef(solid.name),
                where=tuple(c.substitute(names) for c in live),
                claim=self.claim(name or value, coords, slots, frame.live(slots)),
            )
        )

    def zeroed(self, value: Value, got: Got, coords: tuple[Expr, ...], place: Kept, frame: Frame) -> Got:
        """The elements with the buffer's fill in the padding that will be stored with them."""
        covered = {s for a in place.padded for s in self.slots_of([coords[a]], frame)}
        where = frame.live([s for s in got.slots if s in covered])
        if place.fill is None or not where:
            return got
        fill = zero(value.type.dtype)
        return self.compute(value, coords, "copy", [got], frame, slots=got.slots, where=where, fill=fill)


def zero(dtype: DType) -> Number:
    """The number 0 of a dtype."""
    return 0.0 if dtype.is_float else False if dtype.is_bool else 0


def wide(name: str) -> str:
    """The key under which the packed copy of a contraction's operand is found."""
    return f"{name}^"
