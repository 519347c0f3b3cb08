"""Index relations: which tuples of coordinates a family of slots reaches, read pointwise.

An `IndexMap` is a family of assignments `dims -> outs` under constraints; further symbols are parameters (fixed, but
any). It is the shape in which address sets, contribution sets and regions' cuts are handed to `algebra.sets`; here are
its pointwise meaning (`points`, by brute force: the naive twin) and the changes of coordinates that keep products of
symbols out of isl: positions in a mixed radix as one coordinate (`joined`), or as their digits (`digits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations, product
from typing import Any

from treadle.algebra.expr import Atom, Constraint, Expr, ExprLike, Sym, ge, lt, of, sym

Prover = Callable[[Sequence[Constraint], Constraint], bool]
"""Whether a constraint follows from what is known and these."""


@dataclass(frozen=True)
class IndexMap:
    """For every value of `dims` (and of the existential `exists`) that satisfies `where`: `dims -> outs`."""

    dims: tuple[str, ...]
    outs: tuple[Expr, ...]
    where: tuple[Constraint, ...] = ()
    exists: tuple[str, ...] = ()

    def substitute(self, env: Mapping[str, ExprLike]) -> IndexMap:
        """Parameters replaced. Requires: `env` names none of `dims` and `exists`."""
        return IndexMap(
            self.dims,
            tuple(e.substitute(env) for e in self.outs),
            tuple(c.substitute(env) for c in self.where),
            self.exists,
        )

    def renamed(self, suffix: str) -> IndexMap:
        """Its own dims and existential symbols under fresh names; the relation is the same."""
        fresh = {name: f"{name}{suffix}" for name in self.dims + self.exists}
        env = {old: sym(new) for old, new in fresh.items()}
        return IndexMap(
            tuple(fresh[d] for d in self.dims),
            tuple(e.substitute(env) for e in self.outs),
            tuple(c.substitute(env) for c in self.where),
            tuple(fresh[d] for d in self.exists),
        )

    def points(
        self, params: Mapping[str, int], ranges: Mapping[str, range]
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """All `(dims, outs)` with dims and existential symbols drawn from `ranges`: the naive twin of the isl
        relation."""
        names = self.dims + self.exists
        seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        for values in product(*(ranges[n] for n in names)):
            env: dict[str, Any] = dict(params) | dict(zip(names, values))
            if all(c.holds(env) for c in self.where):
                pair = values[: len(self.dims)], tuple(int(e.evaluate(env)) for e in self.outs)
                if pair not in seen:
                    seen.add(pair)
                    yield pair


def box(names: Sequence[str], shape: Sequence[ExprLike]) -> tuple[Constraint, ...]:
    """`0 <= name < extent` for each pair."""
    found: list[Constraint] = []
    for name, extent in zip(names, shape, strict=True):
        found += [ge(sym(name), 0), lt(sym(name), extent)]
    return tuple(found)


def joined(map_: IndexMap, not_negative: Callable[[Expr], bool]) -> IndexMap:
    """The map with positions in a mixed radix as one coordinate: `B*a + b`, for `0 <= b < B` and bounds of `a` alone,
    takes each value between those for the least and the greatest `a` once.

    *Ensures*: the same outs as the map's, under every valuation for which what `not_negative` affirms is so; products
    of a symbol and a dim are gone where they are such positions.
    """
    if all(len(m) < 2 for e in map_.outs for m, _ in e.terms):
        return map_
    map_ = _settled(map_)
    for a in map_.dims:
        radix = next((d for e in map_.outs if (d := _radix(e, a)) is not None), None)
        if radix is None or radix.symbols & {*map_.dims, *map_.exists}:
            continue
        for b in map_.dims:
            one = _joined(map_, a, b, radix) if a != b else None
            if one is not None and not_negative(radix):
                return joined(one, not_negative)
    return map_


def _settled(map_: IndexMap) -> IndexMap:
    """Without dims that an equation makes equal to what is no dim."""
    own = {*map_.dims, *map_.exists}
    for c in map_.where:
        for d in map_.dims if c.equality else ():
            k = c.expr.coefficient(Sym(d))
            value = -k * (c.expr - k * sym(d))
            if abs(k) == 1 and not value.symbols & own:
                rest = replace(map_, dims=tuple(x for x in map_.dims if x != d))
                return _settled(rest.substitute({d: value}))
    return map_


def _radix(e: Expr, a: str) -> Expr | None:
    """The factor of a dim in an expression, where that is no number."""
    factor = Expr(())
    for monomial, k in e.terms:
        if Sym(a) in monomial:
            rest = list(monomial)
            rest.remove(Sym(a))
            factor = factor + Expr(((tuple(rest), k),))
    return factor if factor.constant is None else None


def _joined(map_: IndexMap, a: str, b: str, radix: Expr) -> IndexMap | None:
    """With `b` as the position of the two, if they occur as such a position only and `a` is bounded on both sides."""
    position = radix * sym(a) + sym(b)
    outs: list[Expr] = []
    for e in map_.outs:
        rest = e - position if e.symbols & {a, b} else e
        if rest.symbols & {a, b}:
            return None
        outs.append(e if rest == e else rest + sym(b))
    where: list[Constraint] = []
    sides: set[int] = set()
    digit = {ge(sym(b), 0), lt(sym(b), radix)}
    if not digit <= set(map_.where):
        return None
    for c in map_.where:
        if not c.symbols & {a, b}:
            where.append(c)
        elif c not in digit:
            k = c.expr.coefficient(Sym(a))
            rest = c.expr - k * sym(a)
            if c.equality or abs(k) != 1 or rest.symbols & {*map_.dims, *map_.exists}:
                return None
            sides.add(k)
            where.append(Constraint(k * sym(b) + radix * rest + (radix - 1 if k < 0 else 0)))
    if sides != {1, -1}:
        return None
    return IndexMap(tuple(d for d in map_.dims if d != a), tuple(outs), tuple(where), map_.exists)


# ---- positions as digits


def radix(extent: Expr, outs: Iterable[Expr]) -> tuple[Expr, ...]:
    """The factors of an axis that is as long as a product of symbols, slowest first, in the order that the positions
    `outs` show: `B*a + b` has the factor `B` last. Empty for any other axis."""
    monomial = extent.terms[0][0] if len(extent.terms) == 1 and extent.terms[0][1] == 1 else ()
    if not 2 <= len(monomial) <= 4 or len(set(monomial)) < len(monomial):
        return ()
    seen: set[frozenset[Atom]] = set()
    for e in outs:
        seen |= {frozenset(monomial) & frozenset(m) for m, _ in e.terms}
    steps = [s for s in seen if 0 < len(s) < len(monomial)]
    if not steps:
        return ()
    orders = permutations(monomial)
    best = max(orders, key=lambda o: sum(frozenset(o[-len(s) :]) == s for s in steps))
    return tuple(map(of, best))


def digits(map_: IndexMap, at: int, sizes: Sequence[Expr], proves: Prover) -> IndexMap | None:
    """The map with its `at`-th out as digits in the radix `sizes`, the last one fastest; None where they are not known.

    They are the terms of the position by the steps of the radix, where the smaller ones are proved to be digits; of a
    coordinate that takes every position, coordinates of their own; of a parameter, quotients and remainders.
    *Requires*: positions are not negative and less than the product of `sizes`, which are not negative; no dim is
    named in what `proves` knows. *Ensures*: the digits of the same outs, under every valuation.
    """
    e = map_.outs[at]
    own = {*map_.dims, *map_.exists}
    whole = _whole_dim(map_, e, sizes)
    if whole is not None:
        names = [f"{whole}.{i}" for i in range(len(sizes))]
        kept = tuple(c for c in map_.where if whole not in c.symbols)
        dims = (*(d for d in map_.dims if d != whole), *names)
        outs = (*map_.outs[:at], *map(sym, names), *map_.outs[at + 1 :])
        return IndexMap(dims, outs, (*kept, *box(names, sizes)), map_.exists)
    found, rest = list[Expr](), e
    for i in range(1, len(sizes)):
        step = reduce(lambda a, b: a * b, sizes[i:])
        found.append(multiples(rest, step))
        rest = rest - found[-1] * step
    found.append(rest)
    extra: tuple[Constraint, ...] = ()
    if not all(proves(map_.where, c) for d, n in zip(found[1:], sizes[1:]) for c in (ge(d, 0), lt(d, n))):
        if e.symbols & own:
            return None
        found, rest = list[Expr](), e
        for size in reversed(sizes[1:]):
            found.insert(0, rest % size)
            rest = rest // size
        found.insert(0, rest)
        extra = tuple(c for d, n in zip(found, sizes) for c in (ge(d, 0), lt(d, n)))
    return replace(map_, outs=(*map_.outs[:at], *found, *map_.outs[at + 1 :]), where=(*map_.where, *extra))


def _whole_dim(map_: IndexMap, e: Expr, sizes: Sequence[Expr]) -> str | None:
    """The dim that an out is, if it occurs nowhere else and takes every position."""
    name = next((d for d in map_.dims if e == sym(d)), None)
    if name is None or sum(name in o.symbols for o in map_.outs) != 1:
        return None
    total = reduce(lambda a, b: a * b, sizes)
    return name if {c for c in map_.where if name in c.symbols} == {ge(sym(name), 0), lt(sym(name), total)} else None


def multiples(e: Expr, b: Expr) -> Expr:
    """The terms of an expression that are multiples of a product of symbols, divided by it."""
    total = Expr(())
    if len(b.terms) != 1 or b.terms[0][1] != 1:
        return total
    for monomial, k in e.terms:
        rest: list[Atom] = list(monomial)
        try:
            for factor in b.terms[0][0]:
                rest.remove(factor)
        except ValueError:
            continue
        total = total + Expr(((tuple(rest), k),))
    return total
