"""Positions in source text, and how they are shown: the line itself with the part in question underlined.

A `Span` is plain data and survives pickling. The text is looked up when a message is printed: first among the texts
registered by `keep_text` (machine text read from a string, a notebook cell), then through `linecache`, which also
knows IPython's cells. A file that cannot be read shows its position only.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
from dataclasses import dataclass

_kept: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A part of a source file. Lines count from 1, columns from 0 as in Python's `ast`; `end_col` is exclusive."""

    file: str
    line: int
    col: int = 0
    end_line: int | None = None
    end_col: int | None = None

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.line}"

    @property
    def last_line(self) -> int:
        return self.line if self.end_line is None else self.end_line

    def join(self, other: Span) -> Span:
        """The smallest span over both. Requires: both are of one file."""
        first, last = sorted((self, other), key=lambda s: (s.line, s.col))
        if (first.last_line, first.end_col or 0) >= (last.last_line, last.end_col or 0):
            last = first
        return Span(first.file, first.line, first.col, last.last_line, last.end_col)


def keep_text(file: str, text: str) -> None:
    """Registers `text` as what `file` holds, for positions in text that is not on disk."""
    _kept[file] = text.splitlines()


def source_line(file: str, line: int) -> str | None:
    """The text of a line without its end, or None where it is not to be had."""
    kept = _kept.get(file)
    if kept is not None:
        return kept[line - 1] if 1 <= line <= len(kept) else None
    text = linecache.getline(file, line)
    return text.rstrip("\r\n") if text else None


def user_position() -> Span | None:
    """Where the code that called treadle stands now; `None` on the command line, which no line of the user's calls."""
    frame = inspect.currentframe()
    while frame is not None and _is_ours(module := str(frame.f_globals.get("__name__", ""))):
        if module.startswith("treadle.cli"):
            return None
        frame = frame.f_back
    if frame is None:
        return None
    code, at = frame.f_code, max(frame.f_lasti // 2, 0)
    line, end_line, col, end_col = next(itertools.islice(code.co_positions(), at, None), (None,) * 4)
    if line is None:
        return Span(code.co_filename, frame.f_lineno)
    return Span(code.co_filename, line, col or 0, end_line, end_col)


def _is_ours(module: str) -> bool:
    return module == "treadle" or module.startswith("treadle.")


def shown_path(file: str) -> str:
    """`file` relative to the working directory where it lies below it, else as it is."""
    if file.startswith("<") or not os.path.isabs(file):
        return file
    try:
        here = os.getcwd()
    except OSError:  # the directory is gone
        return file
    return os.path.relpath(file, here) if file.startswith(here.rstrip(os.sep) + os.sep) else file


def underlined(span: Span, context: int = 3) -> list[str]:
    """The lines of `span` with their numbers and a row of carets below each.

    At most `context` lines are shown; of a longer span the rest is counted. Empty where the text is not to be had.
    """
    width = len(str(span.last_line))
    shown = range(span.line, min(span.last_line, span.line + context - 1) + 1)
    out: list[str] = []
    for number in shown:
        text = source_line(span.file, number)
        if text is None:
            return out
        start, stop = _columns(span, number, text)
        # A tab before the caret keeps its width, so that the caret stands under its character.
        lead = "".join("\t" if c == "\t" else " " for c in text[:start])
        out.append(f"{number:>{width}} | {text}".rstrip())
        out.append(f"{'':>{width}} | {lead}{'^' * max(1, stop - start)}")
    left = span.last_line - shown[-1]
    if left > 0:
        out.append(f"{'':>{width}} | ... {left} more line{'s' if left > 1 else ''}")
    return out


def _columns(span: Span, number: int, text: str) -> tuple[int, int]:
    """Which characters of line `number` the span covers: all but the indentation where it gives no columns."""
    indent = len(text) - len(text.lstrip())
    start = span.col if number == span.line else indent
    if number == span.last_line and span.end_col is not None:
        return start, span.end_col
    if number == span.line and span.end_col is None and span.col == 0:
        start = indent
    return start, len(text.rstrip())
