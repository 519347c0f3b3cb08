"""Shapes of the grammar in `random_machines` in which workgroups or workers have to do with one another: parts that
are counted in global memory, memory of a cluster, rings of a cluster, gangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checker.cleared_text import FIRST, ONCE, OWN, SOME, cleared
from tests.checker.cleared_text import MEET as CLEARED
from tests.checker.counter_text import LAST, OWNER, PART, counted
from tests.checker.gang_text import GANG
from tests.checker.gang_text import MEET as GANG_MEET
from tests.checker.handover_ring_text import fill, free, reuse, take, text
from tests.checker.peer_text import MEET, READ, WRITE
from tests.checker.send_text import EXPECT, TO_BOTH, WAIT
from tests.checker.send_text import text as sends

RING = Path(__file__).parent / "patterns" / "cluster_begins_apart.right.tdm"
Sizes = tuple[dict[str, int], ...]


def parts_text(draw: Any) -> tuple[str, Sizes]:
    """Rows in parts: whoever arrives last folds them, or an owner that waits."""
    over = draw.random.choice(("grid", "persistent", "tickets"))
    grid = "M * S" if over == "grid" else str(draw.one(1, 2))
    last = draw.flip()
    together = " cooperative" if not last and (over != "tickets" or draw.flip(0.2)) else ""
    together = draw.pick(together, "") if together else draw.pick("", " cooperative") if last else ""
    tail = LAST if last else OWNER
    if last:
        tail = tail.replace("of S id", f"of {draw.pick('S', 'S - 1', 'S + 1')} id")
    else:
        tail = tail.replace("(count = S)", f"(count = {draw.pick('S', 'S - 1', 'S + 1')})")
        tail = tail.replace(
            "if s == S - 1", f"if s == {draw.pick('S - 1', '0') if over != 'grid' else draw.pick('S - 1', '0', 'S')}"
        )
        meet = "      sync barrier.sync (id = 0, threads = 32)\n      sync counter.add"
        if draw.pick("keep", "early") == "early":
            tail = tail.replace(meet, "      sync counter.add")
    tail = tail.replace("C[t]", f"C[{draw.pick('t', '0')}]")
    tail = tail.replace("load P[t, i]", f"load P[{draw.pick('t, i', 'min(t + 1, M - 1), i', 't, 0')}]")
    part = PART.replace("store P[t, s]", f"store P[{draw.pick('t, s', 't, 0', '0, s')}]")
    part = part if draw.pick("keep", "lose") == "keep" else part[: part.index("      store P")]
    order = draw.pick("row", "reverse") if not last else draw.random.choice(("row", "reverse"))
    pool = over if order == "row" else f"{over} raster (row, reverse)"
    text = counted(tail, over=pool, launch=f"grid {grid} threads 32{together}", part=part)
    return text, ({"M": 1, "N": 40}, {"M": 2, "N": 70}, {"M": 1, "N": 3})


def peers_text(draw: Any) -> tuple[str, Sizes]:
    """Each workgroup of a cluster leaves its part of a sum, all read all."""
    text = draw.random.choice((READ, WRITE))
    own = "      sync barrier.sync (id = 0, threads = 64)\n"
    head, body, tail = text.split(MEET)
    text = head + draw.pick(MEET, "", own) + body + draw.pick(MEET, "", own) + tail
    text = text.replace("S@(i)[0]", draw.pick("S@(i)[0]", "S[0]", "S@(i)[1]", "S@(1)[0]"))
    text = text.replace("store S@(1)[cta.rank]", f"store S@({draw.pick('1', '0')})[cta.rank]")
    text = text.replace("= load S[i]", f"= load S[{draw.pick('i', '0')}]")
    begin = "    sync cluster.arrive\n    sync cluster.wait\n    tasks"
    text = text.replace(begin, draw.pick(begin, "    tasks"))
    end = "    }\n    sync cluster.arrive\n    sync cluster.wait\n"
    text = text.replace(end, draw.pick(end, "    }\n"))
    text = (
        text.replace("if cta.rank == 0 scope", f"if cta.rank == {draw.pick('0', '2')} scope")
        if draw.flip(0.3)
        else text
    )
    grid = draw.pick("2 * max(1, min(M, 2))", "2")
    return text.replace("2 * max(1, min(M, 2))", grid), ({"M": 1, "N": 40}, {"M": 3, "N": 50})


def cluster_text(draw: Any) -> tuple[str, Sizes]:
    """A ring that two workgroups fill together, and lines of it lost or changed."""
    text, slots = RING.read_text(), draw.one(1, 1, 2)
    for old, new in (
        ("warp 2 axis 0 stride 1, slot 4 axis 0 stride 2", "slot 8 axis 0 stride 1"),
        ("threads 64 counters", "threads 32 counters"),
        ("threads = 64", "threads = 32"),
        ("threads 96 cluster", "threads 64 cluster"),
        ("versions 2", f"versions {slots}"),
        ("p // 2", f"p // {slots}"),
        ("c // 2", f"c // {slots}"),
    ):
        text = text.replace(old, new)
    changes = (
        ("bytes = 1024", ("bytes = 512", "bytes = 2048")),
        ("empty@(all){c}", ("empty{c}", "empty@(0){c}", "empty@(1 - cta.rank){c}")),
        ("empty count 2", ("empty count 1", "empty count 4")),
        (" multicast 3", (" multicast 1", " multicast 2")),
        (f"phase = (c // {slots}) % 2", (f"phase = (c // {slots} + 1) % 2",)),
        ("        sync fence.proxy.async\n", ("",)),
        ("    sync fence.mbar_init by elect\n", ("",)),
        ("A{p}[$0 + 4*cta.rank, $1] = X[", ("A{p}[$0, $1] = X[",)),
        ("    sync cluster.arrive\n    sync cluster.wait\n  }\n}", ("  }\n}",)),
    )
    for old, others in changes:
        assert old in text, old
        text = text.replace(old, draw.pick(old, *others), 1)
    return text, ({"M": 1, "N": 4}, {"M": 5, "N": 36}) if slots == 1 else ({"M": 8, "N": 36}, {"M": 1, "N": 68})


def gang_text(draw: Any) -> tuple[str, Sizes]:
    """A sum in parts, a part for each worker of a gang."""
    head, body, tail = GANG.split(GANG_MEET)
    some = f"      if w <= 1 {{\n{GANG_MEET}      }}\n"
    text = head + draw.pick(GANG_MEET, "", some) + body + draw.pick(GANG_MEET, "", some) + tail
    text = text.replace("store S[w]", f"store S[{draw.pick('w', '0', '2 - w')}]")
    text = text.replace("load S[i]", f"load S[{draw.pick('i', '0')}]")
    text = text.replace("if w == 0 {", f"if w == {draw.pick('0', '3')} {{")
    text = text.replace("loop j = w .. N", f"loop j = {draw.pick('w', '0')} .. N")
    return text, ({"M": 1, "N": 4}, {"M": 2, "N": 7}, {"M": 3, "N": 1})


def handover_ring_text(draw: Any) -> tuple[str, Sizes]:
    """A ring whose taker hands over: lines of both protocols are lost, moved, turned or changed."""
    lines = {"given": [fill, reuse], "taken": [take], "done": [free], "in_producer": []}
    for place in list(lines):
        for line in list(lines[place]):
            what = draw.pick("keep", "lose", "move", "turn", "count")
            at = lines[place].index(line)
            if what in ("lose", "move"):
                del lines[place][at]
            if what == "move":
                lines[draw.random.choice(("given", "taken", "done"))].append(line)
            elif what == "turn":
                lines[place][at] = line.replace("sync", "arrive") if "sync" in line else line.replace("arrive", "sync")
            elif what == "count":
                lines[place][at] = line.replace("96", "64")
    made = text(**lines)
    for old, others in (
        ("phase = c // 2 % 2", ("phase = (c // 2 + 1) % 2",)),
        ("bytes = 256", ("bytes = 128",)),
        ("        sync fence.proxy.async\n", ("",)),
        ("count 32", ("count 1", "count 64")),
    ):
        made = made.replace(old, draw.pick(old, *others))
    return made, ({"M": 1, "N": 40}, {"M": 1, "N": 192}, {"M": 3, "N": 64})


def cleared_text(draw: Any) -> tuple[str, Sizes]:
    """A slot of a ring into which its lone consumer stores, under controls."""
    control = draw.random.choice((SOME, ONCE, ""))
    early = bool(control) and draw.pick("inside", "before") == "before"
    fence, own = CLEARED.splitlines(keepends=True)
    # Of one warp the oracle sees one thread: nothing is drawn that only its lanes would show.
    meet = draw.pick(CLEARED, own, own + fence)
    held = draw.pick(OWN, FIRST)
    text = cleared(control if early else "", "" if early else control, held, "      }\n" if control else "", meet)
    version = f"      version A ; {held}\n"
    assert version in text
    text = text.replace(version, draw.pick(version, "", "      version A\n"))
    arrive = "      sync fence.proxy.async\n      sync mbar.arrive empty{c}\n"
    assert arrive in text
    text = text.replace(arrive, draw.pick(arrive, arrive.splitlines(keepends=True)[1]))
    part = "        a = copy -0.0\n"
    text = text.replace(part, draw.pick(part, f"        advance c\n{part}"))
    # Two tasks of one workgroup: a counter that moves on where no use follows is wrong for the next task only.
    return text.replace("grid 2", "grid 1"), ({"M": 1, "N": 40}, {"M": 1, "N": 72}, {"M": 2, "N": 40})


def sent_text(draw: Any) -> tuple[str, Sizes]:
    """Each workgroup of a cluster sends its part to all, some of it plainly."""
    lines = TO_BOTH.splitlines(keepends=True)
    for i, line in enumerate(lines):
        plain = line.replace(f" signal full@({i}){{c}}", "")
        lines[i] = draw.pick(line, plain, "")
    told = EXPECT.replace("= 8", f"= {draw.pick('8', '4', '12')}")
    wait = draw.pick(WAIT, "", MEET, WAIT.replace(", cluster = 1", ""))
    last = draw.pick(MEET, "", "      sync barrier.sync (id = 0, threads = 64)\n")
    text = sends("".join(lines), slots=draw.one(1, 2), first=told, wait=wait, last=last)
    for old, new in (
        ("2 * max(1, min(M, 2))", "2"),
        (", warp 2 axis - stride 0", ""),
        ("threads 64", "threads 32"),
        ("threads = 64", "threads = 32"),
    ):
        text = text.replace(old, new)
    return text, ({"M": 1, "N": 40}, {"M": 2, "N": 50})
