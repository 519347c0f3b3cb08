"""The page of the memory model, made from the table.

`python -m tests.docs.memory_model_page` writes docs/memory_model.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.checker.primitives import Primitive, primitives

from treadle.hardware.atoms import ATOMS, Atom, find_atom
from treadle.hardware.layouts import LAYOUTS
from treadle.hardware.memory_model import FAMILIES, ROWS, Ordering
from treadle.hardware.targets import TARGETS, Target

FILE = Path(__file__).resolve().parents[2] / "docs" / "memory_model.md"
RESULTS = FILE.parents[1] / "benchmarks" / "results"
HEAD = """# What orders memory

The judge rests on these promises and on no others: one row a word of machine text ([its format](machine_format.md)).
*Status* says what stands behind a row: **documented** by the source named, **observed** on a device, or **assumed**.
Rows in italics are vocabulary to come: what they would promise is written down, no rule rests on them yet, and a text
that uses them is `unknown`. Litmus tests are kernels of [benchmarks/device/litmus.py](../benchmarks/device/litmus.py),
run on an H200: counts stand at the end. Made by
`python -m tests.docs.memory_model_page` from [the table](../src/treadle/hardware/memory_model.py).
"""


PRIMITIVES = """## Primitives

Every primitive of synchronisation in use or planned: each has a machine text that the judge verifies, a broken
twin that is not verified, and code for the targets named, which is assembled; both texts are simulated, and schedules
find out the broken ones, two apart (registers beyond the budget, an owner whose tasks may not have begun)
([the texts](../tests/checker/primitives.py), [the test](../tests/checker/test_primitives.py)). *Status* is the weakest
of its rows. Tensor maps are parameters of launches that the host encodes: no statement can change one, so
`fence.proxy.tensormap` is no word of machine text, and a store to a map is refused.

| primitive | words | emitted for | status | litmus tests |
|---|---|---|---|---|"""

TAIL = """## Litmus tests

Wrong values of those checked, with the synchronisation and with it left out. What is left out may be right by luck: a 0
is an observation, never a permission. *Stuck*: waits that did not end.

| test | what it tries | kept | left out |
|---|---|---|---|"""


INSTRUCTIONS = """## Instructions that contract

What the judge takes an instruction to compute; the weakest of what a row says gives its status. Products that are
*fused* are not rounded before they are added.

| atom | targets | formats | tile | order of contributions | source | status |
|---|---|---|---|---|---|---|"""

FRAGMENTS = """## How their fragments lie on threads

| atoms | layout | source | status |
|---|---|---|---|"""

CAPACITIES = """## Capacities of targets

| target | capacities | source | status |
|---|---|---|---|"""

WARPGROUPS = ("wgmma.m64n64k16", "wgmma.m64n64k8.tf32", "wgmma.m64n64k32.i8", "wgmma.m64n64k32.fp8")


def atoms() -> list[Atom]:
    """Every row of an atom, those with a number of columns for 64 of them."""
    made = [find_atom("cuda:sm_90a", name) for name in WARPGROUPS]
    return [*ATOMS, *(row for row in made if row is not None)]


def atom(row: Atom) -> str:
    """A row of the table of instructions."""
    formats = ", ".join(f"{d} += {a} * {b}" for d, a, b in row.operands)
    tile = " x ".join(map(str, row.tile)) if any(row.tile) else "any"
    order = row.order + (", fused" if row.fused else "") + (", flushes subnormals" if row.flushes else "")
    status = " ".join(filter(None, (row.status, row.assumes, row.measured)))
    return f"| `{row.name}` | {' '.join(row.targets)} | {formats} | {tile} | {order} | {row.source} | {status} |"


def capacities(row: Target) -> str:
    """A row of the table of capacities."""
    said = ("name", "kind", "source", "status")
    told = {k: v for k, v in vars(row).items() if k not in said and v not in (0, False)}
    return f"| `{row.name}` | {', '.join(f'{k} {v}' for k, v in told.items())} | {row.source} | {row.status} |"


def results() -> dict[str, dict[str, Any]]:
    """What each test gave on the device when it last ran."""
    files = sorted(RESULTS.glob("*-litmus*.json"))
    return {name: found for file in files for name, found in json.loads(file.read_text())["tests"].items()}


def outcome(name: str, found: dict[str, Any]) -> str:
    """A row of the table of litmus tests."""

    def told(part: dict[str, Any] | None) -> str:
        if part is None:
            return ""
        more = "".join(f"; {n} {k}" for k, n in part.items() if k not in ("wrong", "checked", "seconds") and n)
        return f"{part['wrong']} of {part['checked']}{more}"

    return f"| `{name}` | {found['what']} | {told(found['kept'])} | {told(found.get('left'))} |"


def line(row: Ordering) -> str:
    """A row of the page."""
    word = f"`{row.kind}`" if row.judged else f"*{row.kind}*"
    grains = ", ".join({"": "all", "warp": "a lane of each warp", "elect": "one thread"}[g] for g in row.grains)
    seen = "; ".join(filter(None, (row.measured, " ".join(f"`{name}`" for name in row.litmus))))
    targets = f"{row.targets} from {row.since}" if row.since else row.targets
    cells = (word, targets, grains, row.promises, row.source, row.status, seen)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def primitive(p: Primitive) -> str:
    """A row of the table of primitives."""
    rows = [r for r in ROWS if r.kind in p.rows]
    status = next((s for s in ("assumed", "observed") if any(r.status == s for r in rows)), "documented")
    seen = " ".join(f"`{name}`" for name in dict.fromkeys(n for r in rows for n in r.litmus))
    words = " ".join(f"`{w}`" for w in p.words)
    targets = ", ".join(t.removeprefix("cuda:") for t in p.targets) or "nothing yet"
    return f"| {p.name} | {words} | {targets} | {status} | {seen} |"


def page() -> str:
    """The text of docs/memory_model.md."""
    out = [HEAD]
    count = {s: sum(r.status == s for r in ROWS) for s in ("documented", "observed", "assumed")}
    told = ", ".join(f"{n} {s}" for s, n in count.items())
    out.append(f"{len(ROWS)} rows: {told}; {sum(not r.judged for r in ROWS)} of them to come.\n")
    for title, rows in FAMILIES:
        out.append(f"## {title}\n")
        out.append("| word | targets | executed by | promise | source | status | measured (left out), litmus tests |")
        out.append("|---|---|---|---|---|---|---|")
        out += [line(row) for row in rows]
        out.append("")
    out.append(PRIMITIVES)
    out += [primitive(p) for p in primitives()]
    out.append("")
    out.append(INSTRUCTIONS)
    out += [*map(atom, atoms()), "", FRAGMENTS]
    out += [f"| `{x.atoms}` | {x.holds} | {x.source} | {x.status} |" for x in LAYOUTS]
    out += ["", CAPACITIES, *map(capacities, TARGETS.values()), ""]
    out.append(TAIL)
    out += [outcome(name, found) for name, found in results().items()]
    return "\n".join([*out, ""])


if __name__ == "__main__":
    FILE.write_text(page())
