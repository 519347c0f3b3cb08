"""How an atom's fragments lie on the threads of a warp or a warpgroup, as modes of a distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from treadle.hardware.orderings import PTX, Status

Digit = tuple[str, int, int | None, int]
"""who, size, axis, stride."""


@dataclass(frozen=True)
class Layout:
    """What stands behind the layout of an atom's fragments; `atoms` is how the names of those atoms begin."""

    atoms: str
    holds: str
    source: str
    status: Status


_MMA = PTX.format("Matrix multiply-accumulate operation using mma instruction: fragments of {}")

LAYOUTS: tuple[Layout, ...] = (
    Layout(
        "wgmma",
        "16 rows a warp, pairs of columns a lane, four lanes a row (accumulators and register operands)",
        PTX.format("wgmma.mma_async: Register Fragments and Shared Memory Matrix Layouts"),
        "documented",
    ),
    Layout("mma.sync.m16n8k16", "rows r, r + 8; pairs of the depth, 8 further", _MMA.format("m16n8k16"), "documented"),
    Layout("mma.sync.m16n8k8.tf32", "rows r, r + 8; one of the depth, 4 further", _MMA.format("m16n8k8"), "documented"),
    Layout("mma.sync.m16n8k8.f64", "four fragments, rows r; one of the depth", _MMA.format("m8n8k4"), "documented"),
)
"""One for each way that fragments lie: every atom of a warp or a warpgroup has one."""


class _Mode(Protocol):
    @property
    def who(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def axis(self) -> int | None: ...
    @property
    def stride(self) -> int: ...


def warpgroup_rows_of_16(columns: int) -> list[Digit]:
    """64 x `columns`, as accumulators and register operands of the tensor core have it: 16 rows a warp, pairs of
    columns
    a lane, four lanes a row."""
    digits: list[Digit] = [
        ("slot", 2, 1, 1),
        ("slot", 2, 0, 8),
        ("slot", columns // 8, 1, 8),
        ("lane", 4, 1, 2),
        ("lane", 8, 0, 1),
        ("warp", 4, 0, 16),
    ]
    return [d for d in digits if d[1] > 1]


def matches(dist: tuple[_Mode, ...], columns: int) -> bool:
    """Whether a distribution is that of a warpgroup's tensor-core fragment. Digits of one kind are significant in
    their order; how those of different kinds alternate says nothing."""
    have = [(m.who, m.size, m.axis, m.stride) for m in dist if m.size > 1]
    wanted = warpgroup_rows_of_16(columns)
    return all(
        [d for d in have if d[0] == who] == [d for d in wanted if d[0] == who] for who in ("slot", "lane", "warp")
    )


WARP_ATOMS = {"mma.sync.m16n8k16.bf16": 2, "mma.sync.m16n8k8.tf32": 1, "mma.sync.m16n8k8.f64": 1}
"""Contractions of one warp on 16 rows and 8 columns, and how many neighbours along the depth a register has.

A lane holds rows `lane // 4` and 8 further of the left operand and the result, column `lane // 4` of the right one,
`2 * (lane % 4)` and the next of the result's columns, and of the depth `pair * (lane % 4)`, its `pair - 1` followers
and those `4 * pair` further."""


def warp_depth(pair: int) -> tuple[tuple[int, int], ...]:
    """Of the depth of a warp's contraction, what a lane holds: how often `lane % 4` counts, and what is added."""
    return tuple((pair, 4 * pair * half + i) for half in range(2) for i in range(pair))


def layout_problem(frag: Callable[[str], Any], stmt: Any, dst: Any) -> str | None:
    """Why the fragments of a warpgroup product do not lie as the instruction has them, or None."""
    if len(dst.shape) != 2 or dst.shape[0] != 64 or not matches(dst.dist, dst.shape[1]):
        return f"{dst.name} does not lie as an accumulator does"
    left = getattr(stmt.a, "coords", None)
    if left is not None:
        a = frag(stmt.a.name)
        if len(a.shape) != 2 or a.shape[0] != 64 or not matches(a.dist, a.shape[1]):
            return f"{a.name} does not lie as a register operand does"
    if not hasattr(stmt.b, "index"):
        return "its right operand is not in shared memory"
    return None
