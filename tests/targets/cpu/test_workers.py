"""A point with one of several workers hands nothing out: its code forks nothing."""

from __future__ import annotations

import pytest
from tests.planner.test_counts import CASES, facts_of

from treadle.checker import check
from treadle.driver.targets import features_of
from treadle.dtype.formats import bf16
from treadle.ir.expand import expand
from treadle.lib.linear import linear
from treadle.machine.form import Sync, Tasks, walk
from treadle.plan.facts import contiguous
from treadle.plan.family import points
from treadle.targets.cpu.families import families


@pytest.mark.parametrize("name", ["siblings", "contract", "attention"])
def test_one_worker_of_several(name: str) -> None:
    program, facts = CASES[name], facts_of(CASES[name], 40)
    family = next(f for f in families() if not f.admits(program, facts))
    for workers in (1, 2):
        fits = (p for p in points(family.axes(program, facts)) if p["workers"] == workers)
        point = next(p for p in fits if family.cost(program, facts, p).total < 1)
        machine = family.build(program, facts, point, family.guard(program, facts, point))
        found = [s for k in machine.kernels for r in k.roles for s in walk(r.body) if isinstance(s, Tasks)]
        assert bool(found) == (workers == 2) and check(machine).status == "verified"


def test_sums_that_one_worker_of_several_holds_lie_in_no_buffer() -> None:
    program, facts = CASES["contract"], facts_of(CASES["contract"], 40)
    family = next(f for f in families() if f.name == "tiled contraction")
    for workers in (1, 2):
        fits = (p for p in points(family.axes(program, facts)) if p["workers"] == workers and p["held"])
        point = next(p for p in fits if not p["packed"] and family.cost(program, facts, p).total < 1)
        machine = family.build(program, facts, point, family.guard(program, facts, point))
        buffers = [b.name for k in machine.kernels for b in k.buffers] + [b.name for b in machine.host.workspace]
        assert not buffers and check(machine).status == "verified"


def test_one_worker_of_several_configures_its_tiles() -> None:
    """A rejected plan would leave small products to the universal one."""
    program = expand(linear.definition.capture(dict.fromkeys(("X", "W", "Y"), bf16), {}, extents={}))
    sizes = dict.fromkeys("MNK", 64)
    facts = contiguous(program, "cpu:amx", sizes, workers=2, features=features_of("cpu:amx"))
    family = next(f for f in families() if not f.admits(program, facts))
    found = [p for p in points(family.axes(program, facts)) if str(p["atom"]).startswith("amx")]
    for workers in (1, 2):
        point = next(p for p in found if p["workers"] == workers and family.cost(program, facts, p).total < 1)
        machine = family.build(program, facts, point, family.guard(program, facts, point))
        kinds = [s.kind for s in machine.statements() if isinstance(s, Sync)]
        assert kinds == ["amx.config", "amx.release"] and check(machine).status == "verified"
