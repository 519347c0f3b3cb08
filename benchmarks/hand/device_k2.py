"""Check and time K2 on a Hopper GPU: `python device_k2.py OUT.json`, with build/NAME.cubin made by build.py."""

from __future__ import annotations

import json
import pathlib
import statistics
import sys

import torch
from device import SMS, Kernel, begin, clock, inside, neighbours_untouched, tensor_map, time_interleaved

K2_EXACT = (
    "k2_plain",
    "k2_bias",
    "k2_bias_early",
    "k2_plain_p0",
    "k2_zero",
    "k2_release_one",
    "k2_w_nk",
    "k2_x_km",
    "k2_x_km_w_nk",
)
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


def run_k2(report: dict) -> None:
    torch.manual_seed(1)
    kernels = {n: Kernel(n, "k2", K2_SHARED) for n in (*K2_EXACT, *K2_ACTIVATED)}
    checks = report["checks"] = []
    shapes = [
        (257, 520, 136),
        (128, 256, 64),
        (1, 8, 8),
        (129, 264, 72),
        (300, 1000, 4096),
        (264, 520, 136),
        (2049, 4104, 264),
        (4096, 4096, 4096),
    ]
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
            row = {
                "case": name,
                "shape": [m, n, k],
                "wrong": wrong,
                "elements": m * n,
                "runs_that_differ": repeats,
                "neighbours_untouched": neighbours_untouched(y),
            }
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
            row = {
                "case": name,
                "shape": [m, n, k],
                "relative_2norm": float(error.norm() / want.norm()),
                "worst_of_bound": float((error / bound).max()),
                "nan": int(y.isnan().sum()),
                "neighbours_untouched": neighbours_untouched(y),
            }
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
        calls["cublas_nt"] = lambda x=x, wt=wt, y=outs["b"]: torch.mm(x, wt.t(), out=y)
        before = clock()
        samples = time_interleaved(calls, rounds, flush)
        report["times_us"][str(size)] = {"clock_before": before, "clock_after": clock(), "samples": samples}
        best = min(statistics.median(samples[p]) for p in ("cublas_nn", "cublas_nt"))
        for name, values in samples.items():
            middle = statistics.median(values)
            print(
                f"{size} {name:20s} {middle:8.1f} us  {2 * size**3 / middle / 1e6:6.0f} TFLOP/s  x {best / middle:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    head = begin("k2")
    try:
        run_k2(head)
    finally:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(head))
