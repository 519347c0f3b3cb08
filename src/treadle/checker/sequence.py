"""Colliding stores whose order is fixed (J6): the contributions to one element arrive in the order of the source.

The source's order of the contributions of one store is that of its instances, region by region and argument by
argument as written, then of its coordinates. The machine's is that of its loops; tasks, agents and the slots of one
statement have none, nor have iterations of a loop for elements that different threads hold, or for engines. A pair of
contributions that may meet in an element and that the source orders must be ordered alike. Subscripts that are no index
arithmetic may be equal for any two contributions.

Where merging is exact (integers, extrema) and no old value is handed back, no order can be told from another, and
nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.algebra.expr import Constraint, Expr, eq, ge, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.monoids import MONOIDS
from treadle.algebra.sets import Facts, Inexpressible, Region, before, complements
from treadle.checker.coverage import StoreEvent
from treadle.checker.scopes import argument_symbols
from treadle.checker.source import Source
from treadle.checker.verdict import Refused, Unsure
from treadle.ir import core
from treadle.ir.infer import sub_axes
from treadle.ir.ops import access
from treadle.machine.form import Loop

Steps = list[tuple[tuple[str, ...], bool]]
"""The variables of a statement's executions, outermost first: names that belong together, and whether they are run in
order."""


def check_sequence(source: Source, op: access.Store, events: list[StoreEvent], facts: Facts) -> None:
    """*Errors*: findings of J6 for a store with an order."""
    if op.effect == "set" or op.order == "unordered":
        return
    if MONOIDS[op.effect].exact(op.tensor.dtype) and not any(e.stored.old for e in events):
        return
    if len(events) > 1:
        raise Unsure("J6", f"{len(events)} statements share an ordered store to {op.tensor}", missing="one statement")
    for event in events:
        if event.engine:
            raise Unsure("J6", f"boxes merged into {op.tensor} in an order", missing="stores of threads")
        try:
            _check(source, op, event, facts)
        except Inexpressible as term:
            raise Unsure(
                "J6", f"the order of a store to {op.tensor} has the term {term}", missing="affine coordinates"
            ) from None


def _check(source: Source, op: access.Store, event: StoreEvent, facts: Facts) -> None:
    steps, inside = _steps(event)
    place = _place(source, op, event)
    names = [n for group, _ in steps for n in group]
    env_a, env_b = ({n: sym(f"{n}'{side}") for n in names} for side in "ab")
    late, early = ([e.substitute(env) for e in place] for env in (env_a, env_b))
    where = [c.substitute(env) for env in (env_a, env_b) for c in inside]
    where += _meet(source, op, event, env_a, env_b)
    dims = tuple(f"{n}'{side}" for side in "ab" for n in names)
    for order in before(early, late):
        for unordered in _not_first(steps, "b", "a"):
            clash = IndexMap(dims, (Expr(()),), (*where, *order, *unordered))
            found = Region.of(clash, facts)
            if not found.is_empty:
                raise Refused(
                    "J6", f"two contributions to one element of {op.tensor} are not kept in order", found.sample()
                )


def _steps(event: StoreEvent) -> tuple[Steps, list[Constraint]]:
    steps: Steps = []
    inside: list[Constraint] = []
    for f in event.frames:
        for r in f.ranges:
            inside += r.inside
        if f.ranges:
            steps.append((tuple(r.var for r in f.ranges), isinstance(f.control, Loop) and not f.agents))
        if len(f.alternatives) == 1:
            inside += f.alternatives[0]
    slots = tuple(f"${i}" for i in range(len(event.shape)))
    if slots:  # of one thread a slot's executions are in order, of several only if the slot is the same
        steps.insert(0 if event.spread else len(steps), (slots, False))
    return steps, [*inside, *box(slots, event.shape), *event.stored.where]


def _place(source: Source, op: access.Store, event: StoreEvent) -> list[Expr]:
    """Where a contribution stands in the order of the source."""
    found: list[Expr] = []
    for region, _ in source.scopes[id(op)]:
        if isinstance(region, core.Region):
            for arg in region.args:
                first = argument_symbols(arg)[0]
                if first not in event.stored.inst:
                    raise Unsure("J6", f"nothing says which {arg.name} a store belongs to", missing=f"{arg.name}")
                at = event.stored.inst[first]
                found.append(-at if arg.reversed else at)
    return [*found, *event.stored.coords]


def _meet(
    source: Source, op: access.Store, event: StoreEvent, a: dict[str, Expr], b: dict[str, Expr]
) -> list[Constraint]:
    """The subscripts that are index arithmetic are equal: only then can two contributions meet."""
    at = dict(zip((x.dim for x in sub_axes(op.subs)), event.stored.coords))
    index = source.subscripts(op.subs, op.tensor.dims, at, event.stored.inst)
    return [eq(i.substitute(a), i.substitute(b)) for i in index if not i.functions]


def _not_first(steps: Steps, first: str, second: str) -> Iterator[tuple[Constraint, ...]]:
    """Disjoint cases in which the machine does not execute `first` before `second`, for distinct executions."""
    same: list[Constraint] = []
    for names, ordered in steps:
        x, y = ([sym(f"{n}'{side}") for n in names] for side in (first, second))
        if ordered:
            yield (*same, ge(x[0], y[0] + 1))
        else:
            for other in complements([eq(p, q) for p, q in zip(x, y)]):
                yield (*same, *other)
        same += [eq(p, q) for p, q in zip(x, y)]
