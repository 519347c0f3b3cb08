"""Workgroups of clusters that leave parts of sums in the workspace, which the next launch folds (machine text)."""

from __future__ import annotations

from typing import Any

from tests.checker.peer_text import BEGIN, MEET, MINE, sums

HOST = """  buffer P f32[M, 2] workspace align 16
  launch parts grid 2 * max(1, min(M, 2)) threads 64 cluster 2
  launch join grid max(1, (M + 31) // 32) threads 32
"""


def text(
    store: str = "store P[t, cta.rank] = p by elect",
    version: str = "version P ; %s[$0] over (n) : " + MINE.format("$1"),
    part: str = MINE.format("cta.rank"),
    load: str = "P[u, i]",
    meet: str = MEET,
    more: str = "",
) -> str:
    """The program."""
    return f"""{sums(HOST)}kernel parts {{
  frag x f32[32] dist (lane 32 axis 0 stride 1, warp 2 axis - stride 0)
  frag p f32[]
  role all agents 1 threads 64 {{
{BEGIN}    {version}
    tasks (t < M) over clusters enters R0(m = t .. t + 1) {{
      x = load X[t, 32*cta.rank + $0] where 32*cta.rank + $0 < N fill -0.0 ; %x[t, 32*cta.rank + $0] where 32*cta.rank + $0 < N
      p = fold add x axes (0) ; %s[t] over (n) : {part}
      {store} ; %s[t] over (n) : {part}
{more}{meet}    }}
{BEGIN}  }}
}}
kernel join {{
  frag a f32[]
  frag q f32[]
  role all agents 1 threads 32 {{
    tasks (u < M) over threads enters R0(m = u .. u + 1) {{
      a = copy -0.0
      loop i = 0 .. 2 step 1 {{
        invariant a ; %s[u] over (n) : 0 <= n, n < N, n < 32*i
        q = load {load} ; %s[u] over (n) : 0 <= n, n < N, 32*i <= n, n < 32*i + 32
        a = fold add q onto a ; %s[u] over (n) : 0 <= n, n < N, n < 32*i + 32
      }}
      store Y[u] = a ; store 0 [u]
    }}
  }}
}}
"""


def room_text(draw: Any) -> tuple[str, tuple[dict[str, int], ...]]:
    """The shape drawn: places of parts exchanged, shared and left out."""
    place = draw.pick("t, cta.rank", "t, 0", "t, 1 - cta.rank", "0, cta.rank", "M - 1 - t, cta.rank")
    store = f"store P[{place}] = p by elect"
    if draw.pick("", "some"):
        store = f"store P[{place}] = p where cta.rank == 0 by elect"
    load = draw.pick("P[u, i]", "P[u, 1 - i]", "P[u, 0]", "P[0, i]")
    return text(store, load=load, meet=draw.pick(MEET, "")), ({"M": 1, "N": 40}, {"M": 3, "N": 50})
