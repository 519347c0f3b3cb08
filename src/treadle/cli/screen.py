"""What commands print, as wide as the terminal, and at most 100 columns."""

from __future__ import annotations

import shutil
import textwrap

WIDEST = 100


def width() -> int:
    """Columns of a line: those of the terminal, 100 where there is none."""
    return min(WIDEST, max(40, shutil.get_terminal_size((WIDEST, 24)).columns))


def fitted(text: str) -> str:
    """The text with its long lines broken at spaces, and continued four columns further in.

    *Ensures*: the words are the same, in the same order; only a word longer than a line stands out of it.
    """
    columns = width()
    return "\n".join(_lines(line, columns) for line in text.split("\n"))


def _lines(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    inside = line[: len(line) - len(line.lstrip())]
    broken = textwrap.wrap(
        line.lstrip(),
        columns,
        initial_indent=inside,
        subsequent_indent=inside + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(broken)
