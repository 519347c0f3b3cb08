"""What promises tell of an access, and how much the judge looks at for that."""

from __future__ import annotations

import pytest
from machine_text import refused, text, verified

from treadle.checker.judge import Judge
from treadle.checker.verdict import Spent
from treadle.driver.candidates import families
from treadle.lib.fourier import fft
from treadle.machine.form import MachineProgram
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose

# A place in a list, promised, says which element of X; promised where it is positive, another one.
LISTS = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    dim K
    tensor L: i32[M]
    tensor J: i32[N]
    tensor X: f32[K]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M each)
        %l: i32[] = load L[m]
        %e: i32[] = load J[in_range(%l())]
        %x: f32[] = load X[in_range(%e())]
        %zero: i32[] = full 0
        %c: bool[] = gt %l, %zero
        if %c
          %p: i32[] = load J[0]
          %z: f32[] = load X[in_range(%p())]
          store Y[m] = %z
        else
          store Y[m] = %x
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)\n  disjoint(J, Y)",
    "grid 1 threads 1",
    """
  frag l i32[]
  frag e i32[]
  frag x f32[]
  frag p i32[]
  frag z f32[]
  frag c bool[]
  role worker agents 1 threads 1 {
    loop i = 0 .. M step 1 enters R0(m = i) {
      l = load L[i] ; %l[]
      e = load J[l()] ; %e[]
      x = load X[e()] ; %x[]
      c = gt l, 0 ; %c[]
      if cond c source 0 {
        p = load J[0] ; %p[]
        z = load X[p()] ; %z[]
        store Y[i] = z ; store 0 []
      } else {
        store Y[i] = x ; store 1 []
      }
    }
  }
""",
)


def test_a_chain_is_verified() -> None:
    verified(LISTS)


CLAMPED = LISTS.replace("  frag x f32[]\n", "  frag h i32[]\n  frag x f32[]\n").replace(
    "      c = gt l, 0",
    "      h = maximum e, 0\n      x = load X[h()]\n      x = load X[e()] ; %x[]\n      c = gt l, 0",
)
"""A place that is no promised element itself: what is promised of another fragment tells of it."""


def test_a_clamp_of_a_promised_place_is_inside() -> None:
    verified(CLAMPED)
    refused(CLAMPED, "maximum e, 0", "maximum e, 1", "J1")
    refused(CLAMPED, "maximum e, 0", "maximum l, 0", "J1")


TWINS: list[tuple[str, str, str, str]] = [
    # what is wrong, what stands there, what stands there instead, judgement
    ("no promise of the place in the list", "J[in_range(%l())]", "J[%l()]", "J1"),
    ("no promise of the element of X", "%x: f32[] = load X[in_range(%e())]", "%x: f32[] = load X[%e()]", "J1"),
    ("a promise of another element", "%x: f32[] = load X[in_range(%e())]", "%x: f32[] = load X[in_range(%l())]", "J1"),
    ("what holds in one way only, before it", "      c = gt l, 0 ; %c[]\n", "      c = gt l, 0 ; %c[]\n      p = load J[0] ; %p[]\n      z = load X[p()] ; %z[]\n", "J1"),
    ("what holds in one way only, in the other", "      } else {\n", "      } else {\n        p = load J[0] ; %p[]\n        z = load X[p()] ; %z[]\n", "J1"),
    ("the place in the list for the element", "x = load X[e()]", "x = load X[l()]", "J1"),
    ("the next element", "x = load X[e()]", "x = load X[e() + 1]", "J1"),
    ("the same place in another instance", "l = load L[i] ; %l[]", "l = load L[0]", "J1"),
    ("an instance of the next row", "enters R0(m = i)", "enters R0(m = i + 1)", "J1"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str]) -> None:
    _, old, new, judgement = twin
    refused(LISTS, old, new, judgement)


def planned(count: int, target: str) -> MachineProgram:
    """The cheapest plan of a transform of rows: `count` elements at places that are computed, stage after stage."""
    program = fft.definition.capture({}, {}, extents={"N": count, "N.extent": count})
    facts = contiguous(program, target, {"M": 3, "N": count})
    known = families(target)
    best = choose(program, facts, known).best.plan
    family = next(f for f in known if f.name == best.family)
    return family.build(program, facts, best.point, best.guard)


def looked(machine: MachineProgram) -> tuple[int, int]:
    """How many elements the judge took for promised ones, or compared with one, and how many statements there are."""
    judge = Judge(machine, {id(s): i for i, s in enumerate(machine.statements())}, Spent())
    judge.run()
    return judge.walk.statements.promises.looked, sum(1 for _ in machine.statements())


@pytest.mark.parametrize("target", ["cpu:avx512", "cuda:sm_90a"])
def test_work_grows_with_the_text(target: str) -> None:
    """Where places stand in places, promises are looked for among what a statement names, not among all that there
    is."""
    for count in (8, 16):
        elements, statements = looked(planned(count, target))
        assert elements <= statements


# A promise of a region is in force where the region has an instance: what is loaded before it must not ask for more.
HOISTED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    dim K
    tensor L: i32[M]
    tensor X: f32[N]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M each)
        %l: i32[] = load L[m]
        %z: f32[] = full 0.0
        region R1 serial (k in K) carry (%s: f32[] = %z) -> (%r)
          %x: f32[] = load X[in_range(%l())]
          %t: f32[] = add %s, %x
          yield %t
        store Y[m] = %r
""",
    "  1 <= K\n  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  frag l i32[]
  frag x f32[]
  frag s f32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. M step 1 enters R0(m = i) {
      l = load L[i] ; %l[]
      x = load X[l()] ; %x[]
      s = copy 0.0 ; %z[]
      loop b = 0 .. K step 1 enters R1(k = b .. b + 1) {
        invariant s ; %s[]
        s = add s, x ; %t[]
      }
      store Y[i] = s ; store 0 []
    }
  }
""",
)
PACKED = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim N
    dim K
    tensor L: i32[M]
    tensor X: f32[N, K]
    tensor Y: f32[M, K] out
    body
      region R0 parallel (m in M each)
        %l: i32[] = load L[m]
        region R1 parallel (k in K)
          %x: f32[k] = load X[in_range(%l()), k]
          store Y[m, k] = %x
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(L, Y)",
    "grid 1 threads 1",
    """
  buffer B f32[K + 1] local align 64
  frag l i32[]
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    loop i = 0 .. M step 1 enters R0(m = i) {
      l = load L[i] ; %l[]
      version B ; %x[$0] where $0 < K
      loop j = 0 .. K step 1 {
        x = load X[l(), j] ; %x[j]
        store B[j] = x ; %x[j]
      }
      loop b = 0 .. K step 1 enters R1(k = b .. b + 1) {
        y = load B[b] ; %x[b]
        store Y[i, b] = y ; store 0 [b]
      }
    }
  }
""",
)


def test_loads_before_the_region_of_their_promise() -> None:
    verified(HOISTED)
    verified(PACKED)
    refused(HOISTED, "  1 <= K\n", "", "J1")
    refused(HOISTED, "  1 <= K\n", "  0 <= K\n", "J1")
    refused(HOISTED, "(k in K)", "(k in K[1 : K])", "J1")
    refused(HOISTED, "load X[in_range(%l())]", "load X[%l()]", "J1")
    refused(PACKED, "load X[in_range(%l()), k]", "load X[%l(), k]", "J1")
    refused(PACKED, "      loop j = 0 .. K step 1 {", "      y = load X[l(), 0]\n      loop j = 0 .. K step 1 {", "J1")
    refused(PACKED, "(k in K)", "(k in K[0 : 5])", "J1")
    refused(PACKED, "loop j = 0 .. K step 1", "loop j = 0 .. K + 1 step 1", "J1")


EMPTY = text(
    "cpu:avx512",
    """
  program p
    dim T
    dim N
    dim V
    tensor I: i32[T]
    tensor X: f32[V, N]
    tensor Z: f32[V]
    tensor Y: f32[T, N] out
    body
      region R0 parallel (t in T each)
        %i: i32[] = load I[t]
        %x: f32[N] = load X[in_range(%i()), N]
        region R1 parallel (n in N each)
          %z: f32[] = load Z[in_range(%i())]
          %e: f32[] = extract %x[n]
          %y: f32[] = add %e, %z
          store Y[t, n] = %y
""",
    "  1 <= N\n  injective(Y)\n  disjoint(I, Y)\n  disjoint(X, Y)\n  disjoint(Z, Y)",
    "grid 1 threads 1",
    """
  frag i i32[]
  frag z f32[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (a < T) over workers enters R0(t = a) {
      i = load I[a] ; %i[]
      z = load Z[i()] ; %z[]
      loop b = 0 .. N step 1 enters R1(n = b) {
        x = load X[i(), b] ; %x[b]
        x = add x, z ; %y[]
        store Y[a, b] = x ; store 0 []
      }
    }
  }
""",
)


def test_a_promise_about_no_element_says_nothing() -> None:
    """`X[in_range(i), N]` loads nothing where N is 0, whatever i is."""
    verified(EMPTY)
    refused(EMPTY, "  1 <= N\n", "", "J1")
