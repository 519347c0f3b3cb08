"""Contractions on the tensor cores in every operand format: judged, simulated, and the instruction that the text gives.

The data are small integers, of which every order of a sum is exact; tf32 and fp8 are permissions of the program.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from tests.marks import assembled
from tests.targets.cuda.cuda_kit import arguments, tried

import treadle as td
from treadle import bf16, f8e4m3, f8e5m2, f16, f32, i8, i32, lib, u8
from treadle.checker import check
from treadle.driver.plan import Plan
from treadle.hardware.atoms import find_atom, warpgroup_atom
from treadle.machine.form import Mma
from treadle.simulate.arithmetic import contract
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda
from treadle.toolchain.sass import disassemble

TARGET = "cuda:sm_90a"
B, M, N, K = td.dims("B M N K")

FORMATS: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "bf16": (bf16, bf16, f32, {}),
    "f16": (f16, f16, f32, {}),
    "tf32": (f32, f32, f32, {"tf32": True}),
    "i8": (i8, i8, i32, {}),
    "u8 i8": (u8, i8, i32, {}),
    "fp8": (f8e4m3, f8e4m3, f32, {"fp8_accumulate": "hardware"}),
    "both fp8": (f8e4m3, f8e5m2, f32, {"fp8_accumulate": "hardware"}),
}
SMALL = {"M": 72, "N": 40, "K": 144}
INSTRUCTION = {"bf16": "HGMMA", "f16": "HGMMA", "tf32": "HGMMA", "i8": "IGMMA", "u8 i8": "IGMMA"}


@td.kernel
def product(X: td.Tensor[M, K], W: td.Tensor[N, K], Y: td.Out[M, N] = None, *, acc=f32):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=acc)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[n, k], s)
        Y[m, n] = s


@td.kernel
def scaled(
    X: td.Tensor[M, K, i8], W: td.Tensor[N, K, i8], a: td.Tensor[M], b: td.Tensor[N], Y: td.Out[M, N, bf16] = None
):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=i32)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[n, k], s)
        Y[m, n] = (s.to(f32) * a[m] * b[n]).to(bf16)


def planned(name: str, m: int, n: int, k: int) -> Plan:
    left, right, acc, permissions = FORMATS[name]
    given = td.like(left, m, k, align=256), td.like(right, n, k, align=256), td.like(acc, m, n, align=256)
    return product.plan(*given, acc=acc, target=TARGET, numerics=td.Numerics(**permissions))


@pytest.mark.parametrize("name", FORMATS)
def test_planned_verified_and_simulated(name: str) -> None:
    plan = planned(name, 4096, 4096, 4096)
    assert plan.decisions.family == "streams" and plan.check().status == "verified"
    small = planned(name, *SMALL.values())
    assert small.decisions.family == "streams"
    tried(small.program, small.program.program, SMALL)


@assembled
@pytest.mark.parametrize("name", FORMATS)
def test_one_instruction_a_statement(name: str) -> None:
    emitted = emit(planned(name, 4096, 4096, 4096).program)
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="kernel")
    assert [m.text for m in compiled.messages] == []
    (launch,) = emitted.launches
    found = disassemble(compiled.cubin)
    opcode = INSTRUCTION.get(name, "QGMMA")
    assert found.count(launch.kernel, opcode) == launch.counts["HGMMA"] == 4


def test_permissions_are_asked_for_and_told() -> None:
    for name in ("tf32", "fp8"):
        left, right, acc, permissions = FORMATS[name]
        given = td.like(left, 512, 512), td.like(right, 512, 512), td.like(acc, 512, 512)
        plan = product.plan(*given, acc=acc, target=TARGET)
        assert plan.decisions.family != "streams" and plan.check().status == "verified"
        allowed = product.plan(*given, acc=acc, target=TARGET, numerics=td.Numerics(**permissions))
        machine = allowed.program
        word = next(iter(permissions))
        assert any(line.startswith(f"{word}: ") for line in machine.numerics)
        assert word in check(machine).permissions
        machine.program.numerics[word] = False if word == "tf32" else "promote"
        assert check(machine).status == "rejected"


def test_integers_scaled_on_their_way_out() -> None:
    given = td.like(i8, 512, 512), td.like(i8, 512, 512), td.like(f32, 512), td.like(f32, 512), td.like(bf16, 512, 512)
    plan = scaled.plan(*given, target=TARGET)
    assert plan.decisions.family == "streams" and plan.check().status == "verified"
    args = arguments(plan.program.program, SMALL)
    tried(plan.program, plan.program.program, SMALL, args=args, tolerance=1e-2)


def test_operands_that_only_16_bits_allow() -> None:
    """Bytes are contracted as they lie: a matrix that is not contiguous along the depth is turned before."""

    @td.kernel
    def turned(X: td.Tensor[M, K, i8], W: td.Tensor[K, N, i8], Y: td.Out[M, N, i32] = None):
        for m, n in td.parallel(M, N):
            s = td.zeros(m, n, dtype=i32)
            for k in td.reduce(K):
                s = td.mma(X[m, k], W[k, n], s)
            Y[m, n] = s

    plan = turned.plan(td.like(i8, 512, 512), td.like(i8, 512, 512), td.like(i32, 512, 512), target=TARGET)
    assert plan.decisions.family == "streams" and plan.check().status == "verified"
    assert [b.shape[0] for b in plan.program.host.workspace] == [plan.program.program.tensor("W").dims[1].extent]
    small = turned.plan(td.like(i8, 72, 144), td.like(i8, 144, 40), td.like(i32, 72, 40), target=TARGET)
    tried(small.program, small.program.program, SMALL)


def test_contracts_of_the_instructions() -> None:
    names = {(a, b): warpgroup_atom(a, b, 64) for a, b in (("i8", "u8"), ("f32", "f32"), ("f8e5m2", "f8e4m3"))}
    assert {k: (v.name, v.tile, v.spends) for k, v in names.items() if v is not None} == {
        ("i8", "u8"): ("wgmma.m64n64k32.i8", (64, 64, 32), ""),
        ("f32", "f32"): ("wgmma.m64n64k8.tf32", (64, 64, 8), "tf32"),
        ("f8e5m2", "f8e4m3"): ("wgmma.m64n64k32.fp8", (64, 64, 32), "fp8_accumulate"),
    }
    assert warpgroup_atom("bf16", "f16", 64) is None and warpgroup_atom("i8", "i8", 40) is None
    assert find_atom(TARGET, "wgmma.m64n64k16.tf32") is None and find_atom(TARGET, "wgmma.m64n64k8") is None


def test_what_tf32_ignores() -> None:
    a = np.array([[1 + 2.0**-11, 3.0]], np.float32)
    got = contract("wgmma.m64n8k8.tf32", f32, np.zeros(1, np.float32), a, np.array([[1.0, 2.0]], np.float32))
    assert got.tolist() == [7.0]


def test_scales_of_blocks_along_the_depth() -> None:
    numerics = td.Numerics(fp8_accumulate="hardware")
    fp8, scales = td.like(f8e4m3, 512, 512, align=256), td.like(f32, 512, 4)
    plan = lib.fp8_block_matmul.plan(fp8, fp8, scales, td.like(f32, 4, 4), numerics=numerics, target=TARGET)
    assert plan.decisions.family == "streams" and plan.check().status == "verified"
    sizes = {"M": 70, "G": 3, "NG": 2, "R": 128, "NR": 128}
    tried(plan.program, plan.program.program, sizes)
    assert {s.atom for s in plan.program.statements() if isinstance(s, Mma)} == {"wgmma.m64n128k32.fp8"}
    emitted = emit(plan.program)
    if importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("nvidia") is not None:
        assert compile_cuda(emitted.source, arch=emitted.arch, name="kernel").messages == ()


def test_batches_of_bytes_that_lie_across_the_depth_are_told_why() -> None:
    @td.kernel
    def batched(X: td.Tensor[B, M, K, i8], W: td.Tensor[B, K, N, i8], Y: td.Out[B, M, N, i32] = None):
        for b, m, n in td.parallel(B.each, M, N):
            s = td.zeros(m, n, dtype=i32)
            for k in td.reduce(K):
                s = td.mma(X[b, m, k], W[b, k, n], s)
            Y[b, m, n] = s

    given = (td.like(i8, 4, 256, 256, align=256),) * 2
    plan = batched.plan(*given, td.like(i32, 4, 256, 256, align=256), target=TARGET)
    assert "not streams: W of i8 is not contiguous along K, and has more axes" in str(plan.explain())
