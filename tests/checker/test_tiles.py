"""Outer tiles: assembled by regions inside regions, updated at computed coordinates, read at promised ones; beside wrong
twins."""

from __future__ import annotations

import pytest
from machine_text import refused, text, verified

# An instance of a parallel region fills its row by a recurrence.
SCAN = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      %t: f32[M, N] = full uninitialised
      region R0 parallel (m in M each) carry (%t.1: f32[M, N] = %t) -> (%t.2)
        %z: f32[] = full 0.0
        region R1 serial (n in N each) carry (%t.3: f32[M, N] = %t.1, %s.1: f32[] = %z) -> (%t.4, %s.2)
          %x: f32[] = load X[m, n]
          %s.3: f32[] = add %s.1, %x
          %t.5: f32[M, N] = insert %t.3[m, n] = %s.3
          yield %t.5, %s.3
        yield %t.4
      store Y[M, N] = %t.2
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  buffer R f32[N] local align 64
  frag z f32[]
  frag s f32[]
  frag x f32[]
  frag r f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %t.2[$0, $1]
    tasks (i < M) over workers enters R0(m = i) {
      version R ; %t.1[i, $0]
      loop a = 0 .. N step 1 {
        z = copy 0.0 ; %t.1[i, a]
        store R[a] = z ; %t.1[i, a]
      }
      s = copy 0.0 ; %z[]
      loop j = 0 .. N step 1 enters R1(n = j) {
        invariant R ; %t.3[i, $0]
        invariant s ; %s.1[]
        version R ; %t.5[i, $0]
        x = load X[i, j] ; %x[]
        s = add s, x ; %s.3[]
        store R[j] = s ; %t.5[i, j]
      }
      loop b = 0 .. N step 1 {
        r = load R[b] ; %t.4[i, b]
        store T[i, b] = r ; %t.4[i, b]
      }
    }
    loop c = 0 .. M step 1 {
      loop d = 0 .. N step 1 {
        y = load T[c, d] ; %t.2[c, d]
        store Y[c, d] = y ; store 0 [c, d]
      }
    }
  }
""",
    host="  buffer T f32[M, N] workspace align 64\n",
)

# A diagonal of a tile is replaced: a computed coordinate beside a part.
DIAGONAL = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    tensor X: f32[M]
    tensor Y: f32[M, N] out
    require N - M >= 0
    body
      %t: f32[M, N] = full 0.0
      %c: i64[M] = coords M
      %n: i64[] = index N - 1
      %d: i64[M] = sub %n, %c
      %x: f32[M] = load X[M]
      %t.1: f32[M, N] = insert %t[M, in_range(%d)] = %x
      store Y[M, N] = %t.1
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag z f32[]
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %t[$0, $1]
    loop a = 0 .. M step 1 {
      loop b = 0 .. N step 1 {
        z = copy 0.0 ; %t[a, b]
        store T[a, b] = z ; %t[a, b]
      }
    }
    version T ; %t.1[$0, $1]
    loop i = 0 .. M step 1 {
      x = load X[i] ; %x[i]
      store T[i, N - 1 - i] = x ; %t.1[i, N - 1 - i]
    }
    loop c = 0 .. M step 1 {
      loop d = 0 .. N step 1 {
        y = load T[c, d] ; %t.1[c, d]
        store Y[c, d] = y ; store 0 [c, d]
      }
    }
  }
""",
    host="  buffer T f32[M, N] workspace align 64\n",
)

# Elements of a loaded tile at promised coordinates: read where they are used.
GATHERED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    tensor L: i32[M]
    tensor X: f32[N]
    tensor Y: f32[M] out
    body
      %x: f32[N] = load X[N]
      %l: i32[M] = load L[M]
      %w: i64[M] = cast %l
      %one: i64[] = full 1
      %i: i64[M] = add %w, %one
      %g: f32[M] = extract %x[in_range(%i)]
      store Y[M] = %g
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  frag l i32[]
  frag w i64[]
  frag i i64[]
  frag g f32[]
  role worker agents 1 threads 1 {
    loop m = 0 .. M step 1 {
      l = load L[m] ; %l[m]
      w = cast l ; %w[m]
      i = add w, 1 ; %i[m]
      g = load X[i()] ; %x[i()]
      store Y[m] = g ; store 0 [m]
    }
  }
""",
)

# A number converted twice is a number.
CONVERTED = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[] out
    body
      %b: bf16[] = full 0.0
      %z: f32[] = cast %b
      region R0 serial (m in M each) carry (%s.1: f32[] = %z) -> (%s.2)
        %x: f32[] = load X[m]
        %s.3: f32[] = add %s.1, %x
        yield %s.3
      store Y[] = %s.2
""",
    "  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag s f32[]
  frag x f32[]
  role worker agents 1 threads 1 {
    s = copy 0.0
    loop i = 0 .. M step 1 enters R0(m = i) {
      invariant s ; %s.1[]
      x = load X[i] ; %x[]
      s = add s, x ; %s.3[]
    }
    store Y[] = s ; store 0 []
  }
""",
)
# A part of a tile is assembled in parallel; the rest is what it was.
PART = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      %t: f32[M] = full 0.0
      region R0 parallel (m in M[0 : min(8, M)]) carry (%t.1: f32[M] = %t) -> (%t.2)
        %x: f32[m] = load X[m]
        %t.3: f32[M] = insert %t.1[m] = %x
        yield %t.3
      store Y[M] = %t.2
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag z f32[]
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %t[$0]
    loop a = 0 .. M step 1 {
      z = copy 0.0 ; %t[a]
      store T[a] = z ; %t[a]
    }
    version T ; %t.2[$0]
    tasks (i < min(8, M)) over workers enters R0(m = i .. i + 1) {
      x = load X[i] ; %x[i]
      store T[i] = x ; %t.3[i]
    }
    loop b = 0 .. M step 1 {
      y = load T[b] ; %t.2[b]
      store Y[b] = y ; store 0 [b]
    }
  }
""",
    host="  buffer T f32[M] workspace align 64\n",
)

# One promise tells that the element exists which the other one is about.
CHAINED = text(
    "cpu:avx512",
    """
  program p
    dim N
    tensor X: f32[N]
    tensor Y: f32[N] out
    body
      %n: i64[N] = coords N
      %two: i64[] = full 2
      %a: i64[N] = and %n, %two
      %low: i64[N] = sub %n, %a
      %x: f32[N] = load X[N]
      %u: f32[N] = extract %x[in_range(%low)]
      %v: f32[N] = extract %u[in_range(%low)]
      store Y[N] = %v
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag n i64[]
  frag a i64[]
  frag low i64[]
  frag n2 i64[]
  frag a2 i64[]
  frag low2 i64[]
  frag x f32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. N step 1 {
      n = index expr i ; %n[i]
      a = and n, 2 ; %a[i]
      low = sub n, a ; %low[i]
      n2 = index expr low() ; %n[low()]
      a2 = and n2, 2 ; %a[low()]
      low2 = sub n2, a2 ; %low[low()]
      x = load X[low2()] ; %x[low2()]
      store Y[i] = x ; store 0 [i]
    }
  }
""",
)
# A product axis written by its factors and read as a whole.
PAIRS = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim S = 3
    dim MS product M, S
    tensor X: f32[M, S]
    tensor Y: f32[MS] out
    body
      %t: f32[MS] = full uninitialised
      %x: f32[M, S] = load X[M, S]
      %t.1: f32[MS] = insert %t[{M, S}] = %x
      store Y[MS] = %t.1
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    version T ; %t.1[$0]
    loop i = 0 .. M step 1 {
      loop s = 0 .. 3 step 1 {
        x = load X[i, s] ; %x[i, s]
        store T[3*i + s] = x ; %t.1[3*i + s]
      }
    }
    loop b = 0 .. 3*M step 1 {
      y = load T[b] ; %t.1[b]
      store Y[b] = y ; store 0 [b]
    }
  }
""",
    host="  buffer T f32[3*M] workspace align 64\n",
)

# Sequential sweeps over diagonals: instances replace elements whose two coordinates are both told by their argument.
SWEEPS = text(
    "cpu:avx2",
    """
  program p
    dim M
    dim N alias M
    dim ln_range = M
    tensor X: i64[M, N]
    tensor Y: i64[M, N] out
    body
      %t: i64[M, N] = load X[M, N]
      region R0 serial (ln in ln_range each) carry (%t.1: i64[M, N] = %t) -> (%t.2)
        region R1 parallel (i in M[0 : M - ln - 1] each) carry (%t.3: i64[M, N] = %t.1) -> (%t.4)
          %d: i64[] = extract %t.3[i, i]
          %t.5: i64[M, N] = insert %t.3[i, i + ln + 1] = %d
          yield %t.5
        yield %t.4
      store Y[M, N] = %t.2
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x i64[]
  frag d i64[]
  frag y i64[]
  role worker agents 1 threads 1 {
    version T ; %t[$0, $1]
    loop a = 0 .. M step 1 {
      loop b = 0 .. M step 1 {
        x = load X[a, b] ; %t[a, b]
        store T[a, b] = x ; %t[a, b]
      }
    }
    loop l = 0 .. M step 1 enters R0(ln = l) {
      invariant T ; %t.1[$0, $1]
      version T ; %t.4[$0, $1]
      tasks (i < M - l - 1) over workers enters R1(i = i) {
        d = load T[i, i] ; %d[]
        store T[i, l + i + 1] = d ; %t.5[i, l + i + 1]
      }
    }
    loop a1 = 0 .. M step 1 {
      loop b1 = 0 .. M step 1 {
        y = load T[a1, b1] ; %t.2[a1, b1]
        store Y[a1, b1] = y ; store 0 [a1, b1]
      }
    }
  }
""",
    host="  buffer T i64[M, M] workspace align 64\n",
)
RIGHT = {
    "sweeps": SWEEPS,
    "pairs": PAIRS,
    "part": PART,
    "chained": CHAINED,
    "scan": SCAN,
    "diagonal": DIAGONAL,
    "gathered": GATHERED,
    "converted": CONVERTED,
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_texts_are_verified(name: str) -> None:
    verified(RIGHT[name])


# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("the last element is not filled", SCAN, "loop b = 0 .. N step 1", "loop b = 0 .. N - 1 step 1", "J1"),
    ("a row of zeros for the filled one", SCAN, "        r = load R[b] ; %t.4[i, b]\n", "        r = copy 0.0\n", "J1"),
    ("a recurrence that starts late", SCAN, "loop j = 0 .. N step 1", "loop j = 1 .. N step 1", "J1"),
    ("the neighbour's row", SCAN, "store T[i, b] = r ; %t.4[i, b]", "store T[0, b] = r ; %t.4[i, b]", "J2"),
    ("every element is the last one", SCAN, "        store R[j] = s ; %t.5[i, j]", "        store R[0] = s ; %t.5[i, j]", "J1"),
    ("the other diagonal", DIAGONAL, "store T[i, N - 1 - i] = x ; %t.1[i, N - 1 - i]", "store T[i, i] = x ; %t.1[i, i]", "J1"),
    ("a diagonal without its end", DIAGONAL, "loop i = 0 .. M step 1", "loop i = 0 .. M - 1 step 1", "J1"),
    ("one element for another", DIAGONAL, "x = load X[i] ; %x[i]", "x = load X[0]", "J1"),
    ("a coordinate that was not promised", GATHERED, "g = load X[i()] ; %x[i()]", "g = load X[w()] ; %x[w()]", "J1"),
    ("the promise of the next element", GATHERED, "      l = load L[m] ; %l[m]\n", "      l = load L[0] ; %l[0]\n", "J1"),
    ("a promise elsewhere", GATHERED, "extract %x[in_range(%i)]", "extract %x[in_range(%w)]", "J1"),
    ("a part that is too small", PART, "tasks (i < min(8, M))", "tasks (i < min(7, M))", "J1"),
    ("zeros where the part is", PART, "y = load T[b] ; %t.2[b]", "y = copy 0.0", "J1"),
    ("an element beside the part", PART, "store T[i] = x ; %t.3[i]", "store T[M - 1 - i] = x ; %t.3[M - 1 - i]", "J1"),
    ("one step of the chain left out", CHAINED, "load X[low2()] ; %x[low2()]", "load X[low()] ; %x[low()]", "J1"),
    ("no promise of the first", CHAINED, "extract %u[in_range(%low)]", "extract %u[%n]", "J1"),
    ("another diagonal of the sweep", SWEEPS, "store T[i, l + i + 1] = d ; %t.5[i, l + i + 1]", "store T[i, l + i] = d ; %t.5[i, l + i]", "J1"),
    ("the diagonal that was", SWEEPS, "store T[i, l + i + 1] = d ; %t.5[i, l + i + 1]", "store T[i, i + 1] = d ; %t.5[i, i + 1]", "J1"),
    ("a sweep that ends early", SWEEPS, "tasks (i < M - l - 1)", "tasks (i < M - l - 2)", "J1"),
    ("a sweep of the source that ends early", SWEEPS, "(i in M[0 : M - ln - 1] each)", "(i in M[0 : M - ln - 2] each)", "J1"),
    ("one replaced element for another", SWEEPS, "insert %t.3[i, i + ln + 1] = %d", "insert %t.3[i, i + 1] = %d", "J1"),
    ("the row of another instance", SWEEPS, "d = load T[i, i] ; %d[]", "d = load T[0, 0] ; %d[]", "J1"),
    ("factors exchanged", PAIRS, "store T[3*i + s] = x ; %t.1[3*i + s]", "store T[2*i + s] = x ; %t.1[2*i + s]", "J1"),
    ("the last factor left out", PAIRS, "loop s = 0 .. 3", "loop s = 0 .. 2", "J1"),
    ("another number", CONVERTED, "s = copy 0.0\n", "s = copy 1.0\n", "J1"),
    ("a number that the narrow dtype rounds", CONVERTED.replace("full 0.0", "full 0.1").replace("s = copy 0.0\n", "s = cast b\n").replace("  frag s", "  frag b bf16[]\n  frag s").replace("    s = cast b", "    b = copy 0.1 ; %b[]\n    s = cast b"), "    s = cast b\n", "    s = copy 0.1\n", "J1"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, right, old, new, judgement = twin
    refused(right, old, new, judgement)
