"""Reduction states: updated by one monoid, whole or in part, and read nowhere else in the body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.base.source import Span
from treadle.ir.core import Block, If, Op, Region, Value
from treadle.ir.ops.access import Extract, Insert
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Mma
from treadle.ir.rewrite import operand_names
from treadle.lang.errors import NotAnUpdate, StateRead

MONOIDS = {
    "add": "+",
    "mul": "*",
    "maximum": "maximum",
    "minimum": "minimum",
    "and": "&",
    "or": "|",
    "xor": "^",
}


def check_states(region: Region, names: Sequence[str], spans: Sequence[Span | None]) -> None:
    """*Errors*: `reduce/state-read`, `reduce/not-an-update` where a carried value of a `reduce` is no state."""
    for carried, final, name, span in zip(region.carried, region.body.yields, names, spans):
        _State(region, name, span).check(region.body, carried, final)


@dataclass
class _State:
    region: Region
    name: str
    span: Span | None
    monoid: str | None = None

    def check(self, block: Block, state: Value, final: Value) -> None:
        """Follows the state from update to update to the end of the block."""
        while state is not final:
            users = _users(block, state)
            if not users:
                raise self.not_update("a value that does not come from it")
            state = self.step(block, state, users)
        extra = _users(block, state)
        if extra:
            raise self.read(extra[0])

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
            case _:
                raise self.read(first)

    def elementwise(self, op: Elementwise, state: Value) -> Value:
        if sum(a is state for a in op.args) != 1:
            raise self.read(op)
        self.use(op, op.fn)
        return op.result

    def use(self, op: Op, monoid: str) -> None:
        if self.monoid not in (None, monoid):
            raise self.not_update(f"an update by {MONOIDS[monoid]} after one by {MONOIDS[str(self.monoid)]}", op)
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
            expected="a state that the body only updates: s = s + x (* & | ^), td.maximum, td.minimum, td.mma",
            hint="use td.serial or td.pipeline, whose iterations see one another's results",
            span=op.span or self.span,
            notes=[(self.region.span, "the region")],
        )

    def not_update(self, found: str, op: Op | None = None) -> NotAnUpdate:
        return NotAnUpdate(
            doing=f"capturing td.reduce with the state {self.name}",
            found=f"{self.name} is assigned {found}",
            expected="updates by one operation: s = s + x (* & | ^), td.maximum, td.minimum, td.mma",
            hint="use td.serial or td.pipeline for other recurrences",
            span=(op.span if op is not None else None) or self.span,
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
