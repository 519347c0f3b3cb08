"""Activation functions, computed in f32 (f64 of f64) and rounded once to the operand's dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.dtype import promote as rules
from treadle.lang import pointwise
from treadle.lang.state import context
from treadle.lang.tile import Tile

ROOT_HALF = 0.7071067811865476


def rounded_once(name: str, x: Any, expression: Callable[[Any], Any]) -> Any:
    """`expression` of `x` in f32 (f64 of f64), rounded to the dtype of `x`; f32 of integers. *Errors*: `dtype/...`."""
    ctx = context()
    operand = pointwise.lift(ctx, x, f"computing {name}")
    if not isinstance(operand, Tile):
        operand = ctx.tile(pointwise.constant(ctx, float(operand), rules.f32))
    rules.require_arithmetic(operand.dtype, doing=f"computing {name}", span=ctx.span)
    dtype = rules.function(operand.dtype)
    inner = rules.computing(dtype)
    return pointwise.convert(ctx, expression(pointwise.convert(ctx, operand, inner)), dtype)


def gelu(x: Any) -> Tile:
    """`x * Phi(x)` in the erf form: `0.5 * x * (1 + erf(x / sqrt(2)))`."""
    return rounded_once("gelu", x, lambda v: 0.5 * v * (1.0 + context_function("erf", v * ROOT_HALF)))


def sigmoid(x: Any) -> Tile:
    """`1 / (1 + exp(-x))`."""
    return rounded_once("sigmoid", x, lambda v: 1.0 / (1.0 + context_function("exp", -v)))


def silu(x: Any) -> Tile:
    """`x * sigmoid(x)`."""
    return rounded_once("silu", x, lambda v: v / (1.0 + context_function("exp", -v)))


def softplus(x: Any) -> Tile:
    """`log(1 + exp(x))`, as `max(x, 0) + log1p(exp(-|x|))`, which does not overflow."""

    def expression(v: Any) -> Any:
        tail = context_function("log1p", context_function("exp", -abs(v)))
        return pointwise.binary(context(), "maximum", v, 0.0) + tail

    return rounded_once("softplus", x, expression)


def relu(x: Any) -> Tile:
    """`max(x, 0)` in the operand's dtype; NaN stays NaN."""
    return pointwise.binary(context(), "maximum", x, 0)


def context_function(fn: str, x: Any) -> Any:
    """A float function of the current capture."""
    return pointwise.function(context(), fn, x)
