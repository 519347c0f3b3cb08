"""A cluster whose taker of a ring sends its part to all workgroups, beside the role that fills the ring (machine text)."""

from __future__ import annotations

from typing import Any

from tests.checker.peer_ring_text import STEP, TAKE
from tests.checker.peer_ring_text import text as both
from tests.checker.peer_text import MEET, OWN
from tests.checker.send_text import TO_BOTH, VERSION

EXPECT = "      sync mbar.expect got{g} (bytes = 8) by elect\n"
WAIT = "      sync mbar.wait got{g} (phase = g // VV % 2, cluster = 1)\n"
SEND = TO_BOTH.replace("full@", "got@").replace("{c}", "{g}")
TAKER = [TAKE, EXPECT, VERSION, SEND, WAIT, OWN, MEET, "      advance g\n"]


def text(producer: list[str] | None = None, taker: list[str] | None = None, slots: int = 1) -> str:
    """What the two roles do in a task."""
    made = both(producer or [STEP, MEET], taker or TAKER)
    made = made.replace(
        "  barrier full count", f"  barrier got count 1 versions {slots} tx @ 448\n  barrier full count", 1
    )
    made = made.replace("counters (c)", "counters (c, g)")
    init = "    sync mbar.init full by elect\n"
    return made.replace(init, init + "    sync mbar.init got by elect\n").replace("VV", str(slots))


def sent_ring_text(draw: Any) -> tuple[str, tuple[dict[str, int], ...]]:
    """The shape drawn: meetings, announcements, waits and sends lost, moved or changed."""
    slots = draw.one(1, 2)
    taker = [
        TAKE,
        draw.pick(EXPECT, "", EXPECT.replace("8", "4"), EXPECT.replace("8", "16")),
        VERSION,
        draw.pick(SEND, SEND.replace("@(1)", "@(0)"), SEND.splitlines(keepends=True)[0]),
        draw.pick(WAIT, "", WAIT.replace(", cluster = 1", ""), WAIT.replace("g // VV", "(g // VV + 1)")),
        OWN,
        draw.pick(MEET, ""),
        draw.pick("      advance g\n", ""),
    ]
    if draw.pick("", "moved"):
        taker.insert(2, taker.pop(5))
    producer = [STEP, draw.pick(MEET, "", MEET + MEET)]
    if draw.pick("", "turned"):
        producer.reverse()
    return text(producer, taker, slots), ({"M": 1, "N": 40}, {"M": 3, "N": 52})
