"""Permissions of a program that realisation on CUDA spends."""

from __future__ import annotations

from treadle.ir.core import Program
from treadle.ir.ops.elementwise import Elementwise

HARDWARE = ("exp", "exp2", "log2", "rsqrt", "tanh", "sin", "cos")
"""Functions with an approximate instruction."""


def functions_by_hardware(program: Program) -> tuple[str, ...]:
    """A ledger line for the functions that the accuracy class `fast` leaves to the hardware's approximation."""
    if program.numerics.get("functions") != "fast":
        return ()
    used = sorted({op.fn for op in program.body.walk() if isinstance(op, Elementwise) and op.fn in HARDWARE})
    return (f"functions: {', '.join(used)} by the hardware (accuracy class fast)",) if used else ()
