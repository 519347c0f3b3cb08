"""Replays: the schedule of a seed, without the arithmetic, finds what the whole run of that seed finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.checker import copied_ring_text, send_text
from tests.machine.programs import RING, ring
from tests.simulate.test_ring import BUGS, arguments

from treadle.driver import samples
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.simulate.run import record, run_schedules, simulate

ALONE = frozenset({"fence", "in-flight", "unwritten", "undefined"})
"""Codes of what one thread does wrong on its own account, or of values: replays have neither."""

SUMS = """tdm 1
target cpu:avx512
program {
  program sums
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        %s: f32[m] = reduce add %x over N
        store Y[m] = %s
}
guard {
  disjoint(X, Y)
}
host {
  launch main grid M threads 1
}
kernel main {
  buffer part f32[M] workspace align 64
  frag p f32[]
  frag x f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers {
      p = copy -0.0
      loop i = 0 .. N step 1 {
        x = load X[t, i]
        p = fold add x onto p
      }
      store part[t] = p
    }
    tasks (u < M) over workers {
      p = load part[u]
      store Y[u] = p
    }
  }
}
"""


def edited(name: str) -> MachineProgram:
    text = RING
    for old, new in BUGS[name][0]:
        text = text.replace(old, new)
    return parse_machine(text)


def test_replays_of_the_right_ring_take_the_same_steps() -> None:
    args, expected = arguments()
    run, again = record(ring(), args, seed=5, exact=True)
    assert run.clean and again is not None and np.array_equal(run.outputs["Y"], expected["Y"])
    # A tile is a handful of cells, not thousands of elements.
    assert sum(again.sizes) < sum(again.tape.sizes) // 50
    for seed in range(20):
        assert again.run(seed) == []
        if seed in (1, 2):
            assert again.steps == simulate(ring(), args, seed=seed).steps


@pytest.mark.parametrize("text", [copied_ring_text.ring(2), send_text.text()], ids=["copies arrive", "stores signal"])
def test_replays_of_what_arrives_by_itself_take_the_same_steps(text: str) -> None:
    machine = parse_machine(text)
    args, _ = samples.arguments(machine.program, {"M": 5, "N": 44}, 0)
    run, again = record(machine, args, seed=3, exact=True)
    assert run.clean and again is not None
    for seed in range(6):
        assert again.run(seed) == []
        assert again.steps == simulate(machine, args, seed=seed).steps


@pytest.mark.parametrize(
    "name",
    [
        "released before the contraction is over",
        "no fence between the proxies",
        "staging reused too early",
        "the end overtakes the last store",
        "barriers not fenced",
        "no wait for a full slot",
        "no join before the staged store",
    ],
)
def test_a_replay_finds_what_the_run_of_its_seed_finds(name: str) -> None:
    program, (args, _) = edited(name), arguments()
    _, again = record(program, args, seed=0, exact=True)
    assert again is not None
    agreed = 0
    for seed in range(2):
        found = again.run(seed)
        if found is None:
            continue  # another write was seen: what follows is not on the tape
        whole = simulate(program, args, seed=seed, check_form=False)
        key = {(f.code, f.line, f.other) for f in whole.findings if f.code not in ALONE}
        assert {(f.code, f.line, f.other) for f in found if f.code not in ALONE} == key
        agreed += 1
    assert agreed


def test_a_read_of_another_write_ends_the_replay() -> None:
    """Without the wait a thread may read a slot before or after it is filled."""
    _, again = record(edited("no wait for a full slot"), arguments()[0], seed=0)
    assert again is not None
    assert None in [again.run(seed) for seed in range(1, 6)]


def sums(m: int, n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    x = np.arange(m * n, dtype=np.float32).reshape(m, n)
    return {"X": x, "Y": np.zeros(m, np.float32)}, {"Y": x.sum(1)}


def test_tasks_are_replayed_in_any_order() -> None:
    args, expected = sums(5, 4)
    program = parse_machine(SUMS)
    run, again = record(program, args, seed=1, exact=True)
    assert run.clean and again is not None
    for seed in range(12):
        assert again.run(seed) == []
        assert again.steps == simulate(program, args, seed=seed).steps
    trials = run_schedules(program, args, 200, expected=expected, whole=4)
    assert trials.right and trials.runs == 200


def test_schedules_that_are_replayed_fail_where_whole_runs_fail() -> None:
    """The element of another task is read within one fork: wrong, and found, by some schedule at the latest."""
    wrong = parse_machine(SUMS.replace("store part[t] = p", "store part[0] = p"))
    args, expected = sums(3, 2)
    whole = run_schedules(wrong, args, 12, expected=expected, stop_early=False)
    some = run_schedules(wrong, args, 12, expected=expected, stop_early=False, whole=1)
    assert not whole.right and some.failures == whole.failures


def test_pauses_that_nobody_could_tell_are_left_out() -> None:
    args, _ = sums(5, 40)
    program = parse_machine(SUMS)
    steps: list[int] = []
    for exact in (True, False):
        _, again = record(program, args, exact=exact)
        assert again is not None and again.run(3) == []
        steps.append(again.steps)
    assert steps[1] < steps[0] / 5


def test_a_signature_is_of_the_events_not_of_the_recorded_schedule() -> None:
    args, _ = arguments(70, 40, 72)
    tapes = [record(ring(), args, seed=s)[1] for s in (0, 1)]
    other = record(parse_machine(RING.replace("id = c + 1", "id = c + 2")), args)[1]
    first = {t.signature() for t in tapes if t is not None}
    assert len(first) == 1 and other is not None and other.signature() not in first
    # Where a tile begins, or what is computed, is none of a replay's business.
    moved = record(parse_machine(SUMS.replace("part f32[M]", "part f32[M + 3]")), sums(3, 2)[0])[1]
    plain = record(parse_machine(SUMS), sums(3, 2)[0])[1]
    assert moved is not None and plain is not None and moved.signature() == plain.signature()


def test_atomic_updates_are_not_replayed() -> None:
    atomic = parse_machine(SUMS.replace("store Y[u] = p", "store Y[0] = p effect add"))
    _, again = record(atomic, sums(3, 2)[0])
    assert again is None
