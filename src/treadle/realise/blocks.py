"""Blocks: the items of a block and their groups, nested regions and ifs, carried values, packed operands.

`realise` is the one entry: a program and `Choices` in, a machine program with its witness out.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.expr import Expr, ceildiv, const, maximum, minimum, sym
from treadle.analysis.uses import PURE, Uses
from treadle.ir.core import Block, If, Op, Program, Region, RegionArg, Value
from treadle.ir.guard import Guard
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Coords, Full, Index
from treadle.ir.ops.fold import ArgReduce, Mma
from treadle.machine import form
from treadle.machine.form import Enter, Host, Kernel, Launch, MachineProgram, Role
from treadle.realise.bands import Reach
from treadle.realise.carried import Carried, Holder
from treadle.realise.choices import Choices
from treadle.realise.frame import Frame, Kept, ends, reached
from treadle.realise.items import Item, item_of
from treadle.realise.keeping import clashes, gathered

HEAVY = 8
"""A value at least this costly, read in several places, is kept (*Units*: `Uses.weight`)."""


class Lowering(Carried):
    """The lowering engine, last part: control."""

    def __init__(self, program: Program, choices: Choices, uses: Uses) -> None:
        super().__init__(program, choices, uses)
        self.region_names: dict[int, str] = {}
        for op in program.body.walk():
            if isinstance(op, Region):
                self.region_names[id(op)] = op.name or f"R{len(self.region_names)}"
        self.rank = {name: i + 1 for i, name in enumerate(choices.vector)}
        self.tile_names = {}
        self.leading = ""
        self.shares = {}
        self.made_again = {}
        self.banded = {b.region for b in choices.bands}
        self.keeping = self.chosen_to_keep()

    # ---- which values are kept

    def chosen_to_keep(self) -> set[str]:
        """Pure values that are stored once: unstable loads, sources of filled extracts, what the plan names, and heavy
        values that several places read."""
        kept: set[str] = set(self.choices.keep) | {p.value for p in self.choices.laid_out}
        for op in self.program.body.walk():
            if isinstance(op, Extract) and op.fill is not None:
                kept.add(op.source.name)
        weights: dict[str, int] = {}  # what becomes kept does so before anything that reads it is met
        ends: dict[str, tuple[Op, ...]] = {}
        for op in self.program.body.walk():
            if not isinstance(op, PURE) or isinstance(op, Full | Coords | Index) or not op.results:
                continue
            value = op.result
            if isinstance(op, Load) and not self.uses.stable(op):
                kept.add(value.name)
            elif isinstance(op, Load) and self.choices.snapshots and self.uses.stored:
                kept.add(value.name)
            elif self.uses.weight(value, kept, weights) >= HEAVY and self.read_again(value, ends):
                kept.add(value.name)
        kept |= gathered(self.program, self.uses, kept)
        kept |= {
            op.value.name for op in self.program.body.walk() if isinstance(op, Insert) and clashes(op, self.uses, kept)
        }
        return {n for n in kept if isinstance(self.uses.definition.get(n), PURE)}

    def read_again(self, value: Value, ends: dict[str, tuple[Op, ...]]) -> bool:
        """Whether several places read a value, or one inside a region that it is not defined in. `ends`: of each value,
        places that read it or what is computed from it, two at most."""
        todo = [value]
        while todo:  # chains are longer than Python's stack
            one = todo[-1]
            users = self.uses.users.get(one.name, [])
            inner = [u.result for u in users if isinstance(u, PURE) and u.results]
            left = [v for v in inner if v.name not in ends]
            if left:
                todo += left
                continue
            todo.pop()
            found = {id(u): u for u in users if not isinstance(u, PURE)}
            found |= {id(u): u for v in inner for u in ends[v.name]}
            ends[one.name] = tuple(found.values())[:2]
        home = self.uses.home[id(self.uses.definition[value.name])]
        return len(ends[value.name]) > 1 or any(self.uses.home[id(u)] is not home for u in ends[value.name])

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
                if isinstance(op, Insert) and self.uses.overwritten(op):
                    continue
                made = item_of(op)
                if made is None:
                    raise self.unsupported(op, f"an operation {type(op).__name__}")
                item = made
                if item.kind == "store" and item.makes is not None and not self.uses.users.get(item.makes.name):
                    item.makes = None
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
            if isinstance(group[0].op, Region) and self.region_names[id(group[0].op)] in self.banded:
                continue  # made by the instances of the region that reads it
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
        if any(v.name in self.choices.alone for i in (*group, item) for v in i.products):
            return False
        made = {v.name for i in group for v in i.products}
        if made & item.skewed or any(self.touched(i) & self.touched(item) for i in group):
            return False
        if item.kind == "insert" and isinstance(item.op, Insert):
            if any(item.op.source.name in i.skewed for i in group):
                return False
        mine, theirs = self.contracts([item]), self.contracts(group)
        if any(self.in_tiles(i.op) for i in group):
            return False
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
        if any(i.kind == "scan" for i in (*group, item)):
            # Each prefix is there only where its tile is.
            keys = {frozenset(self.free((*i.outer, *i.inner), frame)) for i in (*group, item)}
            return len(keys) == 1
        return not any(self.free((*i.outer, *i.inner), frame) for i in (*group, item))

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
        stop = start + 1 if bound == 1 else minimum(start + size, reached(lo, hi))
        frame.bind(f"{arg.name}.start", start)
        frame.bind(f"{arg.name}.stop", stop)
        frame.bounds[arg.name] = bound
        return arg.name, (start, stop)

    def tiles(self, op: Region, arg: RegionArg, frame: Frame) -> Expr:
        """How many instances an argument has."""
        lo, hi = self.index(arg.domain.lo, frame), self.index(arg.domain.hi, frame)
        return hi - lo if arg.kind == "each" else self.parts.tiles(lo, hi, self.cut(op, arg, frame)[0])

    def enter_loop(self, op: Region, arg: RegionArg, frame: Frame) -> tuple[form.Loop, Frame]:
        """A loop over the blocks or coordinates of one argument."""
        name = self.region_names[id(op)]
        var = self.parts.fresh(f"{arg.name}0" if arg.kind == "block" else f"{arg.name}_i")
        lo, hi = self.index(arg.domain.lo, frame), self.index(arg.domain.hi, frame)
        divided = self.wrapped(op) or self.divided(arg)
        counted = arg.reversed or (divided and arg.kind == "block" and self.cut(op, arg, frame)[1] != 1)
        if counted:
            # Counting blocks keeps their starts multiples of the size, which packed layouts divide by.
            loop = form.Loop(var=var, lo=const(0), hi=self.tiles(op, arg, frame), step=const(1), origin=self.line(op))
        else:
            step = const(1) if arg.kind == "each" else self.cut(op, arg, frame)[0]
            loop = form.Loop(var=var, lo=lo, hi=hi, step=step, origin=self.line(op))
        inner = frame.child(loop.body)
        inner.symbols.add(var)
        where = (sym(var), None) if counted else (None, sym(var))
        loop.enters = (Enter(name, (self.bind_arg(op, arg, *where, inner),)),)
        return loop, inner

    def divided(self, arg: RegionArg) -> bool:
        """Whether an operand packed for all instances has panels along an argument's dimension."""
        name = arg.domain.dim.name
        return any(not p.level and any(d[0] == name and d[1] != "all" for d in p.layout) for p in self.choices.packs)

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
            self.make_bands(name, inner)
            self.body(op, places, inner)
            tasks.body[:] = configured(self.choices, tasks.body)
            frame.body.append(tasks)
        else:
            inner = frame
            for arg in op.args:
                loop, inner = self.enter_loop(op, arg, inner)
                loops.append((loop, inner))
            inner.block = op.body
            self.make_bands(name, inner)
            self.body(op, places, inner)
            self.close(loops)
        for result, place in zip(op.results, places, strict=True):
            frame.places[result.name] = place

    def make_bands(self, name: str, frame: Frame) -> None:
        """What an instance of a region needs of tiles that earlier regions make, in storage of its own."""
        for band in (b for b in self.choices.bands if b.into == name):
            region = next(r for r in self.program.body.ops if self.region_names.get(id(r)) == band.region)
            assert isinstance(region, Region)
            inner = frame.child(frame.body, block=region.body)
            for arg in region.args:
                self.bind_band(arg, band.reach[arg.name], inner)
            own = {a.domain.dim: a.part for a in region.args}
            for carried, given, result in zip(region.carried, region.body.yields, region.results, strict=True):
                self.made_again[given.name] = result
                parts = tuple(own[p.dim] for p in carried.type.axes)
                place = self.allocate(carried, inner, own=parts)
                self.version(result, place, inner)
                inner.places[carried.name] = frame.places[result.name] = place
            self.lower_block(region.body, inner)

    def bind_band(self, arg: RegionArg, reach: Reach | None, frame: Frame) -> None:
        """Binds an argument of a region to what an instance of another needs of it."""
        lo, hi = self.index(arg.domain.lo, frame), self.index(arg.domain.hi, frame)
        if reach is None:
            frame.bind(f"{arg.name}.start", lo)
            frame.bind(f"{arg.name}.stop", hi)
            frame.bounds[arg.name] = (hi - lo).constant
            return
        start, stop = self.index(sym(f"{reach.arg}.start"), frame), self.index(sym(f"{reach.arg}.stop"), frame)
        frame.bind(f"{arg.name}.start", maximum(lo, start + reach.first))
        frame.bind(f"{arg.name}.stop", minimum(hi, *(b + reach.last for b in ends(stop))))
        bound = frame.bound(reach.arg)
        size = None if bound is None else const(bound) + reach.last - reach.first
        frame.bounds[arg.name] = None if size is None else size.constant
        if size is not None:
            # Whole fragments, so that each row begins where a line of memory does.
            width = self.choices.sweep.get(arg.domain.dim.name, 1)
            frame.bounds[arg.name] = None if size.constant is None else -(-size.constant // width) * width
            frame.rooms[arg.name] = ceildiv(size, width) * width

    def body(self, op: Region, places: list[Kept], frame: Frame) -> None:
        """The body of an instance of a parallel region."""
        for carried, place in zip(op.carried, places, strict=True):
            frame.places[carried.name] = place
        self.lower_block(op.body, frame)
        for given, place in zip(op.body.yields, places, strict=True):
            held = frame.kept(given.name)
            if held is not None and held[0].axes and held[0].buffer != place.buffer:
                # A region of the instance worked on the instance's own part of the tile.
                self.move(given, given, place, False, frame)

    def at_blocks(self, op: Region, frame: Frame) -> None:
        """Fixes what an instance's blocks are held in, where an engine holds them whole."""

    def lower_ordered(self, op: Region, frame: Frame) -> None:
        """Serial, pipeline and reduce regions: loops in order, carried values in holders."""
        holders = [self.holder(c, i, op, frame) for c, i in zip(op.carried, op.inits, strict=True)]
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
        self.at_blocks(op, inner)
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


def configured(choices: Choices, body: form.Body) -> form.Body:
    """What one thread executes, with the processor's tiles ready where an atom uses them."""
    if not any(atom.startswith("amx") for atom in choices.atoms.values()):
        return body
    return [form.Sync(kind="amx.config"), *body, form.Sync(kind="amx.release")]


def realise(program: Program, choices: Choices, guard: Guard, target: str, uses: Uses | None = None) -> MachineProgram:
    """The machine program of a plan, with its witness.

    *Ensures*: every statement that makes elements of a source value claims them; every loop or task nest over a source
    region enters its instances.

    *Errors*: `realise/unsupported` for an operation without a rule.
    """
    engine = Lowering(program, choices, uses or Uses(program))
    top = Frame([], block=program.body)
    engine.lower_block(program.body, top)
    # A thread configures its tiles once: each worker in its task, or the only one at the start.
    alone = not any(isinstance(s, form.Tasks) for s in form.walk(top.body))
    role = Role("worker", agents=1, threads=1, body=configured(choices, top.body) if alone else top.body)
    kernel = Kernel("main", [role], engine.parts.frags, engine.parts.buffers)
    host = Host(dict(program.lets), engine.parts.workspace, [], [Launch("main", grid=const(1))])
    return MachineProgram(target, program, guard, host, [kernel], choices.numerics)
