"""Indices that are no affine arithmetic: remainders by extents and of what is read, product axes in masks, folds as
bounds; chains from the right; each beside wrong twins."""

from __future__ import annotations

import numpy as np
import pytest
from machine_text import refused, text, verified

from treadle.algebra.expr import sym
from treadle.checker.terms import quotient
from treadle.dtype.formats import DType, i8, u8
from treadle.evaluate.scalar import apply

# A neighbour on a ring: the remainder by an extent.
RING = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      %x: f32[M] = load X[M]
      region R0 parallel (m in M each)
        %i: i64[] = index m + 1
        %n: i64[] = index M
        %r: i64[] = mod %i, %n
        %y: f32[] = extract %x[in_range(%r())]
        store Y[m] = %y
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  buffer T f32[M] local align 64
  frag x f32[]
  frag i i64[]
  frag n i64[]
  frag r i64[]
  frag y f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t) {
      version T ; %x[$0]
      loop a = 0 .. M step 1 {
        x = load X[a] ; %x[a]
        store T[a] = x ; %x[a]
      }
      i = index expr t + 1 ; %i[]
      n = index expr M ; %n[]
      r = mod i, n ; %r[]
      y = load T[r()] ; %y[]
      store Y[t] = y ; store 0 []
    }
  }
""",
)

# A window along a product axis, zero outside: that the product is inside is a lemma, not a case.
WINDOW = text(
    "cpu:avx512",
    """
  program p
    dim G
    dim P
    dim GP = G * P
    dim N
    tensor X: f32[GP, N]
    tensor Y: f32[GP, N] out
    body
      region R0 parallel (g in G each, p in P each, n in N each)
        %z: f32[] = full 0.0
        %x: f32[] = load X[P*g + p, n - 1] fill %z
        store Y[P*g + p, n] = %x
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (g < G, p < P, n < N) over workers enters R0(g = g, p = p, n = n) {
      x = load X[P*g + p, n - 1] where 1 <= n fill 0.0 ; %x[]
      store Y[P*g + p, n] = x ; store 0 []
    }
  }
""",
)

# How often a loop runs is a fold.
COUNTED = text(
    "cpu:avx512",
    """
  program p
    dim N
    dim S = max(%n(), 0)
    tensor L: i32[N]
    tensor Y: f32[] out
    body
      %l: i32[N] = load L[N]
      %w: i64[N] = cast %l
      %n: i64[] = reduce add %w over N
      %z: f32[] = full 0.0
      %one: f32[] = full 1.0
      region R0 serial (i in S each) carry (%s.1: f32[] = %z) -> (%s.2)
        %s.3: f32[] = add %s.1, %one
        yield %s.3
      store Y[] = %s.2
""",
    "  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  frag n i64[]
  frag l i32[]
  frag w i64[]
  frag s f32[]
  role worker agents 1 threads 1 {
    n = copy 0 ; %n[] over (c) : 0 <= c, c < 0
    loop a = 0 .. N step 1 {
      invariant n ; %n[] over (c) : 0 <= c, c < a
      l = load L[a] ; %l[a]
      w = cast l ; %w[a]
      n = fold add w onto n ; %n[] over (c) : 0 <= c, c <= a
    }
    s = copy 0.0 ; %z[]
    loop i = 0 .. max(n(), 0) step 1 enters R0(i = i) {
      invariant s ; %s.1[]
      s = add s, 1.0 ; %s.3[]
    }
    store Y[] = s ; store 0 []
  }
""",
)

FROM_THE_RIGHT = text(
    "cpu:avx512",
    """
  program p
    dim N
    tensor X: f32[N]
    tensor Y: f32[] out
    body
      %x: f32[N] = load X[N]
      %s: f32[] = reduce add %x over N order fold_right
      store Y[] = %s
""",
    "  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  frag s f32[]
  role worker agents 1 threads 1 {
    s = copy -0.0 ; %s[] over (c) : 0 <= c, c < 0
    loop a = 0 .. N step 1 {
      invariant s ; %s[] over (c) : N - a <= c, c < N
      x = load X[N - 1 - a] ; %x[N - 1 - a]
      s = fold add x onto s ; %s[] over (c) : N - 1 - a <= c, c < N
    }
    store Y[] = s ; store 0 []
  }
""",
)
# Row and column of a position, by the extent of a row.
RADIX = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    dim MN = M * N
    tensor C: f32[M, N]
    tensor Y: f32[MN] out
    body
      region R0 parallel (t in MN each)
        %c: f32[] = load C[t // N, t - N*(t // N)]
        store Y[t] = %c
""",
    "  injective(Y)\n  disjoint(C, Y)",
    "grid 1 threads 1",
    """
  frag c f32[]
  role worker agents 1 threads 1 {
    tasks (i < M*N) over workers enters R0(t = i) {
      c = load C[i // N, i - N*(i // N)] ; %c[]
      store Y[i] = c ; store 0 []
    }
  }
""",
)

# Three digits in a radix of extents: what tasks made under a position, others read under it.
THREE = text(
    "cpu:avx512",
    """
  program p
    dim G
    dim H
    dim V
    tensor X: f32[G, H, V]
    tensor Y: f32[G, H, V] out
    body
      %t: f32[G, H, V] = load X[G, H, V]
      %y: f32[G, H, V] = abs %t
      store Y[G, H, V] = %y
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[4]
  frag y f32[4]
  role worker agents 1 threads 1 {
    version T ; %t[$0 // (H*V), $0 // V % H, $0 % V]
    tasks (a < G, b < H) over workers {
      loop c = 0 .. V step 4 {
        x = load X[a, b, c + $0] where c + $0 < V ; %t[a, b, c + $0] where c + $0 < V
        store T[(a*H + b)*V + c + $0] = x where c + $0 < V ; %t[a, b, c + $0] where c + $0 < V
      }
    }
    tasks (t < G, u < H, v < (V + 3) // 4) over workers {
      x = load T[(t*H + u)*V + 4*v + $0] where 4*v + $0 < V ; %t[t, u, 4*v + $0] where 4*v + $0 < V
      y = abs x ; %y[t, u, 4*v + $0] where 4*v + $0 < V
      store Y[t, u, 4*v + $0] = y where 4*v + $0 < V ; store 0 [t, u, 4*v + $0]
    }
  }
""",
    host="  buffer T f32[G*H*V] workspace align 64\n",
)

# A promised factor of a product axis.
BLOCK = text(
    "cpu:avx512",
    """
  program p
    dim T
    dim B
    dim S
    dim BS product B, S
    tensor L: i32[T]
    tensor X: f32[BS]
    tensor Y: f32[T, S] out
    body
      region R0 parallel (t in T each)
        %l: i32[] = load L[t]
        %x: f32[S] = load X[{in_range(%l()), S}]
        store Y[t, S] = %x
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  frag l i32[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (i < T) over workers enters R0(t = i) {
      l = load L[i] ; %l[]
      loop s = 0 .. S step 1 {
        x = load X[S*l() + s] ; %x[s]
        store Y[i, s] = x ; store 0 [s]
      }
    }
  }
""",
)
# Neighbours of an image's border: the coordinates clamped, a lane at a time.
BORDER = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %c: i64[m] = coords m
        %two: i64[] = full 2
        %zero: i64[] = full 0
        %last: i64[] = index M - 1
        %l: i64[m] = sub %c, %two
        %low: i64[m] = maximum %l, %zero
        %both: i64[m] = minimum %low, %last
        %x: f32[m] = load X[%both]
        store Y[m] = %x
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag c i64[8]
  frag l i64[8]
  frag w i64[8]
  frag n i64[]
  frag b i64[8]
  frag x f32[8]
  role worker agents 1 threads 1 {
    tasks (t < (M + 7) // 8) over workers enters R0(m = 8*t .. min(8*t + 8, M)) {
      c = index expr $0 + 8*t
      l = sub c, 2
      w = maximum l, 0
      n = index expr M - 1
      b = minimum w, n[]
      x = load X[b($0)] where $0 + 8*t < M ; %x[$0 + 8*t] where $0 + 8*t < M
      store Y[$0 + 8*t] = x where $0 + 8*t < M ; store 0 [$0 + 8*t]
    }
  }
""",
)
# The clamp of what is loaded, whatever that is.
CLAMPED = text(
    "cpu:avx512",
    """
  program p
    dim N
    dim M
    require N >= 1
    tensor X: f32[N]
    tensor L: i32[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M each)
        %l: i32[] = load L[m]
        %zero: i32[] = full 0
        %p: i32[] = maximum %l, %zero
        %i: i64[] = cast %p
        %last: i64[] = index N - 1
        %r: i64[] = minimum %i, %last
        %x: f32[] = load X[%r()]
        store Y[m] = %x
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  frag l i32[]
  frag p i32[]
  frag i i64[]
  frag n i64[]
  frag r i64[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t) {
      l = load L[t]
      p = maximum l, 0
      i = cast p
      n = index expr N - 1
      r = minimum i, n
      x = load X[r()] ; %x[]
      store Y[t] = x ; store 0 []
    }
  }
""",
)
# A tile along a product axis, filled through its factors and read along the whole.
FACTORS = text(
    "cpu:avx512",
    """
  program p
    dim A
    dim B
    dim AB product A, B
    tensor X: f32[A, B]
    tensor Y: f32[AB] out
    body
      %f: f32[AB] = full uninitialised
      %x: f32[A, B] = load X[A, B]
      %g: f32[AB] = insert %f[{A, B}] = %x
      store Y[AB] = %g
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  buffer T f32[A*B] local align 64
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %g[$0]
    loop a = 0 .. A step 1 {
      loop b = 0 .. B step 1 {
        x = load X[a, b] ; %x[a, b]
        store T[B*a + b] = x ; %g[B*a + b]
      }
    }
    loop i = 0 .. A*B step 1 {
      y = load T[i] ; %g[i]
      store Y[i] = y ; store 0 [i]
    }
  }
""",
)
APART = text(
    "cpu:avx512",
    """
  program p
    dim A
    dim B
    dim AB product A, B
    tensor X: f32[A, B]
    tensor Y: f32[AB] out
    body
      %f: f32[AB] = full uninitialised
      region R0 parallel (a in A each, b in B each) carry (%c: f32[AB] = %f) -> (%g)
        %x: f32[] = load X[a, b]
        %d: f32[AB] = insert %c[{a, b}] = %x
        yield %d
      store Y[AB] = %g
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %g[$0]
    tasks (t < A, u < B) over workers enters R0(a = t, b = u) {
      x = load X[t, u] ; %x[]
      store T[B*t + u] = x ; %g[B*t + u]
    }
    loop i = 0 .. A*B step 1 {
      y = load T[i] ; %g[i]
      store Y[i] = y ; store 0 [i]
    }
  }
""",
    host="  buffer T f32[A*B] workspace align 64\n",
)
IMAGES = text(
    "cpu:avx512",
    """
  program p
    dim A
    dim B
    dim C
    dim Q
    dim ABC product A, B, C
    tensor X: f32[A, B, C, Q]
    tensor Y: f32[ABC, Q] out
    body
      %f: f32[ABC, Q] = full uninitialised
      region R0 parallel (a in A each, b in B each, c in C each) carry (%k: f32[ABC, Q] = %f) -> (%g)
        %x: f32[Q] = load X[a, b, c, Q]
        %d: f32[ABC, Q] = insert %k[{a, b, c}, Q] = %x
        yield %d
      store Y[ABC, Q] = %g
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[4]
  frag y f32[4]
  role worker agents 1 threads 1 {
    version T ; %g[$0, $1]
    tasks (t < A, u < B, v < C) over workers enters R0(a = t, b = u, c = v) {
      loop q = 0 .. Q step 4 {
        x = load X[t, u, v, q + $0] where q + $0 < Q ; %x[q + $0] where q + $0 < Q
        store T[(B*t + u)*C + v, q + $0] = x where q + $0 < Q ; %g[(B*t + u)*C + v, q + $0] where q + $0 < Q
      }
    }
    tasks (o < (A*B*C + 15) // 16) over workers {
     loop i = 16*o .. min(16*o + 16, A*B*C) step 1 {
      loop r = 0 .. Q step 4 {
        y = load T[i, r + $0] where r + $0 < Q ; %g[i, r + $0] where r + $0 < Q
        store Y[i, r + $0] = y where r + $0 < Q ; store 0 [i, r + $0]
      }
     }
    }
  }
""",
    host="  buffer T f32[A*B*C, Q] workspace align 64\n",
)
STEP = (
    "      x = load X[N - 1 - a] ; %x[N - 1 - a]\n      s = fold add x onto s ; %s[] over (c) : N - 1 - a <= c, c < N\n"
)

# Remainders by numbers, low bits and shifts of what is read at run time stay where such operations put every integer.
DIVIDED = text(
    "cpu:avx2",
    """
  program p
    dim W
    dim N
    require W - 8 >= 0
    tensor X: f32[W]
    tensor L: i32[N]
    tensor Y: f32[N] out
    body
      region R0 parallel (i in N)
        %v: i32[i] = load L[i]
        %c: i32[] = full 3
        %r: i32[i] = mod %v, %c
        %x: f32[i] = load X[%r]
        %d: i32[] = full 7
        %m: i32[i] = and %v, %d
        %e: i32[] = full 1
        %h: i32[i] = shr %m, %e
        %z: f32[i] = load X[%h]
        %y: f32[i] = add %x, %z
        store Y[i] = %y
""",
    "  injective(Y)\n  disjoint(L, Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag v i32[]
  frag r i32[]
  frag x f32[]
  frag m i32[]
  frag h i32[]
  frag z f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    tasks (t < N) over workers enters R0(i = t .. t + 1) {
      v = load L[t] ; %v[t]
      r = mod v, 3 ; %r[t]
      x = load X[r()] ; %x[t]
      m = and v, 7 ; %m[t]
      h = shr m, 1 ; %h[t]
      z = load X[h()] ; %z[t]
      y = add x, z ; %y[t]
      store Y[t] = y ; store 0 [t]
    }
  }
""",
)

# Sums of index arithmetic and of remainders of what is read do not wrap; sums of what is read do.
SUMS = text(
    "cpu:avx2",
    """
  program p
    dim W
    dim N
    require W - 2*N - 4 >= 0
    tensor X: f32[W]
    tensor L: i64[N]
    tensor Y: f32[N] out
    body
      region R0 parallel (i in N each)
        %v: i64[] = load L[i]
        %c: i64[] = full 5
        %r: i64[] = mod %v, %c
        %j: i64[] = index 2*i + 1
        %s: i64[] = add %j, %r
        %x: f32[] = load X[%s()]
        store Y[i] = %x
""",
    "  injective(Y)\n  disjoint(L, Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag v i64[]
  frag r i64[]
  frag j i64[]
  frag s i64[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (t < N) over workers enters R0(i = t) {
      v = load L[t] ; %v[]
      r = mod v, 5 ; %r[]
      j = index expr 2*t + 1 ; %j[]
      s = add j, r ; %s[]
      x = load X[s()] ; %x[]
      store Y[t] = x ; store 0 []
    }
  }
""",
)
RIGHT = {
    "sums": SUMS,
    "divided": DIVIDED,
    "ring": RING,
    "window": WINDOW,
    "counted": COUNTED,
    "from the right": FROM_THE_RIGHT,
    "radix": RADIX,
    "three digits": THREE,
    "block": BLOCK,
    "border": BORDER,
    "clamped": CLAMPED,
    "factors": FACTORS,
    "apart": APART,
    "rows of three digits": IMAGES,
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_texts_are_verified(name: str) -> None:
    verified(RIGHT[name])


# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("more than are sure to be there", DIVIDED, "W - 8 >= 0", "W - 2 >= 0", "J1"),
    ("a sum that may leave", SUMS, "2*N - 4 >= 0", "2*N - 3 >= 0", "J1"),
    ("a sum of what was read", SUMS, "%s: i64[] = add %j, %r", "%s: i64[] = add %j, %v", "J1"),
    ("the other sign", SUMS, "%s: i64[] = add %j, %r", "%s: i64[] = sub %j, %r", "J1"),
    ("another divisor", DIVIDED, "r = mod v, 3 ; %r[t]", "r = mod v, 4", "J1"),
    ("the quotient", DIVIDED, "r = mod v, 3 ; %r[t]", "r = floordiv v, 3", "J1"),
    ("bits that are not the low ones", DIVIDED, "m = and v, 7 ; %m[t]", "m = and v, -2", "J1"),
    ("a shift of all bits", DIVIDED, "h = shr m, 1 ; %h[t]", "h = shr v, 1", "J1"),
    ("no remainder", RING, "load T[r()]", "load T[i()]", "J4"),
    ("the remainder of another number", RING, "r = mod i, n ; %r[]", "r = mod n, i", "J1"),
    ("a remainder by what may be zero", RING, "n = index expr M ; %n[]\n      r = mod i, n ; %r[]", "n = index expr M - 1\n      r = mod i, n", "J4"),
    ("the neighbour on the other side", RING, "i = index expr t + 1 ; %i[]", "i = index expr M + t - 1", "J1"),
    ("the next channel", WINDOW, "load X[P*g + p, n - 1]", "load X[P*g + p + 1, n - 1]", "J1"),
    ("the other factor", WINDOW, "load X[P*g + p, n - 1]", "load X[G*p + g, n - 1]", "J1"),
    ("a window that begins at once", WINDOW, "where 1 <= n", "where 2 <= n", "J1"),
    ("a fold that is not finished", COUNTED, "loop a = 0 .. N step 1", "loop a = 0 .. N - 1 step 1", "J1"),
    ("one time more", COUNTED, "loop i = 0 .. max(n(), 0) step 1", "loop i = 0 .. max(n(), 0) + 1 step 1", "J4"),
    ("a chain from the left", FROM_THE_RIGHT, "N - a <= c, c < N\n" + STEP, "0 <= c, c < a\n" + STEP.replace("N - 1 - a <= c, c < N", "0 <= c, c <= a").replace("N - 1 - a", "a"), "J6"),
    ("the row of the next position", RADIX, "load C[i // N, i - N*(i // N)]", "load C[(i + 1) // N, i - N*(i // N)]", "J1"),
    ("the position for the column", RADIX, "load C[i // N, i - N*(i // N)]", "load C[i // N, i]", "J1"),
    ("rows by another extent", RADIX, "load C[i // N, i - N*(i // N)]", "load C[i // M, i - M*(i // M)]", "J1"),
    ("the radix of another digit", THREE, "load T[(t*H + u)*V + 4*v + $0]", "load T[(t*V + u)*V + 4*v + $0]", "J4"),
    ("digits in another order", THREE, "load T[(t*H + u)*V + 4*v + $0]", "load T[(u*G + t)*V + 4*v + $0]", "J1"),
    ("the next position", THREE, "load T[(t*H + u)*V + 4*v + $0]", "load T[(t*H + u)*V + 4*v + $0 + 1]", "J4"),
    ("the row above", THREE, "; %t[a, b, c + $0] where c + $0 < V\n        store", "; %t[a, b + 1, c + $0] where c + $0 < V\n        store", "J1"),
    ("a digit that reaches the next", THREE, "store T[(a*H + b)*V + c + $0] = x where c + $0 < V", "store T[(a*H + b)*V + c + $0] = x", "J4"),
    ("rows over one another", THREE, "store T[(a*H + b)*V + c + $0]", "store T[(a + b)*V + c + $0]", "J4"),
    ("a row that nobody makes", THREE, "tasks (a < G, b < H)", "tasks (a < G, b < H - 1)", "J1"),
    ("a block beyond the last", BLOCK, "load X[S*l() + s]", "load X[S*l() + S + s]", "J1"),
    ("a block that nobody promised", BLOCK, "l = load L[i] ; %l[]", "l = load L[0]", "J1"),
    ("no promise", BLOCK, "{in_range(%l()), S}", "{%l(), S}", "J1"),
    ("the other clamp", BORDER, "w = maximum l, 0", "w = minimum l, 0", "J1"),
    ("no clamp below", BORDER, "b = minimum w, n[]", "b = minimum l, n[]", "J1"),
    ("no clamp above", BORDER, "b = minimum w, n[]", "b = maximum w, n[]", "J1"),
    ("a clamp to one before", BORDER, "n = index expr M - 1", "n = index expr M - 2", "J1"),
    ("the neighbour's neighbour", BORDER, "l = sub c, 2", "l = sub c, 1", "J1"),
    ("another bound of what is loaded", CLAMPED, "n = index expr N - 1", "n = index expr N - 2", "J1"),
    ("what is loaded is not bounded below", CLAMPED, "p = maximum l, 0", "p = minimum l, 0", "J1"),
    ("a clamp of the neighbour", CLAMPED, "load L[t]", "load L[M - 1 - t]", "J1"),
    ("a column left out", FACTORS, "loop b = 0 .. B step", "loop b = 0 .. B - 1 step", "J1"),
    ("the first column left out", FACTORS, "loop b = 0", "loop b = 1", "J1"),
    ("a row left out", FACTORS, "loop a = 0 .. A step", "loop a = 0 .. A - 1 step", "J1"),
    ("the first row left out", FACTORS, "loop a = 0", "loop a = 1", "J1"),
    ("every other row", FACTORS, "A step 1", "A step 2", "J1"),
    ("a row under the other's position", FACTORS, "store T[B*a + b] = x ; %g[B*a + b]", "store T[A*b + a] = x ; %g[A*b + a]", "J1"),
    ("a triangle", FACTORS, "loop b = 0 .. B step", "loop b = 0 .. min(B, a + 1) step", "J1"),
    ("a task left out", APART, "tasks (t < A, u < B)", "tasks (t < A, u < B - 1)", "J1"),
    ("a task too many", APART, "tasks (t < A, u < B)", "tasks (t < A + 1, u < B)", "J1"),
    ("tasks that meet", APART, "tasks (t < A, u < B) over workers enters R0(a = t, b = u)", "tasks (t < A, u < B, v < 2) over workers enters R0(a = t, b = u)", "J2"),
    ("the other radix", APART, "store T[B*t + u] = x ; %g[B*t + u]", "store T[A*u + t] = x ; %g[A*u + t]", "J1"),
    ("rows in another order", IMAGES, "store T[(B*t + u)*C + v, q + $0] = x where q + $0 < Q ; %g[(B*t + u)*C + v, q + $0]", "store T[(A*u + t)*C + v, q + $0] = x where q + $0 < Q ; %g[(A*u + t)*C + v, q + $0]", "J1"),
    ("rows by another radix", IMAGES, "store T[(B*t + u)*C + v,", "store T[(C*t + u)*B + v,", "J4"),
    ("the last row left out", IMAGES, "min(16*o + 16, A*B*C)", "min(16*o + 16, A*B*C - 1)", "J1"),
    ("a contribution left out", FROM_THE_RIGHT, "loop a = 0", "loop a = 1", "J1"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, right, old, new, judgement = twin
    refused(right, old, new, judgement)


@pytest.mark.parametrize("dtype", [i8, u8], ids=str)
@pytest.mark.parametrize("fn", ["floordiv", "mod", "and", "shr"])
def test_divisions_by_numbers_are_those_of_the_interpreter(fn: str, dtype: DType) -> None:
    """Of every integer, also where the shift is as long as the number."""
    kind = np.dtype(dtype.name.replace("i", "int").replace("u", "uint"))
    every = np.arange(np.iinfo(kind).min, np.iinfo(kind).max + 1)
    ruled = 0
    for number in range(np.iinfo(kind).max + 1):
        rule = quotient(fn, number)
        if rule is not None:
            ruled += 1
            found = rule(sym("v")).evaluate({"v": every}) + 0 * every  # a remainder by 1 is one number
            assert np.array_equal(found, apply(fn, dtype, every.astype(kind), np.full_like(every, number, kind))), (
                number
            )
    assert ruled >= 7
