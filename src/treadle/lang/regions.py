"""Capturing a region: its arguments, what it carries, and the rules of its kind.

Which names a region carries is found by capturing its body: names that the text assigns are carried from the start;
whatever else turns out to differ at the end of the body is added and the body captured again. A Python number enters
as itself until its update shows the type to carry.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle.base.source import Span
from treadle.dtype import promote as rules
from treadle.ir.core import Block, If, Merge, Op, Region, RegionArg, TileType, Value
from treadle.ir.ops.access import Insert
from treadle.lang import merging, pointwise
from treadle.lang.context import Context
from treadle.lang.errors import (
    CarriedKind,
    CarriedType,
    Gone,
    NotAnUpdate,
    ObservedBlock,
    ParallelAssign,
    StateShape,
)
from treadle.lang.frames import (
    Frame,
    GoneName,
    Nest,
    Path,
    Snapshot,
    containers,
    copied,
    frame_leaves,
    is_container,
    mapped,
    path_hint,
    path_text,
    with_leaf,
)
from treadle.lang.merge_capture import capture
from treadle.lang.monoids import leaf_text
from treadle.lang.objects import plain_number
from treadle.lang.region_args import RegionArguments
from treadle.lang.source import assigned_names
from treadle.lang.specs import RegionSpec
from treadle.lang.states import Group, check_states
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.statements import Statements

MAX_TRIES = 12


@dataclass
class Attempt:
    """One capture of a region's body."""

    region: Region
    paths: list[Path]
    finals: dict[str, Any]


class RegionCapture:
    """Captures one `for` over a region."""

    def __init__(self, interp: Statements, frame: Frame, node: ast.For, spec: RegionSpec) -> None:
        self.interp = interp
        self.ctx: Context = interp.ctx
        self.frame = frame
        self.node = node
        self.spec = spec
        self.span = self.ctx.span
        self.reader = RegionArguments(self.ctx, node, spec)
        self.args, self.binders = self.reader.arguments()
        self.target_names = set(assigned_names([_target_only(node)])[0])
        self.before = Snapshot(frame)
        self.old = frame_leaves(self.before.locals)
        self.types: dict[Path, TileType | None] = {}

    # ---- the loop of attempts

    def run(self) -> None:
        """Captures the body until what it carries is settled, and binds the results."""
        self.types = self.guess()
        start = self.ctx.checkpoint()
        for _ in range(MAX_TRIES):
            attempt = self.attempt()
            if self.settled(attempt):
                self.finish(attempt)
                return
            self.before.restore()
            self.ctx.rollback(start)
        raise CarriedType(
            doing=f"capturing td.{self.spec.kind}",
            found="carried names whose dtype or dimensions change with every iteration",
            expected="names that keep them",
            hint="give the name its final dtype and dimensions before the region",
            span=self.span,
        )

    def guess(self) -> dict[Path, TileType | None]:
        """Leaves that the text of the body assigns, with the types of those that are tiles."""
        whole, partly = assigned_names(self.node.body)
        names = partly if self.spec.kind == "parallel" else [*whole, *partly]
        found: dict[Path, TileType | None] = {}
        for path, leaf in self.old.items():
            if path[0] not in names or path[0] in self.target_names:
                continue
            if isinstance(leaf, Tile):
                found[path] = leaf.type
            elif merging.is_number(leaf) and self.spec.kind != "parallel":
                found[path] = None
        return found

    def attempt(self) -> Attempt:
        ctx, frame = self.ctx, self.frame
        ctx.builder.span = self.span
        paths = [p for p, t in self.types.items() if t is not None]
        inits = [self.initial(p) for p in paths]
        region = Region(
            kind=self.spec.kind,
            args=self.args,
            inits=inits,
            carried=[ctx.builder.value(v.type, path_hint(p)) for p, v in zip(paths, inits)],
            order=self.spec.order,
            name=self.spec.name,
            scope=self.spec.scope,
            versions=self.spec.versions,
            span=self.span,
        )
        body = region.body
        for path, value in zip(paths, region.carried):
            carried = Tile(value.type, body, value=value)
            frame.locals[path[0]] = with_leaf(frame.locals[path[0]], path[1:], carried)
        for arg in self.args:
            if self.opens(arg):
                ctx.open_parts[arg.part] = arg.name
        frame.nest.append(self.nest())
        ctx.regions.append(region)
        try:
            with ctx.scope(body, [f for a in self.args for f in self.reader.facts(a)]):
                bound = [b(body) for b in self.binders]
                self.bind(bound)
                self.interp.block(frame, self.node.body)
                self.interp.trail.step(frame, self.node)
        finally:
            frame.nest.pop()
            ctx.regions.pop()
        return Attempt(region, paths, dict(frame.locals))

    def nest(self) -> Nest:
        existing = {n for n, v in self.before.locals.items() if not isinstance(v, GoneName)} - self.target_names
        return Nest(self.spec.kind, existing, containers(self.before.locals))

    def opens(self, arg: RegionArg) -> bool:
        """Whether the block is one whose open size nothing may observe."""
        if self.spec.kind != "parallel" or arg.kind != "block":
            return False
        return arg.size is None or arg.domain in self.ctx.open_parts

    def bind(self, bound: list[Any]) -> None:
        value = (
            bound[0] if len(bound) == 1 and not isinstance(self.node.target, (ast.Tuple, ast.List)) else tuple(bound)
        )
        self.interp.assign(self.frame, self.node.target, value)

    def initial(self, path: Path) -> Value:
        type = self.types[path]
        assert type is not None
        entry = self.old[path]
        value = merging.conform(self.ctx, entry, type)
        if value is None:
            name = path_text(path)
            raise CarriedType(
                doing=f"carrying {name} through td.{self.spec.kind}",
                found=f"{name} enters the region as {merging.describe(entry)}, and an iteration leaves {type}",
                expected="the same dtype and dimensions",
                hint="start from a tile of the final dtype and dimensions: td.zeros(..., dtype=...)",
                span=self.written(path),
                notes=[(self.span, "the region")],
            )
        return value

    # ---- after an attempt

    def settled(self, attempt: Attempt) -> bool:
        """Whether the guess was right; else it is improved."""
        after = frame_leaves({n: v for n, v in attempt.finals.items() if n in self.before.locals})
        carried = dict(zip(attempt.paths, attempt.region.carried))
        good = True
        for path, entry in self.old.items():
            if path[0] in self.target_names or isinstance(entry, GoneName):
                continue
            if path not in after:
                if self.path_gone(attempt, path):
                    continue
                raise self.wrong_kind(path, entry, attempt.finals.get(path[0]))
            new = after[path]
            if path in carried:
                good = self.keeps_type(path, carried[path], entry, new) and good
            elif not merging.same_leaf(entry, new):
                self.add(path, entry, new)
                good = False
            elif path in self.types:
                del self.types[path]
        added = [p for p in after if p not in self.old and self.follows(p[0])]
        if added:
            raise self.wrong_kind(added[0], self.before.locals[added[0][0]], attempt.finals[added[0][0]])
        return good

    def follows(self, name: str) -> bool:
        """Whether a name that had a value before the region must keep its structure."""
        return name not in self.target_names and not isinstance(self.before.locals[name], GoneName)

    def path_gone(self, attempt: Attempt, path: Path) -> bool:
        return isinstance(attempt.finals.get(path[0]), GoneName) and path[0] in self.target_names

    def keeps_type(self, path: Path, carried: Value, entry: Any, new: Any) -> bool:
        if isinstance(new, Tile) and new.known_value is carried:
            del self.types[path]
            return False
        type = self.types[path]
        assert type is not None
        if isinstance(new, Tile):
            fits = new.dtype == type.dtype or pointwise.fits_weakly(new, type.dtype)
            if fits and set(new.type.axes) == set(type.axes):
                return True
            if merging.is_number(entry):
                self.types[path] = new.type
                return False
        elif merging.is_number(new):
            if _holds(type, new):
                return True
            if merging.is_number(entry):
                self.types[path] = TileType(rules.weak_alone(plain_number(new)), type.axes)
                return False
        else:
            raise self.wrong_kind(path, entry, new)
        found = str(new.type) if isinstance(new, Tile) else repr(new)
        raise CarriedType(
            doing=f"carrying {path_text(path)} through td.{self.spec.kind}",
            found=f"{path_text(path)} enters an iteration as {type} and leaves it as {found}",
            expected="the same dtype and dimensions",
            hint=self.block_hint(new) or type_hint(type, new),
            span=self.written(path),
            notes=[(self.span, "the region")],
        )

    def block_hint(self, new: Any) -> str | None:
        """What to write where an update lies along a block of this region: a newcomer takes it for a single index."""
        axes = new.type.axes if isinstance(new, Tile) else ()
        for arg in self.args:
            if arg.kind == "block" and any(f"{arg.name}.start" in p.lo.symbols for p in axes):
                name, dim = arg.source or arg.name, arg.domain.dim
                return f"{name} is a block: take single indices, {dim}.each, or fold over it, x.sum({name})"
        return None

    def add(self, path: Path, entry: Any, new: Any) -> None:
        """A leaf that the body changed is carried from now on."""
        if isinstance(entry, Tile):
            self.types[path] = entry.type
        elif merging.is_number(entry) and isinstance(new, Tile):
            self.types[path] = new.type
        elif merging.is_number(entry) and merging.is_number(new):
            self.types[path] = TileType(rules.weak_alone(plain_number(new)))
        else:
            raise self.wrong_kind(path, entry, new)
        if self.spec.kind == "parallel" and not isinstance(entry, Tile):
            raise self.parallel_assign(path)

    def wrong_kind(self, path: Path, entry: Any, new: Any) -> CarriedKind:
        found = f"{merging.describe(entry)} before and {merging.describe(new)} after an iteration"
        if is_container(entry) or is_container(new):
            kind = type(entry if is_container(entry) else new).__name__
            found = f"a {kind} whose entries change in number or kind in an iteration"
        return CarriedKind(
            doing=f"carrying {path_text(path)} through td.{self.spec.kind}",
            found=found,
            expected="tiles, numbers, or lists, tuples and dataclasses of them that keep their structure",
            hint="use another name inside the region, or start from a tile or number",
            span=self.written(path),
            notes=[(self.span, "the region")],
        )

    def written(self, path: Path) -> Span | None:
        """Where the body assigned the name last; the region where it did not."""
        found = self.frame.written.get(str(path[0]))
        inside = found is not None and self.span is not None and found.line >= self.span.line
        return found if inside else self.span

    def parallel_assign(self, path: Path) -> ParallelAssign:
        return ParallelAssign(
            doing=f"assigning {path_text(path)} in td.parallel",
            found=f"{path_text(path)}, which exists before the region",
            expected="new names, or a part of an outer tile",
            hint="instances of td.parallel have no order; use td.serial or td.reduce",
            span=self.written(path),
        )

    # ---- the result

    def finish(self, attempt: Attempt) -> None:
        ctx, region, frame = self.ctx, attempt.region, self.frame
        after = frame_leaves({n: v for n, v in attempt.finals.items() if n in self.before.locals})
        with ctx.scope(region.body):
            yields = [merging.conform(ctx, after[p], v.type) for p, v in zip(attempt.paths, region.carried)]
        region.body.yields = [v for v in yields if v is not None]
        assert len(region.body.yields) == len(region.inits)
        self.check(attempt)
        region.results = [ctx.builder.value(v.type, v.hint) for v in region.carried]
        ctx.builder.block.ops.append(region)
        results = {p: ctx.tile(v) for p, v in zip(attempt.paths, region.results)}
        rebound = self.rebound(attempt, results)
        self.before.restore()
        for path, tile in results.items():
            if path[0] not in rebound:
                frame.locals[path[0]] = with_leaf(frame.locals[path[0]], path[1:], tile)
        frame.locals.update(rebound)
        for name in attempt.finals:
            if name not in self.before.locals or name in self.target_names:
                frame.locals[name] = GoneName(f"td.{self.spec.kind}", frame.written.get(name))

    def rebound(self, attempt: Attempt, results: dict[Path, Tile]) -> dict[str, Any]:
        """Names that the body gave new containers: copies with the region's results as leaves."""
        found: dict[str, Any] = {}
        for name in {p[0] for p in results}:
            final = attempt.finals[name]
            if final is self.before.locals[name] and not isinstance(final, tuple):
                continue
            found[name] = mapped(copied(final), lambda path, leaf, n=name: results.get((n, *path), leaf))
        return found

    def check(self, attempt: Attempt) -> None:
        region = attempt.region
        if self.spec.kind == "parallel":
            for path, carried, value in zip(attempt.paths, region.carried, region.body.yields):
                if not only_inserts(region.body, carried, value):
                    raise self.parallel_assign(path)
        if self.spec.kind == "reduce":
            names = [path_text(p) for p in attempt.paths]
            spans = [self.written(p) for p in attempt.paths]
            groups = check_states(region, names, spans, self.ctx.applications)
            region.merges = [self.merge(attempt, g) for g in groups]
            self.check_open(attempt)

    def merge(self, attempt: Attempt, group: Group) -> Merge:
        """The monoid of a state of the user's, captured outside the body: it must not depend on the instance."""
        ctx, region = self.ctx, attempt.region
        types = {p: region.carried[i].type for p, i in group.places.items()}
        doing = "folding in td.reduce"
        span, ctx.builder.span = ctx.builder.span, group.span
        try:
            captured = capture(ctx, doing, group.monoid, group.state, types)
        except Gone as error:
            raise NotAnUpdate(
                doing=f"{doing} with {group.monoid.name}",
                found="a merge that uses values made inside the region, which differ from instance to instance",
                expected="one merge for all instances: contributions are passed to it, not looked at by it",
                hint="put what differs into the contribution, or use td.serial or td.pipeline",
                span=group.span,
                notes=[(self.span, "the region")],
            ) from error
        finally:
            ctx.builder.span = span
        found = dict(zip(captured.paths, captured.merge.types))
        if found != types:
            path = next(p for p in types if found[p] != types[p])
            raise StateShape(
                doing=f"{doing} with {group.monoid.name}",
                found=f"{leaf_text(path)} carried as {types[path]} and merged as {found[path]}",
                expected="merged states of the dtype and dimensions that are carried",
                hint="start the state from tiles of the dimensions that the merge gives",
                span=group.span,
                notes=[(self.span, "the region")],
            )
        captured.merge.states = tuple(group.places[p] for p in captured.paths)
        return captured.merge

    def check_open(self, attempt: Attempt) -> None:
        """A fold over the elements of an open block of `parallel` would observe its size."""
        for arg in attempt.region.args:
            block = self.ctx.open_parts.get(arg.domain)
            for path, state in zip(attempt.paths, attempt.region.carried):
                if block is not None and arg.domain.dim not in state.type.dims:
                    raise ObservedBlock(
                        doing=f"folding {path_text(path)} with td.reduce",
                        found=f"the open block {block} of {arg.domain.dim} of a td.parallel",
                        expected="a result that no block size changes",
                        hint=f"fold over the whole dimension {arg.domain.dim}, or fix the size with .by",
                        span=self.span,
                    )


def only_inserts(body: Block, carried: Value, value: Value) -> bool:
    """Whether `value` is `carried` with parts replaced."""
    makers: dict[Value, Op] = {r: op for op in body.ops for r in op.results}
    while value is not carried:
        op = makers.get(value)
        if isinstance(op, Insert):
            value = op.source
        elif isinstance(op, Region):
            i = op.results.index(value)
            if not only_inserts(op.body, op.carried[i], op.body.yields[i]):
                return False
            value = op.inits[i]
        elif isinstance(op, If):
            i = op.results.index(value)
            return all(only_inserts(_seen(body, b), carried, b.yields[i]) for b in op.blocks)
        else:
            return False
    return True


def _seen(outer: Block, inner: Block) -> Block:
    """The operations of both blocks, to look definitions up in."""
    return Block([*outer.ops, *inner.ops], inner.yields)


def type_hint(carried: TileType, new: Any) -> str:
    """What to write where an update has another dtype, or dimensions, than the name it is carried by."""
    if not isinstance(new, Tile) or new.dtype != carried.dtype:
        return f"convert the update with .to({carried.dtype}), or start from a tile of the final dtype and dimensions"
    more = ", ".join(str(part.dim) for part in new.type.axes if part.dim not in carried.dims)
    return (
        f"{f'fold the update over {more}, x.sum({more}), or ' if more else ''}start from a tile of the final dimensions"
    )


def _holds(type: TileType, x: Any) -> bool:
    number = plain_number(x)
    if type.dtype.is_bool:
        return isinstance(number, bool)
    return not (type.dtype.is_int and isinstance(number, float))


def _target_only(node: ast.For) -> ast.stmt:
    """A statement that assigns just the loop's target."""
    return ast.copy_location(ast.Assign(targets=[node.target], value=ast.Constant(None)), node)
