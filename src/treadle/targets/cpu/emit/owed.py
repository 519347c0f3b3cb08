"""What sums of fours owe: products by 128 that are taken off after a loop, not in it.

A loop that does nothing with its sums but add products to them sums what they owe beside them, in one vector for all
sums that multiply the same bytes. Where the loop around it goes over nothing that those bytes depend on (the rows of a
block against one panel), what is owed is the same each time: it is summed once, before that loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from treadle.algebra.expr import Expr, sym
from treadle.machine.form import Body, Frag, FragRef, If, Let, Load, Loop, Mma, Stmt, Store, Tasks, walk
from treadle.targets.cpu.emit.fours import FOURS, GROUP, excess, factors, moved, products
from treadle.targets.cpu.emit.index import Point, coordinate
from treadle.targets.cpu.emit.lanes import Vec
from treadle.targets.cpu.emit.layouts import expressions, reads, written
from treadle.targets.cpu.emit.registers import Registers


def owing(loop: Loop, frags: dict[str, Frag]) -> Iterator[tuple[str, list[Mma]]]:
    """Sums that a loop does nothing with but add products of fours to them, and where it does so."""
    adding: dict[str, list[Mma]] = {}
    others: set[str] = set()
    for stmt in walk(loop.body):
        if isinstance(stmt, Tasks):
            return
        if isinstance(stmt, Mma) and stmt.atom == FOURS and _onto_itself(stmt, frags):
            adding.setdefault(stmt.dst, []).append(stmt)
        else:
            others |= {name for name, _, _ in reads(stmt, frags)}
            others |= written([stmt]) if isinstance(stmt, Stmt) else set()
    yield from ((name, found) for name, found in adding.items() if name not in others)


def _onto_itself(stmt: Mma, frags: dict[str, Frag]) -> bool:
    if stmt.acc is None or stmt.acc.name != stmt.dst:
        return False
    return stmt.acc.coords in (None, tuple(sym(coordinate(i)) for i in range(len(frags[stmt.dst].shape))))


# ---- loops whose debts are the same in every iteration around them


def without_sums(loop: Loop, around: Loop, frags: dict[str, Frag], packed: frozenset[str]) -> Loop | None:
    """The loop with nothing left but what loads its signed factors, from packed buffers; None where these are not the
    same in every iteration of the loop around it.

    *Ensures*: it reads what the loop reads in the first of those, changes no memory, and of the fragments only such
    factors.
    """
    signed: set[str] = set()
    for stmt in walk(loop.body):
        if isinstance(stmt, Mma) and stmt.atom == FOURS:
            other = factors(stmt, len(frags[stmt.dst].shape))[1]
            if not isinstance(other, FragRef):
                return None
            signed.add(other.name)
    kept = {i.holder for s in (around, *walk(around.body)) if isinstance(s, Loop) for i in s.invariants}
    if signed & kept:
        return None  # what a factor holds when an iteration begins is needed there
    changed = {s.dst.name for s in walk(around.body) if isinstance(s, Store)}
    pruned = _pruned(loop, signed, packed - changed, frozenset())
    if pruned is None:
        return None
    inside = {around.var} | {n for e in around.enters for name, _ in e.binds for n in _names(name)}
    inside |= {s.name for s in around.body if isinstance(s, Let)}
    bound = {s.var for s in _loops(pruned)} | {s.name for s in walk(pruned.body) if isinstance(s, Let)}
    used: set[str] = set()
    for stmt in (pruned, *walk(pruned.body)):
        for e in _index(stmt):
            if e.functions:
                return None
            used |= e.symbols
    return None if (used - bound) & inside else pruned


def _names(name: str) -> tuple[str, str, str]:
    return name, f"{name}.start", f"{name}.stop"


def _loops(loop: Loop) -> Iterator[Loop]:
    yield loop
    yield from (s for s in walk(loop.body) if isinstance(s, Loop))


def _index(stmt: object) -> Iterator[Expr]:
    """The index expressions of what is left of a loop, its names for blocks with them."""
    if isinstance(stmt, Loop):
        yield from (stmt.lo, stmt.hi, stmt.step)
        yield from (v for e in stmt.enters for _, values in e.binds for v in values)
    elif isinstance(stmt, Stmt) and not isinstance(stmt, Mma):
        yield from expressions(stmt)


def _pruned(loop: Loop, signed: set[str], packed: frozenset[str], loaded: frozenset[str]) -> Loop | None:
    """`loaded`: signed factors that are loaded before the loop, in an iteration of those around it."""
    body: Body = []
    for stmt in loop.body:
        if isinstance(stmt, Loop):
            inner = _pruned(stmt, signed, packed, loaded)
            if inner is None:
                return None
            body.append(inner)
        elif isinstance(stmt, If | Tasks):
            return None
        elif isinstance(stmt, Load) and stmt.dst in signed:
            if stmt.src.name not in packed:
                return None
            loaded |= {stmt.dst}
            body.append(stmt)
        elif isinstance(stmt, Mma) and {r.name for r in (stmt.a, stmt.b)} & signed - loaded:
            return None
        elif isinstance(stmt, Let | Mma):
            body.append(stmt)
        elif isinstance(stmt, Stmt) and written([stmt]) & signed:
            return None
    return replace(loop, body=body)


# ---- what is owed


class Owed:
    """What is to be taken off the sums of a fragment: one vector for those that multiply the same bytes."""

    def __init__(self, registers: Registers, name: str, adding: list[Mma], ahead: bool = False) -> None:
        self.registers = registers
        self.name = name
        self.ahead = ahead
        """Whether all of it was summed before the loop that adds the products."""
        self._places: dict[tuple[int, ...], dict[tuple[int, ...], str]] = {}
        for axes in dict.fromkeys(self.axes(stmt) for stmt in adding):
            table = self._places[axes] = {}
            for point in registers.points(name):
                key = _along(axes, point)
                if key not in table:
                    kind = _kind(point)
                    table[key] = registers.fn.alloca(kind, 64)
                    registers.fn.do(f"store {kind} zeroinitializer, ptr {table[key]}, align 64")

    def axes(self, stmt: Mma) -> tuple[int, ...]:
        """The axes of the sums along which the signed factor varies."""
        rank = len(self.registers.frag(self.name).shape)
        other = factors(stmt, rank)[1]
        coords = other.coords if isinstance(other, FragRef) else other.index
        return tuple(i for i in range(rank) if any(coordinate(i) in e.symbols for e in coords or ()))

    def add(self, stmt: Mma, point: Point, signed: Callable[[], Vec], seen: set[tuple[int, ...]]) -> None:
        """Adds what the products of these bytes are too large by, once for all sums of a step (`seen`)."""
        axes = self.axes(stmt)
        key = _along(axes, point)
        if key in seen:
            return
        seen.add(key)
        place, kind, fn = self._places[axes][key], _kind(point), self.registers.fn
        before = fn.value(f"load {kind}, ptr {place}, align 64")
        fn.do(f"store {kind} {excess(self.registers, before, signed())}, ptr {place}, align 64")

    def settle(self) -> None:
        """Takes it off."""
        fn = self.registers.fn
        for point in self.registers.points(self.name):
            total = self.registers.fetch(self.name, point)
            for axes, table in self._places.items():
                less = fn.value(f"load {total.type}, ptr {table[_along(axes, point)]}, align 64")
                total = replace(total, text=fn.value(f"sub {total.type} {total.text}, {less}"))
            self.registers.write(self.name, point, total)


def _along(axes: tuple[int, ...], point: Point) -> tuple[int, ...]:
    return tuple(point.at[i] for i in axes)


def _kind(point: Point) -> str:
    return f"<{point.lanes} x i32>"


@dataclass
class Fours:
    """Products of fours in one function. `unsigned`: fragments whose bytes have 128 added; `packed`: buffers."""

    registers: Registers
    frags: dict[str, Frag]
    unsigned: frozenset[str]
    packed: frozenset[str]
    _owed: dict[str, Owed] = field(default_factory=dict[str, Owed])
    _ahead: dict[int, list[Owed]] = field(default_factory=dict[int, list[Owed]])
    _summing: bool = False

    @contextmanager
    def around(
        self, loop: Loop, emit: Callable[[Loop], None], where_run: Callable[[Callable[[], None]], None]
    ) -> Generator[None]:
        """What sums owe in a loop is taken off them after it. `emit` writes a loop, `where_run` what is to be done only
        where this loop has an iteration."""
        if self.registers.fn.module.arm or self._summing:
            yield
            return
        found = self._ahead.get(id(loop), [])
        known = {o.name for o in found} | self._owed.keys()
        found += [Owed(self.registers, name, adding) for name, adding in owing(loop, self.frags) if name not in known]
        self._owed |= {owed.name: owed for owed in found}
        inner = [i for i in loop.body if isinstance(i, Loop)]
        summed = [i for i in inner if self._sum_ahead(i, loop, lambda pruned: where_run(lambda: emit(pruned)))]
        yield
        for one in summed:
            del self._ahead[id(one)]
        for owed in found:
            self._owed.pop(owed.name).settle()

    def _sum_ahead(self, loop: Loop, around: Loop, emit: Callable[[Loop], None]) -> bool:
        """Sums what a loop owes before the loop around it, where that is the same in all its iterations, and there is
        one: without, the factors may lie nowhere."""
        pairs = [(name, adding) for name, adding in owing(loop, self.frags) if name not in self._owed]
        pruned = without_sums(loop, around, self.frags, self.packed) if pairs else None
        adding = {id(m) for _, one in pairs for m in one}
        if pruned is None or any(isinstance(s, Mma) and id(s) not in adding for s in walk(loop.body)):
            return False
        found = [Owed(self.registers, name, adding, ahead=True) for name, adding in pairs]
        before, self._owed = self._owed, {o.name: o for o in found}
        self._summing = True
        emit(pruned)
        self._summing, self._owed = False, before
        self._ahead[id(loop)] = found
        return True

    def contract(self, stmt: Mma, left: Callable[[Point], Vec], right: Callable[[Point], Vec]) -> None:
        """`dst = acc + left * right`, the groups of the unsigned factor and of the signed one (`factors`)."""
        assert stmt.acc is not None
        registers, owed = self.registers, self._owed.get(stmt.dst)
        points = registers.points(stmt.dst)

        def signed(point: Point, k: int) -> Vec:
            return registers.lanes.splat(right(point.extended((k,))), point.lanes)

        if owed is not None and (self._summing or not owed.ahead):
            for k in range(0, stmt.contracted[0], GROUP):
                seen: set[tuple[int, ...]] = set()
                for point in points:
                    owed.add(stmt, point, lambda p=point, k=k: signed(p, k), seen)
        if self._summing:
            return
        one, _ = factors(stmt, len(registers.frag(stmt.dst).shape))
        ready = isinstance(one, FragRef) and one.name in self.unsigned
        totals = [registers.read(stmt.acc, p) for p in points]
        for k in range(0, stmt.contracted[0], GROUP):
            for i, point in enumerate(points):
                group, other, total = left(point.extended((k,))), signed(point, k), totals[i]
                group = registers.lanes.splat(group if ready else moved(registers, group), point.lanes)
                if owed is None:
                    less = excess(registers, "zeroinitializer", other)
                    total = replace(total, text=registers.fn.value(f"sub {total.type} {total.text}, {less}"))
                totals[i] = products(registers, total, group, other)
        for point, total in zip(points, totals):
            registers.write(stmt.dst, point, total)
