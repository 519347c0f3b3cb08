"""The error of functions made around the hardware's instructions, over all 2^32 arguments.

`python benchmarks/device/functions.py make` compiles (no GPU needed) to benchmarks/build/functions;
`python benchmarks/device/functions.py run OUT.json` measures on the device against float64 (whose own error is below
1e-8 ulp of f32). An ulp is the distance of neighbouring f32 numbers at the exact result, 2^-149 below the normal ones.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import struct
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "functions"
sys.path[:0] = [str(ROOT / "src")]

from treadle.math import hardware
from treadle.runtime.cuda import CudaLaunch, Geometry, Pointer, load_cubin
from treadle.runtime.driver import device
from treadle.targets.cuda.emit.functions import define
from treadle.targets.cuda.emit.prelude import Prelude
from treadle.toolchain.nvrtc import compile_cuda

EXACT = {
    "exp": "exp(x)",
    "exp2": "exp2(x)",
    "sigmoid": "1.0 / (1.0 + exp(-x))",
    "tanh": "tanh(x)",
    "erf": "erf(x)",
    "reciprocal": "1.0 / x",
}
"""What each is, in f64."""


def exp_unlifted(b: Any, x: Any) -> Any:
    """exp with nothing added to the instruction's argument."""
    minus_n, power = hardware._split(b, x, hardware._NATURAL)
    r = b.fma(x, b.const_f32(hardware._LOG2_E), minus_n)
    return b.mul(b.exp2_near(b.fma(x, b.const_f32(hardware._LOG2_E_LOW), r)), power)


CANDIDATES: dict[str, tuple[str, Any]] = {
    **{name: (name, getattr(hardware, name)) for name in ("exp", "exp2", "sigmoid", "tanh", "erf")},
    "exp unlifted": ("exp", exp_unlifted),
    "bare exp2_near, |x| <= 0.5": ("exp2", lambda b, x: b.exp2_near(x)),
    "bare exp2_near, -126 <= x < 128": ("exp2", lambda b, x: b.exp2_near(x)),
    "bare reciprocal_near, 2^-126 <= |x| <= 2^126": ("reciprocal", lambda b, x: b.reciprocal_near(x)),
}
INSIDE = {
    "bare exp2_near, |x| <= 0.5": "fabsf(f) <= 0.5f && fabsf(f) >= 0x1p-126f",
    "bare exp2_near, -126 <= x < 128": "f >= -126.0f && f < 128.0f && fabsf(f) >= 0x1p-126f",
    "bare reciprocal_near, 2^-126 <= |x| <= 2^126": "fabsf(f) >= 0x1p-126f && fabsf(f) <= 0x1p126f",
}

KERNEL = """
extern "C" __global__ void measure_{n}(u64* out) {{
  // out: 0 the largest error's f32 bits and its argument, 1 wrong infinities, NaN and zeros, 2 above 1 ulp, 3 above 2,
  // 4 and 5 as 0 of results too large and too small.
  u64 worst = 0, over = 0, under = 0, wrong = 0, above1 = 0, above2 = 0;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (1ull << 32); i += gridDim.x * (u64)blockDim.x) {{
    const float f = __uint_as_float((u32)i);
    if (!({inside})) continue;
    const float got = f_{n}(f);
    const double x = (double)f, want = {exact};
    if (want != want || got != got) {{
      wrong += (want != want) != (got != got);
      continue;
    }}
    const double size = fabs(want);
    if (size >= 0x1.ffffffp+127 || isinf(got)) {{
      wrong += !(isinf(got) && size >= 0x1.ffffffp+127 && (got > 0) == (want > 0));
      continue;
    }}
    if (want == 0) {{
      wrong += !(got == 0 && signbit(got) == signbit(want));
      continue;
    }}
    int exponent = (int)(((u64)__double_as_longlong(size) >> 52) & 2047) - 1023 - 23;
    if (exponent < -149) exponent = -149;
    const double ulp = __longlong_as_double((i64)(exponent + 1023) << 52);
    const float error = (float)(fabs((double)got - want) / ulp);
    above1 += error > 1.0f;
    above2 += error > 2.0f;
    const u64 found = (u64)__float_as_uint(error) << 32 | (u32)i;
    worst = found > worst ? found : worst;
    if ((double)got > want) over = found > over ? found : over;
    else under = found > under ? found : under;
  }}
  atomicMax(out, worst);
  atomicMax(out + 4, over);
  atomicMax(out + 5, under);
  atomicAdd(out + 1, wrong);
  atomicAdd(out + 2, above1);
  atomicAdd(out + 3, above2);
}}
"""


def text() -> str:
    """The kernels."""
    prelude = Prelude()
    body = ""
    for n, (name, (exact, expand)) in enumerate(CANDIDATES.items()):
        define(f"f_{n}", expand, 1, prelude)
        body += KERNEL.format(n=n, exact=EXACT[exact], inside=INSIDE.get(name, "true"))
    return prelude.text() + body


def make() -> None:
    """The cubin."""
    BUILD.mkdir(parents=True, exist_ok=True)
    done = compile_cuda(text(), arch="sm_90a", name="functions")
    (BUILD / "functions.cubin").write_bytes(done.cubin)
    print([(k.name, k.registers) for k in done.kernels], done.messages)


def number(bits: int) -> float:
    """An f32 from its bits, the lower 32."""
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]


def run() -> dict[str, Any]:
    """Every candidate's largest error."""
    torch = importlib.import_module("torch")
    torch.zeros(1, device="cuda")
    module = load_cubin((BUILD / "functions.cubin").read_bytes(), "sm_90a", device(0), name="functions")
    found: dict[str, Any] = {}
    for n, name in enumerate(CANDIDATES):
        out = torch.zeros(6, dtype=torch.int64, device="cuda")
        geometry = Geometry((132 * 8, 1, 1), (256, 1, 1))
        CudaLaunch(module.function(f"measure_{n}"), geometry, [Pointer(int(out.data_ptr()))])()
        torch.cuda.synchronize()
        worst, wrong, above1, above2, over, under = (v % 2**64 for v in out.tolist())
        found[name] = {
            "ulp": number(worst >> 32),
            "at": number(worst),
            "too_large_ulp": number(over >> 32),
            "too_small_ulp": number(under >> 32),
            "wrong_special": wrong,
            "above_1_ulp": above1,
            "above_2_ulp": above2,
        }
        print(name, found[name], flush=True)
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "run":
        pathlib.Path(sys.argv[2]).write_text(json.dumps(run(), indent=1))
    else:
        raise SystemExit(__doc__)
