"""Costs of conversions: no more than the field's table, and the page up to date."""

from __future__ import annotations

import pytest
from tests.algebra.conversion_table import CASES, FILE, Theirs, page

from treadle.algebra.bits import width
from treadle.algebra.emission import Emission, emission, staged


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text() == page()


def accesses(found: Emission) -> int:
    return sum(side.count for side in (found.write, found.read) if side is not None)


@pytest.mark.parametrize("name", CASES)
def test_the_field_s_table(name: str) -> None:
    """Each row is matched or undercut: in instructions, in bytes of shared memory, in barriers."""
    source, destination, bytes, theirs = CASES[name]
    found = emission(source, destination, bytes, theirs.shared or None)
    if not theirs.shared:
        assert found.instructions <= theirs.shuffles + theirs.selects
        assert (found.shuffles, found.selects) <= (theirs.shuffles, theirs.selects) and not found.shared
        return
    through = staged(source, destination, bytes, theirs.shared)
    assert accesses(through) <= theirs.accesses and through.shared <= theirs.shared
    assert through.barriers <= theirs.barriers
    assert through.write is not None and through.read is not None
    assert through.write.conflicts == through.read.conflicts == 1
    assert through.shared * through.rounds == bytes << width(source.outs)


def test_rotated_registers_take_four_shuffles() -> None:
    """128 elements of 4 bytes, four a lane to one a lane: 16 element by element."""
    source, destination, bytes, _ = CASES["4 a lane to 1, 128 elements, 4 bytes"]
    found = emission(source, destination, bytes)
    assert (found.way, found.shuffles, found.selects) == ("shuffle", 4, 16)
    assert Theirs().accesses == 0
