"""Wrong texts by hand, of kinds that no mutation makes, each beside its right twin. Nearly all were verified once."""

from __future__ import annotations

from pathlib import Path

import pytest
from ring_text import RING
from tests.checker.machine_study import truth_of
from tests.checker.random_machines import Drawn
from tests.checker.text_parts import SUMS

from treadle.checker import check
from treadle.machine.parse import parse_machine
from treadle.machine.verify import form_problems


def text(target: str, program: str, guard: str, launch: str, kernel: str, ledger: str = "") -> str:
    """A machine text of one kernel."""
    return f"tdm 1\ntarget {target}\n{ledger}program {{\n{program.strip(chr(10))}\n}}\nguard {{\n{guard}\n}}\nhost {{\n  launch main {launch}\n}}\nkernel main {{\n{kernel.strip(chr(10))}\n}}\n"


NEGATION = """
  program p
    dim M
    dim N
    tensor B: i64[N]
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: f32[m] = load X[m]
        %y: f32[m] = neg %x
        store Y[m] = %y
"""
APART = "  injective(Y)\n  disjoint(X, Y)"
STORE = "      store Y[t] = y ; store 0 [t]\n"
BODY = "      x = load X[t] ; %x[t]\n      y = neg x ; %y[t]\n" + STORE
TASKS = f"    tasks (t < M) over POOL enters R0(m = t .. t + 1) {{\n{BODY}    }}\n"

CPU = text(
    "cpu:avx512",
    NEGATION,
    APART + "\n  disjoint(B, Y)",
    "grid 1 threads 1",
    f"  frag x f32[]\n  frag y f32[]\n  frag r i64[]\n  role worker agents 1 threads 1 {{\n{TASKS.replace('POOL', 'workers')}  }}",
)


def cuda(pool: str, agents: int, threads: int, dist: str) -> str:
    frags = f"  frag x f32[]{dist}\n  frag y f32[]{dist}\n"
    role = f"  role worker agents {agents} threads {threads} {{\n{TASKS.replace('POOL', pool)}  }}"
    program = NEGATION.replace("    tensor B: i64[N]\n", "").replace("    dim N\n", "")
    return text("cuda:sm_90a", program, APART, f"grid 4 threads {agents * threads}", frags + role)


LANES, ALL = " dist (lane 32 axis - stride 0)", " dist (lane 32 axis - stride 0, warp 4 axis - stride 0)"
WARPS, THREADS, GROUP = cuda("warps", 4, 32, LANES), cuda("threads", 1, 128, ""), cuda("persistent", 1, 128, ALL)
MEET = "      sync barrier.sync (id = 0, threads = 128)\n"

IN_PLACE = text(
    "cuda:sm_90a",
    NEGATION.replace("    tensor B: i64[N]\n", "")
    .replace("    dim N\n", "")
    .replace("    tensor X: f32[M]\n", "")
    .replace("load X", "load Y"),
    "  injective(Y)",
    "grid 4 threads 128",
    f"  frag x f32[]{ALL}\n  frag y f32[]{ALL}\n  role worker agents 1 threads 128 {{\n"
    + TASKS.replace("POOL", "persistent").replace("load X", "load Y").replace("      y = neg", MEET + "      y = neg")
    + "  }",
)

LOCALS = THREADS.replace(
    "  frag x", "  buffer la f32[1] local align 4 @ 0\n  buffer lb f32[1] local align 4 @ 4\n  frag x", 1
).replace(
    STORE,
    "      version la ; %x[$0 + t]\n      store la[0] = x ; %x[t]\n      version lb ; %y[$0 + t]\n      store lb[0] = y ; %y[t]\n"
    "      x = load la[0] ; %x[t]\n      y = neg x ; %y[t]\n" + STORE,
)

TWO_ROLES = text(
    "cuda:sm_90a",
    """
  program p
    dim M
    tensor X: f32[M] out
    tensor Y: f32[M] out
    tensor Z: f32[M] out
    body
      region R0 parallel (m in M)
        %x: f32[m] = load X[m]
        %y: f32[m] = neg %x
        store Y[m] = %y
      region R1 parallel (q in M)
        %z: f32[q] = full 0.0
        store Z[q] = %z
""",
    "  injective(X)\n  injective(Y)\n  injective(Z)\n  disjoint(X, Y)\n  disjoint(X, Z)\n  disjoint(Y, Z)",
    "grid 1 threads 64",
    f"""
  frag x f32[]{LANES}
  frag y f32[]{LANES}
  frag z f32[]{LANES}
  role first agents 1 threads 32 {{
    tasks (t < M) over persistent enters R0(m = t .. t + 1) {{
      x = load X[t] ; %x[t]
      y = neg x ; %y[t]
      store Y[t] = y ; store 0 [t]
    }}
  }}
  role second agents 1 threads 32 {{
    let k = 0
    tasks (u < M) over persistent enters R1(q = u .. u + 1) {{
      z = copy 0.0 ; %z[u]
      store Z[u] = z ; store 1 [u]
    }}
  }}
""",
)

CHOICE = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor F: i32[M]
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M each)
        %f: i32[] = load F[m]
        %z: i32[] = full 0
        %c: bool[] = gt %f, %z
        %x: f32[] = load X[m]
        if %c
          store Y[m] = %x
        else
          %w: f32[] = neg %x
          store Y[m] = %w
""",
    "  injective(Y)\n  disjoint(X, Y)\n  disjoint(F, Y)",
    "grid 1 threads 1",
    """
  frag f i32[]
  frag c bool[]
  frag x f32[]
  frag w f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t) {
      f = load F[t] ; %f[]
      c = gt f, 0 ; %c[]
      x = load X[AT] ; %x[] OF
      if cond c source 0 {
        store Y[AT] = x ; store 0 [] OF
      } else {
        w = neg x ; %w[] OF
        store Y[AT] = w ; store 1 [] OF
      }
    }
  }
""",
)
STRAIGHT = CHOICE.replace("AT", "t").replace(" OF", "")
MIRRORED = CHOICE.replace("AT", "M - 1 - t").replace("OF", "at (m = M - 1 - t)")

LANE_SUM = text(
    "cpu:avx512",
    SUMS,
    APART,
    "grid 1 threads 1",
    """
  frag x f32[4]
  frag p f32[4]
  frag s f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      p = copy -0.0
      loop i = 0 .. N step 4 {
        invariant p ; %s[t] over (n) : 0 <= n, n < i, n < N, n == 4*e0 + $0
        x = load X[t, i + $0] where i + $0 < N fill -0.0 ; %x[t, i + $0] where i + $0 < N
        p = add p, x ; %s[t] over (n) : 0 <= n, n < i + 4, n < N, n == 4*e0 + $0
      }
      s = fold add p axes (0) ; %s[t]
      store Y[t] = s ; store 0 [t]
    }
  }
""",
)

ROUNDED = text(
    "cpu:avx512",
    """
  program p
    dim M
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %c: bf16[m] = full 0.1
        %y: f32[m] = cast %c
        store Y[m] = %y
""",
    "  injective(Y)",
    "grid 1 threads 1",
    """
  frag b bf16[]
  frag y f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      b = copy 0.1
      y = cast b ; %y[t]
      store Y[t] = y ; store 0 [t]
    }
  }
""",
)

RELAID = text(
    "cuda:sm_90a",
    """
  program p
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: f32[m] = load X[m]
        %y: f32[m] = neg %x
        store Y[m] = %y
""",
    APART,
    "grid 4 threads 32",
    """
  frag x f32[64] dist (slot 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag y f32[64] dist (slot 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  role worker agents 1 threads 32 {
    tasks (t < (M + 63) // 64) over persistent enters R0(m = 64*t .. min(64*t + 64, M)) {
      x = load X[64*t + $0] where 64*t + $0 < M ; %x[64*t + $0] where 64*t + $0 < M
      y = neg x ; %y[64*t + $0] where 64*t + $0 < M
      store Y[64*t + $0] = y where 64*t + $0 < M ; store 0 [64*t + $0]
    }
  }
""",
)

FOLDED = text(
    "cuda:sm_90a",
    SUMS,
    APART + "\n  64 <= N\n  N <= 64",
    "grid 4 threads 64",
    """
  frag x f32[64] dist (lane 32 axis 0 stride 2, slot 2 axis 0 stride 1, warp 2 axis - stride 0)
  frag s f32[] dist (lane 32 axis - stride 0, warp 2 axis - stride 0)
  role worker agents 1 threads 64 {
    tasks (t < M) over persistent enters R0(m = t .. t + 1) {
      x = load X[t, $0] ; %x[t, $0]
      s = fold add x axes (0) ; %s[t]
      store Y[t] = s ; store 0 [t]
    }
  }
""",
)

OWN_RELEASE = (
    RING.replace(
        """        sync wgmma.wait (depth = 1)
        if 1 <= k0 scope workgroup {
          sync mbar.arrive empty{c - 1} by warp
        }
""",
        "        sync wgmma.wait (depth = 0)\n        sync mbar.arrive empty{c} by warp\n",
    )
    .replace(
        "      sync wgmma.wait (depth = 0)\n      sync mbar.arrive empty{c - 1} by warp\n      loop g", "      loop g"
    )
    .replace("    sync setmaxnreg (registers = 40)\n", "    sync setmaxnreg (registers = 40)\n    let often = 1\n")
    .replace("    sync setmaxnreg (registers = 232)\n", "    sync setmaxnreg (registers = 232)\n    let often = 1\n")
    .replace("      loop k0 = 0 .. K", "      loop z = 0 .. often step 1 {\n      loop k0 = 0 .. K", 1)
    .replace("        advance p\n      }", "        advance p\n      }\n      }")
    .replace("      acc = copy 0.0 ;", "      loop z = 0 .. often step 1 {\n      acc = copy 0.0 ;")
    .replace("        advance e\n      }", "        advance e\n      }\n      }")
)

JUNK = RING.replace("  frag acc f32", f"  frag junk bf16[]{ALL}\n  frag acc f32")
JOINED = RING.replace(
    "sync mbar.arrive empty{c - 1} by warp",
    "sync barrier.sync (id = w + 1, threads = 128)\n          sync mbar.arrive empty{c - 1} by elect",
).replace("count 8", "count 2")
PARITY = """      loop j = 0 .. 2 step 1 {
        r = load B[j] where j < N fill 0
        if r() - 2*(r() // 2) == j {
          store Y[t] = y ; store 0 [t]
        }
      }
"""
UNDEFINED = """      if r() <= 0 {
        store Y[t] = y ; store 0 [t]
      }
      if 1 <= r() {
        store Y[t] = y ; store 0 [t]
      }
"""
MOVED = """      r = index expr 1
      loop j = 0 .. BOUND step 1 {
        store Y[t] = y ; store 0 [t]
        r = index expr 2
      }
"""
LET = MOVED.replace("      loop", "      let h = r()\n      loop").replace("BOUND", "h")
COUNTED = """      if 1 <= z scope workgroup {
        store Y[t] = y ; store 0 [t]
      }
      advance z
      if z <= 0 scope workgroup {
        store Y[t] = y ; store 0 [t]
      }
"""
LEDGER = 'numerics "functions: exp by the hardware (accuracy class fast)"\nprogram {'

# (what is wrong, the right text, what stands there, what stands there instead, judgement)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("warps with tasks of their own join", WARPS, "      y = neg", MEET + "      y = neg", "J5"),
    ("threads with tasks of their own join", THREADS, "      y = neg", MEET + "      y = neg", "J5"),
    ("half a warp", cuda("persistent", 1, 32, LANES), "threads 32", "threads 48", "J5"),
    ("a loop of every workgroup", GROUP, "    tasks (t < M) over persistent", "    tasks (u < 1) over persistent {\n    }\n    loop t = 0 .. M step 1", "J2"),
    ("a counter as a number", GROUP.replace("threads 128 {", "threads 128 counters (z) {"), STORE, COUNTED, "J1"),
    ("an element that a warp's lanes overwrite and read", IN_PLACE, MEET, "", "J2"),
    ("local buffers over one another", LOCALS, "align 4 @ 4", "align 4 @ 0", "J4"),
    ("two roles and one tensor", TWO_ROLES, "store Z[", "store X[", "J2"),
    ("one role of two joins", TWO_ROLES, "    let k = 0", "    sync barrier.sync (id = 0, threads = 64)", "J2"),
    ("the mirrored instance under this one's condition", STRAIGHT, STRAIGHT, MIRRORED, "J1"),
    ("some slots left out of a step", LANE_SUM, "p = add p, x ;", "p = add p, x where $0 < 2 ;", "J1"),
    ("a run-time value of another iteration", CPU, STORE, PARITY, "J1"),
    ("a value that nothing assigned decides", CPU, STORE, UNDEFINED, "J1"),
    ("a bound that the body moves", CPU.replace(STORE, LET), "0 .. h", "0 .. r()", "J5"),
    ("what a program shows", CPU, "        store Y[m] = %y", '        print "y" %y\n        store Y[m] = %y', "J7"),
    ("a permission that nobody gave", CPU, "program {", LEDGER, "J6"),
    ("a permission that nobody knows", CPU, "program {", 'numerics "wish: faster"\nprogram {', "J6"),
    ("a number that one dtype rounds", ROUNDED, "b = copy 0.1\n      y = cast b ;", "y = copy 0.1 ;", "J1"),
    ("an element that another lane holds", RELAID, "frag y f32[64] dist (slot 2 axis 0 stride 1, lane 32 axis 0 stride 2)", "frag y f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)", "J5"),
    ("a fold across warps", FOLDED, "frag x f32[64] dist (lane 32 axis 0 stride 2, slot 2 axis 0 stride 1, warp 2 axis - stride 0)", "frag x f32[64] dist (lane 32 axis 0 stride 2, warp 2 axis 0 stride 1)", "J5"),
    ("steps of a let that another role has too", OWN_RELEASE, "let often = 1", "let often = 2", "J3"),
    ("a slot of a ring written by threads", JUNK, "        advance p", "        junk = copy 0.0\n        store A{p}[0, 0] = junk where K < 0\n        advance p", "J2"),
    ("a staging slot read after its step", JUNK, "        advance e\n", "        advance e\n        junk = load S{e - 1}[w, 0, 0]\n", "J2"),
    ("given back by one thread for all", JOINED, "sync barrier.sync (id = w + 1, threads = 128)\n", "", "J2"),
    ("a named barrier of the next consumer", RING, "(id = w + 1, threads = 128)", "(id = w + 2, threads = 128)", "J5"),
]  # fmt: skip


EVERYWHERE = ("half a warp", "two roles and one tensor")


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_twins(twin: tuple[str, str, str, str, str]) -> None:
    name, right, old, new, judgement = twin
    assert old in right
    good = parse_machine(right.strip("\n") + "\n")
    verdict = check(good)
    assert verdict.status == "verified", str(verdict)
    bad = parse_machine(right.replace(old, new, -1 if name in EVERYWHERE else 1).strip("\n") + "\n")
    assert not form_problems(bad)
    verdict = check(bad)
    assert verdict.status != "verified" and verdict.judgement == judgement, str(verdict)


def test_boxes_lie_at_128_bytes_of_shared_memory() -> None:
    """An engine needs of a place that it is one (PTX ISA, cp.async.bulk.tensor), and where a workgroup's memory begins is
    told by the alignments that its buffers declare."""
    text = (Path(__file__).parent / "patterns" / "box_from_inside_16_bytes.right.tdm").read_text()
    for start, align in ((128, 128), (0, 128), (64, 64), (64, 16), (192, 64), (128, 16)):
        moved = text
        for old, new in (
            ("align 128 versions 2 @ 0", f"align {align} versions 2 @ {start}"),
            ("@ 4096", f"@ {4096 + start}"),
            ("@ 4112", f"@ {4112 + start}"),
            ("shared 4128", f"shared {4128 + start}"),
        ):
            assert old in moved
            moved = moved.replace(old, new)
        program = parse_machine(moved)
        verdict, right = check(program), align % 128 == 0
        assert verdict.status == ("verified" if right else "rejected"), str(verdict)
        assert right or (verdict.judgement, verdict.counterexample) == ("J4", {"align": align})
        truth = truth_of(program, Drawn("places", moved, ({"M": 16, "N": 64},)))
        assert truth[0] == ("safe" if start % 128 == 0 else "unsafe"), truth


def test_swizzled_places_begin_where_the_pattern_does() -> None:
    """The pattern is one of addresses; where the memory begins is told by the largest alignment that is declared."""
    assert RING.count("align 1024") > 1
    for moved, status in (
        (RING.replace("align 1024", "align 512"), "rejected"),
        (RING.replace("align 1024", "align 512", 1), "verified"),
    ):
        verdict = check(parse_machine(moved.strip("\n") + "\n"))
        assert verdict.status == status and verdict.judgement in (None, "J4"), str(verdict)
