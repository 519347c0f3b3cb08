"""A small prover of integer inequalities over index expressions.

`prove_nonneg(goal, facts)` says whether `goal >= 0` follows from the facts, or `False` when it does not see it.
Monomials are variables; a floor brings its defining inequalities, a minimum or maximum the inequality with each
argument. The negated goal and the facts are refuted by Fourier-Motzkin elimination over the rationals, with rounding of
constants. Where the goal needs a minimum from below (or a maximum from above) every argument is tried.

*Ensures*: a `True` is a proof; facts must hold for the valuations meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from treadle.algebra.expr import Atom, Constraint, Expr, Floor, Max, Min, Monomial, Sym, of

Row = dict[Monomial, int]  # sum of coefficient * monomial >= 0; the monomial () is the constant

MAX_ROWS = 700
MAX_SPLITS = 5


def prove_nonneg(goal: Expr, facts: Iterable[Constraint], nonneg: Iterable[Expr] = ()) -> bool:
    """Whether `goal >= 0` is proved from `facts` and from each of `nonneg` being at least 0."""
    known = [*facts, *(Constraint(e) for e in nonneg)]
    numbers = _numbers(known)
    if numbers:
        # A product with a symbol that is known to be a number is no product.
        goal = goal.substitute(numbers)
        known = [Constraint(f.expr.substitute(numbers), f.equality) for f in known]
    return _prove(goal, known, MAX_SPLITS)


def _numbers(facts: Sequence[Constraint]) -> dict[str, int]:
    """Symbols that a fact says to be a number."""
    found: dict[str, int] = {}
    for fact in facts:
        single = [(m[0], c) for m, c in fact.expr.terms if len(m) == 1]
        if not fact.equality or len(single) != 1 or len(fact.expr.terms) > 2:
            continue
        atom, c = single[0]
        if isinstance(atom, Sym) and abs(c) == 1 and fact.expr == of(atom) * c + fact.expr.offset:
            found[atom.name] = -fact.expr.offset * c
    return found


def prove(claim: Constraint, facts: Iterable[Constraint]) -> bool:
    """Whether the constraint is proved from the facts."""
    known = list(facts)
    if claim.equality:
        return prove_nonneg(claim.expr, known) and prove_nonneg(-claim.expr, known)
    return prove_nonneg(claim.expr, known)


def _prove(goal: Expr, facts: list[Constraint], splits: int) -> bool:
    number = goal.constant
    if number is not None and number >= 0:
        return True
    if _refutes(goal, facts):
        return True
    through_floor = _without_floor(goal)
    if through_floor is not None and _prove(through_floor, facts, splits):
        return True
    if splits == 0:
        return False
    hard = _hard_extremum(goal)
    if hard is not None:
        return all(_prove(case, more, splits - 1) for case, more in _cases(hard, goal, facts))
    return False


def _hard_extremum(goal: Expr) -> Min | Max | None:
    """A minimum that the goal needs from below, or a maximum that it needs from above."""
    for monomial, c in goal.terms:
        if len(monomial) == 1 and isinstance(monomial[0], (Min, Max)) and isinstance(monomial[0], Min) == (c > 0):
            return monomial[0]
    return None


def _cases(atom: Min | Max, goal: Expr, facts: list[Constraint]) -> Iterable[tuple[Expr, list[Constraint]]]:
    for choice in atom.args:
        sign = 1 if isinstance(atom, Min) else -1
        here = [Constraint((other - choice) * sign) for other in atom.args if other is not choice]
        case = goal.rewrite(lambda a, c=choice: c if a == atom else None)
        yield case, [*facts, *here]


def _without_floor(goal: Expr) -> Expr | None:
    """`E - n // d >= 0` as `d * (E + 1) - 1 - n >= 0`, and `n // d - E >= 0` as `n - d * E >= 0`: both exact."""
    floors = [(m[0], c) for m, c in goal.terms if len(m) == 1 and isinstance(m[0], Floor)]
    for atom, c in floors:
        assert isinstance(atom, Floor)
        if abs(c) != 1:
            continue
        rest = goal - of(atom) * c
        if atom in set(rest.atoms()):
            continue
        return atom.den * (rest + 1) - 1 - atom.num if c < 0 else atom.num + atom.den * rest
    return None


def _refutes(goal: Expr, facts: Sequence[Constraint]) -> bool:
    """Whether facts and `goal <= -1` have no common solution, as seen by elimination."""
    rows = _relevant(_row(-goal - 1), facts)
    return rows is not None and _eliminate(rows)


def _row(expr: Expr) -> Row:
    return dict(expr.terms)


def _relevant(target: Row, facts: Sequence[Constraint]) -> list[Row] | None:
    """The target and all facts connected with it by variables, definitions of atoms included."""
    pool = [_row(e) for f in facts for e in ((f.expr, -f.expr) if f.equality else (f.expr,))]
    rows, seen = [target], {m for m in target if m}
    todo = set(seen)
    defined: set[Atom] = set()
    used = [False] * len(pool)
    positive = _positive_symbols(pool)
    while todo:
        fresh: list[Row] = []
        for monomial in todo:
            fresh += [r for atom in monomial if atom not in defined for r in _definition(atom)]
            if len(monomial) > 1 and all((a,) in positive for a in monomial):
                fresh.append({monomial: 1})
            defined.update(monomial)
        for i, row in enumerate(pool):
            if not used[i] and any(m in todo for m in row):
                used[i] = True
                fresh.append(row)
        rows += fresh
        if len(rows) > MAX_ROWS:
            return None
        todo = {m for r in fresh for m in r if m} - seen
        seen |= todo
    return rows


def _positive_symbols(pool: Sequence[Row]) -> set[Monomial]:
    """Single atoms that a fact of their own says are at least 0."""
    return {m for row in pool for m, c in row.items() if len(m) == 1 and c > 0 and _only(row, m)}


def _only(row: Row, monomial: Monomial) -> bool:
    return all(m == monomial or (m == () and c <= 0) for m, c in row.items())


def _definition(atom: Atom) -> list[Row]:
    """What is known of an atom: `d*q <= n <= d*q + d - 1` of a floor, bounds by the arguments of an extremum."""
    here = of(atom)
    match atom:
        case Floor(num, den):
            return [_row(num - den * here), _row(den * here + den - 1 - num)]
        case Min(args):
            return [_row(a - here) for a in args]
        case Max(args):
            return [_row(here - a) for a in args]
        case _:
            return []


def _eliminate(rows: list[Row]) -> bool:
    """Whether the rows contradict one another."""
    current = {tuple(sorted(((_id(m), c) for m, c in r.items()))): r for r in (_tight(r) for r in rows)}
    work = list(current.values())
    while True:
        if any(not any(m for m in r) and r.get((), 0) < 0 for r in work):
            return True
        variable = _cheapest(work)
        if variable is None:
            return False
        ups = [r for r in work if r.get(variable, 0) > 0]
        downs = [r for r in work if r.get(variable, 0) < 0]
        kept = {_key(r): r for r in work if variable not in r}
        for up in ups:
            for down in downs:
                made = _combine(up, down, variable)
                if any(made) or made.get((), 0) < 0:
                    kept[_key(made)] = made
        if len(kept) > MAX_ROWS:
            return False
        work = list(kept.values())


def _id(monomial: Monomial) -> str:
    return "*".join(map(str, monomial))


def _key(row: Row) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((_id(m), c) for m, c in row.items()))


def _cheapest(rows: Sequence[Row]) -> Monomial | None:
    counts: dict[Monomial, list[int]] = {}
    for row in rows:
        for monomial, c in row.items():
            if monomial:
                counts.setdefault(monomial, [0, 0])[c > 0] += 1
    return min(counts, key=lambda m: (counts[m][0] * counts[m][1], _id(m)), default=None)


def _combine(up: Row, down: Row, variable: Monomial) -> Row:
    a, b = up[variable], -down[variable]
    out: Row = {}
    for row, factor in ((up, b), (down, a)):
        for monomial, c in row.items():
            out[monomial] = out.get(monomial, 0) + c * factor
    return _tight({m: c for m, c in out.items() if c})


def _tight(row: Row) -> Row:
    """Divided by the common divisor of the coefficients, the constant rounded down."""
    common = 0
    for monomial, c in row.items():
        if monomial:
            common = gcd(common, c)
    if common <= 1:
        return row
    return {m: c // common for m, c in row.items() if m or c // common}
