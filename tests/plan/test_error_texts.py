"""The exact texts of the errors of plans."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.plan.plan import Plan, PlanUnreadable


def test_plan_unreadable(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(PlanUnreadable) as caught:
        Plan.from_json('{"format": [9, 0]}')
    assert str(caught.value) == snapshot
