"""What is known of a call when it is planned: the target, representative extents, strides, alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from treadle.algebra.expr import DivisionByZero, Expr
from treadle.ir.core import Program

STREAM_FROM, TOUCHED_FROM = 16 << 20, 40 << 20
"""Bytes stored, and bytes of all arrays, from which non-temporal stores of a CPU win: outputs do not stay in its last
cache anyway (two outputs of 16 MiB beside two inputs: 1.4 to 1.7 times as fast)."""


def streams(stored: int, touched: int) -> bool:
    """Whether outputs go past a CPU's caches, by the bytes that are stored and those of all arrays."""
    return stored >= STREAM_FROM and touched >= TOUCHED_FROM


@dataclass(frozen=True)
class CallFacts:
    """Facts that plans may use; those that a plan does use go into its guard.

    `extents`: representative values of dimension symbols (the plan need not hold for them only). `unit`: (tensor, axis)
    whose stride is one element. `aligned`: tensor -> bytes that its address and pitches are multiples of, no more than
    an element where a stride is negative, which no pitch is. `disjoint`: no output overlaps another argument.
    `features`: the processor's flags; `workers`: how many may be used.
    `same`: pairs that are one view, of which threads may load the one and store the other, and no engine does.
    `coefficients`: seconds a unit of terms of the cost model, where they were measured on the machine in question.
    """

    target: str
    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    unit: frozenset[tuple[str, int]] = frozenset()
    aligned: Mapping[str, int] = field(default_factory=dict[str, int])
    disjoint: bool = True
    same: frozenset[frozenset[str]] = frozenset()
    features: frozenset[str] = frozenset()
    workers: int = 1
    coefficients: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)

    def value(self, expr: Expr, default: int = 256) -> int:
        """The representative value of an extent; `default` for symbols that nothing tells, 0 for what divides by an
        extent that is 0: calls without it have their plans in view."""
        table = {name: self.extents.get(name, default) for name in expr.symbols}
        opaque: dict[str, Callable[..., int]] = dict.fromkeys(expr.functions, lambda *_args: default)
        try:
            return max(0, int(expr.evaluate(table, opaque)))
        except DivisionByZero:
            return 0


def contiguous(
    program: Program,
    target: str,
    extents: Mapping[str, int],
    *,
    workers: int = 1,
    features: frozenset[str] = frozenset(),
) -> CallFacts:
    """The facts of a call with contiguous, 64-byte aligned arguments that do not overlap."""
    return CallFacts(
        target=target,
        extents=dict(extents),
        unit=frozenset((t.name, len(t.dims) - 1) for t in program.tensors if t.dims),
        aligned={t.name: 64 for t in program.tensors},
        features=features,
        workers=workers,
    )
