"""Check and time K3 on a Hopper GPU: `python device_k3.py OUT.json`, with build/NAME.cubin made by build.py."""

from __future__ import annotations

import json
import pathlib
import statistics
import sys

import torch
from device import SMS, Kernel, begin, clock, tensor_map, time_interleaved
from torch.nn.attention import SDPBackend, sdpa_kernel

# name: (D, query rows, KV, threads)
K3 = {
    "k3_d128_full_plain": (128, 128, 128, 384),
    "k3_d128_full": (128, 128, 128, 384),
    "k3_d128_full_kv176": (128, 128, 176, 384),
    "k3_d128_causal_plain": (128, 128, 128, 384),
    "k3_d128_causal": (128, 128, 128, 384),
    "k3_d128_full_kv176_lazy": (128, 128, 176, 384),
    "k3_d64_full_3_kv160_lazy": (64, 192, 160, 512),
    "k3_d128_causal_lazy": (128, 128, 128, 384),
    "k3_d64_full_plain": (64, 128, 128, 384),
    "k3_d64_full": (64, 128, 128, 384),
    "k3_d64_full_3": (64, 192, 128, 512),
    "k3_d64_full_3_kv160": (64, 192, 160, 512),
    "k3_d64_causal_plain": (64, 128, 128, 384),
    "k3_d64_causal": (64, 128, 128, 384),
    "k3_d64_causal_3": (64, 192, 128, 512),
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
            row = {
                "case": name,
                "shape": [bh, sq, sk, depth],
                "relative_2norm": float(error.norm() / want.norm()),
                "worst_of_bound": float((error / bound).max()),
                "nan": int(first.isnan().sum()),
                "runs_that_differ": differ,
                "neighbours_untouched": bool(room[:2048].isnan().all() and room[-2048:].isnan().all()),
            }
            checks.append(row)
            print(row, flush=True)
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    report["times_us"] = {}
    b, h, s = 4, 16, 4096
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
                    checks.append(
                        {"case": name, "heads": heads, "shape": [b * h, s, s, depth], "against_cudnn": distance}
                    )
                    calls[f"{name}/{heads}"] = go
            before = clock()
            samples = time_interleaved(calls, 40, flush)
            report["times_us"][kind] = {"clock_before": before, "clock_after": clock(), "samples": samples}
            base = statistics.median(samples["cudnn"])
            work = 4 * b * h * s * s * depth / (2 if causal else 1)
            for name, values in samples.items():
                middle = statistics.median(values)
                print(
                    f"{kind} {name:28s} {middle:8.1f} us  {work / middle / 1e6:6.0f} TFLOP/s  x {base / middle:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    head = begin("k3")
    try:
        run_k3(head)
    finally:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(head))
