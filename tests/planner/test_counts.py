"""Predicted times as counts times coefficients: families are linear in them, and `Counts` says what they say."""

from __future__ import annotations

import math
import random

import pytest
from tests.rules import kernels

from treadle.dtype.formats import bf16, f32
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.lib.attention import attention
from treadle.lib.linear import linear
from treadle.lib.norms import layernorm
from treadle.lib.rows import softmax
from treadle.lib.stencils import harris
from treadle.plan.coefficients import Coefficients, counts
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import points
from treadle.targets.cpu.families import families
from treadle.targets.cpu.rates import AVX512, TERMS, coefficients, measured, rates

FLAGS = frozenset({"avx2", "fma", "avx512f", "avx512_bf16"})
CASES = {
    "contract": kernels.program(kernels.contract),
    "siblings": kernels.program(kernels.siblings),
    "linear bf16": expand(linear.definition.capture({"X": bf16, "W": bf16, "bias": bf16, "Y": bf16}, {})),
    "attention": expand(attention.definition.capture({}, {"causal": True}, extents={"D": 64, "E": 64})),
    "layernorm": expand(layernorm.definition.capture({}, {})),
    "softmax": expand(softmax.definition.capture({"X": f32}, {})),
    "harris": expand(harris.definition.capture({"X": f32}, {})),
}


def facts_of(program: Program, size: int) -> CallFacts:
    extents = dict.fromkeys({s for d in program.dims for s in d.extent.symbols}, size)
    return contiguous(program, "cpu:avx512", extents, workers=2, features=FLAGS)


@pytest.mark.parametrize("name", CASES)
def test_costs_are_counts_times_coefficients(name: str) -> None:
    program = CASES[name]
    facts = facts_of(program, 200)
    chance = random.Random(name)
    other = Coefficients({t.name: chance.uniform(1e-12, 1e-9) for t in TERMS}, "made up")
    for family in families():
        if family.admits(program, facts):
            continue
        for point in chance.sample(every := list(points(family.axes(program, facts))), min(12, len(every))):
            found = counts(family, program, facts, point, TERMS)
            if found is None:
                assert math.isinf(family.cost(program, facts, point).total)
                continue
            for under in (coefficients(facts), other):
                told = contiguous(program, facts.target, facts.extents, workers=2, features=FLAGS)
                asked = family.cost(program, CallFacts(**{**vars(told), "coefficients": under.seconds}), point)
                made = found.priced(under)
                for part, seconds in asked.parts.items():
                    assert math.isclose(made.parts[part], seconds, rel_tol=1e-9, abs_tol=1e-18), (family.name, part)


def test_coefficients_of_a_row() -> None:
    facts = CallFacts("cpu:avx512")
    found = coefficients(facts)
    again = measured(AVX512, found.seconds)
    assert found.origin == "hand" and math.isclose(again.fma, AVX512.fma) and again.task == AVX512.task
    assert set(found.seconds) == {t.name for t in TERMS}
    slow = CallFacts("cpu:avx512", coefficients={"memory": 1e-9, "simple": 0.0})
    assert rates(slow).memory_rate == pytest.approx(1e9) and rates(slow).simple == math.inf
    assert rates(slow).l2_rate == AVX512.l2_rate and coefficients(slow).origin == "measured"


def test_a_negative_coefficient_is_refused() -> None:
    with pytest.raises(AssertionError, match="never negative"):
        Coefficients({"fma": -1e-9})
