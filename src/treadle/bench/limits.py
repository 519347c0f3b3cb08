"""Physical limits, measured next to a run: a loop of fused multiply-adds in registers, and a copy."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable

import numpy as np

from treadle.driver.targets import features_of, host_target
from treadle.dtype.formats import DType, bf16, f32
from treadle.runtime.cpu import load_object
from treadle.toolchain.features import LEVELS
from treadle.toolchain.llvm import compile_ir

ACCUMULATORS = 24
PAIRS = frozenset({"avx512_bf16"})
STEPS = 200_000


LANES = {"avx2": 8, "avx512": 16, "amx": 16, "neon": 4, "neon_dot": 4, "sve": 4}
"""f32 elements of the loop's vectors by level: of aarch64 those of 128 bits, which every level has."""


def loop_text(level: str, pairs: bool = False) -> tuple[str, frozenset[str], float]:
    """The loop for a level, the features that it needs, and the floating-point operations of an iteration."""
    lanes = LANES[level]
    count = 12 if level == "avx2" else ACCUMULATORS
    vector = f"<{lanes} x float>"
    phis = "\n".join(f"  %a{i} = phi {vector} [ zeroinitializer, %start ], [ %b{i}, %loop ]" for i in range(count))
    small = f"<{2 * lanes} x bfloat>"
    if pairs:
        name, operands = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", f"{vector} %a{{i}}, {small} %y, {small} %y"
        taken = f"{vector}, {small}, {small}"
    else:
        name, operands = f"llvm.fma.v{lanes}f32", f"{vector} %x, {vector} %x, {vector} %a{{i}}"
        taken = f"{vector}, {vector}, {vector}"
    steps = "\n".join(f"  %b{i} = call {vector} @{name}({operands.format(i=i)})" for i in range(count))
    sums = "\n".join(f"  %s{i} = fadd {vector} {'%b0' if i == 1 else f'%s{i - 1}'}, %b{i}" for i in range(1, count))
    text = f"""
define float @peak(i64 %n, float %v) nounwind "prefer-vector-width"="512" "min-legal-vector-width"="{32 * lanes}" {{
start:
  %x0 = insertelement {vector} poison, float %v, i64 0
  %x = shufflevector {vector} %x0, {vector} poison, <{lanes} x i32> zeroinitializer
  %y = bitcast {vector} %x to {small}
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
  %r = extractelement {vector} %s{count - 1}, i64 0
  ret float %r
}}
declare {vector} @{name}({taken})
"""
    features = LEVELS["avx512" if level == "amx" else level] | (PAIRS if pairs else frozenset[str]())
    return text, features, (4.0 if pairs else 2.0) * lanes * count


@functools.cache
def fma_loop(pairs: bool = False) -> tuple[Callable[[], None], float]:
    """A loop in registers on one core, and how many floating-point operations it does.

    f32 multiply-adds, or with `pairs` products of pairs of bf16 summed in f32.
    """
    text, features, work = loop_text(host_target().partition(":")[2], pairs)
    code = compile_ir(text, cpu_features=features, name="peak").object
    loaded = load_object(code, ["peak"], name="peak", features=features)
    call = loaded.function("peak", ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float))
    return lambda: call(STEPS, 1e-9), work * STEPS


def peak_flops(dtype: DType = f32, repeats: int = 5) -> float:
    """Operations a second of one core's vector units on inputs of a dtype, summed in f32; the best of a few.

    Without an instruction for products of that dtype they are f32 operations. Matrix units are not measured.
    """
    run, work = fma_loop(dtype == bf16 and features_of(host_target()) >= PAIRS)
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
