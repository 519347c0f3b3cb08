"""Search without some of what it knows, to see what that knowledge is worth.

The planner decides jointly: where things lie, which instruction contracts, who works, and what crosses from one scope
to the next are settings of one point with one cost. An ablation takes one of these out of the joint decision:

- `place-early`: how data and work are laid out is decided first, with all other axes at the value that their family
  prefers, and not reconsidered;
- `greedy-atoms`: the instruction is decided first, by arithmetic alone, and not reconsidered;
- `no-interface`: every scope at the top of a program is planned by itself, and what crosses lies in memory;
- `no-permission`: what an order policy grants is not known: every fold and scan is the exact chain of its leaves.

It is for experiments (`treadle plan --ablate`): a program that runs is planned with everything.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from treadle.base.errors import LimitError
from treadle.ir.clone import clone_program
from treadle.ir.core import Block, Op, Program, Region
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.fold import Fold, Reduce, Scan
from treadle.ir.rewrite import has_effect, operand_names
from treadle.plan.cost import CostVector
from treadle.plan.family import Axis, Point, Setting, points
from treadle.plan.steps import decided_by

ABLATIONS = ("place-early", "greedy-atoms", "no-interface", "no-permission")
"""The names that `--ablate` takes."""


class NotSeparable(LimitError):
    """A program whose scopes cannot be planned one by one."""

    code = "plan/not-separable"


@dataclass(frozen=True)
class Stage:
    """Axes that are decided together, and whether by arithmetic alone."""

    axes: tuple[Axis, ...]
    arithmetic: bool = False


def stages(axes: Sequence[Axis], ablation: str | None) -> list[Stage]:
    """The axes of a family in the order in which they are decided: all at once, unless an ablation says otherwise."""
    first = {"place-early": "distribute", "greedy-atoms": "refine"}.get(ablation or "")
    early = tuple(a for a in axes if first is not None and decided_by(a.name) == first)
    late = tuple(a for a in axes if a not in early)
    found = [Stage(early, ablation == "greedy-atoms"), Stage(late)] if early else [Stage(tuple(axes))]
    return [s for s in found if s.axes] or [Stage(())]


def staged_points(axes: Sequence[Axis], stage: Stage, known: Mapping[str, Setting]) -> Iterator[Point]:
    """The points that a stage looks at: `known` settings kept, axes that come later at their preferred value."""
    later = {a.name: a.values[0] for a in axes if a not in stage.axes and a.name not in known}
    for point in points(stage.axes):
        yield {a.name: {**later, **known, **point}[a.name] for a in axes}


def worth(cost: CostVector, stage: Stage) -> float:
    """What a stage minimises."""
    return math.inf if math.isinf(cost.total) else cost.compute if stage.arithmetic else cost.total


def separate(program: Program) -> list[Program]:
    """The scopes at the top of a program as programs of their own, with the parameters that each mentions.

    *Ensures*: run in order, they store what the program does. *Errors*: `plan/not-separable` where a value that is no
    parameter crosses.
    """
    found: list[Program] = []
    whole = program.body.ops
    pieces = [op for op in whole if isinstance(op, Region) or has_effect(op)]
    for number, piece in enumerate(pieces):
        mine = _needed(program, piece, [op for op in whole if op not in pieces])
        part = clone_program(_with_body(program, [*mine, piece]))
        part.name = f"{program.name}_{number}" if len(pieces) > 1 else program.name
        touched = [op for op in part.body.walk() if isinstance(op, Load | Store)]
        stored = {op.tensor.name for op in touched if isinstance(op, Store)}
        named = stored | {op.tensor.name for op in touched}
        part.tensors = [copy.copy(t) for t in part.tensors if t.name in named]
        for tensor in part.tensors:
            tensor.out = tensor.name in stored
        by_name = {t.name: t for t in part.tensors}
        for op in touched:
            op.tensor = by_name[op.tensor.name]
        found.append(part)
    return found


def withdrawn(program: Program) -> Program:
    """The program with an exact chain for every fold and scan.

    *Ensures*: it stores one of the results that the program's order policies permit.
    """
    made = clone_program(program)
    for op in made.body.walk():
        if isinstance(op, Reduce | Fold | Scan) or (isinstance(op, Region) and op.kind == "reduce"):
            op.order = op.order if op.order == "fold_right" else "fold_left"
    return made


def ablated(program: Program, ablation: str | None) -> list[Program]:
    """The programs that are planned under an ablation, each by itself, in order."""
    if ablation == "no-interface":
        return separate(program)
    return [withdrawn(program) if ablation == "no-permission" else program]


def _with_body(program: Program, ops: Sequence[Op]) -> Program:
    made = copy.copy(program)
    made.body = Block(list(ops))
    return made


def _needed(program: Program, piece: Op, others: Sequence[Op]) -> list[Op]:
    """The operations without effect that a scope needs from in front of it."""
    names = set[str]()
    for op in (piece, *(x for b in piece.blocks for x in b.walk())):
        names |= operand_names(op) | {v.name for b in op.blocks for v in b.yields}
    kept: list[Op] = []
    for op in reversed(others):
        if any(v.name in names for v in op.results):
            kept.insert(0, op)
            names |= operand_names(op)
    made = {v.name for op in (piece, *kept) for x in (op, *(y for b in op.blocks for y in b.walk())) for v in x.results}
    made |= {v.name for x in (piece, *(y for b in piece.blocks for y in b.walk())) for v in x.parameters}
    crossing = sorted(names - made - {s.value.name for s in program.scalars})
    if crossing:
        raise NotSeparable(
            doing=f"planning the scopes of {program.name} one by one",
            found=f"{crossing[0]} crosses from one to another",
            expected="scopes that share parameters only",
            hint="store it in a parameter",
            span=piece.span,
        )
    return kept
