"""What is worked out once of a thing and its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from treadle.base.memo import memoised


@dataclass
class Thing:
    known: dict[object, object] = field(default_factory=dict[object, object])
    asked: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


@memoised
def divided(thing: Thing, a: int, b: int = 1) -> int | None:
    thing.asked.append((a, b))
    return a // b if a else None


def test_each_question_is_answered_once_for_a_thing() -> None:
    one, other = Thing(), Thing()
    for thing in (one, other, one):
        assert (divided(thing, 6, 2), divided(thing, 6, b=3), divided(thing, 6), divided(thing, 0)) == (3, 2, 6, None)
    assert one.asked == other.asked == [(6, 2), (6, 3), (6, 1), (0, 1)]


def test_an_error_is_not_kept() -> None:
    thing = Thing()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            divided(thing, 1, 0)
    assert thing.asked == [(1, 0), (1, 0)] and not thing.known
