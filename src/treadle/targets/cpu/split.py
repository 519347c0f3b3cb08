"""A fold that the whole program waits for, in parts for the workers, which are folded then: `vector sweep` of programs
that have no parallel region, rewritten by the rule `factor`."""

from __future__ import annotations

from treadle.ir.core import Program, Region
from treadle.machine.form import MachineProgram
from treadle.plan.facts import CallFacts
from treadle.rules.derivation import Derivation
from treadle.rules.folds import factor
from treadle.targets.cpu.shape import Shape, shape_of
from treadle.targets.cpu.sweep import VectorSweep
from treadle.targets.rewritten import OfRewritten

PARTS = 64
"""Parts of a fold: enough for the last ones not to matter, few enough for folding them not to either."""


def in_parts(program: Program, facts: CallFacts) -> Derivation | None:
    """The fold in parts: blocks of a power of two, about `PARTS` of them at the extents of the call; None of a program
    that is no such fold.

    *Errors*: those of `factor`.
    """
    shape = shape_of(program, facts)
    folds = [op for op in program.body.ops if isinstance(op, Region)]
    if shape.tasks or len(folds) != 1 or folds[0].kind != "reduce" or folds[0].merges:
        return None
    known = shape.known.get(PARTS)
    return known if isinstance(known, Derivation) else _split(shape, folds[0])


def _split(shape: Shape, fold: Region) -> Derivation:
    """The step, remembered for the other points."""
    arg = fold.args[0]
    size = 1 << max(0, (shape.facts.value(arg.domain.extent) // PARTS).bit_length() - 1)
    made = Derivation(shape.program).then(factor, shape.names[id(fold)], arg.name, size)
    shape.known[PARTS] = made
    return made


def split_sweep() -> OfRewritten[MachineProgram]:
    """`vector sweep`, of programs that are one fold by built-in monoids too."""
    return OfRewritten(VectorSweep(), in_parts)
