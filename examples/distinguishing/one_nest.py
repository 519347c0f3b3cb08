"""One nest whose operands and accumulator lie unlike one another: A transposed, B packed or swizzled, acc in registers.

The participants of the nest are the same for all three; nothing says that their memory is.
"""

from __future__ import annotations

import re

import numpy as np
from examples.distinguishing.evidence import Case, Program, Wrong, integers, report

import treadle as td
from treadle import bf16, f32

M, N, K = td.dims("M N K")
ROWS = {"M": 256, "N": 256, "K": 4096}
SMALL = {"M": 64, "N": 64, "K": 64}
MIDDLE = {"M": 128, "N": 128, "K": 128}
TINY = {"M": 72, "N": 136, "K": 40}


@td.kernel
def crossed(A: td.Tensor[K, M], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(A[k, m], B[k, n], acc)
        Y[m, n] = acc


def source(dtype):
    return lambda: crossed.program(td.like(dtype, 64, 32), td.like(dtype, 64, 48), td.like(f32, 32, 48))


def right() -> None:
    for m, n, k in ((5, 7, 11), (3, 2, 0), (70, 130, 33)):
        a, b = integers(k, m), integers(k, n)
        assert np.array_equal(crossed(a, b), a.T @ b)


def places() -> list[str]:
    """Where A, B and the accumulator are, on each target."""
    found: list[str] = []
    for case in PROGRAM.cases:
        for line in case.plan().explain().splitlines():
            if line.strip().startswith(("A ", "B ", "acc ")):
                found.append(f"{case.label}: {line.strip()}")
    return found


def exchanged(found: re.Match[str]) -> str:
    """An operand with its two coordinates exchanged."""
    return found[0].replace("$0", "$9").replace("$2", "$0").replace("$9", "$2")


def pinned(*pins):
    return crossed.plan(td.like(f32, 64, 32), td.like(f32, 64, 48), target="cpu:avx512", where=pins)


PROGRAM = Program(
    title="1. one nest, three layouts",
    cases=[
        Case("avx512", source(f32), "cpu:avx512", SMALL, TINY),
        Case("amx", source(bf16), "cpu:amx", MIDDLE, TINY),
        Case("hopper", source(bf16), "cuda:sm_90a", ROWS, TINY),
    ],
    right=right,
    wrong={
        "avx512": [Wrong("A read as if it were not transposed", r"load A\[k0, ([^\]]*)\]", r"load A[\1, k0]")],
        "amx": [
            Wrong("the pairs of B apart", r"lanes\[\$2 // 2, \$1, \$2 % 2\]", "lanes[$2 % 16, $1, $2 // 16]"),
            Wrong("tiles without a configuration", r"\n *sync amx\.config", ""),
        ],
        "hopper": [
            Wrong("A read as if it were not transposed", r"(?<=mma )wgmma\S+ As\S+\[[^\]]*\]", exchanged),
            Wrong("B swizzled in its map only", r"(map map_B .*swizzle )128", r"\g<1>64"),
            Wrong(
                "the accumulator's lanes exchanged",
                r"lane 4 axis 1 stride 2, lane 8 axis 0 stride 1",
                "lane 8 axis 0 stride 1, lane 4 axis 1 stride 2",
            ),
        ],
    },
    refused={
        "the accumulator in shared memory of a CPU": ("plan/pin-refused", lambda: pinned(td.place("acc", "shared"))),
        "an atom of another target": ("plan/pin-refused", lambda: pinned(td.atom("acc", "wgmma"))),
    },
    ablations={
        "avx512": ["place-early", "greedy-atoms"],
        "amx": ["place-early", "greedy-atoms"],
        "hopper": ["place-early", "greedy-atoms"],
    },
    shows=places,
)

if __name__ == "__main__":
    report(PROGRAM)
