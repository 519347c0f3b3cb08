"""Which plan a call on the CPU gets: numbers kept with plans, and what the planner says where they end."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from math import ceil, inf
from typing import Any

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.driver import settling
from treadle.driver.candidates import candidates, plan_facts
from treadle.driver.predicted import Ledger
from treadle.driver.targets import place_of
from treadle.plan.grain import EVERYWHERE, Grain, Reach, blocks, evenness


def test_the_loss_is_what_blocks_leave_over() -> None:
    grain = Grain((("M", 6), ("N", 32)), (("M", 48), ("128", 64)))
    assert Grain.read(grain.out()) == grain
    for m, n in product((1, 5, 48, 49, 500), (1, 32, 33)):
        filled = ceil(m / 6) * 6 * ceil(n / 32) * 32 / (m * n)
        assert grain.loss({"M": m, "N": n}, 1) == pytest.approx(filled)
        even = evenness([blocks(m, 48), [64, 64]], 2)
        assert grain.loss({"M": m, "N": n}, 2) == pytest.approx(filled * 2 / even)
    assert Grain().loss({"M": 7}, 2) == 1.0 == grain.loss({"M": 0, "N": 32}, 2)


def test_a_reach_ends_where_blocks_leave_more_over_or_work_is_another() -> None:
    reach = Reach(1.2, 1000.0, 4000.0)
    assert reach.covers(1.3, 3000.0) and reach.covers(1.0, 700.0) and reach.covers(1.0, 5900.0)
    assert not (reach.covers(1.4, 3000.0) or reach.covers(1.0, 600.0) or reach.covers(1.0, 6100.0))
    assert EVERYWHERE.covers(100.0, 1e12) and EVERYWHERE.out() == [-1.0, 0.0, -1.0]


def call(kernel: Any, m: int, n: int, depth: int) -> Any:
    x, w, b = np.ones((m, depth), np.float32), np.ones((depth, n), np.float32), np.zeros(n, np.float32)
    assert (kernel(x, w, b) == depth).all()
    return kernel.prepare((x, w, b), {})


class Asked:
    """Counts what the planner is asked."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        settle = Ledger.settle

        def counted(*args: Any) -> Any:
            self.count += 1
            return settle(*args)

        patch.setattr(Ledger, "settle", counted)


def test_many_extents_of_a_cell_ask_the_planner_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    kernel = td.kernel(k.linear_gelu.definition.fn)
    for m in range(65, 128):
        call(kernel, m, 48, 40)
    assert asked.count <= 6 and len(kernel.variants) <= 3


def test_a_call_beyond_the_reach_of_early_plans_gets_one_that_is_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two variants at most: plans for shapes far apart take one another's place, and what runs is near the best."""
    kernel = td.kernel(k.linear_gelu.definition.fn, variants=2)
    target = place_of("cpu").target
    for m, n, depth in ((8, 300, 60), (200, 2, 90), (90, 100, 100), (100, 120, 90), (110, 90, 100), (100, 100, 110)):
        special, made = call(kernel, m, n, depth)
    facts = special.facts(made)
    best = next(candidates(special.expanded, target, facts, (), [])).plan.cost
    ledger = Ledger(special.expanded, target)
    settled = ledger.settle(special.variants, facts, 2)
    assert best is not None and settled.variant is not None and len(special.variants) == 2
    assert ledger.seconds(ledger.met[-1], settled.variant) <= 1.1 * best.total
    assert plan_facts(special.expanded, target, facts) == ledger.met[-1].planned and ledger.met[-1].best < inf


def test_a_plan_is_priced_by_the_blocks_it_was_made_with() -> None:
    """A register block of one row, made for a call of one row, is not taken for a call that would get one of many."""
    kernel = td.kernel(k.linear_gelu.definition.fn)
    call(kernel, 1, 3, 1160)
    special, made = call(kernel, 128, 14, 128)
    first, second = special.variants
    ledger = Ledger(special.expanded, place_of("cpu").target)
    settled = ledger.settle(special.variants, special.facts(made), 2)
    seconds = ledger.met[-1]
    assert settled.variant is second
    rows = [dict(Grain.read(v.record.meta["grain"]).tiles).get("M", 1) for v in (first, second)]
    assert rows[0] == 1 < rows[1]
    assert ledger.seconds(seconds, first) > 2 * ledger.seconds(seconds, second)


def test_the_planner_is_asked_once_for_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is weighed against the variants that there are is what is built then."""
    kernel = td.kernel(k.linear_gelu.definition.fn)
    call(kernel, 2, 3, 500)
    build, given = settling.room("build"), list[Any]()
    make = build.make

    def noted(*args: Any, **named: Any) -> Any:
        given.append(named["choice"])
        return make(*args, **named)

    monkeypatch.setattr(build, "make", noted)
    call(kernel, 300, 300, 300)
    assert len(given) == 1 and given[0].plan.cost is not None


def test_calls_that_are_remembered_keep_no_arrays_alive() -> None:
    kernel = td.kernel(k.linear_gelu.definition.fn)
    gone: list[weakref.ref[Any]] = []
    for size in (64, 65, 100, 33):
        x, w, b = np.ones((size, size), np.float32), np.ones((size, size), np.float32), np.zeros(size, np.float32)
        gone += map(weakref.ref, (x, w, b, kernel(x, w, b)))
        special = kernel.prepare((x, w, b), {})[0]
    del x, w, b
    gc.collect()
    assert len(special._ledger.met) > 1 and all(ref() is None for ref in gone)


def test_later_processes_decide_by_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first = td.kernel(k.linear_gelu.definition.fn)
    for m in (70, 120, 90):
        call(first, m, 33, 50)
    again = td.kernel(k.linear_gelu.definition.fn)
    monkeypatch.setattr(settling, "room", None)  # nothing that plans is loaded
    for m in (71, 119, 90):
        call(again, m, 33, 50)
    assert {v.plan for v in again.variants} <= {v.plan for v in first.variants}
