"""Where blocks end: the facts under which an engine's zeros stand where a block passes the end of its part, and the
tiles in which other elements of the tensor stand there."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.dims import Part
from treadle.algebra.expr import ZERO, Atom, Constraint, Expr, Max, Min, Sym, const, of, sym
from treadle.ir.core import RegionArg
from treadle.ir.guard import Bound, Divisible, Fact
from treadle.realise.ring import Stream, Tile


def crossed(lo: Expr, size: int, ends: Sequence[Expr]) -> list[Expr]:
    """Of these ends, those that a block of `size`, at `lo` plus a multiple of `size`, may have in its middle."""
    return [e for e in ends if any(c % size for _, c in (e - lo).terms)]


FAR = 1 << 22
"""Coordinates that boxes beyond an end are moved by, for each that they lie beyond it: past the end of any tensor that
has no more of them, where engines deliver zeros. A block of 256 stays within 31 bits."""


def closing(stream: Stream, rows: int, step: int) -> list[Fact] | str:
    """Facts under which a block that passes the end of a tile's part passes the end of its tensor too, where engines
    deliver zeros, or is cleared by its one reader, or is brought in boxes that do; or why there are none."""
    facts, passing = _closing(stream, rows, step)
    for tile, part, why in passing:
        size = grain(stream, tile, rows, step)
        if size < step:
            facts = [*facts, *_closing(stream, rows, size)[0], *_near(stream, tile)]
            continue
        # What is cleared ends where a value of the run says, not where a block of rows does.
        still = not length_of(stream).symbols & _moving(stream)
        cleared = rows == 64 and part == stream.step and tile.streamed and still
        cleared = cleared and stream.block is not None and not tile.more
        if contracted(stream, tile, part) and not cleared:
            return why
        # Nothing is said of what lies beyond the end, so no zeros may be needed beyond another one.
        for _, other, _ in tile.spans:
            if other != part and contracted(stream, tile, other) and not filled(stream, other, step):
                return f"blocks of {tile.tensor} pass the ends of {part} and of {other}, which is contracted"
    return list(dict.fromkeys(facts))


def grain(stream: Stream, tile: Tile, rows: int, step: int) -> int:
    """Coordinates of the step in a box of a tile: of boxes that wholly lie beyond the end of what is contracted none is
    brought. The whole step where blocks end with it, or are cleared."""
    if not tile.streamed or tile.more or tile.outer != stream.step or stream.block is None or stream.walked:
        return step
    if not contracted(stream, tile, stream.step) or not _open(stream, tile, rows, step):
        return step
    if rows == 64 and not length_of(stream).symbols & _moving(stream):
        return step
    sizes = (size for size in range(step - 16, 31, -16) if step % size == 0)
    return next((size for size in sizes if not _open(stream, tile, rows, size)), step)


def _open(stream: Stream, tile: Tile, rows: int, step: int) -> bool:
    """Whether blocks of this size may pass the step's end inside the tensor."""
    return any(t is tile and part == stream.step for t, part, _ in _closing(stream, rows, step)[1])


def _moving(stream: Stream) -> set[str]:
    """Where blocks of the region begin and end."""
    return {f"{a.name}.{b}" for a in stream.region.args if a.kind == "block" for b in ("start", "stop")}


def _near(stream: Stream, tile: Tile) -> list[Fact]:
    """That a tensor ends before what lies `FAR` away, and what says where blocks end is no larger."""
    domain = stream.step if stream.block is None else stream.block.domain
    names = {d.name for d in stream.program.dims}
    extents = [tile.source.tensor.dims[tile.axes[0]].extent, *(sym(n) for n in sorted(domain.hi.symbols & names))]
    return [Bound(Constraint(FAR - e)) for e in extents if e.constant is None or e.constant > FAR]


def passing(stream: Stream, rows: int, step: int) -> list[tuple[Tile, Part]]:
    """Tiles whose blocks may pass the end of a part inside their tensor, where engines bring its further elements."""
    found = ((tile, part) for tile, part, _ in _closing(stream, rows, step)[1])
    return [(t, p) for t, p in found if p != stream.step or grain(stream, t, rows, step) == step]


def never_cut(stream: Stream, arg: RegionArg, size: int, others: dict[str, int]) -> list[Fact] | None:
    """Facts under which no block of an argument of this size is cut short by the end of its range, blocks of `others`
    being of these sizes and never cut short: then nothing in a task has a mask for that. None where there are none."""
    args = {a.name: a for a in (*stream.region.args, *(stream.loop.args if stream.loop is not None else ()))}
    return multiple_where(arg.domain.hi - arg.domain.lo, size, args, others)


def length_of(stream: Stream) -> Expr:
    """Where the blocks of the ordered region end, less where they begin."""
    domain = stream.step if stream.block is None else stream.block.domain
    return domain.hi - domain.lo


def filled(stream: Stream, part: Part, step: int) -> bool:
    """Whether blocks of a part are full for every size of the guard: its extent is a number that they divide."""
    extent = part.extent.substitute(dict(stream.program.lets)).constant
    return extent is not None and extent % (step if part == stream.step else 64) == 0


def contracted(stream: Stream, tile: Tile, part: Part) -> bool:
    """Whether a contraction sums along this part of a tile: then nothing but zeros may lie beyond its end."""
    return any(tile in (c.left_tile, c.right_tile) and c.deep == part for c in stream.contractions)


def _closing(stream: Stream, rows: int, step: int) -> tuple[list[Fact], list[tuple[Tile, Part, str]]]:
    facts: list[Fact] = []
    passing: list[tuple[Tile, Part, str]] = []
    args = {a.name: a for a in (*stream.region.args, *(stream.loop.args if stream.loop is not None else ()))}
    cut = {} if stream.more_rows else {stream.rows.name: rows}
    for tile in stream.tiles:
        for axis, part, begin in tile.spans:
            if stream.all_rows and part == stream.rows.part:
                passing.append((tile, part, f"{part} has fewer rows than a block"))
                continue
            if part in tile.shifted or stream.told_in(tile, part):
                continue  # rows and columns of which none is used
            if begin != ZERO:
                # The whole of a factor, whose blocks end with it; or blocks of one, which the next one's follow.
                if part.hi != part.dim.extent or (contracted(stream, tile, part) and not filled(stream, part, step)):
                    passing.append((tile, part, f"{part} is a part of a factor"))
                continue
            extent = tile.source.tensor.dims[axis].extent
            lo = ZERO if stream.block is None or part != stream.step else stream.block.domain.lo
            mine: list[Fact] = []
            for end, block in _ends(part.hi, lo, args):
                if end == extent:
                    continue
                if block is None and not _local(end, args):
                    mine.append(Bound(Constraint(end - extent)))
                    continue
                # Blocks end with it when it lies a multiple of the step behind where they start.
                whole = multiple_where(end - lo, step, args, cut)
                if whole is None:
                    first = "" if multiple_where(lo, step, args, cut) is not None else f", after starting at {lo}"
                    why = (
                        f"blocks of {part} end at {end}{first}, where {tile.tensor} goes on "
                        f"(a range from and to multiples of {step}, as `n // {step} * {step}`, and a mask end there)"
                    )
                    passing.append((tile, part, why))
                    break
                mine += whole
            else:
                facts += mine
    return list(dict.fromkeys(facts)), passing


def multiple_where(expr: Expr, size: int, args: dict[str, RegionArg], cut: dict[str, int]) -> list[Fact] | None:
    """Facts under which an expression is a multiple of `size`, blocks of the arguments in `cut` being of these sizes
    and not cut short; or None."""
    rest = ZERO
    facts: list[Fact] = []
    for monomial, factor in expr.terms:
        if factor % size == 0:
            continue
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Min | Max):
            for arg in atom.args:
                found = multiple_where(arg * factor, size, args, cut)
                if found is None:
                    return None
                facts += found
            continue
        if isinstance(atom, Sym):
            name, _, end = atom.name.rpartition(".")
            if end in ("start", "stop") and name in cut and args[name].domain.lo == ZERO and cut[name] % size == 0:
                continue
        rest += _term(expr, monomial) * factor
    if _local(rest, args):
        return None
    if rest.constant is not None:
        return facts if rest.constant % size == 0 else None
    return [*facts, Divisible(rest, size)]


def _term(expr: Expr, monomial: tuple[Atom, ...]) -> Expr:
    """A product of atoms as an expression."""
    found = const(1)
    for atom in monomial:
        found = found * of(atom)
    return found


def _local(expr: Expr, args: dict[str, RegionArg]) -> bool:
    """Whether the value of an expression changes within a call."""
    inside = {f"{a}.{b}" for a in args for b in ("start", "stop")} | set(args)
    return bool(expr.functions or expr.symbols & inside)


def _ends(hi: Expr, lo: Expr, args: dict[str, RegionArg]) -> list[tuple[Expr, str | None]]:
    """The ends of a part that starts at `lo`: expressions, and the block argument whose blocks it ends with, if it
    does."""
    found: list[tuple[Expr, str | None]] = []
    todo = [(hi, True)]
    first = _alone(lo)
    starts = {lo, *(first.args if isinstance(first, Max) else ())}
    while todo:
        expr, own = todo.pop()
        atom = _alone(expr)
        if isinstance(atom, Min):
            todo += [(a, own) for a in atom.args]
            continue
        if isinstance(atom, Max):
            # No coordinate lies below 0 or the start: of a maximum with those only the other bounds matter.
            todo += [(a, own) for a in atom.args if a not in starts and (a.constant is None or a.constant > 0)]
            continue
        block = next((n for n in args if expr.coefficient(Sym(f"{n}.stop")) == 1), None)
        if block is not None:
            stop = sym(f"{block}.stop")
            if not own:
                found.append((expr, block))
            bound = args[block].domain.hi
            inner = _alone(bound)
            bounds = inner.args if isinstance(inner, Min) else (bound,)
            todo += [(expr - stop + b, False) for b in bounds]
        else:
            found.append((expr, None))
    return found


def _alone(expr: Expr) -> Atom | None:
    """The one atom that an expression is."""
    one = len(expr.terms) == 1 and len(expr.terms[0][0]) == 1 and expr.terms[0][1] == 1
    return expr.terms[0][0][0] if one else None
