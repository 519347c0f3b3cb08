"""Texts in which two takers of rings hand over to one another: a producer fills two rings, `one` takes the first and hands
its rows to `two`, which takes the second and adds."""

from __future__ import annotations

from tests.checker.ahead_text import GUARD
from tests.checker.random_handovers import FREE, FULL
from tests.checker.text_parts import ROWS_ADDED, opening

HOST = """  map mX of X f32 box (1, 64) swizzle 0 fill zero promotion 256
  map mW of W f32 box (1, 64) swizzle 0 fill zero promotion 256
  launch main grid max(1, min(M, 2)) threads 128 shared 1920
"""
HEAD = opening("cuda:sm_90a", ROWS_ADDED, GUARD, HOST)
PRODUCER = """kernel main {{
  buffer A f32[64] shared align 128 versions {V} @ 0
  buffer B f32[64] shared align 128 versions {V} @ 768
  buffer S f32[64] shared align 16 @ 1536
  frag x f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)
  frag z f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag w f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag y f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  barrier fullA count 1 versions {V} tx @ 1792
  barrier emptyA count 32 versions {V} @ 1816
  barrier fullB count 1 versions {V} tx @ 1840
  barrier emptyB count 64 versions {V} @ 1864
  role producer agents 1 threads 32 counters (p, q) {{
    sync mbar.init fullA by elect
    sync mbar.init emptyA by elect
    sync mbar.init fullB by elect
    sync mbar.init emptyB by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 128)
"""
FILL_A = """sync mbar.wait emptyA{{p}} (phase = (p // {V} + 1) % 2) by elect
sync mbar.expect fullA{{p}} (bytes = 256) by elect
version A fill 0 ; %x[v, 64 * h + $0] where 64 * h + $0 < N
copy tma.load A{{p}}[$1] = X[v, 64 * h + $1] box (1, 64) signal fullA{{p}} map mX by elect
advance p
"""
FILL_B = (
    FILL_A.replace("A{{", "B{{").replace("version A", "version B").replace("{{p}}", "{{q}}").replace("(p //", "(q //")
)
FILL_B = FILL_B.replace("%x", "%w").replace("X[v", "W[v").replace("mX", "mW").replace("advance p", "advance q")
TAKE_A = """sync mbar.wait fullA{{c}} (phase = c // {V} % 2)
x = load A{{c}}[$0] where 64 * j + $0 < N ; %x[t, 64 * j + $0] where 64 * j + $0 < N
sync fence.proxy.async
sync mbar.arrive emptyA{{c}}
advance c
"""
HAND = """version S ; %x[t, 64 * j + $0] where 64 * j + $0 < N
store S[$0] = x where 64 * j + $0 < N
"""
TAKE_B = """sync mbar.wait fullB{{d}} (phase = d // {V} % 2)
w = load B{{d}}[$0] where 64 * i + $0 < N ; %w[u, 64 * i + $0] where 64 * i + $0 < N
sync fence.proxy.async
sync mbar.arrive emptyB{{d}}
advance d
"""
GET = "z = load S[$0] where 64 * i + $0 < N ; %x[u, 64 * i + $0] where 64 * i + $0 < N\n"
ADD = """y = add z, w where 64 * i + $0 < N ; %y[u, 64 * i + $0] where 64 * i + $0 < N
store Y[u, 64 * i + $0] = y where 64 * i + $0 < N ; store 0 [u, 64 * i + $0]
"""
FILL, TAKE = (f"sync {FULL.format(k)}\n" for k in ("arrive", "sync"))
GIVE, REUSE = (f"sync {FREE.format(k)}\n" for k in ("arrive", "sync"))


def nest(role: str, task: str, loop: str, body: list[str]) -> str:
    """A role's tasks and its loop over blocks."""
    lines = "".join(f"        {line}\n" for part in body for line in part.splitlines())
    head = f"    tasks ({task} < M) over persistent enters R0(m = {task} .. {task} + 1) {{{{\n"
    return f"{role}{head}      loop {loop} = 0 .. (N + 63) // 64 step 1 {{{{\n{lines}      }}}}\n    }}}}\n  }}}}\n"


def text(slots: int, producer: list[str], one: list[str], two: list[str]) -> str:
    """The three roles."""
    meet = "    sync barrier.sync (id = 0, threads = 128)\n"
    parts = [
        nest(PRODUCER, "v", "h", producer),
        nest(f"  role one agents 1 threads 32 counters (c) {{{{\n{meet}", "t", "j", one),
        nest(f"  role two agents 1 threads 64 counters (d) {{{{\n{meet}", "u", "i", two),
    ]
    return HEAD + ("".join(parts) + "}}\n").format(V=slots)


def right(slots: int) -> str:
    """`two` takes its own ring after it was told."""
    return text(slots, [FILL_A, FILL_B], [TAKE_A, HAND, FILL, REUSE], [TAKE, GET, GIVE, TAKE_B, ADD])


FILL_HALVES = """loop e = 0 .. 2 step 1 {{
  sync mbar.wait emptyA{{p}} (phase = (p // {V} + 1) % 2) by elect
  sync mbar.expect fullA{{p}} (bytes = 128) by elect
  version A fill 0 ; %x[v, 64 * h + 32 * e + $0] where 64 * h + 32 * e + $0 < N
  copy tma.load A{{p}}[$1] = X[v, 64 * h + 32 * e + $1] box (1, 32) signal fullA{{p}} map mX by elect
  advance p
}}
"""
TAKE_HALVES = """version S ; %x[t, 64 * j + $0] where 64 * j + $0 < N
loop g = 0 .. 2 step 1 {{
  sync mbar.wait fullA{{c}} (phase = c // {V} % 2)
  x = load A{{c}}[$0] where 64 * j + 32 * g + $0 < N ; %x[t, 64 * j + 32 * g + $0] where 64 * j + 32 * g + $0 < N
  sync fence.proxy.async
  sync mbar.arrive emptyA{{c}}
  store S[32 * g + $0] = x where 64 * j + 32 * g + $0 < N
  advance c
}}
"""


def halves(slots: int, producer: list[str], two: list[str]) -> str:
    """With two steps of the first ring, in a loop, for one hand-over."""
    whole = text(slots, producer, [TAKE_HALVES, FILL, REUSE], two)
    small = whole.replace("buffer A f32[64]", "buffer A f32[32]").replace(
        "map mX of X f32 box (1, 64)", "map mX of X f32 box (1, 32)"
    )
    return small.replace(
        "frag x f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)",
        "frag x f32[32] dist (lane 32 axis 0 stride 1)",
    )
