"""A sample of random machine programs: the judge verifies none that some interleaving shows wrong, and nearly all that
none does. The whole study is `benchmarks/machine_programs.py`."""

from __future__ import annotations

import pytest
from tests.checker import copied_ring_text, meeting_text
from tests.checker.interleavings import explore
from tests.checker.machine_study import Finding, study
from tests.checker.random_machines import SHAPES, Draw, random_machine

from treadle.checker import check
from treadle.driver.samples import arguments
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.simulate.run import record

SEEDS = range(20_000, 20_020)


def test_no_wrong_program_is_verified_and_few_right_ones_are_not() -> None:
    found: list[Finding] = [study(seed) for seed in SEEDS]
    assert [f for f in found if f.verdict == "verified" and f.truth == "unsafe"] == []
    safe = [f for f in found if f.truth == "safe"]
    assert len(safe) >= 6 and sum(f.truth == "unsafe" for f in found) >= 5
    assert [f for f in found if f.truth == "large"] == []  # every interleaving of each was visited
    assert sum(f.verdict != "verified" for f in safe) <= 2, [f for f in safe if f.verdict != "verified"]


@pytest.mark.parametrize("kind", SHAPES)
def test_each_shape_with_nothing_changed_is_verified(kind: str) -> None:
    for seed in range(4):
        drawn = SHAPES[kind](Draw(seed, 1.0))
        program = parse_machine(drawn.text)
        assert print_machine(parse_machine(print_machine(program))) == print_machine(program)
        verdict = check(program)
        assert verdict.status == "verified", str(verdict)


def test_the_programs_of_a_seed_are_the_same_ones() -> None:
    assert random_machine(5).text == random_machine(5).text
    assert len({random_machine(seed).text for seed in range(60)}) > 50


PAIR = """tdm 1
target cuda:sm_80
program {{
  program two
    dim N = 64 static
    tensor X: f32[N]
    tensor Y: f32[N] out
    body
      %x: f32[N] = load X[N]
      store Y[N] = %x
}}
guard {{
  disjoint(X, Y)
}}
host {{
  launch main grid 1 threads 64 shared 256
}}
kernel main {{
  buffer S f32[64] shared align 16 @ 0
  frag x f32[64] dist (lane 32 axis 0 stride 1, warp 2 axis 0 stride 32)
  frag y f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  role all agents 1 threads 64 {{
    tasks (t < 1) over grid {{
      x = load X[$0]
      store S[$0] = x
      {meet}
      y = load S[$0]
      store Y[$0] = y
    }}
  }}
}}
"""


@pytest.mark.parametrize(
    ("meet", "wrong"),
    [
        ("sync barrier.sync (id = 0, threads = 64)", ""),
        ("sync barrier.arrive (id = 0, threads = 64)", "race"),
        ("sync barrier.sync (id = 0, threads = 32)", "race"),
        ("sync barrier.sync (id = 0, threads = 96)", "deadlock"),
    ],
)
def test_the_oracle_sees_what_the_clocks_of_the_simulator_see(meet: str, wrong: str) -> None:
    program = parse_machine(PAIR.format(meet=meet))
    arrays, scalars = arguments(program.program, {"N": 64}, 0)
    run, replayer = record(program, {**arrays, **scalars}, seed=1)
    if wrong == "deadlock":
        assert {f.code for f in run.findings} == {"deadlock"} and replayer is None
        return
    assert replayer is not None
    found = explore(replayer)
    assert found.wrong.split(":")[0] == wrong and bool(run.findings) == bool(wrong)


COPIED = copied_ring_text.of_one_warp(copied_ring_text.ring(2))
BOTH, ALONE = copied_ring_text.BOTH, copied_ring_text.ALONE
MET = meeting_text.text().replace("over threads", "over persistent")
COPIES, TWO = {"M": 4, "N": 68}, {"M": 2, "N": 4}


@pytest.mark.parametrize(
    ("told", "extents", "wrong"),
    [
        (COPIED, COPIES, ""),
        (COPIED.replace(ALONE, BOTH), COPIES, ""),
        (COPIED.replace(ALONE, BOTH.splitlines(keepends=True)[1]), COPIES, "race"),
        (MET, TWO, ""),
        (meeting_text.text(middle="").replace("over threads", "over persistent"), TWO, "race"),
        (meeting_text.text(last="").replace("over threads", "over persistent"), TWO, "race"),
    ],
    ids=[
        "copies arrive",
        "copies arrive beside threads",
        "threads arrive alone",
        "all meet",
        "not met",
        "not met last",
    ],
)
def test_the_oracle_sees_copies_that_arrive_and_meetings_of_all(told: str, extents: dict[str, int], wrong: str) -> None:
    program = parse_machine(told)
    arrays, scalars = arguments(program.program, extents, 0)
    run, replayer = record(program, {**arrays, **scalars}, seed=1)
    assert replayer is not None and bool(run.findings) == bool(wrong)
    found = explore(replayer)
    assert found.wrong.split(":")[0] == wrong, found.wrong
