"""Index expressions in the words of the user, for messages: coordinates as `m`, loaded elements as `ids[...]`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from treadle.algebra.expr import Constraint, Expr
from treadle.ir.core import Block, Op
from treadle.ir.ops.access import Extract, Load

if TYPE_CHECKING:
    from treadle.lang.context import Context


def index_text(ctx: Context, expr: Expr) -> str:
    """An index expression, and what its coordinates are: `m + 1, with m along M`."""
    text, dims = _worded(ctx, expr)
    return text + (f", with {', '.join(f'{c} along {d}' for d, c in dims.items())}" if dims else "")


def fact_text(ctx: Context, fact: Constraint) -> str:
    """A fact about index expressions."""
    text, _ = _worded(ctx, fact.expr)
    return f"{text} {'==' if fact.equality else '>='} 0"


def _worded(ctx: Context, expr: Expr) -> tuple[str, dict[str, str]]:
    text = str(expr)
    for name in sorted(expr.functions, key=len, reverse=True):
        text = re.sub(rf"{re.escape(name)}\([^()]*\)", _made_by(ctx, name), text)
    dims = {d: _coordinate(d) for d in re.findall(r"@(\w+)", text)}
    for dim, coordinate in dims.items():
        text = re.sub(rf"@{dim}\b", coordinate, text)
    return re.sub(r"\(\((\w+)\) (//|%) \((\w+)\)\)", r"\1 \2 \3", text), dims


def _coordinate(dim: str) -> str:
    """A name for a coordinate along a dimension, unlike the dimension's."""
    return dim.lower() if dim.lower() != dim else f"{dim}_"


def _made_by(ctx: Context, name: str) -> str:
    """What the user calls a value: its name, or what it was loaded from."""
    for scalar in ctx.scalars:
        if scalar.value.name == name:
            return scalar.name
    op = next(
        (op for block in ctx.builder.stack for op in _all(block) if any(v.name == name for v in op.results)), None
    )
    hint = next((v.hint for v in op.results if v.name == name), None) if op is not None else None
    if hint is not None:
        return hint
    if isinstance(op, Load):
        return f"{op.tensor.name}[...]"
    if isinstance(op, Extract) and op.source.hint is not None:
        return f"{op.source.hint}[...]"
    return "a computed integer"


def _all(block: Block) -> list[Op]:
    return list(block.walk())
