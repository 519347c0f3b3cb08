"""Where blocks end: the facts under which an engine's zeros stand where a block passes the end of its part."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.expr import ZERO, Atom, Constraint, Expr, Max, Min, Sym, const, of, sym
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
    cut = {stream.rows.name: rows}
    for tile in stream.tiles:
        for axis, part, begin in zip(tile.axes, (tile.outer, tile.inner), tile.offsets, strict=True):
            if begin != ZERO or part in tile.shifted:
                continue  # the whole of a factor, whose blocks end with it; or rows and columns of which none is used
            extent = tile.source.tensor.dims[axis].extent
            lo = ZERO if stream.block is None or part != stream.step else stream.block.domain.lo
            for end, block in _ends(part.hi, lo, args):
                if end == extent:
                    continue
                if block is None and not _local(end, args):
                    facts.append(Bound(Constraint(end - extent)))
                    continue
                # Blocks end with it when it lies a multiple of the step behind where they start.
                whole = multiple(end - lo, step, args, cut)
                if whole is None:
                    first = "" if multiple(lo, step, args, cut) is not None else f", after starting at {lo}"
                    return (
                        f"blocks of {part} end at {end}{first}, where {tile.tensor} goes on "
                        f"(a range from and to multiples of {step}, as `n // {step} * {step}`, and a mask end there)"
                    )
                facts += whole
    return list(dict.fromkeys(facts))


def multiple(expr: Expr, size: int, args: dict[str, RegionArg], cut: dict[str, int]) -> list[Fact] | None:
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
                found = multiple(arg * factor, size, args, cut)
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
