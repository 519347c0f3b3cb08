"""The verdict with its judgements, the guard, the ledger; the planner's alternatives with their costs and reasons."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.machine.text import fact_text
from treadle.plan.cost import CostVector
from treadle.view.drawing import box, duration, facts, key, picture, plural, table
from treadle.view.lines import Lines, link
from treadle.view.markup import Child, Markup, element, join
from treadle.view.sheet import Opinion, Sheet

JUDGEMENTS = (
    ("J1", "values", "every slot holds the element that its claim says, every store of the source happens once"),
    ("J2", "order", "no read before its write is visible, no overwrite before its reads are over"),
    ("J3", "protocols", "arrivals, bytes and phases of rings"),
    ("J4", "resources", "indices inside, places apart and aligned, capacity"),
    ("J5", "convergence", "who joins a barrier always joins it; threads hold what they compute with"),
    ("J6", "permissions", "order of folds, contraction, flushing, approximate functions"),
    ("J7", "host", "what the rest takes for granted stands in the guard; launches and tensor maps fit"),
)
PARTS = ("compute", "cache", "memory", "packing", "launch")
_COLOURS = {"compute": "contract", "cache": "work", "memory": "copy", "packing": "sync", "launch": "wait"}


def badge(status: str) -> Markup:
    """A verdict's word in its colour."""
    return element("span", status, class_=f"badge {status}")


def verdict_section(sheet: Sheet, lines: Lines) -> Markup:
    """Verdict, judgements, guard, ledger."""
    opinion = sheet.opinion
    where = link(f"m{opinion.line}", f"line {opinion.line}") if opinion.line else None
    case = ", ".join(f"{k} = {v}" for k, v in (opinion.counterexample or {}).items())
    told = facts(
        (
            ("verdict", badge(opinion.status)),
            ("reason", opinion.reason),
            ("at", where),
            ("against", opinion.partner),
            ("counterexample", case),
            ("missing", opinion.missing),
            ("judged in", f"{opinion.seconds:.3f} s, for all sizes that the guard admits" if opinion.seconds else None),
            ("source", opinion.source),
        )
    )
    rows = [(f"{j} {name}", text, _standing(j, opinion)) for j, name, text in JUDGEMENTS]
    guard = sheet.machine.guard.facts
    held = element(
        "ul", (element("li", element("code", fact_text(f)), " ", _line(f, lines)) for f in guard), class_="short"
    )
    written = sheet.machine.numerics
    unwritten = [p for p in opinion.permissions if not any(entry.startswith(f"{p}:") for entry in written)]
    ledger = [*written, *(f"{p} (found by the judge, without a line in the text)" for p in unwritten)]
    entries = (
        element("ul", (element("li", entry) for entry in ledger))
        if ledger
        else element("p", "Nothing: no permission was spent.")
    )
    return join(
        (
            told,
            element("h3", "Judgements"),
            table(("judgement", "says", "here"), rows, "judgements"),
            element("h3", "Guard: the facts of a call under which all this holds"),
            held if guard else element("p", "None: the plan holds for every call."),
            element("h3", "Ledger: numerical permissions that were spent"),
            entries,
        )
    )


def _standing(judgement: str, opinion: Opinion) -> Child:
    if opinion.status == "verified":
        return element("span", "proved", class_="badge fine")
    if opinion.judgement == judgement:
        return badge(opinion.status)
    return element("span", "not reached or not at fault", class_="note")


def _line(fact: object, lines: Lines) -> Child:
    number = lines.of(fact)
    return link(f"m{number}", f"line {number}") if number else None


# ---- alternatives


def planner_section(sheet: Sheet) -> Markup:
    """The plan taken, the others with their predicted times, and the families that refused."""
    if not sheet.alternatives:
        return element(
            "p",
            "This text came without its planner's answer: plan the kernel itself to see alternatives.",
            class_="note",
        )
    priced = [a for a in sheet.alternatives if a.cost is not None]
    slowest = max((a.cost.total for a in priced if a.cost is not None), default=0.0)
    best = min((a.cost.total for a in priced if a.cost is not None), default=0.0)
    # Times of very different size: bars are cut at ten times the best one.
    whole = min(slowest, 10 * best)
    rows = list(_rows(sheet, whole, best))
    legend = key((_COLOURS[p], p) for p in PARTS)
    head = ("family", "", "predicted", "parts", "against the best", "decisions and reasons")
    named = element("ul", (element("li", n) for n in sheet.names)) if sheet.names else None
    steps = element("ol", (element("li", element("code", s)) for s in sheet.steps)) if sheet.steps else None
    took = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in sheet.seconds.items())
    return join(
        (
            legend,
            table(head, rows, "the planner's alternatives", numbers=(2, 4)),
            element("p", f"Making it took {took}.", class_="note") if took else None,
            (element("h3", "Steps by which it came about"), steps) if steps is not None else None,
            (element("h3", "Names of the source"), named) if named is not None else None,
        )
    )


def _rows(sheet: Sheet, whole: float, best: float) -> Iterator[tuple[Child, ...]]:
    for a in sheet.alternatives:
        mark = element("span", a.state, class_=f"badge {'fine' if a.state == 'taken' else 'unknown'}")
        cost = a.cost
        told = [element("div", element("code", a.line)) if a.line else None, (element("div", r) for r in a.reasons)]
        if a.searched:
            told.append(element("div", f"{plural(a.searched, 'point')} searched", class_="note"))
        if cost is None:
            yield a.family, mark, "", "", "", told
        else:
            times = f"× {cost.total / best:.3g}" if best else ""
            yield a.family, mark, duration(cost.total), _bar(cost, whole), times, told


def _bar(cost: CostVector, whole: float) -> Markup:
    """Arithmetic and traffic overlap: they are two bars, and the longer one counts."""
    width = 150.0
    scale = width / whole if whole else 0.0
    drawn: list[Markup] = []
    for y, parts in ((2, ("compute", "cache")), (13, ("memory",))):
        x = 0.0
        for name in parts:
            length = min(getattr(cost, name) * scale, width - x)
            if length > 0.2:
                drawn.append(box(x, y, length, 9, _COLOURS[name], f"{name} {getattr(cost, name) * 1e6:.3g} us"))
                x += length
    x = min(width, max(cost.compute + cost.cache, cost.memory) * scale)
    for name in ("packing", "launch"):
        length = min(getattr(cost, name) * scale, width - x)
        if length > 0.2:
            drawn.append(box(x, 2, length, 20, _COLOURS[name], f"{name} {getattr(cost, name) * 1e6:.3g} us"))
            x += length
    return picture(width + 4, 24, drawn, label=str(cost))
