"""Contractions by warps out of a ring of copies of threads: right, verified, assembled without spills."""

from __future__ import annotations

from math import isinf
from typing import Any

import pytest
from tests.marks import assembled
from tests.realise.texts import linear as transposed
from tests.realise.texts import program
from tests.targets.cuda.cuda_kit import clean, tried
from tests.targets.cuda.test_cuda_streams import halves, read

import treadle as td
from treadle import f64, i64
from treadle.checker import check
from treadle.driver.plan import Plan
from treadle.ir.parser import parse_program
from treadle.lib.linear import gated_linear, linear
from treadle.machine.form import Copy, MachineProgram, Mma
from treadle.plan.facts import contiguous
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.warps import Warps
from treadle.toolchain.nvrtc import compile_cuda
from treadle.toolchain.sass import disassemble

M, N, K = td.dims("M N K")
POINT = {"rows": 64, "columns": 64, "step": 32, "versions": 3, "raster": "row"}
SM_80 = "cuda:sm_80"


def built(name: str, sizes: dict[str, int], **changes: int) -> MachineProgram:
    source = program(name)
    family, facts = Warps(), contiguous(source, SM_80, sizes)
    assert family.admits(source, facts) == []
    point = POINT | changes
    return family.build(source, facts, point, family.guard(source, facts, point))


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [({"M": 70, "N": 72, "K": 104}, {}), ({"M": 66, "N": 8, "K": 8}, {"versions": 2, "step": 64, "columns": 128})],
)
def test_tails_of_everything_and_any_ring(sizes: dict[str, int], changes: dict[str, int]) -> None:
    machine = built("linear_bf16", sizes, **changes)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    tried(machine, program("linear_bf16"), sizes, tolerance=0.02)


def a(dtype: Any, *shape: int, flipped: bool = False) -> Any:
    """A matrix; `flipped`: its first axis is the contiguous one."""
    return td.like(dtype, *shape, strides=(1, shape[0]) if flipped else None, align=256)


def planned(dtype: Any, x: bool = False, w: bool = False, bias: bool = False, act: Any = None) -> Plan:
    m, n, k = 2048, 2048, 2048
    given = [a(dtype, m, k, flipped=x), a(dtype, k, n, flipped=w), a(dtype, n) if bias else None, a(dtype, m, n)]
    return linear.plan(*given, act=act, target=SM_80)


CASES = {
    "bf16": lambda: planned(td.bf16, bias=True, act=td.gelu),
    "f16, both turned": lambda: planned(td.f16, x=True, w=True),
    "weights turned": lambda: planned(td.bf16, w=True),
    "two products": lambda: gated_linear.plan(
        a(td.bf16, 2048, 512), a(td.bf16, 512, 2048), a(td.bf16, 512, 2048), a(td.bf16, 2048, 2048), target=SM_80
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_chosen_verified_and_assembled_without_spills(name: str) -> None:
    plan = CASES[name]()
    assert plan.decisions.family == "warps", plan.explain()
    assert plan.check().status == "verified"
    clean(plan.program)
    assert sum(launch.counts["LDSM"] for launch in emit(plan.program).launches) > 0
    statements = list(plan.program.statements())
    assert any(isinstance(s, Mma) and s.atom.startswith("mma.sync") for s in statements)
    assert any(isinstance(s, Copy) and s.engine == "cp.async" for s in statements)


def test_f32_by_tf32_where_the_program_grants_it() -> None:
    text = transposed(transposed=True, gelu=False).strip("\n")
    source = parse_program(text.replace("program linear\n", "program linear\n  numerics tf32 = true\n", 1))
    sizes = {"M": 70, "N": 72, "K": 40}
    family, facts = Warps(), contiguous(source, SM_80, sizes)
    assert family.admits(source, facts) == []
    machine = family.build(source, facts, POINT, family.guard(source, facts, POINT))
    assert check(machine).status == "verified"
    tried(machine, source, sizes, tolerance=0.02)
    clean(machine)


def test_what_warps_cannot_contract_is_refused() -> None:
    family = Warps()
    chain, wide = program("attention"), program("linear")
    assert family.admits(chain, contiguous(chain, SM_80, {"B": 1, "H": 1, "Q": 64, "S": 64}))
    (reason,) = family.admits(wide, contiguous(wide, SM_80, {"M": 64, "N": 64, "K": 64}))
    assert "tf32" in reason


@td.kernel
def plain(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None, *, acc=f64):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=acc)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[k, n], s)
        Y[m, n] = s


@td.kernel
def across(X: td.Tensor[M, K], W: td.Tensor[N, K], Y: td.Out[M, N] = None, *, acc=f64):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=acc)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[n, k], s)
        Y[m, n] = s


@assembled
@pytest.mark.parametrize("target", [SM_80, "cuda:sm_90a"])
@pytest.mark.parametrize("turned", [False, True])
def test_f64_on_the_tensor_cores(target: str, turned: bool) -> None:
    kernel, shape = (across, (40, 144)) if turned else (plain, (144, 40))
    given = td.like(f64, 72, 144, align=256), td.like(f64, *shape, align=256), td.like(f64, 72, 40, align=256)
    plan = kernel.plan(*given, target=target)
    assert plan.decisions.family == "warps" and plan.check().status == "verified", plan.explain()
    tried(plan.program, plan.program.program, {"M": 72, "N": 40, "K": 144})
    clean(plan.program)
    emitted = emit(plan.program)
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="kernel")
    (launch,) = emitted.launches
    assert disassemble(compiled.cubin).count(launch.kernel, "DMMA") == launch.counts["DMMA"] > 0


@pytest.mark.parametrize("kind", [f64, i64])
def test_products_of_64_bits_take_two_registers(kind: Any) -> None:
    """Blocks of which a thread would have to hold more than it has registers are no points."""
    plan = plain.plan(*(td.like(kind, 4095, 4095),) * 3, acc=kind, target="cuda:sm_90a")
    assert plan.decisions.family == "blocks" and plan.check().status == "verified"
    clean(plan.program)


def test_points_that_the_assembler_would_spill_are_none() -> None:
    """Functions of 256 columns of results; two workgroups a multiprocessor with blocks 64 deep."""
    source = read(halves(transposed("bf16", gelu=True)))
    facts = contiguous(source, "cuda:sm_90a", {"M": 4096, "N": 4096, "K": 4096})
    family = Warps()
    assert family.admits(source, facts) == []
    one = {"rows": 128, "columns": 256, "step": 32, "versions": 3, "raster": "panels", "resident": 1}
    two = one | {"columns": 128, "resident": 2}
    costs = [family.cost(source, facts, p).total for p in (one, one | {"columns": 128}, two, two | {"step": 64})]
    assert [isinf(c) for c in costs] == [True, False, False, True]
