"""A cluster in which one role leaves parts of a sum in shared memory and another one folds them (machine text)."""

from __future__ import annotations

from typing import Any

from tests.checker.counter_text import SUMS
from tests.checker.peer_text import FOLD, MEET, MINE, PART

HEAD = f"""tdm 1
target cuda:sm_90a
numerics "permute %s: sums in lanes, by workgroups"
program {{
{SUMS}}}
guard {{
  N <= 64
  unit(X, 1)
  disjoint(X, Y)
  injective(Y)
}}
host {{
  launch main grid 2 * max(1, min(M, 2)) threads 64 cluster 2 shared 64
}}
kernel main {{
  buffer S f32[2] shared align 16 @ 0
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag p f32[]
  frag a f32[]
  frag q f32[]
"""
BEGIN = "    sync cluster.arrive\n    sync cluster.wait\n"
NEAR = f"      version S ; %s[t] over (n) : {MINE.format('cta.rank')}\n      store S[0] = p by elect\n"
FAR = f"      version S ; %s[t] over (n) : {MINE.format('$0')}\n      store S@(0)[cta.rank] = p by elect\n      store S@(1)[cta.rank] = p by elect\n"
ALL, OWN = (FOLD.replace("SLOT", slot).replace("[t]", "[u]") for slot in ("S@(i)[0]", "S[i]"))


def text(maker: list[str], folder: list[str]) -> str:
    """What the two roles do in a task."""
    return f"""{HEAD}  role maker agents 1 threads 32 {{
{BEGIN}    tasks (t < M) over clusters enters R0(m = t .. t + 1) {{
{"".join(maker)}    }}
{BEGIN}  }}
  role folder agents 1 threads 32 {{
{BEGIN}    tasks (u < M) over clusters enters R0(m = u .. u + 1) {{
{"".join(folder)}    }}
{BEGIN}  }}
}}
"""


RIGHT = {
    "near stores, far loads": ([PART, NEAR, MEET, MEET], [MEET, ALL, MEET]),
    "far stores, near loads": ([PART, FAR, MEET, MEET], [MEET, OWN, MEET]),
}


def passed_text(draw: Any) -> tuple[str, tuple[dict[str, int], ...]]:
    """The shape drawn: meetings lost, moved and of others, slots and ranks changed."""
    near = draw.flip()
    store, load = (NEAR, ALL) if near else (FAR, OWN)
    store = store.replace("S[0] = p", draw.pick("S[0] = p", "S[1] = p")).replace(
        "store S@(1)", f"store S@({draw.pick('1', '0')})"
    )
    own = "      sync barrier.sync (id = {}, threads = 32)\n"
    maker = [PART, draw.pick("", MEET), store, draw.pick(MEET, "", own.format(1)), draw.pick(MEET, "", MEET + MEET)]
    folder = [draw.pick(MEET, "", own.format(2)), load, draw.pick(MEET, "", MEET + MEET)]
    if draw.flip(0.2):
        maker, folder = [PART, MEET, store, MEET], [MEET, MEET, load]
    return text(maker, folder), ({"M": 1, "N": 40}, {"M": 3, "N": 50})
