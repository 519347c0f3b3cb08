"""The page against the machine program: everything that is declared appears, every link leads somewhere, nothing is
fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest
from tests.view.plans import NAMES, drawn, machine, planned

from treadle.machine.text import fact_text, print_machine
from treadle.view.page import page
from treadle.view.sheet import Opinion, Sheet

VOID = {"meta", "br", "hr", "link"}


@dataclass
class Read(HTMLParser):
    """What a page holds: open tags by the section that they stand in, texts, ids, links."""

    sections: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    open: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    section: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.attributes |= set(named)
        if "id" in named:
            self.ids.append(named["id"])
        if "href" in named:
            self.links.append(named["href"])
        if tag == "section":
            self.section = named["id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes |= set(dict(attrs))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)
        if tag not in ("span", "a", "code", "strong"):
            self.handle_data("\n")
        if tag == "section":
            self.section = ""

    def handle_data(self, data):
        self.sections[self.section] = self.sections.get(self.section, "") + data


def read(text: str) -> Read:
    found = Read()
    found.feed(text)
    found.close()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_is_declared_appears(name):
    found, program = read(drawn(name)), machine(name)
    text = found.sections
    for kernel in program.kernels:
        for buffer in kernel.buffers:
            assert re.search(rf"\b{buffer.name}\b", text["memory"])
            if buffer.place == "shared":
                for slot in range(max(1, buffer.versions)):
                    assert f"{buffer.name} slot {slot}: bytes" in text["memory"]
        for frag in kernel.frags:
            assert re.search(rf"\b{frag.name}\b", text["spread"])
        for barrier in kernel.barriers:
            assert barrier.name in text["events"] and f"{barrier.count} arrivals" in text["events"]
            assert barrier.name in text["memory"]
        for role in kernel.roles:
            assert f"{kernel.name}: {role.name}" in text["nest"]
    for buffer in program.host.workspace:
        assert buffer.name in text["memory"]
    for launch in program.host.launches:
        assert launch.kernel in text["events"]
    for fact in program.guard.facts:
        assert fact_text(fact) in text["verdict"]
    for entry in program.numerics:
        assert entry in text["verdict"]
    for line in print_machine(program).splitlines():
        assert all(part in text["machine"] for part in line.split(" ; "))  # a remark may stand before the claim
    assert "verified" in text["verdict"] and planned(name).decisions.line() in text["planner"]
    choice = planned(name)._built.candidate.choice
    for gone in choice.rejected:
        assert gone.family in text["planner"] and all(reason in text["planner"] for reason in gone.reasons)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_whole_and_alone(name):
    text = drawn(name)
    found = read(text)
    assert found.open == [] and found.wrong == []
    assert len(set(found.ids)) == len(found.ids)
    assert {link for link in found.links if link.removeprefix("#") not in found.ids or link[:1] != "#"} == set()
    assert "src" not in found.attributes
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|import\(", text)
    assert "/" not in (found.sections["source"].splitlines() or [""])[0].split(". ")[0]


def test_equal_sheets_give_equal_pages():
    assert planned("linear").page() == drawn("linear")


def test_source_and_text_are_linked_both_ways():
    found, program = read(drawn("linear")), machine("linear")
    text = print_machine(program).splitlines()
    origins = {}
    for number, line in enumerate(text, 1):
        if match := re.search(r" origin (\d+)", line):
            origins.setdefault(int(match[1]), number)
    assert len(origins) > 4
    for origin, first in origins.items():
        assert f"#s{origin}" in found.links and f"#m{first}" in found.links
        assert f'data-of="{origin}"' in drawn("linear")


def test_what_a_rejection_speaks_of_is_marked():
    program = machine("sweep")
    case = Opinion("rejected", "J1", 40, "a slot <holds> something else", {"M": 3}, "M >= 4", 0.1)
    text = page(Sheet(program, case))
    found = read(text)
    assert "a slot &lt;holds&gt; something else" in text and "M = 3" in found.sections["verdict"]
    assert re.search(r'<li id="m40"[^>]*class="lit"', text) and "badge rejected" in text
    assert "proved" not in found.sections["verdict"] and "source" not in found.sections
