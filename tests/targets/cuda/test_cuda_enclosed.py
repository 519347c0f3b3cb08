"""Programs in no parallel region as rows over lanes: whole statements, and folds that all wait for, in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.targets.cuda.cuda_kit import clean, tried

import treadle as td
from treadle import lib
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.simulate.run import simulate
from treadle.targets.cuda.families import families
from treadle.targets.cuda.scanned import scanned_rows

M, N = td.dims("M N")
SWEEPING = {"held": False, "exact": False, "slots": 0, "stages": 0, "close": False}


@td.kernel
def at_once(X: td.Tensor[M, N], Y: td.Out[M, N]):
    Y[M, N] = X[M, N] * 2.0 + 1.0


@td.kernel
def vector(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = X[N].sum(N)


@td.kernel
def largest(X: td.Tensor[M, N], Y: td.Out[N]):
    top = td.full(N, value=-100.0)
    for m in td.reduce(M):
        top = td.maximum(top, X[m, N].max(m))
    Y[N] = top


def of(dtype: td.DType, *shape: int) -> Any:
    return td.like(dtype, *shape, align=256)


KERNELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "total": (lib.total, (of(td.f32, 4, 8), of(td.f32))),
    "total of bf16": (lib.total, (of(td.bf16, 4, 8), of(td.f32))),
    "columns": (lib.columns_sum, (of(td.f32, 4, 8), of(td.f32, 8))),
    "columns of integers": (lib.columns_sum, (of(td.i32, 4, 8), of(td.i32, 8))),
    "largest": (largest, (of(td.f32, 4, 8), of(td.f32, 8))),
    "at once": (at_once, (of(td.f32, 4, 8), of(td.f32, 4, 8))),
    "vector": (vector, (of(td.f32, 8), of(td.f32))),
}


def built(
    name: str, sizes: dict[str, int], target: str = "cuda:sm_90a", align: bool = True, **point: Any
) -> tuple[Program, MachineProgram]:
    kernel, args = KERNELS[name]
    args = args if align else tuple(td.like(a.dtype, *a.shape, align=4) for a in args)
    source, family = expand(kernel.program(*args)), scanned_rows()
    facts = contiguous(source, target, sizes)
    assert family.admits(source, facts) == []
    found = SWEEPING | point
    way = family.derivation(source, facts, found)
    assert way is not None and {v.status for v in validate_derivation(way.programs, way.steps)} == {"verified"}
    return source, family.build(source, facts, found, family.guard(source, facts, found))


LONG, MANY, WIDE = {"M": 2, "N": 1 << 20}, {"M": 100_000, "N": 32}, {"M": 512, "N": 4096}
POINTS: dict[str, tuple[str, dict[str, int], dict[str, Any]]] = {
    "rows in parts": ("total", MANY, {"warps": 1, "together": 4}),
    "rows in parts, by workgroups": ("total of bf16", WIDE, {"warps": 4, "together": 1}),
    "few long rows": ("total", LONG, {"warps": 4, "stretches": 66}),
    "columns by warps": ("columns", MANY, {"warps": 1, "together": 4}),
    "columns by workgroups": ("columns", WIDE, {"warps": 4, "together": 4}),
    "columns of integers": ("columns of integers", WIDE, {"warps": 4, "together": 1}),
    "the largest": ("largest", MANY, {"warps": 1, "together": 4}),
    "elements": ("at once", WIDE, {"warps": 4}),
    "one row": ("vector", LONG, {"warps": 4, "stretches": 66}),
}


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("name", POINTS)
def test_plans_are_judged_run_and_assembled(name: str, target: str) -> None:
    kernel, sizes, point = POINTS[name]
    source, machine = built(kernel, sizes, target, **point)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    clean(machine)
    if target == "cuda:sm_80":
        return  # the same text runs on both, but for how launches follow one another
    least = 1 if "stretches" in point else 0
    for m, n in ((33, 32), (1, 1000), (0, 4), (7, 4 * least)):
        # Of small integers: exactly what the interpreter stores.
        tried(machine, source, {"M": m, "N": n * 2 if kernel == "total of bf16" else n})


@pytest.mark.parametrize("name", ["total", "columns", "vector"])
def test_odd_extents(name: str) -> None:
    sizes = {"M": 1001, "N": 331}
    source, machine = built(name, sizes, warps=1)
    assert check(machine).status == "verified"
    for m, n in ((31, 33), (100, 1), (3, 31), (0, 0)):
        tried(machine, source, {"M": m, "N": n})


def test_every_run_folds_in_the_same_order() -> None:
    source, machine = built("total", LONG, warps=4, stretches=66)
    rng = np.random.default_rng(5)
    args = {"X": rng.standard_normal((3, 5000)).astype(np.float32), "Y": np.zeros((), np.float32)}
    found = {simulate(machine, args, seed=seed).outputs["Y"].tobytes() for seed in range(4)}
    assert len(found) == 1
    assert abs(np.frombuffer(found.pop(), np.float32)[0] - args["X"].astype(np.float64).sum()) < 2e-2


def test_wrong_parts_are_refused() -> None:
    _, machine = built("total", MANY, warps=1, together=4)
    text = print_machine(machine)
    assert check(parse_machine(text)).status == "verified"
    size = next(line for line in text.splitlines() if "loop m_1" in line).split("*t_m")[0].rpartition(" ")[2]
    for old, new in (
        (f".. min({size}*t_m_c_1 + {size}, M)", f".. min({size}*t_m_c_1 + {size}, M - 1)"),
        ("store b_s[t_m_c_1]", "store b_s[0]"),
        ("    sync grid.wait\n", ""),
        ("fill -0.0", "fill 1.0"),
    ):
        assert old in text, (old, text)
        assert check(parse_machine(text.replace(old, new, 1))).status != "verified", new


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_no_longer_one_thread(name: str) -> None:
    kernel, args = KERNELS[name]
    source = expand(kernel.program(*args))
    for sizes in (LONG, MANY, WIDE):
        plan = choose(source, contiguous(source, "cuda:sm_90a", sizes), families()).plan
        assert plan.family == "rows", (sizes, plan)


def test_the_kernel_keeps_what_it_promises() -> None:
    ordered = lib.total.plan(of(td.f32, 64, 64), order=td.ordered, target="cuda:sm_90a")
    assert "agents 1 threads 1 {" in ordered.machine()  # floats in the order of the source are no tree over lanes
    runs = [lib.total.under(td.Numerics(repeatable=how)) for how in ("run", "batch")]
    for kernel in runs:
        plans = [kernel.plan(of(td.f32, m, 64), target="cuda:sm_90a") for m in (1, 5000)]
        assert len({p.machine() for p in plans}) == 1 and plans[0].check().status == "verified"


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("name", ["total", "total of bf16", "columns", "columns of integers", "largest"])
def test_lanes_that_narrow_rows_leave_have_rows_beside_them(name: str, held: bool) -> None:
    """Rows of 16: a warp has eight (sixteen of bf16) at once, and each lane four such; rows of any length run."""
    source, machine = built(name, {"M": 700, "N": 16}, warps=1, held=held, together=4)
    lanes = 2 if name == "total of bf16" else 4
    shared = [f for k in machine.kernels for f in k.frags if len(f.shape) == 2 and f.shape[1] == 16]
    assert shared and all(
        {(m.size, m.axis) for m in f.dist if m.who == "lane"} == {(lanes, 1), (32 // lanes, 0)} for f in shared
    )
    verdict = check(machine)
    assert verdict.status == "verified", verdict
    clean(machine)
    for m, n in [(700, 16), (1, 8), (131, 16), *([] if held else [(77, 40)])]:
        tried(machine, source, {"M": m, "N": n})
