"""Where the names of a kernel's source ended up in a machine program: what `explain()` says of a user's variables.

Blocks are found where loops and tasks enter regions, values where statements claim what they hold, tensors where
copies bring parts of them nearer.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.algebra.expr import Expr
from treadle.ir.core import Region
from treadle.machine.form import Claim, Control, Copy, Frag, Kernel, Loop, MachineProgram, Stmt, Tasks, walk

MOST = 3
"""Places that are listed of one name; further ones are counted."""


LEGEND = '"256 at a time": coordinates that a task or an iteration takes; "f32[6, 64]": elements held at once'
"""How to read the lines of `placed_names`."""


def placed_names(machine: MachineProgram) -> list[str]:
    """A line for each name of the source: its lines there, and how it is cut, held or brought."""
    places: dict[str, dict[str, None]] = {}
    lines: dict[str, set[int]] = {}
    for kernel in machine.kernels:
        storage = _storage(kernel)
        for item in _walk(kernel):
            for name, line, place in _of(machine, item, storage):
                places.setdefault(name, {})[place] = None
                lines.setdefault(name, set()).update(() if line is None else (line,))
    order = sorted(places, key=lambda name: min(lines[name], default=0))
    return [_line(name, sorted(lines[name]), list(places[name])) for name in order]


def _line(name: str, lines: list[int], places: list[str]) -> str:
    more = f"; {len(places) - MOST} more" if len(places) > MOST else ""
    where = f" (line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))})" if lines else ""
    return f"{name}{where}: {'; '.join(places[:MOST])}{more}"


def _walk(kernel: Kernel) -> Iterator[Stmt | Control]:
    """Statements and control of all roles, outer before inner."""
    for role in kernel.roles:
        yield from walk(role.body)


def _storage(kernel: Kernel) -> dict[str, str]:
    """What fragments and buffers are, by name."""
    found = {f.name: _fragment(f) for f in kernel.frags}
    for b in kernel.buffers:
        versions = f", {b.versions} versions" if b.versions > 1 else ""
        found[b.name] = f"{b.place} memory {b.dtype}[{', '.join(map(str, b.shape))}]{versions}"
    return found


def _fragment(frag: Frag) -> str:
    held = "registers" if frag.place == "register" else f"a {frag.place} buffer"
    return f"{held} {frag.dtype}[{', '.join(map(str, frag.shape))}]"


def _of(
    machine: MachineProgram, item: Stmt | Control, storage: dict[str, str]
) -> Iterator[tuple[str, int | None, str]]:
    """Name, line and place of what a statement holds, brings or enters."""
    if isinstance(item, (Tasks, Loop)):
        yield from _blocks(machine, item)
    elif isinstance(item, Copy):
        names = {t.name for t in machine.program.tensors}
        if item.src.name in names and item.dst.name in storage:
            yield item.src.name, item.origin, storage[item.dst.name]
    elif isinstance(item, Stmt) and isinstance(item.claim, Claim):
        place = storage.get(str(getattr(item, "dst", "")))
        value, line = _value(machine, item.claim.value)
        if place is not None and value is not None:
            yield value, line, place


def _value(machine: MachineProgram, name: str) -> tuple[str | None, int | None]:
    """The name that the source gives a value, and the line that made it."""
    full = name if name.startswith("%") else f"%{name}"
    op = machine.program.definitions().get(full)
    if op is None:
        return None, None
    carried = op.carried if isinstance(op, Region) else []
    value = next((v for v in (*op.results, *carried) if v.name == full), None)
    return (None if value is None else value.hint), (None if op.span is None else op.span.line)


def _blocks(machine: MachineProgram, item: Tasks | Loop) -> Iterator[tuple[str, int | None, str]]:
    variables = item.vars if isinstance(item, Tasks) else (item.var,)
    how = f"tasks over {item.over}" if isinstance(item, Tasks) else "a loop"
    count = item.step.constant if isinstance(item, Loop) else 1
    for enter in item.enters:
        region = next(
            (o for o in machine.program.body.walk() if isinstance(o, Region) and o.name == enter.region), None
        )
        if region is None:
            continue
        for name, bounds in enter.binds:
            arg = next((a for a in region.args if a.name == name), None)
            if arg is not None:
                line = None if region.span is None else region.span.line
                size = None if arg.kind == "each" else _step(bounds[0], variables)
                told = "" if size is None or count is None else f", {size * count} at a time"
                yield arg.source or arg.name, line, how + told


def _step(start: Expr, variables: tuple[str, ...]) -> int | None:
    """How far the start of a block moves when one of the variables counts on."""
    zero = dict.fromkeys(start.symbols, 0)
    for name in variables:
        if name in zero and not start.functions:
            return int(start.evaluate({**zero, name: 1})) - int(start.evaluate(zero))
    return None
