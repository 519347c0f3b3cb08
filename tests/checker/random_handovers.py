"""Hand-overs between two roles by named barriers, right and wrong: a shape of the grammar in `random_machines`."""

from __future__ import annotations

from typing import Any

from tests.checker.text_parts import DISJOINT, ROWS, opening

HOST = "  launch main grid max(1, min(M, 2)) threads 96 shared 256\n"
HEAD = opening("cuda:sm_80", ROWS, DISJOINT, HOST)
KERNEL = """kernel main {{
  buffer S f32[64] shared align 16 @ 0
  frag x f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)
  frag z f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag y f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  role one agents 1 threads 32 {{
{one0}    tasks (t < M) over persistent enters R0(m = t .. t + 1) {{
      loop j = 0 .. (N + 63) // 64 step 1 {{
        x = load X[t, 64 * j + $0] where 64 * j + $0 < N ; %x[t, 64 * j + $0] where 64 * j + $0 < N
{one1}        version S ; %x[t, 64 * j + $0] where 64 * j + $0 < N
        store S[$0] = x where 64 * j + $0 < N
{one2}      }}
    }}
{one3}  }}
  role two agents 1 threads 64 {{
{two0}    tasks (u < M) over persistent enters R0(m = u .. u + 1) {{
      loop i = 0 .. (N + 63) // 64 step 1 {{
{two1}        z = load S[$0] where 64 * i + $0 < N ; %x[u, 64 * i + $0] where 64 * i + $0 < N
{two2}        y = abs z where 64 * i + $0 < N ; %y[u, 64 * i + $0] where 64 * i + $0 < N
        store Y[u, 64 * i + $0] = y where 64 * i + $0 < N ; store 0 [u, 64 * i + $0]
      }}
    }}
{two3}  }}
}}
"""
FULL, FREE = "barrier.{} (id = 1, threads = 96)", "barrier.{} (id = 2, threads = 96)"
PLACES = ("one0", "one1", "one2", "one3", "two0", "two1", "two2", "two3")


def text(**lines: list[str]) -> str:
    """Both roles, with synchronisation at these places."""
    parts = {place: "".join(f"        sync {line}\n" for line in lines.get(place, [])) for place in PLACES}
    return HEAD + KERNEL.format(**parts)


fill, take = FULL.format("arrive"), FULL.format("sync")
free, reuse = FREE.format("arrive"), FREE.format("sync")
BOTH = {"one2": [take], "two1": [take]}
RIGHT = {
    "waits at once": {"one2": [fill, reuse], "two1": [take], "two2": [free]},
    "free from the start": {"one1": [reuse], "one2": [fill], "one3": [reuse], "two0": [free], "two1": [take], "two2": [free]},
    "both meet twice": {"one2": [take, reuse], "two1": [take], "two2": [reuse]},
}  # fmt: skip


def handover_text(draw: Any) -> tuple[str, tuple[dict[str, int], ...]]:
    """A drawn hand-over, and the extents to try it at: a right one, of which lines are lost, moved, doubled or changed."""
    lines = {place: list(some) for place, some in RIGHT[draw.random.choice(list(RIGHT))].items()}
    for place in list(lines):
        for line in list(lines[place]):
            what = draw.pick("keep", "lose", "move", "turn", "count", "number")
            at = lines[place].index(line)
            if what == "lose":
                del lines[place][at]
            elif what == "move":
                del lines[place][at]
                lines.setdefault(draw.random.choice(PLACES), []).append(line)
            elif what == "turn":
                lines[place][at] = line.replace("sync", "arrive") if "sync" in line else line.replace("arrive", "sync")
            elif what == "count":
                lines[place][at] = line.replace("96", "64")
            elif what == "number":
                lines[place][at] = (
                    line.replace("id = 1", "id = 3") if "id = 1" in line else line.replace("id = 2", "id = 1")
                )
    sizes = ({"M": 1, "N": 40}, {"M": 2, "N": 130}, {"M": 3, "N": 64})
    return text(**lines), sizes
