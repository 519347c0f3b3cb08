"""Small things that several pictures draw: SVG text that fits, boxes, arrows, keys, scrolling frames, tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from treadle.view.markup import Child, Markup, element, join

CHARACTER = 6.7
"""Width of a character of SVG text, in pixels, as wide as any of the style's fixed-width fonts has it."""


def cut(text: str, width: float) -> str:
    """The text, shortened so that it fits into so many pixels."""
    most = int(width / CHARACTER)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…" if most > 4 else ""


def write(
    x: float, y: float, text: str, kind: str = "", width: float | None = None, anchor: str | None = None
) -> Markup:
    """Text at a place, cut to a width; what was cut is its title."""
    shown = text if width is None else cut(text, width)
    title = element("title", text) if shown != text else None
    return element("text", title, shown, x=x, y=y, class_=kind or None, text_anchor=anchor) if shown else Markup("")


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "", round_: float = 0) -> Markup:
    """A rectangle."""
    told = element("title", title) if title else None
    return element("rect", told, x=x, y=y, width=width, height=height, class_=kind, rx=round_ or None)


def arrow(x1: float, y1: float, x2: float, y2: float, kind: str, title: str = "") -> Markup:
    """A curve from left to right or back, with a tip."""
    bend = max(24.0, abs(x2 - x1) * 0.45)
    way = 1 if x2 >= x1 else -1
    path = (
        f"M{x1:.0f} {y1:.0f}C{x1 + way * bend:.0f} {y1:.0f} {x2 - way * bend:.0f} {y2:.0f} {x2 - way * 5:.0f} {y2:.0f}"
    )
    tip = f"M{x2:.0f} {y2:.0f}l{-way * 7} -3.5v7z"
    told = element("title", title) if title else None
    return join((element("path", told, d=path, class_=f"edge {kind}"), element("path", d=tip, class_="tip")))


def picture(width: float, height: float, *children: Child, label: str, **attributes: str | int | bool | None) -> Markup:
    """An SVG of a fixed size in pixels, with a name for those who do not see it."""
    size = {"width": round(width), "height": round(height), "viewBox": f"0 0 {width:.0f} {height:.0f}"}
    return element("svg", *children, role="img", aria_label=label, **size, **attributes)


def frame(inner: Child, label: str) -> Markup:
    """A frame that scrolls, also by keys."""
    return element("div", inner, class_="scroll", tabindex=0, role="region", aria_label=label)


def key(entries: Iterable[tuple[str, str]]) -> Markup:
    """A key of colours: class and meaning."""
    items = (
        element("li", picture(14, 14, box(0, 0, 14, 14, kind, round_=2), label=""), text) for kind, text in entries
    )
    return element("ul", items, class_="key")


def table(head: Sequence[Child], rows: Iterable[Sequence[Child]], label: str, numbers: Sequence[int] = ()) -> Markup:
    """A table in a scrolling frame; columns `numbers` stand to the right."""
    top = element("tr", (element("th", h, scope="col") for h in head))
    body = (
        element("tr", (element("td", cell, class_="n" if i in numbers else None) for i, cell in enumerate(row)))
        for row in rows
    )
    return frame(element("table", element("thead", top), element("tbody", body)), label)


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Names and what they are."""
    return element(
        "dl", ((element("dt", n), element("dd", v)) for n, v in pairs if v not in (None, "")), class_="facts"
    )


def runs(numbers: Iterable[int]) -> str:
    """Numbers as `3, 5-8`."""
    parts: list[str] = []
    order = sorted(set(numbers))
    for _, group in itertools.groupby(enumerate(order), key=lambda p: p[1] - p[0]):
        found = [n for _, n in group]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ", ".join(parts)


def amount(number: float) -> str:
    """Bytes in words."""
    if number < 1024:
        return f"{number:.0f} B"
    return f"{number / 1024:.4g} KiB" if number < 1 << 20 else f"{number / (1 << 20):.4g} MiB"


def duration(seconds: float) -> str:
    """Seconds in words."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def plural(count: int, name: str) -> str:
    """`1 statement`, `2 statements`."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
