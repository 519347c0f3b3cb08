"""Run the mutants on a Hopper GPU, each in a process of its own: `python mutants_device.py OUT.json`."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import torch
from device import Kernel
from device_k2 import K2_SHARED, k2_call
from device_k3 import K3, k3_call
from mutants import MUTANTS

LAUNCHES = 60


def one(name: str) -> dict:
    torch.manual_seed(5)
    base = MUTANTS[name][0]
    if name.startswith("k2"):
        m, n, k = 2049, 4104, 264
        x = torch.randint(-4, 5, (m, k), device="cuda").to(torch.bfloat16)
        w = torch.randint(-4, 5, (k, n), device="cuda").to(torch.bfloat16)
        y = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        kernel = Kernel(f"mutant_{name}", "k2", K2_SHARED)
        go, want = k2_call(kernel, x, w, None, y), (x.double() @ w.double()).float().to(torch.bfloat16)
    else:
        q, k, v = (torch.randn(64, 1024, 128, device="cuda").to(torch.bfloat16) for _ in range(3))
        y = torch.empty_like(q)
        depth, rows, keys, _ = K3[base]
        shared = rows * depth * 2 + 4 * keys * depth * 2 + 16 + 64 + 1024
        right = Kernel("mutant_k3_as_it_is", "k3", shared)
        kernel = Kernel(f"mutant_{name}", "k3", shared)
        right.name = kernel.name = base
        k3_call(right, q, k, v, y, 1)()
        torch.cuda.synchronize()
        want = y.clone()
        go = k3_call(kernel, q, k, v, y, 1)
    launches = elements = 0
    for _ in range(LAUNCHES):
        y.fill_(float("nan"))
        go()
        wrong = int((y != want).sum())
        launches += wrong > 0
        elements += wrong
    return {
        "mutant": name,
        "launches": LAUNCHES,
        "wrong_launches": launches,
        "wrong_elements": elements,
        "of": LAUNCHES * y.numel(),
    }


def main() -> None:
    if sys.argv[1] == "one":
        print(json.dumps(one(sys.argv[2])))
    else:
        rows = []
        for name in MUTANTS:
            try:
                done = subprocess.run(
                    [sys.executable, __file__, "one", name], capture_output=True, text=True, timeout=40
                )
                lines = done.stdout.strip().splitlines()
                rows.append(
                    json.loads(lines[-1]) if done.returncode == 0 else {"mutant": name, "failed": done.stderr[-300:]}
                )
            except subprocess.TimeoutExpired:
                rows.append({"mutant": name, "failed": "no end within 40 s"})
            print(rows[-1], flush=True)
        pathlib.Path(sys.argv[1]).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
