"""Copies by threads into rings whose slots are indices: right for every number of blocks, and each fault refused."""

from __future__ import annotations

import pytest
from tests.checker.text_parts import DISJOINT, ROWS, boxes, opening

from treadle.checker import check
from treadle.driver.trial import try_machine
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine

HOST = """  let MT = (M + 3) // 4
  let NT = (N + 31) // 32
  launch main grid max(1, min(MT, 2)) threads 64 shared {bytes}
"""
KERNEL = """kernel main {{
  buffer A f32[{V}, 4, 32] shared align 16 @ 0
  frag x f32[4, 32] dist (lane 32 axis 1 stride 1, warp 2 axis 0 stride 1, slot 2 axis 0 stride 2)
  frag y f32[4, 32] dist (lane 32 axis 1 stride 1, warp 2 axis 0 stride 1, slot 2 axis 0 stride 2)
  role all agents 1 threads 64 {{
    tasks (t < MT) over persistent enters R0(m = 4 * t .. min(4 * t + 4, M)) {{
      loop s = 0 .. {ahead} step 1 {{
        invariant A fill 0 within $0 < s ; %x[4 * t + $1, 32 * $0 + $2] where 4 * t + $1 < M, 32 * $0 + $2 < N
        version A fill 0 ; %x[4 * t + $1, 32 * s + $2] where 4 * t + $1 < M, 32 * s + $2 < N
        copy cp.async A[s, $0, $1] = X[4 * t + $0, 32 * s + $1] box (4, 32)
        sync cpasync.commit
      }}
      loop j = 0 .. NT step 1 {{
        invariant A fill 0 within ($0 - j) % {V} < {ahead} ; %x[4 * t + $1, 32 * (j + ($0 - j) % {V}) + $2] where 4 * t + $1 < M, 32 * (j + ($0 - j) % {V}) + $2 < N
        sync cpasync.wait (depth = {depth})
        sync barrier.sync (id = 0, threads = 64)
        version A fill 0 ; %x[4 * t + $1, 32 * (j + {ahead}) + $2] where 4 * t + $1 < M, 32 * (j + {ahead}) + $2 < N
        copy cp.async A[(j + {ahead}) % {V}, $0, $1] = X[4 * t + $0, 32 * (j + {ahead}) + $1] box (4, 32)
        sync cpasync.commit
        x = load A[j % {V}, $0, $1] ; %x[4 * t + $0, 32 * j + $1] where 4 * t + $0 < M, 32 * j + $1 < N
        y = abs x where 4 * t + $0 < M, 32 * j + $1 < N ; %y[4 * t + $0, 32 * j + $1] where 4 * t + $0 < M, 32 * j + $1 < N
        store Y[4 * t + $0, 32 * j + $1] = y where 4 * t + $0 < M, 32 * j + $1 < N ; store 0 [4 * t + $0, 32 * j + $1]
      }}
      sync cpasync.wait (depth = 0)
      sync barrier.sync (id = 0, threads = 64)
    }}
  }}
}}
"""
MEET = "sync barrier.sync (id = 0, threads = 64)\n"


def ring(slots: int, ahead: int | None = None, depth: int | None = None) -> str:
    """A ring of that many slots, filled `ahead` blocks early; each wait leaves `depth` groups."""
    early = slots - 1 if ahead is None else ahead
    left = early - 1 if depth is None else depth
    head = opening("cuda:sm_80", ROWS, boxes("X") + DISJOINT, HOST.format(bytes=slots * 512))
    return head + KERNEL.format(V=slots, ahead=early, depth=left)


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_a_ring_of_any_length_is_verified_and_right(slots: int) -> None:
    program = parse_machine(ring(slots))
    assert print_machine(parse_machine(print_machine(program))) == print_machine(program)
    verdict = check(program)
    assert verdict.status == "verified", str(verdict)


@pytest.mark.parametrize("blocks", [1, 2, 3, 4])  # one, V - 1, V, V + 1
def test_every_number_of_blocks_is_right_under_schedules(blocks: int) -> None:
    assert try_machine(ring(3), "ring", {"M": 5, "N": 32 * blocks - 4}, 0, 4).clean


def test_a_loop_that_never_runs_is_no_mistake_of_the_judge() -> None:
    verdict = check(parse_machine(ring(2).replace("loop s = 0 .. 1 step", "loop s = 0 .. 0 step")))
    assert (verdict.status, verdict.judgement) == ("rejected", "J1"), str(verdict)


CUT = ("box (4, 32)", "box (4, 32) where 32 * s + $1 < N - 4")
WRONG = {
    "one group short": (ring(3, depth=2), "J2"),
    "as far ahead as there are slots": (ring(3, ahead=3, depth=2), "J2"),
    "landed and not joined": (ring(3).replace(f"        {MEET}", "", 1), "J2"),
    "the next task over late readers": (ring(3).replace(f"      {MEET}    }}", "    }", 1), "J2"),
    "the next task under late copies": (ring(3).replace("      sync cpasync.wait (depth = 0)\n", "", 1), "J2"),
    "no group": (ring(3).replace("        sync cpasync.commit\n        x =", "        x =", 1), "J2"),
    "met and not landed": (ring(3).replace("        sync cpasync.wait (depth = 1)\n", "", 1), "J2"),
    "landed behind the meeting": (
        ring(3).replace(f"        sync cpasync.wait (depth = 1)\n        {MEET}", f"        {MEET}        sync cpasync.wait (depth = 1)\n"),
        "J2",
    ),
    "another slot": (ring(3).replace("A[j % 3", "A[(j + 1) % 3"), "J2"),
    "another block": (ring(3).replace("32 * (j + 2) + $1] box", "32 * (j + 1) + $1] box"), "J1"),
    "one block early": (ring(3).replace("loop s = 0 .. 2", "loop s = 0 .. 1"), "J2"),
    "columns cut off": (ring(3).replace(*CUT, 1), "J1"),
    "half a meeting": (ring(3).replace("(id = 0, threads = 64)", "(id = 1, threads = 32)", 1), "J5"),
    "no whole chunks": (ring(3).replace("box (4, 32)", "box (4, 30)", 1), "J4"),
    "rows shared by threads": (ring(3).replace("A[s, $0, $1]", "A[s, $0 // 2, $1]", 1), "J2"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_refused(name: str) -> None:
    text, judgement = WRONG[name]
    assert text != ring(3)
    verdict = check(parse_machine(text))
    assert verdict.status == "rejected" and verdict.judgement == judgement, str(verdict)


UNSURE = {
    "unaligned rows": ring(3).replace("  pitch(X, 0) % 4 == 0\n", ""),
    "an unaligned array": ring(3).replace("  align(X) >= 16\n", ""),
    "half a chunk further": ring(3).replace("32 * s + $1] box", "32 * s + $1 + 2] box"),
    "by one thread": ring(3).replace("box (4, 32)\n", "box (4, 32) by elect\n", 1),
}


@pytest.mark.parametrize("name", UNSURE)
def test_what_the_instruction_cannot_do_is_not_verified(name: str) -> None:
    assert UNSURE[name] != ring(3)
    assert check(parse_machine(UNSURE[name])).status != "verified"
