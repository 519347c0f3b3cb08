"""Colliding stores: the old values that they hand back, and the order of their contributions; beside wrong twins."""

from __future__ import annotations

import numpy as np
import pytest
from machine_text import judged, refused, text, verified

from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.simulate.run import simulate

TICKETS = text(
    "cpu:avx512",
    """
  program p
    dim T
    dim V
    tensor L: i32[T]
    tensor C: i32[V]
    tensor Y: i32[T] out
    body
      region R0 parallel (t in T each)
        %l: i32[] = load L[t]
        %one: i32[] = full 1
        %old: i32[] = store C[in_range(%l())] add %one
        %new: i32[] = add %old, %one
        store Y[t] = %new
""",
    "  injective(C)\n  injective(Y)\n  disjoint(L, C)\n  disjoint(L, Y)\n  disjoint(C, Y)",
    "grid 1 threads 1",
    """
  frag l i32[]
  frag one i32[]
  frag old i32[]
  frag new i32[]
  role worker agents 1 threads 1 {
    tasks (i < T) over workers enters R0(t = i) {
      l = load L[i] ; %l[]
      one = copy 1 ; %one[]
      store C[l()] = one effect add old old ; store 0 []
      new = add old, 1 ; %new[]
      store Y[i] = new ; store 1 []
    }
  }
""",
)
TICKET = "      store C[l()] = one effect add old old ; store 0 []\n"

SCATTERED = """
  program p
    dim T
    dim D
    dim V
    tensor L: i32[T]
    tensor X: f32[T, D]
    tensor C: f32[V, D] out
    body
      region R0 parallel (t in T, d in D)
        %l: i32[t] = load L[t]
        %x: f32[t, d] = load X[t, d]
        store C[in_range(%l), d] add %x order ordered
"""
APART = "  injective(C)\n  disjoint(L, C)\n  disjoint(X, C)"
ORDERED = text(
    "cpu:avx512",
    SCATTERED.replace("        store C", "        %o: f32[t, d] = store C"),
    APART,
    "grid 1 threads 1",
    """
  frag l i32[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (j < D) over workers enters R0(d = j .. j + 1) {
      loop i = 0 .. T step 1 enters R0(t = i .. i + 1) {
        l = load L[i] ; %l[i]
        x = load X[i, j] ; %x[i, j]
        store C[l(), j] = x effect add ; store 0 [i, j]
      }
    }
  }
""",
)
CONTROLS = "    tasks (j < D) over workers enters R0(d = j .. j + 1) {\n      loop i = 0 .. T step 1 enters R0(t = i .. i + 1) {"


@pytest.mark.parametrize("right", [TICKETS, ORDERED], ids=["tickets", "in order"])
def test_right_texts_are_verified(right: str) -> None:
    verified(right)


def test_any_order_of_exact_contributions_is_right() -> None:
    integers = ORDERED.replace("f32", "i32")
    verified(integers.replace("enters R0(t = i .. i + 1)", "enters R0(t = T - 1 - i .. T - i)").replace("[i]", "[T - 1 - i]").replace("[i, j]", "[T - 1 - i, j]"))  # fmt: skip
    verified(ORDERED.replace("order ordered", "order unordered"))


def test_old_values_print_and_parse_and_are_simulated() -> None:
    program = parse_machine(TICKETS)
    assert print_machine(parse_machine(print_machine(program))) == print_machine(program)
    labels = np.array([1, 0, 1, 1], np.int32)
    counts, taken = np.array([5, 7], np.int32), np.zeros(4, np.int32)
    found = simulate(program, {"L": labels, "C": counts, "Y": taken}, seed=1)
    counts, taken = found.outputs["C"], found.outputs["Y"]
    assert not found.findings and counts.tolist() == [6, 10]
    assert sorted(taken[labels == 1].tolist()) == [8, 9, 10] and taken[1] == 6


# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("the new value for the old one", TICKETS, "new = add old, 1 ; %new[]", "new = copy old ; %new[]", "J1"),
    ("a ticket drawn twice", TICKETS, TICKET, TICKET + TICKET, "J1"),
    ("old values that nothing handed back", TICKETS, " old old ; store 0", " ; store 0", "J1"),
    ("a load before it for the old value", TICKETS, TICKET, "      old = load C[l()] ; %old[]\n" + TICKET.replace(" old old", ""), "J2"),
    ("another element's ticket", TICKETS, "store C[l()]", "store C[0]", "J1"),
    ("the tickets of the task before", TICKETS, "    tasks (i < T) over workers enters R0(t = i) {", "    loop i = 0 .. T step 1 enters R0(t = T - 1 - i) {", "J1"),
    ("contributions of tasks", ORDERED, CONTROLS, "    tasks (j < D, i < T) over workers enters R0(d = j .. j + 1, t = i .. i + 1) {\n      loop once = 0 .. 1 step 1 {", "J6"),
    ("contributions of tasks, one column each", ORDERED, CONTROLS, "    tasks (i < T) over workers enters R0(t = i .. i + 1) {\n      loop j = 0 .. D step 1 enters R0(d = j .. j + 1) {", "J6"),
    ("contributions from the end", ORDERED, "enters R0(t = i .. i + 1) {\n        l = load L[i] ; %l[i]\n        x = load X[i, j] ; %x[i, j]\n        store C[l(), j] = x effect add ; store 0 [i, j]", "enters R0(t = T - 1 - i .. T - i) {\n        l = load L[T - 1 - i] ; %l[T - 1 - i]\n        x = load X[T - 1 - i, j] ; %x[T - 1 - i, j]\n        store C[l(), j] = x effect add ; store 0 [T - 1 - i, j]", "J6"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, right, old, new, judgement = twin
    refused(right, old, new, judgement)


def test_slots_of_one_statement_have_no_order() -> None:
    wide = ORDERED.replace("frag l i32[]", "frag l i32[2]").replace("frag x f32[]", "frag x f32[2]")
    wide = wide.replace("dim T\n", "dim T = 8\n").replace("loop i = 0 .. T step 1 enters R0(t = i .. i + 1)", "loop i = 0 .. 8 step 2 enters R0(t = i .. i + 2)")  # fmt: skip
    wide = wide.replace("L[i] ; %l[i]", "L[i + $0] ; %l[i + $0]").replace("X[i, j] ; %x[i, j]", "X[i + $0, j] ; %x[i + $0, j]")  # fmt: skip
    wide = wide.replace("C[l(), j] = x effect add ; store 0 [i, j]", "C[l($0), j] = x effect add ; store 0 [i + $0, j]")
    verdict = judged(wide)
    assert verdict.status != "verified" and verdict.judgement == "J6", str(verdict)
    assert judged(wide.replace("order ordered", "order unordered")).status == "verified"
