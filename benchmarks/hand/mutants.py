"""One synchronisation taken out of a hand kernel at a time: how often the device then gives a wrong answer.

`python mutants.py build` (needs NVRTC), then on a Hopper GPU `python mutants.py run OUT.json`. A count of 0 is an
observation, never a permission. Only deletions that cannot leave a barrier waiting for ever are tried.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(__file__).parent / "build"
LOOP_WAIT = "        mma_wait<1>();\n        if (k > 0"
MUTANTS = {
    "k2_as_it_is": ("k2_plain", []),
    "k2_no_wait_before_release": ("k2_plain", [(LOOP_WAIT, "        if (k > 0")]),
    "k2_release_one_group_early": ("k2_plain_p0", [("#else\n        mma_wait<0>();", "#else\n        mma_wait<1>();")]),
    "k2_no_async_proxy_fence": ("k2_plain", [("        fence_async_proxy();\n", "")]),
    "k2_no_barrier_before_store": ("k2_plain", [("fence_async_proxy();\n        named_sync(1 + consumer, 128);", "fence_async_proxy();")]),
    "k2_no_wait_for_staging_source": ("k2_plain", [("        if (leader) bulk_wait_source<1>();\n", "")]),
    "k2_no_barrier_after_source_wait": (
        "k2_plain",
        [("bulk_wait_source<1>();\n        named_sync(1 + consumer, 128);", "bulk_wait_source<1>();")],
    ),
    "k2_no_init_fence": ("k2_plain", [("    fence_barrier_init();\n", "")]),
    "k3_as_it_is": ("k3_d128_causal", []),
    "k3_keys_released_before_wait": (
        "k3_d128_causal",
        [("        mma_wait<1>();\n        landed(s);\n        RELEASE(k_empty, ks, kp)", "        RELEASE(k_empty, ks, kp)\n        mma_wait<1>();\n        landed(s);")],
    ),
    "k3_values_released_before_wait": (
        "k3_d128_causal",
        [("        mma_wait<0>();\n        landed(o);\n        landed(p);\n        RELEASE(v_empty, vs, vp)\n        RESCALE", "        RELEASE(v_empty, vs, vp)\n        mma_wait<0>();\n        landed(o);\n        landed(p);\n        RESCALE")],
    ),
    "k3_queries_released_at_once": (
        "k3_d128_causal",
        [("      if (lane == 0) barrier_arrive(q_empty);\n      barrier_wait", "      barrier_wait"),
         ("      tile_phase ^= 1;\n#if AHEAD", "      tile_phase ^= 1;\n      if (lane == 0) barrier_arrive(q_empty);\n#if AHEAD")],
    ),
}
LAUNCHES = 60


def build() -> None:
    from build import compile_cubin, source

    for name, (base, edits) in MUTANTS.items():
        text = source(base)
        for old, new in edits:
            if text.count(old) != 1:
                raise SystemExit(f"{name}: {old!r} occurs {text.count(old)} times")
            text = text.replace(old, new)
        cubin, log, _ = compile_cubin(text)
        (BUILD / f"mutant_{name}.cubin").write_bytes(cubin)
        print(name, [line for line in log.splitlines() if "C75" in line or "spill" in line])


def one(name: str) -> dict:
    import torch

    import device

    torch.manual_seed(5)
    base = MUTANTS[name][0]
    if name.startswith("k2"):
        m, n, k = 2049, 4104, 264
        x = torch.randint(-4, 5, (m, k), device="cuda").to(torch.bfloat16)
        w = torch.randint(-4, 5, (k, n), device="cuda").to(torch.bfloat16)
        y = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        kernel = device.Kernel(f"mutant_{name}", "k2", device.K2_SHARED)
        go, want = device.k2_call(kernel, x, w, None, y), (x.double() @ w.double()).float().to(torch.bfloat16)
    else:
        q, k, v = (torch.randn(64, 1024, 128, device="cuda").to(torch.bfloat16) for _ in range(3))
        y = torch.empty_like(q)
        depth, rows, keys, _ = device.K3[base]
        shared = rows * depth * 2 + 4 * keys * depth * 2 + 16 + 64 + 1024
        right = device.Kernel("mutant_k3_as_it_is", "k3", shared)
        kernel = device.Kernel(f"mutant_{name}", "k3", shared)
        right.name = kernel.name = base
        device.k3_call(right, q, k, v, y, 1)()
        torch.cuda.synchronize()
        want = y.clone()
        go = device.k3_call(kernel, q, k, v, y, 1)
    launches = elements = 0
    for _ in range(LAUNCHES):
        y.fill_(float("nan"))
        go()
        wrong = int((y != want).sum())
        launches += wrong > 0
        elements += wrong
    return {"mutant": name, "launches": LAUNCHES, "wrong_launches": launches, "wrong_elements": elements, "of": LAUNCHES * y.numel()}


def main() -> None:
    if sys.argv[1] == "build":
        build()
    elif sys.argv[1] == "one":
        print(json.dumps(one(sys.argv[2])))
    else:
        rows = []
        for name in MUTANTS:
            try:
                done = subprocess.run([sys.executable, __file__, "one", name], capture_output=True, text=True, timeout=40)
                lines = done.stdout.strip().splitlines()
                rows.append(json.loads(lines[-1]) if done.returncode == 0 else {"mutant": name, "failed": done.stderr[-300:]})
            except subprocess.TimeoutExpired:
                rows.append({"mutant": name, "failed": "no end within 40 s"})
            print(rows[-1], flush=True)
        pathlib.Path(sys.argv[2]).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
