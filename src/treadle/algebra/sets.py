"""Questions about integer sets, answered by isl: the one file that imports islpy.

`Facts` is a conjunction of constraints on parameters, grown step by step; every other question is asked under facts,
for all valuations that satisfy them. `Region` is a set of index tuples, `Relation` a set of pairs, both parametric.

A product of parameters, an opaque function of parameters and a floor by a symbol become fresh parameters
(`algebra.isl_text`): implications stay sound, but a failure may then be the abstraction's fault (`is_opaque`). The
same terms over a set's own dimensions have no representation: `Inexpressible`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import islpy as isl

from treadle.algebra.expr import Atom, Constraint, Expr, Max, Min, Monomial, Sym, eq, ge, of, sym
from treadle.algebra.isl_text import Inexpressible, Text, complements, convex, ident, name_of, negation, term_of
from treadle.algebra.lemmas import division_lemmas, divisions, product_lemmas
from treadle.algebra.maps import IndexMap, joined

_DIMS = isl.dim_type
SetError: type[Exception] = isl.Error
"""What isl raises for text that it cannot read or a space that does not fit."""


def fresh_budget(operations: int = 10**8) -> None:
    """Lets isl do this much work from now on; beyond it, a question ends in `SetError`. No question then takes for
    ever.

    *Units*: isl's own count; a large machine program takes about 10^6.
    """
    isl.DEFAULT_CONTEXT.reset_operations()
    isl.DEFAULT_CONTEXT.set_max_operations(operations)


# ---- facts


class Facts:
    """A conjunction of constraints on parameters. Immutable; `also` extends it, sharing what isl already built.

    *Ensures*: `implies` and `equal` answer True only if the claim holds for every integer valuation of the facts.
    """

    def __init__(
        self, constraints: Iterable[Constraint] = (), base: Facts | None = None, whole_extrema: bool = False
    ) -> None:
        self.base = base
        self.own = tuple(constraints)
        self.whole_extrema = whole_extrema if base is None else base.whole_extrema
        self._unsplit: Facts | None = None
        self._low: dict[tuple[Any, ...], int] = {} if base is None else dict(base._low)
        self._set: isl.Set | None = None
        self._memo: dict[Constraint, bool] = {}
        self._children: dict[tuple[Constraint, ...], Facts] = {}
        self.regions: dict[IndexMap, Region] = {}
        """What maps were found to reach under these facts."""
        self.maps: dict[IndexMap, isl.Map] = {} if base is None else base.maps
        self.conjunctions: dict[tuple[Constraint, ...], isl.Set] = {} if base is None else base.conjunctions
        """Maps and conjunctions as isl reads them, whatever else holds."""
        self._empty: bool | None = None
        self.lemmas: tuple[Constraint, ...] = ()
        self.known: dict[str, int] = _values(self.own) if base is None else base.known
        for c in convex(self.own):
            self._note(c.expr)
            if c.equality:
                self._note(-c.expr)

    def _note(self, e: Expr) -> None:
        key, offset = _key(e)
        known = self._low.get(key)
        if known is None or offset < known:
            self._low[key] = offset

    def also(self, *constraints: Constraint) -> Facts:
        """These facts and the further constraints."""
        new = tuple(c for c in constraints if not _trivial(c) and not self._knows(c))
        if not new:
            return self
        found = self._children.get(new)
        if found is None:
            found = self._children[new] = Facts(new, self)
        return found

    @property
    def unsplit(self) -> Facts:
        """The same facts with each minimum and maximum a parameter of its own, of which only the bounds by its
        arguments are known: one convex piece, where a minimum that is bounded from below splits a set in as many as it
        has arguments.

        *Ensures*: of the valuations of the facts each is one of these, with the parameters' true values. So what holds
        for all of these holds for all of those, and a set that is read under these facts has a tuple at a valuation
        exactly if it has under those: `Region.when` gives the same answer in fewer conjunctions. What fails under
        these alone fails for nobody (`is_opaque`).
        """
        if self.whole_extrema:
            return self
        if self._unsplit is None:
            self._unsplit = Facts((*self.all(), *self.lemmas), whole_extrema=True)
        return self._unsplit

    def all(self) -> Iterator[Constraint]:
        """Every constraint, oldest first."""
        if self.base is not None:
            yield from self.base.all()
        yield from self.own

    @property
    def set(self) -> isl.Set:
        """The parameter set."""
        if self._set is None:
            mine = self._read(self.own)
            self._set = mine if self.base is None else self.base.set.intersect(mine)
            if mine.n_basic_set() > 1:  # minima and maxima split it: each question goes through all pieces
                self._set = self._set.coalesce()
            self._saturate()
        return self._set

    def _saturate(self) -> None:
        """Adds to the set what isl does not know of quotients by symbols in the facts: what they are, or between which
        products they lie, and what facts about them say of these products."""
        if self.whole_extrema and self.base is None:
            return  # the lemmas are among the facts
        atoms = divisions(c.expr for c in self.all())
        if not atoms or self.set.is_empty():
            return
        self.lemmas = self.base.lemmas if self.base is not None else ()
        found = self._about(atoms)
        quotients = {of(a) for a in atoms}
        about = [c for c in (*self.all(), *found) if any(of(a) in quotients for m, _ in c.expr.terms for a in m)]
        found += product_lemmas(None, [*about, *(c for c in self.all() if c not in about and len(c.expr.terms) <= 2)])
        self._set = self._with(found)
        self.lemmas = (*self.lemmas, *found)

    def _about(self, atoms: Sequence[Atom]) -> list[Constraint]:
        """Lemmas about quotients and remainders that the facts, with the lemmas before, give."""
        found: list[Constraint] = []
        for atom in atoms:
            if any(c.equality and abs(c.expr.coefficient(atom)) == 1 for c in self.lemmas):
                continue
            facts = [*self.all(), *self.lemmas, *found]
            for lemma in division_lemmas(atom, facts, lambda c: self._refuted(c, found)):
                found.append(lemma)
        return found

    # ---- questions

    def _knows(self, c: Constraint) -> bool:
        """By lookup alone."""
        if c.equality:
            return self._knows(Constraint(c.expr)) and self._knows(Constraint(-c.expr))
        key, offset = _key(c.expr)
        known = self._low.get(key)
        return not key and offset >= 0 or known is not None and known <= offset

    def _bounded(self, e: Expr) -> bool:
        """Whether the sum of the terms' least values, each by a known bound of the term alone, is not negative."""
        total = e.offset
        for monomial, c in e.terms:
            if not monomial:
                continue
            sign = 1 if c > 0 else -1
            known = self._low.get(((monomial, sign),))
            if known is None:
                return False
            total += abs(c) * -known
        return total >= 0

    def implies(self, c: Constraint) -> bool:
        """Whether the constraint holds for every valuation of the facts."""
        if c.equality:
            return not c.expr.terms or (self.implies(Constraint(c.expr)) and self.implies(Constraint(-c.expr)))
        return all(self._implies_one(part) for part in convex((c,)))

    def _implies_one(self, c: Constraint) -> bool:
        if self._knows(c) or self._bounded(c.expr):
            return True
        if c.expr.constant is not None:
            return self.contradictory
        found = self._memo.get(c)
        if found is None:
            found = self._refuted(c, [])
            if not found:
                more = self._about(divisions((c.expr,)))
                found = bool(more) and self._refuted(c, more)
            self._memo[c] = found
        return found

    def _refuted(self, c: Constraint, more: list[Constraint]) -> bool:
        """Whether nothing is against a constraint, with lemmas about products where a set alone does not show it; what
        would be against it is a fact for the lemmas too."""
        (against,) = negation(c)
        if not more and bool(self._with((against,)).is_empty()):
            return True
        lemmas = [*more, *product_lemmas(c, [*self.all(), *self.lemmas, *more, against])]
        return bool(lemmas) and bool(self._with((against, *lemmas)).is_empty())

    def equal(self, a: Expr, b: Expr) -> bool:
        """Whether the two expressions are equal for every valuation of the facts."""
        return a == b or self.implies(eq(a, b))

    def _with(self, cs: Sequence[Constraint]) -> isl.Set:
        return self.set.intersect(self._read(tuple(cs)))

    def _read(self, cs: tuple[Constraint, ...]) -> isl.Set:
        """A conjunction as isl reads it, whatever else holds."""
        found = self.conjunctions.get(cs)
        if found is None:
            text = Text((), self.known, self.whole_extrema)
            body = " and ".join([text.constraints(cs), *text.bounds])
            found = self.conjunctions[cs] = isl.Set(f"{text.head()}{{ : {body} }}")
        return found

    @property
    def contradictory(self) -> bool:
        """Whether no valuation satisfies the facts."""
        if self._empty is None:
            if any(
                c.expr.constant is not None and (c.expr.constant < 0 or c.equality) for c in self.own if c.expr.terms
            ):
                self._empty = True
            else:
                self._empty = self.set.is_empty()
        return self._empty

    def sample(self, *constraints: Constraint) -> dict[str, int] | None:
        """A valuation of the facts and the constraints, by name; opaque terms under their text. None if there is
        none."""
        found = self._with(constraints) if constraints else self.set
        return _sample(found)

    def against(self, c: Constraint) -> dict[str, int] | None:
        """A valuation of the facts under which `c` fails."""
        for n in negation(c):
            found = self.sample(n)
            if found is not None:
                return found
        return None


def _key(e: Expr) -> tuple[tuple[tuple[Monomial, int], ...], int]:
    return tuple((m, c) for m, c in e.terms if m), e.offset


def _values(cs: Iterable[Constraint]) -> dict[str, int]:
    """Symbols that an equation alone says the value of."""
    found: dict[str, int] = {}
    for c in cs:
        terms = [(m, k) for m, k in c.expr.terms if m]
        if c.equality and len(terms) == 1 and len(terms[0][0]) == 1 and abs(terms[0][1]) == 1:
            (atom,), k = terms[0]
            if isinstance(atom, Sym):
                found[atom.name] = -k * c.expr.offset
    return found


def _trivial(c: Constraint) -> bool:
    k = c.expr.constant
    return k is not None and (k == 0 if c.equality else k >= 0)


def is_opaque(valuation: Mapping[str, int]) -> bool:
    """Whether a sample leans on terms that isl does not know: such a counterexample may be spurious."""
    return any(name.startswith("<") for name in valuation)


def _sample(found: isl.Set) -> dict[str, int] | None:
    if found.is_empty():
        return None
    for bound in (4, 40, 400, None):
        near = found if bound is None else found.intersect(_small(found, bound))
        if not near.is_empty():
            return _point(near.sample_point())
    return None


def _small(found: isl.Set, bound: int) -> isl.Set:
    space = found.get_space()
    idents = [str(space.get_dim_name(_DIMS.param, i)) for i in range(space.dim(_DIMS.param))]
    text = " and ".join(f"-{bound} <= {p} <= {bound * 16}" for p in idents) or "true"
    small = isl.Set(f"[{', '.join(idents)}] -> {{ : {text} }}")
    return small if found.is_params() else isl.Set.from_params(small).add_dims(_DIMS.set, found.dim(_DIMS.set))


def _point(point: isl.Point) -> dict[str, int]:
    space = point.get_space()
    out: dict[str, int] = {}
    for i in range(space.dim(_DIMS.param)):
        ident = str(space.get_dim_name(_DIMS.param, i))
        out[name_of(ident)] = point.get_coordinate_val(_DIMS.param, i).to_python()
    for i in range(space.dim(_DIMS.set)):
        out[f"[{i}]"] = point.get_coordinate_val(_DIMS.set, i).to_python()
    return out


# ---- sets and relations


class Region:
    """A parametric set of index tuples."""

    def __init__(self, found: isl.Set) -> None:
        self.set = found

    @staticmethod
    def of(map_: IndexMap, facts: Facts) -> Region:
        """The tuples that the map reaches, under facts. *Errors*: `Inexpressible`."""
        found = facts.regions.get(map_)
        if found is None:
            found = Relation.of(joined(map_, lambda e: facts.implies(ge(e, 0))), facts).range()
            facts.regions[map_] = found
        return found

    @staticmethod
    def nothing(arity: int) -> Region:
        """The empty set of tuples of that length."""
        return Region(isl.Set(f"{{ [{', '.join(f'i{i}' for i in range(arity))}] : false }}"))

    def __or__(self, other: Region) -> Region:
        return Region(self.set.union(other.set))

    def __and__(self, other: Region) -> Region:
        return Region(self.set.intersect(other.set))

    def __sub__(self, other: Region) -> Region:
        return Region(self.set.subtract(other.set))

    def __le__(self, other: Region) -> bool:
        return bool(self.set.is_subset(other.set))

    def equals(self, other: Region) -> bool:
        """Whether both hold the same tuples for every valuation."""
        return bool(self.set.is_equal(other.set))

    @property
    def is_empty(self) -> bool:
        """Whether it is empty for every valuation."""
        return bool(self.set.is_empty())

    def sample(self) -> dict[str, int] | None:
        """A valuation and a tuple of it (`[0]`, `[1]`, ...), or None."""
        return _sample(self.set)

    def when(self, facts: Facts) -> list[tuple[Constraint, ...]]:
        """Disjoint conjunctions of which one holds exactly at those valuations of the facts where the set has a tuple.

        *Errors*: `Inexpressible` where isl holds a term that has no expression.
        """
        found = self.set.params().coalesce().make_disjoint().gist(facts.set)
        read_back = (map(_constraint, b.get_constraints()) for b in found.get_basic_sets())
        return [tuple(c for c in conds if not _by_definition(c)) for conds in read_back]


def _constraint(c: Any) -> Constraint:
    """One of isl's constraints on parameters, read back."""
    total = Expr(()) + int(c.get_constant_val().to_python())
    space = c.get_space()
    for i in range(space.dim(_DIMS.param)):
        k = int(c.get_coefficient_val(_DIMS.param, i).to_python())
        if k:
            total = total + k * term_of(str(space.get_dim_name(_DIMS.param, i)))
    for i in range(c.get_local_space().dim(_DIMS.div)):
        k = int(c.get_coefficient_val(_DIMS.div, i).to_python())
        if k:
            total = total + k * _floor(c.get_div(i))
    return Constraint(total, bool(c.is_equality()))


def _by_definition(c: Constraint) -> bool:
    """Whether a constraint only says that a minimum is no more than one of its arguments, or a maximum no less."""
    for monomial, k in () if c.equality else c.expr.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if (isinstance(atom, Min) and k < 0) or (isinstance(atom, Max) and k > 0):
            rest = c.expr - k * of(atom)
            if any((gap := (rest + k * a).constant) is not None and gap >= 0 for a in atom.args):
                return True
    return False


def _floor(div: Any) -> Expr:
    """A division of isl's as a floor. *Errors*: `Inexpressible` for one that is only known by its use."""
    space = div.get_space()
    if div.dim(_DIMS.div) and any(
        not div.get_coefficient_val(_DIMS.div, i).is_zero() for i in range(div.dim(_DIMS.div))
    ):
        raise Inexpressible(str(div))
    scale = int(div.get_denominator_val().to_python())
    total = Expr(()) + int((div.get_constant_val() * scale).to_python())
    for i in range(space.dim(_DIMS.param)):
        k = int((div.get_coefficient_val(_DIMS.param, i) * scale).to_python())
        if k:
            total = total + k * term_of(str(space.get_dim_name(_DIMS.param, i)))
    return total // scale


class Relation:
    """A parametric set of pairs of index tuples."""

    def __init__(self, found: isl.Map) -> None:
        self.map = found

    @staticmethod
    def of(map_: IndexMap, facts: Facts) -> Relation:
        """The relation `dims -> outs` under facts. *Errors*: `Inexpressible`."""
        found = facts.maps.get(map_)
        if found is None:
            found = facts.maps[map_] = Relation._read(map_, facts.known, facts.whole_extrema)
        return Relation(found.intersect_params(facts.set))

    @staticmethod
    def _read(map_: IndexMap, known: Mapping[str, int], unsplit: bool) -> isl.Map:
        own = map_.dims + map_.exists
        text = Text(own, known, unsplit)
        # an out that is one existential symbol is a free coordinate of the second members
        free = {s for e in map_.outs for s in map_.exists if e == sym(s)}
        dims = ", ".join(ident(d) for d in map_.dims)
        outs = ", ".join(text.expr(e) for e in map_.outs)
        body = text.constraints(map_.where)
        bound = [d for d in map_.exists if d not in free]
        if bound:
            if any(e.symbols & set(bound) for e in map_.outs):
                raise Inexpressible(str(map_.outs))
            body = f"exists ({', '.join(map(ident, bound))} : {body})"
        return isl.Map(f"{text.head()}{{ [{dims}] -> [{outs}] : {body} }}")

    def __or__(self, other: Relation) -> Relation:
        return Relation(self.map.union(other.map))

    def range(self) -> Region:
        """The second members."""
        return Region(self.map.range())

    @property
    def is_injective(self) -> bool:
        """Whether, for every valuation, distinct first members have distinct second members."""
        return bool(self.map.is_injective())

    @property
    def is_empty(self) -> bool:
        return bool(self.map.is_empty())

    def collision(self) -> dict[str, int] | None:
        """A valuation and a tuple that two first members reach, or None."""
        pairs = self.map.apply_range(self.map.reverse())
        other = pairs.subtract(isl.Map.identity(pairs.get_space()))
        return None if other.is_empty() else _sample(other.domain())


def before(first: Sequence[Expr], second: Sequence[Expr]) -> Iterator[tuple[Constraint, ...]]:
    """Disjoint conjunctions that together say that `first` is lexicographically before `second`."""
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        yield (*(eq(x, y) for x, y in zip(first[:i], second[:i])), ge(b, a + 1))


__all__ = [
    "Facts",
    "Inexpressible",
    "Region",
    "Relation",
    "before",
    "complements",
    "convex",
    "is_opaque",
    "negation",
]
