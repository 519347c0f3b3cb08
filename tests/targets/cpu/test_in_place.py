"""Operands read where they lie, and carried values that stay in registers: when, and that the results are right."""

from __future__ import annotations

import numpy as np
import pytest
from tests.realise.oracle import agrees
from tests.realise.texts import program
from tests.targets.cpu.test_families import facts_for, runner
from tests.targets.cpu_emit.kit import HOST_LEVELS

from treadle.checker import check
from treadle.lib.convolution import depthwise_conv2d
from treadle.lib.scans import cumsum
from treadle.plan.facts import CallFacts
from treadle.planner.enumerate import choose, realised
from treadle.targets.cpu.families import families

EDGES = [
    {"M": 1, "N": 63, "K": 70},
    {"M": 3, "N": 64, "K": 1},
    {"M": 4, "N": 65, "K": 17},
    {"M": 5, "N": 1, "K": 16},
    {"M": 17, "N": 130, "K": 15},
    {"M": 2, "N": 3, "K": 0},
    {"M": 0, "N": 5, "K": 2},
]


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.parametrize("name", ["linear", "linear_bf16"])
def test_an_operand_that_few_rows_use_is_read_where_it_lies(name: str, rows: int, level: str) -> None:
    source = program(name)
    facts = facts_for(source, level, {"M": rows, "N": 2048, "K": 2048})
    choice = choose(source, facts, families())
    machine = realised(choice.plan, source, facts, families())
    copies = [b for k in machine.kernels for b in k.buffers if "acc" not in b.name]
    if rows == 1 or name == "linear":
        assert not choice.plan.point["packed"] and len(copies) <= (name != "linear"), choice.explain()
    assert check(machine).status == "verified"
    run = runner(machine, facts)
    for extents in EDGES:
        agrees(name, source, run, extents)


def test_an_operand_whose_lanes_are_apart_in_memory_is_packed() -> None:
    source = program("linear")
    near = facts_for(source, "avx512", {"M": 4, "N": 2048, "K": 2048})
    unit = frozenset((t, 0 if t == "W" else a) for t, a in near.unit)
    facts = CallFacts(near.target, near.extents, unit, near.aligned, features=near.features, workers=2)
    known = [f for f in families() if f.name == "tiled contraction"]
    choice = choose(source, facts, known)
    machine = realised(choice.plan, source, facts, known)
    assert any(len(b.shape) == 3 for k in machine.kernels for b in k.buffers), choice.explain()
    assert check(machine).status == "verified"


def test_small_products_are_not_packed_large_ones_are() -> None:
    source = program("linear")
    for extent, packed in ((48, False), (1024, True)):
        choice = choose(source, facts_for(source, extents=dict.fromkeys("MNK", extent)), families())
        assert choice.plan.point["packed"] == packed, choice.explain()


@pytest.mark.parametrize("columns", [0, 1, 15, 63, 64, 65])
def test_a_chain_along_a_row_runs_in_registers(columns: int) -> None:
    x = np.random.default_rng(columns).integers(-9, 9, (5, columns)).astype(np.float32)
    got = cumsum(x)
    assert np.array_equal(got, np.cumsum(x, 1))
    assert "held=True" in cumsum.plan(x, got).explain()


@pytest.mark.parametrize("side", [1, 15, 16, 65])
def test_a_fold_over_taps_runs_in_registers(side: int) -> None:
    rng = np.random.default_rng(side)
    x = rng.integers(-4, 5, (2, 3, 7, side)).astype(np.float32)
    w, bias = rng.integers(-4, 5, (3, 3, 3)).astype(np.float32), rng.integers(-4, 5, 3).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros(x.shape, np.float32) + bias[:, None, None]
    for r in range(3):
        for s in range(3):
            want += padded[:, :, r : r + 7, s : s + side] * w[:, r, s, None, None]
    assert np.array_equal(depthwise_conv2d(x, w, bias, pad=1), want)
    assert "held=True" in depthwise_conv2d.plan(x, w, bias, want, pad=1).explain()


def test_chains_of_several_rows_overlap_with_the_rows_along_the_lanes() -> None:
    """Rows are turned on the way in and out; where there are too few of them, or a row is too short, they are not."""
    y = np.zeros((64, 300), np.float32)
    x = np.random.default_rng(0).integers(-9, 9, y.shape).astype(np.float32)
    plan = cumsum.plan(x, y)
    assert plan.decisions.point["across"] is True and plan.check().status == "verified"
    assert "gather" not in plan.source() and "scatter" not in plan.source()
    for rows, columns in ((64, 300), (33, 17), (16, 1), (50, 0), (70, 64)):
        x = np.random.default_rng(rows).integers(-9, 9, (rows, columns)).astype(np.float32)
        assert np.array_equal(cumsum(x), np.cumsum(x, 1))
    assert cumsum.plan(x[:5], y[:5, :64]).decisions.point["across"] is False
