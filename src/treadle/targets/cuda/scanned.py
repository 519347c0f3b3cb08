"""Rows over lanes for programs that are none as they stand: with scans, which `expand` has written out as chains, and
with statements in no parallel region.

What the steps make are scans as they stand, for which lanes have statements, and regions whose instances are tasks.
"""

from __future__ import annotations

from treadle.ir.core import Program, Region
from treadle.machine.form import MachineProgram
from treadle.plan.facts import CallFacts
from treadle.rules.derivation import Derivation
from treadle.rules.scans import gather
from treadle.targets.cuda.enclosed import enclosed
from treadle.targets.cuda.long_rows import LongRows
from treadle.targets.rewritten import OfRewritten


def gathered(program: Program, facts: CallFacts) -> Derivation | None:
    """The steps to a program of parallel regions whose scans stand as they are; None of a program that is one.

    *Errors*: those of `enclose` and `gather`.
    """
    known = next((found for one, under, found in _known if one is program and under is facts), None)
    if known is None:
        known = enclosed(program, facts) or Derivation(program)
        for op in list(known.program.body.walk()):
            if isinstance(op, Region) and op.kind == "serial" and op.order == "ordered":
                known = known.then(gather, op.name)
        _known.append((program, facts, known))
        del _known[:-8]
    return known if known.steps else None


def scanned_rows() -> OfRewritten[MachineProgram]:
    """`rows`, of programs with scans and of whole statements too."""
    return OfRewritten(LongRows(), gathered)


_known: list[tuple[Program, CallFacts, Derivation]] = []
