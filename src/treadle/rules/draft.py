"""A program being edited: a copy, the twins of its operations, fresh names, and the step that an edit becomes.

A rule makes a `Draft`, checks its conditions on it, edits `draft.program` in place and calls `finish`. Operations that
survive stay the same objects, so that the forward map of the step can be read off.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

from treadle.algebra.expr import Expr
from treadle.algebra.expr_text import parse_expr
from treadle.base.errors import TreadleError
from treadle.base.names import Names
from treadle.ir.clone import Cloner
from treadle.ir.core import Block, Op, Program, Region, RegionArg, TileType, Value
from treadle.ir.ops.elementwise import Elementwise
from treadle.ir.paths import op_at, paths
from treadle.ir.rewrite import has_effect, operand_names
from treadle.ir.verifier import verify
from treadle.plan.steps import Argument, Step
from treadle.rules.refusals import FormUnsupported, NameUnknown


class _Recorder(Cloner):
    """Copies a program and keeps which operation became which."""

    def __init__(self) -> None:
        super().__init__(lambda v: Value(v.name, v.type, v.hint))
        self.twins: dict[int, Op] = {}

    def op(self, op: Op) -> Op:
        made = super().op(op)
        self.twins[id(op)] = made
        return made


class Draft:
    """A copy of `before` to edit. `doing` is what messages say is being done."""

    def __init__(self, before: Program, kind: str, args: Mapping[str, Any]) -> None:
        self.before = before
        self.kind = kind
        self.args: dict[str, Argument] = {k: v for k, v in args.items() if v is not None}
        recorder = _Recorder()
        for parameter in before.scalars:
            recorder.values[parameter.value.name] = parameter.value
        made = copy.copy(before)
        made.dims, made.tensors, made.scalars = list(before.dims), list(before.tensors), list(before.scalars)
        made.lets, made.requires, made.hidden = dict(before.lets), list(before.requires), list(before.hidden)
        made.body = recorder.block(before.body)
        self.program = made
        self.twins = recorder.twins
        self._index_names()

    @property
    def doing(self) -> str:
        """What is being done, for messages."""
        return f"applying {Step(self.kind, self.args)} to {self.before.name}"

    # ---- names

    def _index_names(self) -> None:
        p = self.program
        self.symbols = Names([d.name for d in p.dims] + [t.name for t in p.tensors] + [s.name for s in p.scalars])
        self.regions = Names()
        self.values: set[str] = {s.value.name for s in p.scalars}
        for op in p.body.walk():
            self.values |= {v.name for v in (*op.results, *op.parameters)}
            if isinstance(op, Region):
                self.regions.fresh(op.name)
                for arg in op.args:
                    self.symbols.fresh(arg.name)

    def fresh(self, type: TileType, hint: str | None = None) -> Value:
        """A value with a name of its own."""
        stem = None if hint is None else re.sub(r"\W", "_", hint)
        name, number = (f"%{stem}", 0) if stem is not None else ("%0", 0)
        while name in self.values:
            number += 1
            name = f"%{stem}.{number}" if stem is not None else f"%{number}"
        self.values.add(name)
        return Value(name, type, stem)

    # ---- finding

    def region(self, name: str) -> Region:
        """The region of that name. *Errors*: `rules/name`."""
        found = {op.name: op for op in self.program.body.walk() if isinstance(op, Region)}
        if name not in found:
            raise self.no(NameUnknown, f"no region {name}", f"one of {', '.join(found) or 'none'}", "print the program")
        return found[name]

    def argument(self, region: Region, name: str) -> RegionArg:
        """The argument of that name. *Errors*: `rules/name`."""
        found = next((a for a in region.args if a.name == name), None)
        if found is None:
            known = ", ".join(a.name for a in region.args)
            raise self.no(NameUnknown, f"{region.name} has no argument {name}", f"one of {known}", "print the program")
        return found

    def definition(self, name: str) -> Op:
        """The operation that defines a value. *Errors*: `rules/name`."""
        found = self.program.definitions().get(name)
        if found is None:
            raise self.no(NameUnknown, f"no value {name}", "a value of the program", "print the program")
        return found

    def at(self, path: str) -> Op:
        """The operation at a path of the program before. *Errors*: `rules/name`."""
        found = op_at(self.before, path)
        if found is None:
            raise self.no(NameUnknown, f"no operation at {path}", "a path of the program", "look at ir.paths.paths")
        return self.twins[id(found)]

    def home(self, op: Op) -> tuple[Block, int]:
        """The block of an operation and its place in it."""
        return home(self.program.body, op)

    def expr(self, text: int | str) -> Expr:
        """An index expression of an argument of the step."""
        return parse_expr(str(text))

    def no(self, kind: type[TreadleError], found: str, expected: str, hint: str, op: Op | None = None) -> TreadleError:
        """A refusal."""
        return kind(doing=self.doing, found=found, expected=expected, hint=hint, span=None if op is None else op.span)

    def without_merges(self, region: Region) -> None:
        """*Errors*: `rules/form` for a region whose states a user's monoid updates."""
        if region.merges:
            raise self.no(
                FormUnsupported,
                f"{region.name} folds with the monoid {region.merges[0].name}",
                "states that built-in monoids update",
                "expand the program first",
                region,
            )

    # ---- the end

    def clean(self) -> None:
        """Operations without effect that nothing uses are dropped, and carried values that nothing reads."""
        while drop_slots(self.program.body) or self.drop():
            pass

    def drop(self, but: Collection[str] = ()) -> bool:
        """Operations without effect that nothing uses are dropped but those of values in `but`; whether there were."""
        return _drop(self.program.body, _used(self.program.body) | set(but))

    def idle(self) -> set[str]:
        """Names of the values of the program before that nothing uses."""
        other = Draft(self.before, self.kind, {})
        names = set(other.values)
        while other.drop():
            pass
        other.values.clear()
        other._index_names()
        return names - other.values

    def finish(self) -> tuple[Program, Step]:
        """The program after the edit, which is well formed, and its step."""
        verify(self.program, pass_name=self.kind)
        now = {id(op): path for path, op in paths(self.program)}
        moved = [(old, now.get(id(self.twins[id(op)]))) for old, op in paths(self.before)]
        return self.program, Step(self.kind, self.args, tuple((a, b) for a, b in moved if a != b))


def named(op: Op) -> str:
    """An operation in a message: its function, or what its lines begin with."""
    return op.fn if isinstance(op, Elementwise) else f"the region {op.name}" if isinstance(op, Region) else op.keyword


def reads(op: Op) -> set[str]:
    """Names of the values that an operation and everything inside it use or yield."""
    names = operand_names(op)
    for inner in op.blocks:
        for x in inner.walk():
            names |= operand_names(x) | {v.name for b in x.blocks for v in b.yields}
        names |= {v.name for v in inner.yields}
    return names


def home(body: Block, op: Op) -> tuple[Block, int]:
    """The block of an operation inside `body` and its place in it."""
    for i, one in enumerate(body.ops):
        if one is op:
            return body, i
        for inner in one.blocks:
            try:
                return home(inner, op)
            except LookupError:
                continue
    raise LookupError("an operation of another program")


def _used(body: Block) -> set[str]:
    used = {v.name for v in body.yields}
    for op in body.walk():
        used |= operand_names(op) | {v.name for inner in op.blocks for v in inner.yields}
    return used


def _drop(block: Block, used: set[str]) -> bool:
    kept = [op for op in block.ops if has_effect(op) or any(v.name in used for v in op.results)]
    changed = len(kept) != len(block.ops)
    block.ops[:] = kept
    for op in kept:
        before = list(op.body.ops) if isinstance(op, Region) and op.stages else []
        for inner in op.blocks:
            changed = _drop(inner, used) or changed
        if isinstance(op, Region) and before:  # stages count operations
            left = {id(o) for o in op.body.ops}
            op.stages = [(name, sum(id(o) in left for o in before[:start])) for name, start in op.stages]
    return changed


def drop_slots(body: Block) -> bool:
    """Removes carried values of regions whose results nothing uses, and which only carry themselves on.

    *Ensures*: what the program stores is the same.
    """
    used = _used(body)
    for op in list(body.walk()):
        if not isinstance(op, Region):
            continue
        for i, result in enumerate(op.results):
            if result.name not in used and not op.merges and _feeds_itself(op, i):
                for values in (op.inits, op.carried, op.body.yields, op.results):
                    del values[i]
                return True
    return False


def _feeds_itself(region: Region, slot: int) -> bool:
    """Whether everything that a carried value influences in the body is that carried value."""
    own = {region.carried[slot].name}
    for op in region.body.walk():
        if reads(op) & own or any(v.name in own for b in op.blocks for v in b.yields):
            if has_effect(op) or op.blocks:
                return False
            own |= {v.name for v in op.results}
    outs = [v for i, v in enumerate(region.body.yields) if i != slot]
    return not any(v.name in own for v in outs)
