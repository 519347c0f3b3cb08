"""Launches whose workgroups count at words in global memory: who arrives last goes on, or an owner waits; tickets."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checker.counter_text import LAST, OWNER, RINGS, counted, of_two_consumers
from tests.marks import assembled

from treadle.checker import check
from treadle.driver.mutation import executed, judged
from treadle.driver.trial import close_enough, expected
from treadle.machine.form import MachineProgram
from treadle.machine.mutate import mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.machine.verify import form_problems
from treadle.simulate.run import run_schedules
from treadle.targets.cuda.emit import Call, cleared_bytes, emit, prepare, workspace_bytes
from treadle.toolchain.nvrtc import compile_cuda

STAY = {"over": "persistent", "launch": "grid 3 threads 32"}
DRAWN = {"over": "tickets", "launch": "grid 3 threads 32"}
TOGETHER = {"over": "persistent", "launch": "grid 3 threads 32 cooperative"}
RIGHT = {
    "last of a grid": counted(),
    "last of workgroups that stay": counted(**STAY),
    "last of tickets": counted(**DRAWN),
    "owner of tickets": counted(OWNER, **DRAWN),
    "owner in a cooperative launch": counted(OWNER, **TOGETHER),
    "owner of a grid that runs at once": counted(OWNER, launch="grid M * S threads 32 cooperative"),
    "first owner of a grid that runs at once": counted(
        OWNER.replace("s == S - 1", "s == 0"), launch="grid M * S threads 32 cooperative"
    ),
    "consumers of a ring": RINGS,
    "consumers of a ring, by tickets": RINGS.replace("persistent", "tickets"),
    "two consumers of a ring": of_two_consumers(RINGS),
    "two consumers of a ring, by tickets": of_two_consumers(RINGS).replace("persistent", "tickets"),
}


def trials(machine: MachineProgram, m: int, n: int, count: int) -> list[str]:
    """What goes wrong under `count` schedules."""
    x = np.random.default_rng(m * n).integers(-4, 5, (m, n)).astype(np.float32)
    arrays = {"X": x, "Y": np.full(m, np.nan, np.float32)}
    want = expected(machine, arrays, {}, {"M": m, "N": n})
    return [what for _, what in run_schedules(machine, arrays, count, 0, expected=want, same=close_enough).failures]


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_verified_and_run(name: str) -> None:
    machine = parse_machine(RIGHT[name])
    assert not form_problems(machine)
    assert print_machine(parse_machine(print_machine(machine))) == print_machine(machine)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    for m, n in ((3, 72), (1, 12)):
        assert not trials(machine, m, n, 8)


WRONG = {
    "one arrival too few": (RIGHT["last of a grid"], ("of S id", "of S - 1 id"), "rejected", "J3", (2, 70)),
    "one arrival too many": (RIGHT["last of a grid"], ("of S id", "of S + 1 id"), "rejected", "J3", (2, 70)),
    "nobody arrives": (RIGHT["last of a grid"], ("  1 <= N\n", ""), "rejected", "J3", None),
    "nobody arrives who stays": (RIGHT["last of tickets"], ("  1 <= N\n", ""), "rejected", "J3", (2, 0)),
    "a word for all rows": (RIGHT["last of a grid"], ("last C[t]", "last C[0]"), "unknown", "J3", (3, 70)),
    "no word for the last row": (
        RIGHT["last of a grid"],
        ("counter C[M]", "counter C[M - 1]"),
        "rejected",
        "J4",
        (2, 40),
    ),
    "parts of the next row": (
        RIGHT["last of tickets"],
        ("q = load P[t, i]", "q = load P[min(t + 1, M - 1), i]"),
        "rejected",
        "J2",
        (3, 70),
    ),
    "two launches at one counter": (
        RIGHT["last of tickets"],
        ("  launch main grid 3 threads 32\n", "  launch main grid 3 threads 32\n  launch main grid 3 threads 32\n"),
        "unknown",
        "J5",
        None,
    ),
    "an owner that others cannot reach": (counted(OWNER), ("", ""), "rejected", "J5", (3, 100)),
    "an owner before its parts": (
        RIGHT["owner of tickets"],
        ("if s == S - 1", "if s == 0"),
        "rejected",
        "J5",
        (1, 200),
    ),
    "an owner before its parts, at once": (
        RIGHT["owner in a cooperative launch"],
        ("if s == S - 1", "if s == 0"),
        "rejected",
        "J5",
        (1, 200),
    ),
    "no owner": (RIGHT["owner of tickets"], ("if s == S - 1", "if s == S"), "rejected", "J3", (2, 40)),
    "a wait for fewer": (RIGHT["owner of tickets"], ("(count = S)", "(count = S - 1)"), "rejected", "J3", (3, 100)),
    "a wait for more": (RIGHT["owner of tickets"], ("(count = S)", "(count = S + 1)"), "rejected", "J3", (1, 40)),
    "an owner's row of tasks turned": (
        RIGHT["owner of tickets"],
        ("over tickets", "over tickets raster (row, reverse)"),
        "unknown",
        "J5",
        (1, 200),
    ),
    "the task of the part": (
        RIGHT["last of a grid"],
        ("q = load P[t, i]", "q = load P[t, s]"),
        "rejected",
        "J1",
        (2, 70),
    ),
    "threads that have not met": (
        RIGHT["owner of tickets"].replace("threads 32", "threads 32"),
        ("      sync barrier.sync (id = 0, threads = 32)\n      sync counter.add", "      sync counter.add"),
        "rejected",
        "J2",
        None,
    ),
    "fewer than come behind a ring": (
        RIGHT["consumers of a ring"],
        ("of S", "of S - 1"),
        "rejected",
        "J3",
        (3, 72),
    ),
    "half of the consumers counted": (
        RIGHT["two consumers of a ring"],
        ("of 2*S id", "of S id"),
        "rejected",
        "J3",
        (3, 72),
    ),
    "two consumers' parts in one place": (
        RIGHT["two consumers of a ring"],
        ("store P[t, 2*s + w]", "store P[t, 2*s]"),
        "rejected",
        "J2",
        (3, 72),
    ),
    "the consumer's number behind all arrivals": (
        RIGHT["two consumers of a ring"],
        ("store Y[t] = a by", "store Y[t + w] = a by"),
        "rejected",
        "J1",
        (3, 72),
    ),
    "a word for each consumer, parts of both": (
        RIGHT["two consumers of a ring"].replace("counter C[M]", "counter C[M, 2]"),
        ("last C[t] of 2*S", "last C[t, w] of S"),
        "rejected",
        "J2",
        (3, 72),
    ),
    "the ring moves on where all have arrived": (
        RIGHT["consumers of a ring"],
        ("        a = copy -0.0\n", "        advance c\n        a = copy -0.0\n"),
        "unknown",
        "J3",
        (3, 72),
    ),
    "a slot of the ring in the part": (
        RIGHT["consumers of a ring"],
        ("q = load P[t, i]", "q = load A{c - 1}[0]"),
        "unknown",
        "J2",
        None,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not(name: str) -> None:
    text, (old, new), status, judgement, seen = WRONG[name]
    assert not old or text.count(old) >= 1
    machine = parse_machine(text.replace(old, new) if old else text)
    verdict = check(machine)
    assert (verdict.status, verdict.judgement) == (status, judgement), str(verdict)
    if seen is not None:
        assert trials(machine, *seen, 30)


@pytest.mark.parametrize("name", ["last of tickets", "owner of tickets", "owner in a cooperative launch"])
def test_no_mutant_is_accepted_and_wrong(name: str) -> None:
    machine = parse_machine(RIGHT[name])
    seen, count = {executed(machine)}, 0
    for mutant in list(mutants(machine))[::2]:
        if judged(mutant) != "verified" or executed(mutant.program) in seen:
            continue
        seen.add(executed(mutant.program))
        count += 1
        for m, n in ((2, 70), (1, 5)):
            assert not trials(mutant.program, m, n, 3), str(mutant)
    assert count


def test_words_are_cleared_and_told_apart() -> None:
    emitted = emit(parse_machine(RIGHT["owner of tickets"]))
    call = Call({"M": 5, "N": 40}, {"X": 0, "Y": 0}, {"X": (40, 1), "Y": (1,)}, {}, workspace=1 << 20)
    assert cleared_bytes(emitted, call) == 32 + 16  # five words in whole 16 bytes, and the launch's own
    (launch,) = prepare(emitted, call)
    words = dict(zip([a.kind for a in emitted.launches[0].arguments], launch.arguments, strict=True))
    end = (1 << 20) + workspace_bytes(emitted, call)
    assert words["counted"].address == end - 48 and words["arrivals"].address == end - 16


@assembled
@pytest.mark.parametrize("name", ["last of a grid", "owner of tickets", "consumers of a ring, by tickets"])
def test_counters_assemble(name: str) -> None:
    emitted = emit(parse_machine(RIGHT[name]))
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="sums")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
    assert not [m for m in compiled.messages if m.code]
    assert LAST.split("of")[0].strip() not in emitted.source
