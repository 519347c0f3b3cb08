"""Which cuts a step on a plan may change, and to what.

A cut is a part of what an argument of a region goes over that a loop or a task takes at once, of so many coordinates.
An axis of a family has a side: arguments of parallel regions, which say whose results are computed together, or those
of folds and chains, which say how much goes into one step of them. What the checker asks of a step that names an axis:

- a number: one argument of the side may be cut anew, in parts *made of* the number: as many, a multiple, or parts of
  that number; for a CPU also at most the number, up to whole register blocks;
- an exchange ("lanes", "turned"): two arguments of parallel regions may exchange their cuts;
- a sharing ("cluster", "consumers", "warps"): one argument of a parallel region may be cut in parts as many times as
  long, or as short, as there are more or fewer to share one;
- "held": folds may be cut in any way, for what is held is folded whole;
- "box": arguments of parallel regions, of which a part is a box;
- any other axis: none.

Besides, a CPU's cuts of regions are rounded to whole register blocks, whose shape follows from the instruction and the
axes, so each may change by less than `ROUNDED`. A GPU's may not.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.algebra.expr import Expr, Min, of
from treadle.ir.core import Region
from treadle.machine.form import Enter, If, Loop, MachineProgram, Tasks
from treadle.plan.steps import Step

LOOPS = ("", "")

ROUNDED = 64
"""More than any register block has of rows or columns."""

SIDES: Mapping[str, str] = {
    **dict.fromkeys(("rows", "columns", "outer", "inner"), "parallel"),
    **dict.fromkeys(("step", "deep"), "fold"),
    "vector": "loop",
}
"""The side on which a number cuts: arguments of parallel regions, of others, or loops that enter no region."""

EXCHANGES = ("lanes", "turned")
SHARES = ("cluster", "consumers", "warps")
FREE: Mapping[str, str] = {"held": "fold", "box": "parallel"}
"""Axes whose values are no numbers of coordinates, and the side that they may cut."""

Cuts = dict[tuple[str, str], frozenset[int]]
"""In parts of how many coordinates each argument of each region is cut; under `LOOPS` by how much other loops go on."""


def astray(before: MachineProgram, step: Step, after: MachineProgram) -> str:
    """Which cut a step changed that it does not decide, or to another width than it says; empty where none."""
    old, new = cuts(before), cuts(after)
    sides = {op.name: "parallel" if op.kind == "parallel" else "fold" for op in _regions(before)}
    changed: dict[tuple[str, str], str] = {}
    for at in sorted(old.keys() | new.keys()):
        gone, come = old.get(at, frozenset()), new.get(at, frozenset())
        if gone != come and not _near(gone, come, _rounded(before, at)):
            changed[at] = sides.get(at[0], "loop")
    for name, value in step.args.items():
        for at in _decided(name, value, changed, old, new, before):
            del changed[at]
    if not changed:
        return ""
    at = next(iter(changed))
    return f"{step} cuts {_said(at, new)} instead of {_said(at, old)}"


def _decided(
    name: str, value: object, changed: Mapping[tuple[str, str], str], old: Cuts, new: Cuts, machine: MachineProgram
) -> list[tuple[str, str]]:
    """The cuts among those that changed which a setting decides."""
    side = SIDES.get(name)
    none = frozenset[int]()
    if side is not None and isinstance(value, int) and not isinstance(value, bool):
        mine = [at for at, s in changed.items() if s == side]
        come = {at: new.get(at, none) - old.get(at, none) for at in mine}
        return [at for at in mine if all(_made_of(w, value, _rounded(machine, at)) for w in come[at])][:1]
    mine = [at for at, s in changed.items() if s == "parallel"]
    if name in EXCHANGES:
        pairs = ((a, b) for a in mine for b in mine if a < b)
        for a, b in pairs:
            crossed = (old.get(a, none), new.get(b, none)), (old.get(b, none), new.get(a, none))
            if all(_near(x, y, _rounded(machine, a)) for x, y in crossed):
                return [a, b]
        return []
    if name in SHARES:
        return [at for at in mine if _multiple(old.get(at, none), new.get(at, none))][:1]
    return [at for at, s in changed.items() if s == FREE.get(name)]


def _rounded(machine: MachineProgram, at: tuple[str, str]) -> int:
    """By less than how much a cut may change for the sake of whole register blocks."""
    return ROUNDED if machine.target.startswith("cpu") and at != LOOPS else 1


def _made_of(width: int, value: int, rounded: int) -> bool:
    """Whether parts of so many coordinates are what a number says."""
    return value > 0 and (width % value == 0 or value % width == 0 or (rounded > 1 and width < value + rounded))


def _near(gone: frozenset[int], come: frozenset[int], rounded: int) -> bool:
    """Whether each of some widths is one of others, but for the rounding."""
    sides = (gone, come), (come, gone)
    return bool(gone) == bool(come) and all(any(abs(a - b) < rounded for b in y) for x, y in sides for a in x)


def _multiple(gone: frozenset[int], come: frozenset[int]) -> bool:
    """Whether widths are all so many times as long as others."""
    if len(gone) != 1 or len(come) != 1:
        return False
    (a,), (b,) = gone, come
    if min(a, b) < 1:  # a text may say that a block has no coordinates
        return False
    return max(a, b) % min(a, b) == 0 or 3 * a == 2 * b or 2 * a == 3 * b  # two share a block, or three


def _said(at: tuple[str, str], found: Cuts) -> str:
    words = ", ".join(map(str, sorted(found.get(at, ())))) or "whole"
    return f"{at[0]}.{at[1]} in {words}" if at[0] else f"other loops by {words}"


def _regions(machine: MachineProgram) -> list[Region]:
    return [op for op in machine.program.body.walk() if isinstance(op, Region)]


def cuts(machine: MachineProgram) -> Cuts:
    """Into blocks of what extent the arguments of regions are cut, where it is a number, and by how much loops that
    enter none go on."""
    found: dict[tuple[str, str], set[int]] = {}
    for s in machine.statements():
        if isinstance(s, Tasks | Loop | If):
            for enter in s.enters:
                for name, width in _widths(enter):
                    found.setdefault((enter.region, name), set()).add(width)
        if isinstance(s, Loop) and not s.enters and s.step.constant not in (None, 1):
            found.setdefault(LOOPS, set()).add(s.step.constant or 0)
    return {at: frozenset(widths) for at, widths in found.items()}


def _widths(enter: Enter) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for name, bounds in enter.binds:
        if len(bounds) == 2:
            found += [(name, width) for end in _ends(bounds[1]) if (width := (end - bounds[0]).constant) is not None]
    return found


def _ends(stop: Expr) -> tuple[Expr, ...]:
    """The expressions of which a stop is the least."""
    least = [atom for atom in stop.atoms() if isinstance(atom, Min) and of(atom) == stop]
    return least[0].args if least else (stop,)
