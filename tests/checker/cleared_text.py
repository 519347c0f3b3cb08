"""Texts of a ring whose lone consumer stores to its slot before it reads it."""

from __future__ import annotations

from tests.checker.counter_text import RINGS

LOAD = "      x = load A{c}[$0] ; %x[t, 32*s + $0] where 32*s + $0 < N\n"
MEET = "      sync fence.proxy.async\n      sync barrier.sync (id = 1, threads = 32)\n"
OWN, FIRST = "%x[t, 32*s + $0] where 32*s + $0 < N", "%x[t, $0] where $0 < N"


def cleared(before: str, inside: str, held: str, behind: str = "      }\n", meet: str = MEET) -> str:
    """The consumer stores the elements `held` to its slot, in a control that begins `before` the version or `inside`
    it, ends `behind`, and has the threads `meet` behind the store."""
    at = held.split(" where ")
    text = (
        f"      w = load X{at[0][2:]} where {at[1]} fill 0.0 ; {held}\n{before}"
        f"      version A ; {held}\n{inside}      store A{{c}}[$0] = w where {at[1]}\n{meet}{behind}"
    )
    declared = "  frag w f32[32] dist (lane 32 axis 0 stride 1)\n  frag p f32[]\n"
    return RINGS.replace("  frag p f32[]\n", declared).replace(LOAD, text + LOAD)


SOME, ONCE = "      if 1 <= s {\n", "      loop u = 0 .. 1 step 1 {\n"
