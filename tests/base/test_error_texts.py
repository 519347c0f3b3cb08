"""The exact texts of this room's errors."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.base.text import Lines, SyntaxMistake


def test_syntax(snapshot: SnapshotAssertion) -> None:
    lines = Lines("role consumer:\n  wait full[0\n", "kernel.tdm", doing="reading a machine program")
    lines.next()
    tokens = lines.tokens()
    with pytest.raises(SyntaxMistake) as caught:
        for text in ("wait", "full", "[", "0", "]"):
            tokens.expect(text)
    assert str(caught.value) == snapshot
