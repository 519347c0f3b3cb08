"""Reading declarations: buffers, fragments, barriers, heads of roles, the host's lines and the facts of a guard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from treadle.algebra.expr import Expr
from treadle.dtype.formats import BY_NAME, DType
from treadle.ir.guard import Absent, Aligned, Disjoint, Fact, Injective, Pitch, Same, Unit
from treadle.machine.expressions import MachineTokens, read_expr
from treadle.machine.form import Barrier, Buffer, Enter, Frag, Launch, Mode, Role, TensorMap

T = TypeVar("T")


def listed(tokens: MachineTokens, read: Callable[[MachineTokens], T]) -> list[T]:
    """`(a, b, ...)`, possibly empty."""
    tokens.expect("(")
    items: list[T] = []
    while not tokens.at(")"):
        items.append(read(tokens))
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return items


def word_or_number(tokens: MachineTokens) -> str | int:
    """A word of a raster, or its number."""
    return tokens.integer() if tokens.peek().kind == "int" else tokens.name("a word or a number")


def read_enters(tokens: MachineTokens) -> tuple[Enter, ...]:
    """The regions that a control enters; none where it says nothing."""
    enters: list[Enter] = []
    if not tokens.accept("enters"):
        return ()
    while True:
        region = tokens.name("a region")
        enters.append(Enter(region, tuple(listed(tokens, _bind))))
        if not tokens.accept(","):
            return tuple(enters)


def _bind(tokens: MachineTokens) -> tuple[str, tuple[Expr, ...]]:
    name = tokens.name("an argument of the region")
    tokens.expect("=")
    start = read_expr(tokens)
    return (name, (start, read_expr(tokens))) if tokens.accept("..") else (name, (start,))


def _dtype(tokens: MachineTokens) -> DType:
    if tokens.peek().text not in BY_NAME:
        raise tokens.error(f"a dtype: {', '.join(BY_NAME)}")
    return BY_NAME[tokens.name()]


def read_extents(tokens: MachineTokens) -> tuple[Expr, ...]:
    """`[M, 4]`."""
    tokens.expect("[")
    extents: list[Expr] = []
    while not tokens.at("]"):
        extents.append(read_expr(tokens))
        if not tokens.accept(","):
            break
    tokens.expect("]")
    return tuple(extents)


def read_buffer(tokens: MachineTokens) -> Buffer:
    """`buffer NAME DTYPE[EXTENTS] PLACE align BYTES ...`."""
    tokens.expect("buffer")
    name, dtype, shape = tokens.name(), _dtype(tokens), read_extents(tokens)
    place = tokens.name("a place")
    tokens.expect("align")
    align = tokens.integer()
    versions = tokens.integer() if tokens.accept("versions") else 0
    swizzle = tokens.integer() if tokens.accept("swizzle") else 0
    offset = read_expr(tokens) if tokens.accept("@") else None
    return Buffer(name, dtype, shape, place, align, versions, swizzle, offset)


def read_frag(tokens: MachineTokens) -> Frag:
    """`frag NAME DTYPE[NUMBERS] ...`."""
    tokens.expect("frag")
    name, dtype = tokens.name(), _dtype(tokens)
    extents = [e.constant for e in read_extents(tokens)]
    shape = tuple(n for n in extents if n is not None)
    if len(shape) != len(extents):
        raise tokens.error("extents that are numbers")
    dist = tuple(listed(tokens, _mode)) if tokens.accept("dist") else ()
    place = tokens.name() if tokens.accept("place") else "register"
    return Frag(name, dtype, shape, dist, place)


def _mode(tokens: MachineTokens) -> Mode:
    who, size = tokens.name("slot, lane, warp or replica"), tokens.integer()
    tokens.expect("axis")
    axis = None if tokens.accept("-") else tokens.integer("an axis or -")
    tokens.expect("stride")
    return Mode(who, size, axis, tokens.integer())


def read_barrier(tokens: MachineTokens) -> Barrier:
    """`barrier NAME count ARRIVALS versions V [tx] @ OFFSET`."""
    tokens.expect("barrier")
    name = tokens.name()
    tokens.expect("count")
    count = tokens.integer()
    tokens.expect("versions")
    versions = tokens.integer()
    tx = tokens.accept("tx")
    tokens.expect("@")
    return Barrier(name, count, versions, tx, tokens.integer())


def read_role(tokens: MachineTokens) -> Role:
    """The head of a role, its opening brace included."""
    tokens.expect("role")
    name = tokens.name()
    tokens.expect("agents")
    agents = tokens.integer()
    tokens.expect("threads")
    threads = tokens.integer()
    index = tokens.name() if tokens.accept("index") else None
    registers = tokens.integer() if tokens.accept("registers") else None
    counters = tuple(listed(tokens, lambda t: t.name())) if tokens.accept("counters") else ()
    tokens.expect("{")
    return Role(name, agents, threads, [], index, registers, counters)


def read_map(tokens: MachineTokens) -> TensorMap:
    """`map NAME of TENSOR ...`."""
    tokens.expect("map")
    name = tokens.name()
    tokens.expect("of")
    tensor, dtype = tokens.name("a tensor"), _dtype(tokens)
    tokens.expect("box")
    box = tuple(listed(tokens, lambda t: t.integer()))
    tokens.expect("swizzle")
    swizzle = tokens.integer()
    tokens.expect("fill")
    fill = tokens.name()
    tokens.expect("promotion")
    return TensorMap(name, tensor, dtype, box, swizzle, fill, tokens.integer())


def read_launch(tokens: MachineTokens) -> Launch:
    """`launch KERNEL grid EXPR threads N ...`."""
    tokens.expect("launch")
    kernel = tokens.name("a kernel")
    tokens.expect("grid")
    grid = read_expr(tokens)
    tokens.expect("threads")
    threads = tokens.integer()
    cluster = tokens.integer() if tokens.accept("cluster") else 1
    cooperative = tokens.accept("cooperative")
    dependent = tokens.accept("dependent")
    shared = tokens.integer() if tokens.accept("shared") else 0
    resident = tokens.integer() if tokens.accept("resident") else 0
    return Launch(kernel, grid, threads, cluster, cooperative, shared, resident, dependent)


def _align(tokens: MachineTokens) -> Fact:
    tensor = tokens.name("a tensor")
    tokens.expect(")")
    tokens.expect(">=")
    return Aligned(tensor, tokens.integer())


def _pitch(tokens: MachineTokens) -> Fact:
    tensor = tokens.name("a tensor")
    tokens.expect(",")
    axis = tokens.integer()
    tokens.expect(")")
    tokens.expect("%")
    by = tokens.integer()
    tokens.expect("==")
    tokens.expect("0")
    return Pitch(tensor, axis, by)


def _unit(tokens: MachineTokens) -> Fact:
    tensor = tokens.name("a tensor")
    tokens.expect(",")
    fact = Unit(tensor, tokens.integer())
    tokens.expect(")")
    return fact


def _pair(fact: Callable[[str, str], Fact], tokens: MachineTokens) -> Fact:
    first = tokens.name("a tensor")
    tokens.expect(",")
    second = tokens.name("a tensor")
    tokens.expect(")")
    return fact(first, second)


def _tensor(fact: Callable[[str], Fact], tokens: MachineTokens) -> Fact:
    name = tokens.name("a tensor")
    tokens.expect(")")
    return fact(name)


FACTS: dict[str, Callable[[MachineTokens], Fact]] = {
    "align": _align,
    "pitch": _pitch,
    "unit": _unit,
    "disjoint": partial(_pair, Disjoint),
    "same": partial(_pair, Same),
    "injective": partial(_tensor, Injective),
    "absent": partial(_tensor, Absent),
}
"""Facts of a guard that begin with a word, by that word."""
