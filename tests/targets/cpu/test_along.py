"""Contractions of few rows with lanes along what they sum: chosen where it is cheaper, any point verified and right."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.marks import processor
from tests.realise.oracle import Arrays, agrees
from tests.realise.texts import program
from tests.targets.cpu.test_families import facts_for, runner
from tests.targets.cpu_emit.kit import HOST_LEVELS

import treadle as td
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.ir.core import Program
from treadle.lib.quantised import int4_matmul
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts
from treadle.plan.family import points
from treadle.planner.enumerate import choose, realised
from treadle.realise.blocks import realise
from treadle.simulate.run import simulate
from treadle.targets.cpu.along import GATHERED, TURNED, Along, SumsInLanes
from treadle.targets.cpu.families import families
from treadle.targets.cpu.shape import shape_of

FAMILY = SumsInLanes()
FEW = {"M": 5, "N": 6, "K": 300}


def turned(source: Program, facts: CallFacts) -> CallFacts:
    """The facts where W runs along the depth."""
    return replace(facts, unit=frozenset((t, 0 if t == "W" else a) for t, a in facts.unit))


def built(source: Program, facts: CallFacts, seed: str) -> MachineProgram:
    """Any point that is not beyond the registers."""
    able = [p for p in points(FAMILY.axes(source, facts)) if FAMILY.cost(source, facts, p).total < 1.0]
    point = random.Random(seed).choice(able)
    return FAMILY.build(source, facts, point, FAMILY.guard(source, facts, point))


@processor("avx512")
@pytest.mark.parametrize("name", ["linear", "linear_bf16", "swiglu", "batched"])
@pytest.mark.parametrize("seed", range(2))
def test_any_point_is_verified_and_right(name: str, seed: int) -> None:
    source = program(name)
    few = {**FEW, "B": 2}
    facts = facts_for(source, "avx512" if seed or "avx2" not in HOST_LEVELS else "avx2", few)
    machine = built(source, facts, f"{name}{seed}")
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    for extents in ({"M": 5, "N": 6, "K": 67}, {"M": 70, "N": 3, "K": 33}):
        agrees(name, source, runner(machine, facts), {**extents, "B": 2})


def test_the_steps_are_verified_and_simulated() -> None:
    source = program("linear_bf16")
    facts = facts_for(source, extents=FEW)
    way = FAMILY.derivation(source, facts, {})
    assert way is not None and [s.kind for s in way.steps] == ["apart"]
    assert all(v.status == "verified" for v in validate_derivation(way.programs, way.steps))
    machine = built(source, facts, "simulated")
    done: dict[str, Any] = {}

    def run(arrays: Arrays) -> Mapping[str, Any]:
        done.update(simulate(machine, arrays, max_steps=10_000_000).outputs)
        return done

    agrees("linear_bf16", source, run, {"M": 3, "N": 5, "K": 45})


def test_few_columns_are_not_lanes() -> None:
    source = program("linear")
    facts = facts_for(source, extents={"M": 288, "N": 4, "K": 1113})
    choice = choose(source, facts, families())
    assert choice.plan.family == FAMILY.name, choice.explain()
    assert check(realised(choice.plan, source, facts, families())).status == "verified"
    many = facts_for(source, extents={"M": 288, "N": 288, "K": 1113})
    assert any("rows and columns" in why for why in FAMILY.admits(source, many))


def test_short_pieces_across_the_depth_are_priced_as_gathered() -> None:
    """W runs along its 6 columns: pieces of 2 are gathered, from 4 on they are turned in registers; along the depth
    nothing is copied."""
    source = program("linear")
    facts = facts_for(source, "avx512", FEW)

    def packing(columns: int, known: CallFacts) -> float:
        setting = {
            "rows": 4,
            "columns": columns,
            "outer": 64,
            "inner": 64,
            "copied": False,
            "atom": "fma",
            "workers": 1,
        }
        return FAMILY.cost(source, known, setting).packing

    assert packing(2, facts) == pytest.approx(GATHERED / TURNED * packing(4, facts))
    assert packing(4, facts) == pytest.approx(packing(6, facts)) and packing(4, facts) > 0
    assert packing(2, turned(source, facts)) == 0
    alone = replace(facts, extents={**facts.extents, "M": 1, "N": 3, "K": 1160})
    assert choose(source, alone, families()).plan.family != FAMILY.name


def test_partial_sums_with_what_was_there_before_are_not_joined() -> None:
    source = program("linear")
    facts = turned(source, facts_for(source, extents=FEW))
    point = next(p for p in points(FAMILY.axes(source, facts)) if FAMILY.cost(source, facts, p).total < 1.0)
    shape = shape_of(source, facts)  # without the step: each lane starts from the carried sum
    machine = realise(
        source, Along(shape, point).choices(), FAMILY.guard(source, facts, point), facts.target, shape.uses
    )
    verdict = check(machine)
    assert verdict.status == "rejected" and "has %acc" in verdict.reason, str(verdict)
    right = print_machine(built(source, facts, "one"))
    assert check(parse_machine(right)).status == "verified"
    for old, new in (("fold add", "fold max"), ("onto", "onto")):
        wrong = check(parse_machine(right.replace(old, new)))
        assert (wrong.status == "verified") == (old == new), str(wrong)


@processor("avx512_bf16")
@pytest.mark.parametrize(("n", "group"), [(37, 128), (600, 96), (64, 40)])
def test_halves_of_bytes_are_looked_up_by_whole_registers(n: int, group: int) -> None:
    rng = np.random.default_rng(n)
    k = 12 * group
    x = rng.integers(-3, 4, (1, k)).astype(td.bf16.numpy)
    w = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
    scale = rng.integers(1, 4, (n, k // group)).astype(td.bf16.numpy)
    numbers = np.stack((w & 15, w >> 4), -1).reshape(n, k).astype(np.int64)
    numbers -= 16 * (numbers > 7)
    y = np.full((1, n), np.nan, np.float32)
    plan = int4_matmul.plan(x, w, scale, None, y, group=group)
    assert plan.check().status == "verified"
    text = plan.source()
    assert "permvar.hi.512" in text and "permvar.hi.256" not in text, plan.explain()
    assert "@llvm.prefetch" in text, "rows of halves of bytes are asked for ahead"
    assert "load volatile i64" in text, "masks are made where they are needed"
    int4_matmul(x, w, scale, None, y, group=group)
    wide = numbers * np.repeat(scale.astype(np.float64), group, 1)
    assert np.array_equal(y, x.astype(np.float64) @ wide.T)


@pytest.mark.parametrize("m", [1, 3, 20])
def test_halves_of_bytes_with_scales(m: int) -> None:
    rng = np.random.default_rng(m)
    n, k, group = 37, 384, 128
    x = rng.integers(-3, 4, (m, k)).astype(np.float32)
    w = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
    scale = rng.integers(1, 4, (n, k // group)).astype(np.float32)
    numbers = np.stack((w & 15, w >> 4), -1).reshape(n, k).astype(np.int64)
    numbers -= 16 * (numbers > 7)
    got = int4_matmul(x, w, scale, group=group)
    assert np.array_equal(got, x @ (numbers * np.repeat(scale, group, 1)).T)
