"""Elements that are stored more than once: what remains is what the source stores last. Each right text beside wrong
twins that execute the same stores in another order, or in none."""

from __future__ import annotations

import pytest
from machine_text import refused, text, verified

# The last instance of a serial region remains.
LAST = text(
    "cpu:avx512",
    """
  program p
    dim M = 8
    tensor X: f32[M]
    tensor Y: f32[] out
    body
      region R0 serial (m in M each)
        %x: f32[] = load X[m]
        store Y[] = %x
""",
    "  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  role worker agents 1 threads 1 {
    loop p = 0 .. 1 step 1 {
      loop i = 0 .. 8 step 1 enters R0(m = i) {
        x = load X[i] ; %x[]
        store Y[] = x ; store 0 []
      }
    }
  }
""",
)

# Instances of a parallel region in a serial one overwrite what others of the instance before stored.
DIAGONALS = text(
    "cpu:avx512",
    """
  program p
    dim T
    dim N
    dim K = T + N
    tensor X: f32[T, N]
    tensor Y: f32[K] out
    body
      region R0 serial (t in T each)
        region R1 parallel (n in N each)
          %x: f32[] = load X[t, n]
          store Y[t + n] = %x
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  role worker agents 1 threads 1 {
    loop t = 0 .. T step 1 enters R0(t = t) {
      tasks (n < N) over workers enters R1(n = n) {
        x = load X[t, n] ; %x[]
        store Y[t + n] = x ; store 0 []
      }
    }
  }
""",
)

# Each time step reads what the neighbours made of the step before.
STEPS = text(
    "cpu:avx512",
    """
  program p
    dim T
    dim U = T + 1
    dim N
    tensor Y: f32[U, N] out
    body
      region R0 serial (t in T each)
        region R1 parallel (n in N each)
          %z: f32[] = full 0.0
          %x: f32[] = load Y[t, n - 1] fill %z
          store Y[t + 1, n] = %x
""",
    "  injective(Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  role worker agents 1 threads 1 {
    loop t = 0 .. T step 1 enters R0(t = t) {
      tasks (n < N) over workers enters R1(n = n) {
        x = load Y[t, n - 1] where 1 <= n fill 0.0 ; %x[]
        store Y[t + 1, n] = x ; store 0 []
      }
    }
  }
""",
)

# Tickets of a serial region, or of an ordered store, are drawn in the source's order, though counts are exact.
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
        %old: i32[] = store C[in_range(%l())] add %one order ordered
        store Y[t] = %old
""",
    "  injective(C)\n  injective(Y)\n  disjoint(L, C)\n  disjoint(L, Y)\n  disjoint(C, Y)",
    "grid 1 threads 1",
    """
  frag l i32[]
  frag one i32[]
  frag old i32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. T step 1 enters R0(t = i) {
      l = load L[i] ; %l[]
      one = copy 1 ; %one[]
      store C[l()] = one effect add old old ; store 0 []
      store Y[i] = old ; store 1 []
    }
  }
""",
)

# Threads of a workgroup store zeros, then numbers.
CLEARED = text(
    "cuda:sm_90a",
    """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    tensor Z: f32[M] out
    body
      region R0 parallel (m in M)
        %z: f32[m] = full 0.0
        store Y[m] = %z
        %x: f32[m] = load X[m]
        store Z[m] = %x
""",
    "  injective(Y)\n  injective(Z)\n  disjoint(X, Y)\n  disjoint(X, Z)\n  disjoint(Y, Z)",
    "grid 4 threads 32",
    """
  frag z f32[64] dist (slot 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag x f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)
  role worker agents 1 threads 32 {
    tasks (t < (M + 63) // 64) over persistent enters R0(m = 64*t .. min(64*t + 64, M)) {
      z = copy 0.0 ; %z[64*t + $0] where 64*t + $0 < M
      store Y[64*t + $0] = z where 64*t + $0 < M ; store 0 [64*t + $0]
      x = load X[64*t + $0] where 64*t + $0 < M ; %x[64*t + $0] where 64*t + $0 < M
      store Z[64*t + $0] = x where 64*t + $0 < M ; store 1 [64*t + $0]
    }
  }
""",
)

RIGHT = {"last": LAST, "diagonals": DIAGONALS, "steps": STEPS, "tickets": TICKETS, "cleared": CLEARED}


@pytest.mark.parametrize("right", RIGHT.values(), ids=RIGHT)
def test_right_texts_are_verified(right: str) -> None:
    verified(right)


def _exchanged(right: str) -> tuple[str, str]:
    """The loop over the serial region and the tasks inside it, and the two the other way round."""
    outer = "    loop t = 0 .. T step 1 enters R0(t = t) {\n"
    inner = "      tasks (n < N) over workers enters R1(n = n) {\n"
    assert outer + inner in right
    return outer + inner, inner + outer


# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("two sweeps", LAST, "p = 0 .. 1 step 1 {\n      loop i = 0 .. 8 step 1 enters R0(m = i) {\n        x = load X[i] ; %x[]\n        store Y[] = x ;", "p = 0 .. 2 step 1 {\n      loop i = 0 .. 8 step 1 enters R0(m = i) {\n        x = load X[i] ; %x[]\n        store Y[] = x where 1 - p <= i, i <= 8 - 8*p ;", "J2"),
    ("two tasks", LAST, "loop p = 0 .. 1 step 1 {\n      loop i = 0 .. 8 step 1 enters R0(m = i) {\n        x = load X[i] ; %x[]\n        store Y[] = x ;", "tasks (p < 2) over workers {\n      loop i = 0 .. 8 step 1 enters R0(m = i) {\n        x = load X[i] ; %x[]\n        store Y[] = x where 1 - p <= i, i <= 8 - 8*p ;", "J2"),
    ("diagonals side by side", DIAGONALS, *_exchanged(DIAGONALS), "J2"),
    ("time inside space", STEPS, *_exchanged(STEPS), "J2"),
    ("tickets side by side", TICKETS, "loop i = 0 .. T step 1 enters R0(t = i)", "tasks (i < T) over workers enters R0(t = i)", "J6"),
    ("other threads overwrite", CLEARED.replace("store Z[m]", "store Y[m]"), "store Z[64*t", "store Y[64*t", "J2"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, right, old, new, judgement = twin
    refused(right, old, new, judgement)


def test_independent_columns_may_be_walked_one_by_one() -> None:
    down = STEPS.replace("load Y[t, n - 1] fill %z", "load Y[t, n]").replace("load Y[t, n - 1] where 1 <= n fill 0.0", "load Y[t, n]")  # fmt: skip
    verified(down)
    verified(down.replace(*_exchanged(down), 1))


def test_one_worker_may_walk_steps_from_the_neighbour_that_is_read() -> None:
    forward = STEPS.replace(_exchanged(STEPS)[0], _exchanged(STEPS)[1]).replace("tasks (n < N) over workers", "loop n = 0 .. N step 1")  # fmt: skip
    verified(forward)
    right = "x = load Y[t, n - 1] where 1 <= n fill 0.0 ; %x[]\n        store Y[t + 1, n] ="
    assert right in forward
    wrong = "x = load Y[t, N - 2 - n] where n <= N - 2 fill 0.0 ; %x[]\n        store Y[t + 1, N - 1 - n] ="
    refused(forward.replace("R1(n = n)", "R1(n = N - 1 - n)"), right, wrong, "J2")
