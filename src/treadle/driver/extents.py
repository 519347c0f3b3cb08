"""Extents of a call: every dimension's symbol, from the shapes of the arguments, `td.let`, and what is fixed."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.algebra.expr import Expr, Sym
from treadle.base.source import Span
from treadle.driver.errors import ExtentConflict, ExtentUnknown, RankWrong, RequirementBroken
from treadle.ir.core import Program, Tensor


def solve(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Symbol -> extent, for all dimensions of the program.

    `shapes` has the arguments that were passed. A product axis gives a factor's extent when the others are known.
    *Errors*: `call/rank`, `call/extent-conflict`, `call/extent-unknown`, `call/require`.
    """
    known: dict[str, int] = {}
    source: dict[str, str] = {}
    axes: list[tuple[str, Span | None, Expr, int]] = []
    for tensor in program.tensors:
        if tensor.name in shapes:
            axes += _axes_of(program, tensor, shapes[tensor.name])
    for name, span, expr, extent in axes:
        symbol = _only_symbol(expr)
        if symbol is not None:
            _agree(program, known, source, symbol, extent, name, span)
    _lets(program, known, source)
    _factors(axes, known, source)
    _lets(program, known, source)
    for name, span, expr, extent in axes:
        _check_axis(program, known, source, name, span, expr, extent)
    _require(program, known)
    return known


def _axes_of(program: Program, tensor: Tensor, shape: tuple[int, ...]) -> list[tuple[str, Span | None, Expr, int]]:
    if len(shape) != len(tensor.dims):
        raise RankWrong(
            doing=f"calling {program.name}",
            found=f"{tensor.name} with {len(shape)} axes, shape {shape}",
            expected=f"{len(tensor.dims)} axes: {tensor.name}[{', '.join(map(str, tensor.dims))}]",
            hint="reshape the argument",
            span=tensor.span,
        )
    return [
        (f"axis {i} of {tensor.name}", tensor.span, dim.extent, extent)
        for i, (dim, extent) in enumerate(zip(tensor.dims, shape, strict=True))
    ]


def _only_symbol(expr: Expr) -> str | None:
    """The name when the expression is one symbol."""
    if len(expr.terms) == 1 and expr.terms[0][1] == 1 and len(expr.terms[0][0]) == 1:
        atom = expr.terms[0][0][0]
        return atom.name if isinstance(atom, Sym) else None
    return None


def _agree(
    program: Program,
    known: dict[str, int],
    source: dict[str, str],
    symbol: str,
    extent: int,
    where: str,
    span: Span | None,
) -> None:
    if known.setdefault(symbol, extent) != extent:
        raise ExtentConflict(
            doing=f"calling {program.name}",
            found=f"{symbol} = {extent} at {where}, but {symbol} = {known[symbol]} at {source[symbol]}",
            expected=f"one extent for the dimension {symbol}",
            hint="pass arrays whose axes agree, or use two dimensions (or an alias) if they are different axes",
            span=span,
        )
    source.setdefault(symbol, where)


def _lets(program: Program, known: dict[str, int], source: dict[str, str]) -> None:
    """Extents that `td.let` gives, or checks."""
    for name, expr in program.lets.items():
        if expr.symbols <= known.keys():
            _agree(program, known, source, name, int(expr.evaluate(known)), f"td.let({name}, {expr})", program.span)


def _factors(axes: list[tuple[str, Span | None, Expr, int]], known: dict[str, int], source: dict[str, str]) -> None:
    """The one unknown factor of a product axis, by division."""
    for name, _, expr, extent in axes:
        unknown = expr.symbols - known.keys()
        if len(unknown) != 1:
            continue
        (symbol,) = unknown
        per_unit = expr.substitute({symbol: 1}).evaluate({**known, symbol: 1})
        if per_unit > 0 and extent % per_unit == 0:
            known[symbol] = extent // int(per_unit)
            source[symbol] = name


def _check_axis(
    program: Program,
    known: dict[str, int],
    source: dict[str, str],
    name: str,
    span: Span | None,
    expr: Expr,
    extent: int,
) -> None:
    unknown = sorted(expr.symbols - known.keys())
    if unknown:
        raise ExtentUnknown(
            doing=f"calling {program.name}",
            found=f"no argument that tells the extent of {', '.join(unknown)}",
            expected="an argument with that axis, or td.let",
            hint=f"write td.let({unknown[0]}, ...) at the top of the kernel, or pass the output",
            span=span,
        )
    wanted = int(expr.evaluate(known))
    if wanted != extent:
        raise ExtentConflict(
            doing=f"calling {program.name}",
            found=f"{extent} elements along {name}",
            expected=f"{expr} = {wanted} elements",
            hint="pass an array of that extent",
            span=span,
        )


def _require(program: Program, known: dict[str, int]) -> None:
    for constraint in program.requires:
        if constraint.symbols <= known.keys() and not constraint.holds(known):
            raise RequirementBroken(
                doing=f"calling {program.name}",
                found=", ".join(f"{s} = {known[s]}" for s in sorted(constraint.symbols)),
                expected=f"{constraint}",
                hint="pass arguments that meet the kernel's td.require",
                span=program.span,
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
