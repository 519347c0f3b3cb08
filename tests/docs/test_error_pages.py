"""The programs on the pages of errors: a wrong one raises the code that it stands under, a right one runs.

A block begins with ```python wrong or ```python right and belongs to the last heading that names a code. Each is
written to a file of its own and run from there, so that a captured function has a source; the text of ```python before
blocks above it on the page stands before it. `needs X` behind it skips the block where the module X is not installed.
Findings of `sanitize` are no exceptions: ```python wrong finding leaves a list `found` that has the code, and its right
twin an empty one.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle.base.errors import TreadleError

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "errors").glob("*.md"))
CODE = r"[a-z0-9]+(?:-[a-z0-9]+)*/[a-z0-9]+(?:-[a-z0-9]+)*"
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S)
HEADING = re.compile(rf"^(?P<level>#+) [^\n]*?(?P<code>{CODE})[^\n]*$", re.M)


@dataclass(frozen=True)
class Program:
    """A block of a page: the code it stands under, which kind it is, and the line of its first line."""

    page: Path
    code: str
    kind: str
    needs: tuple[str, ...]
    finding: bool
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}-{self.code}-{self.kind}"


def codes(text: str) -> list[re.Match[str]]:
    """The headings of a page that name a code, without what looks like one inside a block."""
    inside = [range(f.start(), f.end()) for f in FENCE.finditer(text)]
    return [h for h in HEADING.finditer(text) if not any(h.start() in r for r in inside)]


def programs(page: Path) -> list[Program]:
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    headings = codes(text)
    found: list[Program] = []
    before = ""
    for fence in fences:
        words = fence["info"].split()
        if words[:1] != ["python"] or len(words) == 1:
            continue
        if words[1] == "before":
            before += fence["text"] + "\n"
            continue
        assert words[1] in ("wrong", "right"), f"{page.name}: a block that is neither wrong nor right: {fence['info']}"
        above = [h["code"] for h in headings if h.start() < fence.start()]
        assert above, f"{page.name}: a block before the first code"
        finding = words[2:3] == ["finding"]
        rest = words[3:] if finding else words[2:]
        assert not rest or rest[0] == "needs", f"{page.name}: {fence['info']}"
        line = text.count("\n", 0, fence.start("text")) + 1
        found.append(Program(page, above[-1], words[1], tuple(rest[1:]), finding, line, before + fence["text"]))
    return found


ALL = [program for page in PAGES for program in programs(page)]


@pytest.mark.parametrize("program", ALL, ids=str)
def test_program(program: Program, tmp_path: Path) -> None:
    for module in program.needs:
        parents = module.split(".")
        whole = (".".join(parents[: i + 1]) for i in range(len(parents)))  # a module of no package cannot be looked for
        if any(importlib.util.find_spec(name) is None for name in whole):
            pytest.skip(f"needs {module}, which the program of the page imports")
    file = tmp_path / f"{program.page.stem}_{program.line}.py"
    file.write_text(program.text)
    if program.kind == "right":
        assert runpy.run_path(str(file)).get("found", []) == []
        return
    if program.finding:
        codes = {finding.code for finding in runpy.run_path(str(file))["found"]}
        assert program.code in codes, codes
        return
    with pytest.raises(TreadleError) as caught:
        runpy.run_path(str(file))
    assert caught.value.code == program.code, str(caught.value)


def test_a_wrong_program_has_a_right_twin() -> None:
    kinds: dict[str, set[str]] = {}
    for program in ALL:
        kinds.setdefault(f"{program.page.name}: {program.code}", set()).add(program.kind)
    assert [code for code, seen in sorted(kinds.items()) if seen != {"wrong", "right"}] == []


def test_every_code_has_programs() -> None:
    shown = {program.code for program in ALL}
    headings = {heading["code"]: page.name for page in PAGES for heading in codes(page.read_text())}
    assert {code: page for code, page in headings.items() if code not in shown} == {}


def test_blocks_are_read_from_a_page(tmp_path: Path) -> None:
    page = tmp_path / "family.md"
    head = "# family\n\n## `family/word`\n\n```python\nshown = 0\n```\n\n```python before\ny = 1\n```\n\n"
    page.write_text(head + "```python wrong needs numpy\n# # family/other\nx = y\n```\n\n```python right\n```\n")
    wrong, right = programs(page)
    assert (wrong.code, wrong.kind, wrong.needs, wrong.line) == ("family/word", "wrong", ("numpy",), 14)
    assert wrong.text == "y = 1\n\n# # family/other\nx = y\n"
    assert (right.code, right.kind, right.text) == ("family/word", "right", "y = 1\n\n")
