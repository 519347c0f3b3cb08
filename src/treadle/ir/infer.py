"""Result types of operations: what the builder gives and the verifier demands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.algebra.dims import Part
from treadle.dtype.formats import bool_, i64
from treadle.ir.core import AxisSub, Op, Sub, TileType, Value
from treadle.ir.errors import IRType
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import ELEMENTWISE, Bitcast, Cast, Coords, Elementwise, Index
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort
from treadle.ir.ops.intrinsic import Intrinsic


def join_axes(groups: Iterable[Sequence[Part]]) -> tuple[Part, ...]:
    """The union of axes by identity, in order of first appearance.

    *Errors*: `ir/type` where a dimension occurs with two parts that are not the same.
    """
    joined: list[Part] = []
    for group in groups:
        for part in group:
            known = next((p for p in joined if p.dim is part.dim), None)
            if known is None:
                joined.append(part)
            elif known != part:
                raise wrong("joining axes", f"{known.dim}[{known.lo} : {known.hi}] and [{part.lo} : {part.hi}]")
    return tuple(joined)


def flat_subs(subs: Sequence[AxisSub]) -> list[Sub]:
    """All subscripts, those of a product axis one by one."""
    return [s for axis in subs for s in (axis if isinstance(axis, tuple) else (axis,))]


def sub_axes(subs: Sequence[AxisSub]) -> tuple[Part, ...]:
    """The axes that a subscript list gives: the union of those of its parts and tiles."""
    return join_axes(_axes_of(s) for s in flat_subs(subs))


def _axes_of(sub: Sub) -> tuple[Part, ...]:
    if sub.part is not None:
        return (sub.part,)
    return sub.tile.type.axes if sub.tile is not None else ()


def result_type(op: Op) -> TileType | None:
    """The type of the only result; `None` for operations without one, or whose type is part of them (`Full`, regions).

    *Errors*: `ir/type` where the operands do not fit the operation.
    """
    match op:
        case Coords():
            return TileType(i64, (op.part,))
        case Index():
            return TileType(i64)
        case Intrinsic():
            if [a.type.dtype for a in op.args] != [p.type.dtype for p in op.meaning.params]:
                raise wrong(f"typing {op.fn}", f"operands of {', '.join(str(a.type.dtype) for a in op.args)}")
            return TileType(op.meaning.result, join_axes(a.type.axes for a in op.args))
        case Elementwise():
            return _elementwise(op)
        case Cast() | Bitcast():
            if isinstance(op, Bitcast) and op.source.type.dtype.bits != op.dtype.bits:
                raise wrong("typing bitcast", f"{op.source.type.dtype} as {op.dtype}")
            return TileType(op.dtype, op.source.type.axes)
        case Load():
            return TileType(op.tensor.dtype, sub_axes(op.subs))
        case Extract():
            return TileType(op.source.type.dtype, sub_axes(op.subs))
        case Insert():
            _insert(op)
            return op.source.type
        case Store() if op.effect != "set":
            return TileType(op.tensor.dtype, join_axes([sub_axes(op.subs), op.value.type.axes]))
        case Reduce() | ArgReduce():
            return _reduce(op)
        case Mma():
            return _mma(op)
        case _:
            return None


def result_types(op: Fold | Scan | Sort) -> list[TileType]:
    """The types of the results of an operation that may have several.

    *Errors*: `ir/type` where the operands do not fit the operation.
    """
    if isinstance(op, Sort):
        part = op.source.type.axis(op.dim)
        if part is None:
            raise wrong("typing sort", f"dimension {op.dim} of {op.source.type}")
        to = part if op.to is None else op.to
        axes = tuple(to if a is part else a for a in op.source.type.axes)
        return [TileType(op.source.type.dtype, axes), TileType(i64, axes)]
    folded = op.dims if isinstance(op, Fold) else (op.dim,)
    every = join_axes(v.type.axes for v in op.sources)
    if not folded or any(all(a.dim is not d for a in every) for d in folded):
        raise wrong(f"typing {op.keyword}", f"dimensions {', '.join(map(str, folded))} of {', '.join(map(str, every))}")
    if isinstance(op, Scan) and isinstance(op.merge, str):
        if len(op.sources) != 1:
            raise wrong("typing scan", f"{len(op.sources)} sources with the built-in {op.merge}")
        return [op.sources[0].type]
    assert not isinstance(op.merge, str)
    leaves = op.merge.types
    if len(leaves) != len(op.sources):
        raise wrong(f"typing {op.keyword}", f"{len(op.sources)} sources for states of {len(leaves)} leaves")
    for source, leaf in zip(op.sources, leaves):
        kept = [a for a in source.type.axes if a.dim not in folded]
        if source.type.dtype != leaf.dtype or any(a not in leaf.axes for a in kept):
            raise wrong(f"typing {op.keyword}", f"a source {source.type} for a leaf {leaf}")
    if isinstance(op, Fold):
        return leaves
    return [_scanned(op, source.type, leaf) for source, leaf in zip(op.sources, leaves)]


def _scanned(op: Scan, source: TileType, leaf: TileType) -> TileType:
    """The leaf with the scanned axis: where the source has it, else last."""
    axes = (*leaf.axes, op.part)
    return source if set(source.axes) == set(axes) else TileType(leaf.dtype, axes)


def _elementwise(op: Elementwise) -> TileType:
    row = ELEMENTWISE.get(op.fn)
    if row is None or len(op.args) != row[0]:
        raise wrong("typing an elementwise operation", f"{op.fn} of {len(op.args)} operands")
    _, kinds, result = row
    checked: Sequence[Value] = op.args[1:] if op.fn == "where" else op.args
    if op.fn == "where" and not op.args[0].type.dtype.is_bool:
        raise wrong("typing where", f"a condition of {op.args[0].type.dtype}")
    dtype = checked[0].type.dtype
    if any(a.type.dtype != dtype for a in checked):
        raise wrong(f"typing {op.fn}", f"operands of {', '.join(str(a.type.dtype) for a in checked)}")
    if dtype.kind[0] not in kinds:
        raise wrong(f"typing {op.fn}", f"operands of {dtype}")
    return TileType(bool_ if result == "bool" else dtype, join_axes(a.type.axes for a in op.args))


def _insert(op: Insert) -> None:
    axes = sub_axes(op.subs)
    if op.value.type.dtype != op.source.type.dtype:
        raise wrong("typing insert", f"a value of {op.value.type.dtype} into a tile of {op.source.type.dtype}")
    if any(a not in axes for a in op.value.type.axes):
        raise wrong("typing insert", f"a value over {op.value.type} into {', '.join(map(str, axes))}")


def _reduce(op: Reduce | ArgReduce) -> TileType:
    source = op.source.type
    if not op.dims or any(source.axis(d) is None for d in op.dims):
        raise wrong(f"typing {op.keyword}", f"dimensions {', '.join(map(str, op.dims))} of {source}")
    kept = tuple(a for a in source.axes if a.dim not in op.dims)
    return TileType(source.dtype if isinstance(op, Reduce) else i64, kept)


def _mma(op: Mma) -> TileType:
    a, b, acc = op.a.type, op.b.type, op.acc.type
    contracted = op.contracted
    for side in (a, b):
        for axis in side.axes:
            if axis.dim in contracted:
                continue
            if acc.axis(axis.dim) != axis:
                raise wrong("typing mma", f"axis {axis} of an operand is not the accumulator's {acc}")
    if any(a.axis(d) != b.axis(d) for d in contracted):
        raise wrong("typing mma", f"contracted parts differ: {a} and {b}")
    return acc


def wrong(doing: str, found: str) -> IRType:
    """The error for a type that does not fit."""
    return IRType(doing=doing, found=found, expected="operands as the operation's class states")
