"""Steps on tiles of the program: a value of instances made by a region of its own and kept; a tile that is a copy.

Between a region that fills a tile and one that reads it anything may stand: on a GPU the end of a launch, so cutting a
program into launches is keeping the right values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import ZERO, const
from treadle.analysis.uses import expressions, flat_subs
from treadle.ir.clone import Cloner
from treadle.ir.core import AxisSub, Block, Op, Program, Region, RegionArg, Sub, TileType, Value
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.elementwise import Full
from treadle.ir.rewrite import has_effect, operand_names
from treadle.plan.steps import Step
from treadle.rules.accesses import stored_in
from treadle.rules.draft import Draft, named, reads
from treadle.rules.refusals import FormUnsupported, Overwritten


def materialise(
    program: Program, value: str, disjoint: list[list[str]] | None = None, rank: int | None = None
) -> tuple[Program, Step]:
    """A value of an instance of nested regions, the outermost parallel, made once, by a region of its own in front of
    them, and kept in a tile that the instances read: what `recompute` undoes.

    The new region has those arguments of theirs on which the value hangs, and goes over all of a dimension where they
    go over a range of it: elements beside the range, which nothing reads, are computed too, so what is loaded at
    computed places is 0 outside of its tensor. The tile has at most `rank` axes where that is asked for: those of
    single coordinates are one then, of a new dimension that is their product, fixed extents last.

    *Errors*: `rules/form` where it hangs on what only an instance knows, has no axis along a block of it, or more axes;
    `rules/overwritten` where its sources are stored to.
    """
    d = Draft(program, "materialise", {"value": value} if rank is None else {"value": value, "rank": rank})
    idle = d.idle()
    op, kept, chain = _kept(d, value, idle)
    block, place = d.home(op)
    wanted = list(needed(block, kept))
    _sources(d, block, wanted, kept)
    front = _Front(d, op, kept)
    used = _symbols(wanted, kept)
    wider = False
    for arg in [a for r in chain for a in r.args if used & {a.name, f"{a.name}.start", f"{a.name}.stop"}]:
        if front.takes(arg):  # elements beside a range are computed too
            wider, wanted = True, [y for x in wanted for y in _inside(d, x)]
    _promises(d, wanted, wider or len(front.args) < sum(len(r.args) for r in chain), op)
    blank, region, read = front.made(wanted, chain[0].name, rank)
    block.ops[place] = read
    outer, at = d.home(chain[0])
    outer.ops[at:at] = [blank, region]
    while d.drop(idle):  # what was idle before is none of this step
        pass
    return d.finish()


def _promises(d: Draft, wanted: list[Op], more: bool, op: Op) -> None:
    """What an access promises holds in the instances that the source has, of which there may be none where the new
    region has some (`more`). *Errors*: `rules/form`."""
    for x in Block(wanted).walk() if more else ():
        if isinstance(x, Load | Extract | Insert) and any(s.promised for s in flat_subs(x.subs)):
            raise d.no(
                FormUnsupported,
                f"{named(x)} of {x.results[0]} is promised to be inside only where an instance reads it",
                "a promise for each instance of the region that would keep the value",
                "give the access a fill instead of a promise",
                op,
            )


def _kept(d: Draft, value: str, idle: set[str]) -> tuple[Op, Value, list[Region]]:
    """The operation that makes the value, the value, and the regions around, the outermost parallel."""
    op = d.definition(value)
    kept = next((v for v in op.results if v.name == value), None)
    chain = around(d.program.body, d.home(op)[0])
    if kept is None or len(op.results) != 1 or not chain or chain[0].kind != "parallel":
        raise d.no(
            FormUnsupported, f"{value} is no value of a parallel region", "the only result there", "name one", op
        )
    if value in idle:
        raise d.no(FormUnsupported, f"nothing needs {value}", "a value that is read", "leave it", op)
    if isinstance(op, Full) and op.number is None:
        raise d.no(FormUnsupported, f"{value} has no elements yet", "a value that is computed", "leave it", op)
    return op, kept, chain


class _Front:
    """A region in front of others that makes a value of theirs: its arguments, and the tile that it fills."""

    def __init__(self, d: Draft, op: Op, kept: Value) -> None:
        self.d, self.op, self.kept = d, op, kept
        self.cloner = Cloner(lambda v: d.fresh(v.type, v.hint), d.symbols)
        self.args: list[RegionArg] = []
        self.blocks: dict[Part, RegionArg] = {}
        """The new argument, by the part that the one it stands for gives."""
        self.axes: list[Part] = []
        self.subs: list[AxisSub] = []
        self.puts: list[AxisSub] = []

    def takes(self, arg: RegionArg) -> bool:
        """An argument of the region in the place of one that the value hangs on; whether it goes further than that."""
        new = replace(arg, name=self.d.symbols.fresh(arg.name), reversed=False)
        whole = (arg.domain.lo, arg.domain.hi) == (ZERO, arg.domain.dim.extent)
        if (not whole and arg.kind == "each") or arg.size is not None:
            raise self.no(f"{arg.name} over {arg.domain}", "a whole dimension", "cut it elsewhere")
        new = replace(new, domain=arg.domain.dim.whole())
        self.args.append(new)
        if arg.kind == "each":
            self.axes.append(new.domain)
            self.subs.append(Sub(index=arg.index))
            self.puts.append(Sub(index=new.index))
            self.cloner.symbols[arg.name] = new.index
            return False
        self.cloner.symbols |= {f"{arg.name}.start": new.part.lo, f"{arg.name}.stop": new.part.hi}
        if arg.part not in self.kept.type.axes:
            raise self.no(
                f"{self.kept.name} has no axis along the blocks of {arg.name}",
                "an element for each coordinate",
                "compute it again instead",
            )
        self.blocks[arg.part] = new
        return not whole

    def made(self, ops: Sequence[Op], stem: str, rank: int | None) -> tuple[Full, Region, Extract]:
        """The tile before it is filled, the region that does, and what reads the value of an instance."""
        d, kept = self.d, self.kept
        tile = self._tile(rank)
        blank = Full(number=None, results=[d.fresh(tile, kept.hint)])
        made = [self.cloner.op(x) for x in ops]
        for x in Block(made).walk():
            if isinstance(x, Region) and not x.name:
                x.name = d.regions.fresh(stem)
        own, whole, put = (d.fresh(tile, kept.hint) for _ in range(3))
        insert = Insert(source=own, subs=tuple(self.puts), value=self.cloner.value(kept), results=[put])
        region = Region(
            kind="parallel",
            args=self.args,
            inits=[blank.result],
            carried=[own],
            body=Block([*made, insert], [put]),
            results=[whole],
            name=d.regions.fresh(f"{stem}_{re.sub(r'[^A-Za-z0-9_]', '_', kept.hint or 'kept')}"),
            span=self.op.span,
        )
        return blank, region, Extract(source=whole, subs=tuple(self.subs), results=[kept], span=self.op.span)

    def _tile(self, rank: int | None) -> TileType:
        """The type of the tile: an axis for each argument, and those of the value; no more than `rank`."""
        singles = len(self.axes)
        for axis in self.kept.type.axes:
            arg = self.blocks.get(axis)
            self.axes.append(axis if arg is None else arg.domain)
            self.subs.append(Sub(part=axis))
            self.puts.append(Sub(part=axis if arg is None else arg.part))
        if len({a.dim for a in self.axes}) < len(self.axes):
            raise self.no(f"two axes of {self.kept.name} along one dimension", "one axis each", "alias")
        known = {s for d in self.d.program.dims for s in d.extent.symbols} | {s.name for s in self.d.program.scalars}
        for axis in self.axes:
            if any(e.functions or e.symbols - known for e in (axis.lo, axis.hi)):
                raise self.no(
                    f"how long {self.kept.name} is along {axis} is known in an instance",
                    "axes that are known in front of all regions",
                    "keep a value that is known whole",
                )
        if rank is not None and len(self.axes) > rank:
            self._join(singles, len(self.axes) - rank + 1)
        return TileType(self.kept.type.dtype, tuple(self.axes))

    def _join(self, singles: int, count: int) -> None:
        """Makes `count` of the first `singles` axes one: of fixed extents where there are enough, so that positions
        along it are linear."""
        if count > singles:
            raise self.no(f"{self.kept.name} needs a tile of more axes", "more axes of single coordinates", "keep less")
        order = sorted(range(singles), key=lambda i: self.axes[i].dim.extent.constant is not None)
        kept, last = order[: singles - count], order[singles - count :]
        joined = _product(self.d, [self.axes[i].dim for i in last])
        self.axes[:singles] = [*(self.axes[i] for i in kept), joined.whole()]
        for one in (self.subs, self.puts):
            one[:singles] = [*(one[i] for i in kept), tuple(s for i in last if isinstance(s := one[i], Sub))]

    def no(self, found: str, expected: str, hint: str) -> Exception:
        """A refusal."""
        return self.d.no(FormUnsupported, found, expected, hint, self.op)


def _product(d: Draft, factors: list[Dim]) -> Dim:
    """A new dimension of the program, the product of others."""
    name, taken = "_".join(f.name for f in factors), {x.name for x in d.program.dims}
    while name in taken or name in d.program.lets:
        name += "_"
    made = Dim(name, prod((f.extent for f in factors), start=const(1)), factors=tuple(factors))
    d.program.dims.append(made)
    return made


def _inside(d: Draft, op: Op) -> list[Op]:
    """An operation where what is computed may be anything: a load at computed places is 0 outside of its tensor."""
    if not isinstance(op, Load) or op.fill is not None or not any(s.tile is not None for s in flat_subs(op.subs)):
        return [op]
    zero = Full(number=0.0 if op.tensor.dtype.is_float else 0, results=[d.fresh(TileType(op.tensor.dtype, ()), "zero")])
    subs = tuple(
        replace(s, promised=False) if isinstance(s, Sub) else tuple(replace(f, promised=False) for f in s)
        for s in op.subs
    )
    return [zero, replace(op, subs=subs, fill=zero.result)]


def around(body: Block, block: Block) -> list[Region]:
    """The regions around a block, outermost first; none where something else is around it."""
    for op in body.ops:
        for inner in op.blocks:
            if inner is block:
                return [op] if isinstance(op, Region) else []
            found = around(inner, block)
            if found:
                return [op, *found] if isinstance(op, Region) else []
    return []


def _sources(d: Draft, block: Block, wanted: list[Op], kept: Value) -> None:
    """What a slice of a block is computed from is known outside of all regions, or in the slice."""
    inside = {v.name for op in Block(wanted).walk() for v in (*op.results, *op.parameters)}
    outside = {v.name for op in d.program.body.ops for v in op.results} | {s.value.name for s in d.program.scalars}
    stored = stored_in(d.program.body.ops)
    for op in Block(wanted).walk():
        missing = reads(op) - inside - outside
        if missing or has_effect(op):
            raise d.no(
                FormUnsupported,
                f"{kept} needs {', '.join(sorted(missing)) or named(op)} of the regions around",
                "a value computed from tensors alone",
                "compute that again in its block first (recompute into=)",
                op,
            )
        if isinstance(op, Load) and op.tensor.name in stored:
            raise d.no(Overwritten, f"{op.tensor} is stored to", "sources that keep their elements", "leave it", op)
        if isinstance(op, Load):
            assume(d, [(op.tensor.name, t) for t in stored])


def _symbols(ops: list[Op], value: Value) -> set[str]:
    """Symbols that operations and everything in them mention."""
    exprs = [e for op in Block(ops).walk() for e in expressions(op)]
    exprs += [e for a in value.type.axes for e in (a.lo, a.hi)]
    return {s for e in exprs for s in e.symbols}


def needed(body: Block, value: Value) -> Iterator[Op]:
    """The operations of a body that a value needs, in order."""
    wanted = {value.name}
    for op in reversed(body.ops):
        if any(v.name in wanted for v in op.results):
            wanted |= operand_names(op)
            for inner in op.blocks:
                for x in inner.walk():
                    wanted |= operand_names(x)
                wanted |= {v.name for v in inner.yields}
    for op in body.ops:
        if any(v.name in wanted for v in op.results):
            yield op


def assume(d: Draft, pairs: Sequence[tuple[str, str]]) -> None:
    """Records that tensors must be apart, beside those that must be so far."""
    known = d.args.get("disjoint")
    before = known if isinstance(known, list) else []
    unlike = {tuple(sorted(p)) for p in (*before, *pairs) if p[0] != p[1]}
    if unlike:
        d.args["disjoint"] = [list(p) for p in sorted(unlike)]


# ---- a tile that is a copy


def aliased(d: Draft, copies: Region) -> None:
    """An extract of the tile that a region copies, in the place of the region."""
    read, put = (*copies.body.ops, None, None)[:2]
    blank = d.program.definitions().get(copies.inits[0].name) if copies.inits else None
    if (
        not (isinstance(read, Extract) and read.fill is None and isinstance(put, Insert) and put.value is read.result)
        or len(copies.body.ops) > 2
        or copies.kind != "parallel"
        or put.source is not copies.carried[0]
        or not (isinstance(blank, Full) and blank.number is None)
    ):
        raise d.no(
            FormUnsupported,
            f"{copies.name} does not just copy elements of one tile to another",
            "an extract and an update an instance, of a tile that holds nothing before",
            "name a load or extract",
            copies,
        )
    left = {a.name: a for a in copies.args}
    whole: dict[str, Sub] = {}
    for sub, axis in zip(put.subs, copies.results[0].type.axes, strict=True):
        if isinstance(sub, Sub) and sub.part == axis:
            continue
        arg = next((a for a in left.values() if isinstance(sub, Sub) and _fills(a, sub, axis)), None)
        if arg is None:
            raise _untold(d, copies, axis.dim.name)
        whole[left.pop(arg.name).name] = Sub(part=axis)
    subs: list[Sub] = []
    for sub in read.subs:
        arg = next((a for a in copies.args if isinstance(sub, Sub) and _fills(a, sub, a.domain)), None)
        own = {s for a in copies.args for s in (a.name, f"{a.name}.start", f"{a.name}.stop")}
        if not isinstance(sub, Sub) or (arg is None and _mentions(sub, own)):
            raise _untold(d, copies, str(sub))
        subs.append(sub if arg is None else whole.pop(arg.name))
    kind = TileType(read.source.type.dtype, tuple(s.part for s in subs if s.part is not None))
    if left or whole or kind != copies.results[0].type:
        raise d.no(FormUnsupported, f"a copy of {kind}", f"{copies.results[0].type}", "axes in one order", copies)
    block, place = d.home(copies)
    block.ops[place] = Extract(source=read.source, subs=tuple(subs), results=copies.results, span=copies.span)


def _fills(arg: RegionArg, sub: Sub, axis: Part) -> bool:
    """Whether a subscript is an argument, over the whole of an axis."""
    mine = (arg.kind == "block" and sub.part == arg.part) or (arg.kind == "each" and sub.index == arg.index)
    return mine and (arg.domain.lo, arg.domain.hi) == (axis.lo, axis.hi) and arg.size is None


def _mentions(sub: Sub, symbols: set[str]) -> bool:
    exprs = [e for e in (sub.index, *((sub.part.lo, sub.part.hi) if sub.part is not None else ())) if e is not None]
    return sub.tile is not None or any(e.symbols & symbols or e.functions for e in exprs)


def _untold(d: Draft, copies: Region, name: str) -> Exception:
    return d.no(
        FormUnsupported,
        f"which instance of {copies.name} copies an element along {name} is not a matter of parts and indices",
        "a tile filled by arguments over whole axes, from their own parts or indices",
        "keep the copy",
        copies,
    )
