"""Which built-in monoid updates a carried value: read from the operations, as the rules of `reduce` permit them."""

from __future__ import annotations

from treadle.algebra.monoids import BY_MERGE
from treadle.ir.core import Block, If, Op, Region, Value
from treadle.ir.ops.access import Extract, Insert
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Mma


def update_monoid(region: Region, state: int) -> str | None:
    """The name of the built-in monoid by which each iteration updates a carried value, and nothing else.

    *Ensures*: then an iteration's last value is its first one merged with something that does not depend on it. `None`
    where that is not seen, or where nothing updates it.
    """
    found = _Trace().of(region.body, region.carried[state], region.body.yields[state])
    return next(iter(found)) if found is not None and len(found) == 1 else None


class _Trace:
    """Follows a value back to the state that it is made from; the monoids met on the way, `None` off the way."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], set[str] | None] = {}
        self.makers: dict[str, tuple[Op, int]] = {}

    def of(self, block: Block, state: Value, final: Value) -> set[str] | None:
        for op in block.ops:
            for i, result in enumerate(op.results):
                self.makers[result.name] = (op, i)
        return self.back(state, final)

    def back(self, state: Value, value: Value) -> set[str] | None:
        if value is state:
            return set()
        key = (state.name, value.name)
        if key not in self.seen:
            self.seen[key] = None
            made = self.makers.get(value.name)
            self.seen[key] = None if made is None else self.step(state, *made)
        return self.seen[key]

    def step(self, state: Value, op: Op, result: int) -> set[str] | None:
        match op:
            case Cast():
                return self.back(state, op.source)
            case Elementwise(fn="where") if op.args[1] is op.args[2]:
                return self.back(state, op.args[1])
            case Elementwise() if op.fn in BY_MERGE:
                return self.update(BY_MERGE[op.fn].name, [self.back(state, a) for a in op.args])
            case Mma():
                return self.update("add", [self.back(state, op.acc)])
            case Extract():
                return self.back(state, op.source)
            case Insert():
                return self.part(state, op)
            case Region():
                inner = self.of(op.body, op.carried[result], op.body.yields[result])
                return self.both(inner, self.back(state, op.inits[result]))
            case If():
                branches = [self.of(b, state, b.yields[result]) for b in op.blocks]
                return self.both(*branches)
            case _:
                return None

    def update(self, monoid: str, ways: list[set[str] | None]) -> set[str] | None:
        """One operand comes from the state; both do in no update."""
        found = [w for w in ways if w is not None]
        return {monoid} | found[0] if len(found) == 1 else None

    def part(self, state: Value, op: Insert) -> set[str] | None:
        """A part of the state replaced by an update of just that part."""
        inner, value = op.value, op.value
        while (made := self.makers.get(inner.name)) is not None and not isinstance(made[0], Extract):
            nearer = next((v for v in made[0].operands if self.back(state, v) is not None), None)
            if nearer is None:
                return None
            inner = nearer
        read = made[0] if made is not None else None
        if not isinstance(read, Extract) or read.subs != op.subs or read.source is not op.source:
            return None
        return self.both(self.back(state, value), self.back(state, op.source))

    def both(self, a: set[str] | None, b: set[str] | None) -> set[str] | None:
        return None if a is None or b is None else a | b
