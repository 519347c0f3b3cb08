"""Programs that are contractions fed through shared memory: the form of `ring`, found, or why it is not there."""

from __future__ import annotations

from treadle.algebra.dims import Part
from treadle.algebra.expr import ZERO, Expr, Max, Min
from treadle.analysis.uses import PURE, Uses, flat_subs
from treadle.dtype.formats import DType
from treadle.hardware.atoms import warpgroup_atom
from treadle.ir.core import If, Op, Program, Region, RegionArg, Sub, Tensor, Value
from treadle.ir.ops.access import Extract, Load, Store
from treadle.ir.ops.elementwise import Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import Mma
from treadle.realise.channels import CHUNK
from treadle.realise.pieces import between_launches
from treadle.realise.ring import Contraction, Stream, Tile, Whole, factor, joined

MOST_AXES = 5
"""Axes of what an engine copies boxes from."""


class Refusal(Exception):
    """Why a program does not have the form (caught by `find_stream`)."""


def find_stream(
    program: Program,
    uses: Uses,
    *,
    computed: bool = False,
    units: frozenset[tuple[str, int]] = frozenset(),
    turned: bool = False,
    whole: bool = False,
    only: str = "",
    wide: bool = False,
) -> Stream | str:
    """The stream of a program, or why it has none. `units`: the axes of tensors that are contiguous; unknown, the last.

    `whole`: where no block argument is an axis of the contractions, a whole dimension may lie along the rows; where
    several are axes of one operand, rows may be boxes of them.

    `only`: the region of that name is looked at, and may fill tiles; else the program is one region.

    `wide`: operands of f64 have an instruction, too.

    `turned`: of two block arguments that all results have, the second lies along the rows of accumulators.

    `computed`: tiles may be any values, of any format that widens exactly to the accumulator's, and pass through
    registers on their way; otherwise they are plain blocks of tensors in formats of the tensor cores.
    """
    try:
        return _Finder(program, uses, computed, units, turned, whole, only, wide).find()
    except Refusal as why:
        return str(why)


class _Finder:
    def __init__(
        self,
        program: Program,
        uses: Uses,
        computed: bool,
        units: frozenset[tuple[str, int]],
        turned: bool,
        whole: bool,
        only: str,
        wide: bool,
    ) -> None:
        self.only = only
        self.wide = wide
        self.units = units
        self.whole = whole
        self.turned = turned
        self.program = program
        self.uses = uses
        self.computed = computed
        self.tiles: dict[tuple[str, str], Tile] = {}
        self.around: tuple[Region, ...] = ()

    def find(self) -> Stream:
        regions = [op for op in self.program.body.ops if not isinstance(op, PURE)]
        if self.only:
            regions = [op for op in regions if isinstance(op, Region) and op.name == self.only]
        if len(regions) != 1 or not isinstance(regions[0], Region) or regions[0].kind != "parallel":
            raise Refusal("the program is not one parallel region")
        region = regions[0]
        if region.inits and not self.only:
            raise Refusal("the region assembles tiles")
        around: list[Region] = []
        inner = [op for op in region.body.ops if isinstance(op, Region | If)]
        while self.whole and self.holds_another(region, inner):
            around.append(region)
            region = next(op for op in inner if isinstance(op, Region))
            inner = [op for op in region.body.ops if isinstance(op, Region | If)]
        self.around = tuple(around)
        if not inner:
            return self.contractions(region, None)
        if len(inner) != 1 or not isinstance(inner[0], Region) or inner[0].kind == "parallel":
            raise Refusal("the region does not have exactly one ordered region in it")
        loop = inner[0]
        if any(a.reversed for a in loop.args):
            raise Refusal("the ordered region runs backwards")
        if sum(a.kind == "block" for a in loop.args) > 1:
            raise Refusal("the ordered region goes over blocks of several dimensions")
        if any(a.kind == "block" for a in loop.args[:-1]):
            raise Refusal("the ordered region goes over blocks outside single coordinates")
        if self.computed and [a.kind for a in loop.args] != ["block"]:
            raise Refusal("the ordered region does not go over blocks of one dimension")
        if any(isinstance(op, Region | If | Store) for op in loop.body.ops):
            raise Refusal("the ordered region has stores or regions in it")
        if any(isinstance(op, Mma) for op in region.body.ops):
            raise Refusal("there are contractions outside the ordered region")
        return self.contractions(region, loop)

    def holds_another(self, region: Region, inner: list[Region | If]) -> bool:
        """Whether a region over single coordinates does nothing but find out what another one in it needs."""
        others = [op for op in region.body.ops if not isinstance(op, PURE)]
        one = inner[0] if len(others) == len(inner) == 1 else None
        nested = isinstance(one, Region) and one.kind == "parallel" and not (one.inits or region.inits)
        return nested and all(a.kind == "each" and not a.reversed for a in region.args)

    def contractions(self, region: Region, loop: Region | None) -> Stream:
        """The contractions of a region's body, or of the loop's in it, as a stream."""
        body = region.body if loop is None else loop.body
        ops = [op for op in body.ops if isinstance(op, Mma)]
        if not ops:
            raise Refusal("there is no contraction")
        row, boxed = self.rows(region, loop, ops)
        block = None if loop is None else next((a for a in loop.args if a.kind == "block"), None)
        step = self.whole_step(ops) if block is None else block.part
        stream = Stream(self.program, region, loop, row, step, more_rows=tuple(boxed[:-1]), around=self.around)
        if any(a.kind == "each" for a in stream.told):
            raise Refusal("single coordinates of a range that an instance tells")
        if stream.columns in stream.told or any(a in stream.told for a in stream.more_rows):
            raise Refusal("a range that an instance tells is not that of the rows")
        if loop is not None and block is None:
            carried = {v.name for v in loop.carried}
            stream.walked = all(op.acc.name in carried for op in ops)
            if len(loop.args) > 1 and not stream.walked:
                raise Refusal("contractions along several dimensions do not add in place")
        self.batched(stream, body.ops)
        if (loop is None or stream.walked) and len(stream.batches) > 1:
            raise Refusal("one contraction needs the result of another along the whole of a dimension")
        stream.tiles = list(self.tiles.values())
        return stream

    def rows(self, region: Region, loop: Region | None, ops: list[Mma]) -> tuple[RegionArg | Whole, list[RegionArg]]:
        """What lies along the rows of accumulators, and the block arguments of whose boxes it is the last."""
        blocks = [a for a in region.args if a.kind == "block"]
        if any(a.size is not None or a.reversed for a in (*blocks, *(() if loop is None else loop.args))):
            raise Refusal("a block size is fixed by the program, or a region runs backwards")
        rows: list[RegionArg | Whole] = [a for a in blocks if all(a.part in op.result.type.axes for op in ops)]
        if not blocks and self.whole and loop is not None:
            open_parts = [a.part for a in loop.args if a.kind == "block"]
            parts = [p for p in ops[0].result.type.axes if p not in open_parts]
            rows += [Whole(p) for p in parts if all(p in op.result.type.axes for op in ops)]
            if not rows:
                raise Refusal("no dimension is an axis of every contraction")
        boxed = self.boxed(blocks, ops)
        if boxed:
            rows = [boxed[-1]]
        elif blocks and not 1 <= len(blocks) <= 2:
            raise Refusal(f"{len(blocks)} block arguments in the parallel region")
        if not rows:
            raise Refusal("no block argument is an axis of every contraction")
        order = [p for p in ops[0].result.type.axes if any(p == a.part for a in rows)]
        if self.turned and len(order) < 2:
            raise Refusal("the results do not have two block arguments")
        return next(a for a in rows if a.part == order[1 if self.turned else 0]), boxed

    def whole_step(self, ops: list[Mma]) -> Part:
        """The dimension of which an iteration contracts the whole."""
        step = next((a for a in ops[0].b.type.axes if a.dim in ops[0].contracted), None)
        if step is None or any(step not in op.a.type.axes for op in ops):
            raise Refusal("the contractions do not go along one dimension")
        return step

    def batched(self, stream: Stream, ops: list[Op]) -> None:
        """The contractions of a body in batches, none of which needs another one of its own; their tiles know the
        last batch that reads them."""
        last: Op | None = None
        for op in ops:
            if isinstance(op, PURE):
                continue
            if isinstance(op, Mma):
                joined = isinstance(last, Mma) and not self.depends(op, {c.op.result.name for c in stream.batches[-1]})
                if not joined:
                    stream.batches.append([])
                stream.batches[-1].append(self.contraction(op, stream))
            last = op
        for number, batch in enumerate(stream.batches):
            for one in batch:
                for tile in (one.left_tile, one.right_tile, *one.raw):
                    if tile is not None:
                        tile.last = number

    def boxed(self, blocks: list[RegionArg], ops: list[Mma]) -> list[RegionArg]:
        """The block arguments that are axes of one operand of every contraction and of its result, in the order of the
        first result's axes, where there are several and at most one other; else none."""
        if not self.whole or self.turned:
            return []
        sides = [{a.name for a in blocks if a.part in x.type.axes} for x in (ops[0].a, ops[0].b)]
        mine = max(sides, key=len)
        if len(mine) < 2 or len(blocks) > len(mine) + 1 or sides[0] & sides[1]:
            return []
        order = list(ops[0].result.type.axes)
        found = sorted(
            (a for a in blocks if a.name in mine), key=lambda a: order.index(a.part) if a.part in order else -1
        )
        for op in ops:
            sides = [[a.part in x.type.axes for a in found] for x in (op.a, op.b)]
            if (
                not all(a.part in op.result.type.axes for a in found)
                or not any(map(all, sides))
                or all(map(any, sides))
            ):
                return []
        return found

    def depends(self, op: Op, names: set[str]) -> bool:
        """Whether an operation reads one of these values, through values computed at each use."""
        todo, seen = list(self.uses.direct(op)), set[str]()
        while todo:
            value = todo.pop()
            if value.name in names:
                return True
            if value.name in seen:
                continue
            seen.add(value.name)
            made = self.uses.definition.get(value.name)
            if made is not None and isinstance(made, PURE):
                todo += self.uses.direct(made)
        return False

    def contraction(self, op: Mma, stream: Stream) -> Contraction:
        axes = op.result.type.axes
        if len(axes) != 2 + len(stream.more_rows) or len(op.contracted) != 1:
            raise Refusal(f"{op.result} is not a contraction of matrices along one dimension")
        rows = stream.rows.part
        cols = next(a for a in axes if a not in stream.row_parts)
        left, right = (op.a, op.b) if rows in op.a.type.axes else (op.b, op.a)
        made = left.type.dtype
        if not self.computed:
            if right.type.dtype.bits == 16 and widens(made, right.type.dtype):
                made = right.type.dtype
            self.refuse_formats(op, made, right.type.dtype)
        deep = next(a for a in right.type.axes if a.dim in op.contracted)
        number = len(stream.batches) - 1
        right_tile = self.tile(right, stream, number)
        if right_tile is None:
            raise Refusal(f"{right} is not a block of a tensor")
        left_tile = self.tile(left, stream, number) if made == left.type.dtype else None
        if self.computed and (left_tile is None or cols == stream.step):
            raise Refusal(f"{op.result} is part of a chain of contractions")
        raw = () if self.computed or left_tile is not None else self.raw(left, (rows, deep), stream, number)
        if made != left.type.dtype and not raw:
            raise Refusal(f"the operands of {op.result} are {left.type.dtype} and {right.type.dtype}")
        if left_tile is None and stream.more_rows:
            raise Refusal(f"{left} is not a block of a tensor (shifted coordinates are, where a load has `fill=0`)")
        if left_tile is None and not raw and (stream.loop is None or stream.walked):
            raise Refusal(f"{left} is not a block of a tensor (shifted coordinates are, where a load has `fill=0`)")
        if left_tile is None and set(left.type.axes) != {rows, deep}:
            raise Refusal(f"{left} does not have the rows and the depth of {op.result}")
        if not self.computed and made.bits not in (16, 64):
            # Only elements of 16 bits are turned by the tensor cores, and only those are packed as they are held.
            if left_tile is None:
                raise Refusal(f"{left} of {left.type.dtype} is computed in registers")
            for tile in (left_tile, right_tile):
                if tile.inner.dim in op.contracted:
                    continue
                if len(tile.source.subs) != 2:
                    raise Refusal(
                        f"{tile.tensor} of {left.type.dtype} is not contiguous along {deep.dim}, and has more axes "
                        f"than the two of a matrix that is turned first (store it with {deep.dim} last)"
                    )
                # A matrix is turned on its way to a place of its own.
                if tile.offsets != (ZERO, ZERO):
                    raise Refusal(f"{tile.tensor} of {left.type.dtype} is not contiguous along {deep.dim}")
                tile.outer, tile.inner, tile.axes = tile.inner, tile.outer, (tile.axes[1], tile.axes[0])
        return Contraction(op, rows, cols, deep, left, right, left_tile, right_tile, raw)

    def raw(self, value: Value, parts: tuple[Part, Part], stream: Stream, number: int) -> tuple[Tile, ...]:
        """The tiles of which a value along its rows and depth is made element by element; none where it hangs on other
        contractions, or on halves of bytes that do not lie side by side along the depth."""
        axes = set(parts)
        if set(value.type.axes) != axes:
            return ()
        todo, seen, found = [value], {s.value.name for s in self.program.scalars}, list[Tile]()
        while todo:
            one = todo.pop(0)
            op = self.uses.definition.get(one.name)
            if one.name in seen:
                continue
            seen.add(one.name)
            if not isinstance(op, PURE):
                return ()
            if isinstance(op, Load) and set(one.type.axes) == axes and not self.scattered(op):
                tile = self.tile(one, stream, number)
                if tile is None or (one.type.dtype.packed and tile.inner != parts[1]):
                    return ()
                found.append(tile)
            elif not isinstance(op, Load):
                todo += self.uses.direct(op)
        return tuple(dict.fromkeys(found))

    def scattered(self, op: Load) -> bool:
        """Whether a load reads at computed places, which no box has: threads read them themselves."""
        return any(s.tile is not None and _shifted(s.tile, self.uses) is None for s in _plain(op))

    def refuse_formats(self, op: Mma, left: DType, right: DType) -> None:
        """Refuses operands that no instruction contracts into such an accumulator, or not without a permission."""
        acc = op.result.type.dtype
        if self.wide and {left.name, right.name, acc.name} == {"f64"}:
            return
        row = warpgroup_atom(left.name, right.name, 64)
        if row is None:
            raise Refusal(f"the operands of {op.result} are {left} and {right}")
        if acc.name != row.operands[0][0]:
            raise Refusal(f"{op.result} is accumulated in {acc}")
        if not permitted(self.program, row.spends):
            raise Refusal(f"products of {left} and {right} need the permission {row.spends}")

    def tile(self, value: Value, stream: Stream, batch: int) -> Tile | None:
        """The operand as a block of a tensor."""
        if self.computed:
            return self.computed_tile(value, stream, batch)
        op = self.uses.definition.get(value.name)
        keeper = op.source if isinstance(op, Extract) else None
        if isinstance(op, Extract):
            op = self.kept(op)
        if not isinstance(op, Load) or not self.zeros(op) or not (keeper or self.uses.stable(op)):
            return None
        parts: list[tuple[int, Part]] = []
        starts: dict[int, Expr] = {}
        shifted: set[Part] = set()
        for axis, one in enumerate(op.subs):
            sub, start = factor(one, op.tensor.dims[axis])
            if sub is None:
                return None
            if sub.tile is not None:
                moved = None if op.fill is None else _shifted(sub.tile, self.uses)
                if moved is None or moved[0] is None or start != ZERO or moved[0] == stream.step:
                    return None
                parts.append((axis, moved[0]))
                starts[axis] = moved[1]
                shifted.add(moved[0])
            elif sub.part is not None:
                parts.append((axis, sub.part))
                starts[axis] = start
            elif sub.index is None or sub.index.functions:
                return None
        slower = [a.part for a in stream.more_rows]
        more = [p for p in parts if p[1] in slower]
        if len(more) not in (0, len(slower)) or [p for _, p in more] != slower[: len(more)]:
            return None
        parts = [p for p in parts if p not in more]
        if len(parts) != 2:
            return None
        unit = [p for p in reversed(parts) if (op.tensor.name, p[0]) in self.units]
        if not unit and parts[1][0] != len(op.subs) - 1:
            return None
        if unit and unit[0] is parts[0]:
            parts.reverse()
        (axis, inner) = parts[1]
        if not self.in_chunks(inner, starts[axis], op.tensor.dtype, stream):
            return None
        key = (op.tensor.name, ", ".join(f"{s}|{s.part.lo}:{s.part.hi}" if s.part else str(s) for s in _plain(op)))
        if key not in self.tiles:
            singles = [] if stream.loop is None else [a.name for a in stream.loop.args if a.kind == "each"]
            bounds = stream.step.lo.symbols | stream.step.hi.symbols if stream.block is not None else set[str]()
            streamed = stream.step in (p for _, p in parts) and (not singles or stream.walked or bool(bounds))
            names = {*bounds, *singles}
            streamed = streamed or any(s.index is not None and names & s.index.symbols for s in _plain(op))
            streamed = streamed or any(names & e.symbols for e in starts.values())
            (outer, first), (inner, second) = parts
            begin = starts[outer], starts[inner]
            self.tiles[key] = Tile(
                value, op, first, second, (outer, inner), streamed, batch, batch, begin, frozenset(shifted)
            )
            self.tiles[key].more = tuple((axis, part, starts[axis]) for axis, part in more)
            self.tiles[key].keeper = keeper
        return self.tiles[key]

    def in_chunks(self, part: Part, start: Expr, dtype: DType, stream: Stream) -> bool:
        """Whether boxes along the innermost axis begin at multiples of 16 bytes, as engines want it (else they fault):
        where a block begins, and what is added to that."""
        loops = [stream.region, *stream.around, *([] if stream.loop is None else [stream.loop])]
        args = [a for r in loops for a in r.args]
        lo = next((a.domain.lo for a in args if a.kind == "block" and a.part == part), part.lo)
        lets = self.program.lets
        single = {a.name: a.domain.lo for a in args if a.domain.extent.substitute(lets).constant == 1}
        count = max(1, CHUNK * 8 // dtype.bits)
        end = part.dim.extent.substitute(lets)
        return multiple((lo + start).substitute(single).substitute(lets), count, end)

    def kept(self, op: Extract) -> Load | None:
        """What reads a tile that an earlier region has filled, as a load: it lies in memory as a tensor does."""
        made = self.uses.definition.get(op.source.name)
        axes = op.source.type.axes
        filled = isinstance(made, Region) and made.kind == "parallel" and made in self.program.body.ops
        if not self.only or not filled or not 2 <= len(axes) <= MOST_AXES:
            return None
        if any(a.lo != ZERO or a.hi != a.dim.extent for a in axes):
            return None
        own = {id(a): joined(s, a.dim) for s, a in zip(op.subs, axes, strict=True)}
        lie = [a for a in between_launches(axes) if a.extent.constant != 1]  # those have no place in memory
        subs = tuple(own[id(a)] for a in lie)
        if any(s.index is None or s.index.functions for one in subs if isinstance(one, tuple) for s in one[:-1]):
            return None
        matrix = Tensor(op.source.name.lstrip("%"), tuple(a.dim for a in lie), op.source.type.dtype)
        return Load(tensor=matrix, subs=subs, fill=op.fill, results=op.results, span=op.span)

    def zeros(self, op: Load) -> bool:
        """Whether a load gives zeros outside its tensor, as engines do, or never leaves it."""
        made = None if op.fill is None else self.uses.definition.get(op.fill.name)
        return op.fill is None or (isinstance(made, Full) and made.number == 0)

    def computed_tile(self, value: Value, stream: Stream, batch: int) -> Tile | None:
        """An operand computed from loads, its contiguous axis last."""
        if len(value.type.axes) != 2 or stream.step not in value.type.axes:
            return None
        todo, seen, inner = [value], set[str](), value.type.axes[1]
        while todo:
            one = todo.pop(0)
            op = self.uses.definition.get(one.name)
            if one.name in seen:
                continue
            seen.add(one.name)
            if not isinstance(op, PURE) or (isinstance(op, Load) and not self.uses.stable(op)):
                return None
            last = op.subs[-1] if isinstance(op, Load) and op.subs else None
            if isinstance(last, Sub) and last.part in value.type.axes:
                inner = last.part
                todo = [v for v in todo if isinstance(self.uses.definition.get(v.name), PURE)]
            todo += self.uses.direct(op)
        outer = next(a for a in value.type.axes if a != inner)
        if (value.name, "") not in self.tiles:
            self.tiles[value.name, ""] = Tile(value, None, outer, inner, (0, 1), True, batch, batch)
        return self.tiles[value.name, ""]


def multiple(e: Expr, count: int, end: Expr) -> bool:
    """Whether an expression is a multiple of a number, term by term; of minima and maxima all arguments but `end`: a
    range that begins there is empty."""
    for monomial, times in e.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        args = [a for a in atom.args if a != end] if isinstance(atom, Min | Max) else []
        if times % count and not (args and all(multiple(a * times, count, end) for a in args)):
            return False
    return True


def _plain(op: Load) -> list[Sub]:
    return list(flat_subs(op.subs))


def _shifted(value: Value, uses: Uses) -> tuple[Part | None, Expr] | None:
    """An integer value as the coordinates of a part and what is added to them; None where it is no such sum."""
    made = uses.definition.get(value.name)
    match made:
        case Coords():
            return value.type.axes[0], ZERO
        case Index(expr=expr):
            return None if expr.functions else (None, expr)
        case Full(number=int(number)):
            return None, ZERO + number
        case Cast():
            return _shifted(made.source, uses) if made.source.type.dtype.is_int else None
        case Elementwise(fn=("add" | "sub" | "mul") as fn):
            first, second = _shifted(made.args[0], uses), _shifted(made.args[1], uses)
            if first is None or second is None:
                return None
            (part, a), (other, b) = first, second
            if fn == "mul":
                # A multiple of coordinates is no run of neighbours; of numbers, an expression.
                if part is not None and other is None and b.constant == 1:
                    return part, a
                if other is not None and part is None and a.constant == 1:
                    return other, b
                return (None, a * b) if part is None and other is None else None
            if part is not None and other is not None or (fn == "sub" and other is not None):
                return None
            return (part if part is not None else other), (a + b if fn == "add" else a - b)
        case _:
            return None


def widens(source: DType, dtype: DType) -> bool:
    """Whether every number of a float format is one of another, wider one."""
    if not (source.is_float and dtype.is_float) or source.bits >= dtype.bits:
        return False
    least = source.min_exponent - source.mantissa >= dtype.min_exponent - dtype.mantissa
    return least and source.mantissa <= dtype.mantissa and source.finite_max <= dtype.finite_max


def permitted(program: Program, name: str) -> bool:
    """Whether a program grants a permission that an instruction spends."""
    wanted = {"": None, "tf32": True, "fp8_accumulate": "hardware"}
    return not name or program.numerics.get(name) == wanted[name]
