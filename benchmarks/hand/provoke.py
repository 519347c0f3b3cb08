"""Which wrong shapes of source make ptxas complain: K2's text with one line broken at a time, compiled only.

`python provoke.py OUT.json`
"""

from __future__ import annotations

import json
import re
import sys

from build import compile_cubin, source

CONSUMER_LOOP = "      for (int k = 0; k < steps; k++) {\n        const u32 a = base + slot * A_BYTES + cons"
BREAKS = {
    "no mma fence": [("        mma_fence();\n", "")],
    "no wait before the epilogue": [("      mma_wait<0>();\n      landed(acc);", "      landed(acc);")],
    "wait without landed": [("      landed(acc);\n", "")],
    "fence moved inside the k16 steps": [
        ("        mma_fence();\n", ""),
        ("STARTED);\n        mma_commit", "STARTED), mma_fence();\n        mma_commit"),
    ],
    "no block count in the launch bounds": [("__launch_bounds__(384, 1)", "__launch_bounds__(384)")],
    "no launch bounds": [("__launch_bounds__(384, 1)", "")],
    "consumer budget 128": [("registers_more<232>", "registers_more<128>")],
    "accumulator scaled while a group is in flight": [
        ("        mma_wait<1>();\n", "        acc[0] *= 2.0f;\n        mma_wait<1>();\n")
    ],
    "accumulator chosen at run time": [
        ("MMA(acc, da", "MMA((k & 1 ? acc : other), da"),
        ("    float acc[", "    float other[TILE_N / 2] = {}, acc["),
    ],
    "accumulator index at run time": [("      landed(acc);", "      landed(acc);\n      acc[steps & 127] += 1.0f;")],
    "mma under a thread-varying branch": [
        ("        mma_fence();\n", "        if (lane < 16 || bias) {\n        mma_fence();\n"),
        ("        mma_commit();", "        }\n        mma_commit();"),
    ],
    "mma under a uniform if": [
        ("        mma_fence();\n", "        if (k != M) {\n        mma_fence();\n"),
        ("        mma_commit();", "        }\n        mma_commit();"),
    ],
    "zeroed inside the loop with a group in flight": [
        (
            "        mma_fence();\n",
            "        if (k == 0) for (int i = 0; i < TILE_N / 2; i++) acc[i] = 0.0f;\n        mma_fence();\n",
        )
    ],
    "no unroll of k16 steps": [
        (
            "#pragma unroll\n        for (int i = 0; i < TILE_K / 16",
            "#pragma unroll 1\n        for (int i = 0; i < TILE_K / 16",
        )
    ],
    "k loop without unroll 1": [
        (
            "#pragma unroll 1\n" + CONSUMER_LOOP,
            CONSUMER_LOOP,
        )
    ],
    "map argument not grid constant": [("const __grid_constant__ TensorMap mapY", "TensorMap mapY")],
}


def main() -> None:
    rows = {}
    base = source("k2_bias")
    for name, edits in {"nothing": [], **BREAKS}.items():
        text = base
        for old, new in edits:
            if old not in text:
                raise SystemExit(f"{name}: the line is not there: {old!r}")
            text = text.replace(old, new)
        cubin, log, _ = compile_cubin(text)
        keep = [
            line.strip()
            for line in log.splitlines()
            if re.search(r"C75\d\d|stack frame|Used|[Ww]arning|error|advisory|ignored", line)
        ]
        rows[name] = {"log": keep, "cubin_bytes": len(cubin)}
        print(f"{name}\n    " + "\n    ".join(keep), flush=True)
    with open(sys.argv[1], "w") as out:
        json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
