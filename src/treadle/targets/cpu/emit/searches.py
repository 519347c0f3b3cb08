"""Searches: folds of places where a condition holds, which seldom does.

The least place of an element is a fold of a selection: its coordinate where it is, the fold's identity elsewhere. Few
elements are what is looked for, so most fragments contribute nothing: what follows such a selection, up to the fold, is
skipped when no slot of the fragment is selected. Folding identities changes no bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.algebra.monoids import MONOIDS
from treadle.machine.form import Body, Compute, Control, Fold, Frag, FragRef, If, Loop, Stmt, Tasks, walk
from treadle.targets.cpu.emit.lanes import Lanes
from treadle.targets.cpu.emit.layouts import reads
from treadle.targets.cpu.emit.registers import Registers
from treadle.targets.cpu.emit.text import Function


def searches(body: Body, frags: Mapping[str, Frag]) -> dict[int, int]:
    """The id of each selection of coordinates that a fold alone reads -> how many statements behind it, up to the
    fold, do nothing when none is selected."""
    count: dict[str, int] = {}
    places: set[str] = set()
    for stmt in walk(body):
        for name, _, _ in reads(stmt, dict(frags)):
            count[name] = count.get(name, 0) + 1
        if isinstance(stmt, Compute) and stmt.fn == "index":
            places.add(stmt.dst)
    found: dict[int, int] = {}
    for block in _blocks(body):
        for at, stmt in enumerate(block):
            if isinstance(stmt, Compute) and stmt.fn == "where" and frags[stmt.dst].shape:
                size = _chain(stmt, block[at + 1 :], count, places, frags)
                if size:
                    found[id(stmt)] = size
    return found


def _blocks(body: Body) -> list[Body]:
    found = [body]
    for stmt in walk(body):
        match stmt:
            case Loop() | Tasks():
                found.append(stmt.body)
            case If():
                found += [stmt.then, stmt.orelse]
            case _:
                pass
    return found


def _chain(
    first: Compute,
    rest: Sequence[Stmt | Control],
    count: Mapping[str, int],
    places: set[str],
    frags: Mapping[str, Frag],
) -> int:
    """How many statements a selection of places goes through into a fold; 0 where it does not."""
    condition, taken, other = first.args
    if not isinstance(condition, FragRef) or not isinstance(taken, FragRef) or taken.name not in places:
        return 0
    if isinstance(other, FragRef) or not isinstance(other, int | float):
        return 0
    fills, name = {first.fill if first.where else other, other}, first.dst
    for size, stmt in enumerate(rest, 1):
        if count.get(name) != 1:
            return 0
        if isinstance(stmt, Fold) and stmt.src == FragRef(name) and not stmt.axes and stmt.acc == FragRef(stmt.dst):
            neutral = MONOIDS[stmt.monoid].is_identity
            known = [f for f in fills if not isinstance(f, str)]
            return size if all(neutral(f, frags[name].dtype) for f in known) else 0
        if not isinstance(stmt, Compute) or stmt.fn != "copy" or stmt.args != (FragRef(name),):
            return 0
        fills.add(stmt.fill if stmt.where else other)
        name = stmt.dst
    return 0


def selected(fn: Function, lanes: Lanes, registers: Registers, stmt: Compute) -> str:
    """Whether a selection takes any slot of its fragment."""
    condition = stmt.args[0]
    assert isinstance(condition, FragRef)
    flags: dict[int, str] = {}
    for point in registers.points(stmt.dst):
        size = point.lanes or 1
        own = lanes.splat(registers.read(condition, point), size)
        flags[size] = fn.value(f"or {own.type} {flags[size]}, {own.text}") if size in flags else own.text
    found: str | None = None
    for size, text in flags.items():
        # A slot beyond the end of an axis holds anything; a branch must not depend on nothing.
        known = fn.value(f"freeze <{size} x i1> {text}")
        bits = fn.value(f"bitcast <{size} x i1> {known} to i{size}")
        some = fn.value(f"icmp ne i{size} {bits}, 0")
        found = some if found is None else fn.value(f"or i1 {found}, {some}")
    assert found is not None
    return found
