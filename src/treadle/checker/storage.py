"""Contents of buffers: layers of versions, and which elements of each have been written where.

A `Version` opens a layer: stores must conform to it. An element is the newest layer's once it has been written in it;
until then it is what the layers below say. Written sets are exact: index maps of the stores executed so far, those of
earlier iterations of enclosing loops included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from itertools import count

from treadle.algebra.expr import Constraint, Expr, eq, ge, lt, sym
from treadle.algebra.maps import IndexMap, box, digits, radix
from treadle.algebra.sets import Facts, Inexpressible, Region, complements
from treadle.checker.compare import split
from treadle.checker.terms import Piece, Pieces, Undef, substituted, undefined
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Body,
    Compute,
    Copy,
    Fold,
    If,
    Let,
    Load,
    Loop,
    MemRef,
    Mma,
    Stmt,
    Store,
    Tasks,
    Version,
    walk,
)
from treadle.machine.vocabulary import RANK

_outcomes = count()

Conds = tuple[Constraint, ...]
"""A conjunction."""


@dataclass(frozen=True)
class Written:
    """Elements that stores have written: the map's outs, for all of its dims. `sure` unless what decides is not known.
    `tests` are parameters that stand for the outcomes of run-time tests (positive: passed)."""

    map: IndexMap
    sure: bool = True
    tests: frozenset[str] = frozenset()
    by: Stmt | None = field(default=None, compare=False, repr=False)  # the store, for reports

    def repeated(self) -> Written:
        """As one of several iterations, each with outcomes of its own."""
        if not self.tests:
            return self
        kept = tuple(c for c in self.map.where if not c.symbols & self.tests)
        return Written(replace(self.map, where=kept), sure=False, by=self.by)


@dataclass(frozen=True)
class Layer:
    """One version: what element `$` holds once written. `whole`: every element that it speaks of has been written.
    `origin` is the statement that opened it, below `depth` controls."""

    pieces: Pieces
    written: tuple[Written, ...] = ()
    whole: bool = False
    origin: int | None = None
    depth: int = 0


@dataclass(frozen=True)
class Contents:
    """A buffer's layers, newest first, and the elements that other tasks may be writing meanwhile."""

    layers: tuple[Layer, ...] = ()
    elsewhere: tuple[Written, ...] = ()
    touched: tuple[Written, ...] = ()  # by stores of whatever version
    shape: tuple[Expr, ...] = ()

    def opened(self, pieces: Pieces, origin: int | None = None, depth: int = 0) -> Contents:
        """With a new version on top. A layer in which nothing was written is hidden by none but the ones below it."""
        return replace(self, layers=(Layer(pieces, origin=origin, depth=depth), *self.layers))

    def untouched(self, pieces: Pieces) -> bool:
        """Whether these contents are all that is known of it: no version, store or invariant has come over them."""
        return len(self.layers) == 1 and self.layers[0].pieces is pieces and not self.touched

    def forgotten(self, why: str) -> Contents:
        """Of which nothing may be read."""
        return Contents((Layer(undefined(why), whole=True),), shape=self.shape)

    def maps(self) -> Iterator[IndexMap]:
        """All sets of elements that are spoken of."""
        for w in (*self.elsewhere, *(w for layer in self.layers for w in layer.written), *self.touched):
            yield w.map

    def stored(self, *events: Written) -> Contents:
        """With further elements of the newest version written."""
        if not self.layers or not events:
            return self
        top, *rest = self.layers
        layers = (replace(top, written=(*top.written, *events)), *rest)
        return replace(self, layers=layers, touched=(*self.touched, *events))

    def by_all(self, name: str, agents: int) -> Contents:
        """What all agents have written, `name` being the number of one: of a layer that speaks of it, nothing is
        known."""

        def whole(events: tuple[Written, ...]) -> tuple[Written, ...]:
            each = (w.repeated() for w in events)  # what is tested at run time, each tests for itself
            return tuple(replace(w, map=_projected(w.map, (name,), box((name,), (agents,)))) for w in each)

        if any(substituted(layer.pieces, {name: sym(f"{name}'")}) != layer.pieces for layer in self.layers):
            return replace(self.forgotten("each agent has versions of its own"), layers=())
        layers = tuple(replace(layer, written=whole(layer.written)) for layer in self.layers)
        return replace(self, layers=layers, touched=whole(self.touched))

    def after(self, *events: Written, opened: bool) -> Contents:
        """After the stores of a control; of one that opened versions, it is only known that something was written."""
        return replace(self, touched=(*self.touched, *events)) if opened else self.stored(*events)


def slots(rank: int) -> tuple[str, ...]:
    """`$0, $1, ...`."""
    return tuple(f"${i}" for i in range(rank))


class Space:
    """How elements of a buffer are named in sets: by index; of an axis as long as a product of symbols, by digits."""

    def __init__(self, sizes: tuple[tuple[Expr, ...], ...]) -> None:
        self.sizes = sizes
        self.rank = sum(max(1, len(s)) for s in sizes)

    def region(self, map_: IndexMap, facts: Facts) -> Region:
        """The elements that a map reaches. *Errors*: `Inexpressible`."""
        if not any(self.sizes):
            return Region.of(map_, facts)
        map_, at = map_.renamed("~"), 0
        for sizes in self.sizes:
            if sizes:
                found = digits(map_, at, sizes, lambda where, c: facts.also(*where).implies(c))
                if found is None:
                    raise Inexpressible(str(map_.outs[at]))
                map_ = found
            at += max(1, len(sizes))
        return Region.of(map_, facts)

    def union(self, events: Iterable[Written], facts: Facts) -> Region:
        """The elements that some event writes."""
        total = Region.nothing(self.rank)
        for event in events:
            total = total | self.region(event.map, facts)
        return total


def spaces(contents: Contents, index: tuple[Expr, ...]) -> list[Space]:
    """The ways to name elements, the better one first."""
    outs = [index, *(m.outs for m in contents.maps())]
    sizes = tuple(radix(extent, [o[i] for o in outs]) for i, extent in enumerate(contents.shape))
    plain = Space(((),) * len(index))
    return [Space(sizes), plain] if any(sizes) else [plain]


def read(contents: Contents, index: tuple[Expr, ...], facts: Facts, name: str) -> Pieces:
    """What the element at `index` holds, for all slots and valuations of the facts.

    *Errors*: refused where an element was never written, or another task may be writing it; unsure where it is not
    known which elements have been overwritten.
    """
    for space in (ways := spaces(contents, index)):
        try:
            return Reader(contents, index, name, space).read(facts)
        except Inexpressible as term:
            if space is ways[-1]:
                raise Unsure("J1", f"{name}: the written set has the term {term}", missing="an affine index") from None
    raise AssertionError(name)


@dataclass(frozen=True)
class Reader:
    """A read of the element `index`."""

    contents: Contents
    index: tuple[Expr, ...]
    name: str
    space: Space

    def here(self, facts: Facts) -> Region:
        """The elements read."""
        return self.space.region(IndexMap((), self.index), facts)

    def read(self, facts: Facts) -> Pieces:
        """What they hold. *Errors*: those of `read`; `Inexpressible`."""
        here = self.here(facts)
        for other in self.contents.elsewhere:
            clash = here & self.space.region(other.map, facts)
            if not clash.is_empty:
                reason = f"{self.name} is read while another task may write the element"
                raise Refused("J2", reason, clash.sample(), partner=other.by or self.name)
        return self._layers(self.contents.layers, facts)

    def _layers(self, layers: tuple[Layer, ...], facts: Facts) -> Pieces:
        """The element by the newest of the layers in which it was written.

        Where only some of the elements have been written in a layer, the list has a case for those and cases for the
        rest, which the layers below tell: the two sets are complements of one another, so no element is left out, and
        an element whose writing hangs on what is not known falls in neither (unsure).
        """
        name, here = self.name, self.here(facts)
        env = {f"${i}": e for i, e in enumerate(self.index)}
        for depth, layer in enumerate(layers):
            if layer.whole:
                found = substituted(layer.pieces, env)
                for case, term in split(facts, found):
                    if isinstance(term, Undef) and not term.some:
                        self._touched(case, f"{name} is read where it holds {term}")
                return found
            if not layer.written:
                continue
            sure = self.space.union([w for w in layer.written if w.sure], facts)
            if here <= sure:
                return substituted(layer.pieces, env)
            maybe = self.space.union(layer.written, facts)
            if (here & maybe).is_empty:
                continue
            below = layers[depth + 1 :]
            missing = (here - sure).sample()
            if not any(b.whole or b.written for b in below) and not (here - maybe).is_empty:
                reason = f"{name} is read where the current version has not been written"
                raise Refused("J1", reason, missing, partner=layer.written[-1].by or name)
            if not (here & (maybe - sure)).is_empty:
                raise Unsure(
                    "J1",
                    f"{name}: some of the elements read are of the new version, some of the old",
                    missing,
                    missing="stores whose conditions are known",
                )
            return self._both(below, facts, layer, substituted(layer.pieces, env))
        raise Refused("J1", f"{name} is read before it is written", here.sample(), partner=name)

    def _both(self, below: tuple[Layer, ...], facts: Facts, layer: Layer, newest: Pieces) -> Pieces:
        with_it, without = self._halves(layer, facts)
        found: list[Piece] = [((*w, *conds), term) for w in with_it for conds, term in newest]
        rest = [(w, self._layers(below, facts.also(*w))) for w in without]
        if len(rest) < len(with_it):  # the shorter half of the two decides
            return (*(((*w, *conds), term) for w, pieces in rest for conds, term in pieces), *newest)
        if all(pieces == rest[0][1] for _, pieces in rest):
            return (*found, *rest[0][1])
        found += [((*w, *conds), term) for w, pieces in rest[:-1] for conds, term in pieces]
        return (*found, *rest[-1][1])

    def _halves(self, layer: Layer, facts: Facts) -> tuple[list[Conds], list[Conds]]:
        """When the element has surely been written in the layer, and when not; minima and maxima whole where telling
        apart which argument they are makes more cases."""

        def halves(under: Facts) -> tuple[list[Conds], list[Conds]]:
            here, sure = self.here(under), self.space.union([w for w in layer.written if w.sure], under)
            return (here & sure).when(under), (here - sure).when(under)

        split_up = halves(facts)
        if max(map(len, split_up)) == 1:
            return split_up
        try:
            return min(split_up, halves(facts.unsplit), key=lambda found: min(map(len, found)))
        except Inexpressible:  # an extremum over the elements' own coordinates
            return split_up

    def _touched(self, facts: Facts, what: str) -> None:
        """*Errors*: refused where an element was never written. A value that nobody uses may be any, but some value."""
        if facts.contradictory:
            return
        here, total = self.here(facts), Region.nothing(self.space.rank)
        for event in reversed(self.contents.touched):  # one store mostly wrote all of them
            if event.sure:
                written = self.space.region(event.map, facts)
                if here <= written:
                    return
                total = total | written
        rest = here - total
        if not rest.is_empty:
            raise Refused("J1", f"{what}, and was never written", rest.sample(), partner=self.name)


def clash_elsewhere(
    contents: Contents, index: tuple[Expr, ...], facts: Facts
) -> tuple[dict[str, int], Stmt | None] | None:
    """A valuation in which another task writes the element at `index`, and the store that does, or None."""
    for space in (ways := spaces(contents, index)):
        try:
            here = space.region(IndexMap((), index), facts)
            for other in contents.elsewhere:
                case = (here & space.region(other.map, facts)).sample()
                if case is not None:
                    return case, other.by
            return None
        except Inexpressible as term:
            if space is ways[-1]:
                raise Unsure("J2", f"the index has the term {term}", missing="an affine index") from None
    return None


# ---- the stores of a body, without executing it


@dataclass
class Collector:
    """Finds the elements that a body's stores write, by buffer. `resolve` makes index expressions of its expressions
    (None where a run-time value decides), given the lets met so far."""

    shape_of: Callable[[str], tuple[int, ...]]
    wanted: Set[str]
    resolve: Callable[[Expr], Expr | None]
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    fresh: int = 0

    def body(self, body: Body) -> Iterator[tuple[str, Written]]:
        """The stores to buffers and tensors, each once for all iterations inside."""
        for stmt in body:
            match stmt:
                case Let(name=name, expr=expr):
                    self.lets[name] = expr.substitute(self.lets)
                case Store() if stmt.dst.name in self.wanted:
                    yield stmt.dst.name, replace(self._store(stmt), by=stmt)
                case Copy() if stmt.dst.name in self.wanted:
                    written = self._elements(stmt.dst, stmt.box, stmt.where, False)
                    yield stmt.dst.name, replace(written, map=from_all(written.map, stmt.multicast), by=stmt)
                case Loop():
                    yield from self.loop(stmt)
                case Tasks():
                    yield from self.tasks(stmt)
                case If():
                    yield from self._if(stmt)
                case _:
                    pass

    def _expr(self, e: Expr) -> Expr | None:
        return self.resolve(e.substitute(self.lets))

    def _constraints(self, cs: tuple[Constraint, ...]) -> tuple[Constraint, ...] | None:
        found = [(self._expr(c.expr), c.equality) for c in cs]
        if any(e is None for e, _ in found):
            return None
        return tuple(Constraint(e, q) for e, q in found if e is not None)

    def _store(self, stmt: Store) -> Written:
        return self._elements(stmt.dst, self.shape_of(stmt.src.name), stmt.where, stmt.mask is not None)

    def _elements(self, dst: MemRef, shape: tuple[int, ...], conds: tuple[Constraint, ...], masked: bool) -> Written:
        names = slots(len(shape))
        index = [self._expr(e) for e in dst.index]
        where = self._constraints(conds)
        if any(i is None for i in index):
            self.fresh += 1
            free = tuple(f"any{self.fresh}.{i}" for i in range(len(index)))
            return Written(IndexMap(free, tuple(map(sym, free))), sure=False)
        outs = tuple(i for i in index if i is not None)
        bounds = box(names, shape)
        if where is None or masked:
            return Written(IndexMap(names, outs, bounds), sure=False)
        return Written(IndexMap(names, outs, (*bounds, *where)))

    def loop(self, stmt: Loop, until: Expr | None = None) -> Iterator[tuple[str, Written]]:
        """All iterations, or those before `until`."""
        lo, hi, step = self._expr(stmt.lo), self._expr(stmt.hi), stmt.step.constant
        for name, one in self.body(stmt.body):
            w = one.repeated()
            if lo is None or hi is None or step is None or step < 1:
                yield name, Written(_projected(w.map, (stmt.var,), ()), sure=False, by=w.by)
                continue
            v = sym(stmt.var)
            inside = [ge(v, lo), lt(v, hi)]
            if step != 1:
                inside.append(eq((v - lo) % step, 0))
            if until is not None:  # the current value keeps the name
                earlier = _rename_dims(_projected(w.map, (stmt.var,), tuple(inside)), {stmt.var: f"{stmt.var}'"})
                mapped = replace(earlier, where=(*earlier.where, lt(sym(f"{stmt.var}'"), until)))
                yield name, Written(mapped, w.sure, by=w.by)
                continue
            whole = _projected(w.map, (stmt.var,), tuple(inside))
            yield name, Written(whole, w.sure, by=w.by)

    def tasks(
        self, stmt: Tasks, but: bool = False, among: tuple[str, ...] | None = None
    ) -> Iterator[tuple[str, Written]]:
        """All tasks, or all but the current one (whose variables keep their names; `among`: those that tell it)."""
        counts = [self._expr(c) for c in stmt.counts]
        for name, one in self.body(stmt.body):
            w = one.repeated()
            inside: list[Constraint] = []
            sure = w.sure and all(c is not None for c in counts)
            for v, c in zip(stmt.vars, counts):
                inside += [ge(sym(v), 0), *([] if c is None else [lt(sym(v), c)])]
            mine = _projected(w.map, stmt.vars, tuple(inside))
            if not but:
                yield name, Written(mine, sure, by=w.by)
                continue
            other = _rename_dims(mine, {v: f"{v}'" for v in stmt.vars})
            same = tuple(eq(sym(f"{v}'"), sym(v)) for v in (stmt.vars if among is None else among))
            for different in complements(same):
                yield name, Written(replace(other, where=(*other.where, *different)), sure=False, by=w.by)

    def _if(self, stmt: If) -> Iterator[tuple[str, Written]]:
        conds = None if stmt.cond is not None else self._constraints(stmt.conds)
        tests: frozenset[str] = frozenset()
        if conds is None:
            outcome = f"test'{next(_outcomes)}"  # never one that another `if` has
            conds, tests = (ge(sym(outcome), 1),), frozenset({outcome})
        for branch, alternatives in ((stmt.then, (conds,)), (stmt.orelse, tuple(complements(conds)))):
            lets = dict(self.lets)
            for name, w in self.body(branch):
                for extra in alternatives:
                    mapped = replace(w.map, where=(*w.map.where, *extra))
                    yield name, Written(mapped, w.sure, w.tests | tests, w.by)
            self.lets = lets


def from_all(mine: IndexMap, receivers: int) -> IndexMap:
    """Where boxes of all workgroups of a cluster come to rest in each of them, if they go to all (`receivers`, a bit
    each)."""
    if not receivers:
        return mine
    sender = f"{RANK}'"
    env = {RANK: sym(sender)}
    where = (*box((sender,), (receivers.bit_length(),)), *(c.substitute(env) for c in mine.where))
    return IndexMap((sender, *mine.dims), tuple(e.substitute(env) for e in mine.outs), where, mine.exists)


def _projected(map_: IndexMap, names: tuple[str, ...], inside: tuple[Constraint, ...]) -> IndexMap:
    return IndexMap((*names, *map_.dims), map_.outs, (*inside, *map_.where), map_.exists)


def _rename_dims(map_: IndexMap, names: dict[str, str]) -> IndexMap:
    env = {old: sym(new) for old, new in names.items()}
    return IndexMap(
        tuple(names.get(d, d) for d in map_.dims),
        tuple(e.substitute(env) for e in map_.outs),
        tuple(c.substitute(env) for c in map_.where),
        map_.exists,
    )


def buffers_opened(body: Body) -> set[str]:
    """Buffers that get a new version somewhere in the body."""
    found: set[str] = set()
    for stmt in body:
        match stmt:
            case Version(buffer=name):
                found.add(name)
            case Loop() | Tasks():
                found |= buffers_opened(stmt.body)
                if isinstance(stmt, Loop):
                    found |= {i.holder for i in stmt.invariants}
            case If():
                found |= buffers_opened(stmt.then) | buffers_opened(stmt.orelse)
            case _:
                pass
    return found


def assigned(body: Body) -> set[str]:
    """Fragments that a body assigns."""
    found = {s.dst for s in walk(body) if isinstance(s, Load | Compute | Fold | Mma)}
    return found | {s.old for s in walk(body) if isinstance(s, Store) and s.old is not None}
