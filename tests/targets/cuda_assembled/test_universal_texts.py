"""Programs that no faster family takes, assembled for both architectures: formats of a byte and less, order, loops."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.differential import test_native as native
from tests.driver import test_packed as packed
from tests.marks import assembled
from tests.reports import test_loops as loops
from tests.reports import test_meaning as meaning

import treadle as td
from treadle import f8e4m3, f8e8m0, f32, i4, i32, lib, like, u4
from treadle.driver.plan import Plan
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda
from treadle.toolchain.sass import disassemble

TARGETS = ("cuda:sm_90a", "cuda:sm_80")
M, N, K = td.dims("M N K")


@td.kernel(numerics=td.Numerics(contract=False))
def rounded_twice(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc


@td.kernel
def counted(X: td.Tensor[M, N, td.bool_], Y: td.Out[M, i32] = None, Any: td.Out[M, td.bool_] = None):
    for m in td.parallel(M.each):
        Y[m] = X[m, N].to(i32).sum(N)
        Any[m] = X[m, N].max(N)


CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "to fp8, scaled": (lib.quantise_fp8, (like(f32, 8, 64),), {}),
    "products of 4-bit weights": (packed.weighted, (like(f32, 8, 64), like(i4, 16, 64)), {}),
    "to four bits": (packed.narrowed, (like(f32, 8, 64),), {}),
    "four bits from four": (packed.flipped, (like(u4, 64),), {}),
    "products of fp8 with scales of powers of two": (
        lib.mxfp8_matmul,
        (like(f8e4m3, 8, 64), like(f8e4m3, 16, 64), like(f8e8m0, 8, 2), like(f8e8m0, 16, 2)),
        {},
    ),
    "through fp8": (meaning.through, (like(f32, 64),), {}),
    "replaced by what stands beside it": (native.shifted, (like(f32, 64),), {}),
    "collisions in order": (native.in_order, (like(f32, 9, 4), like(i32, 9), like(f32, 5, 4)), {}),
    "a changed element": (loops.changed_element, (like(f32, 5, 6), 1), {}),
    "sorted": (lib.argsort, (like(f32, 5, 64),), {}),
    "counted bools": (counted, (like(td.bool_, 8, 64),), {}),
    "products rounded": (rounded_twice, (like(f32, 2048, 2048), like(f32, 2048, 2048)), {}),
}


@cache
def planned(name: str, target: str) -> Plan:
    kernel, args, staged = CASES[name]
    return kernel.plan(*args, target=target, **staged)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_verified(name: str, target: str) -> None:
    assert planned(name, target).check().status == "verified"


@assembled
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_assembled(name: str, target: str) -> None:
    plan = planned(name, target)
    emitted = emit(plan.program)
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="kernel")
    assert [m.text for m in compiled.messages if m.code] == []
    if plan.decisions.family != "universal":
        assert [k.spill_stores for k in compiled.kernels] == [0] * len(compiled.kernels)


@assembled
def test_products_rounded_before_they_are_added() -> None:
    emitted = emit(planned("products rounded", TARGETS[0]).program)
    found = disassemble(compile_cuda(emitted.source, arch=emitted.arch, name="kernel").cubin)
    name = emitted.launches[0].kernel
    assert planned("products rounded", TARGETS[0]).decisions.family == "blocks"
    assert found.count(name, "FFMA") == 0 and found.count(name, "FMUL") == found.count(name, "FADD") >= 64


def test_a_store_to_half_a_byte_leaves_the_other_half() -> None:
    text = emit(planned("to four bits", TARGETS[0]).program).source
    assert "store_half(" in text and "atomicAnd(word, ~(15u << shift));" in text
