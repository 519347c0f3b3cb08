"""Facts and tests that a kernel states: `td.in_range`, `td.let`, `td.require`, `td.print`, `td.check`."""

from __future__ import annotations

from typing import Any

from treadle.algebra.expr import Constraint, eq, sym
from treadle.dtype import promote as rules
from treadle.dtype.formats import bool_
from treadle.lang import pointwise, subscript
from treadle.lang.dims import Dimension
from treadle.lang.errors import BadArgument, WrongDType
from treadle.lang.state import context
from treadle.lang.tile import Tile
from treadle.lang.wording import fact_text


def in_range(i: Any, V: Any) -> Any:
    """`i`, with the author's promise `0 <= i < V.extent`, which `sanitize` tests."""
    return subscript.promise(context(), i, V)


def let(dim: Any, extent: Any) -> None:
    """Gives a dimension its extent by an expression of others, or checks it. *Errors*: `capture/argument`."""
    ctx = context()
    _at_top("td.let")
    if not isinstance(dim, Dimension):
        raise BadArgument(
            doing="stating td.let",
            found=f"{dim!r}",
            expected="a dimension that td.dims made",
            hint="write td.let(Ho, expression)",
            span=ctx.span,
        )
    expr = ctx.expr_of(extent, "the extent of td.let")
    if expr.functions:
        raise BadArgument(
            doing="stating td.let",
            found=fact_text(ctx, eq(sym(dim.name), expr)),
            expected="an extent that extents and numbers give: nothing else is known when outputs are made",
            hint=f"pass what has the axis {dim.name}, and write td.require({dim.name}.extent == ...)",
            span=ctx.span,
        )
    part = ctx.whole(dim)
    holders = [t for t in ctx.tensors if part.dim in t.dims]
    if ctx.stand_ins or holders:
        _require(eq(part.extent, expr))
    known = ctx.proves(part.extent - expr) and ctx.proves(expr - part.extent)
    # A call may leave Outs out: then nothing but this line gives the extent.
    if not ctx.stand_ins and all(t.out for t in holders) and (holders or not known):
        ctx.lets[part.dim.name] = expr
        ctx.facts.append(eq(part.extent, expr))


def require(condition: Any) -> None:
    """A fact about extents and scalar parameters, checked at the call and known to the planner.

    *Errors*: `capture/argument` where it is no comparison of index expressions.
    """
    ctx = context()
    _at_top("td.require")
    if condition is True:
        return
    fact = condition.fact if isinstance(condition, Tile) else None
    if not fact:
        raise BadArgument(
            doing="stating td.require",
            found="False" if condition is False else f"{condition!r}",
            expected="a true comparison of extents and integer scalar parameters: ==, <, <=, >, >=, joined by &",
            hint="write td.require(K.extent % 128 == 0)",
            span=ctx.span,
        )
    for each in fact:
        _require(each)


def _require(constraint: Constraint) -> None:
    ctx = context()
    known = {s for d in ctx.program_dims for s in d.extent.symbols}
    scalars = {p.value.name for p in ctx.scalars}
    expr = constraint.expr
    if expr.constant is not None and (expr.constant == 0 if constraint.equality else expr.constant >= 0):
        return
    if not expr.symbols <= known or not expr.functions <= scalars:
        if ctx.stand_ins:
            return
        raise BadArgument(
            doing="stating a fact about the call",
            found=fact_text(ctx, constraint),
            expected="extents, scalar parameters and numbers",
            hint="test values that are known only inside the kernel with td.check",
            span=ctx.span,
        )
    if constraint not in ctx.requires:
        ctx.requires.append(constraint)


def _at_top(what: str) -> None:
    ctx = context()
    if len(ctx.builder.stack) > 1 and not ctx.stand_ins:
        raise BadArgument(
            doing=f"stating {what}",
            found="a region or branch around it",
            expected="the top of the kernel",
            hint="move it before the first region",
            span=ctx.span,
        )


def print(label: Any, x: Any = None, where: Any = None) -> None:
    """Shows a whole tile with its coordinates when the kernel runs; changes no result."""
    ctx = context()
    if x is None:
        label, x = "", label
    value = pointwise.lift(ctx, x, "showing a tile with td.print")
    tile = value if isinstance(value, Tile) else ctx.tile(pointwise.constant(ctx, value, rules.weak_alone(value)))
    cond = None if where is None or where is True else _condition(where, "showing a tile with td.print")
    ctx.builder.print(str(label), tile.value, None if cond is None else cond.value)


def check(condition: Any, message: str = "td.check failed") -> None:
    """Raises after the launch where `condition` was false; changes no result."""
    ctx = context()
    if condition is True:
        return
    cond = _condition(condition, "stating td.check")
    ctx.builder.check(cond.value, str(message))


def _condition(x: Any, doing: str) -> Tile:
    ctx = context()
    found = pointwise.lift(ctx, x, doing)
    if isinstance(found, bool):
        return ctx.tile(pointwise.constant(ctx, found, bool_))
    if not isinstance(found, Tile) or not found.dtype.is_bool:
        raise WrongDType(
            doing=doing,
            found=f"{found.type if isinstance(found, Tile) else repr(found)}",
            expected="a bool",
            hint="compare first: x != 0",
            span=ctx.span,
        )
    return found
