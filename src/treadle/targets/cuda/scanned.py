"""Rows over lanes for programs with scans, which `expand` has written out as chains: those chains gathered again.

What the step makes are scans as they stand, for which lanes have statements.
"""

from __future__ import annotations

from treadle.ir.core import Program, Region
from treadle.machine.form import MachineProgram
from treadle.plan.facts import CallFacts
from treadle.rules.derivation import Derivation
from treadle.rules.scans import gather
from treadle.targets.cuda.long_rows import LongRows
from treadle.targets.rewritten import OfRewritten


def gathered(program: Program, facts: CallFacts) -> Derivation | None:
    """The steps to a program whose scans stand as they are; None of a program without any.

    *Errors*: those of `gather`.
    """
    del facts
    known = next((found for one, found in _known if one is program), None)
    if known is None:
        known = Derivation(program)
        for op in list(program.body.walk()):
            if isinstance(op, Region) and op.kind == "serial" and op.order == "ordered":
                known = known.then(gather, op.name)
        _known.append((program, known))
        del _known[:-8]
    return known if known.steps else None


def scanned_rows() -> OfRewritten[MachineProgram]:
    """`rows`, of programs with scans too."""
    return OfRewritten(LongRows(), gathered)


_known: list[tuple[Program, Derivation]] = []
