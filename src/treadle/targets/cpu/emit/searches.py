"""Searches: folds of places where a condition holds, which seldom does.

The least place of an element is a fold of a selection: its coordinate where it is, the fold's identity elsewhere. Few
elements are what is looked for, so most fragments contribute nothing: what follows such a selection, up to the fold, is
skipped when no slot of the fragment is selected. Folding identities changes no bit.

Where two numbers must be equal or both NaN, the way is cut short by one comparison: they are equal or one is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from treadle.algebra.monoids import MONOIDS
from treadle.dtype.formats import bool_, f32, f64
from treadle.machine.form import Body, Compute, Control, Fold, Frag, FragRef, If, Loop, Stmt, Tasks, walk
from treadle.targets.cpu.emit.lanes import Lanes, Vec
from treadle.targets.cpu.emit.layouts import reads
from treadle.targets.cpu.emit.registers import Registers
from treadle.targets.cpu.emit.text import Function


@dataclass(frozen=True)
class Search:
    """`size`: how many statements behind a selection, up to the fold, do nothing when none is selected. `pair`: two
    floats that are equal, or one of them NaN, wherever the condition holds."""

    size: int
    pair: tuple[FragRef, FragRef] | None = None


def searches(body: Body, frags: Mapping[str, Frag]) -> dict[int, Search]:
    """By the id of each selection of coordinates that a fold alone reads."""
    count: dict[str, int] = {}
    places: set[str] = set()
    made = _Made(body)
    for stmt in walk(body):
        for name, _, _ in reads(stmt, dict(frags)):
            count[name] = count.get(name, 0) + 1
        if isinstance(stmt, Compute) and stmt.fn == "index":
            places.add(stmt.dst)
    found: dict[int, Search] = {}
    for block in _blocks(body):
        for at, stmt in enumerate(block):
            if isinstance(stmt, Compute) and stmt.fn == "where" and frags[stmt.dst].shape:
                size = _chain(stmt, block[at + 1 :], count, places, frags)
                if size:
                    found[id(stmt)] = Search(size, made.pair(stmt, block, frags))
    return found


class _Made:
    """The one statement that makes a fragment, and where it stands."""

    def __init__(self, body: Body) -> None:
        self.stmts: dict[str, list[Stmt | Control]] = {}
        self.place: dict[int, int] = {}
        for place, stmt in enumerate(walk(body)):
            self.place[id(stmt)] = place
            self.stmts.setdefault(getattr(stmt, "dst", ""), []).append(stmt)

    def by(self, ref: object, fn: str, block: Body) -> tuple[object, ...]:
        """What a fragment is made of that holds its value where `block` runs, and that one statement makes by `fn`;
        nothing for others."""
        only = self.only(ref, block)
        return only.args if isinstance(only, Compute) and only.fn == fn and not only.where else ()

    def only(self, ref: object, block: Body) -> Stmt | Control | None:
        """The one statement that makes a fragment, when it is of the block, or stands before it."""
        stmts = self.stmts.get(ref.name, []) if isinstance(ref, FragRef) else []
        if len(stmts) != 1:
            return None
        own = any(stmts[0] is stmt for stmt in block)
        return stmts[0] if own or self.place[id(stmts[0])] < self.place[id(block[0])] else None

    def pair(self, stmt: Compute, block: Body, frags: Mapping[str, Frag]) -> tuple[FragRef, FragRef] | None:
        """The floats of a condition `a == b or isnan(a) and isnan(b)`, all of it as it is at the selection."""
        sides = self.by(stmt.args[0], "or", block)
        for same, both in (sides, sides[::-1]) if len(sides) == 2 else ():
            pair = [r for r in self.by(same, "eq", block) if isinstance(r, FragRef)]
            tested = [_read_by(side, r) for side in self.by(both, "and", block) for r in self.by(side, "isnan", block)]
            chain = [self.only(r, block) for r in (*pair, same, both, stmt.args[0])]
            if len(pair) != 2 or None in chain or any(frags[r.name].dtype not in (f32, f64) for r in pair):
                continue
            places = [self.place[id(one)] for one in chain]
            ordered = max(places[:2]) < min(places[2:]) and max(places) < self.place[id(stmt)]
            slotwise = all(isinstance(r, FragRef) and r.coords is None for r in (stmt.args[0], same, both))
            if ordered and slotwise and set(pair) == set(tested):
                return pair[0], pair[1]
        return None


def _read_by(outer: object, inner: object) -> FragRef | None:
    """What a statement reads at its own slots that reads `outer`, which is made of `inner` slot by slot, or the other
    way round."""
    if not isinstance(outer, FragRef) or not isinstance(inner, FragRef):
        return None
    if outer.coords is None:
        return inner
    return replace(inner, coords=outer.coords) if inner.coords is None else None


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


def selected(fn: Function, lanes: Lanes, registers: Registers, stmt: Compute, search: Search) -> str:
    """Whether a selection may take any slot of its fragment."""
    condition = stmt.args[0]
    assert isinstance(condition, FragRef)
    flags: dict[int, str] = {}
    for point in registers.points(condition.name if condition.coords is None else stmt.dst):
        size = point.lanes or 1
        if search.pair is None:
            own = lanes.splat(registers.read(condition, point), size)
        else:
            a, b = (lanes.splat(registers.read(ref, point), size) for ref in search.pair)
            own = Vec(fn.value(f"fcmp ueq {a.type} {a.text}, {b.text}"), bool_, size)
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
