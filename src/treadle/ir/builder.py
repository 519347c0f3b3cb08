"""Building programs: an insertion point, result types by inference, fresh value names.

Values are named `%0, %1, ...` while a program is built; `rename` in `rewrite.py` gives the final names, which keep the
user's variable as a hint: `%acc`, `%acc.1`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr
from treadle.base.source import Span
from treadle.dtype.formats import DType
from treadle.ir.core import (
    AxisSub,
    Block,
    If,
    Merge,
    Op,
    Order,
    Region,
    RegionArg,
    RegionKind,
    Tensor,
    TileType,
    Value,
)
from treadle.ir.errors import IRStructure
from treadle.ir.infer import result_type, result_types
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort

AnyOp = TypeVar("AnyOp", bound=Op)


class Builder:
    """Appends operations to the innermost open block. `span` is the source position that new operations get; `emitted`
    counts them."""

    def __init__(self, body: Block | None = None, *, first: int = 0) -> None:
        self.stack: list[Block] = [Block() if body is None else body]
        self.span: Span | None = None
        self.counter = first
        self.emitted = 0

    @property
    def block(self) -> Block:
        """The block that operations are appended to."""
        return self.stack[-1]

    @contextmanager
    def inside(self, block: Block) -> Generator[Block]:
        """Appends to `block` inside `with`."""
        self.stack.append(block)
        try:
            yield block
        finally:
            self.stack.pop()

    def value(self, type: TileType, hint: str | None = None) -> Value:
        """A fresh value that no operation defines yet."""
        self.counter += 1
        return Value(f"%{self.counter - 1}", type, hint)

    def emit(self, op: AnyOp, type: TileType | None = None, hint: str | None = None) -> AnyOp:
        """Appends `op`, giving it its result where it has one."""
        found = type if type is not None else result_type(op)
        if found is not None and not op.results:
            op.results = [self.value(found, hint)]
        if op.span is None:
            op.span = self.span
        self.block.ops.append(op)
        self.emitted += 1
        return op

    # ---- pointwise

    def full(self, number: float | int | bool | None, dtype: DType, axes: Sequence[Part] = ()) -> Value:
        return self.emit(Full(number=number), TileType(dtype, tuple(axes))).result

    def coords(self, part: Part) -> Value:
        return self.emit(Coords(part=part)).result

    def index(self, expr: Expr) -> Value:
        return self.emit(Index(expr=expr)).result

    def elementwise(self, fn: str, *args: Value) -> Value:
        return self.emit(Elementwise(fn=fn, args=args)).result

    def cast(self, source: Value, dtype: DType, *, saturate: bool = False) -> Value:
        return self.emit(Cast(source=source, dtype=dtype, saturate=saturate)).result

    def bitcast(self, source: Value, dtype: DType) -> Value:
        return self.emit(Bitcast(source=source, dtype=dtype)).result

    # ---- access

    def load(self, tensor: Tensor, subs: Sequence[AxisSub], fill: Value | None = None) -> Value:
        return self.emit(Load(tensor=tensor, subs=tuple(subs), fill=fill)).result

    def store(
        self,
        tensor: Tensor,
        subs: Sequence[AxisSub],
        value: Value,
        *,
        where: Value | None = None,
        effect: str = "set",
        order: str = "unordered",
    ) -> Value | None:
        """The old values for an effect that is not "set"."""
        op = Store(tensor=tensor, subs=tuple(subs), value=value, where=where, effect=effect, order=order)
        self.emit(op)
        return op.results[0] if op.results else None

    def extract(self, source: Value, subs: Sequence[AxisSub], fill: Value | None = None) -> Value:
        return self.emit(Extract(source=source, subs=tuple(subs), fill=fill)).result

    def insert(self, source: Value, subs: Sequence[AxisSub], value: Value) -> Value:
        return self.emit(Insert(source=source, subs=tuple(subs), value=value)).result

    # ---- folds

    def reduce(
        self, source: Value, dims: Sequence[Dim], monoid: str, *, order: Order = "unordered", nan: str = "propagate"
    ) -> Value:
        return self.emit(Reduce(source=source, dims=tuple(dims), monoid=monoid, order=order, nan=nan)).result

    def argreduce(self, source: Value, dims: Sequence[Dim], monoid: str, *, nan: str = "propagate") -> Value:
        return self.emit(ArgReduce(source=source, dims=tuple(dims), monoid=monoid, nan=nan)).result

    def mma(self, a: Value, b: Value, acc: Value) -> Value:
        return self.emit(Mma(a=a, b=b, acc=acc)).result

    def fold(
        self, sources: Sequence[Value], dims: Sequence[Dim], merge: Merge, *, order: Order = "unordered"
    ) -> list[Value]:
        """One result a leaf of the state."""
        return self.several(Fold(sources=tuple(sources), dims=tuple(dims), merge=merge, order=order))

    def scan(
        self,
        sources: Sequence[Value],
        dim: Dim,
        merge: Merge | str,
        *,
        exclusive: bool = False,
        reverse: bool = False,
        order: Order = "ordered",
    ) -> list[Value]:
        """One result a leaf of the state, with the axis along `dim`."""
        op = Scan(sources=tuple(sources), dim=dim, merge=merge, exclusive=exclusive, reverse=reverse, order=order)
        return self.several(op)

    def sort(self, source: Value, dim: Dim, *, to: Part | None = None, descending: bool = False) -> list[Value]:
        """The sorted elements and the coordinates they come from."""
        return self.several(Sort(source=source, dim=dim, to=to, descending=descending))

    def several(self, op: Fold | Scan | Sort) -> list[Value]:
        """Appends an operation with several results."""
        op.results = [self.value(type) for type in result_types(op)]
        op.span = op.span or self.span
        self.block.ops.append(op)
        return op.results

    # ---- showing and testing

    def print(self, label: str, value: Value, where: Value | None = None) -> None:
        self.emit(Print(label=label, value=value, where=where))

    def check(self, cond: Value, message: str) -> None:
        self.emit(Check(cond=cond, message=message))

    # ---- nested blocks

    @contextmanager
    def region(
        self,
        kind: RegionKind,
        args: Sequence[RegionArg],
        inits: Sequence[Value] = (),
        *,
        order: Order = "unordered",
        name: str = "",
        scope: str | None = None,
        versions: int | None = None,
        results: Sequence[str | None] = (),
    ) -> Generator[Region]:
        """A region whose body is built inside `with`, which sets `body.yields`; results exist afterwards.

        *Requires*: one yield an init, of its type.
        """
        hints = list(results) or [v.hint for v in inits]
        op = Region(
            kind=kind,
            args=list(args),
            inits=list(inits),
            carried=[self.value(v.type, h) for v, h in zip(inits, hints)],
            order=order,
            name=name,
            scope=scope,
            versions=versions,
            span=self.span,
        )
        with self.inside(op.body):
            yield op
        if len(op.body.yields) != len(op.inits):
            raise IRStructure(
                doing="building a region",
                found=f"{len(op.body.yields)} yields",
                expected=f"{len(op.inits)}, one an initial value",
            )
        op.results = [self.value(v.type, h) for v, h in zip(inits, hints)]
        self.block.ops.append(op)

    def conditional(self, cond: Value, then: Block, orelse: Block, hints: Sequence[str | None] = ()) -> list[Value]:
        """An `if` of two finished blocks whose yields agree in type."""
        types = [v.type for v in then.yields]
        if [v.type for v in orelse.yields] != types:
            raise IRStructure(
                doing="building an if", found="blocks that yield different types", expected="the same types"
            )
        op = If(cond=cond, then=then, orelse=orelse, span=self.span)
        names: list[str | None] = list(hints) or [None] * len(types)
        op.results = [self.value(t, h) for t, h in zip(types, names)]
        self.block.ops.append(op)
        return op.results
