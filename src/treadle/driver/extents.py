"""Extents of a call: every dimension's symbol, from the shapes of the arguments, `td.let`, and what is fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from treadle.algebra.dims import Part
from treadle.algebra.expr import DivisionByZero, Expr, sym
from treadle.base.source import Span
from treadle.driver.errors import ExtentConflict, ExtentUnknown, RankWrong, RequirementBroken
from treadle.driver.packed import element_shapes
from treadle.ir.core import Block, Op, Program, Region, Tensor
from treadle.ir.extents import only_symbol, told_extents
from treadle.ir.ops.fold import ArgReduce
from treadle.ir.ranges import EXTENT, beyond
from treadle.lang.errors import EmptyExtremum, IndexTooLarge


@dataclass(frozen=True)
class Told:
    """An extent that an argument has along an axis: what it must be, and where."""

    where: str
    span: Span | None
    expr: Expr
    extent: int


def solve(
    program: Program, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """Symbol -> extent, for all dimensions of the program.

    `shapes` has the arguments that were passed, those of 4-bit dtypes in bytes; `scalars` the scalar ones, which facts
    may mention. A product axis gives a factor's extent when the others are known.
    *Errors*: `call/rank`, `call/extent-conflict`, `call/extent-unknown`, `call/require`, `bounds/division`.
    """
    try:
        return _solved(program, shapes, scalars or {})
    except DivisionByZero as error:
        error.span, error.doing = program.span, f"calling {program.name}"
        raise


def _solved(program: Program, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, Any]) -> dict[str, int]:
    present = [t for t in program.tensors if t.name in shapes]
    for tensor in present:
        _check_rank(program, tensor, shapes[tensor.name])
    elements = element_shapes(program, shapes)
    axes = [told for t in present for told in _axes_of(t, elements[t.name])]
    known = told_extents(program, elements)
    _one_extent_each(program, axes, known)
    _not_negative(program, known)
    for told in axes:
        _check_axis(program, known, told)
    _require(program, known, scalars)
    return known


def _check_rank(program: Program, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if len(shape) != len(tensor.dims):
        first = int(tensor.devices)
        what = f"{tensor.name}, whose arrays have" if first else f"{tensor.name} with"
        raise RankWrong(
            doing=f"calling {program.name}",
            found=f"{what} {len(shape) - first} axes, shape {shape[first:]}",
            expected=f"{len(tensor.dims) - first} axes: {tensor.name}[{', '.join(map(str, tensor.dims[first:]))}]",
            hint="reshape the argument",
            span=tensor.span,
        )


def _axes_of(tensor: Tensor, shape: tuple[int, ...]) -> list[Told]:
    return [
        Told(_where(tensor, i), tensor.span, dim.extent, extent)
        for i, (dim, extent) in enumerate(zip(tensor.dims, shape, strict=True))
    ]


def _where(tensor: Tensor, axis: int) -> str:
    if not tensor.devices:
        return f"axis {axis} of {tensor.name}"
    return f"axis {axis - 1} of the arrays of {tensor.name}" if axis else f"the list {tensor.name}"


def _one_extent_each(program: Program, axes: Sequence[Told], known: Mapping[str, int]) -> None:
    """A dimension has one extent, wherever an axis or a `td.let` says it."""
    first: dict[str, Told] = {}
    for told in (*axes, *_lets(program, axes, known)):
        symbol = only_symbol(told.expr)
        if symbol is None:
            continue
        before = first.setdefault(symbol, told)
        if before.extent != told.extent:
            raise ExtentConflict(
                doing=f"calling {program.name}",
                found=f"{symbol} = {told.extent} at {told.where}, but {symbol} = {before.extent} at {before.where}",
                expected=f"one extent for the dimension {symbol}",
                hint="pass arrays whose axes agree, or use two dimensions (or an alias) if they are different axes",
                span=told.span,
            )


def _not_negative(program: Program, known: Mapping[str, int]) -> None:
    """What a `td.let` computes is an extent."""
    for name, expr in program.lets.items():
        if known.get(name, 0) < 0:
            told = [f"{s} = {known[s]}" for s in sorted(expr.symbols)]
            raise RequirementBroken(
                doing=f"calling {program.name}",
                found=f"td.let({name}, {expr}) = {known[name]} where {', '.join(told)}",
                expected=f"an extent of {name} of at least 0",
                hint=f"pass arguments for which it is none below 0, or write td.let({name}, td.maximum(..., 0))",
                span=program.span,
            )


def _lets(program: Program, axes: Sequence[Told], known: Mapping[str, int]) -> Iterator[Told]:
    """What each `td.let` says, behind what a product axis has told of the same dimension."""
    for name, expr in program.lets.items():
        if expr.symbols <= known.keys():
            product = next((t for t in axes if name in t.expr.symbols), None)
            if product is not None:
                yield Told(product.where, product.span, sym(name), known[name])
            yield Told(f"td.let({name}, {expr})", program.span, sym(name), int(expr.evaluate(known)))


def _check_axis(program: Program, known: Mapping[str, int], told: Told) -> None:
    unknown = sorted(told.expr.symbols - known.keys())
    if unknown:
        raise ExtentUnknown(
            doing=f"calling {program.name}",
            found=f"no argument that tells the extent of {', '.join(unknown)}",
            expected="an argument with that axis, or td.let",
            hint=f"write td.let({unknown[0]}, ...) at the top of the kernel, or pass the output",
            span=told.span,
        )
    wanted = int(told.expr.evaluate(known))
    if wanted != told.extent:
        raise ExtentConflict(
            doing=f"calling {program.name}",
            found=f"{told.extent} elements along {told.where}",
            expected=f"{told.expr} = {wanted} elements" if told.expr.symbols else f"{wanted} elements",
            hint="pass an array of that extent",
            span=told.span,
        )


def _require(program: Program, known: dict[str, int], scalars: Mapping[str, Any]) -> None:
    values = {s.value.name: s.name for s in program.scalars if s.name in scalars}
    functions = {f: partial(int, scalars[name]) for f, name in values.items()}
    for constraint in program.requires:
        told = constraint.symbols <= known.keys() and constraint.expr.functions <= functions.keys()
        if told and not constraint.holds(known, functions):
            found = [f"{s} = {known[s]}" for s in sorted(constraint.symbols)]
            found += [f"{values[f]} = {scalars[values[f]]}" for f in sorted(constraint.expr.functions)]
            raise RequirementBroken(
                doing=f"calling {program.name}",
                found=", ".join(found),
                expected=f"{constraint}".replace("()", ""),
                hint="pass arguments that meet the kernel's td.require",
                span=program.span,
            )


def refuse_empty(program: Program, extents: Mapping[str, int]) -> None:
    """Refuses a call in which a position of an extremum is asked of no element, as far as extents alone tell.

    Operations in branches, and in regions that have no instance or may have none, are not looked at.
    *Errors*: `reduce/empty`.
    """
    for op in _certain(program.body, extents):
        if not isinstance(op, ArgReduce):
            continue
        for axis in op.source.type.axes:
            if axis.dim in op.dims and _count(axis, extents) == 0:
                raise EmptyExtremum(
                    doing=f"calling {program.name}",
                    found=f"the position of the {op.monoid}imum over {axis.dim}, which has no element",
                    expected="at least one element",
                    hint="ask for the value, which is the identity of an empty range, or test the extent first",
                    span=op.span,
                )


def _certain(block: Block, extents: Mapping[str, int]) -> Iterator[Op]:
    """The operations that run whatever the arguments hold."""
    for op in block.ops:
        yield op
        if isinstance(op, Region) and all(_count(a.domain, extents) for a in op.args):
            yield from _certain(op.body, extents)


def _count(part: Part, extents: Mapping[str, int]) -> int | None:
    """How many coordinates a part has, where extents tell."""
    extent = part.extent
    if extent.functions or not extent.symbols <= extents.keys():
        return None
    return max(0, int(extent.evaluate(extents)))


def refuse_large(
    program: Program, extents: Mapping[str, int], scalars: Mapping[str, Any], *, tested: bool = True
) -> None:
    """Refuses a call in which an index expression may leave 64 bits. `tested`: whether one may, for extents below 2^31.

    *Errors*: `bounds/index-size`.
    """
    if not tested and all(n <= EXTENT[1] for n in extents.values()):
        return
    for found in beyond(program, extents, scalars):
        told = [f"{s} = {extents[s]}" for s in sorted(found.expr.symbols & extents.keys())]
        raise IndexTooLarge(
            doing=f"calling {program.name}",
            found=f"the index expression {found.text}, which may reach {found.reaches}"
            + (f" where {', '.join(told)}" if told else ""),
            expected="index scalars within 64 bits: at most 2^63 - 1, their terms taken together",
            hint="index scalars never wrap: reduce the number with %, or compute it in a dtype that wraps",
            span=found.span,
        )


def shape_of(program: Program, tensor: Tensor, extents: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an output that a call left out. *Errors*: `call/extent-unknown`."""
    for dim in tensor.dims:
        missing = sorted(dim.extent.symbols - extents.keys())
        if missing:
            raise ExtentUnknown(
                doing=f"allocating {tensor.name} of {program.name}",
                found=f"no extent for {', '.join(missing)}",
                expected="every axis of an omitted output to be known",
                hint=f"pass {tensor.name}, or write td.let({missing[0]}, ...) at the top of the kernel",
                span=tensor.span,
            )
    return tuple(int(d.extent.evaluate(extents)) for d in tensor.dims)
