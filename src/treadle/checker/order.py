"""The order of conflicting accesses to tensors that the program both stores and accesses otherwise (J2).

Two source operations that may touch one element keep their order if, below the controls that are common to both, one
stands before the other as in the source, and the common controls are loops and tasks that enter regions around both
operations, from the outside in, in the instance in force: then pairs of one instance keep text order, pairs of an
ordered region keep iteration order, and pairs of different instances of a `parallel` region do not conflict, by its
promise. Where that shape is not met, `dependence` asks about the executions themselves.

Instances of one store in an ordered region are such pairs too: the last one is what remains.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.algebra.monoids import MONOIDS
from treadle.algebra.sets import Facts, Inexpressible
from treadle.checker.coverage import StoreEvent, common_prefix
from treadle.checker.dependence import Access, Pair
from treadle.checker.reading import Loaded
from treadle.checker.scopes import argument_symbols
from treadle.checker.source import Source
from treadle.checker.state import Frame
from treadle.checker.verdict import Finding, Refused, Unsure
from treadle.ir.core import Op, Region
from treadle.ir.ops import access


@dataclass
class Accesses:
    """Collects accesses to tensors that are stored and judges their pairs at the end."""

    source: Source
    facts: Facts
    found: list[Access] = field(default_factory=list[Access])
    launch: int = 0
    role: str = ""
    cuda: bool = False
    single: set[int] = field(default_factory=set[int])  # launches of one thread
    met: set[int] = field(default_factory=set[int])  # launches whose nests of tasks are apart in time
    at: object = None  # the statement in question

    def store(self, op: access.Store, event: StoreEvent) -> None:
        """A store statement."""
        s, name = event.stored, op.tensor.name
        self.found.append(
            Access(
                op,
                name,
                True,
                s.index,
                event.shape,
                s.where,
                s.inst,
                event.frames,
                event.position,
                self.role,
                self.launch,
                self.source.in_force(op, s.inst, s.bindings),
                s.old,
                stmt=self.at,
            )
        )

    def load(self, op: access.Load, loaded: Loaded, frames: tuple[Frame, ...], position: int) -> None:
        """A load statement; the rule of loads has seen that it is of the instance in force."""
        self.found.append(
            Access(
                op,
                op.tensor.name,
                False,
                loaded.index,
                loaded.shape,
                loaded.where,
                loaded.inst,
                frames,
                position,
                self.role,
                self.launch,
                True,
                stmt=self.at,
            )
        )

    def check(self) -> None:
        """*Errors*: findings of J2."""
        for i, a in enumerate(self.found):
            for b in self.found[i:]:
                meet = self.source.meet(a.tensor, b.tensor)
                if meet != "never" and (self._repeats(a, b) if a.op is b.op else a.stores or b.stores):
                    first, second = (a, b) if self.source.order[id(a.op)] <= self.source.order[id(b.op)] else (b, a)
                    self.at = b.stmt
                    try:
                        self._pair(first, second, meet == "same")
                    except Finding as no:
                        no.partner = a.stmt
                        raise

    def _repeats(self, a: Access, b: Access) -> bool:
        """Whether instances of one store follow one another in the source, and which comes first can be told."""
        if not isinstance(a.op, access.Store) or (a.op.effect != "set" and not a.old and not b.old):
            return False  # what merges has its order from `sequence`
        return any(r.kind in ("serial", "pipeline") for r in self._around(a, b))

    def _pair(self, first: Access, second: Access, same: bool) -> None:
        if first.launch != second.launch:
            self._launches(first, second, same)
            return
        if first.role != second.role:
            raise Unsure("J2", f"two roles of one launch access {first.tensor}", missing="one role, or two launches")
        alone = not self.cuda or first.launch in self.single or all(_alone(a) for a in (first, second))
        # Threads side by side: barriers between loads and stores are judged in `gpu`; stores must not meet at all.
        timed = alone or not (first.stores and second.stores) or _commute(first.op, second.op)
        if not timed and first.launch in self.met:
            self._nests(first, second, same)
            return
        if timed and self._plain(first, second):
            return
        # Two views of one array: `gpu` takes their accesses for those of one memory, in the order of the text.
        if timed and not alone and first.tensor == second.tensor:
            raise Unsure(
                "J2",
                f"accesses to {first.tensor} repeat in a loop that enters no region of both",
                missing="a loop or task nest that enters their regions only",
            )
        try:
            Pair(self.source, self.facts, first, second, same).check(timed)
        except Inexpressible as term:
            raise Unsure("J2", f"accesses to {first.tensor} have the term {term}", missing="affine terms") from None

    def _nests(self, first: Access, second: Access, same: bool) -> None:
        """Two stores of a launch whose workgroups meet between nests of tasks: what tells executions apart outside the
        tasks orders them, nothing inside."""
        try:
            Pair(self.source, self.facts, first, second, same).check(nests=True)
        except Inexpressible as term:
            raise Unsure("J2", f"accesses to {first.tensor} have the term {term}", missing="affine terms") from None

    def _launches(self, first: Access, second: Access, same: bool) -> None:
        """A launch is over before the next one begins: all instances of the one operation before all of the other.
        Instances of a parallel region that meet through two arguments are no others': no order of them is the source's.
        """
        if first.launch > second.launch:
            raise Refused("J2", f"accesses to {first.tensor} are executed in the opposite order of the source", {})
        ordered = [r for r in self._around(first, second) if r.kind != "parallel"]
        if ordered:
            raise Unsure(
                "J2", f"accesses to {first.tensor} are in two launches", missing=f"one that executes {ordered[0].name}"
            )
        try:
            Pair(self.source, self.facts, first, second, same).apart()
        except Inexpressible as term:
            raise Unsure("J2", f"accesses to {first.tensor} have the term {term}", missing="affine terms") from None

    def _around(self, first: Access, second: Access) -> list[Region]:
        scopes = self.source.scopes
        return [r for r, _ in scopes[id(first.op)] if isinstance(r, Region) and (r, None) in scopes[id(second.op)]]

    def _plain(self, first: Access, second: Access) -> bool:
        """Whether text order under controls that all enter regions of both operations is the source's order."""
        if not (first.now and second.now) or first.tensor != second.tensor:
            return False
        common = common_prefix([first.frames, second.frames])
        both = self._around(first, second)
        ordered = {s for r in both if r.kind != "parallel" for arg in r.args for s in argument_symbols(arg)}
        if first.op is second.op:  # of one instance, its stores do not meet: what tells instances apart decides
            last = max((i for i, f in enumerate(common) if f.binds & ordered), default=-1)
            common = common[: last + 1]
        else:
            places = [(*(f.position for f in a.frames), a.position)[len(common)] for a in (first, second)]
            if places[0] > places[1]:  # if equal, they are ways of one `if`, of which one is executed
                return False
        symbols = {s for r in both for arg in r.args for s in argument_symbols(arg)}
        if any(not f.entering(symbols) >= {r.var for r in f.ranges} for f in common):
            return False
        return ordered <= {s for f in common for s in f.binds} and _outside_in(both, common)


def _outside_in(regions: list[Region], frames: tuple[Frame, ...]) -> bool:
    """Whether no control that enters a region stands around one that enters an ordered region outside it: the machine
    would finish an inner instance for all instances of the outer region."""
    deepest = -1
    for f in frames:
        for level, r in enumerate(regions):
            if f.binds & {s for arg in r.args for s in argument_symbols(arg)}:
                if r.kind != "parallel" and deepest > level:
                    return False
                deepest = max(deepest, level)
    return True


def _commute(a: Op, b: Op) -> bool:
    """Whether two stores merge by one atomic effect, and nobody can tell or asks which of them came first."""
    if not (isinstance(a, access.Store) and isinstance(b, access.Store) and a.effect == b.effect != "set"):
        return False
    return MONOIDS[a.effect].exact(a.tensor.dtype) or a.order == b.order == "unordered"


def _alone(a: Access) -> bool:
    """Whether one thread executes the statement for itself: text order is its order of execution."""
    nests = [f.control for f in a.frames if getattr(f.control, "over", None) is not None]
    return bool(nests) and getattr(nests[-1], "over", None) == "threads"
