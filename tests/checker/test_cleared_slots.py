"""Slots of rings: what one holds is what its own step put there, or what a lone consumer stored to it since."""

from __future__ import annotations

import pytest
from tests.checker.cleared_text import FIRST, ONCE, OWN, SOME, cleared
from tests.checker.test_counters import trials

from treadle.checker import check
from treadle.driver.samples import arguments
from treadle.machine.parse import parse_machine
from treadle.simulate.run import run_schedules


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


HALVES = """tdm 1
target cuda:sm_90a
program {
  program rows
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        store Y[m, N] = %x
}
guard {
  disjoint(X, Y)
  injective(Y)
  unit(X, 1)
  pitch(X, 0) % 4 == 0
  align(X) >= 16
  N <= 64
}
host {
  map mX of X f32 box (1, 32) swizzle 0 fill zero promotion 256
  launch main grid max(1, min(M, 2)) threads 64 shared 1024
}
kernel main {
  buffer A f32[64] shared align 128 versions 2 @ 0
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  barrier full count 1 versions 2 tx @ 768
  barrier empty count 32 versions 2 @ 784
  role producer agents 1 threads 32 counters (p) {
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 64)
    tasks (v < M) over persistent enters R0(m = v .. v + 1) {
      loop h = 0 .. 2 step 1 {
        version A fill 0 ; %x[v, $0] where $0 < N
        sync mbar.wait empty{p} (phase = (p // 2 + 1) % 2) by elect
        sync mbar.expect full{p} (bytes = 128) by elect
        copy tma.load A{p}[32*h + $1] = X[v, 32*h + $1] box (1, 32) signal full{p} map mX by elect
        advance p
      }
    }
  }
  role consumer agents 1 threads 32 counters (c) {
    sync barrier.sync (id = 0, threads = 64)
    tasks (t < M) over persistent enters R0(m = t .. t + 1) {
      loop j = 0 .. 2 step 1 {
        sync mbar.wait full{c} (phase = c // 2 % 2)
        x = load A{c}[32*j + $0] where 32*j + $0 < N ; %x[t, 32*j + $0] where 32*j + $0 < N
        store Y[t, 32*j + $0] = x where 32*j + $0 < N ; store 0 [t, 32*j + $0]
        sync fence.proxy.async
        sync mbar.arrive empty{c}
        advance c
      }
    }
  }
}
"""
"""Each step brings a half of the row, to its place in the slot."""

LOADED = "        x = load A{c}[32*j + $0] where 32*j + $0 < N ; %x[t, 32*j + $0] where 32*j + $0 < N\n"
STORED = "        store Y[t, 32*j + $0] = x where 32*j + $0 < N ; store 0 [t, 32*j + $0]\n"
VERSION, LOOP = "        version A fill 0 ; %x[v, $0] where $0 < N\n", "      loop h = 0 .. 2 step 1 {\n"


def test_a_slot_holds_nothing_of_the_step_before() -> None:
    """What an earlier step brought lies in another slot, also where one version speaks of both."""
    verdict = check(parse_machine(HALVES))
    assert verdict.status == "verified", str(verdict)
    assert not failures(HALVES)
    both = STORED.replace("32*j + ", "32*i + ").join(
        ("        loop i = 0 .. j + 1 step 1 {\n" + LOADED.replace("32*j + ", "32*i + "), "        }\n")
    )
    once = HALVES.replace(LOADED + STORED, f"        if j == 1 {{\n{both}        }}\n")
    hoisted = once.replace(VERSION, "").replace(LOOP, VERSION + LOOP)
    for text in (once, hoisted):
        assert check(parse_machine(text)).status != "verified"
        assert failures(text)


def failures(text: str) -> list[str]:
    """What schedules find."""
    machine = parse_machine(text)
    arrays, _ = arguments(machine.program, {"M": 3, "N": 64}, 0)
    return [w for _, w in run_schedules(machine, arrays, 4, expected={"Y": arrays["X"]}).failures]
