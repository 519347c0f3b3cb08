"""Every element of every active store of the source is stored exactly once.

The variables of loops and task nests that enter regions are parameters (their cuts are proved exact); all other
variables and slots enumerate elements. Those of all statements that claim one source store must be disjoint, without
repetition, and together be its domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, ge, lt, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.sets import Facts, Inexpressible, Region, Relation
from treadle.checker.cuts import Range
from treadle.checker.reading import Stored
from treadle.checker.scopes import View, argument_symbols
from treadle.checker.source import Source
from treadle.checker.state import Frame
from treadle.checker.verdict import Refused, Unsure
from treadle.ir import core
from treadle.ir.infer import sub_axes
from treadle.ir.ops import access


@dataclass(eq=False)
class Update:
    """An insert as a store is seen by the rules of coverage."""

    tensor: str
    subs: tuple[core.AxisSub, ...]
    value: core.Value
    where: None = None


@dataclass
class StoreEvent:
    """A store, resolved, with the controls around it and the position in its body; who executes it."""

    op: access.Store | Update
    frames: tuple[Frame, ...]
    stored: Stored
    shape: tuple[int, ...]
    position: int
    spread: bool = False  # over threads, each with slots of its own
    engine: bool = False


@dataclass
class Coverage:
    """Collects store events and judges them at the end."""

    source: Source
    facts: Facts
    events: dict[int, list[StoreEvent]] = field(default_factory=dict[int, list[StoreEvent]])

    def add(self, number: int, event: StoreEvent) -> None:
        """One statement that claims the source store of that number."""
        self.events.setdefault(number, []).append(event)

    def check(self) -> None:
        """*Errors*: findings of J1."""
        for number, op in enumerate(self.source.stores):
            try:
                self._check(number, op, self.events.get(number, []))
            except Inexpressible as term:
                raise Unsure(
                    "J1", f"the elements of store {number} have the term {term}", missing="an affine set"
                ) from None

    def check_update(self, op: access.Store | Update, events: list[StoreEvent]) -> None:
        """That the elements of a scattered update are stored exactly once each. *Errors*: findings of J1."""
        try:
            self._check(-1, op, events)
        except Inexpressible as term:
            raise Unsure("J1", f"the elements of an update have the term {term}", missing="an affine set") from None

    def _check(self, number: int, op: access.Store | Update, events: list[StoreEvent]) -> None:
        prefix = common_prefix([e.frames for e in events]) if events else ()
        mine = frozenset(
            s
            for r, _ in self.source.scopes[id(op)]
            if isinstance(r, core.Region)
            for a in r.args
            for s in argument_symbols(a)
        )
        # an argument that a claim overrides is no parameter: the variable enumerates like any other
        kept = frozenset(s for s in mine if all(e.stored.inst.get(s) == e.stored.bindings.get(s) for e in events))
        params = entering_ranges(prefix, kept)
        facts = self.facts
        for r in params:
            facts = facts.also(*r.inside)
        names = {r.var for r in params}
        fixed = {s for f in prefix for s, v in f.bound if v in names}
        for region, _ in self.source.scopes[id(op)]:
            if isinstance(region, core.Region) and region.kind in ("serial", "pipeline"):
                if not {s for a in region.args for s in argument_symbols(a)} <= fixed and events:
                    raise Unsure(
                        "J2",
                        f"store {number}: nothing keeps the order of {region.name}",
                        missing="a loop that enters it",
                    )
        for e in events:
            self._branches(op, e, number)
        domain = self._domain(op, fixed, events[0].stored.inst if events else {}, number, masked=_masked(op, events))
        wanted = Region.of(domain, facts)
        seen: list[Region] = []
        for e in events:
            for relation in self._relations(op, e, {r.var for r in params}, fixed, facts):
                if not relation.is_injective:
                    raise Refused(
                        "J1",
                        f"elements of store {number} to {op.tensor} are stored twice by one statement",
                        relation.collision(),
                    )
                reached = relation.range()
                for earlier in seen:
                    twice = earlier & reached
                    if not twice.is_empty:
                        raise Refused(
                            "J1",
                            f"elements of store {number} to {op.tensor} are stored by two statements",
                            twice.sample(),
                        )
                seen.append(reached)
        total = Region.nothing(len(domain.outs))
        for reached in seen:
            total = total | reached
        lost, extra = wanted - total, total - wanted
        if not lost.is_empty:
            raise Refused("J1", f"elements of store {number} to {op.tensor} are never stored", lost.sample())
        if not extra.is_empty:
            raise Refused(
                "J1", f"elements that store {number} to {op.tensor} does not store are stored", extra.sample()
            )

    def _branches(self, op: access.Store | Update, e: StoreEvent, number: int) -> None:
        wanted = {id(s): b for s, b in self.source.scopes[id(op)] if isinstance(s, core.If)}
        have = {f.source_if: f.branch for f in e.frames if f.source_if is not None}
        if wanted != have:
            raise Refused(
                "J1", f"store {number} to {op.tensor} is not under the `if`s that the source has it under", {}
            )

    def _domain(
        self, op: access.Store | Update, fixed: set[str], inst: Mapping[str, Expr], number: int, masked: bool
    ) -> IndexMap:
        """Free coordinates of regions and axes, for fixed bindings of the regions entered above all statements."""
        env: dict[str, Expr] = {s: inst[s] for s in fixed}
        dims: list[str] = []
        where: list[Constraint] = []
        needs = self.source.deps[op.value.name] | frozenset(
            s for sub in _subs(op) if sub.index is not None for s in sub.index.symbols
        )
        for region in (s for s, _ in self.source.scopes[id(op)] if isinstance(s, core.Region)):
            for arg in region.args:
                symbols = argument_symbols(arg)
                if all(s in fixed for s in symbols):
                    continue
                lo, hi = (self.source.expr_at(x, env) for x in (arg.domain.lo, arg.domain.hi))
                if arg.kind == "each":
                    b = sym(f"@{arg.name}")
                    dims.append(f"@{arg.name}")
                    env[arg.name] = b
                    where += [ge(b, lo), lt(b, hi)]
                    continue
                used = [
                    a
                    for a in sub_axes(op.subs)
                    if {f"{arg.name}.start", f"{arg.name}.stop"} & (a.lo.symbols | a.hi.symbols)
                ]
                if set(symbols) & needs or not any(a.lo == sym(symbols[0]) and a.hi == sym(symbols[1]) for a in used):
                    raise Unsure(
                        "J1",
                        f"store {number}: the blocks of {arg.name} are not entered above all of its statements",
                        missing=f"one loop or task nest that enters {region.name}.{arg.name}",
                    )
                env[symbols[0]], env[symbols[1]] = lo, hi
        axes = sub_axes(op.subs)
        at: dict[Dim, Expr] = {}
        for i, axis in enumerate(axes):
            c = f"@{i}"
            dims.append(c)
            at[axis.dim] = sym(c)
            where += [ge(sym(c), self.source.expr_at(axis.lo, env)), lt(sym(c), self.source.expr_at(axis.hi, env))]
        if op.where is not None and not masked:
            truth = self.source.truth(self.source.element(op.where, at, env), View())
            if truth is None or len(truth) != 1:
                raise Unsure("J1", f"store {number} has a condition", missing="a mask that is the source's condition")
            where += truth[0]
        return IndexMap(tuple(dims), tuple(map(sym, dims)), tuple(where))

    def _relations(
        self, op: access.Store | Update, e: StoreEvent, params: set[str], fixed: set[str], facts: Facts
    ) -> list[Relation]:
        dims: list[str] = []
        base: list[Constraint] = []
        alternatives: list[tuple[Constraint, ...]] = [()]
        for f in e.frames:
            for r in f.ranges:
                if r.var not in params:
                    dims.append(r.var)
                    base += r.inside
            alternatives = [(*a, *b) for a in alternatives for b in f.alternatives]
        names = [f"${i}" for i in range(len(e.shape))]
        base += [*box(names, e.shape), *e.stored.where]
        outs: list[Expr] = []
        for region in (s for s, _ in self.source.scopes[id(op)] if isinstance(s, core.Region)):
            for arg in region.args:
                if arg.kind == "each" and arg.name not in fixed:
                    if arg.name not in e.stored.inst:
                        raise Unsure(
                            "J1",
                            f"nothing says which {arg.name} a store belongs to",
                            missing=f"a binding of {arg.name}",
                        )
                    outs.append(e.stored.inst[arg.name])
        outs += e.stored.coords
        return [Relation.of(IndexMap((*dims, *names), tuple(outs), (*base, *more)), facts) for more in alternatives]


def common_prefix(paths: Sequence[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    """The frames that all paths begin with."""
    out: list[Frame] = []
    for row in zip(*paths):
        if any(f is not row[0] for f in row):
            break
        out.append(row[0])
    return tuple(out)


def entering_ranges(frames: Sequence[Frame], symbols: frozenset[str]) -> list[Range]:
    """Variables that enumerate blocks of these arguments only, and whose ranges depend on none that do not."""
    entering = {v for f in frames for v in f.entering(symbols)}
    plain = {r.var for f in frames for r in f.ranges if r.var not in entering}
    found: list[Range] = []
    for f in frames:
        for r in f.ranges:
            if r.var not in entering:
                continue
            if (r.lo.symbols | r.hi.symbols) & plain:
                plain.add(r.var)
            else:
                found.append(r)
    return found


def _masked(op: access.Store | Update, events: list[StoreEvent]) -> bool:
    if op.where is None or not events:
        return False
    kinds = {e.stored.masked for e in events}
    if len(kinds) > 1:
        raise Unsure("J1", f"a store to {op.tensor} is masked in some statements only", missing="one kind of mask")
    return kinds.pop()


def _subs(op: access.Store | Update) -> list[core.Sub]:
    return [s for axis in op.subs for s in (axis if isinstance(axis, tuple) else (axis,))]
