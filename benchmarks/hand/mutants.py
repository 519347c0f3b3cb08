"""One synchronisation taken out of a hand kernel at a time: how often the device then gives a wrong answer.

`python mutants.py` builds them; mutants_device.py runs them. A count of 0 is an observation, never a permission. Only
deletions that cannot leave a barrier waiting for ever are tried.
"""

from __future__ import annotations

import pathlib

from build import compile_cubin, source

BUILD = pathlib.Path(__file__).parent / "build"
LOOP_WAIT = "        mma_wait<1>();\n        if (k > 0"
LAST_WAIT = "        mma_wait<0>();\n        landed(o);\n        landed(p);\n"
RELEASE_VALUES = "        RELEASE(v_empty, vs, vp)\n"
MUTANTS = {
    "k2_as_it_is": ("k2_plain", []),
    "k2_no_wait_before_release": ("k2_plain", [(LOOP_WAIT, "        if (k > 0")]),
    "k2_release_one_group_early": ("k2_plain_p0", [("#else\n        mma_wait<0>();", "#else\n        mma_wait<1>();")]),
    "k2_no_async_proxy_fence": ("k2_plain", [("        fence_async_proxy();\n", "")]),
    "k2_no_barrier_before_store": (
        "k2_plain",
        [("fence_async_proxy();\n        named_sync(1 + consumer, 128);", "fence_async_proxy();")],
    ),
    "k2_no_wait_for_staging_source": ("k2_plain", [("        if (leader) bulk_wait_source<1>();\n", "")]),
    "k2_no_barrier_after_source_wait": (
        "k2_plain",
        [("bulk_wait_source<1>();\n        named_sync(1 + consumer, 128);", "bulk_wait_source<1>();")],
    ),
    "k2_no_init_fence": ("k2_plain", [("    fence_barrier_init();\n", "")]),
    "k3_as_it_is": ("k3_d128_causal", []),
    "k3_keys_released_before_wait": (
        "k3_d128_causal",
        [
            (
                "        mma_wait<1>();\n        landed(s);\n        RELEASE(k_empty, ks, kp)",
                "        RELEASE(k_empty, ks, kp)\n        mma_wait<1>();\n        landed(s);",
            )
        ],
    ),
    "k3_values_released_before_wait": (
        "k3_d128_causal",
        [
            (
                LAST_WAIT + RELEASE_VALUES + "        RESCALE",
                RELEASE_VALUES + LAST_WAIT + "        RESCALE",
            )
        ],
    ),
    "k3_queries_released_at_once": (
        "k3_d128_causal",
        [
            ("      if (lane == 0) barrier_arrive(q_empty);\n      barrier_wait", "      barrier_wait"),
            (
                "      tile_phase ^= 1;\n#if AHEAD",
                "      tile_phase ^= 1;\n      if (lane == 0) barrier_arrive(q_empty);\n#if AHEAD",
            ),
        ],
    ),
}


def build() -> None:
    for name, (base, edits) in MUTANTS.items():
        text = source(base)
        for old, new in edits:
            if text.count(old) != 1:
                raise SystemExit(f"{name}: {old!r} occurs {text.count(old)} times")
            text = text.replace(old, new)
        cubin, log, _ = compile_cubin(text)
        (BUILD / f"mutant_{name}.cubin").write_bytes(cubin)
        print(name, [line for line in log.splitlines() if "C75" in line or "spill" in line])


if __name__ == "__main__":
    build()
