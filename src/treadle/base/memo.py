"""What is asked of one thing again and again is worked out once, and kept with the thing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast


class Knows(Protocol):
    """A thing that does not change, with room for what was found about it."""

    @property
    def known(self) -> dict[object, object]: ...


K = TypeVar("K", bound=Knows)
P = ParamSpec("P")
T = TypeVar("T")
_NOTHING = object()


def memoised(ask: Callable[Concatenate[K, P], T]) -> Callable[Concatenate[K, P], T]:
    """A function of a thing and of hashable arguments whose answers are kept in the thing's `known`, as long as it
    lives. Requires: the same arguments have the same answer, which nobody changes.

    *Ensures*: `memoised(ask)(thing, *args) == ask(thing, *args)`, and `ask` runs once for a thing and arguments.
    No error is kept.
    """

    @wraps(ask)
    def answer(thing: K, *args: P.args, **named: P.kwargs) -> T:
        key = (ask, args, tuple(named.items())) if named else (ask, args)
        found = thing.known.get(key, _NOTHING)
        if found is _NOTHING:
            found = thing.known[key] = ask(thing, *args, **named)
        return cast("T", found)

    return answer
