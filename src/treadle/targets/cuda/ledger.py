"""Permissions of a program that realisation on CUDA spends."""

from __future__ import annotations

from treadle.ir.core import Program
from treadle.ir.ops.elementwise import Elementwise
from treadle.math.table import BY_WIDE, FUNCTIONS

HARDWARE = ("exp", "exp2", "log2", "rsqrt", "tanh", "sin", "cos")
"""Functions with an approximate instruction."""


def functions_by_hardware(program: Program, target: str) -> tuple[str, ...]:
    """A ledger line for the functions that the hardware's instructions compute: approximately in accuracy class `fast`,
    else inside expansions whose error was measured over every f32. Those keep the class, but not the bits of other
    machines, so classes `exact` and `storage` have none."""
    accuracy = program.numerics.get("functions") or "2ulp"
    used = sorted(
        {op.fn for op in program.body.walk() if isinstance(op, Elementwise) and op.result.type.dtype.name != "f64"}
    )
    if accuracy == "fast":
        names = [n for n in used if n in HARDWARE]
        return (f"functions: {', '.join(names)} by the hardware (accuracy class fast)",) if names else ()
    arch = target.partition(":")[2]
    rows = {n: FUNCTIONS[n].hardware[arch].ulp for n in used if n in FUNCTIONS and arch in FUNCTIONS[n].hardware}
    if accuracy in BY_WIDE or not rows:
        return ()
    return (f"functions: {', '.join(rows)} by the hardware's ex2 and rcp (<= {max(rows.values())} ulp, measured)",)
