"""Subscripts: of tensors and tiles alike, with bounds that are proved, filled or promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr
from treadle.dtype.formats import DType, bool_
from treadle.ir.core import AxisSub, Sub, Tensor, Value
from treadle.ir.infer import flat_subs
from treadle.lang import pointwise
from treadle.lang.dims import PartRef
from treadle.lang.errors import (
    BadArgument,
    DimConflict,
    NotBuilt,
    OutOfRange,
    StoreOutside,
    Unproved,
    WrongDim,
    WrongDType,
    WrongRank,
)
from treadle.lang.objects import ends, is_word, listed
from treadle.lang.tile import Tile
from treadle.lang.wording import index_text

if TYPE_CHECKING:
    from treadle.lang.context import Context


class TensorRef:
    """A tensor parameter inside a kernel. Subscripts load and store; nothing else is done with it."""

    def __init__(self, ctx: Context, tensor: Tensor, known: bool = True) -> None:
        self._ctx = ctx
        self.tensor = tensor
        self.known = known
        """Whether its dtype is fixed; else the first store fixes it."""

    @property
    def dtype(self) -> DType:
        """The scalar format."""
        return self.tensor.dtype

    @property
    def axes(self) -> tuple[Part, ...]:
        """The whole dimensions."""
        return tuple(d.whole() for d in self.tensor.dims)

    def __getitem__(self, key: Any) -> Tile:
        return load(self._ctx, self, key, None)

    def __setitem__(self, key: Any, value: Any) -> None:
        store(self._ctx, self, key, value)

    def at(self, *subs: Any, fill: Any = None) -> Tile:
        """The subscripted elements; `fill` stands for those outside."""
        return load(self._ctx, self, subs, fill)

    def set_at(self, *args: Any, where: Any = None) -> None:
        """Stores the last argument at the other ones, where `where` holds."""
        store(self._ctx, self, args[:-1], args[-1], where=where)

    def add_at(self, *args: Any, where: Any = None, order: str = "unordered") -> Tile:
        """Adds the last argument at the other ones, which may collide; gives the old values."""
        return atomic(self._ctx, self, "add", args, where, order)

    def max_at(self, *args: Any, where: Any = None, order: str = "unordered") -> Tile:
        """Takes the maximum with the last argument at the other ones; gives the old values."""
        return atomic(self._ctx, self, "max", args, where, order)

    def min_at(self, *args: Any, where: Any = None, order: str = "unordered") -> Tile:
        """Takes the minimum with the last argument at the other ones; gives the old values."""
        return atomic(self._ctx, self, "min", args, where, order)

    def __iter__(self) -> NoReturn:
        raise BadArgument(
            doing="iterating in captured code",
            found=f"the tensor {self}",
            expected="a Python iterable, or a region",
            hint="iterate over a dimension: for m in td.parallel(M):",
            span=self._ctx.span,
        )

    def __str__(self) -> str:
        return self.tensor.name

    __repr__ = __str__


# ---- loads and stores


def load(ctx: Context, ref: TensorRef, key: Any, fill: Any) -> Tile:
    """A snapshot of the subscripted elements. *Errors*: `bounds/...`, `dims/...`."""
    subs = subscripts(ctx, ref.tensor.name, ref.axes, key, checked=fill is None)
    number = None if fill is None else pointwise.materialise(ctx, scalar(ctx, fill, "fill="), ref.dtype)
    return ctx.tile(ctx.builder.load(ref.tensor, subs, number))


def extract(ctx: Context, x: Tile, key: Any, fill: Any) -> Tile:
    """The subscripted elements of a tile, in global coordinates."""
    ctx.alive(x)
    subs = subscripts(ctx, "the tile", x.type.axes, key, checked=fill is None)
    number = None if fill is None else pointwise.materialise(ctx, scalar(ctx, fill, "fill="), x.dtype)
    return ctx.tile(ctx.builder.extract(x.value, subs, number), safe=x.safe)


def scalar(ctx: Context, x: Any, what: str) -> pointwise.Operand:
    """A number or scalar tile."""
    found = pointwise.lift(ctx, x, f"reading {what}")
    if isinstance(found, Tile) and found.rank:
        raise BadArgument(
            doing=f"reading {what}",
            found=f"{found.type}",
            expected="a number or a scalar",
            hint="select afterwards with td.where",
            span=ctx.span,
        )
    return found


def store(ctx: Context, ref: TensorRef, key: Any, value: Any, where: Any = None) -> None:
    """`ref[key] = value`. *Errors*: `bounds/...`, `dims/...`, `store/...`."""
    subs = subscripts(ctx, ref.tensor.name, ref.axes, key, checked=True)
    one_device(ctx, f"storing into {ref}", ref, subs)
    stored = stored_value(ctx, f"storing into {ref}", subs, value, ref)
    cond = condition(ctx, f"storing into {ref}", subs, where)
    if cond is not False:
        ctx.builder.store(ref.tensor, subs, stored, where=cond)
    ctx.stored = True


def atomic(ctx: Context, ref: TensorRef, effect: str, args: Sequence[Any], where: Any, order: str) -> Tile:
    """A colliding write. *Errors*: as `store`."""
    doing = f"{effect}_at of {ref}"
    if not is_word(order, ("unordered", "ordered", "fold_left")):
        raise BadArgument(
            doing=doing,
            found=f"order={order!r}",
            expected="td.unordered, td.ordered or td.fold_left",
            hint="leave order= out",
            span=ctx.span,
        )
    subs = subscripts(ctx, ref.tensor.name, ref.axes, tuple(args[:-1]), checked=True)
    one_device(ctx, doing, ref, subs)
    stored = stored_value(ctx, doing, subs, args[-1], ref)
    cond = condition(ctx, doing, subs, where)
    if cond is False:
        cond = pointwise.constant(ctx, False, bool_)
    old = ctx.builder.store(ref.tensor, subs, stored, where=cond, effect=effect, order=order)
    ctx.stored = True
    assert old is not None
    return ctx.tile(old)


def one_device(ctx: Context, doing: str, ref: TensorRef, subs: Sequence[AxisSub]) -> None:
    """*Errors*: `limit/form` for a store that an integer tile spreads over devices."""
    if ref.tensor.devices and any(s.tile is not None for s in flat_subs(subs[:1])):
        raise NotBuilt(
            doing=doing,
            found=f"an integer tile as the device of {ref}",
            expected="a scalar, or a part of the devices",
            hint=f"store from a region over {ref.tensor.dims[0]}.each, with where= for the elements of that device",
            span=ctx.span,
        )


def insert(ctx: Context, x: Tile, key: Any, value: Any) -> Tile:
    """The tile with the subscripted part replaced: what `T[key] = value` gives the name `T`."""
    ctx.alive(x)
    subs = subscripts(ctx, "the tile", x.type.axes, key, checked=True)
    v = pointwise.lift(ctx, value, "assigning a part of a tile")
    inside(ctx, "assigning a part of a tile", subs, v)
    return ctx.tile(ctx.builder.insert(x.value, subs, pointwise.materialise(ctx, v, x.dtype)))


def stored_value(ctx: Context, doing: str, subs: Sequence[AxisSub], value: Any, ref: TensorRef) -> Value:
    """The value in the tensor's dtype, which the first stored tile gives an Out that does not declare it."""
    v = pointwise.lift(ctx, value, doing)
    inside(ctx, doing, subs, v)
    if not ref.known:
        if isinstance(v, Tile):
            ctx.stored_dtypes.setdefault(ref.tensor.name, v.dtype)
    return pointwise.materialise(ctx, v, ref.dtype)


def inside(ctx: Context, doing: str, subs: Sequence[AxisSub], v: pointwise.Operand) -> None:
    """The stored value's axes are among those of the subscripts."""
    axes = joined(ctx, doing, subs)
    for part in v.type.axes if isinstance(v, Tile) else ():
        place = next((a for a in axes if a.dim is part.dim), None)
        if place is None:
            raise StoreOutside(
                doing=doing,
                found=f"a value over {', '.join(map(str, v.type.dims)) if isinstance(v, Tile) else ''}",
                expected=f"a value over {', '.join(str(a.dim) for a in axes) or 'no dimension'}",
                hint=f"reduce over {part.dim} first, or subscript the place with it",
                span=ctx.span,
            )
        if place != part:
            raise DimConflict(
                doing=doing,
                found=f"a value over {pointwise.show_part(part)}",
                expected=f"the part of the subscript, {pointwise.show_part(place)}",
                hint="subscript the place with the part that the value is over",
                span=ctx.span,
            )


def condition(ctx: Context, doing: str, subs: Sequence[AxisSub], where: Any) -> Value | None | Literal[False]:
    """The `where=` of a store as a value; `None` for always, `False` for never."""
    if where is None or where is True:
        return None
    if where is False:
        return False
    cond = pointwise.lift(ctx, where, doing)
    if not isinstance(cond, Tile) or not cond.dtype.is_bool:
        raise WrongDType(
            doing=doing,
            found=f"where= of {cond.dtype if isinstance(cond, Tile) else repr(cond)}",
            expected="a bool tile",
            hint="compare first: where=x != 0",
            span=ctx.span,
        )
    inside(ctx, doing, subs, cond)
    return cond.value


# ---- subscript lists


def subscripts(ctx: Context, name: str, axes: Sequence[Part], key: Any, *, checked: bool) -> tuple[AxisSub, ...]:
    """The subscripts `key` of something with these axes. *Errors*: `dims/...`, `bounds/...` where `checked`."""
    keys = listed(key) if isinstance(key, tuple) else [key]
    doing = f"subscripting {name}"
    groups = _assign(ctx, doing, axes, keys)
    subs: list[AxisSub] = []
    for axis, group in zip(axes, groups):
        if len(group) == 1 and not isinstance(group[0], tuple):
            subs.append(_sub(ctx, doing, axis, group[0], checked))
            continue
        items = listed(group[0]) if len(group) == 1 else group
        factors = axis.dim.factors
        if len(items) != len(factors):
            raise _rank(
                ctx, doing, f"{len(items)} subscripts for {axis.dim}", f"one for each of {len(factors)} factors"
            )
        subs.append(tuple(_sub(ctx, doing, f.whole(), k, checked) for f, k in zip(factors, items)))
    joined(ctx, doing, subs)
    return tuple(subs)


def joined(ctx: Context, doing: str, subs: Sequence[AxisSub]) -> tuple[Part, ...]:
    """The axes of a subscript list. *Errors*: `dims/part-mismatch`."""
    found: list[Part] = []
    for sub in flat_subs(subs):
        axes = (sub.part,) if sub.part is not None else sub.tile.type.axes if sub.tile is not None else ()
        for part in axes:
            known = next((p for p in found if p.dim is part.dim), None)
            if known is None:
                found.append(part)
            elif known != part:
                raise DimConflict(
                    doing=doing,
                    found=f"two parts of {part.dim}: {pointwise.show_part(known)} and {pointwise.show_part(part)}",
                    expected="each dimension in one part only",
                    hint=f"iterate over an alias for one of them: {part.dim}2 = {part.dim}.alias(...)",
                    span=ctx.span,
                )
    return tuple(found)


def _assign(ctx: Context, doing: str, axes: Sequence[Part], keys: list[Any]) -> list[list[Any]]:
    """Which keys belong to which axis: one each, or one for each factor of a product axis in place."""
    options = _splits(axes, keys)
    if not options:
        wanted = f"{len(axes)}, one for each of {', '.join(str(a.dim) for a in axes)}" if axes else "none: []"
        raise _rank(ctx, doing, f"{len(keys)} subscripts", wanted)
    fitting = [o for o in options if all(_fits(ctx, a, g) for a, g in zip(axes, o))]
    return (fitting or options)[0]


def _splits(axes: Sequence[Part], keys: list[Any]) -> list[list[list[Any]]]:
    if not axes:
        return [] if keys else [[]]
    found: list[list[list[Any]]] = []
    factors = len(axes[0].dim.factors)
    for take in (1, factors) if factors and axes[0] == axes[0].dim.whole() else (1,):
        if take <= len(keys):
            found += [[keys[:take], *rest] for rest in _splits(axes[1:], keys[take:])]
    return found


def _fits(ctx: Context, axis: Part, group: list[Any]) -> bool:
    targets = [axis.dim] if len(group) == 1 else list(axis.dim.factors)
    for key, target in zip(group, targets):
        if isinstance(key, PartRef) and _dim_of(key).root is not target.root:
            return False
    return True


def _dim_of(ref: PartRef) -> Dim:
    return ref.part.dim


def _rank(ctx: Context, doing: str, found: str, expected: str) -> WrongRank:
    return WrongRank(
        doing=doing,
        found=found,
        expected=expected,
        hint="give one subscript an axis; : is the whole axis",
        span=ctx.span,
    )


def _sub(ctx: Context, doing: str, axis: Part, key: Any, checked: bool) -> Sub:
    piece = ends(key)
    if piece is not None:
        if piece == (None, None, None):
            return Sub(part=axis)
        key = ctx.slice_part(ctx.part_ref(axis), key)
    if isinstance(key, PartRef):
        return _part_sub(ctx, doing, axis, key, checked)
    x = pointwise.lift(ctx, key, doing)
    if isinstance(x, Tile) and not x.dtype.is_int:
        raise WrongDType(
            doing=doing,
            found=f"a subscript of {x.type}",
            expected="integers",
            hint="select elements with td.where, or convert with .to(i64)",
            span=ctx.span,
        )
    if isinstance(x, Tile) and x.rank:
        promised = checked and _check(ctx, doing, axis, x.expr, x.type.axes)
        return Sub(tile=x.value, promised=promised)
    expr = ctx.expr_of(x, "a subscript")
    if not isinstance(x, Tile) and isinstance(x, int) and x < 0:
        raise OutOfRange(
            doing=doing,
            found=f"the subscript {x} of {axis.dim}",
            expected="a coordinate, which starts at 0; nothing counts from the end",
            hint=f"write {axis.dim}.extent - {-x}",
            span=ctx.span,
        )
    return Sub(index=expr, promised=checked and _check(ctx, doing, axis, expr, ()))


def _part_sub(ctx: Context, doing: str, axis: Part, ref: PartRef, checked: bool) -> Sub:
    ctx.alive(ref)
    part = ref.part
    if part.dim.root is not axis.dim.root:
        raise WrongDim(
            doing=doing,
            found=f"{ref}, a part of {part.dim}, on an axis of {axis.dim}",
            expected=f"a part of {axis.dim} or of an alias of it",
            hint=f"write {ref}.coords if its coordinates are meant as subscripts",
            span=ctx.span,
        )
    if checked and axis != axis.dim.whole() and part != axis:
        known = ctx.bounds_of(part)
        empty_ok = ctx.proves(part.lo - part.hi)
        below = any(ctx.proves(e - axis.lo) for e in known.lows) or ctx.proves(part.lo - axis.lo)
        above = any(ctx.proves(axis.hi - e) for e in known.highs) or ctx.proves(axis.hi - part.hi)
        if not empty_ok and not (below and above):
            raise Unproved(
                doing=doing,
                found=f"the part {pointwise.show_part(part)}",
                expected=f"a part of the axis {pointwise.show_part(axis)}",
                hint="give the subscript as .at(..., fill=...), or take a part of the axis: part[lo:hi]",
                span=ctx.span,
            )
    return Sub(part=part)


def _check(ctx: Context, doing: str, axis: Part, expr: Expr | None, axes: Sequence[Part]) -> bool:
    """Whether the proof that an index is in range needed a promise. *Errors*: `bounds/unproved`, `bounds/outside`."""
    if expr is not None:
        if in_range(ctx, axis, expr, axes, promises=False):
            return False
        if in_range(ctx, axis, expr, axes, promises=True):
            return True
        number, size = expr.constant, axis.hi.constant
        if number is not None and size is not None:
            raise OutOfRange(
                doing=doing,
                found=f"the subscript {number}",
                expected=f"a coordinate of {axis.dim}: 0 to {size - 1}",
                hint="give the subscript as .at(..., fill=...) if elements outside are meant",
                span=ctx.span,
            )
    text = "(computed)" if expr is None else index_text(ctx, expr)
    raise Unproved(
        doing=doing,
        found=f"the subscript {text}, not seen to stay in {axis.lo} .. {axis.hi} - 1",
        expected=f"a coordinate of {axis.dim}",
        hint=f"use .at(..., fill=value), promise td.in_range(i, {axis.dim}), or state a fact: td.require(...)",
        span=ctx.span,
    )


def in_range(ctx: Context, axis: Part, expr: Expr, axes: Sequence[Part], *, promises: bool) -> bool:
    """Whether the element expression is proved to lie in the axis."""
    more: list[Constraint] = ctx.axis_facts(axes)
    below = ctx.proves(expr - axis.lo, promises=promises, more=more)
    return below and ctx.proves(axis.hi - 1 - expr, promises=promises, more=more)


def promise(ctx: Context, i: Any, dim: Any) -> Any:
    """`td.in_range(i, V)`: the same value, with the author's promise that it is a coordinate of `V`."""
    if not isinstance(dim, PartRef):
        raise BadArgument(
            doing="promising td.in_range",
            found=f"{dim!r} as the dimension",
            expected="a dimension or a part of one",
            hint="write td.in_range(i, V)",
            span=ctx.span,
        )
    x = pointwise.lift(ctx, i, "promising td.in_range")
    part = dim.part
    if not isinstance(x, Tile):
        expr = ctx.expr_of(x, "the index of td.in_range")
        ctx.promises += [Constraint(expr - part.lo), Constraint(part.hi - 1 - expr)]
        return x
    if not x.dtype.is_int or x.expr is None:
        raise WrongDType(
            doing="promising td.in_range",
            found=f"{x.type}",
            expected="integers",
            hint="convert with .to(i64)",
            span=ctx.span,
        )
    ctx.promises += [Constraint(x.expr - part.lo), Constraint(part.hi - 1 - x.expr)]
    return Tile(x.type, x.block, value=x.known_value, expr=x.expr, safe=True, fact=x.fact)
