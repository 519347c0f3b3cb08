"""The source and the machine text with their lines, each linked to the other; where statements stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from treadle.machine.form import MachineProgram, Stmt
from treadle.machine.text import print_machine, statement_lines, statement_text
from treadle.view.drawing import frame, runs
from treadle.view.markup import Child, Markup, element, join
from treadle.view.sheet import Listing


class Lines:
    """Lines of a machine text and of the source, by statement."""

    def __init__(self, machine: MachineProgram) -> None:
        self.text = print_machine(machine).splitlines()
        self.numbers: Mapping[int, int] = statement_lines(machine)
        self.origin: dict[int, int] = {}
        for item in machine.statements():
            if item.origin is not None and id(item) in self.numbers:
                self.origin[self.numbers[id(item)]] = item.origin

    def of(self, item: object) -> int:
        """The line of a statement, a control, a declaration."""
        return self.numbers.get(id(item), 0)

    def links(self, items: Iterable[object]) -> Markup:
        """Links to the lines of statements: `87`, `87-95`."""
        found = sorted({self.of(i) for i in items} - {0})
        if not found:
            return Markup("")
        return join((link(f"m{part.split('-')[0]}", part) for part in runs(found).split(", ")), ", ")


def link(anchor: str, text: Child) -> Markup:
    """A link inside the page."""
    return element("a", text, href=f"#{anchor}")


def core(stmt: Stmt) -> str:
    """A statement's text without its claim and origin."""
    text = statement_text(stmt).split(" ; ")[0]
    return text.rpartition(" origin ")[0] if stmt.origin is not None else text


def source_section(listing: Listing, lines: Lines) -> Markup:
    """The source's lines; the number of each is a link to the first line of machine text that comes from it."""
    first: dict[int, int] = {}
    for number, origin in sorted(lines.origin.items()):
        first.setdefault(origin, number)
    shown = enumerate(listing.lines, listing.first)
    rows = (_line(f"s{n}", n, text, first.get(n), n if n in first else None) for n, text in shown)
    return frame(element("div", element("ol", rows), class_="code mono"), f"source, {listing.file}")


def machine_section(
    lines: Lines, listing: Listing | None, marked: int | None = None, remarks: Mapping[int, str] | None = None
) -> Markup:
    """The machine text; lines that come from the source have a link to it. `remarks` are warnings behind lines."""
    known = range(listing.first, listing.last + 1) if listing is not None else range(0)
    rows: list[Markup] = []
    for number, text in enumerate(lines.text, 1):
        origin = lines.origin.get(number)
        back = None if origin is None else link(f"s{origin}", f"src {origin}") if origin in known else f"src {origin}"
        code, semicolon, claim = text.partition(" ; ") if origin is not None or " ; " in text else (text, "", "")
        remark = (remarks or {}).get(number)
        told = [
            code,
            (" ", element("span", remark, class_="badge clash")) if remark else None,
            element("span", semicolon + claim, class_="claim") if semicolon else None,
        ]
        rows.append(_row(f"m{number}", number, f"#m{number}", told, origin, back, number == marked))
    return frame(element("div", element("ol", rows), class_="code mono"), "machine text")


def _line(anchor: str, number: int, text: str, target: int | None, group: int | None) -> Markup:
    href = None if target is None else f"#m{target}"
    return _row(anchor, number, href, [text], group, None, False)


def _row(
    anchor: str, number: int, href: str | None, told: Sequence[Child], group: int | None, back: Child, marked: bool
) -> Markup:
    digits = element("a" if href else "span", number, class_="no", href=href)
    column = element("span", back, class_="from") if anchor.startswith("m") else None
    lit = "lit" if marked else None
    return element("li", digits, column, element("span", told), id=anchor, data_of=group, class_=lit)
