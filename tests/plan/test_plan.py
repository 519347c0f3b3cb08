"""Plans as data: saved and loaded, costs, points, representative values."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.realise.texts import program

from treadle.algebra.expr import Fn, ge, of, sym
from treadle.ir.guard import Absent, Aligned, Bound, Disjoint, Divisible, Guard, Injective, Pitch, Unit
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import Axis, points
from treadle.plan.pins import in_short
from treadle.plan.plan import Plan, PlanUnreadable

GUARD = Guard(
    (
        Divisible(sym("M") + 2, 16),
        Bound(ge(sym("K"), sym("M") * 2)),
        Aligned("X", 16),
        Pitch("X", 0, 8),
        Unit("X", 1),
        Disjoint("X", "Y"),
        Injective("Y"),
        Absent("bias"),
    )
)
PLAN = Plan(
    "linear",
    "cpu:avx512",
    "tiled contraction",
    {"rows": 14, "held": True, "lanes": "N"},
    GUARD,
    2,
    frozenset("ba"),
    {"M": 40, "K": 3},
    frozenset({("X", 1), ("Y", 0)}),
    {"X": 64},
)


def test_plans_of_the_format_before_load() -> None:
    data = json.loads(PLAN.to_json()) | {"format": [1, 0]}
    for name in ("extents", "unit", "aligned"):
        del data[name]
    assert Plan.from_json(json.dumps(data)) == replace(PLAN, extents={}, unit=frozenset(), aligned={})


def test_a_plan_survives_saving() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN


def test_saving_again_gives_the_same_bytes() -> None:
    again = Plan.from_json(PLAN.to_json())
    assert again.to_json() == PLAN.to_json()
    assert list(again.point) == ["rows", "held", "lanes"]


def test_a_plan_is_one_line() -> None:
    assert PLAN.line() == "linear on cpu:avx512: tiled contraction rows=14 held=True lanes=N"


@pytest.mark.parametrize(
    "change", [{"format": [2, 0]}, {"guard": [["square", "X"]]}, {"guard": [["bound", "M >="]]}, {"workers": None}]
)
def test_what_is_no_plan_is_refused(change: dict[str, object]) -> None:
    data = json.loads(PLAN.to_json()) | change
    with pytest.raises(PlanUnreadable):
        Plan.from_json(json.dumps(data))
    with pytest.raises(PlanUnreadable):
        Plan.from_json(PLAN.to_json()[:-30])


def test_a_newer_minor_version_loads() -> None:
    data = json.loads(PLAN.to_json()) | {"format": [1, 7], "remark": "unknown to this version"}
    assert Plan.from_json(json.dumps(data)) == PLAN


@given(*[st.floats(0, 1)] * 5)
def test_total(compute: float, cache: float, memory: float, packing: float, launch: float) -> None:
    """total == max(compute + cache, memory) + packing + launch."""
    cost = CostVector(compute, cache, memory, packing, launch)
    assert cost.total == max(compute + cache, memory) + packing + launch
    assert getattr(cost, cost.bottleneck) == max(compute, cache, memory, packing, launch)


def test_points_are_the_product_of_the_axes_preferred_first() -> None:
    found = list(points([Axis("a", (2, 1)), Axis("b", ("x", "y"))]))
    assert found[0] == {"a": 2, "b": "x"} and len(found) == 4
    assert list(points([])) == [{}]


def test_facts_of_contiguous_arguments() -> None:
    facts = contiguous(program("linear"), "cpu:avx2", {"M": 3}, workers=2)
    assert ("X", 1) in facts.unit and ("bias", 0) in facts.unit and ("X", 0) not in facts.unit
    assert facts.value(sym("M") * 2) == 6 and facts.value(of(Fn("%n")), default=9) == 9
    assert CallFacts("cpu").value(sym("M") - 1000) == 0


def test_reasons_that_differ_in_a_number_are_one() -> None:
    """All numbers in order, or of many the nearest."""
    sizes = (266, 140, 14, 128, 16, 63, 128)
    reasons = [f"R0.m is cut by {n}, not 64" for n in sizes] + ["no tiles", "R0.n is cut by 8, not 9"]
    assert in_short(reasons) == [
        "R0.m is cut by 14, 16, 63, 128, 140 or 266, not 64",
        "no tiles",
        "R0.n is cut by 8, not 9",
    ]
    shown = "50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61"
    assert in_short([f"m is cut by {n}, not 3" for n in range(80, 49, -1)]) == [
        f"m is cut by {shown} or 19 other sizes, not 3"
    ]


@pytest.mark.parametrize("text", ["[" * 100_000, "5", "null"], ids=["deep", "number", "null"])
def test_what_is_no_plan_is_unreadable(text: str) -> None:
    with pytest.raises(PlanUnreadable):
        Plan.from_json(text)
