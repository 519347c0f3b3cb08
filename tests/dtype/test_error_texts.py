"""The exact texts of this room's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.base.errors import TreadleError
from treadle.base.source import Span, keep_text
from treadle.dtype import formats as f
from treadle.dtype.promote import promote, promote_weak

WHERE = Span("kernel.py", 1, 4, 1, 15)
CASES: dict[str, Callable[[], Any]] = {
    "dtype/unknown": lambda: f.named("float"),
    "dtype/no-common": lambda: promote(f.u64, f.i32, doing="adding A[m] and B[m]", span=WHERE),
    "dtype/no-arithmetic": lambda: promote(f.f8e4m3, f.f32, doing="adding A[m] and B[m]", span=WHERE),
    "dtype/number-out-of-range": lambda: promote_weak(f.i8, 300, doing="adding A[m] and 300", span=WHERE),
}


@pytest.mark.parametrize("code", CASES)
def test_text(code: str, snapshot: SnapshotAssertion) -> None:
    keep_text("kernel.py", "s = A[m] + B[m]\n")
    with pytest.raises(TreadleError) as caught:
        CASES[code]()
    assert caught.value.code == code
    assert str(caught.value) == snapshot
