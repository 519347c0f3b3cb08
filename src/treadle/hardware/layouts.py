"""How an atom's fragments lie on the threads of a warpgroup, as modes of a distribution.

*Source*: PTX ISA 9.0, instruction wgmma.mma_async, "Register fragments and shared memory matrix layouts";
run on
the H200 by the hand experiments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Digit = tuple[str, int, int | None, int]
"""who, size, axis, stride."""


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

*Source*: PTX ISA 9.0, "Matrix multiply-accumulate operation using mma instruction", fragments of m16n8k16 and m16n8k8.
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
