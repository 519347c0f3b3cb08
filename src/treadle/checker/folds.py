"""Folds and contractions: which contributions a step adds, and that they are disjoint, complete and in order.

A state of a fold is typed by the set of contributions in it. A step takes the accumulator's set and, for each slot of
the folded axes, the set that the slot holds (one contribution, or those of a partial fold). They must be disjoint
unless
the monoid is idempotent, their union must be what the claim says, and slots that hold no contribution must be neutral.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, eq, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.monoids import MONOIDS, BuiltinMonoid
from treadle.algebra.sets import Facts, Inexpressible, Region, Relation, before, complements
from treadle.checker.compare import Compare, monoid_of, split
from treadle.checker.scopes import View, folded_dims
from treadle.checker.terms import Elem, Num, Part, Pieces, Term, Undef
from treadle.checker.verdict import Finding, Refused, Spent, Unsure
from treadle.ir.core import Value
from treadle.ir.ops.fold import Mma, Reduce, Scan


@dataclass
class Step:
    """One step of a fold: target state, accumulator pieces (None: nothing folded yet), slots of the folded axes.

    `within`: which of these slots; `rising`: they are taken one after the other, from the lowest (False: the highest);
    None: in any order."""

    facts: Facts
    target: Part | Elem
    acc: Pieces | None
    names: tuple[str, ...]
    shape: tuple[int, ...]
    view: View
    within: tuple[Constraint, ...] = ()
    rising: bool | None = None

    @property
    def inside(self) -> tuple[Constraint, ...]:
        """The ranges of the folded axes' slots."""
        return (*box(self.names, self.shape), *self.within)


def cases(pieces: Pieces) -> Iterator[tuple[tuple[Constraint, ...], Term]]:
    """A decision list as disjoint cases."""
    before_it: list[tuple[Constraint, ...]] = []  # conditions that did not all hold, none implied by another
    for conds, term in pieces:
        here = set(conds)
        if any(here.issuperset(e) for e in before_it):
            continue
        others: list[tuple[Constraint, ...]] = [()]
        for e in before_it:
            rest = [c for c in e if c not in here]
            others = [(*o, *c) for o in others for c in complements(rest)]
        for other in others:
            yield (*conds, *other), term
        if not conds:
            return
        before_it = [e for e in before_it if not here.issubset(e)] + [conds]


class Folds:
    """The rules, over one source program."""

    def __init__(self, compare: Compare, spent: Spent | None = None) -> None:
        self.compare = compare
        self.spent = Spent() if spent is None else spent
        self.source = compare.source

    # ---- folds

    def fold(self, step: Step, monoid: str, nan: str, src: Pieces) -> None:
        """A `Fold` statement. *Errors*: findings of J1, and of J6 where the order policy does not allow the step."""
        op = self.source.defs.get(step.target.value)
        if isinstance(op, Mma):
            self._join(step, op, monoid, src)
            return
        if not isinstance(op, Reduce | Scan):
            raise Refused("J1", f"{step.target.value} is no fold of an axis", {})
        own, seen = monoid_of(op), op.nan if isinstance(op, Reduce) else "propagate"
        if own != monoid or (monoid in ("max", "min") and seen != nan):
            raise Refused("J1", f"the source folds with {own} ({seen}), the statement with {monoid} ({nan})", {})
        law = MONOIDS[monoid]
        relation = self._of_pieces(step, op, law, src)
        if not law.exact(op.result.type.dtype) and (step.names or any(r.exists for r in relation)):
            self.spent.names.add("regroup")  # contributions meet before they meet what came before them
        self._settle(step, law, op, relation)

    def _join(self, step: Step, op: Mma, monoid: str, src: Pieces) -> None:
        """Partial sums of a contraction added up. Each has what was accumulated onto in it: that must be zero."""
        if monoid != "add":
            raise Refused("J1", f"a contraction adds up products, the statement folds with {monoid}", {})
        found: list[IndexMap] = []
        for conds, term in cases(src):
            facts = step.facts.also(*step.inside, *conds)
            if facts is not step.facts and facts.contradictory:
                continue
            if not isinstance(term, Part | Elem) or term.value != step.target.value:
                error = Refused if isinstance(term, Num | Undef) else Unsure
                name = step.target.value
                raise error("J1", f"a joined slot holds {term}, no partial sum of {name}", facts.sample())
            zero = Num(0, op.result.type.dtype)
            if not self.compare.starts(facts, zero, term, step.view):
                raise Refused(
                    "J1",
                    f"partial sums of {term.value} are joined, each of which has {op.acc.name} in it",
                    facts.sample() or {},
                )
            self._same_place(facts, term, step.target)
            part = self.compare.contributions(term)
            where = (*step.inside, *conds, *part.where)
            found.append(IndexMap(step.names, part.outs, where, (*part.dims, *part.exists)))
        if op.result.type.dtype.is_float:
            self.spent.names.add("regroup")
        self._settle(step, MONOIDS["add"], op, found)

    def _of_pieces(self, step: Step, op: Reduce | Scan, law: BuiltinMonoid, src: Pieces) -> list[IndexMap]:
        found: list[IndexMap] = []
        for conds, term in cases(src):
            if isinstance(term, Num) and law.is_identity(term.value, term.dtype):
                continue
            facts = step.facts.also(*step.inside, *conds)
            if facts is not step.facts and facts.contradictory:
                continue
            found.append(self._contribution(step, facts, op, conds, term))
        return found

    def _contribution(
        self, step: Step, facts: Facts, op: Reduce | Scan, conds: tuple[Constraint, ...], term: Term
    ) -> IndexMap:
        """The contributions that a slot holds, as a map from slots."""
        where = (*step.inside, *conds)
        source = source_of(op)
        if isinstance(term, Part) and term.value == source.name != step.target.value:
            term = self.compare.finished(facts, term)
        if isinstance(term, Part | Elem) and term.value == step.target.value:
            self._same_place(facts, term, step.target)
            part = self.compare.contributions(term)
            return IndexMap(step.names, part.outs, (*where, *part.where), (*part.dims, *part.exists))
        if isinstance(term, Elem) and term.value == source.name:
            at = self.source.coords(term)
            wanted = self.source.element(source, at | self._kept(step.target, op), dict(step.target.inst))
            self._same_place(facts, term, wanted)
            return IndexMap(step.names, tuple(at[d] for d in folded_dims(op)), where)
        alias = self._alias(step, facts, op, term)
        if alias is not None:
            return IndexMap(step.names, alias, where)
        if isinstance(term, Num):
            neutral = MONOIDS[monoid_of(op)].identity(op.results[0].type.dtype)
            raise Refused(
                "J1",
                f"a slot that holds no contribution has {term}, which {monoid_of(op)} does not leave alone ({neutral})",
                facts.sample() or {},
            )
        error = Refused if isinstance(term, Undef) else Unsure
        raise error(
            "J1",
            f"a folded slot holds {term}",
            facts.sample(),
            missing=f"a claim that it is an element of {source.name}",
        )

    def _kept(self, target: Part | Elem, op: Reduce | Scan) -> dict[Dim, Expr]:
        """The coordinates of a state that its contributions share."""
        return {d: c for d, c in self.source.coords(target).items() if d not in folded_dims(op)}

    def _alias(self, step: Step, facts: Facts, op: Reduce | Scan, term: Term) -> tuple[Expr, ...] | None:
        """The contribution that an element of another value is, if it is one: taken to be the one at its own
        coordinates along the folded dims, which the comparison of the two then proves or not."""
        if not isinstance(term, Elem):
            return None
        at = self.source.coords(term)
        if not all(d in at for d in folded_dims(op)):
            return None
        folded = {d: at[d] for d in folded_dims(op)}
        wanted = self.source.element(source_of(op), folded | self._kept(step.target, op), dict(step.target.inst))
        return tuple(folded.values()) if self.compare.same(facts, term, wanted, step.view) is None else None

    def _same_place(self, facts: Facts, have: Elem | Part, want: Elem | Part) -> None:
        for a, b in zip(self.compare.place(have), self.compare.place(want)):
            if not facts.equal(a, b):
                raise_unequal(facts, a, b, f"{have} belongs to another element of the fold than {want}")

    # ---- contractions

    def contract(self, step: Step, a: Pieces, b: Pieces) -> None:
        """An `Mma` statement: like a fold, its contributions are the products."""
        op = self.source.defs.get(step.target.value)
        if not isinstance(op, Mma):
            raise Refused("J1", f"{step.target.value} is no contraction", {})
        found: list[IndexMap] = []
        for conds_a, left in cases(a):
            for conds_b, right in cases(b):
                if isinstance(left, Num) and isinstance(right, Num) and left.value == 0 and right.value == 0:
                    continue
                conds = (*conds_a, *(c for c in conds_b if c not in conds_a))
                facts = step.facts.also(*step.inside, *conds)
                if facts is not step.facts and facts.contradictory:
                    continue
                product = self._product(step, facts, op, left, right)
                found.append(IndexMap(step.names, product, (*step.inside, *conds)))
        self._settle(step, MONOIDS["add"], op, found)

    def _product(self, step: Step, facts: Facts, op: Mma, left: Term, right: Term) -> tuple[Expr, ...]:
        """The contracted coordinates of a product."""
        first, second = self._operand(left, op.b.name), self._operand(right, op.a.name)
        if op.a is not op.b and _names(first, op.b.name) and _names(second, op.a.name):
            left, right = right, left  # a product does not care which factor stands first
        sides: list[dict[Dim, Expr]] = []
        kept = self.source.coords(step.target)
        for term, value in ((left, op.a), (right, op.b)):
            term = self._operand(term, value.name)
            if not (isinstance(term, Elem) and term.value == value.name):
                if isinstance(term, Num):
                    raise Refused(
                        "J1",
                        f"a product of {left} and {right}: padding is neutral only as zero times zero",
                        facts.sample() or {},
                    )
                other = op.b if value is op.a else op.a
                wrong = isinstance(term, Elem) and term.value == other.name
                error = Refused if wrong or isinstance(term, Undef) else Unsure
                raise error(
                    "J1",
                    f"a factor holds {term}, not an element of {value.name}",
                    facts.sample(),
                    missing=f"a claim that it is an element of {value.name}",
                )
            at = self.source.coords(term)
            wanted = self.source.element(value, at | {d: c for d, c in kept.items() if d in at}, dict(step.target.inst))
            self._same_place(facts, term, wanted)
            sides.append(at)
        for dim in op.contracted:
            if not facts.equal(sides[0][dim], sides[1][dim]):
                raise_unequal(facts, sides[0][dim], sides[1][dim], f"the factors' coordinates along {dim} differ")
        return tuple(sides[0][d] for d in op.contracted)

    def _operand(self, term: Term, wanted: str) -> Term:
        """A factor without exact widening, but not further than the operand that the source names."""
        while not (isinstance(term, Elem) and term.value == wanted):
            inner = self.source.widened_once(term)
            if inner is None:
                return term
            term = inner
        return term

    # ---- what a step must satisfy

    def _settle(self, step: Step, law: BuiltinMonoid, op: Reduce | Mma | Scan, added: list[IndexMap]) -> None:
        goal = self.compare.contributions(step.target)
        start: Term = Num(0, op.result.type.dtype) if isinstance(op, Mma) else _nothing(step.target)
        pieces: Pieces = step.acc if step.acc is not None else (((), start),)
        for facts, term in split(step.facts, pieces):
            if facts.contradictory:
                continue
            state = self._state(step, facts, term)
            try:
                self._sets(facts, law, op, state, added, goal, step)
            except Inexpressible as t:
                raise Unsure("J1", f"the contribution set has the term {t}", missing="an affine set") from None

    def _state(self, step: Step, facts: Facts, term: Term) -> IndexMap:
        """The contributions that the accumulator holds."""
        target = step.target
        if isinstance(term, Part | Elem) and term.value == target.value:
            self._same_place(facts, term, target)
            return self.compare.contributions(term)
        start = _nothing(target)
        if self.compare.starts(facts, term, start, step.view):
            return self.compare.contributions(start)
        op = self.source.defs[target.value]
        if isinstance(op, Reduce | Scan) and isinstance(term, Elem) and term.value == source_of(op).name:
            lone = Step(step.facts, target, None, (), (), step.view)
            return self._contribution(lone, facts, op, (), term)
        raise Refused("J1", f"the accumulator holds {term}, no state of {target.value}", facts.sample() or {})

    def _sets(
        self,
        facts: Facts,
        law: BuiltinMonoid,
        op: Reduce | Mma | Scan,
        state: IndexMap,
        added: list[IndexMap],
        goal: IndexMap,
        step: Step,
    ) -> None:
        old = Region.of(state, facts)
        new = Region.nothing(len(goal.outs))
        for one in added:
            relation = Relation.of(one, facts)
            reached = relation.range()
            if not law.idempotent:
                if not relation.is_injective:
                    raise Refused("J1", "two slots hold the same contribution", relation.collision())
                for earlier in (old, new):
                    twice = earlier & reached
                    if not twice.is_empty:
                        raise Refused("J1", "a contribution is folded in twice", twice.sample())
            new = new | reached
        if not isinstance(op, Mma):
            self._order(facts, law, op, state, added, step)
        total, wanted = old | new, Region.of(goal, facts)
        lost, extra = wanted - total, total - wanted
        if not lost.is_empty:
            raise Refused("J1", "a contribution that the claim counts is not folded in", lost.sample())
        if not extra.is_empty:
            raise Refused("J1", "a contribution is folded in that the claim does not count", extra.sample())

    def _order(
        self,
        facts: Facts,
        law: BuiltinMonoid,
        op: Reduce | Scan,
        state: IndexMap,
        added: list[IndexMap],
        step: Step,
    ) -> None:
        """Under an order policy, everything folded so far stands before everything that is added, and what is added by
        one slot before what the next one adds; in a chain from the right, behind it. (The built-in monoids commute to
        the bit, so operands may change places.)"""
        name, order = op.results[0].name, op.order
        if order == "unordered" or law.exact(op.results[0].type.dtype):
            return
        if step.names and (step.rising is None or order in ("fold_left", "fold_right")):
            raise Unsure("J6", f"{name} is folded across slots under {order}", missing="a step by step fold")
        backwards = order == "fold_right" or (isinstance(op, Scan) and op.reverse)
        for one in added:
            single = not one.exists
            if order in ("fold_left", "fold_right") and not single:
                raise Refused("J6", "an exact chain folds one contribution at a time", facts.sample() or {})
            pairs: list[tuple[IndexMap, IndexMap, tuple[Constraint, ...]]] = [
                (state.renamed("'a"), one.renamed("'b"), ())
            ]
            for other in added if step.names else ():
                first, second = other.renamed("'a"), one.renamed("'b")
                gap = sym(second.dims[0]) - sym(first.dims[0])
                pairs.append((first, second, (Constraint((gap if step.rising else -gap) - 1),)))
            for first, second, apart in pairs:
                self._in_order(facts, first, second, apart, backwards, order)

    def _in_order(
        self,
        facts: Facts,
        first: IndexMap,
        second: IndexMap,
        apart: tuple[Constraint, ...],
        backwards: bool,
        order: str,
    ) -> None:
        """*Errors*: refused where a contribution of the second stands before one of the first."""
        wrong = before(first.outs, second.outs) if backwards else before(second.outs, first.outs)
        for late in wrong:
            clash = IndexMap(
                (*first.dims, *second.dims),
                (Expr(()),),
                (*first.where, *second.where, *late, *apart),
                (*first.exists, *second.exists),
            )
            found = Region.of(clash, facts)
            if not found.is_empty:
                raise Refused("J6", f"a contribution is folded in out of order, which {order} forbids", found.sample())


def source_of(op: Reduce | Scan) -> Value:
    """What is folded."""
    return op.source if isinstance(op, Reduce) else op.sources[0]


def _nothing(target: Part | Elem) -> Part:
    return Part(target.value, target.coords, target.inst, (Constraint(Expr(()) - 1),))


def _names(term: Term, value: str) -> bool:
    return isinstance(term, Elem) and term.value == value


def raise_unequal(facts: Facts, a: Expr, b: Expr, reason: str) -> None:
    """The finding for two index expressions that should be equal."""
    sample = facts.against(eq(a, b))
    error: type[Finding] = Unsure if sample is None or any(k.startswith("<") for k in sample) else Refused
    raise error("J1", reason, sample, missing=f"{a} == {b}")


def slot_names(start: int, count: int) -> tuple[str, ...]:
    """`$start, ...`."""
    return tuple(f"${start + i}" for i in range(count))
