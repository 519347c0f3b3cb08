"""A cluster in which one role hands blocks to another by named barriers, which leaves parts for the whole cluster."""

from __future__ import annotations

from typing import Any

from tests.checker.counter_text import SUMS
from tests.checker.peer_text import FOLD, MEET, MINE

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
  launch main grid 2 * max(1, min(M, 2)) threads 64 cluster 2 shared 192
}}
kernel main {{
  buffer S f32[2] shared align 16 @ 0
  buffer T f32[32] shared align 16 @ 64
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag z f32[32] dist (lane 32 axis 0 stride 1)
  frag p f32[]
  frag a f32[]
  frag q f32[]
"""
BEGIN = "    sync cluster.arrive\n    sync cluster.wait\n"
INSIDE = "32*cta.rank + $0 < N"
FILL = f"""      x = load X[u, 32*cta.rank + $0] where {INSIDE} fill -0.0 ; %x[u, 32*cta.rank + $0] where {INSIDE}
      version T fill -0.0 ; %x[u, 32*cta.rank + $0] where {INSIDE}
      store T[$0] = x
"""
TAKE = f"""      z = load T[$0] ; %x[t, 32*cta.rank + $0] where {INSIDE}
      z = copy z where {INSIDE} fill -0.0 ; %x[t, 32*cta.rank + $0] where {INSIDE}
      p = fold add z axes (0) ; %s[t] over (n) : {MINE.format("cta.rank")}
"""
TELL = f"      version S ; %s[t] over (n) : {MINE.format('cta.rank')}\n      store S[0] = p by elect\n"
READ = FOLD.replace("SLOT", "S@(i)[0]")
FULL, FREE = "      sync barrier.{} (id = 1, threads = 64)\n", "      sync barrier.{} (id = 2, threads = 64)\n"
fill, take, free, reuse = FULL.format("arrive"), FULL.format("sync"), FREE.format("arrive"), FREE.format("sync")
GIVER = [FILL, fill, MEET, reuse, MEET]
TAKER = [take, TAKE, free, TELL, MEET, READ, MEET]


def text(giver: list[str] | None = None, taker: list[str] | None = None) -> str:
    """What the two roles do in a task."""
    return f"""{HEAD}  role giver agents 1 threads 32 {{
{BEGIN}    tasks (u < M) over clusters enters R0(m = u .. u + 1) {{
{"".join(giver or GIVER)}    }}
{BEGIN}  }}
  role taker agents 1 threads 32 {{
{BEGIN}    tasks (t < M) over clusters enters R0(m = t .. t + 1) {{
{"".join(taker or TAKER)}    }}
{BEGIN}  }}
}}
"""


def handover_cluster_text(draw: Any) -> tuple[str, tuple[dict[str, int], ...]]:
    """The shape drawn: statements lost, moved and turned."""
    giver, taker = list(GIVER), list(TAKER)
    for body in (giver, taker):
        for line in [x for x in body if x in (fill, take, free, reuse, MEET)]:
            at = body.index(line)
            match draw.pick("keep", "keep", "lose", "move", "turn"):
                case "lose":
                    del body[at]
                case "move":
                    del body[at]
                    body.insert(draw.random.randrange(len(body) + 1), line)
                case "turn" if line != MEET:
                    body[at] = (
                        line.replace("sync (", "arrive (") if "sync (" in line else line.replace("arrive (", "sync (")
                    )
                case _:
                    pass
    return text(giver, taker), ({"M": 1, "N": 40}, {"M": 3, "N": 50})


BLOCKS = """tdm 1
target cuda:sm_90a
program {
  program rows
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        %y: f32[m, N] = abs %x
        store Y[m, N] = %y
}
guard {
  disjoint(X, Y)
  injective(Y)
}
host {
  launch main grid 2 * max(1, min(M, 2)) threads 64 cluster 2 shared 256
}
kernel main {
  buffer S f32[32] shared align 16 @ 0
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag z f32[32] dist (lane 32 axis 0 stride 1)
  frag y f32[32] dist (lane 32 axis 0 stride 1)
  role one agents 1 threads 32 {
    sync cluster.arrive
    sync cluster.wait
    tasks (t < M) over clusters enters R0(m = t .. t + 1) {
      loop j = 0 .. (N + 31) // 32 step 1 {
        x = load X[t, 32 * j + $0] where 32 * j + $0 < N ; %x[t, 32 * j + $0] where 32 * j + $0 < N
        version S ; %x[t, 32 * j + $0] where 32 * j + $0 < N
        store S[$0] = x where 32 * j + $0 < N
        sync barrier.arrive (id = 1, threads = 64)
        sync barrier.sync (id = 2, threads = 64)
      }
      sync cluster.arrive
      sync cluster.wait
    }
    sync cluster.arrive
    sync cluster.wait
  }
  role two agents 1 threads 32 {
    sync cluster.arrive
    sync cluster.wait
    tasks (u < M) over clusters enters R0(m = u .. u + 1) {
      loop i = 0 .. (N + 31) // 32 step 1 {
        sync barrier.sync (id = 1, threads = 64)
        z = load S[$0] where 32 * i + $0 < N ; %x[u, 32 * i + $0] where 32 * i + $0 < N
        sync barrier.arrive (id = 2, threads = 64)
        y = abs z where 32 * i + $0 < N ; %y[u, 32 * i + $0] where 32 * i + $0 < N
        if cta.rank == 0 scope workgroup {
        store Y[u, 32 * i + $0] = y where 32 * i + $0 < N ; store 0 [u, 32 * i + $0]
        }
      }
      sync cluster.arrive
      sync cluster.wait
    }
    sync cluster.arrive
    sync cluster.wait
  }
}
"""
"""Blocks handed over in a loop, behind which the cluster meets."""
