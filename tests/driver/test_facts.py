"""Whether a guard holds for a call: each kind of fact, both ways."""

from __future__ import annotations

import pytest

from treadle.algebra.expr import le, sym
from treadle.driver.facts import ArrayFacts, CallFacts, first_broken, holds
from treadle.ir.guard import Absent, Aligned, Bound, Disjoint, Divisible, Fact, Guard, Injective, Pitch, Unit

EMPTY = ArrayFacts(3, (0, 7), (5, 5))
FACTS = CallFacts(
    {"M": 96, "N": 1},
    {
        "X": ArrayFacts(4096 + 16, (96, 1), (24, 7)),
        "B": ArrayFacts(4096, (96, 96), (0, 1), injective=False),
        "E": EMPTY,
        "R": ArrayFacts(4096, (96, 96), (-96, 1)),
    },
    lambda a, b: {a, b} != {"X", "B"},
)


@pytest.mark.parametrize(
    "fact, wanted",
    [
        (Divisible(sym("M"), 32), True),
        (Divisible(sym("M") + sym("N"), 32), False),
        (Divisible(sym("M") - sym("M"), 32), True),
        (Bound(le(sym("N"), 1)), True),
        (Bound(le(sym("M"), 95)), False),
        (Aligned("X", 16), True),
        (Aligned("X", 32), False),
        (Aligned("E", 64), True),
        (Pitch("X", 0, 8), True),
        (Pitch("X", 0, 16), False),
        (Pitch("X", 1, 8), True),  # one element: never stepped along
        (Pitch("B", 0, 8), True),  # stride 0
        (Pitch("R", 0, 8), False),  # backwards
        (Unit("B", 1), True),
        (Unit("B", 0), False),
        (Unit("X", 1), True),
        (Unit("E", 0), True),
        (Injective("X"), True),
        (Injective("B"), False),
        (Injective("E"), True),
        (Disjoint("X", "B"), False),
        (Disjoint("X", "E"), True),
        (Disjoint("X", "gone"), True),
        (Absent("gone"), True),
        (Absent("X"), False),
        (Aligned("gone", 64), True),
        (Unit("gone", 3), True),
    ],
    ids=str,
)
def test_a_fact(fact: Fact, wanted: bool) -> None:
    assert holds(Guard((fact,)), FACTS) is wanted
    assert first_broken(Guard((Absent("gone"), fact)), FACTS) == (None if wanted else fact)


def test_a_guard_is_a_conjunction() -> None:
    assert holds(Guard(()), FACTS)
    assert not holds(Guard((Unit("B", 1), Unit("B", 0))), FACTS)
