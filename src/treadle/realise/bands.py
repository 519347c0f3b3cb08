"""Bands: a tile that a region reads near its own coordinates, made again by each of its instances for itself.

Two parallel regions follow one another; the first one makes a tile, the second reads it at coordinates that differ from
its own by bounded offsets. An instance of the second then needs a band of the tile: its own block and what lies around
it. It can make that band in storage of its own, so that the tile never goes to memory, at the price that what lies
between two blocks is made twice. Values are pointwise: the elements of the band are the tile's, whoever makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr, const
from treadle.analysis.uses import Uses, expressions
from treadle.ir.core import AxisSub, Program, Region, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Coords, Elementwise, Full, Index


@dataclass(frozen=True)
class Reach:
    """How far around a block of the argument `arg` another region's argument goes: `first` before its start (not
    positive where it begins earlier), `last` beyond its stop."""

    arg: str
    first: Expr
    last: Expr


@dataclass(frozen=True)
class Band:
    """The region `region` made by every instance of the region `into`: for each argument its reach around one of
    `into`'s, or all of its domain (None)."""

    region: str
    into: str
    reach: Mapping[str, Reach | None]


def bands(program: Program, uses: Uses, names: Mapping[int, str]) -> tuple[Band, ...]:
    """All regions that can be made in bands, in the order of the program. `names`: of regions, by identity."""
    found: dict[str, Band] = {}
    top = [op for op in program.body.ops if isinstance(op, Region)]
    for number in reversed(range(len(top))):
        region = top[number]
        if region.results and _makes(region, uses):
            band = _band(program, uses, region, {names[id(r)]: r for r in top[number + 1 :]}, found, names)
            if band is not None:
                found[band.region] = band
    return tuple(found[names[id(r)]] for r in top if names[id(r)] in found)


def _makes(region: Region, uses: Uses) -> bool:
    """Whether a region does nothing but fill tiles that had no values, each element by the instance of its own
    coordinates, from what never changes."""
    if region.kind != "parallel" or any(a.kind != "block" or a.size is not None for a in region.args):
        return False
    if any(a.domain != a.domain.dim.whole() for a in region.args):
        return False
    for init, carried, given in zip(region.inits, region.carried, region.body.yields, strict=True):
        blank, made = uses.definition.get(init.name), uses.definition.get(given.name)
        if not isinstance(blank, Full) or blank.number is not None or blank.place is not None:
            return False
        if not isinstance(made, Insert) or made.source is not carried or len(uses.users[carried.name]) != 1:
            return False
        parts = [s.part if isinstance(s, Sub) else None for s in made.subs]
        if len(parts) != len(region.args) or any(a.part not in parts for a in region.args):
            return False
    bounds = {s for a in region.args for s in (f"{a.name}.start", f"{a.name}.stop")}
    for op in region.body.walk():
        if isinstance(op, Store | Print | Check) or isinstance(op, Load) and not uses.stable(op):
            return False
        if isinstance(op, Index) and op.expr.symbols & bounds:
            return False
        if any(e.symbols & bounds and not _own(e, bounds) for e in expressions(op)):
            return False
    return True


def _own(expr: Expr, bounds: set[str]) -> bool:
    """Whether an expression is one of these symbols by itself."""
    return any(expr.terms == (((atom,), 1),) for (atom, *_), _ in expr.terms) and expr.symbols <= bounds


def _band(
    program: Program,
    uses: Uses,
    region: Region,
    later: Mapping[str, Region],
    found: Mapping[str, Band],
    names: Mapping[int, str],
) -> Band | None:
    """The band of a region, if all that read its tiles are instances of one later region, or bands of it."""
    readers: dict[str, list[Extract]] = {}
    for result in region.results:
        for user in uses.users.get(result.name, []):
            if isinstance(user, Region):
                continue  # of what is inside
            inside = next((n for n, r in later.items() if any(o is user for o in r.body.walk())), None)
            if inside is None or not isinstance(user, Extract) or user.source is not result:
                return None
            readers.setdefault(inside, []).append(user)
        carried_on = [r for r in later.values() if any(v is result for v in (*r.inits, *r.body.yields))]
        if carried_on or any(v is result for v in program.body.yields):
            return None
    targets = {found[n].into if n in found else n for n in readers}
    if len(targets) != 1:
        return None
    (into,) = targets
    owner = later[into]
    if owner.kind != "parallel" or any(a.size is not None for a in owner.args):
        return None
    reach: dict[str, Reach | None] = {}
    for arg in region.args:
        spans: list[Reach | None] = []
        for name, ops in readers.items():
            for op in ops:
                axis = next(i for i, a in enumerate(op.source.type.axes) if a.dim is arg.domain.dim)
                spans.append(_span(op.subs[axis], later[name], uses, found.get(name), owner))
        reach[arg.name] = _joined(spans, {s for d in program.dims for s in d.extent.symbols} | program.lets.keys())
    if all(r is None for r in reach.values()):
        return None
    return Band(names[id(region)], into, reach)


def _span(sub: AxisSub, reader: Region, uses: Uses, band: Band | None, owner: Region) -> Reach | None:
    """Which coordinates of an axis a reader asks for, around a block of an argument of `owner`."""
    if not isinstance(sub, Sub):
        return None
    if sub.part is not None:
        place: tuple[Part, Expr] | None = (sub.part, const(0))
    else:
        place = None if sub.tile is None else offset_of(sub.tile, uses)
    arg = None if place is None else next((a for a in reader.args if a.kind == "block" and a.part == place[0]), None)
    if place is None or arg is None:
        return None
    span = _range(place[1], reader)
    if span is None:
        return None
    if band is None:
        return Reach(arg.name, *span)
    beyond = band.reach[arg.name]
    return None if beyond is None else Reach(beyond.arg, beyond.first + span[0], beyond.last + span[1])


def offset_of(value: Value, uses: Uses) -> tuple[Part, Expr] | None:
    """A tile of coordinates moved by an offset that is the same everywhere: the part, and the offset."""
    op = uses.definition.get(value.name)
    if isinstance(op, Coords):
        return op.part, const(0)
    if not isinstance(op, Elementwise) or op.fn not in ("add", "sub"):
        return None
    left, right = op.args
    for moved, by in ((left, right), (right, left)) if op.fn == "add" else ((left, right),):
        base, offset = offset_of(moved, uses), _number(by, uses)
        if base is not None and offset is not None:
            return base[0], base[1] + (offset if op.fn == "add" else -offset)
    return None


def _number(value: Value, uses: Uses) -> Expr | None:
    """An integer scalar as an index expression."""
    op = uses.definition.get(value.name)
    if isinstance(op, Full) and op.number is not None:
        return const(int(op.number))
    if isinstance(op, Index) and not op.expr.functions:
        return op.expr
    if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
        left, right = (_number(a, uses) for a in op.args)
        if left is not None and right is not None:
            return left + right if op.fn == "add" else left - right
    return None


def _range(offset: Expr, reader: Region) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of an offset over the single indices of regions inside the reader."""
    least = greatest = offset
    for op in reader.body.walk():
        for arg in op.args if isinstance(op, Region) else ():
            if arg.name not in offset.symbols:
                continue
            parts = [c for monomial, c in offset.terms if any(getattr(a, "name", "") == arg.name for a in monomial)]
            if arg.kind != "each" or len(parts) != 1 or abs(parts[0]) != 1:
                return None
            ends = arg.domain.lo, arg.domain.hi - 1
            low, high = ends if parts[0] > 0 else ends[::-1]
            least, greatest = least.substitute({arg.name: low}), greatest.substitute({arg.name: high})
    return least, greatest


def _joined(spans: list[Reach | None], known: set[str]) -> Reach | None:
    """What covers all of these: around one argument, by what extents tell."""
    one = spans[0]
    if one is None or any(s is None or s.arg != one.arg for s in spans):
        return None
    first, last = one.first, one.last
    for span in spans:
        assert span is not None
        low, high = (span.first - first).constant, (span.last - last).constant
        if low is None or high is None or (span.first.symbols | span.last.symbols) - known:
            return None
        first, last = (span.first if low < 0 else first), (span.last if high > 0 else last)
    return Reach(one.arg, first, last)


def neighbours(program: Program, uses: Uses) -> dict[str, dict[Dim, set[Expr]]]:
    """By tensor or tile: the dimensions along which its elements are read around a coordinate, and the offsets."""
    found: dict[str, dict[Dim, set[Expr]]] = {}
    for op in program.body.walk():
        if not isinstance(op, Load | Extract):
            continue
        source = found.setdefault(op.tensor.name if isinstance(op, Load) else op.source.name, {})
        for sub in op.subs:
            if isinstance(sub, Sub) and sub.part is not None:
                source.setdefault(sub.part.dim, set()).add(const(0))
            elif isinstance(sub, Sub) and sub.tile is not None:
                place = offset_of(sub.tile, uses)
                if place is not None:
                    source.setdefault(place[0].dim, set()).add(place[1])
    return found
