"""A cluster whose takers of a ring read one another's shared memory, beside the role that fills the ring (machine text)."""

from __future__ import annotations

from tests.checker.peer_text import ALL, MEET, MINE, NEAR, role, sums
from tests.checker.text_parts import boxes

HOST = """  map mX of X f32 box (1, 32) swizzle 0 fill zero promotion 256
  launch main grid 2 * max(1, min(M, 2)) threads 96 cluster 2 shared 512
"""
GUARD = "  N <= 64\n  1 <= N\n" + boxes("X")
HEAD = f"""{sums(HOST, GUARD)}kernel main {{
  buffer A f32[32] shared align 128 versions 2 @ 0
  buffer S f32[2] shared align 16 @ 256
  frag x f32[32] dist (lane 32 axis 0 stride 1, warp 2 axis - stride 0)
  frag z f32[32] dist (lane 32 axis 0 stride 1, warp 2 axis - stride 0)
  frag p f32[]
  frag a f32[]
  frag q f32[]
  barrier full count 1 versions 2 tx @ 384
  barrier empty count 64 versions 2 @ 400
"""
COLUMNS = "32*cta.rank + {0} < N"
STEP = f"""      sync mbar.wait empty{{r}} (phase = (r // 2 + 1) % 2) by elect
      sync mbar.expect full{{r}} (bytes = 128) by elect
      version A fill 0 ; %x[u, 32*cta.rank + $0] where {COLUMNS.format("$0")}
      copy tma.load A{{r}}[$1] = X[u, 32*cta.rank + $1] box (1, 32) signal full{{r}} map mX by elect
      advance r
"""
TAKE = f"""      sync mbar.wait full{{c}} (phase = c // 2 % 2)
      z = load A{{c}}[$0] ; %x[t, 32*cta.rank + $0] where {COLUMNS.format("$0")}
      sync fence.proxy.async
      sync mbar.arrive empty{{c}}
      advance c
      x = copy z where {COLUMNS.format("$0")} fill -0.0 ; %x[t, 32*cta.rank + $0] where {COLUMNS.format("$0")}
      p = fold add x axes (0) ; %s[t] over (n) : {MINE.format("cta.rank")}
"""
INITS = "    sync mbar.init full by elect\n    sync mbar.init empty by elect\n    sync fence.mbar_init by elect\n"


def text(producer: list[str], taker: list[str]) -> str:
    """What the two roles do in a task."""
    fills = role("producer agents 1 threads 32 counters (r)", "u", producer, INITS)
    return f"{HEAD}{fills}{role('taker agents 1 threads 64 counters (c)', 't', taker)}}}\n"


RIGHT = text([STEP, MEET, MEET], [TAKE, NEAR, MEET, ALL, MEET])
