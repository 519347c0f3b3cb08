"""Compile the hand kernels with NVRTC and read back what ptxas made of them.

`python benchmarks/hand/build.py [NAME ...]` writes build/NAME.cubin, build/NAME.cu and build/report.json.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import sysconfig
import time

from cuda.bindings import nvrtc

HERE = pathlib.Path(__file__).parent
BUILD = HERE / "build"


def wgmma(columns: int, a: str, b: str) -> str:
    """Text of one m64nNk16 bf16 wrapper; `a` is r (registers) or k / mn (shared, that dimension contiguous)."""
    count = columns // 2
    regs = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    if a == "r":
        name, left = f"mma_rs_{columns}_{b}", "const u32* a"
        operand = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        ins = ", ".join(f'"r"(a[{i}])' for i in range(4))
        used, flags = 4, f"p, 1, 1, {int(b == 'mn')}"
    else:
        name, left, operand, ins, used = f"mma_ss_{columns}_{a}_{b}", "u64 a", f"%{count}", '"l"(a)', 1
        flags = f"p, 1, 1, {int(a == 'mn')}, {int(b == 'mn')}"
    return (
        f"DEVICE void {name}(float (&d)[{count}], {left}, u64 b, int accumulate) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + used + 1}, 0;\\n"\n'
        f'      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{regs}}}, {operand}, %{count + used}, '
        f'{flags};\\n}}"\n'
        f'      : {outs}\n      : {ins}, "l"(b), "r"(accumulate));\n}}\n'
    )


def k2(**options: int) -> tuple[str, str, dict[str, int]]:
    a, b = "mn" if "X_KM" in options else "k", "k" if "W_NK" in options else "mn"
    return "k2_gemm.cu", wgmma(256, a, b), options


def k3(**options: int) -> tuple[str, str, dict[str, int]]:
    return "k3_attention.cu", wgmma(options["KV"], "k", "k") + wgmma(options["D"], "r", "mn"), options


VARIANTS = {
    "k2_plain": k2(BIAS=0, ACT=0),
    "k2_bias": k2(BIAS=1, ACT=0),
    "k2_bias_gelu": k2(BIAS=1, ACT=1),
    "k2_bias_gelu_short": k2(BIAS=1, ACT=2),
    "k2_plain_p0": k2(BIAS=0, ACT=0, PENDING=0),
    "k2_bias_early": k2(BIAS=2, ACT=0),
    "k2_bias_early_gelu_short": k2(BIAS=2, ACT=2),
    "k2_zero": k2(BIAS=0, ACT=0, ZERO=1),
    "k2_release_one": k2(BIAS=0, ACT=0, RELEASE_ONE=1),
    "k2_w_nk": k2(BIAS=0, ACT=0, W_NK=1),
    "k2_x_km": k2(BIAS=0, ACT=0, X_KM=1),
    "k2_x_km_w_nk": k2(BIAS=0, ACT=0, X_KM=1, W_NK=1),
    "k3_d128_full_plain": k3(D=128, KV=128, NC=2, CAUSAL=0, AHEAD=0, TURNS=0),
    "k3_d128_full": k3(D=128, KV=128, NC=2, CAUSAL=0, AHEAD=1, TURNS=1),
    "k3_d128_full_kv176": k3(D=128, KV=176, NC=2, CAUSAL=0, AHEAD=1, TURNS=1),
    "k3_d128_full_kv176_lazy": k3(D=128, KV=176, NC=2, CAUSAL=0, AHEAD=1, TURNS=1, LAZY=1),
    "k3_d64_full_3_kv160_lazy": k3(D=64, KV=160, NC=3, CAUSAL=0, AHEAD=0, TURNS=0, LAZY=1),
    "k3_d128_causal_lazy": k3(D=128, KV=128, NC=2, CAUSAL=1, AHEAD=1, TURNS=1, LAZY=1),
    "k3_d128_causal_plain": k3(D=128, KV=128, NC=2, CAUSAL=1, AHEAD=0, TURNS=0),
    "k3_d128_causal": k3(D=128, KV=128, NC=2, CAUSAL=1, AHEAD=1, TURNS=1),
    "k3_d64_full_plain": k3(D=64, KV=128, NC=2, CAUSAL=0, AHEAD=0, TURNS=0),
    "k3_d64_full": k3(D=64, KV=128, NC=2, CAUSAL=0, AHEAD=1, TURNS=1),
    "k3_d64_full_3_kv160": k3(D=64, KV=160, NC=3, CAUSAL=0, AHEAD=0, TURNS=0),
    "k3_d64_full_3": k3(D=64, KV=128, NC=3, CAUSAL=0, AHEAD=0, TURNS=0),
    "k3_d64_causal_plain": k3(D=64, KV=128, NC=2, CAUSAL=1, AHEAD=0, TURNS=0),
    "k3_d64_causal": k3(D=64, KV=128, NC=2, CAUSAL=1, AHEAD=1, TURNS=1),
    "k3_d64_causal_3": k3(D=64, KV=128, NC=3, CAUSAL=1, AHEAD=0, TURNS=0),
}


def source(name: str) -> str:
    file, wrappers, options = VARIANTS[name]
    defines = "".join(f"#define {key} {value}\n" for key, value in options.items())
    return defines + (HERE / "prelude.cuh").read_text() + wrappers + (HERE / file).read_text()


def compile_cubin(text: str) -> tuple[bytes, str, float]:
    """Cubin, NVRTC log (ptxas messages included) and seconds."""
    started = time.perf_counter()
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), b"hand.cu", 0, [], [])
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17", b"--ptxas-options=-v"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    message = log.rstrip(b"\0 ").decode()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise SystemExit(message)
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = b" " * size
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return cubin, message, time.perf_counter() - started


def opcode_counts(cubin: pathlib.Path) -> dict[str, int]:
    tool = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "bin" / "nvdisasm"
    text = subprocess.run([str(tool), str(cubin)], capture_output=True, text=True, check=True).stdout
    (cubin.parent / f"{cubin.stem}.sass").write_text(text)
    wanted = (
        "HGMMA UTMALDG UTMASTG UTMACMDFLUSH SYNCS WARPGROUP.ARRIVE WARPGROUP.DEPBAR USETMAXREG STSM LDL STL "
        "FENCE.VIEW.ASYNC BAR.SYNC BAR.ARV MUFU.EX2 UTMACCTL DEPBAR MEMBAR CCTL"
    ).split()
    codes = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9._]*)", text, re.M)
    return {op: count for op in wanted if (count := sum(code.startswith(op) for code in codes))} | {"all": len(codes)}


def main() -> None:
    BUILD.mkdir(exist_ok=True)
    report_file = BUILD / "report.json"
    report = json.loads(report_file.read_text()) if report_file.exists() else {}
    for name in sys.argv[1:] or VARIANTS:
        text = source(name)
        (BUILD / f"{name}.cu").write_text(text)
        cubin, log, seconds = compile_cubin(text)
        path = BUILD / f"{name}.cubin"
        path.write_bytes(cubin)
        counts = opcode_counts(path)
        report[name] = {"options": VARIANTS[name][2], "seconds": round(seconds, 3), "log": log, "sass": counts}
        print(name, f"{seconds:.2f} s", counts)
        print("   ", "\n    ".join(line for line in log.splitlines() if line.strip()))
    report_file.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
