"""Texts of rings that threads fill by their own copies, whose completion arrives at a phased barrier."""

from __future__ import annotations

from tests.checker.text_parts import DISJOINT, ROWS, boxes, opening

HOST = """  let MT = (M + 3) // 4
  let NT = (N + 31) // 32
  launch main grid max(1, min(MT, 2)) threads 128 shared {bytes}
"""
KERNEL = """kernel main {{
  buffer A f32[4, 32] shared align 16 versions {V} @ 0
  frag x f32[4, 32] dist (lane 32 axis 1 stride 1, warp 2 axis 0 stride 1, slot 2 axis 0 stride 2)
  frag y f32[4, 32] dist (lane 32 axis 1 stride 1, warp 2 axis 0 stride 1, slot 2 axis 0 stride 2)
  barrier full count 64 versions {V} @ {at}
  barrier empty count 64 versions {V} @ {after}
  role producer agents 1 threads 64 counters (p) {{
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync barrier.sync (id = 0, threads = 128)
    tasks (u < MT) over persistent enters R0(m = 4 * u .. min(4 * u + 4, M)) {{
      loop i = 0 .. NT step 1 {{
        sync mbar.wait empty{{p}} (phase = (p // {V} + 1) % 2)
        version A fill 0 ; %x[4 * u + $0, 32 * i + $1] where 4 * u + $0 < M, 32 * i + $1 < N
        copy cp.async A{{p}}[$0, $1] = X[4 * u + $0, 32 * i + $1] box (2, 32)
        copy cp.async A{{p}}[$0 + 2, $1] = X[4 * u + 2 + $0, 32 * i + $1] box (2, 32)
{arrive}        advance p
      }}
    }}
  }}
  role taker agents 1 threads 64 counters (c) {{
    sync barrier.sync (id = 0, threads = 128)
    tasks (t < MT) over persistent enters R0(m = 4 * t .. min(4 * t + 4, M)) {{
      loop j = 0 .. NT step 1 {{
        sync mbar.wait full{{c}} (phase = c // {V} % 2)
        x = load A{{c}}[$0, $1] ; %x[4 * t + $0, 32 * j + $1] where 4 * t + $0 < M, 32 * j + $1 < N
        sync mbar.arrive empty{{c}}
        y = abs x where 4 * t + $0 < M, 32 * j + $1 < N ; %y[4 * t + $0, 32 * j + $1] where 4 * t + $0 < M, 32 * j + $1 < N
        store Y[4 * t + $0, 32 * j + $1] = y where 4 * t + $0 < M, 32 * j + $1 < N ; store 0 [4 * t + $0, 32 * j + $1]
        advance c
      }}
    }}
  }}
}}
"""
ALONE = "        sync cpasync.arrive full{p}\n"
BOTH = "        sync cpasync.arrive full{p} (more = 1)\n        sync mbar.arrive full{p}\n"


def ring(slots: int, arrive: str = ALONE, arch: str = "sm_80") -> str:
    """A ring of that many slots."""
    head = opening(f"cuda:{arch}", ROWS, boxes("X") + DISJOINT, HOST.format(bytes=528 * slots))
    return head + KERNEL.format(V=slots, at=512 * slots, after=520 * slots, arrive=arrive)


def of_one_warp(text: str) -> str:
    """The ring whose two roles have a warp each."""
    for old, new in (
        ("warp 2 axis 0 stride 1, slot 2 axis 0 stride 2", "slot 4 axis 0 stride 1"),
        ("threads 64", "threads 32"),
        ("threads = 128", "threads = 64"),
        ("threads 128 shared", "threads 64 shared"),
        ("count 64", "count 32"),
    ):
        text = text.replace(old, new)
    return text
