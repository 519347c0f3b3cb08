"""A GPU launch that loads from one view of an array and stores to it through another: right where the thread that
stores an element is the one that loaded it, or where all loads are behind a barrier before the store."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from machine_text import judged, verified

import treadle as td
from treadle.checker import check
from treadle.checker.verdict import Verdict
from treadle.driver.candidates import families, in_place
from treadle.driver.kernel import Kernel
from treadle.driver.trial import close_enough, expected
from treadle.dtype.formats import f32
from treadle.ir.expand import expand
from treadle.lib.rows import softmax
from treadle.machine.form import MachineProgram
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.simulate.run import run_schedules

TARGET = "cuda:sm_90a"
PAIR = frozenset(("X", "Y"))
M, N = td.dims("M N")


@td.kernel
def centred(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        x = X[m, N]
        Y[m, N] = x - x.max(N)


@td.kernel
def neighbours(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M.each, N.each):
        Y[m, n] = X[m, n] + X[m, td.maximum(n - 1, 0)]


@td.kernel
def reversed_rows(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        Y[m, N] = X[M.extent - 1 - m, N]


@td.kernel
def less_the_first(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        Y[m, N] = X[m, N] - X[0, N].sum(N)


@td.kernel
def of_columns(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for n in td.parallel(N):
        Y[M, n] = X[M, n] - X[M, n].sum(M)


def planned(kernel: Kernel, columns: int, family: str, same: bool = True) -> MachineProgram:
    """The cheapest plan of a family for `columns` columns, under a guard that says X and Y are one view."""
    program = expand(kernel.definition.capture({"X": f32, "Y": f32}, {}, extents={}))
    facts = contiguous(program, TARGET, {"M": 4096, "N": columns})
    facts = replace(facts, same=frozenset((PAIR,))) if same else facts
    found = [f for f in families(TARGET) if f.name == family]
    best = choose(program, facts, found).best
    machine = found[0].build(program, facts, best.plan.point, best.plan.guard)
    return replace(machine, guard=in_place(machine.guard, (PAIR,)))


def verdict(kernel: Kernel, columns: int, family: str) -> Verdict:
    return check(planned(kernel, columns, family))


@pytest.mark.parametrize("columns", [256, 1000, 4096, 32768])
@pytest.mark.parametrize("kernel", [softmax, centred], ids=["softmax", "centred"])
def test_rows_in_place_are_verified(kernel: Kernel, columns: int) -> None:
    assert verdict(kernel, columns, "rows").status == "verified"
    assert verdict(kernel, columns, "universal").status == "verified"


@pytest.mark.parametrize("family", ["rows", "universal"])
@pytest.mark.parametrize("kernel", [reversed_rows, less_the_first], ids=["reversed", "first"])
def test_rows_that_others_overwrite_are_rejected(kernel: Kernel, family: str) -> None:
    for columns in (256, 8192):
        found = verdict(kernel, columns, family)
        assert (found.status, found.judgement) == ("rejected", "J2")


def test_elements_that_others_overwrite_are_rejected() -> None:
    assert verdict(neighbours, 256, "universal").status == "rejected"


def test_columns_in_place_need_one_thread_or_a_barrier() -> None:
    assert verdict(of_columns, 256, "universal").status == "verified"
    assert verdict(of_columns, 256, "rows").status == "rejected"


def test_engines_do_not_touch_an_array_in_place() -> None:
    """A row that an engine brings to shared memory is read by it whenever it comes to do so."""
    program = expand(softmax.definition.capture({"X": f32, "Y": f32}, {}, extents={}))
    facts = contiguous(program, TARGET, {"M": 4096, "N": 4096})
    rows = next(f for f in families(TARGET) if f.name == "rows")
    values = [[{a.name: v} for v in a.values] for a in rows.axes(program, facts)]
    points = [{k: v for one in some for k, v in one.items()} for some in product(*values)]
    by_engines = [p for p in points if p["slots"] and rows.cost(program, facts, p).total < inf]
    assert by_engines
    assert all(rows.cost(program, replace(facts, same=frozenset((PAIR,))), p).total == inf for p in by_engines)
    apart = rows.build(program, facts, by_engines[0], rows.guard(program, facts, by_engines[0]))
    assert check(apart).status == "verified"
    found = check(replace(apart, guard=in_place(apart.guard, (PAIR,))))
    assert found.status == "unknown" and "copied by an engine" in str(found)


def test_in_place_rows_are_right_under_every_schedule_tried() -> None:
    for kernel in (softmax, centred):
        machine = planned(kernel, 1000, "rows")
        x = np.random.default_rng(0).integers(-4, 5, (3, 1000)).astype(np.float32)
        want = expected(machine, {"X": x.copy(), "Y": np.empty_like(x)}, {}, {"M": 3, "N": 1000})
        for seed in range(5):
            both = x.copy()
            ran = run_schedules(machine, {"X": both, "Y": both}, 1, seed, expected=want, same=close_enough)
            assert not ran.failures


TWO_LAUNCHES = """tdm 1
target cuda:sm_90a
program {
  program p
    dim N
    tensor X: f32[N]
    tensor Y: f32[N] out
    body
      region R0 parallel (n in N each)
        %x: f32[] = load X[n]
        store Y[n] = %x
}
guard {
  1 <= N
  injective(Y)
  same(X, Y)
}
host {
  buffer b f32[N] workspace align 64
  launch first grid 4 threads 128
  launch second grid 4 threads 128
}
kernel first {
  frag x f32[]
  role worker agents 4 threads 32 {
    version b ; %x[] at (n = $0)
    tasks (t < N) over threads enters R0(n = t) {
      x = load X[t] ; %x[]
      store b[t] = x ; %x[]
    }
  }
}
kernel second {
  frag y f32[]
  role worker agents 4 threads 32 {
    tasks (u < N) over threads enters R0(n = u) {
      y = load b[u] ; %x[]
      store Y[u] = y ; store 0 []
    }
  }
}
"""
REVERSED = TWO_LAUNCHES.replace("load X[n]", "load X[N - 1 - n]").replace("load X[t]", "load X[N - 1 - t]")


def test_instances_that_meet_in_two_launches_are_no_order_of_the_source() -> None:
    """All loads before all stores is not what instances one after another do."""
    verified(TWO_LAUNCHES)
    verified(REVERSED.replace("same(X, Y)", "disjoint(X, Y)"))
    found = judged(REVERSED)
    assert (found.status, found.judgement) == ("rejected", "J2")
