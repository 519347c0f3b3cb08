"""A grammar of small machine programs, right and wrong ones about as often.

`random_machine(seed)` draws a shape (an exchange through shared memory, a ring, a ring in front of an exchange, two rings,
staged boxes, rows that come and leave by engines, products out of a ring, tasks of a pool, launches in a row, parts that are counted, memory and rings of a
cluster, a gang, a ring that threads copy into, workgroups that meet in loops, counts that differ) and then, at each place where such programs go wrong,
the right line or another: barriers left out or of other threads, phases, counts, bytes, grains and depths off by one,
releases before the reads, fences missing or at the wrong side, slots and pieces that collide. The extents at which the
result is to be tried come with it: no steps, one, as many as there are slots, and two more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.checker.ahead_text import ahead_text
from tests.checker.handover_cluster_text import handover_cluster_text
from tests.checker.handover_some_text import some_text
from tests.checker.passed_text import passed_text
from tests.checker.random_copies import copies_text
from tests.checker.random_handovers import handover_text
from tests.checker.random_later import copied_ring_text, meetings_text, uneven_text
from tests.checker.random_members import (
    cleared_text,
    cluster_text,
    gang_text,
    handover_ring_text,
    parts_text,
    peers_text,
    sent_text,
)
from tests.checker.random_names import OF_ROLES, lengths_text, named
from tests.checker.room_text import room_text
from tests.checker.send_ring_text import sent_ring_text
from tests.checker.text_parts import DISJOINT, ROWS, ROWS_ADDED, SUMS, boxes, opening


@dataclass(frozen=True)
class Drawn:
    """A program's text, its shape, and the extents to try it at."""

    kind: str
    text: str
    sizes: tuple[dict[str, int], ...]


class Draw:
    """Choices: the right one with probability `right`."""

    def __init__(self, seed: int, right: float) -> None:
        self.random = random.Random(seed)
        self.right = right

    def pick(self, right: str, *others: str) -> str:
        """The right line, or one of the others ("" leaves it out)."""
        return right if not others or self.random.random() < self.right else self.random.choice(others)

    def one(self, *of: int) -> int:
        """Any of these, all right."""
        return self.random.choice(of)

    def flip(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance


def random_machine(seed: int, only: tuple[str, ...] = ()) -> Drawn:
    """The program of a seed (`only`: of one of these shapes)."""
    chooser = random.Random(seed * 7919 + 1)
    kinds = (
        "exchange",
        "ring",
        "ring",
        "relay",
        "pair",
        "pair",
        "staged",
        "channel",
        "channel",
        "products",
        "pool",
        "launches",
        "copies",
        "copies",
        "handover",
        "parts",
        "peers",
        "cluster",
        "gang",
        "handover ring",
        "copied ring",
        "meetings",
        "uneven",
        "cleared",
        "sent",
        "named",
        "named",
        "lengths",
        "ahead",
        "handover some",
        "room",
        "handover cluster",
        "passed",
        "sent ring",
    )
    kind = chooser.choice(only or kinds)
    draw = Draw(seed, chooser.choice((0.8, 0.9, 0.95, 1.0)))
    return SHAPES[kind](draw)


def lines(text: str) -> str:
    """Without empty lines."""
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


def assemble(target: str, program: str, guard: str, host: str, kernels: str, ledger: str = "") -> str:
    """A machine text."""
    return lines(opening(target, program, guard, host, ledger) + kernels)


# ---- an exchange through shared memory


def exchange(draw: Draw) -> Drawn:
    """Rows go through one or two shared buffers, each read by other threads than those that wrote it."""
    warps, stages = draw.one(2, 3), draw.one(1, 1, 2)
    size = 32 * warps
    there = f"dist (lane 32 axis 0 stride 1, warp {warps} axis 0 stride 32)"
    back = f"dist (warp {warps} axis 0 stride 1, lane 32 axis 0 stride {warps})"
    inside = f"{size}*j + $0 < N"
    meet = f"        sync barrier.sync (id = 0, threads = {size})\n"
    some = f"        sync barrier.sync (id = 1, threads = {size - 32})\n"
    body, held, frags = "", "x0", f"  frag x0 f32[{size}] {there}\n"
    body += f"        x0 = load X[t, {size}*j + $0] where {inside} ; %x[t, {size}*j + $0] where {inside}\n"
    for s in range(stages):
        before = draw.pick(meet, "", some) if s == 0 or stages == 1 else draw.pick("", meet)
        at = draw.pick("$0", f"{size - 1} - $0") if draw.flip(0.8) else "$0"
        read = draw.pick(at, at, f"{size - 1} - ({at})")
        shape = back if s % 2 == 0 else there
        frags += f"  frag x{s + 1} f32[{size}] {shape}\n"
        of = "$0" if at == "$0" else f"{size - 1} - $0"
        claim = f"%x[t, {size}*j + {of}] where {size}*j + {of} < N"
        body += before + f"        version S{s} ; {claim}\n        store S{s}[{at}] = {held} where {inside}\n"
        body += draw.pick(meet, "", some)
        held = f"x{s + 1}"
        body += f"        {held} = load S{s}[{read}] where {inside} ; %x[t, {size}*j + $0] where {inside}\n"
    body += f"        y = abs {held} where {inside} ; %y[t, {size}*j + $0] where {inside}\n"
    body += f"        store Y[t, {size}*j + $0] = y where {inside} ; store 0 [t, {size}*j + $0]\n"
    if draw.flip(0.3):
        body += meet
    frags += f"  frag y f32[{size}] {back if stages % 2 else there}\n"
    buffers = "".join(
        f"  buffer S{s} f32[{size}] shared align 16 @ {draw.pick(str(4 * size * s), '64')}\n" for s in range(stages)
    )
    over, grid = ("persistent", "max(1, min(M, 2))") if draw.flip() else ("grid", "M")
    kernel = f"""kernel main {{
{buffers}{frags}  role all agents 1 threads {size} {{
    tasks (t < M) over {over} enters R0(m = t .. t + 1) {{
      loop j = 0 .. (N + {size - 1}) // {size} step 1 {{
{body}      }}
    }}
  }}
}}
"""
    host = f"  launch main grid {grid} threads {size} shared {4 * size * stages}\n"
    guard = DISJOINT + ("  1 <= M\n" if over == "grid" else "")
    sizes = ({"M": 1, "N": size - 3}, {"M": 3, "N": 2 * size + 5})
    return Drawn("exchange", assemble("cuda:sm_80", ROWS, guard, host, kernel), sizes)


# ---- rings


def ring(draw: Draw, relay: bool = False) -> Drawn:
    """One producer and one role of consumers over rows that a copy engine brings; `relay`: the consumers exchange what
    they read through shared memory before they store it."""
    slots, agents = draw.one(1, 2, 2, 3), draw.one(1, 1, 1, 2) if relay else draw.one(1, 1, 2)
    warps = 2 if relay else draw.one(1, 2)
    threads = 32 * warps
    rows = 2 * warps * agents
    mine = 2 * warps
    everyone = 32 + threads * agents
    size = rows * 128
    first = slots * size
    grain = draw.one(0, 1, 2)
    by = ("", " by warp", " by elect")[grain]
    arrivals = (threads * agents, warps * agents, agents)[grain]
    count = draw.pick(str(arrivals), str(max(1, arrivals // 2)), str(arrivals + 1), str(2 * arrivals))
    index = " index w" if agents > 1 else ""
    row = f"{mine} * w + $0" if agents > 1 else "$0"
    part = draw.pick(row, row.replace("w", "(1 - w)")) if agents > 1 else row
    told = draw.pick(str(size), str(size // 2), str(2 * size), str(size - 128 if rows > 1 else size + 16))
    free = f"(p // {slots} + 1) % 2"
    full = f"(c // {slots}) % 2"
    free = draw.pick(free, f"(p // {slots}) % 2", f"(p // {slots + 1} + 1) % 2", f"(j // {slots} + 1) % 2")
    full = draw.pick(full, f"(c // {slots} + 1) % 2", f"(c // {slots + 1}) % 2", f"(j // {slots}) % 2")
    where = f"{rows} * t + {row} < M, 32 * j + $1 < N"
    at = f"{rows} * t + {row}, 32 * j + $1"
    slot = draw.pick("c", "c + 1", "c - 1") if slots > 1 else "c"
    load = f"        x = load A{{{slot}}}[{part}, $1] ; %x[{at}] where {where}\n"
    fence = "        sync fence.proxy.async"
    fence = draw.pick(f"{fence}\n", "", *([f"{fence} by elect\n"] if warps > 1 else []))
    own = (
        f"        sync barrier.sync (id = {draw.pick('w + 1' if agents > 1 else '1', '1', '2')}, threads = {threads})\n"
    )
    # Lanes of a warp are apart to the judge and one thread to the simulator: one arrives for them only where they met.
    join = draw.pick(own, "") if grain == 2 and warps > 1 else own if grain else ""
    other_slot = ["c + 1"] if slots > 1 else []
    release = draw.pick(f"        sync mbar.arrive empty{{{draw.pick('c', *other_slot)}}}{by}\n", "")
    order = draw.pick(
        "load fence join release", "release load fence join", "load release fence join", "load join release fence"
    )
    pieces = {"load": load, "fence": fence, "join": join, "release": release}
    taken = "".join(pieces[word] for word in order.split())
    advance = "        advance c\n"
    # One thread of a single warp is that warp to the simulator: nothing is drawn that hangs on the difference.
    waiting = f"        sync mbar.wait full{{c}} (phase = {full})"
    waiting = draw.pick(f"{waiting}\n", "", *([f"{waiting} by elect\n"] if warps > 1 else []))
    dist = f"dist (lane 32 axis 1 stride 1, warp {warps} axis 0 stride 1, slot 2 axis 0 stride {warps})"
    turned = f"dist (lane 32 axis 1 stride 1, slot 2 axis 0 stride 1, warp {warps} axis 0 stride 2)"
    exchange, buffers, frags, held = "", "", "", "x"
    if relay:
        meet = f"        sync barrier.sync (id = {'w + 1' if agents > 1 else '1'}, threads = {threads})\n"
        alone = "w, " if agents > 1 else ""
        box = f"{agents}, {mine}, 32" if agents > 1 else f"{mine}, 32"
        buffers = f"  buffer S f32[{box}] shared align 16 @ {first + 16 * slots}\n"
        frags = f"  frag z f32[{mine}, 32] {turned}\n"
        # Of the buffer the agent's number is a coordinate, the row in it the next.
        s = f"{rows} * t + {mine} * $0 + $1, 32 * j + $2" if agents > 1 else f"{rows} * t + $0, 32 * j + $1"
        s_where = s.replace(", ", " < M, ") + " < N"
        exchange = (
            draw.pick(meet, "")
            + f"        version S ; %x[{s}] where {s_where}\n        store S[{alone}$0, $1] = x where {where}\n"
        )
        exchange += (
            draw.pick(meet, "", meet.replace("w + 1", "1"))
            + f"        z = load S[{alone}$0, $1] where {where} ; %x[{at}] where {where}\n"
        )
        held = "z"
    store = f"        y = abs {held} where {where} ; %y[{at}] where {where}\n        store Y[{at}] = y where {where} ; store 0 [{at}]\n"
    expect = f"        sync mbar.expect full{{p}} (bytes = {told}) by elect\n"
    wait = draw.pick(f"        sync mbar.wait empty{{p}} (phase = {free}) by elect\n", "")
    copy = f"        copy tma.load A{{{draw.pick('p', *(['p + 1'] if slots > 1 else []))}}}[$0, $1] = X[{rows} * t + $0, 32 * j + $1] box ({rows}, 32) signal full{{p}} map mX by elect\n"
    tasks = f"    tasks (t < MT) over persistent enters R0(m = {rows} * t .. min({rows} * t + {rows}, M)) {{\n      loop j = 0 .. NT step 1 {{\n"
    trips = draw.pick(tasks, tasks, tasks.replace("NT step", "NT + 1 step"))
    init = "    sync mbar.init full by elect\n    sync mbar.init empty by elect\n" + draw.pick(
        "    sync fence.mbar_init by elect\n", ""
    )
    everybody = f"    sync barrier.sync (id = 0, threads = {everyone})\n"
    start = draw.pick(init + everybody, everybody + init)
    kernel = f"""kernel main {{
  buffer A f32[{rows}, 32] shared align 128 versions {slots} @ 0
{buffers}  frag x f32[{mine}, 32] {dist}
{frags}  frag y f32[{mine}, 32] {turned if relay else dist}
  barrier full count {draw.pick("1", "2")} versions {slots} tx @ {first}
  barrier empty count {count} versions {slots} @ {first + 8 * slots}
  role producer agents 1 threads 32 counters (p) {{
{start}{tasks}{wait}{expect}        version A fill 0 ; %x[{rows} * t + $0, 32 * j + $1] where {rows} * t + $0 < M, 32 * j + $1 < N
{copy}        advance p
      }}
    }}
  }}
  role consumer agents {agents} threads {threads}{index} counters (c) {{
{everybody}{trips}{waiting}{taken}{advance}{exchange}{store}      }}
    }}
  }}
}}
"""
    host = f"  let MT = (M + {rows - 1}) // {rows}\n  let NT = (N + 31) // 32\n  map mX of X f32 box ({rows}, 32) swizzle 0 fill zero promotion 256\n"
    shared = first + 16 * slots + (rows * 128 if relay else 0)
    host += f"  launch main grid max(1, min(MT, {draw.one(1, 2)})) threads {everyone} shared {shared}\n"
    most = {"M": rows, "N": 32 * (slots + 2)} if warps * agents <= 2 else {"M": rows, "N": 32 * (slots + 1)}
    sizes = ({"M": 2 * rows + 1, "N": 36}, most, {"M": 1, "N": 4})
    return Drawn(
        "relay" if relay else "ring", assemble("cuda:sm_90a", ROWS, DISJOINT + boxes("X"), host, kernel), sizes
    )


def pair(draw: Draw) -> Drawn:
    """Two rings of their own lengths, filled and taken in some order, given back at once or a step behind."""
    slots = {"A": draw.one(1, 2, 3), "B": draw.one(1, 2)}
    source = {"A": ("X", "x"), "B": ("W", "w")}
    size, rows, threads = 512, 4, 64
    base = {"A": 0, "B": slots["A"] * size}
    first = base["B"] + slots["B"] * size
    place = {"A": first, "B": first + 16 * slots["A"]}
    meet = f"        sync barrier.sync (id = 1, threads = {threads})\n"
    box = f"{rows} * t + $0, 32 * j + $1"
    where = f"{rows} * t + $0 < M, 32 * j + $1 < N"
    counters = {"A": "p", "B": "q"}
    taken = {"A": "c", "B": "d"}
    fills: list[str] = []
    for ring in "AB":
        p, v, (tensor, value) = counters[ring], slots[ring], source[ring]
        free = draw.pick(f"({p} // {v} + 1) % 2", f"{p} // {v} % 2", f"({p} // {v + 1} + 1) % 2")
        fills.append(
            draw.pick(f"        sync mbar.wait empty{ring}{{{p}}} (phase = {free}) by elect\n", "")
            + f"        sync mbar.expect full{ring}{{{p}}} (bytes = {draw.pick(str(size), str(2 * size))}) by elect\n"
            + f"        version {ring} fill 0 ; %{value}[{box}] where {where}\n"
            + f"        copy tma.load {ring}{{{p}}}[$0, $1] = {tensor}[{box}] box ({rows}, 32) signal full{ring}{{{p}}} map m{tensor} by elect\n"
            + f"        advance {p}\n"
        )
    if draw.flip(0.3):
        fills.reverse()
    order = "AB" if "copy tma.load A" in fills[0] else "BA"
    body, after, dist = "", "", "dist (lane 32 axis 1 stride 1, warp 2 axis 0 stride 1, slot 2 axis 0 stride 2)"
    count = {}
    for ring in order:
        c, v, (_, value) = taken[ring], slots[ring], source[ring]
        full = draw.pick(f"{c} // {v} % 2", f"({c} // {v} + 1) % 2")
        grain = draw.one(0, 1)
        by, arrivals = (("", threads), (" by elect", 1))[grain]
        count[ring] = draw.pick(str(arrivals), str(arrivals + 1))
        body += f"        sync mbar.wait full{ring}{{{c}}} (phase = {full})\n"
        body += f"        {value} = load {ring}{{{c}}}[$0, $1] ; %{value}[{box}] where {where}\n"
        body += draw.pick("        sync fence.proxy.async\n", "") + (draw.pick(meet, "") if grain else "")
        behind = draw.flip(0.4) and (v > 1 or draw.pick("no", "yes") == "yes")
        if behind:
            body += f"        if 1 <= j scope workgroup {{\n          sync mbar.arrive empty{ring}{{{c} - 1}}{by}\n        }}\n"
            after += draw.pick(f"      sync mbar.arrive empty{ring}{{{c} - 1}}{by}\n", "")
        else:
            body += f"        sync mbar.arrive empty{ring}{{{c}}}{by}\n"
        body += f"        advance {c}\n"
    tasks = f"    tasks (t < MT) over persistent enters R0(m = {rows} * t .. min({rows} * t + {rows}, M)) {{\n      loop j = 0 .. NT step 1 {{\n"
    inits = "".join(f"    sync mbar.init {kind}{ring} by elect\n" for ring in "AB" for kind in ("full", "empty"))
    barriers = "".join(
        f"  barrier full{r} count 1 versions {slots[r]} tx @ {place[r]}\n  barrier empty{r} count {count[r]} versions {slots[r]} @ {place[r] + 8 * slots[r]}\n"
        for r in "AB"
    )
    kernel = f"""kernel main {{
  buffer A f32[{rows}, 32] shared align 128 versions {slots["A"]} @ 0
  buffer B f32[{rows}, 32] shared align 128 versions {slots["B"]} @ {base["B"]}
  frag x f32[{rows}, 32] {dist}
  frag w f32[{rows}, 32] {dist}
  frag y f32[{rows}, 32] {dist}
{barriers}  role producer agents 1 threads 32 counters (p, q) {{
{inits}    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = {threads + 32})
{tasks}{"".join(fills)}      }}
    }}
  }}
  role consumer agents 1 threads {threads} counters (c, d) {{
    sync barrier.sync (id = 0, threads = {threads + 32})
{tasks}{body}        y = add x, w where {where} ; %y[{box}] where {where}
        store Y[{box}] = y where {where} ; store 0 [{box}]
      }}
{after}    }}
  }}
}}
"""
    host = f"  let MT = (M + {rows - 1}) // {rows}\n  let NT = (N + 31) // 32\n"
    host += "".join(f"  map m{n} of {n} f32 box ({rows}, 32) swizzle 0 fill zero promotion 256\n" for n in "XW")
    host += f"  launch main grid max(1, min(MT, {draw.one(1, 2)})) threads {threads + 32} shared {place['B'] + 16 * slots['B']}\n"
    guard = DISJOINT + "  disjoint(W, Y)\n" + boxes("X", "W") + "  1 <= N\n"
    sizes = ({"M": 1, "N": 4}, {"M": rows + 1, "N": 68}, {"M": rows, "N": 32 * (max(slots.values()) + 2)})
    return Drawn("pair", assemble("cuda:sm_90a", ROWS_ADDED, guard, host, kernel), sizes)


# ---- boxes out of staging slots


def staged(draw: Draw) -> Drawn:
    """Results leave as boxes of a staging ring."""
    slots, agents, warps = draw.one(1, 2, 2, 3), draw.one(1, 1, 2), 2
    threads, mine = 32 * warps, 2 * warps
    rows = mine * agents
    row = f"{mine} * w + $0" if agents > 1 else "$0"
    base = f"{mine} * w" if agents > 1 else "0"
    alone = "w, " if agents > 1 else ""
    own = "w + 1" if agents > 1 else "1"
    dist = f"dist (lane 32 axis 1 stride 1, warp {warps} axis 0 stride 1, slot 2 axis 0 stride {warps})"
    where = f"{rows} * t + {row} < M, 32 * j + $1 < N"
    at = f"{rows} * t + {row}, 32 * j + $1"
    meet = f"        sync barrier.sync (id = {own}, threads = {threads})\n"
    depth = draw.pick(str(slots - 1), str(slots), "0", str(slots + 1))
    free = draw.pick(f"        sync bulk.wait (depth = {depth}, read = {draw.one(0, 1)}) by elect\n", "")
    fence = draw.pick("        sync fence.proxy.async\n", "", "        sync fence.proxy.async by elect\n")
    first, second = draw.pick(meet, ""), draw.pick(meet, "", meet.replace("w + 1", "1"))
    joined = draw.pick(fence + second, second + fence)
    s = f"{rows} * t + {mine} * $0 + $1, 32 * j + $2" if agents > 1 else f"{rows} * t + $0, 32 * j + $1"
    claim = f"%y[{s}] where " + s.replace(", ", " < M, ") + " < N"
    slot = draw.pick("e", "j")
    box = f"        copy tma.store Y[{rows} * t + {base} + $0, 32 * j + $1] = S{{{slot}}}[{alone}$0, $1] box ({mine}, 32) map mY by elect ; store 0 [{rows} * t + {base} + $0, 32 * j + $1]\n"
    commit = draw.pick("        sync bulk.commit by elect\n", "")
    last = draw.pick("    sync bulk.wait (depth = 0) by elect\n", "", "    sync bulk.wait (depth = 1) by elect\n")
    shape = f"{agents}, {mine}, 32" if agents > 1 else f"{mine}, 32"
    size = rows * 128
    other = ""
    if agents > 1:  # one role of several agents has no rule: a second role stands beside it
        other = "  role idle agents 1 threads 32 {\n    tasks (u < MT) over persistent {\n      let nothing = u\n    }\n  }\n"
    kernel = f"""kernel main {{
  buffer S f32[{shape}] shared align 128 versions {slots} @ 0
  frag x f32[{mine}, 32] {dist}
  frag y f32[{mine}, 32] {dist}
{other}  role all agents {agents} threads {threads}{" index w" if agents > 1 else ""} counters (e) {{
    tasks (t < MT) over persistent enters R0(m = {rows} * t .. min({rows} * t + {rows}, M)) {{
      loop j = 0 .. NT step 1 {{
        x = load X[{at}] where {where} ; %x[{at}] where {where}
        y = abs x where {where} ; %y[{at}] where {where}
{free}{first}        version S ; {claim}
        store S{{{slot}}}[{alone}$0, $1] = y
{joined}{box}{commit}        advance e
      }}
    }}
{last}  }}
}}
"""
    host = f"  let MT = (M + {rows - 1}) // {rows}\n  let NT = (N + 31) // 32\n  map mY of Y f32 box ({mine}, 32) swizzle 0 fill zero promotion 256\n"
    host += f"  launch main grid max(1, min(MT, 1)) threads {threads * agents + (32 if agents > 1 else 0)} shared {slots * size}\n"
    guard = DISJOINT + boxes("Y") + "  N % 4 == 0\n"
    sizes = ({"M": 1, "N": 4}, {"M": rows + 1, "N": 32 * slots + 4}, {"M": rows, "N": 32 * (slots + 2)})
    return Drawn("staged", assemble("cuda:sm_90a", ROWS, guard, host, kernel), sizes)


# ---- rows that come and leave by engines without tensor maps


def channel(draw: Draw) -> Drawn:
    """Whole rows come as runs of bytes through a ring and leave through staging slots; the slot of the ring is given back
    where the threads have met: at a meeting of its own, or at one that staging has anyway."""
    slots, stages, warps = draw.one(1, 2, 3), draw.one(1, 1, 2), 2
    threads, width = 32 * warps, 32 * warps
    size = 4 * width
    into, out = slots * size, (slots + stages) * size
    dist = f"dist (lane 32 axis 0 stride 1, warp {warps} axis 0 stride 32)"
    meet = f"      sync barrier.sync (id = 1, threads = {threads})\n"
    told = draw.pick("4*N", f"{size}", "4*N + 16", "2*N")
    inside = draw.pick("$1 < N", f"$1 < {width}", "$1 < N - 4") if draw.flip(0.3) else "$1 < N"
    full = draw.pick(f"c // {slots} % 2", f"(c // {slots} + 1) % 2", f"c // {slots + 1} % 2")
    free = draw.pick(f"(p // {slots} + 1) % 2", f"p // {slots} % 2", f"(p // {slots + 1} + 1) % 2")
    grain = draw.one(0, 1, 2)
    by, arrivals = (("", threads), (" by warp", warps), (" by elect", 1))[grain]
    place = draw.one(0, 1, 2, 3)  # behind which meeting the slot is given back
    own = draw.pick(meet, "") if place == 0 and grain else meet if draw.flip() else ""
    back = f"      sync mbar.arrive empty{{{'c' if place == 0 else draw.pick('c - 1', *(['c'] if slots > 1 else []))}}}{by}\n"
    back = [draw.pick(back, "") if place == p else "" for p in range(4)]
    first, second = draw.pick(meet, ""), draw.pick(meet, "")
    depth = draw.pick(str(stages - 1), str(stages), "0")
    wait = draw.pick(f"      sync bulk.wait (depth = {depth}, read = 1) by elect\n", "")
    fence = "      sync fence.proxy.async\n"
    # Behind its use a value has arrived without a fence: nothing is drawn that hangs on it.
    ordered = draw.pick("load fence", "fence load", "load") if place == 0 else "load fence"
    load = "      x = load A{c}[$0] where $0 < N ; %x[t, $0] where $0 < N\n"
    taken = "".join({"load": load, "fence": fence}[word] for word in ordered.split())
    stored = "      copy bulk.store Y[t, $1] = S{e}[$1] box (1, {w}) where {c} by elect ; store 0 [t, $1]\n"
    stored = stored.replace("{w}", str(width)).replace(
        "{c}", draw.pick("$1 < N", f"$1 < {width}") if draw.flip(0.3) else "$1 < N"
    )
    joined = draw.pick(fence + second, second + fence, second)
    kernel = f"""kernel main {{
  buffer A f32[{width}] shared align 128 versions {slots} @ 0
  buffer S f32[{width}] shared align 128 versions {stages} @ {into}
  frag x f32[{width}] {dist}
  frag y f32[{width}] {dist}
  barrier full count 1 versions {slots} tx @ {out}
  barrier empty count {draw.pick(str(arrivals), str(arrivals + 1), str(max(1, arrivals // 2)))} versions {slots} @ {out + 8 * slots}
  role producer agents 1 threads 32 counters (p) {{
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = {threads + 32})
    tasks (t < M) over persistent enters R0(m = t .. t + 1) {{
{draw.pick(f"      sync mbar.wait empty{{p}} (phase = {free}) by elect" + chr(10), "")}      sync mbar.expect full{{p}} (bytes = {told}) by elect
      version A ; %x[t, $0] where $0 < N
      copy bulk.load A{{p}}[$1] = X[t, $1] box (1, {width}) where {inside} signal full{{p}} by elect
      advance p
    }}
  }}
  role consumer agents 1 threads {threads} counters (c, e) {{
    sync barrier.sync (id = 0, threads = {threads + 32})
    tasks (t < M) over persistent enters R0(m = t .. t + 1) {{
{draw.pick(f"      sync mbar.wait full{{c}} (phase = {full})" + chr(10), "")}{taken}{own}{back[0]}      advance c
      y = abs x where $0 < N ; %y[t, $0] where $0 < N
{wait}{first}{back[1]}      version S ; %y[t, $0] where $0 < N
      store S{{e}}[$0] = y where $0 < N ; %y[t, $0] where $0 < N
{joined}{back[2]}{stored}      sync bulk.commit by elect
      advance e
{back[3]}    }}
{draw.pick("    sync bulk.wait (depth = 0) by elect" + chr(10), "")}  }}
}}
"""
    host = f"  launch main grid max(1, min({draw.one(1, 2)}, M)) threads {threads + 32} shared {out + 16 * slots}\n"
    guard = DISJOINT + boxes("X", "Y") + f"  N % 4 == 0\n  1 <= N\n  N <= {width}\n"
    sizes = ({"M": 1, "N": 4}, {"M": slots + 2, "N": width}, {"M": 2 * slots + 1, "N": width - 8})
    return Drawn("channel", assemble("cuda:sm_90a", ROWS, guard, host, kernel), sizes)


# ---- products out of a ring

PRODUCT = """  program product
    dim M
    dim N
    dim K
    tensor X: bf16[M, K]
    tensor W: bf16[K, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M, n in N)
        %start: f32[m, n] = full 0.0
        region R1 reduce (k in K) carry (%acc: f32[m, n] = %start) -> (%sum)
          %x: bf16[m, k] = load X[m, k]
          %w: bf16[k, n] = load W[k, n]
          %next: f32[m, n] = mma %x, %w, %acc
          yield %next
        store Y[m, n] = %sum
"""


def products(draw: Draw) -> Drawn:
    """A contraction of 64 x 64 tiles by asynchronous products out of a ring."""
    slots = draw.one(1, 2, 2)
    behind = slots > 1 and draw.flip()
    size = 64 * 64 * 2
    first = slots * 2 * size
    where = "64 * tm + $0 < M, 64 * tn + $1 < N"
    grain = draw.one(0, 1, 1)
    by, arrivals = (("", 128), (" by warp", 4))[grain]
    count = draw.pick(str(arrivals), str(arrivals // 2), str(arrivals + 1))
    told = draw.pick(str(2 * size), str(size), str(2 * size + 16))
    full = draw.pick(f"(c // {slots}) % 2", f"(c // {slots} + 1) % 2", f"(k0 // 64 // {slots}) % 2")
    free = draw.pick(f"(p // {slots} + 1) % 2", f"(p // {slots}) % 2")
    wait = draw.pick(
        f"        sync wgmma.wait (depth = {1 if behind else 0})\n",
        f"        sync wgmma.wait (depth = {2 if behind else 1})\n",
        "",
    )
    back = f"        sync mbar.arrive empty{{c}}{by}\n"
    if behind:
        back = f"        if 1 <= k0 scope workgroup {{\n          sync mbar.arrive empty{{c - 1}}{by}\n        }}\n"
    turn = draw.pick(wait + back, back + wait)
    after = "      sync wgmma.wait (depth = 0)\n" if behind else draw.pick("", "      sync wgmma.wait (depth = 0)\n")
    # A step that is given back behind the loop: where there is one, or with the guard that there is.
    maybe = behind and draw.flip(0.3)
    last = f"      sync mbar.arrive empty{{c - 1}}{by}\n"
    last = f"      if {draw.pick('0 < K', '64 < K')} {{\n{last}      }}\n" if maybe else last
    after = draw.pick(after, "") + (draw.pick(last, "") if behind else "")
    fenced = draw.pick("        sync wgmma.fence\n", "")
    acc = "dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 8 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)"
    over = "64 * tm + $0, 64 * tn + $1"
    tasks = "    tasks (tm < MT, tn < NT) over persistent enters R0(m = 64 * tm .. min(64 * tm + 64, M), n = 64 * tn .. min(64 * tn + 64, N)) {\n"
    waiting = draw.pick(f"        sync mbar.wait full{{c}} (phase = {full})\n", "")
    kernel = f"""kernel main {{
  buffer A bf16[64, 64] shared align 1024 versions {slots} swizzle 128 @ 0
  buffer B bf16[64, 64] shared align 1024 versions {slots} swizzle 128 @ {slots * size}
  frag acc f32[64, 64] {acc}
  barrier full count 1 versions {slots} tx @ {first}
  barrier empty count {count} versions {slots} @ {first + 8 * slots}
  role producer agents 1 threads 128 counters (p) {{
    sync mbar.init full by elect
    sync mbar.init empty by elect
{draw.pick("    sync fence.mbar_init by elect" + chr(10), "")}    sync barrier.sync (id = 0, threads = 256)
{tasks}      loop k0 = 0 .. K step 64 enters R1(k = k0 .. min(k0 + 64, K)) {{
{draw.pick(f"        sync mbar.wait empty{{p}} (phase = {free}) by elect" + chr(10), "")}        sync mbar.expect full{{p}} (bytes = {told}) by elect
        version A fill 0 ; %x[64 * tm + $0, k0 + $1] where 64 * tm + $0 < M, k0 + $1 < K
        version B fill 0 ; %w[k0 + $0, 64 * tn + $1] where k0 + $0 < K, 64 * tn + $1 < N
        copy tma.load A{{p}}[$0, $1] = X[64 * tm + $0, k0 + $1] box (64, 64) signal full{{p}} map mX by elect
        copy tma.load B{{p}}[$0, $1] = W[k0 + $0, 64 * tn + $1] box (64, 64) signal full{{p}} map mW by elect
        advance p
      }}
    }}
  }}
  role consumer agents 1 threads 128 counters (c) {{
    sync barrier.sync (id = 0, threads = 256)
{tasks}      acc = copy 0.0 ; %start[{over}]
      loop k0 = 0 .. K step 64 enters R1(k = k0 .. min(k0 + 64, K)) {{
        invariant acc ; %acc[{over}] where {where}
{waiting}{fenced}        loop kk = 0 .. 4 step 1 unroll 4 {{
          invariant acc ; %next[{over}] where {where} over (k) : k0 <= k, k < k0 + 16 * kk, k < K
          acc = mma wgmma.m64n64k16.bf16 A{{c}}[$0, 16 * kk + $2], B{{c}}[16 * kk + $2, $1] onto acc contract (16) ; %next[{over}] where {where} over (k) : k0 <= k, k < k0 + 16 * kk + 16, k < K
        }}
        sync wgmma.commit
{turn}        advance c
      }}
{after}      store Y[{over}] = acc where {where} ; store 0 [{over}]
    }}
  }}
}}
"""
    host = "  let MT = (M + 63) // 64\n  let NT = (N + 63) // 64\n  map mX of X bf16 box (64, 64) swizzle 128 fill zero promotion 256\n  map mW of W bf16 box (64, 64) swizzle 128 fill zero promotion 256\n"
    host += f"  launch main grid max(1, min(MT * NT, 1)) threads 256 shared {first + 16 * slots}\n"
    some = "  1 <= K\n" if (behind and not maybe) or draw.flip(0.8 if not maybe else 0.2) else ""
    guard = (
        some
        + "  injective(Y)\n  disjoint(X, Y)\n  disjoint(W, Y)\n"
        + "".join(f"  unit({n}, 1)\n  pitch({n}, 0) % 8 == 0\n  align({n}) >= 16\n" for n in "XW")
    )
    sizes = ({"M": 2, "N": 8, "K": 64 * (slots + 1) + 8}, {"M": 65, "N": 8, "K": 72})
    sizes = sizes if some else (*sizes, {"M": 65, "N": 8, "K": 0})
    return Drawn("products", assemble("cuda:sm_90a", PRODUCT, guard, host, kernel), sizes)


# ---- tasks of a pool, and launches in a row

TOTAL = """  program total
    dim N
    tensor X: f32[N]
    tensor Y: f32[] out
    body
      %x: f32[N] = load X[N]
      %s: f32[] = reduce add %x over N
      store Y[] = %s
"""
PERMUTE = 'numerics "permute %s: a sum in pieces"\n'


def pool(draw: Draw) -> Drawn:
    """A sum in pieces by tasks of a pool, joined afterwards by the caller or by a second fork."""
    parts = draw.one(2, 3, 4)
    slot = draw.pick("t", "t // 2", f"{parts - 1} - t", "0")
    of = "$0" if slot != f"{parts - 1} - t" else f"{parts - 1} - $0"
    step = draw.pick(str(parts), str(parts + 1), str(max(1, parts - 1)))
    start = draw.pick("t", "0", "t + 1")
    sign = f"n == {parts}*e0 + t"
    read = draw.pick(of, "$0")
    tasks = draw.pick(str(parts), str(parts - 1))
    make = f"""    tasks (t < {tasks}) over workers {{
      p = copy -0.0 ; %s[] over (n) : 0 <= n, n < 0
      loop j = {start} .. N step {step} {{
        invariant p ; %s[] over (n) : 0 <= n, n < j, {sign}
        x = load X[j] ; %x[j]
        p = fold add x onto p ; %s[] over (n) : 0 <= n, n <= j, {sign}
      }}
      store T[{slot}] = p ; %s[] over (n) : 0 <= n, n < N, {sign}
    }}
"""
    claim = f"%s[] over (n) : 0 <= n, n < N, n == {parts}*e0 + {read}"
    join = f"    q = load T[$0] ; {claim}\n    s = fold add q axes (0) ; %s[]\n    store Y[] = s ; store 0 []\n"
    if draw.flip(0.3):
        inner = "".join(f"  {line}\n" for line in join.splitlines())
        join = f"    tasks (u < {draw.pick('1', '2')}) over workers {{\n{inner}    }}\n"
    version = f"    version T ; %s[] over (n) : 0 <= n, n < N, n == {parts}*e0 + {of}\n"
    body = draw.pick(version + make + join, version + join + make)
    kernel = f"kernel main {{\n  frag x f32[]\n  frag p f32[]\n  frag q f32[{parts}]\n  frag s f32[]\n  role worker agents 1 threads 1 {{\n{body}  }}\n}}\n"
    host = f"  buffer T f32[{parts}] workspace align 64\n  launch main grid 1 threads 1\n"
    text = assemble("cpu:avx2", TOTAL, "  disjoint(X, Y)\n", host, kernel, PERMUTE)
    return Drawn("pool", text, ({"N": 0}, {"N": 1}, {"N": 2 * parts + 1}))


def launches(draw: Draw) -> Drawn:
    """A sum in pieces by threads or warps of one launch, joined in the next."""
    parts = draw.one(2, 4)
    slot = draw.pick("t, i", "t, 0", "0, i", f"t, {parts - 1} - i")
    turned = slot.endswith("- i")
    step, start = draw.pick(str(parts), str(parts + 1)), draw.pick("i", "0")
    count = draw.pick(str(parts), str(parts - 1))
    sign = f"n == {parts}*e0 + i"
    of = f"{parts - 1} - $1" if turned else "$1"
    claim = f"%s[u] over (n) : 0 <= n, n < N, n == {parts}*e0 + {of.replace('$1', '$0')}"
    first = f"""kernel parts {{
  frag x f32[]
  frag p f32[]
  role all agents 1 threads {32 * draw.one(1, 2)} {{
    version T ; %s[$0] over (n) : 0 <= n, n < N, n == {parts}*e0 + {of}
    tasks (t < M, i < {count}) over threads {{
      p = copy -0.0 ; %s[t] over (n) : 0 <= n, n < 0
      loop j = {start} .. N step {step} {{
        invariant p ; %s[t] over (n) : 0 <= n, n < j, {sign}
        x = load X[t, j] ; %x[t, j]
        p = fold add x onto p ; %s[t] over (n) : 0 <= n, n <= j, {sign}
      }}
      store T[{slot}] = p ; %s[t] over (n) : 0 <= n, n < N, {sign}
    }}
  }}
}}
"""
    threads = int(first.split("threads ")[1].split(" ")[0])
    second = f"""kernel join {{
  frag q f32[{parts}]
  frag s f32[]
  role all agents 1 threads 32 {{
    tasks (u < M) over threads enters R0(m = u .. u + 1) {{
      q = load T[u, $0] ; {claim}
      s = fold add q axes (0) ; %s[u]
      store Y[u] = s ; store 0 [u]
    }}
  }}
}}
"""
    calls = [
        f"  launch parts grid max(1, (M*{parts} + {threads - 1}) // {threads}) threads {threads}\n",
        "  launch join grid max(1, (M + 31) // 32) threads 32\n",
    ]
    order = draw.pick("right", "swapped", "twice", "once")
    named = {"right": calls, "swapped": calls[::-1], "twice": [*calls, calls[1]], "once": calls[1:]}[order]
    host = f"  buffer T f32[M, {parts}] workspace align 16\n" + "".join(named)
    text = assemble("cuda:sm_80", SUMS, DISJOINT, host, first + second, PERMUTE)
    return Drawn("launches", text, ({"M": 1, "N": 0}, {"M": 3, "N": 2 * parts + 1}))


def copies(draw: Draw) -> Drawn:
    """A ring that threads copy into (`random_copies`)."""
    kernel, host, sizes = copies_text(draw)
    guard = DISJOINT + "  1 <= M\n" + boxes("X")
    return Drawn("copies", assemble("cuda:sm_80", ROWS, guard, host, kernel), sizes)


def handover(draw: Draw) -> Drawn:
    """Two roles that hand memory over by named barriers (`random_handovers`)."""
    text, sizes = handover_text(draw)
    return Drawn("handover", text, sizes)


def members(text: Callable[[Any], tuple[str, tuple[dict[str, int], ...]]], kind: str) -> Callable[[Draw], Drawn]:
    """A shape of `random_members`."""
    return lambda draw: Drawn(kind, *text(draw))


def renamed(draw: Draw) -> Drawn:
    """Another shape, in which names stand for several things (`random_names`)."""
    kind = draw.random.choice(OF_ROLES)
    drawn = SHAPES[kind](draw)
    return Drawn("named", named(draw, kind, drawn.text), drawn.sizes)


SHAPES: dict[str, Callable[[Draw], Drawn]] = {
    "named": renamed,
    "lengths": members(lengths_text, "lengths"),
    "copied ring": members(copied_ring_text, "copied ring"),
    "meetings": members(meetings_text, "meetings"),
    "uneven": members(uneven_text, "uneven"),
    "parts": members(parts_text, "parts"),
    "peers": members(peers_text, "peers"),
    "cluster": members(cluster_text, "cluster"),
    "gang": members(gang_text, "gang"),
    "handover ring": members(handover_ring_text, "handover ring"),
    "cleared": members(cleared_text, "cleared"),
    "sent": members(sent_text, "sent"),
    "ahead": members(ahead_text, "ahead"),
    "handover some": members(some_text, "handover some"),
    "room": members(room_text, "room"),
    "handover cluster": members(handover_cluster_text, "handover cluster"),
    "passed": members(passed_text, "passed"),
    "sent ring": members(sent_ring_text, "sent ring"),
    "handover": handover,
    "copies": copies,
    "exchange": exchange,
    "ring": ring,
    "relay": lambda draw: ring(draw, relay=True),
    "pair": pair,
    "staged": staged,
    "channel": channel,
    "products": products,
    "pool": pool,
    "launches": launches,
}
