"""A cluster in which one role hands blocks to another by named barriers, which leaves parts for the whole cluster."""

from __future__ import annotations

from typing import Any

from tests.checker.peer_text import ALL, LAUNCH, MEET, MINE, NEAR, role, sums
from tests.checker.text_parts import DISJOINT, ROWS, opening

HEAD = f"""{sums(LAUNCH.format(192))}kernel main {{
  buffer S f32[2] shared align 16 @ 0
  buffer T f32[32] shared align 16 @ 64
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag z f32[32] dist (lane 32 axis 0 stride 1)
  frag p f32[]
  frag a f32[]
  frag q f32[]
"""
INSIDE = "32*cta.rank + $0 < N"
FILL = f"""      x = load X[u, 32*cta.rank + $0] where {INSIDE} fill -0.0 ; %x[u, 32*cta.rank + $0] where {INSIDE}
      version T fill -0.0 ; %x[u, 32*cta.rank + $0] where {INSIDE}
      store T[$0] = x
"""
TAKE = f"""      z = load T[$0] ; %x[t, 32*cta.rank + $0] where {INSIDE}
      z = copy z where {INSIDE} fill -0.0 ; %x[t, 32*cta.rank + $0] where {INSIDE}
      p = fold add z axes (0) ; %s[t] over (n) : {MINE.format("cta.rank")}
"""
FULL, FREE = "      sync barrier.{} (id = 1, threads = 64)\n", "      sync barrier.{} (id = 2, threads = 64)\n"
fill, take, free, reuse = FULL.format("arrive"), FULL.format("sync"), FREE.format("arrive"), FREE.format("sync")
GIVER = [FILL, fill, MEET, reuse, MEET]
TAKER = [take, TAKE, free, NEAR, MEET, ALL, MEET]


def text(giver: list[str] | None = None, taker: list[str] | None = None) -> str:
    """What the two roles do in a task."""
    gives = role("giver agents 1 threads 32", "u", giver or GIVER)
    takes = role("taker agents 1 threads 32", "t", taker or TAKER)
    return f"{HEAD}{gives}{takes}}}\n"


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


BLOCKS = opening("cuda:sm_90a", ROWS, DISJOINT, LAUNCH.format(256))
BLOCKS += """kernel main {
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
