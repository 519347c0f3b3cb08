"""Versions of buffers read where only some elements are new, outer tiles of nested regions, blocks of fixed size visited
backwards, conditions that bound an index, products of symbols: each beside wrong twins."""

from __future__ import annotations

import pytest
from machine_text import refused, text, verified

# Each step replaces one element of a carried tile; the others stay those of the version before.
STEPS = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N alias M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      %t: f32[N] = full 0.0
      region R0 serial (m in M each) carry (%t.1: f32[N] = %t) -> (%t.2)
        %x: f32[] = load X[m]
        %t.3: f32[N] = insert %t.1[m] = %x
        yield %t.3
      %u: f32[M] = extract %t.2[M]
      store Y[M] = %u
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag z f32[]
  frag x f32[]
  frag u f32[]
  role worker agents 1 threads 1 {
    version T ; %t[$0]
    loop a = 0 .. M step 1 {
      z = copy 0.0 ; %t[a]
      store T[a] = z ; %t[a]
    }
    loop i = 0 .. M step 1 enters R0(m = i) {
      invariant T ; %t.1[$0]
      x = load X[i] ; %x[]
      version T ; %t.3[$0]
      store T[i] = x ; %t.3[i]
    }
    loop b = 0 .. M step 1 {
      u = load T[b] ; %u[b]
      store Y[b] = u ; store 0 [b]
    }
  }
""",
    host="  buffer T f32[M] workspace align 64\n",
)

NESTED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      %t: f32[M, N] = full uninitialised
      region R0 parallel (m in M) carry (%t.1: f32[M, N] = %t) -> (%t.2)
        %own: f32[m] = full 0.0
        region R1 parallel (n in N) carry (%t.3: f32[M, N] = %t.1) -> (%t.4)
          %x: f32[m, n] = load X[m, n]
          %t.5: f32[M, N] = insert %t.3[m, n] = %x
          yield %t.5
        yield %t.4
      store Y[M, N] = %t.2
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %t.2[$0, $1]
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      loop j = 0 .. N step 1 enters R1(n = j .. j + 1) {
        x = load X[t, j] ; %x[t, j]
        store T[t, j] = x ; %t.5[t, j]
      }
    }
    loop a = 0 .. M step 1 {
      loop b = 0 .. N step 1 {
        y = load T[a, b] ; %t.2[a, b]
        store Y[a, b] = y ; store 0 [a, b]
      }
    }
  }
""",
    host="  buffer T f32[M, N] workspace align 64\n",
)

BACKWARDS = text(
    "cpu:avx512",
    """
  program p
    dim N
    tensor X: f32[N]
    tensor Y: f32[N] out
    body
      %s: i64[] = full 0
      region R0 pipeline (n in N by 32 reversed) carry (%s.1: i64[] = %s) -> (%s.2)
        %x: f32[n] = load X[n]
        %c: f32[] = cast %s.1
        %y: f32[n] = add %x, %c
        store Y[n] = %y
        %e: i64[] = index n.start
        yield %e
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag s i64[]
  frag x f32[]
  frag c f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    s = copy 0 ; %s[]
    loop k = 0 .. (N + 31) // 32 step 1 enters R0(n = 32*((N + 31) // 32) - 32 - 32*k .. min(32*((N + 31) // 32) - 32*k, N)) {
      invariant s ; %s.1[]
      c = cast s ; %c[]
      loop j = 32*((N + 31) // 32) - 32 - 32*k .. min(32*((N + 31) // 32) - 32*k, N) step 1 {
        x = load X[j] ; %x[j]
        y = add x, c ; %y[j]
        store Y[j] = y ; store 0 [j]
      }
      s = index expr 32*((N + 31) // 32) - 32 - 32*k ; %e[]
    }
  }
""",
)
FROM_THE_END = "32*((N + 31) // 32) - 32 - 32*k .. min(32*((N + 31) // 32) - 32*k, N)"

BOUNDED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    tensor X: f32[N]
    tensor Y: f32[M] out
    scalar n: i32 = %n
    body
      region R0 parallel (m in M each)
        %z: i32[] = full 0
        %a: bool[] = ge %n, %z
        %w: i64[] = cast %n
        %e: i64[] = index N
        %b: bool[] = lt %w, %e
        %c: bool[] = and %a, %b
        if %c -> (%v: f32[])
          %x: f32[] = load X[%n()]
          yield %x
        else
          %o: f32[] = full 1.0
          yield %o
        store Y[m] = %v
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag a bool[]
  frag w i64[]
  frag e i64[]
  frag b bool[]
  frag c bool[]
  frag x f32[]
  frag v f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t) {
      a = ge %n, 0 ; %a[]
      w = cast %n ; %w[]
      e = index expr N ; %e[]
      b = lt w, e ; %b[]
      c = and a, b ; %c[]
      if cond c source 0 {
        x = load X[%n()] ; %x[]
        v = copy x ; %v[]
      } else {
        v = copy 1.0 ; %v[]
      }
      store Y[t] = v ; store 0 []
    }
  }
""",
)

# The range of a split contraction begins at a product of two symbols.
SPLIT = text(
    "cpu:avx512",
    """
  program p
    dim K
    dim S
    tensor X: f32[K]
    tensor Y: f32[S] out
    body
      region R0 parallel (s in S each)
        %z: f32[] = full 0.0
        region R1 reduce (k in K[min(K, 4*K*s) : K]) carry (%s.1: f32[] = %z) -> (%s.2)
          %x: f32[k] = load X[k]
          %p: f32[] = reduce add %x over K
          %s.3: f32[] = add %s.1, %p
          yield %s.3
        store Y[s] = %s.2
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag s f32[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (t < S) over workers enters R0(s = t) {
      s = copy 0.0 ; %z[]
      loop i = min(K, 4*K*t) .. K step 1 enters R1(k = i .. i + 1) {
        invariant s ; %s.1[]
        x = load X[i] ; %x[i]
        s = add s, x ; %s.3[]
      }
      store Y[t] = s ; store 0 []
    }
  }
""",
)

# What is folded is an element of another value that is the same.
RENAMED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M each)
        %x: f32[N] = load X[m, N]
        %e: f32[N] = extract %x[N]
        %s: f32[] = reduce add %e over N
        store Y[m] = %s
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag s f32[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t) {
      s = copy -0.0 ; %s[] over (c) : 0 <= c, c < 0
      loop n = 0 .. N step 1 {
        invariant s ; %s[] over (c) : 0 <= c, c < n
        x = load X[t, n] ; %x[n]
        s = fold add x onto s ; %s[] over (c) : 0 <= c, c <= n
      }
      store Y[t] = s ; store 0 []
    }
  }
""",
)

RIGHT = {"steps": STEPS, "nested": NESTED, "backwards": BACKWARDS, "bounded": BOUNDED, "split": SPLIT, "renamed": RENAMED}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_texts_are_verified(name: str) -> None:
    verified(RIGHT[name])


# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("one step leaves its element out", STEPS, "      store T[i] = x ; %t.3[i]\n", "      if 1 <= i {\n        store T[i] = x ; %t.3[i]\n      }\n", "J1"),
    ("the neighbour's element is replaced", STEPS, "store T[i] = x ; %t.3[i]", "store T[0] = x", "J1"),
    ("a tile that was not whole", STEPS, "loop a = 0 .. M", "loop a = 1 .. M", "J1"),
    ("an inner instance left out", NESTED, "loop j = 0 .. N", "loop j = 1 .. N", "J1"),
    ("another instance's element", NESTED, "store T[t, j] = x ; %t.5[t, j]", "store T[t, 0] = x ; %t.5[t, 0]", "J1"),
    ("the element of the instance before", NESTED, "x = load X[t, j] ; %x[t, j]", "x = load X[t, 0]", "J1"),
    ("two tasks and one row", NESTED, "store T[t, j] = x ; %t.5[t, j]", "store T[0, j] = x ; %t.5[0, j]", "J2"),
    ("blocks cut from the end", BACKWARDS, f"enters R0(n = {FROM_THE_END})", "enters R0(n = max(N - 32 - 32*k, 0) .. N - 32*k)", "J1"),
    ("blocks of half the size", BACKWARDS, f"0 .. (N + 31) // 32 step 1 enters R0(n = {FROM_THE_END})", "0 .. (N + 15) // 16 step 1 enters R0(n = 16*((N + 15) // 16) - 16 - 16*k .. min(16*((N + 15) // 16) - 16*k, N))", "J1"),
    ("forwards", BACKWARDS, f"enters R0(n = {FROM_THE_END})", "enters R0(n = 32*k .. min(32*k + 32, N))", "J1"),
    ("the other way of the condition", BOUNDED, "        v = copy 1.0 ; %v[]\n", "        x = load X[%n()]\n        v = copy 1.0 ; %v[]\n", "J1"),
    ("outside the condition", BOUNDED, "      if cond c", "      x = load X[%n()]\n      if cond c", "J1"),
    ("an element beyond the bound", BOUNDED, "x = load X[%n()] ; %x[]", "x = load X[%n() + 1] ; %x[]", "J1"),
    ("a range that begins below the product", SPLIT, "loop i = min(K, 4*K*t)", "loop i = min(K, 4*K*t - 1)", "J1"),
    ("an element of another row", RENAMED, "x = load X[t, n] ; %x[n]", "x = load X[0, n]", "J1"),
    ("every second element twice", RENAMED, "x = load X[t, n] ; %x[n]", "x = load X[t, 2*(n // 2)]", "J1"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, right, old, new, judgement = twin
    refused(right, old, new, judgement)
