"""The same programs planned for a GPU: the judge verifies each for all calls of its guard, and text is emitted."""

from __future__ import annotations

import functools
from math import inf
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.marks import assembled
from tests.reports import test_arguments as arguments
from tests.reports import test_loops as loops
from tests.reports import test_meaning as meaning
from tests.reports import test_process as process
from tests.reports.ways import everywhere

import treadle as td
from treadle import bf16, f16, f32, i32, i64, like
from treadle.algebra.expr import const
from treadle.checker import check
from treadle.ir.expand import expand
from treadle.lib import attention, matmul
from treadle.plan.facts import contiguous
from treadle.planner.space import Space
from treadle.simulate.run import simulate
from treadle.targets.cuda.parted import PartedStreams
from treadle.targets.cuda.streams import Streams
from treadle.targets.cuda.warps import Warps
from treadle.toolchain.nvrtc import compile_cuda

TARGET = "cuda:sm_90a"
WIDE = td.dims("WIDE")
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "u01 store and load": (loops.stored_and_loaded, (like(f32, 64, 96),)),
    "u01 store and load in stages": (loops.stored_and_loaded_in_stages, (like(f32, 4096, 1024),)),
    "u04 ranges from data": (loops.ragged, (like(f32, 12), like(i32, 6), like(i32, 6))),
    "u05 neighbours": (loops.neighbours, (like(f32, 100),)),
    "u07 store and load of another shape": (meaning.scaled_then_rotated, (like(f32, 8, 64),)),
    "u08 a branch with a fold": (loops.branch_with_a_fold, (like(f32, 7, 33),)),
    "u11 u82 collisions": (loops.scattered, (like(i32, 300), like(i64, 300), like(i64, 16))),
    "u12 turned and not": (arguments.turned, (like(i32, 32, 32),)),
    "u15 products of bf16": (meaning.bf16_product, (like(bf16, 64, 128), like(bf16, 128, 64))),
    "u16 maximum of short rows": (meaning.top_by_blocks, (like(f32, 1024, 11),)),
    "u20 scan of pairs": (meaning.running, (like(i64, 3, 64), like(i64, 3, 64))),
    "u24 positions with NaN": (meaning.positions, (like(f32, 7, 3),)),
    "u26 ties": (meaning.ties, (like(i32, 13, 17),)),
    "u44 products of any extent": (arguments.product, (like(f32, 64, 64), like(f32, 64, 64))),
    "u46 rows of an odd length": (arguments.doubled, (like(f32, 64, 1185),)),
    "u50 rows of 96": (meaning.row_statistics, (like(f32, 1024, 96),)),
    "u50 rows of 48, columns broadcast": (meaning.row_statistics, (like(f32, 1024, 48),)),
    "u50 rows of 229": (meaning.row_statistics, (like(f32, 1024, 229),)),
    "u50 rows of 192": (process.row_sums, (like(f32, 192, 192),)),
    "u56 a fold along one axis": (loops.total_by_blocks, (like(f32, 1001),)),
    "u58 an update written in one order": (loops.added_after, (like(f32, 64, 64), like(f32, 64, 64))),
    "u58 and in the other": (loops.added_before, (like(f32, 64, 64), like(f32, 64, 64))),
}


@functools.cache
def planned(name: str) -> Any:
    """The plan of a case, made once."""
    kernel, args = CASES[name]
    return kernel.plan(*args, target=TARGET)


@pytest.mark.parametrize("name", CASES)
def test_planned_and_verified(name: str) -> None:
    plan = planned(name)
    assert plan.check().status == "verified"
    assert "__global__" in plan.source()


@assembled
@pytest.mark.parametrize("name", CASES)
def test_assembled(name: str) -> None:
    assert compile_cuda(planned(name).source(), arch="sm_90a", name="kernel").cubin


# U15: two products in a row, each of many ones.


@td.kernel
def chained(
    A: td.Tensor[loops.M, loops.K],
    B: td.Tensor[loops.K, loops.N],
    C: td.Tensor[loops.N, WIDE],
    Y: td.Out[loops.M, WIDE] = None,
):
    for m in td.parallel(loops.M):
        first = td.dot(A[m, loops.K], B[loops.K, loops.N], over=loops.K, dtype=f32).to(bf16)
        Y[m, WIDE] = td.dot(first, C[loops.N, WIDE], over=loops.N, dtype=f32)


def test_u15_a_product_of_a_product() -> None:
    a, b, c = (np.ones(shape, ml_dtypes.bfloat16) for shape in ((64, 128), (128, 64), (64, 128)))
    assert set(everywhere(chained, a, b, c).reshape(-1).tolist()) == {8192.0}
    assert chained.plan(a, b, c, target=TARGET).check().status == "verified"


# U48: what does not fit is refused before compiling, with the numbers.


@td.kernel
def tiled(A: td.Tensor[loops.M, loops.K], B: td.Tensor[loops.K, loops.N], Y: td.Out[loops.M, loops.N] = None):
    for m, n in td.parallel(loops.M, loops.N):
        acc = td.zeros(m, n)
        for k in td.reduce(loops.K):
            acc = td.mma(A[m, k], B[k, n], acc)
        Y[m, n] = acc


def test_u48_buffers_that_do_not_fit_are_refused_with_their_sizes() -> None:
    a, b = like(bf16, 4096, 4096, align=256), like(bf16, 4096, 4096, align=256)
    with pytest.raises(td.TreadleError) as caught:
        tiled.plan(a, b, target=TARGET, where=[td.versions("A", 64)])
    assert caught.value.code == "plan/shared-exceeded" and caught.value.span is not None
    assert "A: 2, 3, 4, 6 or 8, not 64" in caught.value.found
    assert "warps: versions of blocks of A: 2, 3 or 4, not 64; every point exceeds" in caught.value.found
    assert "there are 232,448: alignment 16, B 9,216, A 327,680" in caught.value.found
    large = [td.versions("A", 8), td.tile(m=128, n=256, k=256)]
    with pytest.raises(td.TreadleError) as caught:
        tiled.plan(a, b, target=TARGET, where=large)
    assert caught.value.code == "plan/shared-exceeded"
    assert "525,824 bytes of shared memory, there are 232,448" in caught.value.found
    assert "barriers and alignment 1,536, B 262,144, A 262,144" in caught.value.found
    plan = tiled.plan(a, b, target=TARGET, where=[td.atom("acc", "wgmma")])
    assert plan.check().status == "verified"


def test_u48_heads_of_512_are_planned_otherwise_and_told_why() -> None:
    heads = like(bf16, 1, 16, 4096, 512)
    plan = attention.plan(heads, heads, heads, target=TARGET)
    assert plan.check().status == "verified"
    (why,) = [line for line in plan.explain().splitlines() if line.startswith("  not streams: ")]
    assert "329,216 bytes of shared memory, there are 232,448" in why and "K 131,072, Q 65,536, V 131,072" in why


def test_u48_what_is_counted_is_what_the_launch_has() -> None:
    """Of every point that is offered: the buffers counted are those of the machine program, and all fit."""
    source = expand(tiled.program(like(bf16, 512, 512), like(bf16, 512, 512)))
    facts = contiguous(source, TARGET, {"M": 4096, "N": 4096, "K": 4096})
    for family in (Streams(), Warps()):
        space = Space(source, facts, family)
        seen = list(space.indices())
        for index in np.random.default_rng(0).choice(len(seen), 200):
            point = space.point(seen[index])
            needs = {n.resource: n for n in family.needs(source, facts, point, ())}
            short = any(n.total > n.limit for n in needs.values())
            fits = family.cost(source, facts, point).total < inf
            assert not (fits and short)
            if fits and index % 8 == 0:
                machine = family.build(source, facts, point, family.guard(source, facts, point))
                launch = max(x.shared_bytes for x in machine.host.launches)
                assert needs["shared memory"].total * 0.95 <= launch <= needs["shared memory"].total


# U60: few rows times a matrix of 5120 x 1792, with the depth cut into parts for all multiprocessors.


def test_u60_few_rows_are_planned_with_the_depth_in_parts() -> None:
    """One text is judged for every number of rows; each of 1 to 16 is a call of it."""
    plan = matmul.plan(like(f16, 1, 5120), like(f16, 5120, 1792), target=TARGET)
    assert plan.check().status == "verified"
    source, family = expand(matmul.program(like(f16, 1, 5120), like(f16, 5120, 1792))), PartedStreams()
    facts = contiguous(source, TARGET, {"M": 16, "N": 1792, "K": 5120})
    few = {"columns": 16, "step": 256, "versions": 3, "turned": True, "parts": 4, "staged": False, "raster": "row"}
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | few
    assert family.admits(source, facts) == [] and family.cost(source, facts, point).total < 2e-5
    guard = family.guard(source, facts, point)
    machine = family.build(source, facts, point, guard)
    assert check(machine).status == "verified"
    depth = [b for b in machine.host.workspace if len(b.shape) == 3]
    assert len(machine.host.launches) == 2 and depth, "a launch for the parts, one that folds them"
    for rows in range(1, 17):
        sizes = {"M": const(rows), "N": const(1792), "K": const(5120)}
        told = [c.expr.substitute(sizes).constant for c in guard.constraints()]
        assert None not in told and all(n is not None and n >= 0 for n in told)


@pytest.mark.parametrize("rows, consumers", [(1, 2), (3, 1), (16, 2)])
def test_u60_parts_of_the_depth_are_exact(rows: int, consumers: int) -> None:
    source = expand(matmul.program(like(f16, 1, 512), like(f16, 512, 72)))
    family, sizes = PartedStreams(), {"M": rows, "N": 72, "K": 520}
    facts = contiguous(source, TARGET, sizes)
    few = {"columns": 16, "step": 128, "versions": 2, "turned": True, "parts": 2, "staged": False, "raster": "row"}
    few["consumers"] = consumers
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | few
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified"
    a, b = (np.random.default_rng(rows).integers(-2, 3, s).astype(np.float16) for s in ((rows, 520), (520, 72)))
    run = simulate(machine, {"A": a, "B": b, "Y": np.full((rows, 72), np.nan, np.float32)})
    assert run.findings == [] and (run.outputs["Y"] == a.astype(np.float64) @ b.astype(np.float64)).all()
