"""Tiles updated at coordinates that are values: every element stored where its index says, the others as they were."""

from __future__ import annotations

import pytest
from machine_text import refused, text, verified

PERMUTED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim V
    tensor L: i32[M]
    tensor X: f32[M]
    tensor Y: f32[V] out
    body
      %t: f32[V] = full 0.0
      %x: f32[M] = load X[M]
      %l: i32[M] = load L[M]
      %t.1: f32[V] = insert %t[in_range(%l)] = %x
      store Y[V] = %t.1
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  frag z f32[]
  frag l i32[]
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %t[$0]
    loop a = 0 .. V step 1 {
      z = copy 0.0 ; %t[a]
      store T[a] = z ; %t[a]
    }
    version T ; %t.1[$0]
    loop i = 0 .. M step 1 {
      l = load L[i] ; %l[i]
      x = load X[i] ; %x[i]
      store T[l()] = x ; %t.1[l()]
    }
    loop b = 0 .. V step 1 {
      y = load T[b] ; %t.1[b]
      store Y[b] = y ; store 0 [b]
    }
  }
""",
    host="  buffer T f32[V] workspace align 64\n",
)

# Instances of a parallel region scatter rows into a tile that they assemble.
ASSEMBLED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    dim V
    tensor L: i32[M]
    tensor X: f32[M, N]
    tensor Y: f32[V, N] out
    body
      %t: f32[V, N] = full uninitialised
      region R0 parallel (m in M, n in N) carry (%t.1: f32[V, N] = %t) -> (%t.2)
        %x: f32[m, n] = load X[m, n]
        %l: i32[m] = load L[m]
        %t.3: f32[V, N] = insert %t.1[in_range(%l), n] = %x
        yield %t.3
      store Y[V, N] = %t.2
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  frag z f32[]
  frag l i32[]
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %t[$0, $1]
    loop a = 0 .. V step 1 {
      loop b = 0 .. N step 1 {
        z = copy 0.0 ; %t[a, b]
        store T[a, b] = z ; %t[a, b]
      }
    }
    version T ; %t.2[$0, $1]
    tasks (i < M, j < N) over workers enters R0(m = i .. i + 1, n = j .. j + 1) {
      l = load L[i] ; %l[i]
      x = load X[i, j] ; %x[i, j]
      store T[l(), j] = x ; %t.3[l(), j]
    }
    loop c = 0 .. V step 1 {
      loop d = 0 .. N step 1 {
        y = load T[c, d] ; %t.2[c, d]
        store Y[c, d] = y ; store 0 [c, d]
      }
    }
  }
""",
    host="  buffer T f32[V, N] workspace align 64\n",
)


# Groups of rows whose bounds are read: an instance updates its element twice, of which the machine stores the last.
TWICE = text(
    "cpu:avx512",
    """
  program p
    dim N1
    dim K
    tensor a: i32[N1]
    tensor X: f32[K]
    tensor Y: f32[K] out
    body
      %f: f32[K] = full 0.0
      region R0 parallel (n in N1[0 : N1 - 1] each) carry (%f.1: f32[K] = %f) -> (%f.2)
        %lo: i32[] = load a[n]
        %hi: i32[] = load a[n + 1]
        region R1 parallel (i in K[min(K, max(%lo(), 0)) : max(min(%hi(), K), min(K, max(%lo(), 0)))] each) carry (%f.3: f32[K] = %f.1) -> (%f.4)
          %x: f32[] = load X[i]
          %f.5: f32[K] = insert %f.3[i] = %x
          %y: f32[] = extract %f.5[i]
          %z: f32[] = add %y, %y
          %f.6: f32[K] = insert %f.5[i] = %z
          yield %f.6
        yield %f.4
      store Y[K] = %f.2
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(a, Y)",
    "grid 1 threads 1",
    """
  frag f f32[]
  frag lo i32[]
  frag hi i32[]
  frag x f32[]
  frag z f32[]
  role worker agents 1 threads 1 {
    version T ; %f[$0]
    loop k = 0 .. K step 1 {
      f = copy 0.0 ; %f[k]
      store T[k] = f ; %f[k]
    }
    version T ; %f.2[$0]
    tasks (t < N1 - 1) over workers enters R0(n = t) {
      lo = load a[t] ; %lo[]
      hi = load a[t + 1] ; %hi[]
      loop i = min(K, max(0, lo())) .. max(min(K, hi()), min(K, max(0, lo()))) step 1 enters R1(i = i) {
        x = load X[i] ; %x[]
        z = add x, x ; %z[]
        store T[i] = z ; %f.6[i]
      }
    }
    loop l = 0 .. K step 1 {
      f = load T[l] ; %f.2[l]
      store Y[l] = f ; store 0 [l]
    }
  }
""",
    host="  buffer T f32[K] workspace align 64\n",
)
APART = TWICE.replace("add %y, %y", "add %x, %x")
"""What the last update puts there does not ask what the first one did."""


@pytest.mark.parametrize("right", [PERMUTED, ASSEMBLED, TWICE, APART], ids=["permuted", "assembled", "twice", "apart"])
def test_right_texts_are_verified(right: str) -> None:
    verified(right)


LAST = "        z = add x, x ; %z[]\n        store T[i] = z ; %f.6[i]\n"
FILL = "    loop a = 0 .. V step 1 {\n      z = copy 0.0 ; %t[a]\n      store T[a] = z ; %t[a]\n    }\n"
PUT = "      store T[l()] = x ; %t.1[l()]\n"
# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("an element that is never stored", PERMUTED, "loop i = 0 .. M step 1", "loop i = 1 .. M step 1", "J1"),
    ("every second element", PERMUTED, "loop i = 0 .. M step 1", "loop i = 0 .. M step 2", "J1"),
    ("an element stored twice", PERMUTED, PUT, PUT + PUT, "J1"),
    ("the value of another element", PERMUTED, "x = load X[i] ; %x[i]", "x = load X[M - 1 - i] ; %x[M - 1 - i]", "J1"),
    ("the place of another element", PERMUTED, "l = load L[i] ; %l[i]", "l = load L[0]", "J4"),
    ("memory that nobody filled", PERMUTED, FILL, "", "J1"),
    ("other numbers before it", PERMUTED, "z = copy 0.0 ; %t[a]\n      store T[a] = z ; %t[a]", "z = copy 1.0\n      store T[a] = z", "J1"),
    ("read before all are stored", PERMUTED, PUT, PUT + "      y = load T[l()] ; %t.1[l()]\n", "J1"),
    ("a place that was not promised", PERMUTED, "insert %t[in_range(%l)]", "insert %t[%l]", "J4"),
    ("rows of tasks that are no instances", ASSEMBLED, "tasks (i < M, j < N) over workers enters R0(m = i .. i + 1, n = j .. j + 1) {", "tasks (i < M, j < N, again < 2) over workers enters R0(m = i .. i + 1, n = j .. j + 1) {", "J2"),
    ("a column left out", ASSEMBLED, "tasks (i < M, j < N)", "tasks (i < M, j < N - 1)", "J1"),
    ("the next column", ASSEMBLED, "x = load X[i, j] ; %x[i, j]", "x = load X[i, 0]", "J2"),
    ("a second store beside it", ASSEMBLED, "      store T[l(), j] = x ; %t.3[l(), j]\n", "      store T[l(), j] = x ; %t.3[l(), j]\n      store T[l(), j] = x ; %t.3[l(), j]\n", "J2"),
    ("the first update of two", TWICE, LAST, "        store T[i] = x ; %f.5[i]\n", "J2"),
    ("the first update's value for the last", TWICE, "store T[i] = z ; %f.6[i]", "store T[i] = x ; %f.6[i]", "J2"),
    ("a first update of another element", APART, "insert %f.3[i] = %x", "insert %f.3[n] = %x", "J2"),
    ("a first update of the element before", APART, "insert %f.3[i] = %x", "insert %f.3[i - 1] = %x", "J2"),
    ("a last update of another element", APART, "insert %f.5[i] = %z", "insert %f.5[n] = %z", "J2"),
    ("another element's value", TWICE, "%x: f32[] = load X[i]\n", "%x: f32[] = load X[n]\n", "J1"),
    ("an element of a group left out", TWICE, "loop i = min(K, max(0, lo())) ..", "loop i = min(K, max(0, lo())) + 1 ..", "J1"),
    ("a group left out", TWICE, "tasks (t < N1 - 1)", "tasks (t < N1 - 2)", "J1"),
    ("a group twice", TWICE, "tasks (t < N1 - 1) over workers", "tasks (t < N1 - 1, again < 2) over workers", "J2"),
    ("what no group has, unfilled", TWICE, "      store T[k] = f ; %f[k]\n", "", "J1"),
    ("both updates stored", TWICE, LAST, "        store T[i] = x ; %f.5[i]\n" + LAST, "J2"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, right, old, new, judgement = twin
    refused(right, old, new, judgement)
