"""Where blocks end: the facts under which an engine's zeros stand where a block passes the end of its part."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.expr import ZERO, Constraint, Expr, Max, Min, Sym, sym
from treadle.ir.core import RegionArg
from treadle.ir.guard import Bound, Divisible, Fact
from treadle.realise.ring import Stream


def crossed(lo: Expr, size: int, ends: Sequence[Expr]) -> list[Expr]:
    """Of these ends, those that a block of `size`, at `lo` plus a multiple of `size`, may have in its middle."""
    return [e for e in ends if any(c % size for _, c in (e - lo).terms)]


def closing(stream: Stream, rows: int, step: int) -> list[Fact] | str:
    """Facts under which a block that passes the end of a tile's part passes the end of its tensor too, where engines
    deliver zeros; or why there are none."""
    facts: list[Fact] = []
    args = {a.name: a for a in (*stream.region.args, *(stream.loop.args if stream.loop is not None else ()))}
    for tile in stream.tiles:
        for axis, part, begin in zip(tile.axes, (tile.outer, tile.inner), tile.offsets, strict=True):
            if begin != ZERO or part in tile.shifted:
                continue  # the whole of a factor, whose blocks end with it; or rows and columns of which none is used
            extent = tile.source.tensor.dims[axis].extent
            for end, block in _ends(part.hi, args):
                if block is not None:
                    # The end of a block of rows: a multiple of the step, if the shift between the two is one.
                    arg = args[block]
                    aligned = arg is stream.rows and rows % step == 0 and arg.domain.lo.constant == 0
                    shift = end - sym(f"{block}.stop")
                    if not aligned or not _starts_at_zero(stream) or _local(shift, args):
                        return f"blocks of {part} end at {end}, where {tile.tensor} goes on"
                    if shift.constant is None:
                        facts.append(Divisible(shift, step))
                    elif shift.constant % step:
                        return f"blocks of {part} end at {end}, where {tile.tensor} goes on"
                    continue
                if end == extent:
                    continue
                if _local(end, args):
                    return f"blocks of {part} end at {end}, where {tile.tensor} goes on"
                facts.append(Bound(Constraint(end - extent)))
    return list(dict.fromkeys(facts))


def _local(expr: Expr, args: dict[str, RegionArg]) -> bool:
    """Whether the value of an expression changes within a call."""
    inside = {f"{a}.{b}" for a in args for b in ("start", "stop")} | set(args)
    return bool(expr.functions or expr.symbols & inside)


def _starts_at_zero(stream: Stream) -> bool:
    return stream.block is None or stream.block.domain.lo.constant == 0


def _ends(hi: Expr, args: dict[str, RegionArg]) -> list[tuple[Expr, str | None]]:
    """The ends of a part: expressions, and the block argument whose blocks it ends with, if it does."""
    found: list[tuple[Expr, str | None]] = []
    todo = [(hi, True)]
    while todo:
        expr, own = todo.pop()
        atom = expr.terms[0][0][0] if len(expr.terms) == 1 and len(expr.terms[0][0]) == 1 else None
        if isinstance(atom, Min) and expr.terms[0][1] == 1:
            todo += [(a, own) for a in atom.args]
            continue
        if isinstance(atom, Max) and expr.terms[0][1] == 1:
            # No coordinate lies below 0: of a maximum with 0 only the other bound matters.
            rest = [a for a in atom.args if a.constant is None or a.constant > 0]
            if len(rest) == 1:
                todo.append((rest[0], own))
                continue
        block = next((n for n in args if expr.coefficient(Sym(f"{n}.stop")) == 1), None)
        if block is not None:
            stop = sym(f"{block}.stop")
            if not own:
                found.append((expr, block))
            bound = args[block].domain.hi
            inner = bound.terms[0][0][0] if len(bound.terms) == 1 and len(bound.terms[0][0]) == 1 else None
            bounds = inner.args if isinstance(inner, Min) and bound.terms[0][1] == 1 else (bound,)
            todo += [(expr - stop + b, False) for b in bounds]
        else:
            found.append((expr, None))
    return found
