"""What is emitted: the text, and what a launch of each kernel needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from treadle.algebra.expr import Expr, const

ARRIVALS = 16
"""Bytes of what one launch has for itself: the counter of its meetings, and the next ticket."""


@dataclass(frozen=True)
class Argument:
    """A kernel parameter: a tensor map, a tensor's address, a stride or extent, a scalar, the workspace's address, that
    of a launch's own counters ("arrivals"), or that of the text's ("counted"). Units: `size` in bytes; strides in
    elements."""

    kind: str
    name: str
    axis: int = 0
    size: int = 8


@dataclass(frozen=True)
class MapPlan:
    """A tensor map: the tensor's axes from the innermost dimension outward, and the fields that no call changes.

    `start`: of a workspace buffer, the byte where it begins; None for a tensor argument."""

    name: str
    tensor: str
    dtype: str
    axes: tuple[int, ...]
    extents: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int
    promotion: int
    fill: str
    start: Expr | None = None
    strides: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class KernelLaunchSpec:
    """A launch. `kernel` is the function's name in the text; `grid` workgroups of `threads`; `shared` bytes of
    dynamic shared memory; `arguments` in order; `limits`: expressions that the launch holds against a largest value.
    `counts`: how many of each instruction the text states."""

    kernel: str
    grid: Expr
    threads: int
    shared: int
    arguments: tuple[Argument, ...]
    maps: tuple[MapPlan, ...]
    limits: tuple[tuple[Expr, int], ...]
    cluster: int = 1
    cooperative: bool = False
    dependent: bool = False
    counts: Counter[str] = field(default_factory=Counter[str], compare=False)


@dataclass(frozen=True)
class EmittedCuda:
    """CUDA C++ for `arch`, the launches in order, names for extents that the host computes, and the workspace's
    bytes, of which the last `counted + cleared` are zero when the first launch begins: the counters of the text, and
    those that launches have for themselves."""

    source: str
    arch: str
    launches: tuple[KernelLaunchSpec, ...]
    lets: dict[str, Expr]
    workspace: Expr
    cleared: int = 0
    counted: Expr = const(0)
