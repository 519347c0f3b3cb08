"""Shapes of the grammar in `random_machines` for later rules: rings that threads fill by copies of their own,
workgroups that meet inside loops, parts of which not every task has as many."""

from __future__ import annotations

from typing import Any

from tests.checker.copied_ring_text import ALONE, BOTH, of_one_warp, ring
from tests.checker.meeting_text import MEET, STORES, WAIT, copied, text
from tests.checker.uneven_text import COUNT, LAST, uneven

Sizes = tuple[dict[str, int], ...]
INNER = "        sync barrier.sync (id = 0, threads = 32)\n"


def changed(draw: Any, made: str, changes: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """The text with each line as it is, or as one of the others."""
    for old, others in changes:
        assert old in made, old
        made = made.replace(old, draw.pick(old, *others), 1)
    return made


def copied_ring_text(draw: Any) -> tuple[str, Sizes]:
    """A ring that threads fill: lines of its protocol lost, moved or changed."""
    slots, warps = draw.one(1, 2, 3), draw.one(1, 1, 1, 2)
    threads = 32 * warps
    arrive = draw.random.choice((ALONE, BOTH))
    alone = "        sync mbar.arrive full{p}\n"
    arrive = draw.pick(arrive, "", alone, "        sync cpasync.commit\n" + alone, ALONE + alone)
    made = ring(slots, arrive)
    if warps == 1:
        made = of_one_warp(made)
    made = made.replace("grid max(1, min(MT, 2))", "grid 1")
    take = "        sync mbar.arrive empty{c}\n"
    order = draw.pick("late", "late", "early")
    if order == "early":
        load = made[made.index("        x = load A{c}") : made.index(take)]
        made = made.replace(load + take, take + load)
    free = f"        sync mbar.wait empty{{p}} (phase = (p // {slots} + 1) % 2)\n"
    full = f"        sync mbar.wait full{{c}} (phase = c // {slots} % 2)\n"
    counted = f"barrier full count {threads}"
    later = "A{c + 1}[" if slots > 1 else "A{c}["
    wrong_full = (
        full.replace(f"c // {slots} %", f"(c // {slots} + 1) %"),
        full.replace(f"c // {slots}", f"c // {slots + 1}"),
        "",
    )
    wrong_free = (
        free.replace(f"p // {slots} + 1", f"p // {slots}"),
        free.replace(f"p // {slots}", f"p // {slots + 1}"),
        "",
    )
    made = changed(
        draw,
        made,
        (
            (free, wrong_free),
            (full, wrong_full),
            (take, ("", take.replace("}", "} by elect"), take.replace("{c}", "{c + 1}" if slots > 1 else "{c}"))),
            ("A{p}[$0 + 2, $1] =", ("A{p}[$0, $1] =",)),
            ("x = load A{c}[", (f"x = load {later}",)),
            (counted, (f"barrier full count {threads // 2}", f"barrier full count {2 * threads}")),
            (f"barrier empty count {threads}", (f"barrier empty count {threads // 2}", "barrier empty count 1")),
            ("loop j = 0 .. NT step 1", ("loop j = 0 .. NT - 1 step 1", "loop j = 0 .. NT + 1 step 1")),
            ("    sync mbar.init empty by elect\n", ("",)),
        ),
    )  # fmt: skip
    long = {"M": 4, "N": 32 * (slots + 2)} if warps == 1 else {"M": 4, "N": 32 * (slots + 1)}
    return made, ({"M": 1, "N": 4}, {"M": 5, "N": 36}, long)


def meetings_text(draw: Any) -> tuple[str, Sizes]:
    """A recurrence whose workgroups meet in its loop: meetings lost, of one workgroup, under a condition."""
    own = "sync barrier.sync (id = 0, threads = 32)\n"
    some = "if 1 <= i scope workgroup {\n  sync grid.sync\n}\n"
    shape = draw.random.choice(("plain", "plain", "stores", "copied"))
    last = draw.pick(MEET, "", own, some)
    if shape == "stores":
        made = STORES.replace("over threads", "over persistent")
        made = made.replace("      sync grid.sync\n", "".join(f"      {line}\n" for line in last.splitlines()))
        made = made.replace("load X[i, n] ;", f"load X[{draw.pick('i', 'M - 1 - i')}, n] ;")
    elif shape == "copied":
        made = copied(wait=draw.pick(WAIT, "", INNER + WAIT), last=draw.pick(MEET, "", own))
        made = made.replace(INNER, draw.pick(INNER, ""), 1)
    else:
        made = text(draw.pick(MEET, "", own), draw.pick(MEET, "", own, some), last)
        made = made.replace("over threads", f"over {draw.random.choice(('persistent', 'persistent', 'warps'))}")
        made = changed(
            draw,
            made,
            (
                ("u_2 = load b_u[n1]", ("u_2 = load b_v[n1]", "u_2 = load b_u[N - 1 - n1]")),
                ("store b_v[n1] = s ; %v.3", ("store b_u[n1] = s ; %v.3",)),
                ("store b_u[n3] = v", ("store b_u[N - 1 - n3] = v",)),
                ("v = load b_v[n3]", ("v = load b_v[0]",)),
            ),
        )
    made = made.replace(" cooperative", draw.pick(" cooperative", ""))
    sizes = ({"M": 0, "N": 4}, {"M": 1, "N": 4}, {"M": 3, "N": 4})
    return made, sizes if shape == "stores" or shape == "plain" else ({"M": 0, "N": 4}, {"M": 2, "N": 72})


def uneven_text(draw: Any) -> tuple[str, Sizes]:
    """Parts of sums, of which some rows have more than others: counts and conditions that are off by one."""
    over = draw.random.choice(("grid", "grid", "persistent", "tickets"))
    launch = "grid 2*M threads 32" if over == "grid" else f"grid {draw.one(1, 2)} threads 32"
    made = uneven(
        some=draw.pick("s < COUNT", "s < 2", "s < COUNT - 1", "1 <= s"),
        of=draw.pick(COUNT, f"{COUNT} - 1", f"{COUNT} + 1", "2"),
        over=over,
        launch=launch,
        last=changed(draw, LAST, (("r = load P[t, i]", ("r = load P[t, 0]", "r = load P[0, i]")), ("C[t]", ("C[0]",)))),
    )
    made = changed(
        draw,
        made,
        (
            ("store P[t, s] = p", ("store P[t, 0] = p", "store P[0, s] = p")),
            ("min(3, 4*(3*t // 4 + s) + 4 - 3*t)", ("min(3, 4*(3*t // 4 + s) + 3 - 3*t)", "3")),
            ("max(0, 4*(3*t // 4 + s) - 3*t)", ("0",)),
        ),
    )
    return made, ({"M": 1, "N": 40}, {"M": 3, "N": 96}, {"M": 2, "N": 70})
