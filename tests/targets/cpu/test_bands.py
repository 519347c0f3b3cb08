"""Tiles that are read near one's own coordinates: made in bands by the tasks that read them, and when they are not."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from treadle.algebra.expr import const, sym
from treadle.analysis.uses import Uses
from treadle.checker import check
from treadle.ir.core import Program, Region
from treadle.ir.expand import expand
from treadle.ir.guard import Guard
from treadle.machine.form import MachineProgram, Tasks, walk
from treadle.plan.facts import CallFacts
from treadle.realise.bands import Band, Reach, bands
from treadle.realise.blocks import realise
from treadle.realise.choices import Choices
from treadle.realise.universal import base_facts
from treadle.simulate.run import simulate
from treadle.targets.cpu.sweep import VectorSweep

H, V, R = td.dims("H V R")


@td.kernel
def three(X: td.Tensor[H, V], Y: td.Out[H, V]):
    """Three stages; the first one is read by both of the others, downwards only by the last one."""
    a, b = td.empty(H, V), td.empty(H, V)
    for y, x in td.parallel(H, V):
        a[y, x] = X.at(y - 1, x, fill=0) - 2 * X.at(y, x + 1, fill=1)
    for y, x in td.parallel(H, V):
        b[y, x] = a.at(y - 2, x, fill=3) + a.at(y, x - 1, fill=0)
    for y, x in td.parallel(H, V):
        Y[y, x] = b.at(y + 1, x, fill=5) - a.at(y + 3, x, fill=2) + b[y, x]


@td.kernel
def taps(X: td.Tensor[H, V], W: td.Tensor[R], Y: td.Out[H, V]):
    a = td.empty(H, V)
    for y, x in td.parallel(H, V):
        a[y, x] = 3 * X[y, x]
    for y, x in td.parallel(H, V):
        total = td.zeros(y, x)
        for r in td.reduce(R.each):
            total = total + a.at(y + r - R.extent // 2, x, fill=1) * W[r]
        Y[y, x] = total


@td.kernel
def everywhere(X: td.Tensor[H, V], D: td.Tensor[H, td.i64], Y: td.Out[H, V]):
    """Which row of the tile is read, the call tells."""
    a = td.empty(H, V)
    for y, x in td.parallel(H, V):
        a[y, x] = X[y, x] * X[y, x]
    for y, x in td.parallel(H, V):
        Y[y, x] = a.at(y + D[y], x, fill=0)


@td.kernel
def changing(X: td.Out[H, V]):
    """What the first region reads is overwritten by the second one."""
    a = td.empty(H, V)
    for y, x in td.parallel(H, V):
        a[y, x] = X[y, x] * 2
    for y, x in td.parallel(H, V):
        X[y, x] = a.at(y + 1, x, fill=0)


@td.kernel
def kept(X: td.Tensor[H, V], A: td.Out[H, V], Y: td.Out[H, V]):
    """The tile is wanted itself."""
    a = td.empty(H, V)
    for y, x in td.parallel(H, V):
        a[y, x] = X[y, x] * 2
    for y, x in td.parallel(H, V):
        Y[y, x] = a.at(y + 1, x, fill=0)
    A[H, V] = a


def captured(kernel: td.Kernel) -> tuple[Program, Uses, dict[int, str]]:
    program = expand(kernel.definition.capture({}, {}))
    names = {id(r): r.name for r in program.body.walk() if isinstance(r, Region)}
    return program, Uses(program), names


def moved(a: np.ndarray, i: int, j: int, fill: float) -> np.ndarray:
    """`a[y + i, x + j]`, `fill` outside."""
    wide = np.pad(a, 3, constant_values=fill)
    return wide[3 + i : 3 + i + a.shape[0], 3 + j : 3 + j + a.shape[1]]


def of_three(x: np.ndarray) -> np.ndarray:
    a = moved(x, -1, 0, 0) - 2 * moved(x, 0, 1, 1)
    b = moved(a, -2, 0, 3) + moved(a, 0, -1, 0)
    return moved(b, 1, 0, 5) - moved(a, 3, 0, 2) + b


def test_every_stage_is_a_band() -> None:
    """The plan of the first call, with bands, serves the smaller ones too."""
    for shape in ((70, 131), (33, 17), (2, 70), (1, 1)):
        x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
        y = np.empty_like(x)
        if shape[0] > 1:
            assert three.plan(x, y).decisions.point["bands"] is (shape[0] > 2)
        three(x, y)
        np.testing.assert_array_equal(y, of_three(x))
        w, rows = np.array([1, 2, 0, -1], np.float32), np.arange(shape[0])
        taps(x, w, y)
        a = np.pad(3 * x, ((2, 2), (0, 0)), constant_values=1)
        np.testing.assert_array_equal(y, sum(w[r] * a[rows + r] for r in range(4)))


def test_how_far_bands_reach() -> None:
    program, uses, names = captured(three)
    first, second = bands(program, uses, names)
    assert (first.into, second.into) == ("R2", "R2")
    spans = {b.region: [(str(r.first), str(r.last)) for r in b.reach.values() if r] for b in (first, second)}
    # Rows of the second stage from this one on, of the first one from two above and to three below.
    assert spans == {"R0": [("-2", "3"), ("-1", "0")], "R1": [("0", "1"), ("0", "0")]}
    (band,) = bands(*captured(taps))
    reach = next(iter(band.reach.values()))
    assert reach is not None and reach.last - reach.first == sym("R") - 1


@pytest.mark.parametrize("kernel", [everywhere, changing, kept])
def test_tiles_that_stay(kernel: td.Kernel) -> None:
    program, uses, names = captured(kernel)
    assert all(set(b.reach.values()) == {None} or b.reach["y"] is None for b in bands(program, uses, names))
    assert kernel is everywhere or not bands(program, uses, names)


@td.kernel
def near(X: td.Tensor[H, V], Y: td.Out[H, V]):
    a = td.empty(H, V)
    for y, x in td.parallel(H, V):
        a[y, x] = X[y, x] * X[y, x]
    for y, x in td.parallel(H, V):
        Y[y, x] = a.at(y + 1, x, fill=0)


@td.kernel
def of_blocks(X: td.Tensor[H, V], Y: td.Out[H, V]):
    """The elements of the tile are of the blocks that make them."""
    a = td.empty(H, V)
    for y, x in td.parallel(H.by(4), V):
        a[y, x] = X[y, x] - X[y, x].sum(y)
    for y, x in td.parallel(H, V):
        Y[y, x] = a.at(y + 1, x, fill=0)


def built(kernel: td.Kernel, last: int) -> MachineProgram:
    """The machine program with a band that ends `last` rows behind the rows of its task."""
    program, uses, _ = captured(kernel)
    band = Band("R0", "R1", {"y": Reach("y_1", const(0), const(last)), "x": Reach("x_1", const(0), const(0))})
    cuts = {"R1.y_1": 4, "R1.x_1": 32}
    choices = Choices(cuts, frozenset({"R1"}), {"V": 16}, vector=("V",), fuse=True, bands=(band,))
    return realise(program, choices, Guard(tuple(base_facts(program, uses, disjoint=True))), "cpu:avx512", uses)


@pytest.mark.parametrize(("kernel", "last", "right"), [(near, 1, True), (near, 2, True), (near, 0, False)])
def test_a_band_that_ends_early_is_refused(kernel: td.Kernel, last: int, right: bool) -> None:
    machine = built(kernel, last)
    assert (check(machine).status == "verified") is right
    x = np.arange(9 * 33, dtype=np.float32).reshape(9, 33)
    found = simulate(machine, {"X": x, "Y": np.full_like(x, np.nan)})
    assert (found.clean and np.array_equal(found.outputs["Y"], moved(x * x, 1, 0, 0))) is right


def test_what_blocks_make_differs_from_instance_to_instance() -> None:
    assert not bands(*captured(of_blocks))
    assert check(built(of_blocks, 1)).status != "verified"


def test_plans_of_bands_are_verified_on_every_cpu() -> None:
    program, _, _ = captured(three)
    unit = frozenset({("X", 1), ("Y", 1)})
    family = VectorSweep()
    for target in ("cpu:avx2", "cpu:avx512"):
        facts = CallFacts(target, extents={"H": 70, "V": 131}, unit=unit, disjoint=True, workers=2)
        axes = {a.name: a.values for a in family.axes(program, facts)}
        point = {n: v[0] for n, v in axes.items()} | {"rows": 16, "bands": True}
        for beside in axes["beside"]:
            machine = family.build(program, facts, point | {"beside": beside}, family.guard(program, facts, point))
            assert check(machine).status == "verified"
            assert sum(isinstance(s, Tasks) for s in walk(machine.kernels[0].roles[0].body)) == 1
