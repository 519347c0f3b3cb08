"""Products of 8-bit integers by the instruction that takes four contracted coordinates at once: when, and exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.marks import processor

import treadle as td
from treadle.ir.parser import parse_program
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.targets.cpu.families import families
from treadle.toolchain.features import LEVELS

M, N, K = td.dims("M N K")


@td.kernel
def product(X: td.Tensor[M, K, td.i8], W: td.Tensor[K, N, td.i8], Y: td.Out[M, N, td.i32]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=td.i32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc


@processor("avx512_vnni")
@pytest.mark.parametrize("k", [0, 1, 3, 4, 5, 33, 400])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 16), (6, 65), (17, 63), (70, 130)])
def test_every_byte_times_every_byte(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m + n + k)
    x = rng.choice(np.array([-128, -127, -1, 0, 1, 127], np.int8), (m, k))
    w = rng.integers(-128, 128, (k, n)).astype(np.int8)
    x[:, ::2], w[::2] = -128, -128
    y = np.zeros((m, n), np.int32)
    product(x, w, y)
    assert np.array_equal(y, x.astype(np.int32) @ w.astype(np.int32))


@processor("avx512_vnni")
def test_large_products_use_it_and_are_verified() -> None:
    x, w, y = (np.zeros((256, 256), t) for t in (np.int8, np.int8, np.int32))
    plan = product.plan(x, w, y)
    assert plan.decisions.point["atom"] == "dpbssd" and plan.check().status == "verified", plan.explain()


def test_without_the_feature_it_is_not_tried() -> None:
    x, w, y = (np.zeros((256, 256), t) for t in (np.int8, np.int8, np.int32))
    parsed = parse_program(product.plan(x, w, y).source_program(), "a test")
    facts = contiguous(parsed, "cpu:avx512", dict.fromkeys("MNK", 512), workers=2, features=LEVELS["avx512"])
    with_it = replace(facts, features=facts.features | {"avx512_vnni"})
    without = replace(facts, features=facts.features - {"avx512_vnni"})
    assert choose(parsed, without, families()).plan.point["atom"] == "fma"
    assert choose(parsed, with_it, families()).plan.point["atom"] == "dpbssd"
