"""The universal plan: every program, every target, no cleverness.

Open blocks have one coordinate, fragments one element, loops run in order, values with axes live in buffers. Where the
program begins with a parallel region its instances become tasks. It is the plan that runs when no other is admitted or
verified, so its generator makes the fewest decisions that a machine program needs.
"""

from __future__ import annotations

from treadle.algebra.expr import Expr, ge
from treadle.analysis.divisors import divisors
from treadle.analysis.uses import Uses
from treadle.base.memo import memoised
from treadle.ir.core import If, Program, Region
from treadle.ir.guard import Bound, Disjoint, Fact, Guard, Injective
from treadle.ir.ops.access import Store
from treadle.machine.form import MachineProgram
from treadle.realise.blocks import realise
from treadle.realise.choices import Choices


def universal(program: Program, target: str, *, disjoint: bool = True) -> MachineProgram:
    """The universal plan of a program, realised.

    `disjoint`: outputs share no byte with other arguments (the guard says so); otherwise loads are copied where they
    stand, and only the promises of the program are used.

    *Errors*: `realise/unsupported`.
    """
    uses = Uses(program)
    choices = Choices(tasks=frozenset(task_regions(program)), snapshots=not disjoint)
    return realise(program, choices, Guard(tuple(base_facts(program, uses, disjoint=disjoint))), target, uses)


def task_regions(program: Program) -> list[str]:
    """Names of the outermost parallel regions, whose instances can be tasks: none that must keep colliding stores in
    order."""
    numbers = {id(op): i for i, op in enumerate(o for o in program.body.walk() if isinstance(o, Region))}
    found: list[str] = []
    todo = list(program.body.ops)
    while todo:
        op = todo.pop(0)
        if isinstance(op, Region) and op.kind == "parallel" and not keeps_order(op):
            found.append(op.name or f"R{numbers[id(op)]}")
        elif isinstance(op, Region | If):
            todo += [i for b in op.blocks for i in b.ops]
    return found


def keeps_order(op: Region) -> bool:
    """Whether the instances of a region collide in stores whose order matters."""
    stores = [s for s in op.body.walk() if isinstance(s, Store) and s.effect != "set"]
    return any(s.order != "unordered" for s in stores)


@memoised
def _divisors(uses: Uses) -> tuple[Expr, ...]:
    return divisors(uses.program)


def base_facts(program: Program, uses: Uses, *, disjoint: bool) -> list[Fact]:
    """Facts that every plan needs: stores hit distinct elements, outputs are apart from what else is touched, and what
    subscripts divide by is positive."""
    facts: list[Fact] = [Injective(name) for name in uses.stored]
    facts += [Bound(ge(e, 1)) for e in _divisors(uses)]
    if disjoint:
        names = [t.name for t in program.tensors if t.name in uses.stored or t.name in uses.loaded]
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                if first in uses.stored or second in uses.stored:
                    facts.append(Disjoint(first, second))
    return facts
