"""The seam to the source program's own text: a machine text embeds it whole.

A machine program is self-contained, so its text carries the program that it claims to realise, in the IR's printed
form.
"""

from __future__ import annotations

from treadle.ir.core import Program

try:
    from treadle.ir.parser import parse_program
    from treadle.ir.printer import print_program
except ImportError:  # the IR's text is being written: until then only the program's name stands in the text

    def print_program(program: Program) -> str:
        return f"program {program.name}"

    def parse_program(text: str) -> Program:
        raise ValueError(text)


def program_text(program: Program) -> str:
    """The embedded program's text, without the indentation that machine text adds."""
    return print_program(program)


def program_from_text(text: str) -> Program:
    """The program of an embedded text. Errors: those of the IR's parser."""
    return parse_program(text)
