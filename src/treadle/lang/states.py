"""Reduction states: updated by one monoid, whole or in part, and read nowhere else in the body.

A monoid of the user updates several leaves at once: its `Application` says which operations are the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.base.source import Span
from treadle.ir.core import Block, If, Op, Region, Value
from treadle.ir.ops.access import Extract, Insert
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Mma
from treadle.ir.rewrite import operand_names
from treadle.lang.errors import NotAnUpdate, StateRead
from treadle.lang.frames import Path, path_text
from treadle.lang.monoids import Application, Monoid
from treadle.lang.tile import Tile

MONOIDS = {
    "add": "+",
    "mul": "*",
    "maximum": "maximum",
    "minimum": "minimum",
    "and": "&",
    "or": "|",
    "xor": "^",
}
INVERSES = {
    "sub": ("-", "fold the negated values: {s} = {s} + -x"),
    "div": ("/", "fold the reciprocals: {s} = {s} * (1 / x)"),
}
"""Operations that are no monoid, but the inverse of one's: how they are shown, and what to write."""


@dataclass(frozen=True)
class Group:
    """Carried values that are the leaves of one state of a monoid: by the leaf's path, which carried value it is."""

    monoid: Monoid
    state: Any
    places: dict[Path, int]
    span: Span | None


def check_states(
    region: Region, names: Sequence[str], spans: Sequence[Span | None], applications: Sequence[Application]
) -> list[Group]:
    """The states of the user's monoids.

    *Errors*: `reduce/state-read`, `reduce/not-an-update` where a carried value of a `reduce` is no state.
    """
    for app in applications:
        app.places.clear()
    states = [_State(region, i, n, s, applications) for i, (n, s) in enumerate(zip(names, spans))]
    for state, carried, final in zip(states, region.carried, region.body.yields):
        state.check(region.body, carried, final)
    groups: list[Group] = []
    for app in applications:
        if app.places:
            _group(groups, app, states)
    return groups


def _group(groups: list[Group], app: Application, states: Sequence[_State]) -> None:
    """Adds the state of an application, or finds it again. *Errors*: `reduce/not-an-update`."""
    first = states[next(iter(app.places.values()))]
    missing = [p for p in app.left if p not in app.places]
    if missing:
        raise first.not_update(f"a merge with {path_text(('state', *missing[0]))}, which is no state", span=app.span)
    for group in groups:
        if set(group.places.values()) & set(app.places.values()):
            if group.places != app.places or group.monoid is not app.monoid:
                found = f"an update by {app.monoid.name} after one by {group.monoid.name}"
                raise first.not_update(found, span=app.span)
            return
    groups.append(Group(app.monoid, app.state, dict(app.places), app.span))


@dataclass
class _State:
    region: Region
    number: int
    name: str
    span: Span | None
    applications: Sequence[Application]
    monoid: str | None = None

    def check(self, block: Block, state: Value, final: Value) -> None:
        """Follows the state from update to update to the end of the block."""
        passed: set[Op] = set()
        while True:
            users = [u for u in _users(block, state) if u not in passed]
            app = self.application(state, users)
            if app is not None:
                passed |= app.ops
                state = self.merged(app, state)
                continue
            if state is final:
                break
            if not users:
                raise self.not_update("a value that does not come from it")
            state = self.step(block, state, users)
        if users:
            raise self.read(users[0])

    def application(self, state: Value, users: list[Op]) -> Application | None:
        """The monoid that these users of the state apply to it."""
        for app in self.applications:
            if users and any(v is state for v in app.left.values()) and app.ops.issuperset(users):
                return app
        return None

    def merged(self, app: Application, state: Value) -> Value:
        """The same leaf of the merged state."""
        path = next(p for p, v in app.left.items() if v is state)
        self.use(None, app.monoid.name, app.span)
        app.places[path] = self.number
        result = app.results[path]
        if not isinstance(result, Tile):
            raise self.not_update(f"the number {result}", span=app.span)
        return result.value

    def step(self, block: Block, state: Value, users: list[Op]) -> Value:
        first = users[0]
        if isinstance(first, Extract) and first.source is state and len(users) == 2 and isinstance(users[1], Insert):
            return self.part(block, state, first, users[1])
        if len(users) > 1:
            raise self.read(next((u for u in users if not _is_update(u)), users[1]))
        match first:
            case Cast() if first.source is state:
                return first.result
            case Elementwise() if first.fn in MONOIDS:
                return self.elementwise(first, state)
            case Elementwise(fn="where") if first.args[1] is state and first.args[2] is state:
                return first.result
            case Mma() if first.acc is state and state not in (first.a, first.b):
                self.use(first, "add")
                return first.result
            case Region():
                return self.nested(first, state)
            case If():
                return self.branches(block, first, state)
            case Elementwise() if first.fn in INVERSES and first.args[0] is state and state not in first.args[1:]:
                sign, hint = INVERSES[first.fn]
                raise self.not_update(f"an update by {sign}, which is no fold", first, hint=hint.format(s=self.name))
            case _:
                raise self.read(first)

    def elementwise(self, op: Elementwise, state: Value) -> Value:
        if sum(a is state for a in op.args) != 1:
            raise self.read(op)
        self.use(op, op.fn)
        return op.result

    def use(self, op: Op | None, monoid: str, span: Span | None = None) -> None:
        if self.monoid not in (None, monoid):
            new, old = (MONOIDS.get(m, m) for m in (monoid, str(self.monoid)))
            raise self.not_update(f"an update by {new} after one by {old}", op, span)
        self.monoid = monoid

    def part(self, block: Block, state: Value, read: Extract, write: Insert) -> Value:
        """`s[q] = s[q] + x`: the part is updated like a state of its own, and written back to where it was read."""
        if write.source is not state or write.subs != read.subs:
            raise self.not_update("a part of it, assigned to another part", write)
        self.check(block=_without(block, write), state=read.result, final=write.value)
        return write.result

    def nested(self, region: Region, state: Value) -> Value:
        if sum(v is state for v in region.inits) != 1 or state.name in _mentioned(region.body):
            raise self.read(region)
        i = region.inits.index(state)
        self.check(region.body, region.carried[i], region.body.yields[i])
        return region.results[i]

    def branches(self, block: Block, op: If, state: Value) -> Value:
        """Each branch of a traced `if` yields the state or an update of it."""
        if op.cond is state:
            raise self.read(op)
        options = [i for i in range(len(op.results)) if all(_reaches(b, state, b.yields[i]) for b in op.blocks)]
        if len(options) != 1:
            raise self.read(op)
        for inner in op.blocks:
            self.check(inner, state, inner.yields[options[0]])
        return op.results[options[0]]

    def read(self, op: Op) -> StateRead:
        return StateRead(
            doing=f"capturing td.reduce with the state {self.name}",
            found=f"{self.name} is read outside its update",
            expected="a state that the body only updates: s = s + x (* & | ^), td.maximum, td.minimum, td.mma, monoids",
            hint="use td.serial or td.pipeline, whose iterations see one another's results",
            span=op.span or self.span,
            notes=[(self.region.span, "the region")],
        )

    def not_update(
        self,
        found: str,
        op: Op | None = None,
        span: Span | None = None,
        hint: str = "use td.serial or td.pipeline for other recurrences",
    ) -> NotAnUpdate:
        return NotAnUpdate(
            doing=f"capturing td.reduce with the state {self.name}",
            found=f"{self.name} is assigned {found}",
            expected="updates by one operation: s = s + x (* & | ^), td.maximum, td.minimum, td.mma, monoids",
            hint=hint,
            span=span or (op.span if op is not None else None) or self.span,
            notes=[(self.region.span, "the region")],
        )


def _users(block: Block, value: Value) -> list[Op]:
    """Operations of the block that use the value, themselves or inside."""
    return [op for op in block.ops if value.name in _mentions(op)]


def _mentions(op: Op) -> set[str]:
    names = operand_names(op)
    for inner in op.blocks:
        names |= _mentioned(inner)
    return names


def _mentioned(block: Block) -> set[str]:
    names = {v.name for v in block.yields}
    for op in block.ops:
        names |= _mentions(op)
    return names


def _is_update(op: Op) -> bool:
    return isinstance(op, (Mma, Region, If, Insert)) or (isinstance(op, Elementwise) and op.fn in MONOIDS)


def _without(block: Block, op: Op) -> Block:
    return Block([o for o in block.ops if o is not op], block.yields)


def _reaches(block: Block, state: Value, final: Value) -> bool:
    """Whether `final` is the state or is made from it in the block."""
    if final is state:
        return True
    made = {r for op in block.ops if state.name in _mentions(op) for r in op.results}
    grown = True
    while grown:
        grown = False
        for op in block.ops:
            names = _mentions(op)
            if any(v.name in names for v in made) and not set(op.results) <= made:
                made |= set(op.results)
                grown = True
    return final in made
