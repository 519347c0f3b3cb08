"""Validator of steps on how elements lie: a load that reads a copy of its tensor in another order, or in phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Expr, const, ge, lt, sym
from treadle.checker.derivation_copies import apart, definition, stored
from treadle.checker.derivation_match import Match, wrong
from treadle.checker.scopes import index_expressions
from treadle.checker.verdict import require
from treadle.dtype.formats import i64
from treadle.ir.core import AxisSub, Block, Op, Region, RegionArg, Sub, Value, values_of
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.elementwise import Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import Mma


def relayout(m: Match) -> None:
    """A load that contractions read is the same elements of a tile, into which a region in front has copied all of its
    tensor."""
    block, place = definition(m.before, m.step.args["value"])
    load = block.ops[place]
    outer = next((op for op in m.before.body.ops if any(x is load for b in op.blocks for x in b.walk())), None)
    if not isinstance(load, Load) or outer is None:
        wrong(f"{m.said(load)} is no load in a region")
    _contracted(m, load)
    touched = stored(m.before.body.ops)
    if load.tensor.name in touched:
        wrong(f"{load.tensor.name} is stored to")
    for name in sorted(touched):
        apart(m, load.tensor.name, name)
    copies: list[_Copy] = []

    def in_front(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        blank, region = (*ys[j : j + 2], None, None)[:2]
        if not isinstance(blank, Full) or not isinstance(region, Region) or {id(blank), id(region)} & m.claimed:
            wrong(f"no region that copies {load.tensor.name} stands in front")
        copies.append(_copy(m, load, blank, region))
        del m.handlers[id(outer)]
        return i, j + 2

    def inside(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        if m.claims.get(id(load)) is not None:
            wrong(f"{m.said(load)} is still there")
        end = j
        while end < len(ys) and id(ys[end]) not in m.claimed and not isinstance(ys[end], Extract):
            if not isinstance(ys[end], Coords | Index | Elementwise):
                wrong(f"{m.said(ys[end])} is new, and nothing says why")
            end += 1
        read = ys[end] if end < len(ys) else None
        if not isinstance(read, Extract) or id(read) in m.claimed:
            wrong(f"{load.result.name} is read from no tile")
        copies[0].read_by(m, load, read)
        m.values[load.result.name] = read.result.name
        return i + 1, end + 1

    m.handlers[id(outer)] = in_front
    m.handlers[id(load)] = inside


def _contracted(m: Match, load: Load) -> None:
    """Only contractions along one dimension read the load: of those the order of an operand's axes means nothing."""
    name = load.result.name
    for op in m.before.body.walk():
        reads = any(v.name == name for v in op.operands) or any(name in e.functions for e in index_expressions(op))
        yields = any(v.name == name for b in op.blocks for v in b.yields)
        if yields or (reads and not (isinstance(op, Mma) and op.acc.name != name and len(op.contracted) == 1)):
            wrong(f"{m.said(op)} reads {name}, whose axes are in another order now")


@dataclass(frozen=True)
class _Strided:
    """An axis of the tensor that is two of the copy: where its coordinate and its phase stand, and the stride."""

    unit: int
    phase: tuple[int, int]
    stride: int


@dataclass
class _Copy:
    """What a region has copied: for each axis of the tensor, the axis of the tile that is it, or the two."""

    tile: Value
    axes: list[int | _Strided]

    def read_by(self, m: Match, load: Load, read: Extract) -> None:
        """The elements that an extract reads are those of the load."""
        if read.source is not self.tile or not m.same(load.fill, read.fill):
            wrong(f"{read.result.name} reads another tile, or is filled with something else")
        x, y = load.result.type, read.result.type
        if (
            x.dtype != y.dtype
            or len(x.axes) != len(y.axes)
            or not all(any(m.same(a, b) for b in y.axes) for a in x.axes)
        ):
            wrong(f"{read.result.name} has other axes than {load.result.name}")
        mine, theirs = m.before.definitions(), m.after.definitions()
        for at, axis in enumerate(self.axes):
            sub = load.subs[at]
            if isinstance(axis, int):
                if not m.same(sub, read.subs[axis]):
                    wrong(f"{read.result.name} reads {read.subs[axis]} along {load.tensor.dims[at]}")
                continue
            unit, phase = read.subs[axis.unit], _factor(read.subs, axis.phase)
            if not isinstance(sub, Sub) or not isinstance(unit, Sub) or sub.promised or unit.promised:
                wrong(f"{load.tensor.dims[at]} is subscripted by its factors, or promised")
            if phase.index is None or phase.promised:
                wrong(f"the phase of {read.result.name} along {load.tensor.dims[at]} is no number of an instance")
            now = coordinate(unit, theirs) * axis.stride + phase.index
            if not m.facts.equal(m.expr(coordinate(sub, mine)), now):
                wrong(f"{read.result.name} reads other coordinates along {load.tensor.dims[at]}")
            for c in (ge(phase.index, 0), lt(phase.index, axis.stride)):
                require(m.facts, c, "step", f"{phase.index} is no phase of a stride of {axis.stride}")


def _factor(subs: Sequence[AxisSub], at: tuple[int, int]) -> Sub:
    """One subscript, or that of a factor."""
    axis, factor = at
    one = subs[axis]
    return one[factor] if isinstance(one, tuple) else one


def coordinate(sub: Sub, made: dict[str, Op]) -> Expr:
    """A coordinate as an expression, in which `@D` is that of an element along the dimension D."""
    if sub.index is not None:
        return sub.index
    if sub.part is not None:
        return sym(f"@{sub.part.dim.name}")
    assert sub.tile is not None
    return _computed(sub.tile, made)


def _computed(value: Value, made: dict[str, Op]) -> Expr:
    op = made.get(value.name)
    if value.type.dtype != i64:
        wrong(f"{value.name} is computed in {value.type.dtype}")
    match op:
        case Coords():
            return sym(f"@{op.part.dim.name}")
        case Index():
            return op.expr
        case Full(number=int(number)):
            return const(number)
        case Elementwise(fn="add"):
            return _computed(op.args[0], made) + _computed(op.args[1], made)
        case Elementwise(fn="sub"):
            return _computed(op.args[0], made) - _computed(op.args[1], made)
        case Elementwise(fn="mul"):
            return _computed(op.args[0], made) * _computed(op.args[1], made)
        case _:
            wrong(f"{value.name} is no sum of coordinates")


def _copy(m: Match, load: Load, blank: Full, region: Region) -> _Copy:
    """What a region copies, whose instances fill each element of its tile once. *Errors*: refused."""
    tensor = load.tensor
    put, got = _body(m, load, blank, region)
    made = {v.name: op for op in region.body.ops for v in op.results}
    left = {a.name: a for a in region.args}
    axes: list[int | _Strided] = []
    taken: set[tuple[int, int]] = set()
    for at, (sub, dim) in enumerate(zip(got.subs, got.tensor.dims, strict=True)):
        same = [k for k, s in enumerate(put.subs) if s == sub]
        if same and _whole(sub, dim, left) and put.source.type.axes[same[0]] == dim.whole():
            axes.append(same[0])
            taken |= {(same[0], f) for f in range(len(sub) if isinstance(sub, tuple) else 1)}
            continue
        if not isinstance(sub, Sub) or got.fill is None or load.fill is None and not _index(load.subs[at]):
            wrong(f"{region.name} does not copy {tensor.name} along {dim}")
        axes.append(_phased(m, region, coordinate(sub, made), put, dim, left))
        own = axes[-1]
        assert isinstance(own, _Strided)
        taken |= {(own.unit, 0), own.phase}
    wanted = {(k, f) for k, s in enumerate(put.subs) for f in range(len(s) if isinstance(s, tuple) else 1)}
    if left or taken != wanted:
        wrong(f"the instances of {region.name} do not fill each element once")
    return _Copy(region.results[0], axes)


def _index(sub: AxisSub) -> bool:
    return isinstance(sub, Sub) and sub.index is not None


def _body(m: Match, load: Load, blank: Full, region: Region) -> tuple[Insert, Load]:
    """The load and the update that a region does. *Errors*: refused for anything else."""
    put = region.body.ops[-1] if region.body.ops else None
    got = region.body.ops[-2] if len(region.body.ops) > 1 else None
    if region.kind != "parallel" or len(region.carried) != 1 or region.merges or not isinstance(put, Insert):
        wrong(f"{region.name} does not fill a tile")
    if blank.number is not None or region.inits != [blank.result] or region.body.yields != [put.result]:
        wrong(f"{region.name} updates a tile that holds something")
    if not isinstance(got, Load) or put.source is not region.carried[0] or put.value is not got.result:
        wrong(f"{region.name} does not put what it loads into its tile")
    if got.tensor.name != load.tensor.name or got.result.type.dtype != region.results[0].type.dtype:
        wrong(f"{region.name} copies {got.tensor.name}")
    if any(not isinstance(op, Coords | Index | Elementwise | Full) for op in region.body.ops[:-2]):
        wrong(f"{region.name} does more than to copy")
    fills = (
        (got.fill, Block(region.body.ops)),
        (load.fill, m.before.body),
    )
    for fill, body in fills:
        if fill is not None and not any(_zero(op) and op.results[0].name == fill.name for op in body.walk()):
            wrong(f"{fill.name} is not zero")
    if any(s.promised for s in (*_flat(put.subs), *_flat(got.subs))) or values_of(put.subs):
        wrong(f"{region.name} puts elements at computed or promised places")
    return put, got


def _flat(subs: Sequence[AxisSub]) -> list[Sub]:
    return [s for one in subs for s in (one if isinstance(one, tuple) else (one,))]


def _zero(op: Op) -> bool:
    return isinstance(op, Full) and op.number == 0 and not op.results[0].type.axes


def _whole(sub: AxisSub, dim: Dim, left: dict[str, RegionArg]) -> bool:
    """Whether a subscript goes over a whole dimension, as arguments that are taken from those left, or at once."""
    if isinstance(sub, tuple):
        return len(sub) == len(dim.factors) and all(_whole(s, f, left) for s, f in zip(sub, dim.factors, strict=True))
    if sub == Sub(part=dim.whole()):
        return True
    for arg in list(left.values()):
        mine = sub == (Sub(part=arg.part) if arg.kind == "block" else Sub(index=arg.index))
        if mine and arg.domain == dim.whole() and arg.size is None:
            del left[arg.name]
            return True
    return False


def _phased(m: Match, region: Region, at: Expr, put: Insert, dim: Dim, left: dict[str, RegionArg]) -> _Strided:
    """A coordinate that is a multiple of one argument and another one, which is smaller."""
    for unit, arg in ((k, a) for k, s in enumerate(put.subs) for a in left.values() if _is(s, a)):
        mine = sym(f"@{arg.domain.dim.name}") if arg.kind == "block" else arg.index
        for phase, other in _phases(put.subs, left):
            rest = at - other.index
            stride = next((c for monomial, c in rest.terms if monomial), 0)
            if rest != mine * stride or stride < 1 or other is arg or other.domain.extent.constant != stride:
                continue
            own = put.source.type.axes[unit]
            factor = put.source.type.axes[phase[0]].dim
            factor = factor.factors[phase[1]] if isinstance(put.subs[phase[0]], tuple) else factor
            if own != arg.domain or own != own.dim.whole() or other.domain != factor.whole():
                break
            if put.source.type.axes[phase[0]] != put.source.type.axes[phase[0]].dim.whole():
                break
            require(m.facts, ge(own.extent * stride, dim.extent), "step", f"{own} has not all of {dim}")
            del left[arg.name], left[other.name]
            return _Strided(unit, phase, stride)
    wrong(f"{region.name} copies {dim} in no phases of a stride")


def _is(sub: AxisSub, arg: RegionArg) -> bool:
    return sub == (Sub(part=arg.part) if arg.kind == "block" else Sub(index=arg.index)) and arg.size is None


def _phases(subs: Sequence[AxisSub], left: dict[str, RegionArg]) -> list[tuple[tuple[int, int], RegionArg]]:
    """Where single coordinates of arguments stand."""
    found: list[tuple[tuple[int, int], RegionArg]] = []
    for k, s in enumerate(subs):
        for f, one in enumerate(s if isinstance(s, tuple) else (s,)):
            found += [((k, f), a) for a in left.values() if a.kind == "each" and _is(one, a)]
    return found
