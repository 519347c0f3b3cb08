"""The exact texts of this room's errors."""

from __future__ import annotations

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion
from tests.machine.programs import rows_scalar

from treadle.simulate.findings import WrongArguments
from treadle.simulate.run import simulate


def test_wrong_arguments(snapshot: SnapshotAssertion) -> None:
    x = np.ones((4, 0), np.float32)
    with pytest.raises(WrongArguments) as caught:
        simulate(rows_scalar(), {"X": x, "Y": x.copy()})
    assert str(caught.value) == snapshot
