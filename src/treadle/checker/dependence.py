"""Whether the machine keeps the source's order between two accesses that may meet in an element.

Both statements are families of executions: variables of loops and tasks, and slots. Two executions conflict if their
elements may be one and the source orders them: by the first region around both operations whose instances differ (an
ordered one; instances of a `parallel` region do not conflict, by its promise), or, in one instance, by the operations'
places. The machine orders executions by the first enclosing control in which they differ (a loop by its variable; tasks
and agents not at all), then by the place in the text. Every conflict must be ordered alike.

Conditions and subscripts that isl cannot hold are left out: more executions seem to conflict then, never fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from treadle.algebra.expr import Atom, Constraint, Expr, Floor, Fn, Max, Min, eq, ge, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.sets import Facts, Region, complements
from treadle.checker.scopes import argument_symbols
from treadle.checker.source import Source
from treadle.checker.state import Frame
from treadle.checker.verdict import Refused, Unsure
from treadle.ir import core
from treadle.ir.core import Op
from treadle.machine.form import Loop, Tasks

Conjunction = tuple[Constraint, ...]


@dataclass(frozen=True)
class Access:
    """A statement that accesses a tensor: the source operation that it realises in the instance `inst`, the element
    `index` of each slot of `shape` where `where` holds, the controls around it and its place in the text."""

    op: Op
    tensor: str
    stores: bool
    index: tuple[Expr, ...]
    shape: tuple[int, ...]
    where: Conjunction
    inst: Mapping[str, Expr]
    frames: tuple[Frame, ...]
    position: int
    role: str
    launch: int
    now: bool  # whether that is the instance which the controls around it execute
    old: bool = False  # whether the elements' old values are handed back
    stmt: object = field(default=None, compare=False)  # for a report

    @property
    def variables(self) -> list[str]:
        """What tells executions apart."""
        return [r.var for f in self.frames for r in f.ranges] + [f"${i}" for i in range(len(self.shape))]

    @property
    def inside(self) -> list[Constraint]:
        """What holds of them."""
        found = [c for f in self.frames for r in f.ranges for c in r.inside]
        found += [c for f in self.frames if len(f.alternatives) == 1 for c in f.alternatives[0]]
        return [*found, *box([f"${i}" for i in range(len(self.shape))], self.shape), *self.where]


class Pair:
    """Two accesses of one launch and role."""

    def __init__(self, source: Source, facts: Facts, a: Access, b: Access, same: bool) -> None:
        self.source, self.facts, self.same = source, facts, same
        self.sides = {"a": a, "b": b}
        common = 0
        for x, y in zip(a.frames, b.frames):
            if x is not y:
                break
            common += 1
        self.common = a.frames[:common]
        self.env = {s: {v: sym(f"{v}'{s}") for v in access.variables} for s, access in self.sides.items()}
        self.own = frozenset(f"{v}'{s}" for s, access in self.sides.items() for v in access.variables)
        self.dropped = False
        self.nests = False

    def check(self, timed: bool = True, nests: bool = False) -> None:
        """`timed`: whether the machine's order is that of its text; else no two executions may conflict at all.
        `nests`: it is outside tasks, and there is none inside.

        *Errors*: refused with two executions in the wrong order; unsure where that may be for want of terms."""
        self.nests = nests
        where = [*self._executions(), *self._meet()]
        if self.sides["a"].tensor != self.sides["b"].tensor:
            self._apart(where)
        for first, second in (("a", "b"), ("b", "a")):
            for ordered in self._source_orders(first, second):
                for late in self._not_before(first, second) if timed else [()]:
                    self._refute((*where, *self._held(ordered), *late))

    def apart(self) -> None:
        """*Errors*: those of `check` for two instances of a parallel region that meet through two arguments."""
        if self.sides["a"].tensor != self.sides["b"].tensor:
            self._apart([*self._executions(), *self._meet()])

    def _apart(self, where: list[Constraint]) -> None:
        """Instances of a parallel region do not meet through two arguments: its promise is about each of them, and not
        about how a call lays one over the other."""
        equal: list[Constraint] = []
        for region, pairs in self._arguments("a", "b"):
            for p, q in pairs:
                if region.kind == "parallel":
                    for other in complements([eq(p, q)]):
                        self._refute((*where, *self._held((*equal, *other))))
                equal.append(eq(p, q))

    # ---- conflicts

    def _executions(self) -> list[Constraint]:
        return [
            c
            for s, access in self.sides.items()
            for c in self._held([c.substitute(self.env[s]) for c in access.inside])
        ]

    def _meet(self) -> list[Constraint]:
        """The elements are one: equal subscripts, where index tuples tell elements apart."""
        if not self.same:
            return []
        pairs = zip(self.sides["a"].index, self.sides["b"].index, strict=True)
        return list(self._held([eq(x.substitute(self.env["a"]), y.substitute(self.env["b"])) for x, y in pairs]))

    def _source_orders(self, first: str, second: str) -> Iterator[Conjunction]:
        """Cases in which the source executes `first` before `second`."""
        equal: list[Constraint] = []
        for region, pairs in self._arguments(first, second):
            for p, q in pairs:
                if region.kind != "parallel":
                    yield (*equal, ge(q, p + 1))
                equal.append(eq(p, q))
        if self.source.order[id(self.sides[first].op)] < self.source.order[id(self.sides[second].op)]:
            yield tuple(equal)

    def _arguments(self, first: str, second: str) -> Iterator[tuple[core.Region, list[tuple[Expr, Expr]]]]:
        """The regions around both operations, outermost first, with their arguments in the two instances; those that
        run backwards change sides."""
        x, y = self.sides[first], self.sides[second]
        for region, _ in self.source.scopes[id(x.op)]:
            if not isinstance(region, core.Region) or (region, None) not in self.source.scopes[id(y.op)]:
                continue
            pairs: list[tuple[Expr, Expr]] = []
            for arg in region.args:
                symbol = argument_symbols(arg)[0]
                if symbol not in x.inst or symbol not in y.inst:
                    raise Unsure("J2", f"nothing says which {arg.name} an access belongs to", missing=arg.name)
                p, q = x.inst[symbol].substitute(self.env[first]), y.inst[symbol].substitute(self.env[second])
                pairs.append((q, p) if arg.reversed else (p, q))
            yield region, pairs

    def _not_before(self, first: str, second: str) -> Iterator[Conjunction]:
        """Cases in which the machine does not execute `first` before `second`."""
        equal: list[Constraint] = []
        inside = False  # tasks whose threads nothing orders
        for frame in self.common:
            inside = inside or (self.nests and isinstance(frame.control, Tasks))
            names = [r.var for r in frame.ranges]
            x, y = ([self.env[s][n] for n in names] for s in (first, second))
            if isinstance(frame.control, Loop) and not frame.agents and not inside:
                yield from ((*equal, ge(p, q + 1)) for p, q in zip(x, y))
            else:
                for other in complements([eq(p, q) for p, q in zip(x, y)]):
                    yield (*equal, *other)
            equal += [eq(p, q) for p, q in zip(x, y)]
        if inside or self._place(first) > self._place(second) or self.sides["a"] is self.sides["b"]:
            yield tuple(equal)  # the slots of one statement have no order

    def _place(self, side: str) -> int:
        """The place in the body where the two part. Equal for two ways of one `if`, which are never both executed."""
        access = self.sides[side]
        rest = access.frames[len(self.common) :]
        return rest[0].position if rest else access.position

    # ---- asking

    def _held(self, cs: Sequence[Constraint]) -> Conjunction:
        found = tuple(c for c in cs if expressible(c.expr, self.own))
        self.dropped = self.dropped or len(found) < len(cs)
        return found

    def _refute(self, where: Conjunction) -> None:
        found = Region.of(IndexMap(tuple(sorted(self.own)), (Expr(()),), where), self.facts)
        if found.is_empty:
            return
        tensor = self.sides["a"].tensor
        reason = f"accesses to {tensor} are not kept in the order of the source"
        if self.dropped or not self.same:
            names = ", ".join(sorted(a.tensor for a in self.sides.values()))
            missing = "affine subscripts and conditions" if self.same else f"disjoint({names}) or same({names})"
            raise Unsure("J2", reason, found.sample(), missing=missing)
        raise Refused("J2", reason, found.sample())


def expressible(e: Expr, own: frozenset[str]) -> bool:
    """Whether isl can hold an expression with these symbols as a set's own dimensions."""
    return all(
        not any(a_symbols & own for a_symbols in map(_symbols, monomial)) if len(monomial) > 1 else _fits(monomial, own)
        for monomial, _ in e.terms
    )


def _fits(monomial: tuple[Atom, ...], own: frozenset[str]) -> bool:
    for atom in monomial:
        match atom:
            case Floor(num, den) if (den.constant or 0) > 0:
                if not expressible(num, own):
                    return False
            case Min(args) | Max(args):
                if not all(expressible(a, own) for a in args):
                    return False
            case Floor() | Fn():
                if _symbols(atom) & own:
                    return False
            case _:
                pass
    return True


def _symbols(atom: Atom) -> frozenset[str]:
    return Expr((((atom,), 1),)).symbols
