"""Wrong texts of several roles that were verified once, each beside its right twin: how often a producer waits, numbers of
named barriers, and names that two roles give to different things."""

from __future__ import annotations

import re

import pytest
from tests.checker import ahead_text, random_handovers
from tests.checker.lengths_text import LENGTHS
from tests.checker.machine_study import truth_of
from tests.checker.random_machines import Drawn
from tests.checker.text_parts import ROWS_ADDED, opening

from treadle.checker import check
from treadle.machine.parse import parse_machine

SIZES = ({"M": 1, "N": 40}, {"M": 2, "N": 132}, {"M": 5, "N": 36}, {"M": 3, "N": 96})
WAIT = "        sync mbar.wait emptyB{q} (phase = (q // 1 + 1) % 2) by elect\n"
EXPECT = "        sync mbar.expect fullB{q} (bytes = 512) by elect\n"

BOX = "        copy tma.load B{q}[$0, $1] = W[4 * t + $0, 32 * j + $1] box (4, 32) signal fullB{q} map mW by elect\n"


STEPS = "(N + 63) // 64"
AS_MANY, ONE_MORE = f"      let often = {STEPS}\n", f"      let often = {STEPS} + 1\n"


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """The text with each first replaced by each second."""
    for old, new in pairs:
        assert old in text, f"{old!r} stands nowhere"
        text = text.replace(old, new, 1)
    return text


def looped(line: str, trips: int) -> str:
    """A ring whose producer says one line of its step in a loop of so many iterations."""
    return changed(ahead_text.text(), (line, f"        loop e = 0 .. {trips} step 1 {{\n{line}        }}\n"))


def two_takers(number: str = "", filled: str = "64 * j + $0", index: str = "", taken: str = "32*w + $0") -> str:
    """A block handed over to two agents, each of which takes a half. `number`: a barrier of each agent's own."""
    text = random_handovers.text(**random_handovers.RIGHT["waits at once"])
    text = changed(
        text, ("64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)", "32] dist (lane 32 axis 0 stride 1)")
    )
    text = changed(
        text, ("64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)", "32] dist (lane 32 axis 0 stride 1)")
    )
    one, two = text.split("  role two")
    one = one.replace("64 * j + $0", filled).replace(
        "role one agents 1 threads 32", f"role one agents 1 threads 32{index}"
    )
    own = f"        sync barrier.sync (id = {number}, threads = 32)\n" if number else ""
    two = two.replace("64 * i + $0", "64 * i + 32*w + $0").replace("S[$0]", f"S[{taken}]")
    two = changed(
        two, (" agents 1 threads 64", " agents 2 threads 32 index w"), ("        y = abs", f"{own}        y = abs")
    )
    return f"{one}  role two{two}"


def by_lets(one: str, two: str, count: str = "often") -> str:
    """A hand-over whose roles go on as long as lets say that both call alike. `count`: that of the second role."""
    text = random_handovers.text(**random_handovers.RIGHT["waits at once"])
    loops = (("j", one, "often"), ("i", two, count))
    return changed(
        text,
        *(
            (f"      loop {v} = 0 .. {STEPS} step 1", f"{lets}      loop {v} = 0 .. {name} step 1")
            for v, lets, name in loops
        ),
    )


def said(text: str) -> tuple[str, str]:
    """The verdict, and what all interleavings show."""
    return check(parse_machine(text)).status, truth_of(parse_machine(text), Drawn("roles", text, SIZES))[0]


def two_rings(empty: str = "emptyB", divides: str = "") -> str:
    """A producer fills two rings, each of which has a taker of its own, who gives the second one back at `empty`."""
    at = "4 * t + $0, 32 * j + $1"
    inside = "4 * t + $0 < M, 32 * j + $1 < N"
    source = changed(
        ROWS_ADDED,
        ("tensor Y: f32[M, N] out", "tensor Y: f32[M, N] out\n    tensor Z: f32[M, N] out"),
        ("add %x, %w", "abs %x"),
        (
            "        store Y[m, N] = %y",
            "        %z: f32[m, N] = abs %w\n        store Y[m, N] = %y\n        store Z[m, N] = %z",
        ),
    )
    guard = changed(
        ahead_text.GUARD,
        ("injective(Y)", "disjoint(X, Z)\n  disjoint(W, Z)\n  disjoint(Y, Z)\n  injective(Z)\n  injective(Y)"),
    )
    around = f"    sync barrier.sync (id = 0, threads = 96)\n{ahead_text.TASKS}      loop j = 0 .. NT step 1 {{\n"
    fills = "".join(ahead_text.filled(ring, 2) for ring in "AB").replace("emptyB", empty)
    barriers = {"fullA": "1", "emptyA": "32", "fullB": "1", empty: "32"}
    takers = ""
    for ring, back, x, c, y, tensor, number in (
        ("A", "emptyA", "x", "c", "y", "Y", 0),
        ("B", empty, "w", "d", "z", "Z", 1),
    ):
        takers += f"""  role taker{ring} agents 1 threads 32 counters ({c}) {{
{around}        sync mbar.wait full{ring}{{{c}}} (phase = {c} // 2 % 2)
        {x} = load {ring}{{{c}}}[$0, $1] ; %{x}[{at}] where {inside}
        sync fence.proxy.async
        sync mbar.arrive {back}{{{c}}}
        advance {c}
        {y} = abs {x} where {inside} ; %{y}[{at}] where {inside}
        store {tensor}[{at}] = {y} where {inside} ; store {number} [{at}]
      }}
    }}
  }}
"""
    words = [
        f"  barrier {n} count {k} versions 2{' tx' if k == '1' else ''} @ {2048 + 16 * i}\n"
        for i, (n, k) in enumerate(barriers.items())
    ]
    frags = [f"  frag {n} f32[4, 32] dist (lane 32 axis 1 stride 1, slot 4 axis 0 stride 1)\n" for n in "xwyz"]
    host = f"""  let MT = (M + 3) // 4
  let NT = (N + 31) // 32
{divides}  map mX of X f32 box (4, 32) swizzle 0 fill zero promotion 256
  map mW of W f32 box (4, 32) swizzle 0 fill zero promotion 256
  launch main grid max(1, min(MT, 2)) threads 96 shared 2112
"""
    kernel = f"""kernel main {{
  buffer A f32[4, 32] shared align 128 versions 2 @ 0
  buffer B f32[4, 32] shared align 128 versions 2 @ 1024
{"".join(frags)}{"".join(words)}  role producer agents 1 threads 32 counters (p, q) {{
{"".join(f"    sync mbar.init {n} by elect{chr(10)}" for n in barriers)}    sync fence.mbar_init by elect
{around}{fills}      }}
    }}
  }}
{takers}}}
"""
    return opening("cuda:sm_90a", source, guard, host) + kernel


RIGHT = {
    "a ring for each of two": two_rings(),
    "the host divides by a positive number": two_rings(divides="  let Q = M // max(1, N)\n"),
    "a wait in a loop of one iteration": looped(WAIT, 1),
    "lets of one name": by_lets(AS_MANY, AS_MANY),
    "lets of one name for different numbers": by_lets(AS_MANY, f"{ONE_MORE}      let all = {STEPS}\n", "all"),
    "halves": two_takers(),
    "halves, each agent with a barrier of its own": two_takers("w + 3"),
    "the giver has a number, too": two_takers(index=" index w", filled="64 * j + 32*w + $0"),
}
WRONG = {
    "a wait in a loop that never runs": (looped(WAIT, 0), "J3"),
    "an announcement in a loop that never runs": (looped(EXPECT, 0), "J3"),
    "two announcements": (looped(EXPECT, 2), "J3"),
    "one barrier says that slots of two rings are free": (two_rings("emptyA"), "J3"),
    "a box twice into one place": (
        changed(looped(BOX, 2), ("fullB{q} (bytes = 512)", "fullB{q} (bytes = 1024)")),
        "J2",
    ),
    "one let for different numbers": (by_lets(AS_MANY, ONE_MORE), "J3"),
    "an agent's own barrier is one of the hand-over": (two_takers("w + 2"), "J5"),
    "the giver's number for the taker's": (two_takers(index=" index w", filled="64 * j + 32*w + $0", taken="$0"), "J1"),
}


LOOPS = (("2 * t", "2 * u", "verified"), ("2 * t", "2 * u + 1", "rejected"), ("2 * t + w", "2 * u + w", "unknown"))


@pytest.mark.parametrize(("one", "two", "status"), LOOPS)
@pytest.mark.parametrize(("mine", "theirs"), [("w", "w"), ("u", "t")])
def test_loops_that_loaded_numbers_bound(one: str, two: str, status: str, mine: str, theirs: str) -> None:
    """Of elements that names of one role, or the numbers of its agents, tell: whatever the other role calls so."""
    head, first, second = LENGTHS.replace("ONE", one).replace("TWO", two).split("  role ")
    first, second = (re.sub(r"\bw\b", name, role) for name, role in ((mine, first), (theirs, second)))
    text = "  role ".join((head, first, second))
    verdict = check(parse_machine(text))
    assert verdict.status == status and verdict.judgement in (None, "J3", "J5"), str(verdict)
    truth = truth_of(parse_machine(text), Drawn("lengths", text, ({"M": 2}, {"M": 4})))[0]
    assert truth == ("safe" if status == "verified" else "unsafe")


@pytest.mark.parametrize("name", RIGHT)
def test_right_twins(name: str) -> None:
    assert said(RIGHT[name]) == ("verified", "safe")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_twins(name: str) -> None:
    text, judgement = WRONG[name]
    assert said(text) == ("rejected", "unsafe")
    assert check(parse_machine(text)).judgement == judgement


def test_the_host_does_not_divide_by_zero() -> None:
    text = two_rings(divides="  let Q = M // N\n")
    verdict = check(parse_machine(text))
    assert (verdict.status, verdict.judgement) == ("rejected", "J7"), str(verdict)
    assert truth_of(parse_machine(text), Drawn("host", text, ({"M": 3, "N": 0},)))[0] == "unsafe"


def test_a_hand_over_inside_a_turn_is_refused() -> None:
    """One agent waits for both in its turn, the other one for its turn."""
    take, give = (f"        sync barrier.{kind} (id = {n}, threads = 96)\n" for kind, n in (("sync", 1), ("arrive", 2)))
    turn = "sync barrier.{} (id = {}, threads = 64) tags (turn)\n"
    one, two = two_takers().split("  role two")
    two = changed(
        two,
        (take, f"        {turn.format('sync', 'w + 5')}{take}"),
        (give, f"{give}        {turn.format('arrive', '6 - w')}"),
        ("    tasks", f"    if w == 1 scope workgroup {{\n      {turn.format('arrive', 5)}    }}\n    tasks"),
    ).removesuffix("  }\n}\n")
    text = f"{one}  role two{two}    if w == 0 scope workgroup {{\n      {turn.format('sync', 5)}    }}\n  }}\n}}\n"
    verdict = check(parse_machine(text))
    assert (verdict.status, verdict.judgement) == ("unknown", "J5"), str(verdict)
    assert truth_of(parse_machine(text), Drawn("turns", text, SIZES))[0] == "unsafe"
