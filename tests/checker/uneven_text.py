"""Sums of rows in blocks, cut evenly over all blocks of all rows: how many parts touch a row hangs on the row, and whoever
arrives last of those folds them (machine text)."""

from __future__ import annotations

from tests.checker.counter_text import LEDGER
from tests.checker.text_parts import DISJOINT, SUMS, opening

COUNT = "(3*t + 2) // 4 - 3*t // 4 + 1"
"""Three blocks a row, four a part: how many parts touch row `t`, the first of which is `3*t // 4`."""


def within(row: str, part: str) -> str:
    """The columns of row `row` that its part `part` has."""
    g = f"(3*{row} // 4 + {part})"
    return f"0 <= n, n < N, 128*{g} - 96*{row} <= n, n < 128*{g} + 128 - 96*{row}"


PART = f"""        p = copy -0.0
        loop b = max(0, 4*(3*t // 4 + s) - 3*t) .. min(3, 4*(3*t // 4 + s) + 4 - 3*t) step 1 {{
          invariant p ; %s[t] over (n) : {within("t", "s")}, n < 32*b
          x = load X[t, 32*b + $0] where 32*b + $0 < N fill -0.0 ; %x[t, 32*b + $0] where 32*b + $0 < N
          q = fold add x axes (0) ; %s[t] over (n) : 0 <= n, n < N, 32*b <= n, n < 32*b + 32
          p = fold add q onto p ; %s[t] over (n) : {within("t", "s")}, n < 32*b + 32
        }}
        store P[t, s] = p by elect
"""
WHOLE = f"""          a = copy -0.0
          loop i = 0 .. OF step 1 {{
            invariant a ; %s[t] over (n) : 0 <= n, n < N, n < 128*(3*t // 4 + i) - 96*t
            r = load P[t, i] ; %s[t] over (n) : {within("t", "i")}
            a = fold add r onto a ; %s[t] over (n) : 0 <= n, n < N, n < 128*(3*t // 4 + i) + 128 - 96*t
          }}
          store Y[t] = a by elect ; store 0 [t]
"""
LAST = f"""        if last C[t] of OF id 0 threads 32 enters R0(m = t .. t + 1) {{
{WHOLE}        }}
"""


def uneven(
    some: str = "s < COUNT",
    of: str = COUNT,
    most: int = 2,
    over: str = "grid",
    launch: str = "grid 2*M threads 32",
    part: str = PART,
    last: str = LAST,
) -> str:
    """Tasks (row, part of it) of which those that exist arrive."""
    tail = f"      if {some.replace('COUNT', COUNT)} scope workgroup {{\n{part}{last.replace('OF', of)}      }}\n"
    guard = "  1 <= M\n  N <= 96\n  unit(X, 1)\n" + DISJOINT
    host = f"  buffer P f32[M, {most}] workspace align 64\n  counter C[M]\n  launch main {launch}\n"
    return f"""{opening("cuda:sm_80", SUMS, guard, host, LEDGER)}kernel main {{
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag p f32[]
  frag q f32[]
  frag a f32[]
  frag r f32[]
  role all agents 1 threads 32 {{
    version P ; %s[$0] over (n) : {within("$0", "$1")}
    tasks (t < M, s < {most}) over {over} {{
{tail}    }}
  }}
}}
"""
