"""Run the hand kernels on a Hopper GPU: correctness first, then interleaved timings.

`python device.py k2|k3 OUT.json` expects build/NAME.cubin (see build.py) and prints one line a result.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
import random
import statistics
import subprocess
import sys

import torch
from cuda.bindings import driver

HERE = pathlib.Path(__file__).parent
TENSOR_MAP_BYTES = 128


def ok(result):
    status, *rest = result
    if int(status) != 0:
        raise SystemExit(f"driver call failed: {status}")
    return rest[0] if len(rest) == 1 else rest


def tensor_map(address: int, dims: list[int], pitches: list[int], box: list[int], promotion: int = 256):
    """bf16 map with 128-byte swizzle and zero fill; `dims` innermost first, `pitches` in bytes of dims 1.."""
    u64, u32 = driver.cuuint64_t, driver.cuuint32_t
    promote = {
        128: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        256: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }[promotion]
    return ok(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            len(dims),
            address,
            [u64(d) for d in dims],
            [u64(p) for p in pitches],
            [u32(b) for b in box],
            [u32(1) for _ in dims],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            promote,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


class Kernel:
    def __init__(self, name: str, entry: str, shared: int):
        image = (HERE / "build" / f"{name}.cubin").read_bytes()
        self.module = ok(driver.cuModuleLoadData(image))
        self.function = ok(driver.cuModuleGetFunction(self.module, entry.encode()))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ok(driver.cuFuncSetAttribute(self.function, attribute, shared))
        self.shared = shared
        self.name = name

    def launch(self, grid: int, threads: int, arguments: list):
        """A callable that launches with these arguments (tensor maps, ints, floats, tensors) on the current stream."""
        holders = []
        for argument in arguments:
            if isinstance(argument, driver.CUtensorMap):
                holder = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer_copy(
                    ctypes.string_at(argument.getPtr(), TENSOR_MAP_BYTES)
                )
            elif isinstance(argument, float):
                holder = ctypes.c_float(argument)
            elif isinstance(argument, int):
                holder = ctypes.c_int(argument)
            else:
                holder = ctypes.c_void_p(0 if argument is None else argument.data_ptr())
            holders.append(holder)
        pointers = (ctypes.c_void_p * len(holders))(*[ctypes.addressof(h) for h in holders])
        address = ctypes.addressof(pointers)

        def go() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            ok(driver.cuLaunchKernel(self.function, grid, 1, 1, threads, 1, 1, self.shared, stream, address, 0))

        go.keep = (holders, pointers, arguments)
        return go


SMS = 132
K2_EXACT = ("k2_plain", "k2_bias", "k2_bias_early", "k2_plain_p0", "k2_zero", "k2_release_one", "k2_w_nk", "k2_x_km", "k2_x_km_w_nk")
K2_ACTIVATED = ("k2_bias_gelu", "k2_bias_gelu_short", "k2_bias_early_gelu_short")
K2_SHARED = 4 * 49152 + 32768 + 64 + 1024


def k2_call(kernel: Kernel, x, w, bias, y):
    """`x` is stored [K, M] for the x_km variants, `w` [N, K] for the w_nk variants."""
    flip_x, flip_w = "x_km" in kernel.name, "w_nk" in kernel.name
    (m, k), n = x.shape[:: -1 if flip_x else 1], w.shape[0 if flip_w else 1]
    maps = [
        tensor_map(x.data_ptr(), [x.shape[1], x.shape[0]], [x.stride(0) * 2], [64, 64 if flip_x else 128]),
        tensor_map(w.data_ptr(), [w.shape[1], w.shape[0]], [w.stride(0) * 2], [64, 256 if flip_w else 64]),
        tensor_map(y.data_ptr(), [n, m], [y.stride(0) * 2], [64, 64]),
    ]
    tiles = -(-m // 128) * -(-n // 256)
    return kernel.launch(min(SMS, tiles), 384, [*maps, bias, m, n, k])


def inside(rows: int, columns: int, fill, pad: int = 8) -> torch.Tensor:
    """A rows x columns view whose neighbours on every side are NaN."""
    room = torch.full((rows + 4, columns + 2 * pad), float("nan"), dtype=torch.bfloat16, device="cuda")
    view = room[2 : rows + 2, pad : columns + pad]
    view.copy_(fill)
    return view


def neighbours_untouched(view: torch.Tensor) -> bool:
    room = view._base.clone()
    rows, columns = view.shape
    pad = (room.shape[1] - columns) // 2
    room[2 : rows + 2, pad : columns + pad] = float("nan")
    return bool(room.isnan().all())


def time_interleaved(calls: dict, rounds: int, flush: torch.Tensor) -> dict:
    samples = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    order = list(calls)
    shuffle = random.Random(7)
    for _ in range(rounds):
        shuffle.shuffle(order)
        events = []
        for name in order:
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            calls[name]()
            end.record()
            events.append((name, start, end))
        torch.cuda.synchronize()
        for name, start, end in events:
            samples[name].append(start.elapsed_time(end) * 1000)
    return samples


def clock() -> str:
    query = "clocks.sm,power.draw,driver_version,name"
    return subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()


def run_k2(report: dict) -> None:
    torch.manual_seed(1)
    kernels = {n: Kernel(n, "k2", K2_SHARED) for n in (*K2_EXACT, *K2_ACTIVATED)}
    checks = report["checks"] = []
    shapes = [(257, 520, 136), (128, 256, 64), (1, 8, 8), (129, 264, 72), (300, 1000, 4096), (264, 520, 136), (2049, 4104, 264), (4096, 4096, 4096)]
    for m, n, k in shapes:
        x = inside(m, k, torch.randint(-4, 5, (m, k), device="cuda"))
        w = inside(k, n, torch.randint(-4, 5, (k, n), device="cuda"))
        bias = torch.randint(-9, 10, (n,), device="cuda").to(torch.bfloat16)
        exact = x.double() @ w.double()
        for name in K2_EXACT:
            if ("x_km" in name and m % 8) or min(m, n, k) < 8 and name != "k2_plain":
                continue
            want = (exact + bias.double() if "bias" in name else exact).float().to(torch.bfloat16)
            y = inside(m, n, torch.full((m, n), float("nan"), device="cuda"))
            xs = inside(k, m, x.t()) if "x_km" in name else x
            ws = inside(n, k, w.t()) if "w_nk" in name else w
            go = k2_call(kernels[name], xs, ws, bias, y)
            go()
            torch.cuda.synchronize()
            wrong = int((y != want).sum())
            repeats = 0
            first = y.clone()
            for _ in range(20):
                y.fill_(float("nan"))
                go()
                repeats += int(not torch.equal(y, first))
            row = {"case": name, "shape": [m, n, k], "wrong": wrong, "elements": m * n, "runs_that_differ": repeats,
                   "neighbours_untouched": neighbours_untouched(y)}
            checks.append(row)
            print(row, flush=True)
    for m, n, k in [(257, 520, 136), (300, 1000, 4096), (4096, 4096, 4096)]:
        x = inside(m, k, torch.randn(m, k, device="cuda"))
        w = inside(k, n, torch.randn(k, n, device="cuda") / k**0.5)
        bias = torch.randn(n, device="cuda").to(torch.bfloat16)
        before = x.double() @ w.double() + bias.double()
        want = torch.nn.functional.gelu(before)
        slack = (x.double().abs() @ w.double().abs() + bias.double().abs()) * 1.13 * (k + 2) * 2.0**-23
        for name in K2_ACTIVATED:
            y = inside(m, n, torch.full((m, n), float("nan"), device="cuda"))
            k2_call(kernels[name], x, w, bias, y)()
            torch.cuda.synchronize()
            error = (y.double() - want).abs()
            # one rounding to bf16, the f32 accumulation, and the function itself (2e-7 of |x|)
            bound = want.abs() * 2.0**-8 + slack + 4e-7 * before.abs() + 1e-30
            row = {"case": name, "shape": [m, n, k], "relative_2norm": float(error.norm() / want.norm()),
                   "worst_of_bound": float((error / bound).max()), "nan": int(y.isnan().sum()),
                   "neighbours_untouched": neighbours_untouched(y)}
            checks.append(row)
            print(row, flush=True)
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    report["times_us"] = {}
    for size, rounds in ((2048, 80), (4096, 80), (8192, 24)):
        x = torch.randn(size, size, device="cuda").to(torch.bfloat16)
        w = (torch.randn(size, size, device="cuda") / size**0.5).to(torch.bfloat16)
        wt, xt = w.t().contiguous(), x.t().contiguous()
        bias = torch.randn(size, device="cuda").to(torch.bfloat16)
        outs = {n: torch.empty(size, size, dtype=torch.bfloat16, device="cuda") for n in (*kernels, "a", "b")}
        calls = {
            n: k2_call(kernel, xt if "x_km" in n else x, wt if "w_nk" in n else w, bias, outs[n])
            for n, kernel in kernels.items()
        }
        calls["cublas_nn"] = lambda x=x, w=w, y=outs["a"]: torch.mm(x, w, out=y)
        calls["cublas_nt"] = lambda x=x, w=wt.t(), y=outs["b"]: torch.mm(x, w, out=y)
        before = clock()
        samples = time_interleaved(calls, rounds, flush)
        report["times_us"][str(size)] = {"clock_before": before, "clock_after": clock(), "samples": samples}
        best = min(statistics.median(samples[p]) for p in ("cublas_nn", "cublas_nt"))
        for name, values in samples.items():
            middle = statistics.median(values)
            print(f"{size} {name:20s} {middle:8.1f} us  {2 * size**3 / middle / 1e6:6.0f} TFLOP/s  x {best / middle:.3f}", flush=True)


# name: (D, query rows, KV, threads)
K3 = {
    "k3_d128_full_plain": (128, 128, 128, 384), "k3_d128_full": (128, 128, 128, 384), "k3_d128_full_kv176": (128, 128, 176, 384),
    "k3_d128_causal_plain": (128, 128, 128, 384), "k3_d128_causal": (128, 128, 128, 384),
    "k3_d128_full_kv176_lazy": (128, 128, 176, 384), "k3_d64_full_3_kv160_lazy": (64, 192, 160, 512),
    "k3_d128_causal_lazy": (128, 128, 128, 384),
    "k3_d64_full_plain": (64, 128, 128, 384), "k3_d64_full": (64, 128, 128, 384), "k3_d64_full_3": (64, 192, 128, 512),
    "k3_d64_full_3_kv160": (64, 192, 160, 512),
    "k3_d64_causal_plain": (64, 128, 128, 384), "k3_d64_causal": (64, 128, 128, 384), "k3_d64_causal_3": (64, 192, 128, 512),
}


def k3_call(kernel: Kernel, q, k, v, o, heads: int):
    depth, rows, kv, threads = K3[kernel.name]
    bh, sq, sk = q.shape[0], q.shape[1], k.shape[1]
    maps = [
        tensor_map(t.data_ptr(), [depth, t.shape[1], bh], [t.stride(1) * 2, t.stride(0) * 2], [64, box, 1])
        for t, box in ((q, rows), (k, kv), (v, kv))
    ]
    scale = depth**-0.5 * 1.4426950408889634
    return kernel.launch(min(SMS, -(-sq // rows) * bh), threads, [*maps, o, bh, sq, sk, scale, heads])


def run_k3(report: dict) -> None:
    torch.manual_seed(2)
    kernels = {}
    for name, (depth, rows, kv, _) in K3.items():
        kernels[name] = Kernel(name, "k3", rows * depth * 2 + 4 * kv * depth * 2 + 16 + 64 + 1024)
    checks = report["checks"] = []

    def padded(bh, s, d):
        room = torch.full((bh, s + 5, d), float("nan"), dtype=torch.bfloat16, device="cuda")
        room[:, :s] = torch.randn(bh, s, d, device="cuda").to(torch.bfloat16)
        return room[:, :s]

    shapes = [(3, 257, 300), (2, 128, 128), (2, 1, 1), (5, 200, 17), (2, 1000, 1023), (64, 384, 640), (300, 130, 129)]
    for name, kernel in kernels.items():
        depth = K3[name][0]
        for bh, sq, sk in shapes:
            q, k, v = padded(bh, sq, depth), padded(bh, sk, depth), padded(bh, sk, depth)
            s = q.double() @ k.double().transpose(1, 2) * depth**-0.5
            if "causal" in name:
                hide = torch.arange(sk, device="cuda")[None, :] > torch.arange(sq, device="cuda")[:, None]
                s.masked_fill_(hide, float("-inf"))
            p = s.softmax(-1)
            want, size = p @ v.double(), p @ v.double().abs()
            room = torch.full((bh * sq * depth + 4096,), float("nan"), dtype=torch.bfloat16, device="cuda")
            o = room[2048 : 2048 + bh * sq * depth].view(bh, sq, depth)
            go = k3_call(kernel, q, k, v, o, 16)
            go()
            torch.cuda.synchronize()
            error = (o.double() - want).abs()
            # p and the result are rounded to bf16 (2^-8 each, half an ulp); ex2, scores and sums in f32: 2e-5
            bound = size * (2.0**-8 + 2e-5) + want.abs() * 2.0**-8 + 1e-12
            first, differ = o.clone(), 0
            for _ in range(10):
                o.fill_(float("nan"))
                go()
                differ += int(not torch.equal(o, first))
            row = {"case": name, "shape": [bh, sq, sk, depth], "relative_2norm": float(error.norm() / want.norm()),
                   "worst_of_bound": float((error / bound).max()), "nan": int(first.isnan().sum()), "runs_that_differ": differ,
                   "neighbours_untouched": bool(room[:2048].isnan().all() and room[-2048:].isnan().all())}
            checks.append(row)
            print(row, flush=True)
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    report["times_us"] = {}
    b, h, s = 4, 16, 4096
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for depth in (128, 64):
        q, k, v = (torch.randn(b * h, s, depth, device="cuda").to(torch.bfloat16) for _ in range(3))
        q4, k4, v4 = (t.view(b, h, s, depth) for t in (q, k, v))
        for causal in (False, True):
            kind = f"d{depth}_{'causal' if causal else 'full'}"
            calls = {}

            def cudnn(q4=q4, k4=k4, v4=v4, causal=causal):
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return torch.nn.functional.scaled_dot_product_attention(q4, k4, v4, is_causal=causal)

            peer = cudnn().view(b * h, s, depth).float()
            calls["cudnn"] = cudnn
            for name, kernel in kernels.items():
                if kind not in name:
                    continue
                for heads in (1, 16, 64) if causal else (1,):
                    o = torch.full_like(q, float("nan"))
                    go = k3_call(kernel, q, k, v, o, heads)
                    go()
                    torch.cuda.synchronize()
                    distance = float((o.float() - peer).norm() / peer.norm())
                    checks.append({"case": name, "heads": heads, "shape": [b * h, s, s, depth], "against_cudnn": distance})
                    calls[f"{name}/{heads}"] = go
            before = clock()
            samples = time_interleaved(calls, 40, flush)
            report["times_us"][kind] = {"clock_before": before, "clock_after": clock(), "samples": samples}
            base = statistics.median(samples["cudnn"])
            work = 4 * b * h * s * s * depth / (2 if causal else 1)
            for name, values in samples.items():
                middle = statistics.median(values)
                print(f"{kind} {name:28s} {middle:8.1f} us  {work / middle / 1e6:6.0f} TFLOP/s  x {base / middle:.3f}", flush=True)


def main() -> None:
    which, out = sys.argv[1:3]
    torch.zeros(1, device="cuda")
    report: dict = {
        "experiment": which, "device": torch.cuda.get_device_name(), "clock": clock(), "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda,
        "method": "CUDA events around each call, 512 MiB overwritten before each, call order shuffled each round, random normal data",
    }
    print(report, flush=True)
    try:
        {"k2": run_k2, "k3": run_k3}[which](report)
    finally:
        pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
