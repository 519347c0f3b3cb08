"""Pictures of distributions: which thread holds which element of a fragment, one picture for all that lie alike."""

from __future__ import annotations

import json
from collections.abc import Sequence

from treadle.hardware.layouts import matches
from treadle.machine.form import Frag, Kernel, MachineProgram
from treadle.view.drawing import amount, facts, frame, picture, plural, table, write
from treadle.view.facts import held_bytes, slots
from treadle.view.markup import Markup, element, join
from treadle.view.spread import digit_text, owners, replicas, threads
from treadle.view.style import HUES

MOST = 64
"""Rows and columns of a fragment that are drawn."""
_LEFT, _TOP = 34, 18


def distribution_section(machine: MachineProgram) -> Markup:
    """A picture for each way in which fragments lie; what lies whole in one participant is listed."""
    return join(_kernel(k, machine.target) for k in machine.kernels)


def alike(frags: Sequence[Frag]) -> list[list[Frag]]:
    """Fragments by shape and distribution, the largest first."""
    found: dict[object, list[Frag]] = {}
    for frag in frags:
        found.setdefault((frag.shape, frag.dist), []).append(frag)
    return sorted(found.values(), key=lambda g: (-len(g[0].shape), -slots(g[0])))


def _kernel(kernel: Kernel, target: str) -> Markup:
    spread = alike([f for f in kernel.frags if f.dist])
    whole = alike([f for f in kernel.frags if not f.dist])
    parts = [_spread(group, f"{kernel.name}-{number}") for number, group in enumerate(spread)]
    if whole:
        vectors = target.startswith("cpu")
        rows = [(element("code", ", ".join(f.name for f in g)), *_whole(g[0], vectors)) for g in whole]
        title = "Held whole by one agent" if vectors else "Held whole by every thread"
        head = ("fragments", "each", "place", "bytes", "vector lanes" if vectors else "")
        parts.append(join((element("h3", title), table(head, rows, title, numbers=(3,)))))
    if spread:
        told = (
            "Colours and numbers: the lane that holds an element; lines: warps. Point at an element, or focus a "
            "picture and use the arrow keys."
        )
        parts.insert(0, element("p", told))
    return element("div", parts or element("p", "No fragments: everything is in memory.", class_="note"))


def _whole(frag: Frag, vectors: bool) -> tuple[str, str, str, str]:
    shape = ", ".join(map(str, frag.shape))
    along = vectors and frag.shape and frag.place == "register" and frag.shape[-1] > 1
    lanes = f"{frag.shape[-1]} along axis {len(frag.shape) - 1}" if along else ""
    return f"{frag.dtype}[{shape}]", frag.place, amount(held_bytes(frag)), lanes


def _spread(group: Sequence[Frag], anchor: str) -> Markup:
    frag = group[0]
    shape = ", ".join(map(str, frag.shape))
    warps, lanes = threads(frag)
    copies = replicas(frag)
    contract = matches(frag.dist, frag.shape[1]) if len(frag.shape) == 2 and frag.shape[0] == 64 else False
    told = facts(
        (
            ("dtype", ", ".join(sorted({str(f.dtype) for f in group}))),
            ("over", f"{plural(warps, 'warp')} × {plural(lanes, 'lane')}, {plural(slots(frag), 'slot')} a thread"),
            ("digits", "; ".join(digit_text(m) for m in frag.dist)),
            ("replicas", f"{copies} threads hold each element" if copies > 1 else ""),
            ("instruction", "as the tensor cores have accumulators and register operands (wgmma)" if contract else ""),
        )
    )
    names = ", ".join(f.name for f in group)
    head = element("h3", element("code", names), f" [{shape}]")
    if len(frag.shape) not in (1, 2):
        return join((head, told))
    return join((head, told, _figure(frag, f"distribution of {names}", anchor)))


def _figure(frag: Frag, label: str, anchor: str) -> Markup:
    """A grid: hue is the lane, the number in a cell the slot, lines divide warps."""
    two = len(frag.shape) == 2
    height, width = (frag.shape[0], frag.shape[1]) if two else (1, frag.shape[0])
    rows, columns = min(height, MOST), min(width, MOST if two else 128)
    cell = 13 if columns <= 64 else 9
    held = owners(frag)
    paths: dict[int, list[str]] = {}
    marks: list[Markup] = []
    numbers: list[Markup] = []
    for r in range(rows):
        for c in range(columns):
            have = held.get((r, c) if two else (c,))
            if have is None:
                continue
            x, y = _LEFT + c * cell, _TOP + r * cell
            paths.setdefault(have[0].lane % HUES, []).append(f"M{x} {y}h{cell}v{cell}h-{cell}z")
            before = held.get((r, c - 1) if two else (c - 1,))
            if cell > 12 and r < 16 and c < 32 and (before is None or before[0].lane != have[0].lane):
                numbers.append(element("text", have[0].lane, x=x + 1, y=y + cell - 3, class_="tiny"))
    cells = [element("path", d="".join(d), class_=f"h{lane}") for lane, d in sorted(paths.items())]
    for r in range(0, rows, 8 if rows > 8 else 1):
        marks.append(write(_LEFT - 4, _TOP + r * cell + 11, str(r), "soft", anchor="end"))
    for c in range(0, columns, 8):
        marks.append(write(_LEFT + c * cell, _TOP - 5, str(c), "soft"))
    lines = _warp_lines(frag, rows, columns, cell, two)
    over = element("g", Markup(""), class_="over")
    wide, tall = _LEFT + columns * cell + 6, _TOP + rows * cell + 6
    drawn = picture(wide, tall, cells, numbers, lines, marks, over, label=label, tabindex=0)
    data = {
        "shape": [height, width],
        "rank": len(frag.shape),
        "rows": rows,
        "columns": columns,
        "cell": cell,
        "left": _LEFT,
        "top": _TOP,
        "modes": [[m.who, m.size, m.axis if two or m.axis is None else m.axis + 1, m.stride] for m in frag.dist],
    }
    part = f"The first {rows} x {columns} elements are drawn." if (rows, columns) != (height, width) else ""
    caption = element("figcaption", part) if part else None
    first = _first(frag)
    return element(
        "figure",
        frame(drawn, label),
        element("output", first, aria_live="polite"),
        caption,
        class_="spread",
        data_dist=json.dumps(data, separators=(",", ":")),
        id=f"dist-{anchor}",
    )


def _first(frag: Frag) -> str:
    """What the picture says before anybody points at it: the elements of the first thread."""
    mine = [c for c, have in sorted(owners(frag).items()) if any(o.warp == 0 and o.lane == 0 for o in have)]
    some = ", ".join(str(list(c)) for c in mine[:8])
    return f"warp 0 lane 0 has {some}" + (f" and {len(mine) - 8} more" if len(mine) > 8 else "")


def _warp_lines(frag: Frag, rows: int, columns: int, cell: int, two: bool) -> Markup:
    """Lines between elements whose warps differ."""
    held = owners(frag)

    def warp(r: int, c: int) -> int | None:
        have = held.get((r, c) if two else (c,))
        return None if have is None else have[0].warp

    path: list[str] = []
    for r in range(1, rows):
        begin: int | None = None
        for c in range(columns + 1):
            differs = c < columns and warp(r - 1, c) != warp(r, c)
            if differs and begin is None:
                begin = c
            if not differs and begin is not None:
                path.append(f"M{_LEFT + begin * cell} {_TOP + r * cell}h{(c - begin) * cell}")
                begin = None
    for c in range(1, columns):
        begin = None
        for r in range(rows + 1):
            differs = r < rows and warp(r, c - 1) != warp(r, c)
            if differs and begin is None:
                begin = r
            if not differs and begin is not None:
                path.append(f"M{_LEFT + c * cell} {_TOP + begin * cell}v{(r - begin) * cell}")
                begin = None
    return element("path", d="".join(path), class_="axis", stroke_width=2) if path else Markup("")
