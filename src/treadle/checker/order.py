"""The order of conflicting accesses to tensors that the program both stores and accesses otherwise (J2).

Two source operations that may touch one element keep their order if, below the controls that are common to both, one
stands before the other as in the source, and the common controls are entries of regions that enclose both: then
pairs of
one instance keep text order, pairs of an ordered region keep iteration order, and pairs of different instances of a
`parallel` region do not conflict, by its promise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.checker.coverage import StoreEvent, common_prefix
from treadle.checker.scopes import argument_symbols
from treadle.checker.source import Source
from treadle.checker.state import Frame
from treadle.checker.verdict import Refused, Unsure
from treadle.ir.core import Op, Region
from treadle.ir.ops import access
from treadle.machine.form import Load


@dataclass(frozen=True)
class Access:
    """A statement that accesses a tensor: the source operation it realises, controls around it, positions."""

    op: Op
    tensor: str
    frames: tuple[Frame, ...]
    positions: tuple[int, ...]
    stores: bool
    role: str
    in_force: bool  # whether it is of the instance that the controls around it execute


@dataclass
class Accesses:
    """Collects accesses to stored tensors and judges their pairs at the end."""

    source: Source
    found: list[Access] = field(default_factory=list[Access])
    launch: int = 0
    role: str = ""

    def store(self, event: StoreEvent) -> None:
        """A store statement."""
        now = self.source.in_force(event.op, event.stored.inst, event.stored.bindings)
        self._add(event.op, event.op.tensor.name, event.frames, event.position, True, now)

    def load(self, stmt: Load, op: access.Load, frames: tuple[Frame, ...], position: int) -> None:
        """A load statement; the rule of loads has seen that it is of the instance in force."""
        self._add(op, op.tensor.name, frames, position, False, True)

    def _add(self, op: Op, tensor: str, frames: tuple[Frame, ...], position: int, stores: bool, now: bool) -> None:
        positions = (self.launch, *(f.position for f in frames), position)
        self.found.append(Access(op, tensor, frames, positions, stores, self.role, now))

    def check(self) -> None:
        """*Errors*: findings of J2."""
        for i, a in enumerate(self.found):
            for b in self.found[i + 1 :]:
                if a.tensor == b.tensor and (a.stores or b.stores) and a.op is not b.op:
                    self._pair(a, b)

    def _pair(self, a: Access, b: Access) -> None:
        first, second = (a, b) if self.source.order[id(a.op)] < self.source.order[id(b.op)] else (b, a)
        if not (first.in_force and second.in_force) and first.positions[0] == second.positions[0]:
            # Text order is the order of instances only if each statement executes the instance around it.
            raise Unsure(
                "J2",
                f"accesses to {first.tensor}, one of another instance than the controls around it execute",
                missing="a statement of the instance in force",
            )
        if first.role != second.role and first.positions[0] == second.positions[0]:
            raise Unsure("J2", f"two roles of one launch access {first.tensor}", missing="one role, or two launches")
        common = common_prefix([first.frames, second.frames])
        if first.frames[: len(common) + 1] != second.frames[: len(common) + 1]:
            branches = [p.frames[len(common)] for p in (first, second) if len(p.frames) > len(common)]
            if len(branches) == 2 and branches[0].control is branches[1].control and branches[0].branch is not None:
                return  # different ways of one `if`
        depth = len(common) + 1
        if (
            first.positions[:depth] == second.positions[:depth]
            and first.positions[depth] > second.positions[depth]
            or (first.positions[0] > second.positions[0])
        ):
            raise Refused("J2", f"accesses to {first.tensor} are executed in the opposite order of the source", {})
        both = [
            r
            for r, _ in self.source.scopes[id(first.op)]
            if isinstance(r, Region) and (r, None) in self.source.scopes[id(second.op)]
        ]
        symbols = {s for r in both for arg in r.args for s in argument_symbols(arg)}
        for frame in common:
            if not frame.entering(symbols) >= {r.var for r in frame.ranges}:
                raise Unsure(
                    "J2",
                    f"accesses to {first.tensor} repeat in a loop that enters no region of both",
                    missing="a loop or task nest that enters their regions only",
                )
        entered = {s for f in common for s in f.binds}
        for r in both:
            if r.kind != "parallel" and not {s for arg in r.args for s in argument_symbols(arg)} <= entered:
                raise Unsure(
                    "J2",
                    f"accesses to {first.tensor} are apart in loops of their own over {r.name}",
                    missing=f"one loop that enters {r.name} around both",
                )
