"""Operands made in registers: elements that engines brought are read by threads, changed one by one, and contracted.

Which operand that is decides what lies along the rows; slots are given back only when every thread has its elements.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.targets.cuda.cuda_kit import clean, tried

import treadle as td
from treadle import bf16, f4e2m1, f8e4m3, f16, f32, i4, i8, lib, u4
from treadle.checker import check
from treadle.driver.plan import Plan
from treadle.ir.expand import expand
from treadle.machine.form import FragRef, Mma, Sync, nested
from treadle.plan.facts import CallFacts
from treadle.planner.enumerate import choose
from treadle.targets.cuda.families import families
from treadle.targets.cuda.parted import PartedStreams

TARGET = "cuda:sm_90a"
M, N, K, G, R = td.dims("M N K G R")
GR = td.product(G, R)
SMALL = {"M": 72, "N": 40, "K": 144}


@td.kernel
def rectified(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma(td.maximum(X[m, k], 0.0).to(X.dtype), W[k, n], s)
        Y[m, n] = s.to(Y.dtype)


@td.kernel
def widened(X: td.Tensor[M, K], W: td.Tensor[N, K], scale: td.Tensor[N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma(X[m, k], (W[n, k].to(f32) * scale[n]).to(X.dtype), s)
        Y[m, n] = s.to(Y.dtype)


@td.kernel
def across(X: td.Tensor[M, K], W: td.Tensor[K, N], scale: td.Tensor[N], Y: td.Out[M, N] = None):
    """The operand that is made in registers does not lie along the depth."""
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma(X[m, k], (W[k, n].to(f32) * scale[n]).to(X.dtype), s)
        Y[m, n] = s.to(Y.dtype)


@td.kernel
def shifted(X: td.Tensor[M, K], W: td.Tensor[N, K], Y: td.Out[M, N] = None):
    """Zeros beyond the end become infinite on their way."""
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma((1.0 / (X[m, k].to(f32) + 4.0) - 0.125).to(bf16), W[n, k], s)
        Y[m, n] = s


@td.kernel
def mixed(X: td.Tensor[M, K], W: td.Tensor[N, K], Y: td.Out[M, N] = None):
    """Two formats, of which one holds every number of the other."""
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[n, k], s)
        Y[m, n] = s.to(Y.dtype)


def in_groups(m, n, X, W, a):
    """Weights are scaled before they are contracted, by groups along the depth."""
    acc = td.zeros(m, n, dtype=f32)
    for g in td.reduce(G.each):
        acc = td.mma(X[m, g, R], (W[n, g, R].to(f32) * a[n, g]).to(X.dtype), acc)
    return acc


@td.kernel
def signed(X: td.Tensor[M, GR], W: td.Tensor[N, GR, i4], a: td.Tensor[N, G], Y: td.Out[M, N] = None, *, group=128):
    td.let(R, group)
    for m, n in td.parallel(M, N):
        Y[m, n] = in_groups(m, n, X, W, a)


@td.kernel
def unsigned(X: td.Tensor[M, GR], W: td.Tensor[N, GR, u4], a: td.Tensor[N, G], Y: td.Out[M, N] = None, *, group=128):
    td.let(R, group)
    for m, n in td.parallel(M, N):
        Y[m, n] = in_groups(m, n, X, W, a)


@td.kernel
def floats(X: td.Tensor[M, GR], W: td.Tensor[N, GR, f4e2m1], a: td.Tensor[N, G], Y: td.Out[M, N] = None, *, group=128):
    td.let(R, group)
    for m, n in td.parallel(M, N):
        Y[m, n] = in_groups(m, n, X, W, a)


@td.kernel
def whole(X: td.Tensor[M, K], W: td.Tensor[N, K, i4], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[n, k].to(X.dtype), s)
        Y[m, n] = s


HALVES = {
    "i4 128": (lib.int4_matmul, i4, 128),
    "i4 64": (lib.int4_matmul, i4, 64),
    "i4 32": (lib.int4_matmul, i4, 32),
    "scaled first": (signed, i4, 128),
    "u4": (unsigned, u4, 64),
    "f4e2m1": (floats, f4e2m1, 128),
}


def planned(kernel: Any, left: Any, right: Any, sizes: dict[str, int], out: Any = bf16) -> Plan:
    m, n, k = sizes.values()
    other = (k, n) if kernel in (rectified, across) else (n, k)
    scale = (td.like(f32, n, align=256),) if kernel in (widened, across) else ()
    given = td.like(left, m, k, align=256), td.like(right, *other, align=256), *scale, td.like(out, m, n, align=256)
    return kernel.plan(*given, target=TARGET)


CASES = {
    "relu": (rectified, bf16, bf16),
    "relu f16": (rectified, f16, f16),
    "bytes": (widened, bf16, i8),
    "fp8": (widened, bf16, f8e4m3),
    "bytes across": (across, bf16, i8),
    "16 bits across": (across, bf16, bf16),
    "bf16 and fp8": (mixed, bf16, f8e4m3),
    "fp8 and f16": (mixed, f8e4m3, f16),
}


@pytest.fixture
def in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products whose operands might as well be made before are made in registers."""
    monkeypatch.setattr(PartedStreams, "ways", lambda self, shape: [("in registers", shape)])


@pytest.mark.usefixtures("in_registers")
@pytest.mark.parametrize("name", CASES)
def test_planned_verified_simulated_and_assembled(name: str) -> None:
    kernel, left, right = CASES[name]
    small = planned(kernel, left, right, SMALL)
    assert small.decisions.family == "streams" and small.check().status == "verified"
    products = [s for s in small.program.statements() if isinstance(s, Mma)]
    assert products and all(isinstance(s.a, FragRef) for s in products)
    tried(small.program, small.program.program, SMALL)
    large = planned(kernel, left, right, {"M": 4096, "N": 4096, "K": 4096})
    assert large.decisions.family == "streams"
    clean(large.program)


@pytest.mark.usefixtures("in_registers")
def test_rows_of_a_slot_shorter_than_what_is_read() -> None:
    """Rows of 32-bit elements across the depth come 32 at a time: 64 rows of a product lie in two of them."""

    @td.kernel
    def narrowed(X: td.Tensor[K, M], W: td.Tensor[N, K], Y: td.Out[M, N] = None):
        for m, n in td.parallel(M, N):
            s = td.zeros(m, n, dtype=f32)
            for k in td.reduce(K):
                s = td.mma(X[k, m].to(bf16), W[n, k], s)
            Y[m, n] = s

    given = td.like(f32, 144, 72, align=256), td.like(bf16, 40, 144, align=256), td.like(f32, 72, 40, align=256)
    plan = narrowed.plan(*given, target=TARGET)
    assert plan.decisions.family == "streams" and plan.check().status == "verified", plan.explain()
    tried(plan.program, plan.program.program, SMALL)
    clean(plan.program)


def test_points_of_operands_that_are_streams_only_turned() -> None:
    """One operand made before, the other in registers on the side that the rows do not take: such a way has points of
    its own, or none."""
    program = expand(lib.mxfp4_matmul.definition.capture({}, {"block": 32}))
    facts = CallFacts(
        TARGET,
        extents={"G": 7, "M": 64, "N": 4096},
        unit=frozenset({("X", 1), ("x_scale", 1), ("W", 0), ("Y", 1)}),
        aligned=dict.fromkeys(("X", "W", "x_scale", "w_scale"), 16) | {"Y": 1},
        features=frozenset(),
        disjoint=True,
    )
    best = choose(program, facts, families()).best.plan
    family = next(f for f in families() if f.name == best.family)
    assert check(family.build(program, facts, best.point, best.guard)).status == "verified"


@pytest.mark.usefixtures("in_registers")
def test_elements_beyond_the_end_are_zero_after_they_were_changed() -> None:
    plan = planned(shifted, bf16, bf16, {"M": 72, "N": 40, "K": 72}, f32)
    assert plan.decisions.family == "streams" and plan.check().status == "verified"
    tried(plan.program, plan.program.program, {"M": 72, "N": 40, "K": 72}, tolerance=1e-5)


@pytest.mark.usefixtures("in_registers")
@pytest.mark.parametrize("kind", ["fence.proxy.async", "barrier.sync"])
def test_slots_are_given_back_when_all_threads_have_read(kind: str) -> None:
    machine = planned(widened, bf16, i8, SMALL).program
    role = machine.kernels[-1].roles[-1]
    for body in nested(role.body):
        arrivals = [i for i, s in enumerate(body) if isinstance(s, Sync) and s.kind == "mbar.arrive"]
        if arrivals:
            last = max(i for i, s in enumerate(body) if isinstance(s, Sync) and s.kind == kind and i < arrivals[0])
            del body[last]
            break
    verdict = check(machine)
    assert verdict.status == "rejected" and "J2" in str(verdict)


def test_every_width_of_a_swizzled_row() -> None:
    """Blocks of 32 bytes along the depth are boxes too, in the mode of their width."""

    @td.kernel
    def stretches(X: td.Tensor[M, GR], W: td.Tensor[N, GR], a: td.Tensor[M, G], Y: td.Out[M, N] = None, *, size=32):
        td.let(R, size)
        for m, n in td.parallel(M, N):
            acc = td.zeros(m, n, dtype=f32)
            for g in td.reduce(G.each):
                acc = acc + td.dot(X[m, g, R], W[n, g, R], over=R, dtype=f32) * a[m, g]
            Y[m, n] = acc

    family = next(f for f in families() if f.name == "streams")
    for size, width in ((64, 128), (32, 64), (16, 32)):
        given = td.like(bf16, 72, 6 * size, align=256), td.like(bf16, 40, 6 * size, align=256)
        plan = stretches.plan(*given, td.like(f32, 72, 6), td.like(f32, 72, 40), size=size, target=TARGET)
        assert plan.decisions.family == family.name, plan.explain()
        assert {m.swizzle for m in plan.program.host.maps} == {width}
        tried(plan.program, plan.program.program, {"M": 72, "N": 40, "G": 6, "R": size})
        clean(plan.program)


@pytest.mark.usefixtures("in_registers")
@pytest.mark.parametrize("name", HALVES)
def test_two_elements_a_byte(name: str) -> None:
    """Engines bring the bytes, threads take both halves."""
    kernel, kind, size = HALVES[name]
    given = td.like(bf16, 72, 3 * size, align=256), td.like(kind, 40, 3 * size, align=256), td.like(f32, 40, 3)
    plan = kernel.plan(*given, group=size, target=TARGET)
    assert plan.decisions.family == "streams" and plan.check().status == "verified", plan.explain()
    tried(plan.program, plan.program.program, {"M": 72, "N": 40, "G": 3, "R": size})
    clean(plan.program)


def test_rows_of_half_bytes_are_whole() -> None:
    """Rows of an odd number of elements end in a byte that is half somebody's: no engine brings them."""
    odd = whole.plan(td.like(bf16, 72, 129, align=256), td.like(i4, 40, 129, align=256), target=TARGET)
    assert odd.decisions.family != "streams"
    machine = whole.plan(td.like(bf16, 72, 256, align=256), td.like(i4, 40, 256, align=256), target=TARGET).program
    assert "K % 2 == 0" in map(str, machine.guard.facts) and check(machine).status == "verified"
    machine.guard = type(machine.guard)(tuple(f for f in machine.guard.facts if str(f) != "K % 2 == 0"))
    assert check(machine).status == "unknown"
