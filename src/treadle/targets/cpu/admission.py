"""What the CPU families have in common: conditions on every program, the guard of a call, pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.base.memo import memoised
from treadle.ir.core import Region
from treadle.ir.guard import Guard, Unit
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.fold import ArgReduce, Reduce
from treadle.plan.facts import CallFacts
from treadle.plan.family import Point
from treadle.plan.grain import Grain, named
from treadle.plan.pins import AtomPin, Pin, PlacePin, TilePin, VersionsPin
from treadle.realise.choices import Choices
from treadle.realise.universal import base_facts
from treadle.targets.cpu.shape import Shape

NO_REGION = "it has no parallel region"


def common_reasons(shape: Shape) -> list[str]:
    """Why no family but the universal one takes the program."""
    reasons: list[str] = []
    if not shape.facts.disjoint:
        reasons.append("an output may overlap another argument")
    if not any(r.kind == "parallel" for r in shape.regions):
        reasons.append(NO_REGION)
    for op in shape.program.body.walk():
        if isinstance(op, Print | Check | ArgReduce):
            reasons.append(f"it has an operation `{op.keyword}`")
        if isinstance(op, Reduce) and op.order != "unordered" and op.source.type.dtype.is_float:
            reasons.append(f"a fold of floats in the order {op.order}")
        if isinstance(op, Region) and any(a.reversed for a in op.args) and op.kind != "parallel":
            reasons.append(f"region {shape.names[id(op)]} runs backwards")
    return list(dict.fromkeys(reasons))


@memoised
def call_guard(shape: Shape) -> Guard:
    """Facts that a vector plan uses: stores hit distinct elements apart from others, last axes are contiguous."""
    known = shape.known.get("guard")
    if not isinstance(known, Guard):
        facts = base_facts(shape.program, shape.uses, disjoint=True)
        used = set(shape.uses.loaded) | set(shape.uses.stored)
        facts += [Unit(name, axis) for name, axis in sorted(shape.facts.unit) if name in used]
        known = shape.known["guard"] = Guard(tuple(facts))
    return known


def worker_counts(facts: CallFacts) -> tuple[int, ...]:
    """How many workers a plan may use."""
    return (facts.workers, 1) if facts.workers > 1 else (1,)


def handed_out(shape: Shape, point: Point) -> frozenset[str]:
    """The regions whose instances workers share: none where the point has one of several workers, and so no fork. A
    plan for a machine with one worker keeps its tasks, and runs on more."""
    return frozenset() if int(point["workers"]) < shape.facts.workers else frozenset(shape.tasks)


def grain_of(shape: Shape, choices: Choices, tiles: Mapping[str, int]) -> Grain:
    """How decisions cut extents: `tiles` are multiples that dimensions are filled up to."""
    sizes = [(named(d.extent), tiles[d.name]) for d in shape.program.dims if tiles.get(d.name, 1) > 1]
    tasks = [
        (named(arg.domain.extent), choices.cuts.get(f"{name}.{arg.name}", 1))
        for name in shape.tasks[:1]
        if name in choices.tasks
        for arg in shape.named(name).args
    ]
    return Grain(*(tuple((n, s) for n, s in part if n is not None) for part in (sizes, tasks)))


def pins_refused(shape: Shape, choices: Choices, pins: Sequence[Pin]) -> list[str]:
    """The pins that a point does not meet, each with the fact that refuses it."""
    reasons: list[str] = []
    for pin in pins:
        match pin:
            case TilePin(sizes):
                for name, size in sizes.items():
                    reasons += _tile(shape, choices, name, size)
            case AtomPin(value, atom):
                reasons += _atom(shape, choices, value, atom)
            case PlacePin(value, where):
                reasons += _place(shape, choices, value, where)
            case VersionsPin(tensor, count):
                if count != 1:
                    reasons.append(f"{tensor}: the CPU has no asynchronous copies, blocks have one version")
    return reasons


def _tile(shape: Shape, choices: Choices, name: str, size: int) -> list[str]:
    keys = {key: arg for _, arg, key in shape.arguments() if name in (arg.name, key)}
    if not keys:
        return [f"no region has an open block {name}"]
    return [
        f"{key} is cut by {choices.cuts.get(key, 1)}, not {size}" for key in keys if choices.cuts.get(key, 1) != size
    ]


def _atom(shape: Shape, choices: Choices, value: str, atom: str) -> list[str]:
    """A contraction goes by the name of its result, its accumulator, or what a region makes of them."""
    reasons: list[str] = []
    named = False
    for found in shape.contractions:
        op = found.op
        known = [op.result, op.acc]
        region = shape.uses.definition.get(op.acc.name)
        if isinstance(region, Region):
            known += [r for c, r in zip(region.carried, region.results, strict=True) if c is op.acc]
        if not any(value in (v.name, v.hint) for v in known):
            continue
        named = True
        used = choices.atoms.get(op.result.name, "fma")
        if used.split(".")[0] != atom.split(".")[0]:
            reasons.append(f"{value} is contracted by {used}, not {atom}")
    return reasons if named else [f"no contraction is called {value}"]


def _place(shape: Shape, choices: Choices, value: str, where: str) -> list[str]:
    named = [v for v in shape.uses.of_value.values() if value in (v.name, v.hint)]
    if not named:
        return [f"no value is called {value}"]
    if where not in ("register", "local"):
        return [f"the CPU has no memory {where}"]
    carried = [
        r
        for r in shape.regions
        for v in (*r.carried, *r.results)
        if any(v.name == n.name or v.hint == value for n in named)
    ]
    held = any(shape.names[id(r)] in choices.wrap for r in carried)
    if carried and held != (where == "register"):
        return [f"{value} lives in {'registers' if held else 'a local buffer'} at this point"]
    return []
