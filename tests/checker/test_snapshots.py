"""Loads of tensors that the program stores: what they find, in their order among the stores, each beside wrong twins."""

from __future__ import annotations

import pytest
from machine_text import refused, text, verified

RUNNING = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      region R0 serial (m in M each)
        %x: f32[] = load X[m]
        %zero: f32[] = full 0.0
        %before: f32[] = load Y[m - 1] fill %zero
        %y: f32[] = add %x, %before
        store Y[m] = %y
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  frag b f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. M step 1 enters R0(m = i) {
      x = load X[i] ; %x[]
      b = load Y[i - 1] where 1 <= i fill 0.0 ; %before[]
      y = add x, b ; %y[]
      store Y[i] = y ; store 0 []
    }
  }
""",
)
BEFORE = "      b = load Y[i - 1] where 1 <= i fill 0.0 ; %before[]\n"
STORE = "      store Y[i] = y ; store 0 []\n"

# Instances of a parallel region read an element, use it, and overwrite it.
SHIFT = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor Y: f32[M] out
    tensor Z: f32[M] out
    body
      region R0 parallel (m in M each)
        %y: f32[] = load Y[m]
        store Z[m] = %y
        %five: f32[] = full 5.0
        store Y[m] = %five
""",
    "  injective(Y)\n  injective(Z)\n  disjoint(Y, Z)",
    "grid 1 threads 1",
    """
  frag y f32[]
  frag z f32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. M step 1 enters R0(m = i) {
      y = load Y[i] ; %y[]
      store Z[i] = y ; store 0 []
      z = copy 5.0 ; %five[]
      store Y[i] = z ; store 1 []
    }
  }
""",
)
FIVE = "      z = copy 5.0 ; %five[]\n      store Y[i] = z ; store 1 []\n"
EARLY = """      z = copy 5.0 ; %five[]
      if i <= 0 {
        store Y[0] = z ; store 1 [] at (m = 0)
      }
      if i <= M - 2 {
        store Y[i + 1] = z ; store 1 [] at (m = i + 1)
      }
"""


# What a step has not changed may be read again after its store.
AGAIN = RUNNING.replace(STORE, STORE + BEFORE)


@pytest.mark.parametrize("right", [RUNNING, AGAIN, SHIFT], ids=["a recurrence", "read twice", "read and overwritten"])
def test_right_texts_are_verified(right: str) -> None:
    verified(right)


# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("the element itself", RUNNING, "load Y[i - 1] where 1 <= i", "load Y[i] where 1 <= i", "J1"),
    ("the second last element", RUNNING, "load Y[i - 1] where 1 <= i", "load Y[i - 2] where 2 <= i", "J1"),
    ("a start that is not the fill", RUNNING, "where 1 <= i fill 0.0", "where 1 <= i fill 1.0", "J1"),
    ("a first step that reads nothing", RUNNING, "where 1 <= i fill", "where 2 <= i fill", "J1"),
    ("outside the tensor", RUNNING, " where 1 <= i fill 0.0", "", "J1"),
    ("read after the store", RUNNING, BEFORE + "      y = add x, b ; %y[]\n" + STORE, "      y = add x, b\n" + STORE + BEFORE, "J1"),
    ("the element itself, read again after the store", SHIFT, FIVE, FIVE + "      y = load Y[i] ; %y[]\n", "J2"),
    ("the next instance's element, before it is stored", RUNNING, STORE, "      b = load Y[i] where i <= M - 2 fill 0.0 ; %before[] where i <= M - 2 at (m = i + 1)\n" + STORE, "J2"),
    ("backwards", RUNNING, "enters R0(m = i)", "enters R0(m = M - 1 - i)", "J1"),
    ("overwritten before it is read", SHIFT, "      y = load Y[i] ; %y[]\n      store Z[i] = y ; store 0 []\n" + FIVE, FIVE + "      y = load Y[i] ; %y[]\n      store Z[i] = y ; store 0 []\n", "J2"),
    ("overwritten an iteration early", SHIFT, FIVE, EARLY, "J2"),
    ("a load of another instance", SHIFT, "      y = load Y[i] ; %y[]\n      store Z[i] = y ; store 0 []\n", "      y = load Y[M - 1 - i] ; %y[] at (m = M - 1 - i)\n      store Z[M - 1 - i] = y ; store 0 [] at (m = M - 1 - i)\n", "J2"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, right, old, new, judgement = twin
    refused(right, old, new, judgement)
