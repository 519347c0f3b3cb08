"""A cluster in which one role leaves parts of a sum in shared memory and another one folds them (machine text)."""

from __future__ import annotations

from typing import Any

from tests.checker import peer_text
from tests.checker.peer_text import FAR, LAUNCH, MEET, NEAR, PART, role, sums

HEAD = f"""{sums(LAUNCH.format(64))}kernel main {{
  buffer S f32[2] shared align 16 @ 0
  frag x f32[32] dist (lane 32 axis 0 stride 1)
  frag p f32[]
  frag a f32[]
  frag q f32[]
"""
ALL, OWN = (fold.replace("[t]", "[u]") for fold in (peer_text.ALL, peer_text.OWN))


def text(maker: list[str], folder: list[str]) -> str:
    """What the two roles do in a task."""
    two = role("maker agents 1 threads 32", "t", maker) + role("folder agents 1 threads 32", "u", folder)
    return f"{HEAD}{two}}}\n"


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
