"""How each fragment is kept: decided once for a role from all its uses.

- `VECTOR`: one axis in vectors of the target's lanes, one variable a vector (LLVM makes registers of them): the last
  axis, or the one before where the last is a group of at most four (pairs of contracted elements beside one another).
- `SCALAR`: one variable an element, for fragments that are loaded and only ever read one element at a time: a
  broadcast from memory is then one instruction, where a broadcast from a vector's lane would be a shuffle.
- `MEMORY`: an array, for fragments that are read at coordinates which are not numbers.
- `TILE`: matrix-unit registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from treadle.algebra.expr import Constraint, Expr, Fn, sym
from treadle.machine.form import (
    Body,
    Compute,
    Control,
    Fold,
    Frag,
    FragRef,
    If,
    Let,
    Load,
    Loop,
    MemRef,
    Mma,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)
from treadle.targets.cpu.emit.index import coordinate, split

MOST_UNROLLED = 64
"""Iterations of a loop with constant bounds that are written out because its variable picks registers."""

MOST_SCALARS = 256
"""Elements that are kept one by one."""

MOST_GROUPED = 4
LEAST_GROUPS = 8
"""A last axis of at most so many elements is a group, if the axis before it has at least so many."""

Read = tuple[str, tuple[Expr, ...] | None, int]
"""Fragment, coordinates (None: identity), and the number of the reader's lane axis (-1: none)."""


class Layout(Enum):
    """See the module."""

    VECTOR = "vector"
    SCALAR = "scalar"
    MEMORY = "memory"
    TILE = "tile"


def unrolled_loops(body: Body, frags: dict[str, Frag]) -> set[str]:
    """Variables of the loops whose iterations are to be written out."""
    picks: set[str] = set()
    for stmt in walk(body):
        for name, coords, _ in reads(stmt, frags):
            if name in frags:
                picks |= {s for c in coords or () for s in c.symbols}
    found: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Loop) and stmt.var in picks:
            lo, hi, step = stmt.lo.constant, stmt.hi.constant, stmt.step.constant
            if lo is not None and hi is not None and step is not None and (hi - lo) <= MOST_UNROLLED * step:
                found.add(stmt.var)
    return found


def choose(
    body: Body, frags: dict[str, Frag], static: set[str], captured: set[str], pairs: frozenset[str] = frozenset()
) -> dict[str, Layout]:
    """The layout of every fragment. `static` are loop variables that are numbers when the text is written; `pairs` are
    read with one coordinate more than they have."""
    uses: dict[str, list[Read]] = {name: [] for name in frags}
    for stmt in walk(body):
        for name, coords, axis in reads(stmt, frags):
            if name in uses:
                uses[name].append((name, coords[:-1] if coords and name in pairs else coords, axis))
    together = captured | _computed(body)
    return {name: _layout(frag, uses[name], static, name in together) for name, frag in frags.items()}


FULL = 16
"""Lanes of 32 bits of the vectors that are told of here: those of AVX-512, which picks words by their numbers."""


def full(
    body: Body, frags: dict[str, Frag], layouts: dict[str, Layout], packed: set[str], width: int
) -> frozenset[str]:
    """Fragments of halves of bytes and of the bf16 made of them whose vectors are as wide as registers are for 16 bits:
    they are read along memory, converted, copied, stored, and contracted along their lanes, and nothing else."""
    found = {
        name
        for name, frag in frags.items()
        if width == FULL
        and layouts[name] is Layout.VECTOR
        and frag.shape
        and vector_axis(frag.shape) == len(frag.shape) - 1
        and frag.shape[-1] % (2 * width) == 0
        and (frag.dtype.packed or frag.dtype.name == "bf16")
    }
    # What a fragment is made of is one of them, back to what is read; what is contracted beside it may be any.
    while True:
        others: set[str] = set()
        for stmt in walk(body):
            others |= _not_full(stmt, found, frags, packed)
        if not others & found:
            return frozenset(found)
        found -= others


def _not_full(stmt: Stmt | Control, found: set[str], frags: dict[str, Frag], packed: set[str]) -> set[str]:
    """Fragments of a statement that it does not read or write in whole vectors."""
    touched = {name for name, _, _ in reads(stmt, frags)}
    if isinstance(stmt, Stmt):
        touched |= written([stmt])
    last = (
        sym(coordinate(len(frags[stmt.dst].shape) - 1))
        if isinstance(stmt, Load | Compute) and stmt.dst in frags
        else None
    )
    match stmt:
        case Load() if last is not None and stmt.src.name in packed:
            along = (stmt.src.index[-1] - last).symbols | {s for e in stmt.src.index[:-1] for s in e.symbols}
            return touched if last.symbols & along else touched - {stmt.dst}
        case Compute(fn="copy" | "cast", args=(FragRef(name=name, coords=None),)) if {stmt.dst, name} <= found:
            return touched - {stmt.dst, name}
        case Store(mask=None, old=None, effect="set") if stmt.src.coords is None and stmt.src.name in found:
            axis = sym(coordinate(len(frags[stmt.src.name].shape) - 1))
            along = (stmt.dst.index[-1] - axis).symbols | {s for e in stmt.dst.index[:-1] for s in e.symbols}
            return touched if axis.symbols & along else touched - {stmt.src.name}
        case Mma(atom="dpbf16"):
            return touched - {r.name for r in (stmt.a, stmt.b) if isinstance(r, FragRef)}
        case _:
            return touched


def _computed(body: Body) -> set[str]:
    """Fragments that are computed, which is cheaper a vector at a time however they are read."""
    found: set[str] = set()
    for stmt in walk(body):
        plain = isinstance(stmt, Compute) and stmt.fn == "copy" and not isinstance(stmt.args[0], FragRef)
        if isinstance(stmt, Compute | Fold | Mma) and not plain:
            found.add(stmt.dst)
        if isinstance(stmt, Store) and stmt.old is not None:
            found.add(stmt.old)
    return found


def _layout(frag: Frag, uses: list[Read], static: set[str], together: bool) -> Layout:
    if frag.place == "tile":
        return Layout.TILE
    known = static | {coordinate(i) for i in range(16)}
    for _, coords, _ in uses:
        for c in coords or ():
            parts = split(c, 16)
            if not c.symbols <= known or c.functions or parts is None or parts.steps() is None:
                return Layout.MEMORY
    elements = 1
    for n in frag.shape:
        elements *= n
    if frag.shape and uses and not together and elements <= MOST_SCALARS and all(map(_one_element, uses)):
        return Layout.SCALAR
    return Layout.VECTOR


def _one_element(use: Read) -> bool:
    _, coords, axis = use
    return coords is not None and all(coordinate(axis) not in c.symbols for c in coords)


def reads(stmt: Stmt | Control, frags: dict[str, Frag]) -> Iterator[Read]:
    """Every fragment that a statement reads, those inside index expressions too."""
    axis = lane_axis(stmt, frags)
    for ref in operands(stmt):
        yield ref.name, ref.coords, axis
    for expr in expressions(stmt):
        for atom in expr.atoms():
            if isinstance(atom, Fn):
                yield atom.name, atom.args, axis
    if isinstance(stmt, If) and stmt.cond is not None:
        yield stmt.cond, (), -1


def vector_axis(shape: tuple[int, ...]) -> int:
    """The axis along which a fragment's vectors run."""
    grouped = len(shape) >= 2 and shape[-1] <= MOST_GROUPED and shape[-2] >= LEAST_GROUPS
    return len(shape) - 2 if grouped else len(shape) - 1


def lane_axis(stmt: Stmt | Control, frags: dict[str, Frag]) -> int:
    """The coordinate along which the statement's vectors run; -1: none."""
    match stmt:
        case Load() | Compute() | Fold() | Mma() if stmt.dst in frags:
            return vector_axis(frags[stmt.dst].shape)
        case Store() if stmt.src.name in frags:
            return vector_axis(frags[stmt.src.name].shape)
        case _:
            return -1


def operands(stmt: Stmt | Control) -> Iterator[FragRef]:
    """Fragment operands."""
    match stmt:
        case Store():
            yield stmt.src
            if stmt.mask is not None:
                yield stmt.mask
        case Compute():
            yield from (a for a in stmt.args if isinstance(a, FragRef))
        case Fold():
            yield stmt.src
            if stmt.acc is not None:
                yield stmt.acc
        case Mma():
            yield from (r for r in (stmt.a, stmt.b, stmt.acc) if isinstance(r, FragRef))
        case _:
            return


def memory_operands(stmt: Stmt | Control) -> Iterator[MemRef]:
    """Memory operands."""
    match stmt:
        case Load():
            yield stmt.src
        case Store():
            yield stmt.dst
        case Compute():
            yield from (a for a in stmt.args if isinstance(a, MemRef))
        case Mma():
            yield from (r for r in (stmt.a, stmt.b) if isinstance(r, MemRef))
        case Sync() if stmt.object is not None:
            yield stmt.object
        case _:
            return


def conditions(stmt: Stmt | Control) -> tuple[Constraint, ...]:
    """The statement's `where`, or an `if`'s conditions."""
    if isinstance(stmt, Load | Store | Compute):
        return stmt.where
    return stmt.conds if isinstance(stmt, If) else ()


def expressions(stmt: Stmt | Control) -> Iterator[Expr]:
    """All index expressions that the statement evaluates itself (its claims are not evaluated)."""
    for ref in memory_operands(stmt):
        yield from ref.index
        if ref.version is not None:
            yield ref.version
    yield from (c.expr for c in conditions(stmt))
    match stmt:
        case Compute() if stmt.expr is not None:
            yield stmt.expr
        case Let():
            yield stmt.expr
        case Loop():
            yield from (stmt.lo, stmt.hi, stmt.step)
        case Tasks():
            yield from stmt.counts
        case _:
            return


def written(body: Body) -> set[str]:
    """Fragments that a body changes."""
    found = {s.dst for s in walk(body) if isinstance(s, Load | Compute | Fold | Mma)}
    return found | {s.old for s in walk(body) if isinstance(s, Store) and s.old is not None}
