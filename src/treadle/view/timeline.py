"""The timeline of a run: agents, engines' slots and tensor cores as lanes, for a few iterations."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.machine.form import Copy, MachineProgram
from treadle.view.drawing import box, key, picture, runs, write
from treadle.view.facts import Scene, small_scene
from treadle.view.happenings import Event, Run, Slot
from treadle.view.lines import Lines, core
from treadle.view.markup import Markup, element, join
from treadle.view.run import run_kernel

LANE = 24


def timeline_section(machine: MachineProgram, lines: Lines, extents: Mapping[str, int]) -> Markup:
    """A timeline for each kernel."""
    parts: list[Markup] = []
    for kernel in machine.kernels:
        launch = next((one for one in machine.host.launches if one.kernel == kernel.name), None)
        scene = small_scene(machine, kernel, extents)
        run = run_kernel(machine, kernel, launch, scene)
        if run.events:
            parts.append(_figure(machine, kernel.name, run, scene, lines))
    return join(parts)


def uses(run: Run) -> dict[Slot, list[tuple[float, float]]]:
    """For each slot of a ring: from when it is filled to the end of the last read, filling by filling."""
    found: dict[Slot, list[tuple[float, float]]] = {}
    for event in run.events:
        for slot in event.writes:
            found.setdefault(slot, []).append((event.end, event.end))
        for slot in event.reads:
            if found.get(slot):
                begin, end = found[slot][-1]
                found[slot][-1] = begin, max(end, event.end)
    return found


def _figure(machine: MachineProgram, name: str, run: Run, scene: Scene, lines: Lines) -> Markup:
    spread = uses(run)
    lanes = list(run.lanes)
    lanes += [lane for s in spread if (lane := f"{s[0]}[{s[1]}]") not in lanes]
    agents = [lane for lane in lanes if "[" not in lane]
    lanes = [*agents, *sorted(lane for lane in lanes if "[" in lane)]
    row = {lane: i for i, lane in enumerate(lanes)}
    wide = float(min(2600, max(880, 7 * max((sum(e.lane == lane for e in run.events) for lane in lanes), default=0))))
    scale = (wide - 20) / max(1.0, run.end)
    drawn = [element("path", d=f"M0 {i * LANE}h{wide:.0f}", class_="grid") for i in range(1, len(lanes) + 1)]
    for slot, times in spread.items():
        for begin, end in times:
            if end > begin and (lane := f"{slot[0]}[{slot[1]}]") in row:
                y = row[lane] * LANE + 4
                drawn.append(box(begin * scale, y, (end - begin) * scale, LANE - 8, "used", f"{lane}: full, and read"))
    first = True
    written: dict[str, float] = {}
    texts: list[Markup] = []
    for event in run.events:
        if event.kind == "wait" and event.end - event.begin < 1e-9:
            continue
        drawn.append(_event(event, run, row[event.lane], scale, lines, first, written, texts))
        first = False
    drawn.append(element("g", texts, class_="above"))
    height = len(lanes) * LANE + 20
    for i in range(5):
        at = run.end * i / 4
        anchor = "end" if i == 4 else "middle" if i else None
        drawn.append(write(at * scale, height - 5, f"{at:.0f}", "soft", anchor=anchor))
    label = f"timeline of {name}"
    drawing = picture(wide, height, drawn, label=label)
    names = element("div", (element("div", lane, class_="mono") for lane in lanes), class_="names")
    scroll = element("div", drawing, class_="scroll", tabindex=0, role="region", aria_label=label)
    legend = key(
        (
            ("work", "statements"),
            ("contract", "tensor cores"),
            ("copy", "a copy on its way: the slot is being filled or emptied"),
            ("used", "slot in use"),
            ("wait", "waiting"),
            ("sync", "synchronisation"),
        )
    )
    dims = ", ".join(f"{n} = {v}" for n, v in sorted(scene.values.items()))
    who = "the pool's workers" if machine.target.startswith("cpu") else f"workgroup 0 of {run.grid}"
    cut = f" The picture ends {run.cut}." if run.cut else ""
    tasks = f", {run.tasks} tasks" if run.tasks else ""
    told = (
        f"{name}: {who}{tasks}, at {dims}. The order is the program's: every bar begins when what it waits for has "
        f"ended. Widths are cycles of a rough model, not measurements.{cut} Point at a bar, or tab to one and use the "
        "arrow keys: its causes are outlined; Enter goes to the text."
    )
    out = element("output", _summary(run), aria_live="polite")
    return element(
        "figure", legend, element("div", names, scroll, class_="lanes"), out, element("figcaption", told), class_="run"
    )


def _event(
    event: Event,
    run: Run,
    lane: int,
    scale: float,
    lines: Lines,
    first: bool,
    written: dict[str, float],
    texts: list[Markup],
) -> Markup:
    """A bar. `texts` get what is written on it, above all bars; `written`: how far text reaches in each lane."""
    x, width = event.begin * scale, max(1.5, (event.end - event.begin) * scale)
    y = lane * LANE
    numbers = [lines.of(s) for s in event.statements]
    what = event.what or (
        core(event.statements[0]) if len(event.statements) == 1 else f"{len(event.statements)} statements"
    )
    short = what
    if event.kind == "copy" and isinstance(copy := event.statements[0], Copy):
        what = core(copy)
        short = f"→ {copy.dst.name}" if event.reads else copy.src.name
    where = f" (lines {runs(numbers)})" if numbers else ""
    at = f", {event.at}" if event.at else ""
    causes = [run.events[n] for n in event.after if run.events[n].lane != event.lane]
    waited = f"; behind {', '.join(dict.fromkeys(c.lane for c in causes))}" if causes else ""
    title = f"{event.lane}{at}: {what}{where}, cycles {event.begin:.0f} to {event.end:.0f}{waited}"
    tall = LANE - 8 if event.kind != "sync" else LANE - 4
    inner = [
        element("title", title),
        box(x, y + (LANE - tall) / 2, width, tall, event.kind, round_=2 if width > 6 else 0),
    ]
    if width > 20 and event.kind != "wait" and x >= written.get(event.lane, 0.0):
        texts.append(write(x + 4, y + 16, short, width=width - 6))
        written[event.lane] = x + min(width, 8 + 6.7 * len(short))
    after = " ".join(map(str, event.after))
    return element(
        "g",
        inner,
        class_="e",
        tabindex=0 if first else -1,
        data_n=event.number,
        data_after=after,
        data_lane=lane,
        data_x=round(x),
        data_to=f"m{min(numbers)}" if numbers else None,
        role="img",
        aria_label=title,
    )


def _summary(run: Run) -> str:
    """What a run of the model says in numbers."""
    agents = [lane for lane in run.lanes if "[" not in lane and lane != "tensor cores"]
    waits = sum(e.end - e.begin for e in run.events if e.kind == "wait" and e.lane in agents)
    busy = sum(e.end - e.begin for e in run.events if e.kind == "contract")
    share = f"; tensor cores busy {busy / run.end:.0%} of it" if busy else ""
    waiting = f"; agents wait {waits / max(1.0, run.end * len(agents)):.0%} of it" if waits else ""
    return f"{len(run.events)} events in {run.end:.0f} cycles{share}{waiting}"
