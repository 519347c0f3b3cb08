"""Pictures of memory: the map of shared memory, live storage over the lines of a role, and the banks of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.hardware.targets import find_target
from treadle.machine.expression_text import show
from treadle.machine.form import Buffer, Kernel, Launch, MachineProgram
from treadle.view.banks import BANKS, Addresses, Meeting, addresses, meetings
from treadle.view.drawing import amount, box, cut, frame, picture, plural, runs, table, write
from treadle.view.facts import Scene, held_bytes
from treadle.view.lines import Lines, core
from treadle.view.liveness import Held, bytes_live, held
from treadle.view.markup import Child, Markup, element, join
from treadle.view.style import HUES

WIDE = 1120


def memory_section(machine: MachineProgram, lines: Lines, extents: Scene) -> Markup:
    """Buffers, the map of shared memory, what is live where, banks."""
    parts: list[Markup] = [_buffers(machine, lines, extents)]
    for kernel in machine.kernels:
        launch = next((one for one in machine.host.launches if one.kernel == kernel.name), None)
        if any(b.place == "shared" for b in kernel.buffers):
            parts.append(_shared_map(kernel, launch, extents))
        for role in kernel.roles:
            parts.append(_live(machine, kernel, held(role), lines))
        parts.append(_banks(kernel, extents, lines))
    return join(parts)


def _buffers(machine: MachineProgram, lines: Lines, extents: Scene) -> Markup:
    rows = [
        (
            element("code", b.name),
            f"{b.dtype}[{', '.join(map(show, b.shape))}]",
            b.place,
            str(b.versions) if b.versions else "1",
            amount(addresses(b, extents).slot * max(1, b.versions)),
            f"swizzle {b.swizzle}" if b.swizzle else "row-major",
            lines.links((b,)),
        )
        for b in (*machine.host.workspace, *(b for k in machine.kernels for b in k.buffers))
    ]
    if not rows:
        return element("p", "No buffers: every value lives in registers.", class_="note")
    head = ("buffer", "shape", "place", "versions", "bytes", "address map", "line")
    return join((element("h3", "Buffers"), table(head, rows, "buffers", numbers=(3, 4))))


# ---- the map of shared memory


@dataclass(frozen=True)
class Stretch:
    """Bytes of shared memory that something takes; `of` and `slot` name it."""

    begin: int
    end: int
    of: str
    slot: int


def stretches(kernel: Kernel, extents: Scene) -> list[Stretch]:
    """What lies where in shared memory: a stretch for each slot of each ring, and one for each barrier."""
    found: list[Stretch] = []
    top = 0
    for buffer in sorted((b for b in kernel.buffers if b.place == "shared"), key=lambda b: b.offset is None):
        at = addresses(buffer, extents, -(-top // buffer.align) * buffer.align)
        for slot in range(max(1, buffer.versions)):
            begin = at.start + slot * at.slot
            found.append(Stretch(begin, begin + at.slot, buffer.name, slot))
            top = max(top, begin + at.slot)
    found += [Stretch(b.offset, b.offset + 8 * b.versions, b.name, 0) for b in kernel.barriers]
    return sorted(found, key=lambda s: s.begin)


def _shared_map(kernel: Kernel, launch: Launch | None, extents: Scene) -> Markup:
    """A bar of addresses; slots of one ring have one colour."""
    found = stretches(kernel, extents)
    total = max([launch.shared_bytes if launch is not None else 0, *(s.end for s in found)])
    names = list(dict.fromkeys(s.of for s in found))
    drawn: list[Markup] = []
    barriers = {b.name for b in kernel.barriers}
    rows = [n for n in names if n not in barriers] + ([""] if barriers else [])
    left, scale = 150.0, (WIDE - 170.0) / max(1, total)
    for y, name in enumerate(rows):
        top = 22 + y * 26
        label = name or "barriers"
        drawn.append(write(left - 8, top + 15, label, anchor="end", width=left - 12))
        for s in found:
            if (s.of == name) if name else (s.of in barriers):
                width = max(2.0, (s.end - s.begin) * scale - 1)
                told = f"{s.of} slot {s.slot}: bytes {s.begin} to {s.end - 1}, {amount(s.end - s.begin)}"
                x = left + s.begin * scale
                drawn.append(box(x, top, width, 20, f"h{rows.index(name) * 5 % HUES}", told, 2))
                text = f"{s.slot}" if width < 60 else f"slot {s.slot}"
                if name and width > 14:
                    drawn.append(write(x + 4, top + 14, text, width=width - 6))
    height = 26 + len(rows) * 26
    ticks = [write(left, 14, "0", "soft"), write(left + total * scale, 14, f"{total} B", "soft", anchor="end")]
    target = amount(total)
    head = element("h3", f"Shared memory of {kernel.name}: {target}")
    return join(
        (head, frame(picture(WIDE, height, ticks, drawn, label=f"shared memory of {kernel.name}"), "shared memory"))
    )


# ---- live storage


def _live(machine: MachineProgram, kernel: Kernel, found: Held, lines: Lines) -> Markup:
    """Bytes held over the lines of a role, and the span of each fragment below."""
    sizes = bytes_live(kernel, found)
    frags = {f.name: f for f in kernel.frags}
    names = [n for n in dict.fromkeys(n for s in found.live for n in sorted(s)) if n in frags]
    if not names:
        return Markup("")
    limit, unit = _limit(machine, found)
    most = max(sizes)
    high = max(most, limit) if most * 4 > limit else most
    left, count = 150.0, len(sizes)
    step = (WIDE - left - 20) / count
    chart = 110.0
    level = [chart + 16 - s / max(1, high) * chart for s in sizes]
    path = f"M{left} {chart + 16}" + "".join(f"L{left + i * step:.1f} {y:.1f}h{step:.1f}" for i, y in enumerate(level))
    drawn = [
        element("path", d=f"{path}V{chart + 16}z", class_="area"),
        element("path", d=f"M{left} {chart + 16}h{WIDE - left - 20}", class_="axis"),
        write(left - 8, 26, _size(high, unit), "soft", anchor="end"),
        write(left - 8, chart + 16, "0", "soft", anchor="end"),
    ]
    if limit <= high:
        y = chart + 16 - limit / high * chart
        drawn.append(element("path", d=f"M{left} {y:.1f}h{WIDE - left - 20}", class_="limit"))
        drawn.append(
            write(WIDE - 24, y + 13 if y < chart else y - 5, f"limit {_size(limit, unit)}", "soft", anchor="end")
        )
    top = chart + 30
    for row, name in enumerate(names):
        y = top + row * 18
        drawn.append(write(left - 8, y + 11, name, anchor="end", width=left - 12))
        for first, last in found.spans(name):
            told = f"{name}: {amount(held_bytes(frags[name]))}, {_between(found, first, last, lines)}"
            drawn.append(box(left + first * step, y + 1, max(2.0, (last - first + 1) * step), 14, "work", told, 2))
    height = top + len(names) * 18 + 20
    for i in range(0, count, max(1, count // 8)):
        drawn.append(write(left + i * step, height - 5, str(lines.of(found.statements[i])), "soft"))
    peak = sizes.index(most)
    who = f"{kernel.name}: {found.role.name}"
    each = "a thread" if machine.target.startswith("cuda") else "an agent"
    beyond = f" ({unit})" if unit.startswith("vectors") else ""
    more = " What is beyond it the compiler keeps in memory, or makes part by part." if most > limit else ""
    told = element(
        "p",
        f"At most {_size(most, unit)}{beyond} {each}, behind line ",
        lines.links((found.statements[peak],)),
        f" ({', '.join(sorted(found.live[peak]))}); the limit is {_size(limit, unit)}.{more}",
        " Across: lines of the text.",
        class_="note",
    )
    drawing = picture(WIDE, height, drawn, label=f"live storage of {who}")
    return join((element("h3", f"Live storage, {who}"), told, frame(drawing, f"live storage of {who}")))


def _between(found: Held, first: int, last: int, lines: Lines) -> str:
    return f"live from line {lines.of(found.statements[first])} to {lines.of(found.statements[last])}"


def _limit(machine: MachineProgram, found: Held) -> tuple[int, str]:
    """Bytes of registers of a thread (an agent on a CPU), and the unit in which to say it."""
    target = find_target(machine.target)
    if target is None:
        return 1 << 30, "B"
    if target.kind == "cuda":
        return 4 * (found.role.registers or min(255, target.registers // max(1, _threads(machine)))), "registers"
    return target.vector_registers * target.vector_bits // 8, f"vectors of {target.vector_bits} bits"


def _threads(machine: MachineProgram) -> int:
    return max((one.threads for one in machine.host.launches), default=1)


def _size(bytes_: float, unit: str) -> str:
    if unit == "registers":
        return f"{bytes_ / 4:.0f} registers"
    if unit.startswith("vectors"):
        return f"{bytes_ / (int(unit.split()[2]) // 8):.3g} vectors"
    return amount(bytes_)


# ---- banks


def _banks(kernel: Kernel, extents: Scene, lines: Lines) -> Markup:
    shared = [b for b in kernel.buffers if b.place == "shared"]
    if not shared:
        return Markup("")
    found = meetings(kernel, extents)
    parts = [element("h3", "Banks of shared memory")]
    groups: dict[tuple[int, int, int], list[Buffer]] = {}
    for b in shared:
        at = addresses(b, extents)
        groups.setdefault((at.shape[-1] * at.size, at.size, at.swizzle), []).append(b)
    for same in groups.values():
        parts.append(_bank_grid(same, addresses(same[0], extents)))
    if found:
        rows = [_meeting(m, lines) for m in found]
        head = (
            "line",
            "access",
            "buffer",
            "by",
            "bytes at once",
            "rounds",
            "at best",
            "conflicts",
            "words of each bank",
        )
        parts.append(table(head, rows, "accesses to shared memory", numbers=(4, 5, 6)))
    told = (
        "Accesses of the first warp at the first iteration, every lane active, in the widest pieces that lie together; "
        "tensor cores take 8 rows of 16 bytes. Copy engines are not in the table."
    )
    return join((*parts, element("p", told, class_="note")))


def bank_remarks(machine: MachineProgram, extents: Scene, lines: Lines) -> dict[int, str]:
    """What to say behind the lines of the text whose accesses have conflicts."""
    found = (m for k in machine.kernels for m in meetings(k, extents) if m.worst > 1)
    return {lines.of(m.statement): f"{m.buffer}: {m.worst} words of one bank" for m in found}


def _meeting(m: Meeting, lines: Lines) -> tuple[Child, ...]:
    if m.worst > 1:
        verdict = element("span", f"{m.worst} words of one bank", class_="badge clash")
    else:
        verdict = element("span", "none", class_="badge fine")
    text = element("code", cut(core(m.statement), 42 * 6.7))
    return lines.links((m.statement,)), text, m.buffer, m.way, m.width, m.rounds, m.least, verdict, _strip(m)


def _strip(m: Meeting) -> Markup:
    """How many words each bank gives in the worst phase."""
    most = max(m.banks.values(), default=1)
    kind = "contract" if m.worst > 1 else "copy"
    heights = ((b, 20 * m.banks.get(b, 0) / most) for b in range(BANKS))
    bars = [box(b * 5, 22 - high, 4, high, kind, f"bank {b}: {m.banks.get(b, 0)}") for b, high in heights]
    return picture(BANKS * 5, 24, bars, label=f"words of each bank, at most {most}")


def _bank_grid(same: Sequence[Buffer], at: Addresses) -> Markup:
    """The first rows of a buffer, one cell for each 4 bytes, with the bank."""
    cell, left, top = 25, 44, 20
    each = max(1, 4 // at.size)
    length = at.shape[-1]
    columns = min(length, 32 * each)
    rows = min(16, at.slot // (length * at.size))
    drawn = [write(left - 6, top - 6, "row", "soft", anchor="end")]
    for r in range(rows):
        drawn.append(write(left - 6, top + r * 18 + 13, str(r), "soft", anchor="end"))
        index = _index(r, at.shape[:-1])
        for c in range(0, columns, each):
            bank = at.bank((*index, c))
            x = left + c // each * cell
            drawn.append(box(x, top + r * 18, cell, 18, f"h{bank}"))
            drawn.append(write(x + cell / 2, top + r * 18 + 13, str(bank), anchor="middle"))
    for c in range(0, columns, each * 4):
        drawn.append(write(left + c // each * cell, top - 6, str(c), "soft"))
    names = ", ".join(b.name for b in same)
    part = f"rows {runs(range(rows))}" + (f", columns {runs(range(columns))} of {length}" if columns < length else "")
    swizzle = f"swizzle {at.swizzle}" if at.swizzle else "row-major"
    caption = element("figcaption", f"{names}: bank of each 4 bytes ({plural(each, 'element')}), {part}; {swizzle}.")
    width = left + -(-columns // each) * cell + 6
    drawing = picture(width, top + rows * 18 + 6, drawn, label=f"banks of {names}")
    return element("figure", frame(drawing, f"banks of {names}"), caption)


def _index(row: int, shape: Sequence[int]) -> tuple[int, ...]:
    found: list[int] = []
    for extent in reversed(shape):
        row, digit = divmod(row, extent)
        found.append(digit)
    return tuple(reversed(found))
