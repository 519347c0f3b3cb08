"""Runs of computation with conditions in them, gathered so that the usual way through is one piece.

Tiles that a boundary crosses are masked under conditions that seldom hold. Each such condition ends a straight piece of
text, and the assembler orders instructions only inside one: exponentials before a mask and sums after it would take
turns instead of overlapping. So a run is written twice: as it stands, for where its condition holds, and without its
masks. Only for agents that take turns, and runs of a single condition: where other warps fill the gaps, or several
conditions make the masked text common, the longer text costs more than it gains (measured: 4 % of a causal chain, 5 %
of rows; a full chain gains 4 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.machine.form import Body, Compute, Control, Fold, If, Stmt, Version

LEAST = 2
"""Statements besides conditions from which on a run is worth its second text."""


@dataclass(frozen=True)
class Run:
    """Statements of computation in order, and the conditions among them, all the same."""

    items: tuple[Stmt | Control, ...]
    choices: tuple[If, ...]


def gathered(body: Body) -> list[Stmt | Control | Run]:
    """The body with its runs together. Runs do not begin or end with a condition unless it has company on that side."""
    found: list[Stmt | Control | Run] = []
    open_: list[Stmt | Control] = []
    for item in body:
        if _pure(item):
            open_.append(item)
            continue
        if isinstance(item, Version):
            continue
        found += _closed(open_)
        open_ = []
        found.append(item)
    return [*found, *_closed(open_)]


def _closed(items: Sequence[Stmt | Control]) -> list[Stmt | Control | Run]:
    choices = tuple(i for i in items if isinstance(i, If))
    between = [n for n, i in enumerate(items) if not isinstance(i, If)]
    split = any(between[0] < n < between[-1] for n, i in enumerate(items) if isinstance(i, If)) if between else False
    if not split or len(between) < LEAST or any(c.conds != choices[0].conds for c in choices):
        return list(items)
    return [Run(tuple(items), choices)]


def _pure(item: Stmt | Control) -> bool:
    """Whether an item only computes registers from registers, by itself or under a condition on numbers."""
    if isinstance(item, Compute):
        return not item.by
    if isinstance(item, Fold):
        return not item.by
    if not isinstance(item, If) or item.cond is not None or not item.conds:
        return False
    if any(c.equality or c.expr.functions for c in item.conds):
        return False
    return all(isinstance(s, Compute | Fold) and not s.by for s in (*item.then, *item.orelse))
