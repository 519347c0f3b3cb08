"""The texts that were emitted by hand and ran right on devices: well formed, clean, and right at small sizes."""

from __future__ import annotations

from math import erf, log
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.machine.verify import form_problems
from treadle.simulate.run import simulate

TEXTS = Path(__file__).parents[1] / "machine" / "texts"
BF16 = ml_dtypes.bfloat16


def text(name: str) -> MachineProgram:
    return parse_machine((TEXTS / f"{name}.tdm").read_text(), f"{name}.tdm")


def integers(*shape: int) -> np.ndarray[Any, np.dtype[Any]]:
    return np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(BF16)


@pytest.mark.parametrize("name", ["k2_gemm", "k3_plain", "k3_ahead", "amx_gemm"])
def test_they_are_well_formed_and_come_back(name: str) -> None:
    program = text(name)
    assert form_problems(program) == []
    printed = print_machine(program)
    assert print_machine(parse_machine(printed)) == printed


def test_product_with_bias_and_activation() -> None:
    m, n, k = 130, 264, 72
    x, w, bias = integers(m, k), integers(k, n), integers(n)
    run = simulate(text("k2_gemm"), {"X": x, "W": w, "bias": bias, "Y": np.zeros((m, n), BF16)}, seed=1)
    assert run.findings == []
    z = x.astype(np.float64) @ w.astype(np.float64) + bias.astype(np.float64)
    expected = 0.5 * z * (1 + np.vectorize(erf)(z / np.sqrt(2)))
    # One rounding to 8 bits of an f32 value.
    assert np.all(np.abs(run.outputs["Y"].astype(np.float64) - expected) <= 2.0**-8 * np.abs(expected) + 1e-5)


@pytest.mark.parametrize(("name", "queries", "keys"), [("k3_plain", 70, 150), ("k3_ahead", 130, 140)])
def test_attention(name: str, queries: int, keys: int) -> None:
    program = text(name)
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, n, 128)).astype(BF16) for n in (queries, keys, keys))
    run = simulate(program, {"q": q, "k": k, "v": v, "o": np.zeros((1, queries, 128), BF16)}, seed=2)
    assert run.findings == []
    scores = np.einsum("gqd,gkd->gqk", q.astype(np.float64), k.astype(np.float64)) * 0.12751743 * log(2)
    if "ge %row" in print_machine(program):
        scores = np.where(np.arange(queries)[:, None] >= np.arange(keys), scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.einsum("gqk,gkd->gqd", e / e.sum(axis=-1, keepdims=True), v.astype(np.float64))
    assert np.abs(run.outputs["o"].astype(np.float64) - expected).max() < 2.0**-6


def test_tiles_of_the_cpu() -> None:
    m, n, k = 33, 40, 70
    a, b = integers(m, k), integers(k, n)
    run = simulate(text("amx_gemm"), {"A": a, "B": b, "C": np.zeros((m, n), np.float32)})
    assert run.findings == []
    assert np.array_equal(run.outputs["C"], a.astype(np.float32) @ b.astype(np.float32))
