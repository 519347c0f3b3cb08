"""The printer, the token reader and fresh names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.base.names import Names, identifier
from treadle.base.text import Lines, SyntaxMistake, Tokens, Writer, quoted


def test_writer_nests() -> None:
    w = Writer()
    with w.indent("loop {", "}"):
        w.line("a")
        w.line()
        with w.indent():
            w.lines("b\n  c")
    assert str(w) == "loop {\n  a\n\n    b\n      c\n}\n"


def test_token_kinds() -> None:
    t = Tokens('%x.1 = f.g(0x1F, 2.5e-3, 0x1.8p3, "a\\"b", 0..n) -> i32 # note', sigils="%@")
    kinds = [(t.peek(i).kind, t.peek(i).text) for i in range(19)]
    assert kinds[:4] == [("name", "%x.1"), ("punct", "="), ("name", "f.g"), ("punct", "(")]
    assert ("float", "0x1.8p3") in kinds and ("string", '"a\\"b"') in kinds
    assert kinds[11:15] == [("punct", ","), ("int", "0"), ("punct", ".."), ("name", "n")]
    assert kinds[-3:] == [("punct", "->"), ("name", "i32"), ("end", "")]


def test_reading() -> None:
    t = Tokens('a < -3 and -inf , 0x1.8p1 "q\\n" end')
    assert t.name() == "a" and t.accept("<") and t.integer() == -3
    assert t.accept("and", "-") and t.number() == float("inf") and t.accept(",")
    assert t.number() == 3.0 and t.string() == "q\n" and not t.accept("a")
    t.expect("end")
    t.end()
    assert t.done


@pytest.mark.parametrize("text", ["a ? b", "x = 3 y", "'"])
def test_mistakes_have_places(text: str) -> None:
    with pytest.raises(SyntaxMistake) as caught:
        t = Tokens(text, "f.tdm", line=7, col=4)
        t.name()
        t.expect("=")
        t.integer()
        t.end()
    span = caught.value.span
    assert span is not None and (span.file, span.line) == ("f.tdm", 7)
    assert text[span.col - 4] in "?y'"


def test_positions_over_lines() -> None:
    t = Tokens("a\n  b # c\n\n d", sigils="")
    assert [(t.peek(i).span.line, t.peek(i).span.col) for i in range(3)] == [(1, 0), (2, 2), (4, 1)]


def test_lines_nest_by_indentation() -> None:
    lines = Lines('head "#1":  # c\n  a\n\n  # only a comment\n  b:\n    c\n  d\nend\n', "x")
    head = lines.next()
    assert head.text == 'head "#1":'
    seen: list[str] = []
    for line in lines.block(head):
        seen.append(line.text)
        seen += [f"+{inner.text}" for inner in lines.block(line)]
    assert seen == ["a", "b:", "+c", "d"]
    assert lines.tokens().name() == "end" and lines.done
    with pytest.raises(SyntaxMistake, match="the end of the text"):
        lines.next()


def test_lines_refuse_a_crooked_block() -> None:
    lines = Lines("h\n  a\n   b\n", "x")
    with pytest.raises(SyntaxMistake, match="an indentation of 3") as caught:
        list(lines.block(lines.next()))
    assert "3 |    b" in str(caught.value)


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_strings_round_trip(text: str) -> None:
    assert Tokens(quoted(text)).string() == text


@given(st.floats(allow_nan=False))
def test_floats_round_trip(value: float) -> None:
    assert Tokens(repr(value)).number() == value == Tokens(value.hex()).number()


def test_fresh_names() -> None:
    names = Names(["acc"])
    assert [names.fresh("acc") for _ in range(3)] == ["acc_1", "acc_2", "acc_3"]
    assert names.fresh("acc_2") == "acc_4" and names.fresh("x") == "x"
    assert names.fresh("y") == "y"
    other = names.fork()
    assert other.fresh("y") == "y_1" and "y_1" not in names and names.fresh("y") == "y_1"


@given(st.text())
def test_identifier_is_one(text: str) -> None:
    name = identifier(text)
    assert name.isidentifier() and name.isascii()
