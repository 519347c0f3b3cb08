"""The exact texts of this room's errors."""

from __future__ import annotations

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion
from tests.machine.programs import PACKED, edited, rows_scalar

from treadle.simulate.findings import NotSimulated, WrongArguments
from treadle.simulate.run import simulate


def test_wrong_arguments(snapshot: SnapshotAssertion) -> None:
    x = np.ones((4, 0), np.float32)
    with pytest.raises(WrongArguments) as caught:
        simulate(rows_scalar(), {"X": x, "Y": x.copy()})
    assert str(caught.value) == snapshot


def test_not_simulated(snapshot: SnapshotAssertion) -> None:
    program = edited(
        PACKED,
        "buffer A f32[8, 32] local align 64\n",
        "buffer A f32[8, 32] local align 64\n  buffer Q i4[8] local align 64\n",
    )
    args = {"X": np.ones((1, 1), np.float32), "W": np.ones((1, 1), np.float32), "Y": np.ones((1, 1), np.float32)}
    with pytest.raises(NotSimulated) as caught:
        simulate(program, args)
    assert str(caught.value) == snapshot
