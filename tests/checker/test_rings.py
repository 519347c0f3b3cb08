"""Rings, products in flight and boxes: the right text is verified, every wrong twin is refused for its reason."""

from __future__ import annotations

import re

import pytest
from ring_text import RING

from treadle.checker import Verdict, check
from treadle.machine.parse import parse_machine


def judge(text: str) -> Verdict:
    return check(parse_machine(text.strip("\n")))


def test_the_ring_is_verified_for_all_sizes() -> None:
    verdict = judge(RING)
    assert verdict.status == "verified", str(verdict)
    assert verdict.seconds < 5.0


# (what is wrong, line as it stands, line instead ("": deleted), judgement, what the reason must say)
TWINS: list[tuple[str, str, str, str, str]] = [
    (
        "no wait for the slot",
        "sync mbar.wait empty{p} (phase = (p // 4 + 1) % 2) by elect",
        "",
        "J3",
        "nobody has waited",
    ),
    ("slot of the same turn", "(phase = (p // 4 + 1) % 2)", "(phase = (p // 4) % 2)", "J3", "phase"),
    ("turns of another ring", "(phase = (p // 4 + 1) % 2)", "(phase = (p // 2 + 1) % 2)", "J3", "phase"),
    (
        "no announcement",
        "sync mbar.expect full{p} (bytes = 32768) by elect",
        "",
        "J3",
        "announce once|setup|no producer",
    ),
    ("bytes of the inner part only", "(bytes = 32768)", "(bytes = 32640)", "J3", "32768"),
    ("bytes of one more box", "(bytes = 32768)", "(bytes = 40960)", "J3", "32768"),
    ("announced for another slot", "sync mbar.expect full{p}", "sync mbar.expect full{p + 1}", "J3", "another slot"),
    ("copy into another slot", "copy tma.load A{p}[", "copy tma.load A{p + 1}[", "J2", "another slot"),
    (
        "copy that completes elsewhere",
        "box (128, 64) signal full{p}",
        "box (128, 64) signal empty{p}",
        "J3",
        "complete as",
    ),
    (
        "a copy left out",
        "copy tma.load A{p}[$0, $1] = X[128 * tm + $0, k0 + $1] box (128, 64) signal full{p} map mX by elect",
        "",
        "J3",
        "bytes",
    ),
    (
        "a further box, into a slot of no step",
        "copy tma.load A{p}[$0, $1] = X[128 * tm + $0, k0 + $1] box (128, 64) signal full{p} map mX by elect",
        "copy tma.load A{p}[$0, $1] = X[128 * tm + $0, k0 + $1] box (128, 64) signal full{p} map mX by elect\n"
        "        copy tma.load A{0}[$0, $1] = X[128 * tm + $0, k0 + $1] box (128, 64) signal full{0} map mX by elect",
        "J3",
        "outside the steps",
    ),
    ("a target without engines", "target cuda:sm_90a", "target cuda:sm_80", "J7", "sm_80|sm_90"),
    ("a box left out", "loop c0 = 0 .. 2 step 1 unroll 2 {", "loop c0 = 0 .. 1 step 1 unroll 2 {", "J3", "bytes"),
    ("boxes of another tile", "= X[128 * tm + $0, k0 + $1] box", "= X[128 * tm + $0, k0 + $1 + 64] box", "J1", ""),
    ("tensor map of another box", "map mX of X bf16 box (128, 64)", "map mX of X bf16 box (64, 64)", "J7", "boxes"),
    (
        "tensor map without swizzle",
        "map mW of W bf16 box (64, 64) swizzle 128",
        "map mW of W bf16 box (64, 64) swizzle 0",
        "J7",
        "",
    ),
    ("pitch not known", "  pitch(W, 0) % 8 == 0\n", "", "J7", "boxes of W"),
    ("address not known", "  align(Y) >= 16\n", "", "J7", "boxes of Y"),
    ("producer does not move on", "advance p", "", "J3", "outside the steps"),
    (
        "no wait for the data",
        "sync mbar.wait full{c} (phase = (c // 4) % 2)",
        "",
        "J[235]",
        "never taken|never waited|no ring",
    ),
    ("data of the turn before", "(phase = (c // 4) % 2)", "(phase = (c // 4 + 1) % 2)", "J3", "phase"),
    (
        "one thread waits for the data",
        "sync mbar.wait full{c} (phase = (c // 4) % 2)",
        "sync mbar.wait full{c} (phase = (c // 4) % 2) by elect",
        "J2",
        "only some threads",
    ),
    ("read of another slot", "m64n128k16.bf16 A{c}[", "m64n128k16.bf16 A{c + 1}[", "J2", "another slot"),
    ("products not awaited", "sync wgmma.wait (depth = 1)", "", "J2", "still be read|settle"),
    (
        "one product too many in flight",
        "sync wgmma.wait (depth = 1)",
        "sync wgmma.wait (depth = 2)",
        "J2",
        "still be read",
    ),
    ("last product not awaited", "sync wgmma.wait (depth = 0)", "", "J2", "still be read|in use"),
    ("no fence before products", "sync wgmma.fence", "", "J2", "fence"),
    ("products of no group", "sync wgmma.commit", "", "J2", "still be read|in use"),
    (
        "slot given back at once",
        "sync mbar.arrive empty{c - 1} by warp\n        }",
        "sync mbar.arrive empty{c} by warp\n        }",
        "J[23]",
        "",
    ),
    (
        "given back in the first step too",
        "if 1 <= k0 scope workgroup {",
        "if 0 <= k0 scope workgroup {",
        "J3",
        "first iteration",
    ),
    (
        "last slot never given back",
        "      sync wgmma.wait (depth = 0)\n      sync mbar.arrive empty{c - 1} by warp",
        "      sync wgmma.wait (depth = 0)",
        "J3",
        "once",
    ),
    (
        "given back by one thread",
        "        if 1 <= k0 scope workgroup {\n          sync mbar.arrive empty{c - 1} by warp",
        "        if 1 <= k0 scope workgroup {\n          sync mbar.arrive empty{c - 1} by elect",
        "J3",
        "grain",
    ),
    ("arrivals of one consumer", "barrier empty count 8", "barrier empty count 4", "J3", "counts"),
    ("arrivals of three consumers", "barrier empty count 8", "barrier empty count 12", "J3", "counts"),
    ("barrier of fewer slots", "barrier empty count 8 versions 4", "barrier empty count 8 versions 3", "J[34]", ""),
    (
        "buffer of fewer slots",
        "buffer A bf16[128, 64] shared align 1024 versions 4",
        "buffer A bf16[128, 64] shared align 1024 versions 3",
        "J3",
        "slots",
    ),
    ("buffers overlap", "swizzle 128 @ 65536", "swizzle 128 @ 64512", "J4", "overlap"),
    ("not enough shared memory asked for", "shared 163904", "shared 163840", "J4", "shared memory"),
    ("loop without steps", "  1 <= K\n", "", "J3", "without iterations"),
    ("barrier not set up", "sync mbar.init empty by elect\n", "", "J3", "set up 0 times"),
    ("barriers not fenced", "    sync fence.mbar_init by elect\n", "", "J2", "fence"),
    (
        "roles do not meet",
        "role consumer agents 2 threads 128 index w registers 232 counters (c, e) {\n    sync barrier.sync (id = 0, threads = 384)",
        "role consumer agents 2 threads 128 index w registers 232 counters (c, e) {",
        "J2",
        "meet",
    ),
    (
        "consumer of other tasks",
        "232)\n    tasks (tm < MT, tn < NT) over persistent raster (group, 16)",
        "232)\n    tasks (tm < MT, tn < NT) over persistent raster (group, 8)",
        "J3",
        "different tasks",
    ),
    (
        "consumer of fewer steps",
        "      acc = copy 0.0 ; %start[128 * tm + 64 * w + $0, 128 * tn + $1]\n      loop k0 = 0 .. K step 64 enters R1(k = k0 .. min(k0 + 64, K))",
        "      acc = copy 0.0 ; %start[128 * tm + 64 * w + $0, 128 * tn + $1]\n      loop k0 = 0 .. K step 128 enters R1(k = k0 .. min(k0 + 128, K))",
        "J3",
        "differ",
    ),
    ("rows of the other consumer", "A{c}[64 * w + $0, 16 * kk + $2]", "A{c}[64 - 64 * w + $0, 16 * kk + $2]", "J1", ""),
    ("depth read twice", "16 * kk + $2], B{c}", "16 * (kk // 2) + $2], B{c}", "J1", ""),
    (
        "accumulator not started",
        "acc = copy 0.0 ; %start[128 * tm + 64 * w + $0, 128 * tn + $1]\n",
        "",
        "J1",
        "not assigned",
    ),
    (
        "registers lie otherwise",
        "slot 16 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)",
        "slot 16 axis 1 stride 8, lane 8 axis 0 stride 1, lane 4 axis 1 stride 2, warp 4 axis 0 stride 16)",
        "J5",
        "another thread|does not lie",
    ),
    (
        "lanes and warps exchanged",
        "slot 16 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)",
        "slot 16 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 4, warp 4 axis 0 stride 1)",
        "J5",
        "",
    ),
    ("staging slot not awaited", "sync bulk.wait (depth = 1, read = 1) by elect\n", "", "J2", "staging step"),
    ("staging slot awaited too little", "(depth = 1, read = 1)", "(depth = 2, read = 1)", "J2", "may still be read"),
    (
        "staging not joined before",
        "        sync barrier.sync (id = w + 1, threads = 128)\n        version S",
        "        version S",
        "J2",
        "staging step",
    ),
    ("staging not fenced", "        sync fence.proxy.async\n", "", "J2", "staging step"),
    (
        "staging not joined after",
        "        sync fence.proxy.async\n        sync barrier.sync (id = w + 1, threads = 128)",
        "        sync fence.proxy.async",
        "J2",
        "staging step",
    ),
    (
        "joined with the other consumer",
        "        sync fence.proxy.async\n        sync barrier.sync (id = w + 1, threads = 128)",
        "        sync fence.proxy.async\n        sync barrier.sync (id = w + 2, threads = 128)",
        "J5",
        "joins different",
    ),
    ("consumers share a staging part", "store S{e}[w, $0, $1] = y", "store S{e}[0, $0, $1] = y", "J2", "side by side"),
    (
        "consumers exchange staging parts",
        "store S{e}[w, $0, $1] = y",
        "store S{e}[1 - w, $0, $1] = y",
        "J2",
        "side by side",
    ),
    ("boxes not committed", "        sync bulk.commit by elect\n", "", "J2", "staging step"),
    ("boxes not finished at the end", "    sync bulk.wait (depth = 0) by elect\n", "", "J2", "may end"),
    (
        "staging of one slot only",
        "buffer S bf16[2, 64, 64] shared align 1024 versions 2",
        "buffer S bf16[2, 64, 64] shared align 1024 versions 1",
        "J2",
        "may still be read",
    ),
    (
        "box of other columns",
        "= S{e}[w, $0, $1] box (64, 64) map mY by elect ; store 0 [128 * tm + 64 * w + $0, 128 * tn + 64 * g + $1]",
        "= S{e}[w, $0, $1] box (64, 64) map mY by elect ; store 0 [128 * tm + 64 * w + $0, 128 * tn + $1]",
        "J1",
        "",
    ),
    ("half of the columns", "loop g = 0 .. 2 step 1 unroll 2", "loop g = 0 .. 1 step 1 unroll 2", "J1", "never stored"),
    ("register budget not asked for", "    sync setmaxnreg (registers = 232)\n", "", "J5", "registers"),
    ("more registers than there are", "registers 232", "registers 248", "J4|J5", ""),
]


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, old, new, judgement, reason = twin
    assert old in RING
    verdict = judge(
        RING.replace(old, new, 1) if "registers 248" not in new else RING.replace(old, new).replace("232)", "248)")
    )
    if not judgement:
        assert verdict.status == "verified", str(verdict)  # the order of digits of different kinds says nothing
        return
    assert verdict.status in ("rejected", "unknown"), str(verdict)
    assert verdict.judgement is not None and re.fullmatch(judgement, verdict.judgement), str(verdict)
    assert re.search(reason, verdict.reason + (verdict.missing or "")), str(verdict)


FEWER, MORE = "    sync setmaxnreg (registers = 40)\n", "    sync setmaxnreg (registers = 232)\n"
MEETING = "    sync barrier.sync (id = 0, threads = 384)\n"


def test_registers_are_those_of_the_workgroup() -> None:
    """Who asks for nothing keeps its share of 168, and who asks for more waits until others gave theirs up."""
    kept = RING.replace(" registers 40 counters", " counters").replace(FEWER, "")
    assert (judge(kept).status, judge(kept).judgement) == ("rejected", "J4")
    assert judge(RING.replace(" registers 232 counters", " counters").replace(MORE, "")).status == "verified"
    early = RING.replace(MEETING + MORE, MORE + MEETING)
    assert (judge(early).status, judge(early).judgement) == ("rejected", "J5")
    assert judge(early.replace(MEETING + FEWER, FEWER + MEETING)).status == "verified"
    two = RING.replace("shared 163904", "shared 163904 resident 2")
    assert (judge(two).status, judge(two).judgement) == ("rejected", "J4")


def test_products_are_fenced_from_reads_of_their_accumulator() -> None:
    """Threads that look at the accumulator between two products fence it again, as they do when they write it."""
    fence, wait = "        sync wgmma.fence\n", "        sync wgmma.wait (depth = 1)\n"
    steps = "      loop k0 = 0 .. K step 64 enters"
    seen = RING.replace("  buffer S", "  buffer Z f32[2, 64, 128] shared align 16 @ 164096\n  buffer S")
    seen = seen.replace("shared 163904", "shared 229632").replace(
        "[2, 64, 64] shared align 1024 versions 2", "[2, 64, 64] shared align 1024 versions 1"
    )
    seen = seen.replace("bulk.wait (depth = 1", "bulk.wait (depth = 0")
    told = f"{wait.replace('1', '0')}        version Z\n        store Z[w, $0, $1] = acc\n"
    met = "        sync barrier.sync (id = w + 1, threads = 128)\n"
    seen = seen.replace(wait, told + met)
    assert judge(seen).status == "verified", str(judge(seen))
    once = seen.replace(fence, "").replace(steps, fence + steps)
    assert judge(RING.replace(fence, "").replace(steps, fence + steps)).status == "verified"
    assert (judge(once).status, judge(once).judgement) == ("rejected", "J2"), str(judge(once))


def test_boxes_of_an_output_that_overlaps_an_input_are_unknown() -> None:
    verdict = judge(RING.replace("  disjoint(W, Y)\n", ""))
    assert (verdict.status, verdict.judgement) == ("unknown", "J7")
    assert verdict.missing == "disjoint(Y, W) in the guard"


def test_bounds_of_the_host_are_known_to_rings() -> None:
    """A loop to a number of steps that the host computes: never empty where the guard says so of what it is made of."""
    told = RING.replace("  let NT =", "  let KT = (K + 63) // 64\n  let NT =")
    steps = told.replace("loop k0 = 0 .. K step 64", "loop k0 = 0 .. 64 * KT step 64")
    assert steps.count("64 * KT") == 2 and judge(steps).status == "verified", str(judge(steps))
    empty = judge(steps.replace("  1 <= K\n", ""))
    assert empty.status == "rejected" and "without iterations" in empty.reason


IDLE = """  role idle agents 1 threads 128 registers 160 counters (i) {
    sync barrier.sync (id = 0, threads = 512)
    sync setmaxnreg (registers = 160)
    tasks (tm < MT, tn < NT) over persistent raster (group, 16) enters R0(m = 128 * tm .. min(128 * tm + 128, M), n = 128 * tn .. min(128 * tn + 128, N)) {
      loop k0 = 0 .. K step 64 enters R1(k = k0 .. min(k0 + 64, K)) {
        sync mbar.wait full{i} (phase = (i // 4) % 2)
        sync mbar.arrive empty{i} by warp
        advance i
      }
    }
  }
}
"""


def test_a_role_that_reads_nothing_gives_back_what_it_waited_for() -> None:
    """Arriving before its wait it would be a step ahead, and arrive in the place of one that still reads."""
    text = RING[: RING.rindex("}")] + IDLE
    text = text.replace("threads = 384", "threads = 512").replace("threads 384", "threads 512")
    text = text.replace("empty count 8", "empty count 12").replace("(registers = 40)", "(registers = 24)")
    text = (
        text.replace("registers 40 ", "registers 24 ")
        .replace("registers = 232", "registers = 160")
        .replace("registers 232", "registers 160")
    )
    assert judge(text).status == "verified", str(judge(text))
    wait, give = (
        f"        sync mbar.{word}\n" for word in ("wait full{i} (phase = (i // 4) % 2)", "arrive empty{i} by warp")
    )
    early = text.replace(wait + give, give + wait)
    assert early != text
    verdict = judge(early)
    assert (verdict.status, verdict.judgement) == ("rejected", "J3"), str(verdict)
