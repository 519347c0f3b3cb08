"""Contractions whose operands both run along what is summed, as folds of products: the family `folded products`.

With lanes along the accumulator, one operand of such a contraction is transposed before it is used; where it is used a
few times only, that is most of the work. As a fold its lanes lie along the contracted dimension: operands are read in
place, each lane has a partial sum, and these are joined at the end. The rule `products` rewrites the program, its step
is validated as any other, and what other contractions are left is blocked as in `tiled regions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.grain import Grain
from treadle.plan.pins import Pin
from treadle.realise.choices import Choices
from treadle.rules.derivation import Derivation
from treadle.rules.folds import products
from treadle.targets.cpu.blocking import Blocking, grouping
from treadle.targets.cpu.contraction import TiledRegions
from treadle.targets.cpu.rates import rates
from treadle.targets.cpu.shape import Contraction, Shape, shape_of

FEW = 16
"""Uses of each element of an operand up to which it is not worth a copy."""


def along(shape: Shape, found: Contraction) -> bool:
    """Whether both operands of a contraction are contiguous along the dimension that it sums, one of them is used a few
    times, and no instruction takes several coordinates at once."""
    if len(found.contracted) != 1 or grouping(found) or min(map(shape.size, (found.only_a, found.only_b))) > FEW:
        return False
    return all(shape.source_unit(v) is found.contracted[0] for v in (found.op.a, found.op.b))


class FoldedProducts(TiledRegions):
    """`tiled regions`, of programs in which such contractions are folds."""

    name = "folded products"

    def derivation(self, program: Program, facts: CallFacts, point: Point) -> Derivation | None:
        """Each contraction that `along` is true of as the fold of its products; None where there is none."""
        shape = shape_of(program, facts)
        known = shape.known.get("folded products")
        if not isinstance(known, Derivation):
            known = Derivation(program)
            for found in shape.contractions:
                if along(shape, found):
                    known = known.then(products, found.op.result.name)
            shape.known["folded products"] = known
        return known if known.steps else None

    def folded(self, program: Program, facts: CallFacts) -> Program:
        """The program that is blocked."""
        found = self.derivation(program, facts, {})
        return program if found is None else found.program

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        if self.derivation(program, facts, {}) is None:
            return [f"no contraction has both operands contiguous along what it sums, one used at most {FEW} times"]
        return super().admits(self.folded(program, facts), facts)

    def packing(self, shape: Shape) -> tuple[bool, ...]:
        # What made a copy of one operand dear makes those of the others so: they are read as often.
        return (False, True)

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        return super().axes(self.folded(program, facts), facts)

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return super().refuses(self.folded(program, facts), facts, point, pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return super().guard(self.folded(program, facts), facts, point)

    def grain(self, program: Program, facts: CallFacts, point: Point) -> Grain:
        return super().grain(self.folded(program, facts), facts, point)

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        return super().cost(self.folded(program, facts), facts, point)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        return super().build(self.folded(program, facts), facts, point, guard)

    def choices(self, shape: Shape, point: Point) -> Choices:
        """As of `tiled regions`; folds of products in nests of their own, a square of lanes each."""
        base = super().choices(shape, point)
        lanes = rates(shape.facts).lanes
        folds = [op for op in shape.program.body.walk() if isinstance(op, Reduce) and self.of_products(shape, op)]
        summed = tuple(dict.fromkeys(d.name for op in folds for d in op.dims))
        # What another contraction sums lies along the lanes where that one's do not.
        deep = sorted(Blocking(shape, self.block(shape, point)).deep - set(base.tile) - set(summed))
        extents = {d.name: shape.extent(d) for d in shape.program.dims}
        long = tuple(n for n in base.vector if n not in deep and extents.get(n, lanes) >= lanes)
        ranked = (*deep, *(n for n in long if n not in summed and n not in base.tile), *summed)
        sweep = {n: w for n, w in base.sweep.items() if extents.get(n, lanes) >= lanes}
        sweep |= dict.fromkeys(summed, lanes) | dict.fromkeys(deep, 2 * lanes)
        return replace(
            base,
            vector=(*ranked, *(n for n in long if n in base.tile)),
            sweep=sweep,
            slots=lanes * lanes,
            sweep_order=tuple(deep),
            alone=frozenset(op.result.name for op in folds),
        )

    def of_products(self, shape: Shape, op: Reduce) -> bool:
        """Whether a fold is the sum over one dimension of products, as the rule `products` writes it."""
        made = shape.uses.definition.get(op.source.name)
        return op.monoid == "add" and getattr(made, "fn", None) == "mul" and len(op.dims) == 1
