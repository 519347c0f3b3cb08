"""A plan from a description on the command line: no arrays, contiguous arguments, representative extents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from treadle.driver.build import choose
from treadle.driver.candidates import BY_DEFAULT, Searching
from treadle.driver.facts import ArrayFacts, CallFacts
from treadle.driver.locate import captured, dtypes_of, known_dims, locate, numbers, settings
from treadle.driver.plan import Plan
from treadle.driver.targets import host_target, resolve
from treadle.driver.tiles import wanted_dims
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.planner.ablation import ablated

REPRESENTATIVE = 1024
"""The extent of a dimension that no --dim tells, for the cost model only."""


def described_plan(
    where: str,
    args: Sequence[str],
    absent: Sequence[str],
    dims: Sequence[str],
    sets: Sequence[str],
    target: str | None,
    family: str | None = None,
) -> Plan:
    """The plan of the kernel that `FILE:KERNEL` names for the described arguments. *Errors*: as `described_plans`."""
    (found,) = described_plans(where, args, absent, dims, sets, target, family)
    return found


def described_plans(
    where: str,
    args: Sequence[str],
    absent: Sequence[str],
    dims: Sequence[str],
    sets: Sequence[str],
    target: str | None,
    family: str | None = None,
    ablate: str | None = None,
    how: Searching = BY_DEFAULT,
) -> list[Plan]:
    """The plan of the kernel that `FILE:KERNEL` names for the described arguments; one a scope under the ablation
    `no-interface` (`planner.ablation`).

    *Errors*: `cli/*`, those of capture and planning.
    """
    found = locate(where)
    definition = found.__treadle_definition__
    extents = numbers(dims)
    name = resolve(target) if target is not None else host_target()
    dtypes, staged = dtypes_of(definition, args, absent), settings(sets)
    program = captured(definition, dtypes, staged, extents, absent)
    known_dims(program, extents)
    if name.startswith("cuda"):
        sides = {n: extents[n] for n in wanted_dims(program, extents)}
        program = captured(definition, dtypes, staged, extents, absent, specialised=sides)
    parts = ablated(program, ablate)
    return [
        Plan(choose(part, name, described_facts(part, extents), (), family=family, ablate=ablate, how=how))
        for part in parts
    ]


def described_facts(program: Program, dims: Mapping[str, int]) -> CallFacts:
    """Facts of a call with contiguous, 64-byte aligned arguments that do not overlap."""
    extents = dict(dims)
    for symbol in sorted({s for d in program.dims for s in d.extent.symbols}):
        extents.setdefault(symbol, REPRESENTATIVE)
    for name, expr in program.lets.items():
        if expr.symbols <= extents.keys():
            extents[name] = int(expr.evaluate(extents))
    arrays: dict[str, ArrayFacts] = {}
    for tensor in expand(program).tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in tensor.dims)
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        arrays[tensor.name] = ArrayFacts(64, shape, strides)
    return CallFacts(extents, arrays, lambda a, b: True)
