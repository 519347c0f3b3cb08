"""The exact texts of this room's errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.algebra.expr import DivisionByZero, sym
from treadle.algebra.layouts import Layout, LayoutUndefined, Swizzle, complement, compose, left_inverse

WRONG: dict[str, Callable[[], object]] = {
    "extents": lambda: Layout((2, 0), (1, 2)),
    "congruent": lambda: Layout((2, (3,)), (1, 2)),
    "off the divisions": lambda: compose(Layout((4, 6, 8), (2, 3, 5)), Layout(6, 3)),
    "carries": lambda: compose(Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3))),
    "leaves the domain": lambda: compose(Layout(4, 1), Layout(8, 1)),
    "overlapping modes": lambda: complement(Layout((4, 4), (1, 2)), 32),
    "repeated values": lambda: left_inverse(Layout((2, 2), (1, 0))),
    "coordinates": lambda: Layout((2, 2), (1, 2))(4),
    "swizzle": lambda: Swizzle(3, 4, 2),
}


@pytest.mark.parametrize("case", WRONG)
def test_layout_undefined(case: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(LayoutUndefined) as caught:
        WRONG[case]()
    assert str(caught.value) == snapshot


def test_division_by_zero(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(DivisionByZero) as caught:
        (sym("M") // sym("N")).evaluate({"M": 3, "N": 0})
    assert str(caught.value) == snapshot
