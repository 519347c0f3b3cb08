"""Which two accesses a report names, where a rule has found that nothing orders them, and a case of the two.

A rule that refuses a protocol (a launch that does not wait, workgroups that have not met) knows the memory that is at
stake, not the statements. These are looked up here, for the report only: no verdict hangs on it, except where a rule
asks for a case (`encounter`): sizes and variables for which both statements are executed and meet in an element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from treadle.algebra.expr import Constraint, Expr, ExprLike, eq, sym
from treadle.algebra.maps import box
from treadle.algebra.sets import Facts, is_opaque
from treadle.checker.steps import bodies, lets_of, ranged
from treadle.machine.form import (
    Body,
    Compute,
    Control,
    Copy,
    If,
    Kernel,
    Load,
    Loop,
    MemRef,
    Mma,
    Role,
    Stmt,
    Store,
    Tasks,
    walk,
)
from treadle.machine.vocabulary import SYMBOLS

Touch = tuple[Stmt, MemRef, bool]
"""A statement, memory that it touches, and whether it writes it."""


def touches_of(body: Body) -> Iterator[Touch]:
    """What the statements of a body, and inside it, do to memory, operands included."""
    for s in walk(body):
        if isinstance(s, Load):
            yield s, s.src, False
        elif isinstance(s, Store):
            yield s, s.dst, True
        elif isinstance(s, Copy):
            yield s, s.src, False
            yield s, s.dst, True
        elif isinstance(s, Mma | Compute):
            operands = (s.a, s.b) if isinstance(s, Mma) else s.args
            yield from ((s, x, False) for x in operands if isinstance(x, MemRef))


def conflict(body: Body, others: Iterable[Body], own: frozenset[str] = frozenset()) -> tuple[Touch, Touch] | None:
    """The first access of a body, and the last one of other bodies, to one memory which one of the two stores to.
    `own` names memory that each has for itself."""
    return next(conflicts(body, others, own), None)


def conflicts(body: Body, others: Iterable[Body], own: frozenset[str] = frozenset()) -> Iterator[tuple[Touch, Touch]]:
    """All pairs of such accesses, that one first."""
    there = [t for other in others for t in touches_of(other) if t[1].name not in own]
    for mine in touches_of(body):
        for yours in reversed(there):
            if mine[1].name == yours[1].name and (mine[2] or yours[2]):
                yield mine, yours


def named(body: Body, name: str, writes: bool | None = None) -> Stmt | None:
    """The first statement that touches this memory (`writes`: that stores to it, or does not)."""
    return next((s for s, ref, w in touches_of(body) if ref.name == name and writes in (None, w)), None)


def updated(tasks: Tasks) -> tuple[Stmt | None, Stmt | None]:
    """A load of what tasks store and that store; the store twice where none of it is loaded."""
    found = list(touches_of(tasks.body))
    store = next((t for t in found if t[2]), None)
    if store is None:
        return None, None
    load = next((t for t in found if not t[2] and t[1].name == store[1].name), store)
    return load[0], store[0]


@dataclass(frozen=True)
class Reach:
    """The elements that a statement touches, where sizes and variables of its own tell them: `where` it is executed."""

    index: tuple[Expr, ...]
    where: tuple[Constraint, ...]
    own: frozenset[str]

    @property
    def names(self) -> dict[str, Expr]:
        """What its own variables are called where there are two."""
        return {name: sym(f"{name}'") for name in self.own}

    def renamed(self) -> Reach:
        """With such names."""
        env = self.names
        index, where = (e.substitute(env) for e in self.index), (c.substitute(env) for c in self.where)
        return Reach(tuple(index), tuple(where), frozenset(f"{name}'" for name in self.own))


def executed(role: Role, stmt: Stmt | Control, lets: Mapping[str, ExprLike]) -> list[Constraint] | None:
    """When an agent executes a statement, by what the controls around it say; None where more than sizes and variables
    of loops and tasks tells. `lets`: what other names stand for."""
    path, body = next((path, body) for path, body in bodies(role.body, ()) if any(s is stmt for s in body))
    found: list[Constraint] = []
    for control, inner in zip(path, [*path[1:], None], strict=True):
        if isinstance(control, If):
            taken = body is control.then if inner is None else any(s is inner for s in control.then)
            if not taken or control.cond is not None or control.last is not None:
                return None
            found += control.conds
        elif isinstance(control, Loop):
            step = control.step.constant
            if step is None or step < 1:
                return None
            found += [*ranged(control), eq((sym(control.var) - control.lo) % step, 0)]
        else:
            found += ranged(control)
    found += [] if role.index is None else box([role.index], [role.agents])
    told = [c.substitute(lets_of(role)).substitute(lets) for c in found]
    unknown = {*role.counters, *SYMBOLS}
    return None if any(c.expr.functions or c.expr.symbols & unknown for c in told) else told


def reach(kernel: Kernel, role: Role, touch: Touch, lets: Mapping[str, ExprLike]) -> Reach | None:
    """What a plain access by the threads of a role reaches, where that can be told."""
    stmt, ref, _ = touch
    frags = {f.name: f.shape for f in kernel.frags}
    where = executed(role, stmt, lets)
    if where is None or not isinstance(stmt, Load | Store | Copy) or ref.rank is not None:
        return None
    if isinstance(stmt, Store) and (stmt.mask is not None or stmt.effect != "set"):
        return None
    shape = stmt.box if isinstance(stmt, Copy) else frags[stmt.dst if isinstance(stmt, Load) else stmt.src.name]
    slots = [f"${i}" for i in range(len(shape))]
    index = tuple(e.substitute(lets_of(role)).substitute(lets) for e in ref.index)
    where += [*box(slots, shape), *(c.substitute(lets_of(role)).substitute(lets) for c in stmt.where)]
    told = [*index, *(c.expr for c in where)]
    if any(e.functions or e.symbols & {*role.counters, *SYMBOLS} for e in told):
        return None
    controls = [s for s in walk(role.body) if isinstance(s, Loop | Tasks)]
    own = {v for s in controls for v in ((s.var,) if isinstance(s, Loop) else s.vars)} | {*slots, role.index or "$0"}
    return Reach(index, tuple(where), frozenset(own))


def encounter(one: Reach | None, other: Reach | None, facts: Facts) -> dict[str, int] | None:
    """A case in which both are executed and touch one element. Variables of the other one have a mark behind them."""
    case = None if one is None or other is None else facts.also(*meeting(one, other.renamed())).sample()
    return None if case is None or is_opaque(case) else case


def meeting(one: Reach, other: Reach) -> Sequence[Constraint]:
    """What holds where both are executed and touch one element."""
    return (*one.where, *other.where, *map(eq, one.index, other.index))
