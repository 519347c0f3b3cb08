"""The exact texts of this room's errors."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.math.table import NoExpansion, expansion


@pytest.mark.parametrize(("name", "accuracy"), [("gamma", "2ulp"), ("exp", "exact")])
def test_no_expansion(name: str, accuracy: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(NoExpansion) as caught:
        expansion(name, accuracy)
    assert str(caught.value) == snapshot
