"""A lone consumer stores to its slot of a ring: what the slot holds from then on, whatever control stands around it."""

from __future__ import annotations

import pytest
from tests.checker.counter_text import RINGS
from tests.checker.test_counters import trials

from treadle.checker import check
from treadle.machine.parse import parse_machine

LOAD = "      x = load A{c}[$0] ; %x[t, 32*s + $0] where 32*s + $0 < N\n"
MEET = "      sync fence.proxy.async\n      sync barrier.sync (id = 1, threads = 32)\n"
OWN, FIRST = "%x[t, 32*s + $0] where 32*s + $0 < N", "%x[t, $0] where $0 < N"


def cleared(before: str, inside: str, held: str, behind: str = "      }\n") -> str:
    """The consumer stores the elements `held` to its slot; `before` the version, `inside` it."""
    at = held.split(" where ")
    text = (
        f"      w = load X{at[0][2:]} where {at[1]} fill 0.0 ; {held}\n{before}"
        f"      version A ; {held}\n{inside}      store A{{c}}[$0] = w where {at[1]}\n{MEET}{behind}"
    )
    declared = "  frag w f32[32] dist (lane 32 axis 0 stride 1)\n  frag p f32[]\n"
    return RINGS.replace("  frag p f32[]\n", declared).replace(LOAD, text + LOAD)


SOME, ONCE = "      if 1 <= s {\n", "      loop u = 0 .. 1 step 1 {\n"


@pytest.mark.parametrize("inside", [SOME, ONCE])
def test_the_same_elements_are_stored(inside: str) -> None:
    machine = parse_machine(cleared("", inside, OWN))
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    assert not trials(machine, 3, 72, 8)


@pytest.mark.parametrize("control", [SOME, ONCE])
def test_a_version_inside_a_control_outlives_what_the_producer_brought(control: str) -> None:
    """Behind an `if` or loop in which a slot got other elements, it does not hold those of its box."""
    machine = parse_machine(cleared(control, "", FIRST))
    verdict = check(machine)
    assert (verdict.status, verdict.judgement) == ("rejected", "J1"), str(verdict)
    assert trials(machine, 3, 72, 8)


def test_an_invariant_speaks_of_the_slot_too() -> None:
    """In a loop whose invariant says what the slot holds, that is what it holds."""
    kept = f"      loop u = 0 .. 2 step 1 {{\n        invariant A ; {FIRST}\n"
    held = "        z = load A{c}[$0] where 32*s + $0 < N ; " + OWN + "\n      }\n"
    machine = parse_machine(cleared("", "", FIRST, kept + held))
    verdict = check(machine)
    assert verdict.status == "rejected" and verdict.judgement == "J1", str(verdict)
