"""The error families and the house form of a message.

Every error that treadle raises on purpose is a class with a stable code such as `bounds/unproved`, one class per cause:

    class BoundUnproved(UserError):
        code = "bounds/unproved"

    raise BoundUnproved(
        doing="loading X[m, k + 1] in linear_gelu",
        found="index k + 1 reaches 128",
        expected="an index below the extent 128 of K",
        hint="give the load a fill=, or promise td.in_range(k + 1, K)",
        span=span,
    )

The code's first part is its chapter in the documentation, `docs/errors/<first part>.md`. Defining a class registers
its code; a test requires a page and a snapshot of the exact text for each.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from treadle.base.source import Span, underlined

Note = tuple[Span | None, str]

COLUMNS = 100
"""How wide a message is: longer lines go on below. Lines of source, with a path and of a command stay whole."""

_TOGETHER = re.compile(r"\([^()]{,40}\)|\[[^][]{,40}\]")
_PATH = re.compile(r"(?<!\S)['\"(]?/[^\s/]")

_registry: dict[str, type[TreadleError]] = {}
registry: Mapping[str, type[TreadleError]] = MappingProxyType(_registry)
"""All codes that have been defined so far, and their classes. Import a room to have its codes here."""


class TreadleError(Exception):
    """What was being done, what was found and expected, where, and one thing to try.

    Requires: a class that is raised has a `code` of its own. All fields are text for the user: numbers with units.
    """

    code: ClassVar[str] = ""
    family: ClassVar[str] = "treadle"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        code = cls.__dict__.get("code", "")
        if not code:
            return
        known = _registry.get(code)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"error code {code} is defined by {known.__qualname__} and again by {cls.__qualname__}")
        _registry[code] = cls

    def __init__(
        self,
        *,
        doing: str,
        found: str,
        expected: str,
        hint: str,
        span: Span | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        self.doing = doing
        self.found = found
        self.expected = expected
        self.hint = hint
        self.span = span
        self.notes: tuple[Note, ...] = tuple(notes)
        super().__init__(doing, found, expected)

    @property
    def page(self) -> str:
        """The documentation page of this error's code."""
        return f"docs/errors/{self.code.split('/', 1)[0]}.md"

    def fields(self) -> dict[str, Any]:
        """The constructor's arguments, for pickling and for machine-readable output."""
        return {
            "doing": self.doing,
            "found": self.found,
            "expected": self.expected,
            "hint": self.hint,
            "span": self.span,
            "notes": self.notes,
        }

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (_rebuild, (type(self), self.fields()))

    def __str__(self) -> str:
        lines = _wrapped(f"{self.code}: ", f"{self.family} while {self.doing}", "    ")
        if self.span is not None:
            lines += _place(self.span, "  ")
        lines += _labelled("found", self.found) + _labelled("expected", self.expected)
        for where, text in self.notes:
            lines += _labelled("note", text)
            if where is not None:
                lines += _place(where, "    ")
        lines += self.extra_lines()
        lines += _labelled("try", self.hint)
        lines.append(f"  see {self.page}")
        return "\n".join(lines)

    def extra_lines(self) -> list[str]:
        """Lines that a family adds before the hint."""
        return []


class UserError(TreadleError):
    """The user's program or call is wrong as the language page reads."""

    family = "mistake"


class LimitError(TreadleError):
    """A right program that treadle does not support, and knows it: no plan, a missing device, a form not built."""

    family = "not supported"


class InternalError(TreadleError):
    """A bug of treadle's own. Names the pass, keeps the form before it and prints the command that replays it."""

    family = "bug in treadle"

    def __init__(
        self,
        *,
        doing: str,
        found: str,
        expected: str,
        hint: str = "report this message with the text it names; the replay command is enough to reproduce it",
        span: Span | None = None,
        notes: Sequence[Note] = (),
        pass_name: str | None = None,
        before: str | None = None,
        replay: str | None = None,
    ) -> None:
        super().__init__(doing=doing, found=found, expected=expected, hint=hint, span=span, notes=notes)
        self.pass_name = pass_name
        self.before = before
        self.replay = replay

    def fields(self) -> dict[str, Any]:
        own = {"pass_name": self.pass_name, "before": self.before, "replay": self.replay}
        return super().fields() | own

    def extra_lines(self) -> list[str]:
        lines: list[str] = []
        if self.pass_name is not None:
            lines += _labelled("pass", self.pass_name)
        if self.replay is not None:
            lines.append(f"  {'replay:':<10}{self.replay}")
        return lines


def _rebuild(cls: type[TreadleError], fields: dict[str, Any]) -> TreadleError:
    return cls(**fields)


def _labelled(label: str, text: str) -> list[str]:
    """`label: text`, further lines of the text aligned below its first."""
    first, *rest = text.splitlines() or [""]
    indent, inside = " " * 12, "  " if rest else ""  # where lines are several items, what goes on stands further in
    lines = _wrapped(f"  {label + ':':<10}", first, indent + inside)
    for line in rest:
        words = line.lstrip()
        deeper = indent + " " * (len(line) - len(words))
        lines += _wrapped(deeper, words, deeper + inside)
    return lines


def _wrapped(begin: str, words: str, later: str) -> list[str]:
    """`begin` and the words, in pieces of at most `COLUMNS` of which the later ones begin with `later`.

    Cut at spaces, not between short brackets; what fits stays as it is, spaces and all.
    """
    if len(begin) + len(words) <= COLUMNS or _PATH.search(words):
        return [(begin + words).rstrip()]
    lines = textwrap.wrap(
        _TOGETHER.sub(lambda group: group[0].replace(" ", "\0"), words),
        COLUMNS,
        initial_indent=begin,
        subsequent_indent=later,
        replace_whitespace=False,
        expand_tabs=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines] or [begin.rstrip()]


def _place(span: Span, indent: str) -> list[str]:
    return [f"{indent}at {span}"] + [f"{indent}  {line}" for line in underlined(span)]
