"""Physical limits, measured next to a run: a loop of products in registers, and a copy."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np

from treadle.driver.targets import features_of, host_target
from treadle.dtype.formats import DType, bf16, f32, i8
from treadle.runtime.cpu import load_object
from treadle.toolchain.features import LEVELS
from treadle.toolchain.llvm import compile_ir

ACCUMULATORS = 24
STEPS = 200_000

LANES = {"avx2": 8, "avx512": 16, "amx": 16, "neon": 4, "neon_dot": 4, "sve": 4}
"""32-bit elements of the loop's vectors by level: of aarch64 those of 128 bits, which every level has."""


@dataclass(frozen=True)
class Products:
    """An instruction that sums products of groups of a dtype: `many` elements a lane, summed as `into`, its factors as
    vectors of `taken`."""

    feature: str
    many: int
    into: str
    name: str
    taken: str


SHORT = {
    bf16: (Products("avx512_bf16", 2, "float", "llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>"),),
    i8: (
        Products("avx512_vnni", 4, "i32", "llvm.x86.avx512.vpdpbusd.512", "<16 x i32>"),
        Products("asimddp", 4, "i32", "llvm.aarch64.neon.sdot.v4i32.v16i8", "<16 x i8>"),
    ),
}
"""Instructions for short formats, each with the feature that it needs."""


def products_of(dtype: DType, features: Container[str]) -> Products | None:
    """The instruction for products of a dtype; None where f32 has to stand for it."""
    return next((p for p in SHORT.get(dtype, ()) if p.feature in features), None)


def loop_text(level: str, short: Products | None = None) -> tuple[str, frozenset[str], float]:
    """The loop for a level, the features that it needs, and the operations of an iteration."""
    lanes = LANES[level]
    count = 12 if level == "avx2" else ACCUMULATORS
    into, taken = ("float", f"<{lanes} x float>") if short is None else (short.into, short.taken)
    add = "fadd" if into == "float" else "add"
    vector = f"<{lanes} x {into}>"
    phis = "\n".join(f"  %a{i} = phi {vector} [ zeroinitializer, %start ], [ %b{i}, %loop ]" for i in range(count))
    if short is None:
        name, operands = f"llvm.fma.v{lanes}f32", f"{taken} %y, {taken} %y, {vector} %a{{i}}"
    else:
        name, operands = short.name, f"{vector} %a{{i}}, {taken} %y, {taken} %y"
    types = f"{vector}, {taken}, {taken}"
    steps = "\n".join(f"  %b{i} = call {vector} @{name}({operands.format(i=i)})" for i in range(count))
    sums = "\n".join(f"  %s{i} = {add} {vector} {'%b0' if i == 1 else f'%s{i - 1}'}, %b{i}" for i in range(1, count))
    text = f"""
define float @peak(i64 %n, float %v) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="{32 * lanes}" {{
start:
  %x0 = insertelement <{lanes} x float> poison, float %v, i64 0
  %x = shufflevector <{lanes} x float> %x0, <{lanes} x float> poison, <{lanes} x i32> zeroinitializer
  %y = bitcast <{lanes} x float> %x to {taken}
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %j, %loop ]
{phis}
{steps}
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %end
end:
{sums}
  %e = extractelement {vector} %s{count - 1}, i64 0
  %r = bitcast {into} %e to float
  ret float %r
}}
declare {vector} @{name}({types})
"""
    features = LEVELS["avx512" if level == "amx" else level] | (frozenset[str]() if short is None else {short.feature})
    return text, features, 2.0 * (1 if short is None else short.many) * lanes * count


@functools.cache
def peak_loop(short: Products | None = None) -> tuple[Callable[[], None], float]:
    """A loop in registers on one core, and how many operations it does: f32 multiply-adds, or sums of products of
    groups by an instruction for a short format."""
    text, features, work = loop_text(host_target().partition(":")[2], short)
    code = compile_ir(text, cpu_features=features, name="peak").object
    loaded = load_object(code, ["peak"], name="peak", features=features)
    call = loaded.function("peak", ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float))
    return lambda: call(STEPS, 1e-9), work * STEPS


def peak_flops(dtype: DType = f32, repeats: int = 5) -> float:
    """Operations a second of one core's vector units on inputs of a dtype; the best of a few.

    Without an instruction for products of that dtype they are f32 operations. Matrix units are not measured.
    """
    run, work = peak_loop(products_of(dtype, features_of(host_target())))
    return work / min(_seconds(run) for _ in range(repeats))


def copy_bandwidth(size: int = 64 << 20, repeats: int = 5) -> float:
    """Bytes a second, read and written, of a copy by one core."""
    source, target = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    np.copyto(target, source)
    return 2.0 * size / min(_seconds(lambda: np.copyto(target, source)) for _ in range(repeats))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
