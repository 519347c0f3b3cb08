"""Plans for a program on a target, best first; the universal plan last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, cast

from treadle.driver.calibration import measured_for
from treadle.driver.facts import CallFacts
from treadle.driver.targets import features_of
from treadle.ir.core import Program
from treadle.ir.guard import Disjoint, Guard, Same, Unit
from treadle.ir.ops.access import Store
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts as PlanFacts
from treadle.plan.family import Family
from treadle.plan.pins import NoPlan, Pin
from treadle.plan.plan import Plan
from treadle.planner.enumerate import Choice, choose, realised
from treadle.planner.space import Clock
from treadle.rules.derivation import Derivation
from treadle.runtime.pool import workers
from treadle.targets.cpu.families import families as cpu_families
from treadle.targets.cuda.families import families as cuda_families

UNIVERSAL = "universal"
AGAIN = 2
"""How many further points of a family stand for its best where that is refused."""
_FAMILIES: dict[str, Callable[[], Sequence[Family[MachineProgram]]]] = {"cpu": cpu_families, "cuda": cuda_families}


@dataclass(frozen=True)
class Searching:
    """How plans are searched, by a name of `planner.enumerate.SEARCHES`, and for how many seconds (None: all)."""

    search: str = "enumerate"
    budget: float | None = None


BY_DEFAULT = Searching()


@dataclass(frozen=True)
class Candidate:
    """A plan that can be built. `choice` is the planner's whole answer, for `explain`.

    `derive` gives the steps from the program to the one that is built, for families that rewrite it first.
    """

    plan: Plan
    build: Callable[[], MachineProgram] = field(repr=False)
    choice: Choice | None = field(default=None, repr=False)
    derive: Callable[[], Derivation | None] = field(default=lambda: None, repr=False)

    @property
    def universal(self) -> bool:
        """Whether nothing comes after it."""
        return self.plan.family == UNIVERSAL


def families(target: str) -> Sequence[Family[MachineProgram]]:
    """The families of a target. *Errors*: `plan/none` for a target that has none yet."""
    known = _FAMILIES.get(target.partition(":")[0])
    if known is None:
        raise NoPlan(
            doing=f"planning for {target}",
            found="no family of that target",
            expected="one of " + ", ".join(_FAMILIES),
            hint="plan for the CPU: leave target= out",
        )
    return known()


class Without:
    """A family of which some points are not to be chosen."""

    def __init__(self, family: Family[MachineProgram], points: Sequence[Mapping[str, Any]]) -> None:
        self.family = family
        self.points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self.family, name)

    def cost(self, program: Program, facts: PlanFacts, point: Mapping[str, Any]) -> CostVector:
        """Without end for the points that are left out."""
        return CostVector(compute=inf) if point in self.points else self.family.cost(program, facts, point)


def candidates(
    program: Program,
    target: str,
    facts: CallFacts,
    pins: Sequence[Pin],
    refusals: list[str],
    without: Sequence[Plan] = (),
    ablate: str | None = None,
    how: Searching = BY_DEFAULT,
    choice: Choice | None = None,
) -> Iterator[Candidate]:
    """The plans to try, in order of predicted time: the best of each family and its next `AGAIN`; universal last.

    None of those in `without` is among them. `choice` is what the planner said before, if it was asked.
    Families that refuse the program append their reasons to `refusals`.
    *Errors*: `plan/pin-refused`, `plan/none`, `plan/unfinished`, `plan/search`, `plan/no-solver`.
    """
    planned = plan_facts(program, target, facts)
    known = families(target)
    left = [Without(f, [p.point for p in without if p.family == f.name]) for f in known] if without else known
    among = cast("Sequence[Family[MachineProgram]]", left)
    if choice is None:
        choice = choose(program, planned, among, pins, ablate=ablate, search=how.search, clock=Clock(how.budget))
    refusals += [f"{r.family}: {'; '.join(r.reasons)}" for r in choice.rejected]
    found = [p for c in (choice.best, *choice.others) for p in (c.plan, *c.next[:AGAIN])]
    # The universal plan decides nothing and never loses its right to run: it comes after every other.
    for one in sorted(found, key=lambda p: (p.family == UNIVERSAL, 0.0 if p.cost is None else p.cost.total)):
        plan = replace(one, guard=in_place(one.guard, facts.same)) if facts.same else one
        plan = replace(plan, extents=planned.extents, unit=planned.unit, aligned=planned.aligned)
        if facts.loose:
            plan = replace(plan, guard=apart_but(plan.guard, program, facts.loose))
        yield candidate_of(plan, program, planned, choice)


def candidate_of(plan: Plan, program: Program, facts: PlanFacts, choice: Choice | None = None) -> Candidate:
    """A plan of an expanded program, as its family builds and derives it under those facts."""
    known = families(plan.target)
    return Candidate(plan, _builder(plan, program, facts, known), choice, _deriver(plan, program, facts, known))


def _builder(
    plan: Plan, program: Program, facts: PlanFacts, known: Sequence[Family[MachineProgram]]
) -> Callable[[], MachineProgram]:
    same = frozenset(frozenset((f.first, f.second)) for f in plan.guard.facts if isinstance(f, Same))

    def build() -> MachineProgram:
        machine = realised(plan, program, facts, known)
        machine.guard = in_place(machine.guard, same) if facts.disjoint else plan.guard
        return machine

    return build


def _deriver(
    plan: Plan, program: Program, facts: PlanFacts, known: Sequence[Family[MachineProgram]]
) -> Callable[[], Derivation | None]:
    family = next((f for f in known if f.name == plan.family), None)
    derivation = getattr(family, "derivation", None)
    return lambda: None if derivation is None else derivation(program, facts, plan.point)


def in_place(guard: Guard, same: Collection[frozenset[str]]) -> Guard:
    """The guard of a plan under which those pairs of tensors are one view instead of apart: the judge decides whether
    what the plan does is right then."""
    return Guard(
        tuple(
            Same(f.first, f.second) if isinstance(f, Disjoint) and {f.first, f.second} in same else f
            for f in guard.facts
        )
    )


def apart_but(guard: Guard, program: Program, loose: Collection[frozenset[str]]) -> Guard:
    """The guard of a plan that takes nothing for apart, where only those pairs of tensors may overlap."""
    stored = {op.tensor.name for op in program.body.walk() if isinstance(op, Store)}
    names = [t.name for t in program.tensors]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if a in stored or b in stored]
    return Guard((*guard.facts, *(Disjoint(a, b) for a, b in pairs if {a, b} not in loose)))


def plan_facts(program: Program, target: str, facts: CallFacts) -> PlanFacts:
    """A call's facts as the planner takes them."""
    unit: set[tuple[str, int]] = set()
    aligned: dict[str, int] = {}
    for tensor in program.tensors:
        array = facts.arrays.get(tensor.name)
        if array is None:
            continue
        steps = [(i, s) for i, (n, s) in enumerate(zip(array.shape, array.strides)) if n > 1]
        # An axis of at most one element is never stepped along: the last such axis counts as contiguous.
        unit |= {(tensor.name, i) for i, s in steps if s == 1}
        if not any(s == 1 for _, s in steps) and array.shape and array.shape[-1] <= 1:
            unit.add((tensor.name, len(array.shape) - 1))
        size = tensor.dtype.bits // 8 or 1
        offsets = [array.address, *(s * size for _, s in steps if s != 1)]
        most = size if any(s < 0 for _, s in steps) else 64
        aligned[tensor.name] = next(
            a for a in (64, 32, 16, 8, 4, 2, 1) if a <= most and all(o % a == 0 for o in offsets)
        )
    names = sorted(facts.arrays)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    apart = all(facts.apart(a, b) or frozenset((a, b)) in facts.same for a, b in pairs)
    kind = target.partition(":")[0]
    planned = PlanFacts(
        target=target,
        extents=dict(facts.extents),
        unit=frozenset(unit),
        aligned=aligned,
        disjoint=apart,
        same=facts.same,
        features=features_of(target),
        workers=workers() if kind == "cpu" else 1,
        coefficients=measured_for(target),
    )
    return planned if program.numerics.get("repeatable") is None else _whatever_the_call(program, planned, facts)


SETTLED = 8
"""Workers for which a repeatable kernel is planned; it runs on as many as there are."""


def _whatever_the_call(program: Program, planned: PlanFacts, facts: CallFacts) -> PlanFacts:
    """The facts for a plan that does not depend on extents, workers, or on which call came first: one plan, and so one
    order of every fold, for all arguments that lie alike. Extents are left to their defaults, coefficients to those by
    hand."""
    unit: set[tuple[str, int]] = set()
    for tensor in program.tensors:
        array = facts.arrays.get(tensor.name)
        # The innermost axis that can be stepped along by one element: the same for a batch of one as for many.
        fits = [i for i, n in enumerate(array.shape) if n <= 1 or array.strides[i] == 1] if array is not None else []
        unit |= {(tensor.name, i) for i in fits[-1:]}
    return replace(
        planned,
        extents={},
        unit=frozenset(unit),
        workers=SETTLED if planned.target.startswith("cpu") else 1,
        coefficients={},
    )


def saved_candidate(plan: Plan, program: Program) -> Candidate:
    """A saved plan as a candidate: its family builds it from its point, its guard and what was known of its call."""
    return candidate_of(plan, program, saved_facts(plan))


def saved_facts(plan: Plan) -> PlanFacts:
    """What a saved plan says of the call that it was made for."""
    return PlanFacts(
        plan.target,
        extents=plan.extents,
        unit=plan.unit | _units(plan.guard),
        aligned=plan.aligned,
        disjoint=any(isinstance(f, Disjoint | Same) for f in plan.guard.facts),
        features=plan.features,
        workers=plan.workers,
    )


def _units(guard: Guard) -> frozenset[tuple[str, int]]:
    return frozenset((f.tensor, f.axis) for f in guard.facts if isinstance(f, Unit))
