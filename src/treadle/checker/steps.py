"""Steps of rings: where roles move their counters on, and what stands in a step; what holds inside controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from treadle.algebra.expr import Constraint, Expr, const, ge, lt, sym
from treadle.machine.form import (
    Advance,
    Barrier,
    Body,
    Control,
    Copy,
    If,
    Let,
    Loop,
    MemRef,
    Role,
    Stmt,
    Sync,
    Tasks,
    walk,
)


@dataclass
class Step:
    """Where a role moves a counter on: the controls around it, outermost first, the body, the position in it."""

    counter: str
    path: tuple[Control, ...]
    body: Body
    position: int

    @property
    def before(self) -> Body:
        """The statements of a step."""
        return self.body[: self.position]

    @property
    def after(self) -> Body:
        """The rest of the body."""
        return self.body[self.position + 1 :]

    def of(self, role: Role) -> bool:
        """Whether it is a step of that role."""
        return any(body is self.body for _, body in bodies(role.body, ()))


@dataclass
class Ring:
    """One ring: its barriers, buffers, slots, and its steps in the producer; whether all workgroups of a cluster fill
    it together."""

    full: Barrier
    empty: Barrier
    slots: int
    buffers: frozenset[str]
    steps: list[Step]
    arrivals: int = 0
    shared: bool = False
    copied: int = 0  # by threads, so many of which arrive when their copies are complete

    @property
    def step(self) -> Step:
        """The first of its steps in the producer."""
        return self.steps[0]


def run_length(stmt: Copy, axis: int) -> Expr | None:
    """How many elements of its axis a run copies; None where its condition is not one bound of that axis."""
    if not stmt.where:
        return const(stmt.box[axis])
    length = stmt.where[0].expr + sym(f"${axis}") + 1
    mixed = any(s.startswith("$") for s in length.symbols) or length.functions
    return None if len(stmt.where) != 1 or stmt.where[0].equality or mixed else length


def kind(s: object) -> str:
    """The kind of a synchronisation; "" of any other statement."""
    return s.kind if isinstance(s, Sync) else ""


def at_barrier(s: object, word: str, barrier: str) -> bool:
    """Whether a statement is this synchronisation, at this barrier."""
    return isinstance(s, Sync) and s.kind == word and s.object is not None and s.object.name == barrier


def touches(s: object, counter: str) -> bool:
    """Whether a statement names a version of a ring by this counter."""
    refs: list[MemRef | None] = []
    if isinstance(s, Sync):
        refs.append(s.object)
    if isinstance(s, Copy):
        refs += [s.dst, s.src, s.signal]
    return any(r is not None and r.version is not None and counter in r.version.symbols for r in refs)


def is_meeting(s: object, everyone: int, but: frozenset[int] = frozenset()) -> bool:
    """Whether all threads meet here. `but`: barriers at which roles hand over, some without waiting."""
    if not isinstance(s, Sync) or s.kind != "barrier.sync" or s.by:
        return False
    args = dict(s.args)
    return args["threads"].constant == everyone and args["id"].constant not in but


def bodies(body: Body, path: tuple[Control, ...]) -> Iterator[tuple[tuple[Control, ...], Body]]:
    """Each body under `body`, itself first, with the control statements around it."""
    yield path, body
    for s in body:
        if isinstance(s, Loop | Tasks):
            yield from bodies(s.body, (*path, s))
        elif isinstance(s, If):
            yield from bodies(s.then, (*path, s))
            yield from bodies(s.orelse, (*path, s))


def flat(body: Body, times: int = 1, everything: bool = False) -> Iterator[tuple[Stmt, int]]:
    """The statements of a step and how often each is executed in it: loops of a known number of iterations only.

    `everything`: any statement inside, whatever the loops.
    """
    for s in body:
        if isinstance(s, Loop):
            trips = (s.hi - s.lo).constant
            step = s.step.constant or 1
            if everything:
                yield from flat(s.body, times, everything)
            elif trips is not None and not any(isinstance(x, Advance) for x in walk(s.body)):
                yield from flat(s.body, times * max(0, -(-trips // step)))
        elif isinstance(s, If) and everything:
            yield from flat(s.then, times, everything)
            yield from flat(s.orelse, times, everything)
        elif isinstance(s, Stmt):
            yield s, times


def lets_of(role: Role) -> dict[str, Expr]:
    """What a role's names stand for: names are unique in a role, not among roles."""
    found: dict[str, Expr] = {}
    for s in walk(role.body):
        if isinstance(s, Let):
            found[s.name] = s.expr.substitute(found)
    return found


def ranged(control: Control, lets: Mapping[str, Expr] | None = None) -> list[Constraint]:
    """What the variables of a task nest or loop are inside it."""
    if isinstance(control, Tasks):
        pairs = zip(control.vars, control.counts, strict=True)
        found = [c for name, count in pairs for c in (ge(sym(name), 0), lt(sym(name), count))]
    elif isinstance(control, Loop):
        found = [ge(sym(control.var), control.lo), lt(sym(control.var), control.hi)]
    else:
        found = []
    return [c.substitute(lets) for c in found] if lets else found
