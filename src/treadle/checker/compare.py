"""Whether a term that the machine holds is the element that a claim names, under facts: by unfolding both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.algebra.expr import Constraint, Expr, sym
from treadle.algebra.maps import IndexMap
from treadle.algebra.monoids import MONOIDS
from treadle.algebra.sets import Facts, Inexpressible, Region, complements
from treadle.checker.scopes import View, folded_dims
from treadle.checker.source import Source
from treadle.checker.terms import Any, App, Cell, Elem, Idx, Num, Part, Pieces, Term
from treadle.ir.ops.fold import Mma, Reduce, Scan

_COMMUTE = frozenset({"add", "mul", "eq", "ne", "and", "or", "xor"})


@dataclass(frozen=True)
class Gap:
    """Where two terms differ: the facts under which, and what stands on each side. `decided` when it is no matter of
    missing knowledge: numbers differ, or the same value's coordinates do."""

    facts: Facts
    have: Term
    want: Term
    constraint: Constraint | None = None

    def __str__(self) -> str:
        if self.constraint is not None:
            return f"{self.have} is not {self.want}: {self.constraint} does not follow"
        return f"it holds {self.have}, not {self.want}"


class Compare:
    """Equality of terms over one source program. *Ensures*: no `Gap` means equal for every valuation of the facts."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._numbers: dict[int, tuple[object, int]] = {}
        self._memo: dict[tuple[int, Term, Term, object], tuple[Facts, Gap | None]] = {}

    def number(self, what: object) -> int:
        """A number for an object, kept alive: distinct objects have distinct numbers."""
        return self._numbers.setdefault(id(what), (what, len(self._numbers)))[1]

    def same(self, facts: Facts, have: Term, want: Term, view: View) -> Gap | None:
        """None if `have` may stand for `want`, else where it may not."""
        if have == want or isinstance(want, Any):
            return None
        key = (id(facts), have, want, view.key)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = (facts, self._same(facts, have, want, view))
        return found[1]

    def _same(self, facts: Facts, have: Term, want: Term, view: View) -> Gap | None:
        if isinstance(have, Elem) and isinstance(want, Elem) and have.value == want.value:
            gap = self._exprs(facts, have, want, _exprs_of(have), _exprs_of(want))
            if gap is None:
                return None
            return self._step_both(facts, have, want, view, gap)
        if isinstance(have, Part) or isinstance(want, Part):
            return self._folds(facts, have, want, view)
        stepped = self._step_later(facts, have, want, view)
        if stepped is not None:
            return stepped[0]
        return self._heads(facts, have, want, view)

    # ---- same heads

    def _heads(self, facts: Facts, have: Term, want: Term, view: View) -> Gap | None:
        match have, want:
            case Idx(a), Idx(b):
                return self._exprs(facts, have, want, (a,), (b,))
            case Idx(a), Num(value, dtype) if dtype.is_int:
                return self._exprs(facts, have, want, (a,), (Expr(()) + int(value),))
            case Num(value, dtype), Idx(b) if dtype.is_int:
                return self._exprs(facts, have, want, (Expr(()) + int(value),), (b,))
            case Cell(s, i, _), Cell(t, j, _) if s == t:
                return self._exprs(facts, have, want, i, j)
            case App(), App():
                return self._applications(facts, have, want, view)
            case (App(), _) | (_, App()):
                # a function of numbers may be a number: its arguments unfolded where one case decides
                a, b = self.source.settle(have, view), self.source.settle(want, view)
                if (a, b) != (have, want):
                    return self.same(facts, a, b, view)
                return None if facts.contradictory else Gap(facts, have, want)
            case _:
                return None if facts.contradictory else Gap(facts, have, want)

    def _exprs(self, facts: Facts, have: Term, want: Term, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> Gap | None:
        for x, y in zip(a, b, strict=True):
            if not facts.equal(x, y):
                return Gap(facts, have, want, Constraint(x - y, equality=True))
        return None

    def _applications(self, facts: Facts, have: App, want: App, view: View) -> Gap | None:
        gap: Gap | None = Gap(facts, have, want)
        if have.fn == want.fn and have.dtype == want.dtype and len(have.args) == len(want.args):
            gap = self._all(facts, have.args, want.args, view)
            if gap is not None and have.fn in _COMMUTE and len(have.args) == 2:
                if self._all(facts, have.args[::-1], want.args, view) is None:
                    gap = None
        if gap is None or facts.contradictory:
            return None
        for side in (want, have):
            cases = self._choice(side, view)
            if cases is not None:
                for conds, term in cases:
                    inner = facts.also(*conds)
                    if inner is facts or not inner.contradictory:
                        one = self.same(inner, term if side is have else have, want if side is have else term, view)
                        if one is not None:
                            return one
                return None
        return gap

    def _all(self, facts: Facts, a: tuple[Term, ...], b: tuple[Term, ...], view: View) -> Gap | None:
        for x, y in zip(a, b, strict=True):
            gap = self.same(facts, x, y, view)
            if gap is not None:
                return gap
        return None

    def _choice(self, term: Term, view: View) -> list[tuple[tuple[Constraint, ...], Term]] | None:
        """A selection whose condition is index arithmetic, as disjoint cases."""
        if not (isinstance(term, App) and term.fn == "where"):
            return None
        yes, no = self.source.truth(term.args[0], view), self.source.truth(term.args[0], view, wanted=False)
        if yes is None or no is None:
            return None
        return [(c, term.args[1]) for c in yes] + [(c, term.args[2]) for c in no]

    # ---- unfolding

    def _step_later(self, facts: Facts, have: Term, want: Term, view: View) -> tuple[Gap | None] | None:
        """The comparison after unfolding the side that is defined later; None if neither side unfolds."""
        sides = sorted(
            ((self.source.rank(t.value), side) for side, t in enumerate((have, want)) if isinstance(t, Elem)),
            reverse=True,
        )
        for _, side in sides:
            elem = (have, want)[side]
            assert isinstance(elem, Elem)
            pieces = self.source.unfold(elem, view)
            if pieces is None:
                continue
            for inner, term in split(facts, pieces):
                gap = self.same(inner, term, want, view) if side == 0 else self.same(inner, have, term, view)
                if gap is not None:
                    return (gap,)
            return (None,)
        if isinstance(have, App) and have.fn == "where" or isinstance(want, App) and want.fn == "where":
            for side, term in ((1, want), (0, have)):
                cases = self._choice(term, view)
                if cases is None or isinstance((have, want)[1 - side], App):
                    continue
                for conds, chosen in cases:
                    inner = facts.also(*conds)
                    if inner.contradictory:
                        continue
                    gap = self.same(inner, chosen, want, view) if side == 0 else self.same(inner, have, chosen, view)
                    if gap is not None:
                        return (gap,)
                return (None,)
        return None

    def _step_both(self, facts: Facts, have: Elem, want: Elem, view: View, gap: Gap) -> Gap | None:
        if facts.contradictory:
            return None
        left, right = self.source.unfold(have, view), self.source.unfold(want, view)
        if left is None or right is None:
            return gap
        for outer, a in split(facts, left):
            for inner, b in split(outer, right):
                found = self.same(inner, a, b, view)
                if found is not None:
                    return found
        return None

    # ---- folds

    def _folds(self, facts: Facts, have: Term, want: Term, view: View) -> Gap | None:
        """Unfinished against unfinished, finished, or nothing folded yet."""
        name = next(t.value for t in (want, have) if isinstance(t, Part))
        op = self.source.defs[name]
        assert isinstance(op, Reduce | Mma | Scan)
        target = want if isinstance(want, Part | Elem) and want.value == name else None
        if target is None:
            # what is wanted is no state of this fold: perhaps the operand it starts from
            if isinstance(have, Part) and isinstance(op, Mma) and self.no_contribution(facts, have):
                start = self.source.element(op.acc, self.source.coords(have), dict(have.inst))
                return self.same(facts, start, want, view)
            whole = self.finished(facts, have)
            if isinstance(whole, Elem):
                return self.same(facts, whole, want, view)
            return None if facts.contradictory else Gap(facts, have, want)
        if isinstance(have, Part | Elem) and have.value == name:
            gap = self._exprs(facts, have, target, self.place(have), self.place(target))
            if gap is not None:
                return None if facts.contradictory else gap
            return None if self._same_contributions(facts, have, target) else Gap(facts, have, want)
        if isinstance(target, Part) and self.starts(facts, have, target, view) and self.no_contribution(facts, target):
            return None
        return None if facts.contradictory else Gap(facts, have, want)

    def place(self, state: Part | Elem) -> tuple[Expr, ...]:
        """Which fold a state belongs to: its coordinates and instance. A state of a scan belongs to all elements along
        the axis: what it holds are its contributions."""
        op = self.source.defs.get(state.value)
        if not isinstance(op, Scan):
            return _exprs_of(state)
        along = op.results[0].type.dims.index(op.dim)
        return (*state.coords[:along], *state.coords[along + 1 :], *(e for _, e in state.inst))

    def finished(self, facts: Facts, term: Term) -> Term:
        """The element itself, where a state of a fold or contraction has all contributions; else the term."""
        if not isinstance(term, Part) or isinstance(self.source.defs[term.value], Scan):
            return term
        whole = Elem(term.value, term.coords, term.inst)
        return whole if self._same_contributions(facts, term, whole) else term

    def starts(self, facts: Facts, have: Term, fold: Part | Elem, view: View) -> bool:
        """Whether a term is the state of the fold before any contribution."""
        op = self.source.defs[fold.value]
        if isinstance(op, Mma):
            start = self.source.element(op.acc, self.source.coords(fold), dict(fold.inst))
            return self.same(facts, have, start, view) is None
        assert isinstance(op, Reduce | Scan)
        monoid = MONOIDS.get(monoid_of(op))
        return monoid is not None and isinstance(have, Num) and monoid.starts_empty(have.value, have.dtype)

    def contributions(self, fold: Part | Elem) -> IndexMap:
        """The set of contributions in a state of a fold: all of them when it is finished."""
        op = self.source.defs[fold.value]
        assert isinstance(op, Reduce | Mma | Scan)
        if isinstance(fold, Elem):
            where, exists = self.source.contributions(op, dict(fold.inst), fold.coords), ()
        else:
            where, exists = fold.over, fold.exists
        dims = tuple(f"?{i}" for i in range(len(folded_dims(op))))
        return IndexMap(dims, tuple(sym(d) for d in dims), where, exists)

    def _same_contributions(self, facts: Facts, a: Part | Elem, b: Part | Elem) -> bool:
        first, second = self.contributions(a), self.contributions(b)
        if first.where == second.where:
            return True
        try:
            return Region.of(first, facts).equals(Region.of(second, facts))
        except Inexpressible:
            return False

    def no_contribution(self, facts: Facts, fold: Part) -> bool:
        """Whether nothing is folded in yet."""
        return facts.also(*fold.over).contradictory


def split(facts: Facts, pieces: Pieces) -> Iterator[tuple[Facts, Term]]:
    """The cases of a decision list that the facts leave open, each with what it adds to the facts."""
    if len(pieces) == 1:
        yield facts, pieces[0][1]
        return
    (conds, term), rest = pieces[0], pieces[1:]
    conds = tuple(c for c in conds if not facts.implies(c))  # also by lemmas that a set alone does not show
    if not conds:
        yield facts, term
        return
    yes = facts.also(*conds)
    if not yes.contradictory:
        yield yes, term
    for other in complements(conds):
        no = facts.also(*other)
        if not no.contradictory:
            yield from split(no, rest)


def monoid_of(op: Reduce | Scan) -> str:
    """The name of a built-in monoid; of a user's, nothing."""
    if isinstance(op, Reduce):
        return op.monoid
    return op.merge if isinstance(op.merge, str) else ""


def _exprs_of(term: Elem | Part) -> tuple[Expr, ...]:
    return (*term.coords, *(e for _, e in term.inst))
