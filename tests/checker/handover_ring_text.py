"""Texts of three roles: a producer fills a ring, its taker hands what it made to a third role by named barriers."""

from __future__ import annotations

from tests.checker.random_handovers import FREE, FULL
from tests.checker.text_parts import DISJOINT, ROWS, boxes, opening

HOST = """  map mX of X f32 box (1, 64) swizzle 0 fill zero promotion 256
  launch main grid max(1, min(M, 2)) threads 128 shared 1024
"""
HEAD = opening("cuda:sm_90a", ROWS, DISJOINT + boxes("X"), HOST)
KERNEL = """kernel main {{
  buffer A f32[64] shared align 128 versions 2 @ 0
  buffer S f32[64] shared align 16 @ 512
  frag x f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)
  frag z f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag y f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  barrier full count 1 versions 2 tx @ 768
  barrier empty count 32 versions 2 @ 784
  role producer agents 1 threads 32 counters (p) {{
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 128)
    tasks (v < M) over persistent enters R0(m = v .. v + 1) {{
      loop h = 0 .. (N + 63) // 64 step 1 {{
        sync mbar.wait empty{{p}} (phase = (p // 2 + 1) % 2) by elect
        sync mbar.expect full{{p}} (bytes = 256) by elect
        version A fill 0 ; %x[v, 64 * h + $0] where 64 * h + $0 < N
        copy tma.load A{{p}}[$1] = X[v, 64 * h + $1] box (1, 64) signal full{{p}} map mX by elect
        advance p
{in_producer}      }}
    }}
  }}
  role one agents 1 threads 32 counters (c) {{
    sync barrier.sync (id = 0, threads = 128)
    tasks (t < M) over persistent enters R0(m = t .. t + 1) {{
      loop j = 0 .. (N + 63) // 64 step 1 {{
        sync mbar.wait full{{c}} (phase = c // 2 % 2)
        x = load A{{c}}[$0] where 64 * j + $0 < N ; %x[t, 64 * j + $0] where 64 * j + $0 < N
        sync fence.proxy.async
        sync mbar.arrive empty{{c}}
        advance c
        version S ; %x[t, 64 * j + $0] where 64 * j + $0 < N
        store S[$0] = x where 64 * j + $0 < N
{given}      }}
    }}
  }}
  role two agents 1 threads 64 {{
    sync barrier.sync (id = 0, threads = 128)
    tasks (u < M) over persistent enters R0(m = u .. u + 1) {{
      loop i = 0 .. (N + 63) // 64 step 1 {{
{taken}        z = load S[$0] where 64 * i + $0 < N ; %x[u, 64 * i + $0] where 64 * i + $0 < N
{done}        y = abs z where 64 * i + $0 < N ; %y[u, 64 * i + $0] where 64 * i + $0 < N
        store Y[u, 64 * i + $0] = y where 64 * i + $0 < N ; store 0 [u, 64 * i + $0]
      }}
    }}
  }}
}}
"""


def text(given: list[str], taken: list[str], done: list[str], in_producer: list[str] | None = None) -> str:
    """The three roles, with synchronisation at these places."""
    parts = (given, taken, done, in_producer or [])
    told = ["".join(f"        sync {line}\n" for line in part) for part in parts]
    return HEAD + KERNEL.format(given=told[0], taken=told[1], done=told[2], in_producer=told[3])


fill, take = FULL.format("arrive"), FULL.format("sync")
free, reuse = FREE.format("arrive"), FREE.format("sync")
RIGHT = text([fill, reuse], [take], [free])
