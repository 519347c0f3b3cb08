"""Printing and reading text: the indenting `Writer`, and `Lines` and `Tokens` for the parsers of textual forms.

A textual form is made of logical lines nested by indentation (`Lines`), and each line is a row of tokens (`Tokens`).
A form that ignores line ends reads one `Tokens` over the whole text. Both know where they are, so that an error
underlines the token it is about.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from treadle.base.errors import UserError
from treadle.base.source import Span, keep_text


class SyntaxMistake(UserError):
    """Text that a parser of treadle's cannot read."""

    code = "text/syntax"


class Writer:
    """Collects lines at the current indentation; `str(writer)` is the text, with a line end at its end."""

    def __init__(self, step: str = "  ") -> None:
        self._step = step
        self._depth = 0
        self._lines: list[str] = []

    def line(self, text: str = "") -> None:
        """Adds a line; an empty one carries no indentation."""
        self._lines.append(self._step * self._depth + text if text else "")

    def lines(self, text: str) -> None:
        """Adds each line of `text`, keeping its own indentation below the current one."""
        for line in text.splitlines():
            self.line(line)

    @contextmanager
    def indent(self, opening: str | None = None, closing: str | None = None) -> Generator[None]:
        """One level deeper inside `with`; `opening` and `closing` are lines of the outer level."""
        if opening is not None:
            self.line(opening)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if closing is not None:
            self.line(closing)

    def __str__(self) -> str:
        return "".join(line + "\n" for line in self._lines)


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `kind` is name, int, float, string or punct; `end` closes every row with an empty text."""

    kind: str
    text: str
    span: Span


_PUNCT = r"->|=>|==|!=|<=|>=|<<|>>|//|\*\*|\.\.\.|\.\.|:=|::|&&|\|\||\+-|[^\s\w]"
_NUMBER = (
    r"(?P<float>0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?[pP][+-]?\d+|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<int>0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)"
)
_STRING = r'(?P<string>"(?:[^"\\]|\\.)*")'
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "r": "\r"}


def _pattern(sigils: str, dotted: bool) -> re.Pattern[str]:
    word = r"[^\W\d]\w*"
    tail = r"(?:\.\w+)*" if dotted else ""
    name = f"{word}{tail}"
    if sigils:
        name = f"[{re.escape(sigils)}][\\w.]+|{name}"
    return re.compile(f"(?P<space>\\s+)|(?P<name>{name})|{_STRING}|{_NUMBER}|(?P<punct>{_PUNCT})")


class Tokens:
    """A row of tokens read from left to right. `sigils` are characters that may begin a name (`%x`, `@f`);
    with `dotted`, `a.b` is one name; `comment` begins a comment that ends with the line."""

    def __init__(
        self,
        text: str,
        file: str = "<text>",
        line: int = 1,
        col: int = 0,
        *,
        sigils: str = "",
        dotted: bool = True,
        comment: str = "#",
        doing: str = "reading text",
    ) -> None:
        self.doing = doing
        self._at = 0
        self._tokens = list(_scan(text, file, line, col, _pattern(sigils, dotted), comment))

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` of the current one; the closing `end` token beyond the last."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def next(self) -> Token:
        token = self.peek()
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    @property
    def done(self) -> bool:
        return self.peek().kind == "end"

    def at(self, *texts: str) -> bool:
        """Whether the next tokens are exactly `texts` (no string literals)."""
        return all(self.peek(i).text == t and self.peek(i).kind != "string" for i, t in enumerate(texts))

    def accept(self, *texts: str) -> bool:
        """Takes the next tokens if they are exactly `texts`, and tells whether they were."""
        if not self.at(*texts):
            return False
        for _ in texts:
            self.next()
        return True

    def expect(self, text: str) -> Token:
        if not self.at(text):
            raise self.error(repr(text))
        return self.next()

    def name(self, what: str = "a name") -> str:
        if self.peek().kind != "name":
            raise self.error(what)
        return self.next().text

    def integer(self, what: str = "an integer") -> int:
        sign = -1 if self.at("-") and self.peek(1).kind == "int" else 1
        if sign < 0:
            self.next()
        if self.peek().kind != "int":
            raise self.error(what)
        return sign * self._integer(self.next())

    def number(self, what: str = "a number") -> int | float:
        """An integer, or a float in decimal or hexadecimal form, `inf` and `nan` among them."""
        sign = -1 if self.at("-") else 1
        start = self._at
        if sign < 0:
            self.next()
        token = self.next()
        if token.kind == "int":
            return sign * self._integer(token)
        if token.kind == "float":
            return sign * self._float(token)
        if token.text in ("inf", "nan") and token.kind == "name":
            return sign * float(token.text)
        self._at = start
        raise self.error(what)

    def _integer(self, token: Token) -> int:
        try:
            return int(token.text, 0)
        except ValueError:  # more digits than Python reads
            self._at -= 1
            raise self.error("a shorter integer", found=f"{len(token.text)} digits") from None

    def _float(self, token: Token) -> float:
        if token.text[:2].lower() != "0x":
            return float(token.text)
        try:
            return float.fromhex(token.text)
        except OverflowError:
            self._at -= 1
            raise self.error("a number that a float holds") from None

    def string(self, what: str = "a string") -> str:
        if self.peek().kind != "string":
            raise self.error(what)
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(1)), self.next().text[1:-1])

    def end(self) -> None:
        """Requires that nothing is left."""
        if not self.done:
            raise self.error("the end of the line")

    def error(self, expected: str, *, found: str | None = None, hint: str | None = None) -> SyntaxMistake:
        """The error to raise at the current token."""
        token = self.peek()
        return SyntaxMistake(
            doing=self.doing,
            found=found or ("the end of the line" if token.kind == "end" else f"{token.text!r}"),
            expected=expected,
            hint=hint or "compare the line with the form's page in docs, or print the form again",
            span=token.span,
        )


def quoted(text: str) -> str:
    """`text` as a string literal that `Tokens.string` reads back."""
    back = {v: k for k, v in _ESCAPES.items()}
    return '"' + "".join(f"\\{back[c]}" if c in back else c for c in text) + '"'


def _scan(text: str, file: str, line: int, col: int, pattern: re.Pattern[str], comment: str) -> Iterator[Token]:
    at, row_start = 0, -col
    while at < len(text):
        here = Span(file, line, at - row_start)
        if comment and text.startswith(comment, at):
            stop = text.find("\n", at)
            at = len(text) if stop < 0 else stop
            continue
        match = pattern.match(text, at)
        assert match is not None, "every character is space, part of a word, or a sign"
        at = match.end()
        if match.lastgroup == "space":
            breaks = match.group().count("\n")
            if breaks:
                line += breaks
                row_start = match.start() + match.group().rfind("\n") + 1
            continue
        kind = match.lastgroup or "punct"
        yield Token(kind, match.group(), Span(file, line, here.col, line, at - row_start))
    yield Token("end", "", Span(file, line, at - row_start, line, at - row_start + 1))


@dataclass(frozen=True, slots=True)
class Line:
    """A logical line: its number, its indentation in spaces, its text without indentation and comment."""

    file: str
    number: int
    indent: int
    text: str

    @property
    def span(self) -> Span:
        return Span(self.file, self.number, self.indent, self.number, self.indent + len(self.text))


class Lines:
    """The lines of a text that carry something, read from top to bottom and nested by indentation."""

    def __init__(
        self,
        text: str,
        file: str = "<text>",
        *,
        sigils: str = "",
        dotted: bool = True,
        comment: str = "#",
        doing: str = "reading text",
    ) -> None:
        keep_text(file, text)
        self.file = file
        self.doing = doing
        self._options = (sigils, dotted, comment)
        self._at = 0
        self._lines: list[Line] = []
        for number, raw in enumerate(text.splitlines(), 1):
            body = _uncommented(raw, comment).rstrip()
            bare = body.lstrip()
            if bare:
                self._lines.append(Line(file, number, len(body.expandtabs(8)) - len(bare.expandtabs(8)), bare))
        self._last = Line(file, max(1, len(text.splitlines())), 0, "")

    @property
    def done(self) -> bool:
        return self._at >= len(self._lines)

    def peek(self) -> Line | None:
        return None if self.done else self._lines[self._at]

    def next(self) -> Line:
        if self.done:
            raise self.error(self._last, "another line", found="the end of the text")
        self._at += 1
        return self._lines[self._at - 1]

    def tokens(self, line: Line | None = None) -> Tokens:
        """The tokens of `line`, or of the next line, which it then takes."""
        line = self.next() if line is None else line
        sigils, dotted, comment = self._options
        return Tokens(
            line.text,
            line.file,
            line.number,
            line.indent,
            sigils=sigils,
            dotted=dotted,
            comment=comment,
            doing=self.doing,
        )

    def block(self, head: Line) -> Iterator[Line]:
        """The lines directly inside `head`: deeper than it, up to the first that is not.

        The body may take further lines (a nested block) while it holds one. Lines of one block are equally deep.
        """
        depth: int | None = None
        while (line := self.peek()) is not None and line.indent > head.indent:
            if depth is None:
                depth = line.indent
            if line.indent != depth:
                raise self.error(line, f"an indentation of {depth}", found=f"an indentation of {line.indent}")
            yield self.next()

    def error(self, line: Line, expected: str, *, found: str | None = None, hint: str | None = None) -> SyntaxMistake:
        """The error to raise about a whole line."""
        return SyntaxMistake(
            doing=self.doing,
            found=found or repr(line.text),
            expected=expected,
            hint=hint or "compare the line with the form's page in docs, or print the form again",
            span=line.span,
        )


def _uncommented(text: str, comment: str) -> str:
    """`text` up to its comment; a comment sign inside a string literal is text."""
    if not comment or comment not in text:
        return text
    quoted_now, at = False, 0
    while at < len(text):
        if quoted_now and text[at] == "\\":
            at += 1
        elif text[at] == '"':
            quoted_now = not quoted_now
        elif not quoted_now and text.startswith(comment, at):
            return text[:at]
        at += 1
    return text
