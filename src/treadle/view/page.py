"""The page of a plan: one HTML file that needs nothing else, put together from its chapters."""

from __future__ import annotations

from treadle.view.distributions import distribution_section
from treadle.view.drawing import facts
from treadle.view.events import event_section
from treadle.view.facts import scene
from treadle.view.judged import badge, planner_section, verdict_section
from treadle.view.lines import Lines, machine_section, source_section
from treadle.view.markup import Child, Markup, element
from treadle.view.nest import nest_section
from treadle.view.script import SCRIPT
from treadle.view.sheet import Sheet
from treadle.view.storage import bank_remarks, memory_section
from treadle.view.style import style
from treadle.view.timeline import timeline_section


def page(sheet: Sheet) -> str:
    """The whole page.

    *Ensures*: no reference leads out of it: no address, no file; equal sheets give equal pages.
    """
    machine = sheet.machine
    lines = Lines(machine)
    here = scene(machine, sheet.extents)
    sections: list[tuple[str, str, str, Child]] = [
        ("nest", "Nest", "Regions as written, and what executes them.", nest_section(machine, lines)),
        ("spread", "Distributions", "Which participant holds which element.", distribution_section(machine)),
        ("memory", "Memory", "Buffers, what is live where, and banks.", memory_section(machine, lines, here)),
        ("events", "Events", "What is ordered, and by which barrier.", event_section(machine, lines)),
        ("timeline", "Timeline", "A few iterations in order.", timeline_section(machine, lines, sheet.extents)),
        ("verdict", "Verdict", "What the independent checker says.", verdict_section(sheet, lines)),
        ("planner", "Planner", "What it cost, and what it was chosen from.", planner_section(sheet)),
    ]
    if sheet.listing is not None:
        told = f"{sheet.listing.file}. A line's number leads to its first statement."
        sections.insert(0, ("source", "Source", told, source_section(sheet.listing, lines)))
    sections.append(
        (
            "machine",
            "Machine text",
            "What was judged, with a link to the source line of each statement.",
            machine_section(lines, sheet.listing, sheet.opinion.line, bank_remarks(machine, here, lines)),
        )
    )
    menu = element("nav", element("ul", (_item(i, name) for i, name, _, _ in sections)), aria_label="chapters")
    body = (_section(i, name, told, inner) for i, name, told, inner in sections)
    title = f"{machine.program.name} on {machine.target}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: plan"),
        element("style", Markup(style())),
    )
    top = element("header", element("h1", title, " ", badge(sheet.opinion.status)), _summary(sheet))
    foot = element("footer", element("p", "Drawn by treadle show. This page is complete: it loads nothing."))
    skip = element("a", "to the content", href="#content", class_="skip")
    script = element("script", Markup(SCRIPT))
    whole = element("body", skip, top, menu, element("main", body, id="content"), foot, script)
    return f"<!doctype html>\n{element('html', head, whole, lang='en')}\n"


def _item(anchor: str, name: str) -> Markup:
    return element("li", element("a", name, href=f"#{anchor}"))


def _section(anchor: str, name: str, told: str, inner: Child) -> Markup:
    head = element("h2", name, id=f"{anchor}-name")
    return element(
        "section", head, element("p", told, class_="note"), inner, id=anchor, aria_labelledby=f"{anchor}-name"
    )


def _summary(sheet: Sheet) -> Markup:
    best = next((a for a in sheet.alternatives if a.state == "taken"), None)
    cost = best.cost if best is not None else None
    dims = ", ".join(f"{n} = {v}" for n, v in sorted(sheet.extents.items()))
    return facts(
        (
            ("plan", element("code", sheet.plan) if sheet.plan else None),
            ("predicted", f"{cost}; bound by {cost.bottleneck}" if cost is not None else None),
            ("at", dims),
            ("numerics", ", ".join(f"{k} = {v}" for k, v in sheet.machine.program.numerics.items())),
        )
    )
