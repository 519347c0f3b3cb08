"""The seam to the source program's own text: a machine text embeds it whole.

A machine program is self-contained, so its text carries the program that it claims to realise, in the IR's printed
form.
"""

from __future__ import annotations

from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program


def program_text(program: Program) -> str:
    """The embedded program's text, without the indentation that machine text adds."""
    return print_program(program)


def program_from_text(text: str, file: str) -> Program:
    """The program of an embedded text of `file`. Errors: those of the IR's parser, lines counted within the program."""
    return parse_program(text, f"<the program in {file}>")
