"""Index relations: which tuples of coordinates a family of slots reaches, read pointwise.

An `IndexMap` is a family of assignments `dims -> outs` under constraints; further symbols are parameters (fixed, but
any). It is the shape in which address sets, contribution sets and regions' cuts are handed to `algebra.sets`; here are
its pointwise meaning (`points`, by brute force: the naive twin) and the lemmas that keep products of symbols out of
isl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from treadle.algebra.expr import Atom, Constraint, Expr, ExprLike, Max, Min, Monomial, Sym, ge, lt, of, sym


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


def product_lemmas(c: Constraint, facts: Sequence[Constraint]) -> Iterator[Constraint]:
    """Consequences of facts about the products of two symbols in `c`, and in facts about the symbols of `c`: where
    `p >= 0` and `e >= 0` are facts, so is `p*e >= 0`.

    They decide mixed-radix positions: `0 <= h < H` and `0 <= d < D` give `0 <= D*h + d < H*D`.
    """
    positive = {a for f in facts if (a := _not_negative(f)) is not None}
    pairs = set(_products(c.expr))
    for fact in facts:
        if fact.expr.symbols & c.expr.symbols:
            pairs |= set(_products(fact.expr))
    for monomial in pairs:
        for factor, other in (monomial, monomial[::-1]):
            if factor not in positive:
                continue
            for fact in facts:
                if fact.expr.coefficient(other) and fact.expr.is_affine and len(fact.expr.terms) <= 4:
                    yield Constraint(fact.expr * of(factor), fact.equality)


def _products(e: Expr) -> Iterator[Monomial]:
    """The products of two symbols in an expression, those inside minima and maxima too."""
    for monomial, _ in e.terms:
        if len(monomial) == 2:
            yield monomial
        for atom in monomial:
            if isinstance(atom, Min | Max):
                for arg in atom.args:
                    yield from _products(arg)


def _not_negative(fact: Constraint) -> Atom | None:
    """The symbol that a fact alone shows not to be negative."""
    symbols = [(m, k) for m, k in fact.expr.terms if m]
    if len(symbols) == 1 and len(symbols[0][0]) == 1 and symbols[0][1] > 0 and fact.expr.offset <= 0:
        return symbols[0][0][0]
    return None
