"""Blocks: the items of a block and their groups, nested regions and ifs, carried values, packed operands.

`realise` is the one entry: a program and `Choices` in, a machine program with its witness out.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.expr import Expr, ceildiv, const, minimum, sym
from treadle.analysis.uses import PURE, Uses
from treadle.ir.core import Block, If, Op, Program, Region, RegionArg, Value
from treadle.ir.guard import Guard
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Coords, Full, Index
from treadle.ir.ops.fold import ArgReduce, Mma
from treadle.machine import form
from treadle.machine.form import Enter, FragRef, Host, Invariant, Kernel, Launch, MachineProgram, Role
from treadle.realise.choices import Choices, Pack
from treadle.realise.frame import Frame, Got, Kept, reference
from treadle.realise.nest import Item, Nests, item_of, tile_count, wide, zero

HEAVY = 8
"""A value at least this costly, read in several places, is kept (*Units*: `Uses.weight`)."""

Holder = Kept | str


class Lowering(Nests):
    """The lowering engine, third part: control."""

    def __init__(self, program: Program, choices: Choices, uses: Uses) -> None:
        super().__init__(program, choices, uses)
        self.region_names: dict[int, str] = {}
        for op in program.body.walk():
            if isinstance(op, Region):
                self.region_names[id(op)] = op.name or f"R{len(self.region_names)}"
        self.rank = {name: i + 1 for i, name in enumerate(choices.vector)}
        self.keeping = self.chosen_to_keep()

    # ---- which values are kept

    def chosen_to_keep(self) -> set[str]:
        """Pure values that are stored once: unstable loads, sources of filled extracts, what the plan names, and heavy
        values that several places read."""
        kept: set[str] = set(self.choices.keep) | {p.value for p in self.choices.laid_out}
        for op in self.program.body.walk():
            if isinstance(op, Extract) and op.fill is not None:
                kept.add(op.source.name)
        for op in self.program.body.walk():
            if not isinstance(op, PURE) or isinstance(op, Full | Coords | Index) or not op.results:
                continue
            value = op.result
            if isinstance(op, Load) and not self.uses.stable(op):
                kept.add(value.name)
            elif isinstance(op, Load) and self.choices.snapshots and self.uses.stored:
                kept.add(value.name)
            elif self.uses.weight(value, frozenset(kept)) >= HEAVY and self.readers(value) > 1:
                kept.add(value.name)
        return {n for n in kept if isinstance(self.uses.definition.get(n), PURE)}

    def readers(self, value: Value) -> int:
        """How many places read a value, a place inside a region it is not defined in counting twice."""
        home = self.uses.home[id(self.uses.definition[value.name])]
        found: dict[int, int] = {}
        todo, seen = [value], {value.name}
        while todo:
            for user in self.uses.users.get(todo.pop().name, []):
                if isinstance(user, PURE):
                    if user.results and user.result.name not in seen:
                        seen.add(user.result.name)
                        todo.append(user.result)
                else:
                    found[id(user)] = 1 if self.uses.home[id(user)] is home else 2
        return sum(found.values())

    # ---- items and groups

    def items(self, block: Block) -> list[Item]:
        """The items of a block in order, with what they read."""
        found: list[Item] = []
        for op in block.ops:
            if isinstance(op, Print | Check | ArgReduce):
                raise self.unsupported(op, f"an operation `{op.keyword or type(op).__name__}`")
            if isinstance(op, PURE):
                if op.result.name not in self.keeping:
                    continue
                item = Item("keep", op, op.result.type.axes, (), op.result)
            else:
                made = item_of(op)
                if made is None:
                    raise self.unsupported(op, f"an operation {type(op).__name__}")
                item = made
            values = self.uses.deep(op) if item.kind in ("region", "if") else self.uses.direct(op)
            if item.kind == "region":
                assert isinstance(op, Region)
                own = {v.name for v in op.carried}
                values = [v for v in values if v.name not in own]
            item.reads, item.skewed = self.roots(values)
            # A fold or a nested block reads at coordinates of its own.
            if item.kind in ("region", "if"):
                item.skewed |= item.reads if item.kind == "if" or not self.wrapped(op) else set()
            found.append(item)
        return found

    def wrapped(self, op: Op) -> bool:
        """Whether a region is executed inside a nest over fragments."""
        return isinstance(op, Region) and self.region_names[id(op)] in self.choices.wrap

    def lower_block(self, block: Block, frame: Frame, after: Sequence[Item] = ()) -> None:
        """Emits a block, then `after`: moves of yielded values into holders."""
        items = [*self.items(block), *after]
        self.in_place(items)
        groups = self.grouped(items, frame)
        owner = self.uses.owner.get(id(block))
        level = "" if owner is None else self.region_names.get(id(owner))
        packs = [p for p in self.choices.packs if p.level == level]
        for number, group in enumerate(groups):
            readers = {v.name for i in group for m in self.uses.contractions(i.op) for v in (m.a, m.b)}
            readers |= {v.name for i in group if isinstance(i.op, Mma) for v in (i.op.a, i.op.b)}
            for pack in [p for p in packs if p.value in readers]:
                self.emit_pack(pack, frame)
                packs.remove(pack)
            outside = [i for other in groups[:number] + groups[number + 1 :] for i in other]
            rest = {n for i in outside for n in i.reads}
            if group[0].kind in ("region", "if") and not self.wrapped(group[0].op):
                self.lower_control(group[0].op, frame)
                continue
            if group[0].kind == "update":
                group = [i for i in group if not self.already(i, frame)]
                if not group:
                    continue
                self.rescue(group, [i for other in ([group], groups[number + 1 :]) for g in other for i in g], frame)
            for item in group:
                if item.kind == "insert":
                    self.prepare_insert(item, items, frame)
                elif item.kind == "update" and isinstance(item.target, Kept) and item.source is not None:
                    if item.name is None:
                        self.version(item.source, item.target, frame)
            self.lower_group(group, rest, frame)
            for item in group:
                if item.kind == "insert" and item.makes is not None and isinstance(item.target, Kept):
                    frame.places[item.makes.name] = item.target

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

    def grouped(self, items: list[Item], frame: Frame) -> list[list[Item]]:
        """Consecutive items that share their loops."""
        groups: list[list[Item]] = []
        for item in items:
            if groups and self.joins(groups[-1], item, frame):
                groups[-1].append(item)
            else:
                groups.append([item])
        return groups

    def joins(self, group: list[Item], item: Item, frame: Frame) -> bool:
        """Whether an item can be executed in the loops of a group."""
        if not self.choices.fuse or (item.kind == "update") != (group[0].kind == "update"):
            return False
        if any(i.kind in ("region", "if") and not self.wrapped(i.op) for i in (*group, item)):
            return False
        made = {v.name for i in group for v in i.products}
        if made & item.skewed or any(self.touched(i) & self.touched(item) for i in group):
            return False
        if item.kind == "insert" and isinstance(item.op, Insert):
            if any(item.op.source.name in i.skewed for i in group):
                return False
        mine, theirs = self.contracts([item]), self.contracts(group)
        shared = set(self.rows(group, frame))
        if mine or theirs:
            if mine and not theirs:
                return False
            if mine and (made & item.reads or item.kind == "region" or not self.choices.join):
                return False
            own = set(self.free(item.outer, frame))
            same_inner = not item.inner or mine
            return same_inner and shared <= own and (own == shared or not mine)
        rows = self.rows([*group, item], frame)
        if rows:
            return True
        return not any(self.free((*i.outer, *i.inner), frame) for i in (*group, item))

    # ---- outer tiles

    def prepare_insert(self, item: Item, items: list[Item], frame: Frame) -> None:
        """Chooses the buffer in which elements are replaced: that of the old tile when nothing reads it later."""
        op = item.op
        assert isinstance(op, Insert)
        source = op.source
        made = self.uses.definition.get(source.name)
        if isinstance(made, Full) and made.number is None:
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
        """Stores all elements of a value into a buffer."""
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        for key in self.nest_order(self.free(value.type.axes, frame)):
            loop, inner = self.over(key, self.width_of(key, False), inner)
            loops.append((loop, inner))
        coords = self.coords(value.type.axes, inner)
        self.put(value, self.fetch(value, coords, inner), coords, place, inner)
        self.close(loops)

    # ---- carried values

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
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        for key in self.nest_order(self.free(value.type.axes, frame)):
            loop, inner = self.over(key, self.width_of(key, contraction), inner)
            loops.append((loop, inner))
        coords = self.coords(value.type.axes, inner)
        self.put(value, self.fetch(value, coords, inner), coords, place, inner, name)
        self.close(loops)

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

    def holder(self, carried: Value, init: Value, frame: Frame) -> Holder:
        """Storage for a carried value, holding its initial value."""
        if frame.in_tasks and not self.free(carried.type.axes, frame):
            coords = self.coords(carried.type.axes, frame)
            slots = self.slots_of(coords, frame)
            name = self.fragment(carried.hint or carried.name, carried.type.dtype, slots, frame)
            got = self.fetch(init, coords, frame)
            claim = self.claim(init, coords, slots, frame.live(slots))
            frame.body.append(form.Compute(dst=name, fn="copy", args=(reference(got, slots),), claim=claim))
            self.made_in[name] = frame
            return name
        made = self.uses.definition.get(init.name)
        place = self.allocate(carried, frame)
        if isinstance(made, Full) and made.number is None:
            return place
        self.version(init, place, frame)
        self.fill(init, place, frame)
        return place

    def settle(self, value: Value, holder: Holder, frame: Frame) -> None:
        """From here on `value` is found in the holder."""
        if isinstance(holder, Kept):
            frame.places[value.name] = holder
        else:
            coords = self.coords(value.type.axes, frame)
            frame.memo[(value.name, coords)] = Got(holder, value.type.dtype, self.slots_of(coords, frame))

    # ---- control

    def lower_control(self, op: Op, frame: Frame) -> None:
        if isinstance(op, If):
            self.lower_if(op, frame)
        elif isinstance(op, Region) and op.kind == "parallel":
            self.lower_parallel(op, frame)
        else:
            assert isinstance(op, Region)
            self.lower_ordered(op, frame)

    def cut(self, op: Region, arg: RegionArg, frame: Frame) -> tuple[Expr, int | None]:
        """The block size of an argument, and a constant bound of it."""
        if arg.size is not None:
            size = self.index(arg.size, frame)
            return size, size.constant
        size = self.choices.cuts.get(f"{self.region_names[id(op)]}.{arg.name}", 1)
        return const(size), size

    def bind_arg(
        self, op: Region, arg: RegionArg, counter: Expr | None, at: Expr | None, frame: Frame
    ) -> tuple[str, tuple[Expr, ...]]:
        """Binds an argument to a tile number or a start coordinate; returns the Enter's clause."""
        lo, hi = self.index(arg.domain.lo, frame), self.index(arg.domain.hi, frame)
        if arg.kind == "each":
            if at is not None:
                here = at
            else:
                assert counter is not None
                here = hi - 1 - counter if arg.reversed else lo + counter
            frame.bind(arg.name, here)
            return arg.name, (here,)
        size, bound = self.cut(op, arg, frame)
        if at is not None:
            start = at
        else:
            assert counter is not None
            number = ceildiv(hi - lo, size) - 1 - counter if arg.reversed else counter
            start = lo + size * number
        stop = start + 1 if bound == 1 else minimum(start + size, hi)
        frame.bind(f"{arg.name}.start", start)
        frame.bind(f"{arg.name}.stop", stop)
        frame.bounds[arg.name] = bound
        return arg.name, (start, stop)

    def tiles(self, op: Region, arg: RegionArg, frame: Frame) -> Expr:
        """How many instances an argument has."""
        lo, hi = self.index(arg.domain.lo, frame), self.index(arg.domain.hi, frame)
        return hi - lo if arg.kind == "each" else tile_count(lo, hi, self.cut(op, arg, frame)[0])

    def enter_loop(self, op: Region, arg: RegionArg, frame: Frame) -> tuple[form.Loop, Frame]:
        """A loop over the blocks or coordinates of one argument."""
        name = self.region_names[id(op)]
        var = self.parts.fresh(f"{arg.name}0" if arg.kind == "block" else f"{arg.name}_i")
        lo, hi = self.index(arg.domain.lo, frame), self.index(arg.domain.hi, frame)
        if arg.reversed:
            loop = form.Loop(var=var, lo=const(0), hi=self.tiles(op, arg, frame), step=const(1), origin=self.line(op))
        else:
            step = const(1) if arg.kind == "each" else self.cut(op, arg, frame)[0]
            loop = form.Loop(var=var, lo=lo, hi=hi, step=step, origin=self.line(op))
        inner = frame.child(loop.body)
        inner.symbols.add(var)
        where = (sym(var), None) if arg.reversed else (None, sym(var))
        loop.enters = (Enter(name, (self.bind_arg(op, arg, *where, inner),)),)
        return loop, inner

    def lower_parallel(self, op: Region, frame: Frame) -> None:
        """Independent instances: tasks for the workers, or loops."""
        name = self.region_names[id(op)]
        places: list[Kept] = []
        for carried, init, result in zip(op.carried, op.inits, op.results, strict=True):
            place = self.tile_holder(carried, init, op, frame)
            if not self.assembled(init):
                self.version(result, place, frame)
            places.append(place)
        loops: list[tuple[form.Loop, Frame]] = []
        if name in self.choices.tasks and not frame.in_tasks:
            counts = tuple(self.tiles(op, a, frame) for a in op.args)
            names = tuple(self.parts.fresh(f"t_{a.name}") for a in op.args)
            tasks = form.Tasks(vars=names, counts=counts, over="workers", origin=self.line(op))
            inner = frame.child(tasks.body, barrier=True)
            inner.in_tasks = True
            inner.symbols |= set(names)
            binds = tuple(self.bind_arg(op, a, sym(n), None, inner) for a, n in zip(op.args, names, strict=True))
            tasks.enters = (Enter(name, binds),)
            inner.block = op.body
            self.body(op, places, inner)
            frame.body.append(tasks)
        else:
            inner = frame
            for arg in op.args:
                loop, inner = self.enter_loop(op, arg, inner)
                loops.append((loop, inner))
            inner.block = op.body
            self.body(op, places, inner)
            self.close(loops)
        for result, place in zip(op.results, places, strict=True):
            frame.places[result.name] = place

    def tile_holder(self, carried: Value, init: Value, op: Region, frame: Frame) -> Kept:
        """The buffer that instances assemble a tile in: that of the entry value when only this region reads it."""
        place = frame.kept(init.name)
        if place is not None and (self.assembled(init) or len(self.uses.users.get(init.name, [])) == 1):
            return place[0]
        made = self.uses.definition.get(init.name)
        if isinstance(made, Full) and made.number is None:
            return self.allocate(carried, frame)
        return self.copied(init, carried, frame)

    def body(self, op: Region, places: list[Kept], frame: Frame) -> None:
        """The body of an instance of a parallel region."""
        for carried, place in zip(op.carried, places, strict=True):
            frame.places[carried.name] = place
        self.lower_block(op.body, frame)

    def lower_ordered(self, op: Region, frame: Frame) -> None:
        """Serial, pipeline and reduce regions: loops in order, carried values in holders."""
        holders = [self.holder(c, i, frame) for c, i in zip(op.carried, op.inits, strict=True)]
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        for arg in op.args:
            loop, inner = self.enter_loop(op, arg, inner)
            outer = inner.parent
            assert outer is not None
            loop.invariants = tuple(
                self.holds(carried, holder, outer) for carried, holder in zip(op.carried, holders, strict=True)
            )
            loops.append((loop, inner))
        inner.block = op.body
        moves: list[Item] = []
        for carried, given, holder in zip(op.carried, op.body.yields, holders, strict=True):
            self.settle(carried, holder, inner)
            if given is carried:
                continue
            move = Item("update", op, carried.type.axes, (), carried, given, target=holder)
            move.reads, move.skewed = self.roots([given])
            moves.append(move)
        self.lower_block(op.body, inner, moves)
        if self.wrapped(op) and self.uses.contractions(op.body) and self.choices.unroll > 1:
            loops[-1][0].unroll = self.choices.unroll
        self.close(loops)
        for result, holder in zip(op.results, holders, strict=True):
            self.settle(result, holder, frame)

    def holds(self, carried: Value, holder: Holder, frame: Frame) -> Invariant:
        """The invariant that a holder has the carried value at the head of an iteration."""
        if isinstance(holder, str):
            coords = self.coords(carried.type.axes, frame)
            slots = self.slots_of(coords, frame)
            return Invariant(holder, self.claim(carried, coords, slots, frame.live(slots)))
        return Invariant(holder.buffer, self.contents(carried, holder, frame))

    def lower_if(self, op: If, frame: Frame) -> None:
        """A conditional: both branches leave their results in the same holders."""
        cond = self.solid(self.fetch(op.cond, (), frame), op.cond, (), frame, ())
        stmt = form.If(cond=cond.name, source=self.uses.if_number[id(op)], origin=self.line(op))
        holders: list[Holder] = []
        for number, result in enumerate(op.results):
            branches = (op.then.yields[number], op.orelse.yields[number])
            holders.append(self.branch_holder(result, branches, frame))
        for block, body in ((op.then, stmt.then), (op.orelse, stmt.orelse)):
            inner = frame.child(body, block=block)
            moves: list[Item] = []
            for result, given, holder in zip(op.results, block.yields, holders, strict=True):
                if isinstance(holder, Kept) and self.assembled(given):
                    continue
                move = Item("update", op, result.type.axes, (), result, given, target=holder, name=result)
                move.reads, move.skewed = self.roots([given])
                moves.append(move)
            self.lower_block(block, inner, moves)
        frame.body.append(stmt)
        for result, holder in zip(op.results, holders, strict=True):
            self.settle(result, holder, frame)

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

    # ---- packed operands

    def emit_pack(self, pack: Pack, frame: Frame) -> None:
        """Copies an operand into panels, where the first contraction that reads it stands."""
        value = self.uses.of_value[pack.value]
        dtype = self.packed_dtype(pack)
        place = self.allocate(value, frame, pack.layout, dtype)
        self.version(value, place, frame)
        before, self.rank = self.rank, {name: i + 1 for i, (name, _) in enumerate(pack.slots)}
        widths = dict(pack.slots)
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        order = {name: i for i, (name, kind, _) in enumerate(pack.layout) if kind != "lane"}
        keys = sorted(self.free(value.type.axes, frame), key=lambda k: order.get(k[0].name, 0))
        for key in keys:
            loop, inner = self.over(key, widths.get(key[0].name, 1), inner)
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
        frame.places[wide(value.name)] = place


def realise(program: Program, choices: Choices, guard: Guard, target: str, uses: Uses | None = None) -> MachineProgram:
    """The machine program of a plan, with its witness.

    *Ensures*: every statement that makes elements of a source value claims them; every loop or task nest over a source
    region enters its instances.

    *Errors*: `realise/unsupported` for an operation without a rule.
    """
    engine = Lowering(program, choices, uses or Uses(program))
    top = Frame([], block=program.body)
    engine.lower_block(program.body, top)
    role = Role("worker", agents=1, threads=1, body=top.body)
    kernel = Kernel("main", [role], engine.parts.frags, engine.parts.buffers)
    host = Host(dict(program.lets), engine.parts.workspace, [], [Launch("main", grid=const(1))])
    return MachineProgram(target, program, guard, host, [kernel], choices.numerics)
