"""The measured search: what it tries, what it keeps, what survives bad plans, interrupts and dying processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treadle as td
from treadle.driver import tuning
from treadle.driver.build import choose
from treadle.driver.candidates import families, plan_facts
from treadle.driver.kernel import Kernel
from treadle.driver.targets import host_target
from treadle.driver.tuning_arrays import PAGE, Copies, write_arguments
from treadle.driver.tuning_process import Trier
from treadle.driver.tuning_space import distance, proposals, space
from treadle.driver.tuning_trial import Measured, Refused, Task
from treadle.lib.reductions import total
from treadle.runtime.arrays import view
from treadle.runtime.pool import workers

M, N = td.dims("M N")


def rows(X: td.Tensor[M, N], Y: td.Out[M, N] = None, S: td.Out[M] = None):
    for m in td.parallel(M):
        e = td.exp(X[m, N] - X[m, N].max(N))
        S[m] = e.sum(N)
        Y[m, N] = e / e.sum(N)


X = np.random.default_rng(0).standard_normal((70, 130), dtype=np.float32)


def call_of(kernel: Kernel, *args):
    special, call = kernel.prepare(args, {})
    facts = plan_facts(special.expanded, host_target(), special.facts(call))
    own = choose(special.program, host_target(), special.facts(call)).candidate.plan
    return special, call, facts, own, space(special.expanded, facts, families(host_target())).plans


class Scripted:
    """A trier that says what a test wants, and runs nothing."""

    def __init__(self, answers):
        self.answers, self.asked, self.best = answers, [], None

    def __call__(self, task, limits=None):
        return self

    def ask(self, plan, until=None):
        self.asked.append(plan)
        return self.answers(plan, self.asked)

    def adopt(self, plan, seconds):
        self.best = plan

    def stop(self):
        pass


def searched(monkeypatch, answers, budget=1000.0):
    kernel = td.kernel(rows)
    special, call, *_ = call_of(kernel, X)
    scripted = Scripted(answers)
    monkeypatch.setattr(tuning, "Trier", scripted)
    return tuning.tune_call(special, call, kernel=kernel, budget=budget), scripted, kernel


def test_the_fastest_plan_is_found_and_confirmed(monkeypatch):
    _, _, _, own, plans = call_of(td.kernel(rows), X)
    wanted = plans[len(plans) // 2]
    assert wanted.line() != own.line()

    def answers(plan, asked):
        if plan.line() == own.line() and len(asked) > 1:
            return Measured(2e-5, 2.0)  # the planner's own plan beside the best one, at the end
        return Measured(1e-5, 0.5 if plan.line() == wanted.line() else 1.0)

    tuned, scripted, kernel = searched(monkeypatch, answers)
    assert tuned.better and tuned.plan.decisions.line() == wanted.line() and tuned.share == 0.5
    lines = [p.line() for p in scripted.asked]
    assert lines.count(wanted.line()) == 2, "a plan that looks better is measured again"
    assert set(lines) == {p.line() for p in plans} and len(lines) == len(plans) + 2
    assert tuned.points == len(tuned.trials) == len(plans) and tuned.stopped == ""
    assert "0.500 of the planner's own" in str(tuned)
    # It is the plan of the class now, in this kernel and, through the cache, in another one.
    assert tuned.plan.explain().splitlines()[0] == wanted.line() and "taken" in tuned.plan.page()
    kernel(X)
    other = td.kernel(rows)
    other(X)
    assert kernel.variants[0].plan == other.variants[0].plan == wanted.line()
    assert other.variants[0].record.meta["tuned"]["trials"] == len(plans)
    # One plan, one result: called, loaded from its saved form, in a kernel of its own.
    first, *_ = kernel(X)
    assert all(np.array_equal(first, y) for y in (tuned.plan(X)[0], other(X)[0]))


def test_what_only_looks_better_is_not_taken(monkeypatch):
    noise = iter([Measured(1e-5, 0.3), *[Measured(1e-5, 1.2)] * 10_000])
    tuned, _, _ = searched(monkeypatch, lambda plan, asked: Measured(1e-5, 1.0) if len(asked) == 1 else next(noise))
    assert not tuned.better and tuned.share == 1.0 and "best of those tried" in str(tuned)


def test_bad_plans_are_named_and_skipped(monkeypatch):
    answers = [Measured(1e-5, 1.0), Refused("died of SIGSEGV while running"), Refused("slow: 9 times the best")]
    tuned, _, _ = searched(monkeypatch, lambda plan, asked: answers[min(len(asked), 3) - 1])
    assert len(tuned.skipped) == tuned.points - 1 and not tuned.better
    assert "died of SIGSEGV while running" in str(tuned) and "slow: 9 times" in str(tuned)
    assert "share  us when tried  what differs" in str(tuned)


def test_an_interrupt_keeps_the_best_so_far(monkeypatch):
    def answers(plan, asked):
        if len(asked) == 5:
            raise KeyboardInterrupt
        return Measured(1e-5, {1: 1.0, 2: 0.5, 3: 0.5, 4: 1.0}.get(len(asked), 3.0))

    tuned, scripted, kernel = searched(monkeypatch, answers)
    assert tuned.stopped == "interrupted" and tuned.better and len(tuned.trials) == 3
    assert tuned.plan.decisions.line() == scripted.asked[1].line()
    kernel(X)
    assert kernel.variants[0].plan == scripted.asked[1].line()


SCRIPT = """
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
from tests.driver.test_tuning import X, rows, td
from treadle.driver.tuning import tune_call

kernel = td.kernel(rows)
special, call = kernel.prepare((X,), {})
tuned = tune_call(special, call, kernel=kernel, budget=300, progress=lambda share, text: print(text, flush=True))
print("done:", tuned.stopped, tuned.plan.decisions.line(), tuned.share)
"""


def test_a_real_interrupt_ends_the_search_at_once():
    """Ctrl-C while a trial is under way: its process is gone, the answer is there, nothing hangs."""
    command = [sys.executable, "-c", SCRIPT]
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": root}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=env)
    assert process.stdout is not None and "1 tried" in process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "done: interrupted rows on cpu" in rest
    assert time.monotonic() - start < 30


def test_the_budget_is_kept(monkeypatch):
    def answers(plan, asked):
        time.sleep(0.02)
        return Measured(1e-5, 1.0)

    start = time.monotonic()
    tuned, _, _ = searched(monkeypatch, answers, budget=0.3)
    assert tuned.stopped == "the budget of 0.3 s is spent" and 1 < len(tuned.trials) < tuned.points
    assert time.monotonic() - start < 10


def test_proposals_name_every_plan_once_and_look_around_the_best():
    *_, plans = call_of(td.kernel(rows), X)
    best = plans[len(plans) // 3]
    found = list(proposals(plans, lambda: best))
    assert sorted(p.line() for p in found) == sorted(p.line() for p in plans)
    assert found[0].line() == plans[0].line() and found[1].line() == best.line()
    near = [distance(p, best) for p in found[1::2]]
    assert near == sorted(near)


def test_a_search_in_processes_leaves_the_arguments_alone():
    """Two plans, really: outputs that the caller gave are neither read nor written by trials."""
    kernel = td.kernel(rows)
    y, s = np.full((70, 130), 7.0, np.float32), np.full(70, 8.0, np.float32)
    special, call, *_ = call_of(kernel, X, y, s)
    before = X.tobytes()
    shares: list[str] = []
    tuned = tuning.tune_call(special, call, budget=1e-3, progress=lambda share, text: shares.append(text))
    assert tuned.trials[0].seconds is not None and tuned.trials[0].skipped is None
    assert tuned.stopped == "the budget of 0.001 s is spent" and shares
    assert X.tobytes() == before and (y == 7).all() and (s == 8).all()


@pytest.fixture
def trier():
    kernel = td.kernel(rows)
    special, call, facts, own, plans = call_of(kernel, X)
    file, placed = write_arguments(call.views)
    task = Task(special.text, facts, workers(), file.fileno(), tuple(placed), {})
    made = Trier(task)
    yield made, own, plans
    made.stop()
    file.close()


def test_plans_of_a_family_that_rewrites_first_are_tried_and_taken(monkeypatch):
    """Their steps are validated, in the trial's process and where the best one is adopted."""
    x, out = np.arange(4000, dtype=np.float32).reshape(40, 100) % 7, np.zeros((), np.float32)
    special, call, _, own, plans = call_of(total, x, out)
    wanted = next(p for p in plans if p.line() != own.line())
    assert own.family == wanted.family == "vector sweep" and total.plan(x, out).program.captured is None
    really = tuning.tune_call(special, call, budget=1e-3)
    assert really.trials[0].skipped is None and really.trials[0].seconds is not None
    beside = {wanted.line(): 0.5, own.line(): 2.0}
    monkeypatch.setattr(tuning, "Trier", Scripted(lambda plan, asked: Measured(1e-5, beside.get(plan.line(), 1.0))))
    tuned = tuning.tune_call(special, call, kernel=total)
    assert tuned.plan.decisions.line() == wanted.line() and tuned.plan.check().status == "verified"
    tuned.plan(x, out)
    assert out == x.sum()


def test_a_process_that_dies_or_hangs_is_replaced(trier):
    process, own, plans = trier
    assert isinstance(process.ask(own), Measured)
    process.adopt(own, 1e-4)
    # A plan that its family cannot build, one of no family: told apart, and the process lives on.
    unknown = process.ask(replace(own, family="none such"))
    broken = process.ask(replace(own, point={}))
    assert isinstance(unknown, Refused) and unknown.reason.startswith("plan/none")
    assert isinstance(broken, Refused) and process.deaths == 0
    # Killed in the middle of a trial: named, replaced, and asked again.
    other = next(p for p in plans if p.line() != own.line())
    killer = threading.Timer(0.05, lambda: os.kill(process._process.pid, signal.SIGKILL))
    killer.start()
    killed = process.ask(other)
    killer.join()
    assert process.deaths <= 1
    if isinstance(killed, Refused):
        assert "died of SIGKILL while" in killed.reason
    again = process.ask(own)
    assert isinstance(again, Measured) or "SIGKILL" in again.reason
    # One that takes longer than a stage may.
    process.limits["judging"] = process.limits["realising"] = 1e-9
    late = process.ask(next(p for p in plans[::-1]))
    assert isinstance(late, Refused) and "stopped after" in late.reason
    # The clock is no fault of a plan.
    process.limits["realising"] = 60.0
    assert process.ask(own, until=time.monotonic() - 1) is None


def test_copies_lie_as_the_arrays_do(tmp_path: Path):
    base = np.arange(4000, dtype=np.float32).reshape(50, 80)
    arrays = {
        "plain": base,
        "strided": base[3:40:2, 5:70:3],
        "back": base[::-1, ::-2],
        "turned": base.T,
        "same": np.broadcast_to(base[0], (7, 80)),
        "empty": base[:0],
        "bytes": np.arange(77, dtype=np.uint8)[3:],
    }
    views = {name: view(array, name=name) for name, array in arrays.items()}
    file, placed = write_arguments(views)
    with file:
        copies = Copies(file.fileno(), placed)
        for name, array in arrays.items():
            copy = copies.arrays[name]
            assert np.array_equal(copy, array) and copy.strides == (array.strides if array.size else copy.strides)
            assert not np.shares_memory(copy, array)
            if array.size:
                assert (copy.ctypes.data - array.ctypes.data) % PAGE == 0
        copies.arrays["plain"][...] = 0
        assert base[0, 1] == 1
        copies.refresh(["plain"])
        assert np.array_equal(copies.arrays["plain"], base)


def test_budgets_that_are_none_are_refused():
    for budget in (0, -1.0, "long", True, float("nan")):
        with pytest.raises(td.TreadleError, match="capture/argument"):
            td.kernel(rows).tune(X, budget=budget)
