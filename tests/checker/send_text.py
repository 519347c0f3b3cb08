"""Texts of clusters whose workgroups store to one another and signal a barrier there with the bytes."""

from __future__ import annotations

from tests.checker.peer_text import FOLD, MEET, MINE, PART, TAIL, WRITE

EXPECT = "      sync mbar.expect full{c} (bytes = 8) by elect\n"
WAIT = "      sync mbar.wait full{c} (phase = c // VV % 2, cluster = 1)\n"
HEAD = WRITE[: WRITE.index("      x = load X")]
HEAD = (
    HEAD.replace("shared 64", "shared 96")
    .replace("  frag x f32", "  barrier full count 1 versions VV tx @ 64\n  frag x f32", 1)
    .replace("agents 1 threads 64 {", "agents 1 threads 64 counters (c) {")
    .replace(
        "    sync cluster.arrive\n",
        "    sync mbar.init full by elect\n    sync fence.mbar_init by elect\n    sync cluster.arrive\n",
        1,
    )
)
VERSION = f"      version S ; %s[t] over (n) : {MINE.format('$0')}\n"
TO_BOTH = "      store S@(0)[cta.rank] = p signal full@(0){c} by elect\n      store S@(1)[cta.rank] = p signal full@(1){c} by elect\n"
IN_A_LOOP = "      loop r = 0 .. 2 step 1 {\n        store S@((cta.rank + r) % 2)[cta.rank] = p signal full@((cta.rank + r) % 2){c}\n      }\n"
ADVANCE = "      advance c\n"


def text(sends: str = TO_BOTH, slots: int = 1, first: str = EXPECT, wait: str = WAIT, last: str = MEET) -> str:
    """Each workgroup sends its part to both, waits for both parts, folds its own copies."""
    body = PART + first + VERSION + sends + wait + FOLD.replace("SLOT", "S[i]") + last + ADVANCE
    return (HEAD + body + TAIL).replace("VV", str(slots))
