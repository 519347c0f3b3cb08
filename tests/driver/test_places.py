"""`explain()` says where the user's own names are: blocks, values, tensors, each with its lines."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import treadle as td
from treadle import bf16, f32, like
from treadle.driver.places import LEGEND

M, N, K = td.dims("M N K")


@td.kernel
def gated(X: td.Tensor[M, K], W: td.Tensor[K, N], bias: td.Tensor[N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        shifted = acc + bias[n]
        Y[m, n] = td.where(shifted > 0, shifted, 0.0)


@td.kernel
def shares(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N]
        total = x.sum(N)
        Y[m, N] = x / total


def names(kernel: Any, *args: Any, target: str) -> dict[str, str]:
    """The lines of `explain()` below "names of the source", by name; their line numbers from the kernel's first."""
    text = kernel.plan(*args, target=target).explain().splitlines()
    start = text.index(f"  names of the source ({LEGEND}):") + 1
    stop = text.index("  holds when:")
    first = inspect.getsourcelines(kernel.definition.fn)[1]
    found: dict[str, str] = {}
    for line in text[start:stop]:
        name, _, rest = line.strip().partition(" (line")
        numbers, _, place = rest.lstrip("s ").partition("): ")
        found[name] = f"{[int(n) - first for n in numbers.split(', ')]} {place}"
    return found


def test_a_contraction_on_the_cpu() -> None:
    found = names(gated, like(f32, 512, 512), like(f32, 512, 512), like(f32, 512), target="cpu:avx2")
    assert set(found) >= {"m", "n", "k", "acc", "shifted"}
    assert found["m"].startswith("[2] tasks over workers, ") and found["k"].startswith("[4] a loop")
    # Sums that are held over the whole fold are one fragment; else each iteration carries them in from a buffer.
    assert re.match(r"\[3, (4, )?5\] registers f32\[", found["acc"])
    assert found["shifted"].startswith("[6] registers f32[")


def test_a_contraction_on_a_gpu() -> None:
    args = [like(bf16, *shape, align=256) for shape in ((512, 512), (512, 512), (512,))]
    found = names(gated, *args, target="cuda:sm_90a")
    assert re.match(r"\[5\] shared memory bf16\[[0-9, ]+\], \d+ versions", found["X"]) and "versions" in found["W"]
    assert re.fullmatch(r"\[4\] a loop, \d+ at a time", found["k"])


@pytest.mark.parametrize("target, over", [("cpu:avx2", "workers"), ("cuda:sm_90a", "warps")])
def test_rows(target: str, over: str) -> None:
    found = names(shares, like(f32, 512, 512), target=target)
    assert list(found) == ["m", "x", "total"]
    assert found["m"].startswith(f"[2] tasks over {over}, ")
    assert found["x"].startswith("[3] registers f32[") and "f32[]" in found["total"]
