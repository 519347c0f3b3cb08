"""The house form of a message, its pieces, and that errors survive pickling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.base.errors import InternalError, LimitError, TreadleError, UserError, registry
from treadle.base.source import Span, keep_text, shown_path, source_line, underlined

TEXT = "for m in td.parallel(M):\n    Y[m] = X[m + 1]\n\tZ = (a +\n      b)\n"


class ExampleMistake(UserError):
    code = "test-example/mistake"


class ExampleLimit(LimitError):
    code = "test-example/limit"


class ExampleBug(InternalError):
    code = "test-example/bug"


def mistake() -> ExampleMistake:
    keep_text("kernel.py", TEXT)
    return ExampleMistake(
        doing="loading X[m + 1]",
        found="index m + 1 reaches 128",
        expected="an index below 128, the extent of M\n(in elements)",
        hint="give the load a fill=",
        span=Span("kernel.py", 2, 11, 2, 19),
        notes=[(Span("kernel.py", 1, 4, 1, 5), "m runs over M here"), (None, "M.extent is 128")],
    )


def test_house_form() -> None:
    assert str(mistake()).splitlines() == [
        "test-example/mistake: mistake while loading X[m + 1]",
        "  at kernel.py:2",
        "    2 |     Y[m] = X[m + 1]",
        "      |            ^^^^^^^^",
        "  found:    index m + 1 reaches 128",
        "  expected: an index below 128, the extent of M",
        "            (in elements)",
        "  note:     m runs over M here",
        "    at kernel.py:1",
        "      1 | for m in td.parallel(M):",
        "        |     ^",
        "  note:     M.extent is 128",
        "  try:      give the load a fill=",
        "  see docs/errors/test-example.md",
    ]


@given(*[st.lists(st.text("ab .,-", max_size=30), max_size=12).map("\n   ".join) for _ in range(4)])
def test_words_fit(doing: str, found: str, expected: str, hint: str) -> None:
    """No line is wider than 100 columns but for one word, and no word is lost or moved."""
    doing = doing.replace("\n", " ") * 3
    found = found.replace("\n", " ")
    error = ExampleMistake(doing=doing, found=found, expected=expected, hint=hint, notes=[(None, found)])
    lines = str(error).splitlines()
    for line in lines:
        label = line[:12] if line[:4].strip() and line[11:12] == " " else ""
        assert len(line) <= 100 or len(line[len(label) :].split()) <= 1, line
    said = f"{doing} found: {found} expected: {expected} note: {found} try: {hint}".split()
    assert " ".join(lines).split()[3:-2] == said
    assert all(not line or line.startswith(" ") for line in lines[1:])


def test_what_is_copied_stays_whole() -> None:
    command, path = (
        "treadle plan " + "--dim M=1 " * 20 + "end",
        "the file /a/" + "b" * 60 + " and the file /c/" + "d" * 60,
    )
    facts = "the facts " + "; ".join(["disjoint(X, Y)"] * 12)
    bug = ExampleBug(doing="x", found=path, expected=facts, pass_name="fold", before="ir", replay=command)
    lines = str(bug).splitlines()
    assert f"  replay:   {command}" in lines and f"  found:    {path}" in lines
    assert " ".join(lines).count("disjoint(X, Y)") == 12


def test_bug_names_pass_and_replay() -> None:
    bug = ExampleBug(doing="lowering", found="a", expected="b", pass_name="fold", before="ir", replay="treadle x")
    lines = str(bug).splitlines()
    assert (
        "  pass:     fold" in lines
        and "  replay:   treadle x" in lines
        and lines[0].startswith("test-example/bug: bug")
    )


@pytest.mark.parametrize(
    "error", [mistake(), ExampleBug(doing="d", found="f", expected="e", pass_name="p", before="x")]
)
def test_pickle(error: TreadleError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and again.fields() == error.fields() and str(again) == str(error)


def test_registry_refuses_a_second_class() -> None:
    assert registry["test-example/limit"] is ExampleLimit
    with pytest.raises(TypeError, match="test-example/limit"):
        type("Other", (UserError,), {"code": "test-example/limit"})


def test_families_are_apart() -> None:
    assert ExampleLimit.family != ExampleMistake.family != ExampleBug.family
    assert not issubclass(ExampleLimit, UserError)


def test_underlining() -> None:
    keep_text("t.py", TEXT)
    assert underlined(Span("t.py", 3, 1, 4, 8)) == [
        "3 | \tZ = (a +",
        "  | \t^^^^^^^^",
        "4 |       b)",
        "  |       ^^",
    ]
    assert underlined(Span("t.py", 1))[1] == "  | " + "^" * 24
    assert underlined(Span("t.py", 1, 0, 4, 8), context=1)[-1] == "  | ... 3 more lines"
    assert underlined(Span("missing.py", 3)) == []


def test_lines_from_disk_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "k.py"
    file.write_text("a = 1\n")
    assert source_line(str(file), 1) == "a = 1" and source_line(str(file), 2) is None
    monkeypatch.chdir(tmp_path)
    assert shown_path(str(file)) == "k.py" and shown_path("<ipython>") == "<ipython>"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert shown_path(str(file)) == str(file)


def test_join() -> None:
    a, b = Span("f", 1, 4, 1, 9), Span("f", 2, 0, 3, 2)
    assert a.join(b) == b.join(a) == Span("f", 1, 4, 3, 2)
    assert Span("f", 1, 0, 4, 0).join(a) == Span("f", 1, 0, 4, 0)
