"""Statements over whole dimensions, outside parallel regions: vectors, and tasks for the workers."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from treadle.checker import check
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.machine.form import MachineProgram, Tasks, walk
from treadle.plan.facts import CallFacts
from treadle.simulate.run import simulate
from treadle.targets.cpu.sweep import VectorSweep

H, V, T = td.dims("H V T")


@td.kernel
def shares(X: td.Tensor[H, V], Y: td.Out[H, V]):
    """Rows of a softmax, without a region."""
    x = X[H, V]
    e = td.exp(x - x.max(V))
    Y[H, V] = e / e.sum(V)


@td.kernel
def line(X: td.Tensor[V], Y: td.Out[V]):
    Y[V] = X[V] * X[V]


@td.kernel
def between(X: td.Tensor[H, V], Y: td.Out[H, V]):
    """Two tiles for a region, one of them of sums."""
    b = X[H, V] * 2 + 1
    s = b.sum(V)
    for y, x in td.parallel(H, V):
        Y[y, x] = b.at(H.extent - 1 - y, x, fill=0) + s[y]


@td.kernel
def steps(X: td.Tensor[H, V], Y: td.Out[H, V]):
    """What an iteration leaves is moved by all."""
    u = X[H, V]
    for _ in td.serial(3):
        old = u
        for y, x in td.parallel(H, V):
            u[y, x] = old.at(y + 1, x, fill=0) + 1
    Y[H, V] = u


@td.kernel
def scattered(X: td.Tensor[H, V], P: td.Tensor[H, td.i64], Y: td.Out[H, V]):
    """Where rows go, the call tells: nobody knows that two tasks do not meet."""
    Y[td.in_range(P[H], H), V] = X[H, V]


def planned(kernel: td.Kernel, **point: object) -> tuple[Program, MachineProgram]:
    program = expand(kernel.definition.capture({}, {}))
    unit = frozenset((t.name, len(t.dims) - 1) for t in program.tensors if t.dims)
    facts = CallFacts("cpu:avx512", extents={"H": 70, "V": 131, "T": 2}, unit=unit, disjoint=True, workers=2)
    family = VectorSweep()
    assert family.admits(program, facts) == []
    first = {a.name: a.values[0] for a in family.axes(program, facts)} | point
    return program, family.build(program, facts, first, family.guard(program, facts, first))


def tasks(machine: MachineProgram) -> list[Tasks]:
    return [s for s in walk(machine.kernels[0].roles[0].body) if isinstance(s, Tasks)]


@pytest.mark.parametrize(("kernel", "count"), [(shares, 1), (line, 1), (between, 2), (steps, 5)])
def test_workers_share_them(kernel: td.Kernel, count: int) -> None:
    for rows in (4, 16):
        _, machine = planned(kernel, rows=rows, columns=64)
        assert check(machine).status == "verified"
        assert len(tasks(machine)) == count
    _, alone = planned(kernel, workers=1)
    assert check(alone).status == "verified" and not tasks(alone)


def test_every_schedule_gives_the_same() -> None:
    x = np.arange(9 * 70, dtype=np.float32).reshape(9, 70) % 7
    _, machine = planned(between, rows=4, columns=64, vector=16)
    want = (2 * x + 1)[::-1] + (2 * x + 1).sum(1, keepdims=True)
    for seed in range(4):
        found = simulate(machine, {"X": x, "Y": np.full_like(x, np.nan)}, seed=seed)
        assert found.clean
        np.testing.assert_array_equal(found.outputs["Y"], want)


def test_calls_run_in_vectors() -> None:
    x = np.random.default_rng(0).standard_normal((33, 77)).astype(np.float32)
    y = np.empty_like(x)
    assert shares.plan(x, y).decisions.family == "vector sweep"
    shares(x, y)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
    long, out = np.arange(10_001, dtype=np.float32), np.empty(10_001, np.float32)
    line(long, out)
    np.testing.assert_array_equal(out, long * long)


def test_rows_whose_places_a_call_tells_are_not_shared() -> None:
    _, machine = planned(scattered)
    assert not tasks(machine)


@td.kernel
def sums_of_blocks(X: td.Tensor[V], Y: td.Out[V]):
    """Running sums of blocks: an instance fills its own part of the tile in order."""
    t = td.empty(V)
    for c in td.parallel(V.by(16)):
        s = td.zeros()
        for i in td.serial(c.each):
            s = s + X[i]
            t[i] = s
    Y[V] = t


def test_a_chain_in_each_block_fills_its_own_part() -> None:
    x = np.arange(70, dtype=np.float32)
    y = np.empty_like(x)
    sums_of_blocks(x, y)
    np.testing.assert_array_equal(y, np.concatenate([np.cumsum(x[i : i + 16]) for i in range(0, 70, 16)]))
    _, machine = planned(sums_of_blocks)
    assert check(machine).status == "verified" and len(tasks(machine)) == 2


@td.kernel
def ordered(X: td.Tensor[V], Y: td.Out[V], at: td.Out[V, td.i64]):
    x = X[V]
    Y[V] = td.sort(x, V, descending=True)
    at[V] = td.argsort(x, V)


@pytest.mark.parametrize("n", [0, 1, 2, 2047, 2049, 6000])
def test_a_sort_of_one_axis_is_merged_by_all(n: int) -> None:
    x = np.round(np.random.default_rng(n).standard_normal(n) * 8).astype(np.float32)
    x[: n // 50] = np.nan
    y, at = np.empty_like(x), np.empty(n, np.int64)
    ordered(x, y, at)
    np.testing.assert_array_equal(at, np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(y, x[np.argsort(-x, kind="stable")])
