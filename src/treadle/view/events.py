"""The event graph: what each role does to be ordered with others, and the barriers between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.machine.expression_text import show
from treadle.machine.form import (
    Barrier,
    Body,
    Copy,
    If,
    Kernel,
    Loop,
    MachineProgram,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)
from treadle.view.drawing import arrow, box, frame, key, picture, write
from treadle.view.facts import is_async
from treadle.view.lines import Lines, core
from treadle.view.markup import Markup, element, join

_COLUMN, _GAP, _ROW = 350, 175, 24


@dataclass(frozen=True)
class Node:
    """A statement of a role that orders something. `tells`, `hears`: the barriers that it arrives at and waits for."""

    role: str
    stmt: Stmt
    depth: int
    tells: tuple[str, ...] = ()
    hears: tuple[str, ...] = ()


@dataclass(frozen=True)
class Head:
    """The head of tasks, a loop or an `if` around nodes."""

    role: str
    text: str
    depth: int


def nodes(role: Role) -> list[Node | Head]:
    """The statements that order something, in order, with the heads of the control around them."""
    return list(_nodes(role.name, role.body, 0))


def _nodes(role: str, body: Body, depth: int) -> Iterator[Node | Head]:
    for item in body:
        if isinstance(item, Stmt):
            tells, hears = barriers_of(item)
            if tells or hears or _telling(item):
                yield Node(role, item, depth, tells, hears)
        elif any(_telling(s) or any(barriers_of(s)) for s in walk([item]) if isinstance(s, Stmt)):
            for head, inner in _parts(item):
                yield Head(role, head, depth)
                yield from _nodes(role, inner, depth + 1)


def _parts(item: object) -> Iterator[tuple[str, Body]]:
    if isinstance(item, Tasks):
        yield f"tasks {', '.join(item.vars)} over {item.over}", item.body
    elif isinstance(item, Loop):
        yield f"loop {item.var} = {show(item.lo)} .. {show(item.hi)} step {show(item.step)}", item.body
    elif isinstance(item, If):
        yield "if", item.then
        if item.orelse:
            yield "else", item.orelse


def _telling(item: object) -> bool:
    return is_async(item) or (isinstance(item, Sync) and item.kind not in ("prefetch",))


def barriers_of(item: Stmt) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The barriers at which a statement arrives, and for which it waits. Named barriers are `#` and their number."""
    if isinstance(item, Copy | Store) and item.signal is not None:
        return (item.signal.name,), ()
    if not isinstance(item, Sync):
        return (), ()
    if item.object is not None and item.kind in ("mbar.arrive", "mbar.expect", "cpasync.arrive"):
        return (item.object.name,), ()
    if item.object is not None and item.kind == "mbar.wait":
        return (), (item.object.name,)
    if item.kind.startswith("barrier."):
        number = next(show(e) for n, e in item.args if n == "id")
        return (f"#{number}",), ((f"#{number}",) if item.kind == "barrier.sync" else ())
    return (), ()


def event_section(machine: MachineProgram, lines: Lines) -> Markup:
    """A graph for each kernel with barriers or engines; launches one after another; forks of a CPU."""
    parts = [_launches(machine, lines)]
    for kernel in machine.kernels:
        columns = [(r, nodes(r)) for r in kernel.roles]
        if any(c for _, c in columns):
            parts.append(_graph(kernel, columns, lines))
        else:
            forks = [s for r in kernel.roles for s in walk(r.body) if isinstance(s, Tasks)]
            told = f"{kernel.name} has no barrier: its tasks are independent, and "
            who = (
                "each fork is joined before the next statement (line "
                if _on_cpu(machine)
                else "nothing orders them (line "
            )
            parts.append(element("p", told, who, lines.links(forks), ")."))
    return join(parts)


def _on_cpu(machine: MachineProgram) -> bool:
    return machine.target.startswith("cpu")


def _launches(machine: MachineProgram, lines: Lines) -> Markup:
    items = [
        element(
            "li",
            element("code", one.kernel),
            f": grid {show(one.grid)}, {one.threads} threads",
            f", cluster {one.cluster}" if one.cluster > 1 else "",
            f", {one.shared_bytes} bytes of shared memory" if one.shared_bytes else "",
            " · line ",
            lines.links((one,)),
        )
        for one in machine.host.launches
    ]
    return join((element("h3", "Launches, in this order"), element("ol", items)))


def _graph(kernel: Kernel, columns: list[tuple[Role, list[Node | Head]]], lines: Lines) -> Markup:
    """Roles as columns of statements, barriers in between; arrows in to a barrier arrive, arrows out end waits."""
    order: list[str] = []
    for _, column in columns:
        for node in column:
            if isinstance(node, Node):
                order += [b for b in (*node.tells, *node.hears) if b not in order]
    middle = _COLUMN if len(columns) == 1 else _COLUMN + 20
    places: list[float] = []
    for i in range(len(columns)):
        places.append(10 if i == 0 else _COLUMN + _GAP * 2 + 10 + (i - 1) * (_COLUMN + 30))
    tall = max(len(c) for _, c in columns)
    pills = {name: _pill(i, len(order), tall) for i, name in enumerate(order)}
    x = middle + _GAP - 75
    drawn: list[Markup] = []
    edges: list[Markup] = []
    for (role, column), left in zip(columns, places):
        boxes, arrows = _column(role, column, left, x, pills, lines)
        drawn += boxes
        edges += arrows
    drawn += _barriers({b.name: b for b in kernel.barriers}, pills, x)
    wide = max(places[-1] + _COLUMN, x + 150) + 16
    high = 44 + max(tall * _ROW, max(pills.values(), default=0) + 30)
    caption = element("figcaption", "Green: arrives at a barrier (an engine's bytes, a thread). Violet: waits for it.")
    label = f"event graph of {kernel.name}"
    return element("figure", key(_LEGEND), frame(picture(wide, high, edges, drawn, label=label), label), caption)


_LEGEND = (
    ("copy", "an engine copies"),
    ("contract", "asynchronous contraction"),
    ("box", "synchronisation"),
    ("wait", "control around"),
)


def _column(
    role: Role, column: list[Node | Head], left: float, x: float, pills: dict[str, float], lines: Lines
) -> tuple[list[Markup], list[Markup]]:
    """The boxes of a role, and the arrows between them and the barriers at `x`."""
    agents = f" × {role.agents}" if role.agents > 1 else ""
    drawn = [write(left, 18, f"{role.name}{agents}", "big", _COLUMN)]
    edges: list[Markup] = []
    for row, node in enumerate(column):
        y = 30 + row * _ROW
        inset = 12 * node.depth
        if isinstance(node, Head):
            drawn.append(box(left + inset, y, _COLUMN - inset, _ROW - 5, "wait", node.text, 3))
            drawn.append(write(left + inset + 6, y + 13, node.text, "soft", _COLUMN - inset - 10))
            continue
        line = lines.of(node.stmt)
        text = f"{line}  {core(node.stmt).removeprefix('sync ')}"
        kind = "copy" if isinstance(node.stmt, Copy) else "contract" if is_async(node.stmt) else "box"
        inner = (
            box(left + inset, y, _COLUMN - inset, _ROW - 5, kind, core(node.stmt), 3),
            write(left + inset + 6, y + 13, text, width=_COLUMN - inset - 10),
        )
        drawn.append(element("a", inner, href=f"#m{line}", tabindex=-1))
        near = left + _COLUMN if left < x else left + inset
        port = x if left < x else x + 150
        for name in node.tells:
            edges.append(arrow(near, y + 7, port, pills[name] + 13, "tell", f"line {line} arrives at {name}"))
        for name in node.hears:
            edges.append(arrow(port, pills[name] + 23, near, y + 12, "hear", f"line {line} waits for {name}"))
    return drawn, edges


def _barriers(known: dict[str, Barrier], pills: dict[str, float], x: float) -> list[Markup]:
    drawn: list[Markup] = []
    for name, y in pills.items():
        drawn.append(box(x, y, 150, 36, "pill", _barrier_text(name, known), 8))
        drawn.append(write(x + 75, y + 15, name.replace("#", "barrier "), anchor="middle", width=142))
        drawn.append(write(x + 75, y + 29, _short(name, known), "soft", anchor="middle", width=142))
    return drawn


def _pill(number: int, count: int, rows: int) -> float:
    room = max(rows * _ROW, count * 46)
    return 30 + room * (number + 0.5) / count - 18


def _short(name: str, known: dict[str, Barrier]) -> str:
    barrier = known.get(name)
    if barrier is None:
        return "named"
    ring = f"{barrier.versions} × " if barrier.versions > 1 else ""
    return f"{ring}{barrier.count} arrivals{' + bytes' if barrier.tx else ''}"


def _barrier_text(name: str, known: dict[str, Barrier]) -> str:
    return f"{name.replace('#', 'named barrier ')}: {_short(name, known)}"
