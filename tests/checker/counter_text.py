"""Texts of launches whose workgroups count: sums of rows in parts, folded by who arrives last or by an owner."""

from __future__ import annotations

from tests.checker.text_parts import DISJOINT, SUMS, boxes, opening

LEDGER = 'numerics "permute %s: sums in lanes, in parts"\n'
PART = """      x = load X[t, 32*s + $0] where 32*s + $0 < N fill -0.0 ; %x[t, 32*s + $0] where 32*s + $0 < N
      p = fold add x axes (0) ; %s[t] over (n) : 0 <= n, n < N, 32*s <= n, n < 32*s + 32
      store P[t, s] = p by elect
"""

WHOLE = """        a = copy -0.0
        loop i = 0 .. S step 1 {
          invariant a ; %s[t] over (n) : 0 <= n, n < N, n < 32*i
          q = load P[t, i] ; %s[t] over (n) : 0 <= n, n < N, 32*i <= n, n < 32*i + 32
          a = fold add q onto a ; %s[t] over (n) : 0 <= n, n < N, n < 32*i + 32
        }
        store Y[t] = a by elect ; store 0 [t]
"""

LAST = f"""      if last C[t] of S id 0 threads 32 enters R0(m = t .. t + 1) {{
{WHOLE}      }}
"""

OWNER = f"""      sync barrier.sync (id = 0, threads = 32)
      sync counter.add C[t] by elect
      if s == S - 1 enters R0(m = t .. t + 1) {{
        sync counter.wait C[t] (count = S) by elect
        sync barrier.sync (id = 0, threads = 32)
{WHOLE}      }}
"""


def counted(
    tail: str = LAST,
    *,
    over: str = "grid",
    launch: str = "grid M * S threads 32",
    arch: str = "sm_80",
    part: str = PART,
) -> str:
    """A launch of tasks (row, part of it) that end with `tail`."""
    host = f"""  let S = (N + 31) // 32
  buffer P f32[M, S] workspace align 64
  counter C[M]
  launch main {launch}
"""
    guard = "  1 <= M\n  1 <= N\n  unit(X, 1)\n" + DISJOINT
    return f"""{opening(f"cuda:{arch}", SUMS, guard, host, LEDGER)}kernel main {{
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag p f32[]
  frag a f32[]
  frag q f32[]
  role all agents 1 threads 32 {{
    version P ; %s[$0] over (n) : 0 <= n, n < N, 32*$1 <= n, n < 32*$1 + 32
    tasks (t < M, s < S) over {over} {{
{part}{tail}    }}
  }}
}}
"""


PAIR = """      x = load A{c}[16*w + $0] ; %x[t, 32*s + 16*w + $0] where 32*s + 16*w + $0 < N
      sync fence.proxy.async
      sync mbar.arrive empty{c}
      advance c
      z = copy x where 32*s + 16*w + $0 < N fill -0.0 ; %x[t, 32*s + 16*w + $0] where 32*s + 16*w + $0 < N
      p = fold add z axes (0) ; %s[t] over (n) : 0 <= n, n < N, 32*s + 16*w <= n, n < 32*s + 16*w + 16
      store P[t, 2*s + w] = p by elect
      if last C[t] of 2*S id w + 1 threads 32 enters R0(m = t .. t + 1) {
        a = copy -0.0
        loop i = 0 .. 2*S step 1 {
          invariant a ; %s[t] over (n) : 0 <= n, n < N, n < 16*i
          q = load P[t, i] ; %s[t] over (n) : 0 <= n, n < N, 16*i <= n, n < 16*i + 16
          a = fold add q onto a ; %s[t] over (n) : 0 <= n, n < N, n < 16*i + 16
        }
        store Y[t] = a by elect ; store 0 [t]
      }
"""


def of_two_consumers(text: str) -> str:
    """`RINGS` with two consumers, each of which takes half of a slot; whoever comes last folds the parts of all."""
    for old, new in (
        ("threads 64 shared", "threads 96 shared"),
        ("count 32 versions", "count 64 versions"),
        ("threads = 64", "threads = 96"),
        ("role consumer agents 1 threads 32 counters", "role consumer agents 2 threads 32 index w counters"),
        ("P f32[M, S]", "P f32[M, 2*S]"),
        ("f32[32] dist (lane 32 axis 0 stride 1)", "f32[16] dist (lane 16 axis 0 stride 1, lane 2 axis - stride 0)"),
        ("32*$1 <= n, n < 32*$1 + 32", "16*$1 <= n, n < 16*$1 + 16"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    begin = text.index("      x = load A{c}")
    return text[:begin] + PAIR + text[text.index("    }\n  }\n}\n", begin) :]


HOST = """  let S = (N + 31) // 32
  buffer P f32[M, S] workspace align 64
  map mX of X f32 box (1, 32) swizzle 0 fill zero promotion 256
  counter C[M]
  launch main grid 2 threads 64 shared 288
"""
GUARD = "  1 <= M\n  1 <= N\n" + boxes("X") + DISJOINT
RINGS = f"""{opening("cuda:sm_90a", SUMS, GUARD, HOST, LEDGER)}kernel main {{
  buffer A f32[32] shared align 128 versions 2 @ 0
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag z f32[32] dist (lane 32 axis 0 stride 1)
  frag p f32[]
  frag a f32[]
  frag q f32[]
  barrier full count 1 versions 2 tx @ 256
  barrier empty count 32 versions 2 @ 272
  role producer agents 1 threads 32 counters (b) {{
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 64)
    tasks (t < M, s < S) over persistent {{
      sync mbar.wait empty{{b}} (phase = (b // 2 + 1) % 2) by elect
      sync mbar.expect full{{b}} (bytes = 128) by elect
      version A fill 0 ; %x[t, 32*s + $0] where 32*s + $0 < N
      copy tma.load A{{b}}[$1] = X[t, 32*s + $1] box (1, 32) signal full{{b}} map mX by elect
      advance b
    }}
  }}
  role consumer agents 1 threads 32 counters (c) {{
    sync barrier.sync (id = 0, threads = 64)
    version P ; %s[$0] over (n) : 0 <= n, n < N, 32*$1 <= n, n < 32*$1 + 32
    tasks (t < M, s < S) over persistent {{
      sync mbar.wait full{{c}} (phase = c // 2 % 2)
      x = load A{{c}}[$0] ; %x[t, 32*s + $0] where 32*s + $0 < N
      sync fence.proxy.async
      sync mbar.arrive empty{{c}}
      advance c
      z = copy x where 32*s + $0 < N fill -0.0 ; %x[t, 32*s + $0] where 32*s + $0 < N
      p = fold add z axes (0) ; %s[t] over (n) : 0 <= n, n < N, 32*s <= n, n < 32*s + 32
      store P[t, s] = p by elect
      if last C[t] of S id 1 threads 32 enters R0(m = t .. t + 1) {{
{WHOLE}      }}
    }}
  }}
}}
"""
