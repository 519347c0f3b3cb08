"""Storage that outlives a statement: tiles assembled in parts, carried values and the moves that renew them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from treadle.algebra.dims import Part
from treadle.algebra.expr import const, sym
from treadle.analysis.uses import PURE
from treadle.ir.core import Block, Op, Region, Sub, Value
from treadle.ir.ops.access import Insert, Load
from treadle.ir.ops.elementwise import Full
from treadle.ir.ops.fold import Mma
from treadle.machine import form
from treadle.machine.form import FragRef, Invariant
from treadle.realise.choices import Pack
from treadle.realise.frame import Frame, Got, Kept, reference
from treadle.realise.items import Item
from treadle.realise.nest import Nests
from treadle.realise.parts import scattered, scatters, touched_part
from treadle.realise.storage import Loops, wide, zero

Holder = Kept | str
"""Where a carried value lives: a buffer, or a fragment's name."""


class Carried(Nests, ABC):
    """The lowering engine, seventh part: assembled tiles, carried values, packed operands."""

    @abstractmethod
    def wrapped(self, op: Op) -> bool:
        """Whether a region is executed inside a nest over fragments."""

    # ---- outer tiles

    def prepare_insert(self, item: Item, items: list[Item], frame: Frame) -> None:
        """Chooses the buffer in which elements are replaced: that of the old tile when nothing reads it later."""
        op = item.op
        assert isinstance(op, Insert)
        source = op.source
        made = self.uses.definition.get(source.name)
        while isinstance(made, Insert) and self.uses.overwritten(made):
            source = made.source
            made = self.uses.definition.get(source.name)
        if isinstance(made, Full) and made.number is None and not scatters(op) and not self.carried_on(op):
            item.target = self.allocate(op.result, frame)
            self.version(op.result, item.target, frame)
            return
        place = frame.kept(source.name)
        later = items[items.index(item) + 1 :]
        if place is not None and not any(source.name in i.reads for i in later):
            item.target = place[0]
            if not self.assembled(source):
                self.version(op.result, item.target, frame)
            return
        item.target = self.copied(source, op.result, frame)
        self.version(op.result, item.target, frame)

    def carried_on(self, op: Insert) -> bool:
        """Whether a part of a tile is replaced and the whole tile then carried by an ordered region: what nobody gave a
        value must hold something, as the region's invariant is about the whole."""
        if all(isinstance(s, Sub) and s.part == axis for s, axis in zip(op.subs, op.result.type.axes, strict=True)):
            return False
        later = self.uses.users.get(op.result.name, [])
        if any(isinstance(u, Region) and u.kind != "parallel" and any(v is op.result for v in u.inits) for u in later):
            return True
        return any(isinstance(u, Insert) and u.source is op.result and self.carried_on(u) for u in later)

    def assembled(self, value: Value) -> bool:
        """Whether the value is the own part of a tile that instances of a parallel region assemble."""
        op = self.uses.definition.get(value.name)
        if isinstance(op, Insert):
            return self.assembled(op.source)
        if isinstance(op, Region):
            inside = any(v is value for v in op.carried)
            if inside:
                return op.kind == "parallel"
            if op.kind == "parallel":
                return self.assembled(op.inits[op.results.index(value)])
        return False

    def copied(self, value: Value, shape_of: Value, frame: Frame) -> Kept:
        """A new buffer with the elements of `value`."""
        place = self.allocate(shape_of, frame)
        self.version(value, place, frame)
        self.fill(value, place, frame)
        return place

    def fill(self, value: Value, place: Kept, frame: Frame) -> None:
        """Stores all elements of a value into a buffer: zeros for those that have no value yet."""
        loops: Loops = []
        inner = frame
        keys = self.free(place.parts(value), frame)
        self.lead([keys])
        for key in self.nest_order(keys):
            if not loops and self.choices.share and not frame.in_tasks and not frame.lanes:
                loops, inner = self.in_packets(key, self.width_of(key, bool(place.tiles)), inner)
                continue
            # The padding of whole tiles is written too.
            loop, inner = self.over(key, self.width_of(key, bool(place.tiles)), inner)
            loops.append((loop, inner))
        coords = self.coords(place.parts(value), inner)
        blank = self.blank(value)
        got = Got(zero(value.type.dtype), value.type.dtype) if blank else self.fetch(value, coords, inner)
        self.put(value, got, coords, place, inner)
        self.close(loops)

    def blank(self, value: Value) -> bool:
        """Whether no element has been given a value where the value is first known."""
        op = self.uses.definition.get(value.name)
        if isinstance(op, Region) and any(v is value for v in op.carried):
            return op.kind == "parallel" and self.blank(op.inits[op.carried.index(value)])
        return isinstance(op, Full) and op.number is None

    def tile_holder(self, carried: Value, init: Value, op: Region, frame: Frame) -> Kept:
        """The buffer that instances assemble a tile in: that of the entry value when only this region reads it."""
        place = frame.kept(init.name)
        if place is not None and (self.assembled(init) or len(self.uses.users.get(init.name, [])) == 1):
            return place[0]
        made = self.uses.definition.get(init.name)
        if isinstance(made, Full) and made.number is None and not scattered(op, carried):
            return self.allocate(carried, frame)
        # Which elements integer tiles select is not known: the others must hold something where all are read.
        return self.copied(init, carried, frame)

    def branch_holder(self, result: Value, branches: tuple[Value, Value], frame: Frame) -> Holder:
        """Storage for a result of an `if`: the assembled tile itself when both branches yield it."""
        if all(self.assembled(v) for v in branches):
            origin = self.origin(branches[0])
            place = frame.kept(origin.name)
            if place is not None and self.origin(branches[1]) is origin:
                return place[0]
        if frame.in_tasks and not self.free(result.type.axes, frame):
            slots = self.slots_of(self.coords(result.type.axes, frame), frame)
            name = self.fragment(result.hint or result.name, result.type.dtype, slots, frame)
            self.made_in[name] = frame
            return name
        place = self.allocate(result, frame)
        self.version(result, place, frame)
        return place

    def origin(self, value: Value) -> Value:
        """The carried tile of a parallel region from which inserts and regions made this one."""
        op = self.uses.definition.get(value.name)
        if isinstance(op, Insert):
            return self.origin(op.source)
        if isinstance(op, Region) and not any(v is value for v in op.carried):
            return self.origin(op.inits[op.results.index(value)])
        return value

    # ---- carried values

    def in_place(self, items: list[Item]) -> None:
        """Lets a fold or kept value be made in the holder that it will be moved to, where nothing else reads that."""
        for update in items:
            if update.kind != "update" or update.source is None:
                continue
            carried = update.makes
            if update.name is not None:
                continue
            maker = next((i for i in items if i.makes is update.source and i.kind in ("fold", "keep")), None)
            if maker is None or carried is None:
                continue
            readers = [i for i in items if carried.name in i.reads and i is not maker]
            if readers or carried.name in maker.skewed or maker.target is not None:
                continue
            if isinstance(update.target, str):
                users = [i for i in items if update.source.name in i.reads and i is not update]
                if not isinstance(maker.op, Mma) or maker.op.acc is not carried or users:
                    continue
            maker.target = update.target

    def already(self, item: Item, frame: Frame) -> bool:
        """Whether the value to be moved is in its holder."""
        assert item.source is not None
        if isinstance(item.target, Kept):
            place = frame.kept(item.source.name)
            return place is not None and place[0].buffer == item.target.buffer
        return False

    def updates(self, items: list[Item], contraction: bool, frame: Frame) -> None:
        """Moves values into holders; the frame stands inside the rows of the group."""
        for item in items:
            assert item.source is not None
            if self.already(item, frame):
                continue
            if isinstance(item.target, Kept):
                self.move(item.source, item.name or item.source, item.target, contraction, frame)
                continue
            assert isinstance(item.target, str)
            coords = self.coords(item.outer, frame)
            got = self.fetch(item.source, coords, frame)
            if got.source == item.target:
                continue
            slots = self.slots_of(coords, frame)
            frame.body.append(
                form.Compute(
                    dst=item.target,
                    fn="copy",
                    args=(reference(got, slots),),
                    claim=self.claim(item.name or item.source, coords, slots, frame.live(slots)),
                )
            )

    def move(self, value: Value, name: Value, place: Kept, contraction: bool, frame: Frame) -> None:
        """Stores a value into a holder along its axes that are still free, under the name `name`."""
        own = self.own_part(value, frame)
        loops: Loops = []
        inner = frame
        for key in self.nest_order(self.free(own, frame)):
            if not loops and self.choices.share and not frame.in_tasks and not frame.lanes:
                loops, inner = self.in_packets(key, self.width_of(key, contraction), inner)
                continue
            loop, inner = self.over(key, self.width_of(key, contraction), inner)
            loops.append((loop, inner))
        coords = self.coords(own, inner)
        self.put(value, self.fetch(value, coords, inner), coords, place, inner, name)
        self.close(loops)

    def own_part(self, value: Value, frame: Frame) -> tuple[Part, ...]:
        """The axes of a value, as far as it is kept."""
        place = frame.kept(value.name)
        return value.type.axes if place is None else place[0].parts(value)

    def rescue(self, group: list[Item], left: list[Item], frame: Frame) -> None:
        """Copies carried values that a later move still reads after their holder has been overwritten.

        `left`: the group and all moves after it.
        """
        for number, item in enumerate(group):
            carried = item.makes
            assert carried is not None
            late = any(carried.name in other.reads for other in left[number + 1 :])
            if not (late or carried.name in item.skewed):
                continue
            if isinstance(item.target, Kept):
                frame.places[carried.name] = self.copied(carried, carried, frame)
            else:
                coords = self.coords(carried.type.axes, frame)
                slots = self.slots_of(coords, frame)
                held = self.fetch(carried, coords, frame)
                dst = self.fragment(carried.hint or carried.name, carried.type.dtype, slots, frame)
                claim = self.claim(carried, coords, slots, frame.live(slots))
                frame.body.append(form.Compute(dst=dst, fn="copy", args=(FragRef(held.name),), claim=claim))
                frame.memo[(carried.name, coords)] = self.append_known(dst, carried, slots, frame)

    def append_known(self, dst: str, value: Value, slots: tuple[str, ...], frame: Frame) -> Got:
        """A fragment just written in this frame, as an operand."""
        self.made_in[dst] = frame
        return Got(dst, value.type.dtype, slots)

    def holder(self, carried: Value, init: Value, op: Region, frame: Frame) -> Holder:
        """Storage for a carried value of a region, holding its initial value.

        The buffer of the initial value itself where nothing reads that any more. Of a tile that the instance shares
        with others, its own part.
        """
        # A region that runs inside a nest has no tasks in it, wherever it stands.
        if (frame.in_tasks or self.wrapped(op)) and not self.free(carried.type.axes, frame):
            coords = self.coords(carried.type.axes, frame)
            slots = self.slots_of(coords, frame)
            name = self.fragment(carried.hint or carried.name, carried.type.dtype, slots, frame)
            got = self.fetch(init, coords, frame)
            claim = self.claim(init, coords, slots, frame.live(slots))
            frame.body.append(form.Compute(dst=name, fn="copy", args=(reference(got, slots),), claim=claim))
            self.made_in[name] = frame
            return name
        kept = frame.kept(init.name)
        if kept is not None and not self.assembled(init) and not self.wrapped(op) and self.spent(init, op):
            return kept[0]
        part = touched_part(op, carried) if self.assembled(init) else kept[0].axes if kept is not None else ()
        place = self.allocate(carried, frame, own=part)
        self.version(init, place, frame)
        self.fill(init, place, frame)
        return place

    def spent(self, value: Value, op: Region) -> bool:
        """Whether a region is the last to need a value that it carries on, in each instance of the block around."""
        home = self.uses.home[id(op)]
        made = self.uses.definition.get(value.name)
        if made is None or len([v for v in op.inits if v is value]) != 1:
            return False
        around = self.uses.owner.get(id(home))
        if made is not around and self.uses.home.get(id(made)) is not home:
            return False
        before = {id(o) for o in home.ops[: home.ops.index(op)]}
        todo, seen = [value], {value.name}
        while todo:
            for user in self.uses.users.get(todo.pop().name, []):
                here = self.within(user, home)
                if user is op and not any(y is value for y in op.body.yields):
                    continue
                if here is None or id(here) not in before:
                    return False
                # What is computed where it is used may be used later.
                for made_here in user.results if isinstance(user, PURE) and self.virtual(user.result) else []:
                    if made_here.name not in seen:
                        seen.add(made_here.name)
                        todo.append(made_here)
        return True

    def within(self, op: Op, block: Block) -> Op | None:
        """The operation of a block that is this one or has it inside."""
        while (home := self.uses.home.get(id(op))) is not None and home is not block:
            around = self.uses.owner.get(id(home))
            if around is None:
                return None
            op = around
        return op if home is block else None

    def settle(self, value: Value, holder: Holder, frame: Frame) -> None:
        """From here on `value` is found in the holder."""
        if isinstance(holder, Kept):
            frame.places[value.name] = holder
        else:
            coords = self.coords(value.type.axes, frame)
            frame.memo[(value.name, coords)] = Got(holder, value.type.dtype, self.slots_of(coords, frame))

    def holds(self, carried: Value, holder: Holder, frame: Frame) -> Invariant:
        """The invariant that a holder has the carried value at the head of an iteration."""
        if isinstance(holder, str):
            coords = self.coords(carried.type.axes, frame)
            slots = self.slots_of(coords, frame)
            return Invariant(holder, self.claim(carried, coords, slots, frame.live(slots)))
        return Invariant(holder.buffer, self.contents(carried, holder, frame))

    # ---- packed operands

    def emit_pack(self, pack: Pack, frame: Frame) -> None:
        """Copies an operand into panels, where the first contraction that reads it stands."""
        value = self.uses.of_value[pack.value]
        dtype = self.packed_dtype(pack)
        place = self.allocate(value, frame, pack.layout, dtype, pack.whole, instances=pack.instances)
        self.version(value, place, frame)
        before, self.rank = self.rank, {name: i + 1 for i, (name, _) in enumerate(pack.slots)}
        widths = dict(pack.slots)
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        order = {name: i for i, (name, kind, _) in enumerate(pack.layout) if kind != "lane"}
        keys = sorted(self.free(value.type.axes, frame), key=lambda k: order.get(k[0].name, 0))
        whole = dict(pack.whole)
        for key in keys:
            name = key[0].name
            width = widths.get(name, 1)
            if name in whole:
                loop, inner = self.over(key, width, inner, whole=whole[name])
            else:
                loop, inner = self.over(key, width, inner)
            if inner.parent is frame and self.choices.tasks and not frame.in_tasks:
                inner.body = self.handed_out(loop, frame)
                inner.barrier = inner.in_tasks = True
            else:
                loops.append((loop, inner))
        for name in pack.instances:
            loop, inner = self.over_instances(name, inner)
            loops.append((loop, inner))
        coords = self.coords(value.type.axes, inner)
        slots = self.slots_of(coords, inner)
        pad = zero(value.type.dtype) if place.padded else None
        op = self.uses.definition.get(value.name)
        if isinstance(op, Load) and self.virtual(value):
            got = self.define(value, coords, inner, pad)
        else:
            got = self.fetch(value, coords, inner)
            live = inner.live(slots)
            if pad is not None and live:
                got = self.solid(got, value, coords, inner, slots)
                got = self.compute(value, coords, "copy", [got], inner, slots=slots, where=live, fill=pad)
        if got.dtype != dtype:
            got = self.compute(value, coords, "cast", [got], inner, slots=slots, dtype=dtype)
        self.put(value, got, coords, place, inner)
        self.close(loops)
        self.rank = before
        self.instance = {}
        frame.places[wide(value.name)] = place

    def over_instances(self, name: str, frame: Frame) -> tuple[form.Loop, Frame]:
        """A loop over the coordinates of a region argument, outside that region: what is made in it is claimed at each
        of them."""
        var = self.parts.fresh(name)
        loop = form.Loop(var=var, lo=const(0), hi=self.size_of(self.args[name].domain.dim), step=const(1))
        inner = frame.child(loop.body)
        inner.symbols.add(var)
        inner.bind(name, sym(var))
        self.instance[name] = sym(var)
        return loop, inner

    def handed_out(self, loop: form.Loop, frame: Frame) -> form.Body:
        """The body of tasks in place of a loop whose iterations store apart."""
        tasks = form.Tasks(vars=(loop.var,), counts=(loop.hi,), over="workers")
        frame.body.append(tasks)
        return tasks.body
