"""`td.Numerics`, knob by knob: what each changes, that it is kept, and what is refused."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

import treadle as td
from treadle import bf16, f8e4m3, f32, i32
from treadle.base.errors import TreadleError
from treadle.driver.variants import Interpreted

M, N, K, V = td.dims("M N K V")


@td.kernel
def product(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N, f32] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc


@td.kernel
def grown(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = td.exp(X[m]) + td.tanh(X[m])


def sample(count: int = 5000) -> Any:
    return np.random.default_rng(0).normal(size=count).astype(np.float32) * 4


# ---- functions


def test_classes_of_functions_have_their_own_bits() -> None:
    x = sample()
    got = {c: grown(x, numerics=td.Numerics(functions=c)).tobytes() for c in ("exact", "storage", "2ulp", "fast")}
    assert got["2ulp"] == grown(x).tobytes()
    assert got["exact"] == got["storage"] == grown.reference(x).tobytes()
    assert len(set(got.values())) == 3


# ---- contract


@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_no_contraction_means_no_fused_step(dtype: Any) -> None:
    """a b + acc where the product's rounding shows: 1 + 2^-12 squared, less 1 + 2^-11. Rows and columns are many enough
    that lanes do not lie along the sum, where each product would have an acc of its own."""
    one = 1 + 2.0**-12 if dtype == f32 else 1.0
    x = np.array([[1.0, one]] * 128, np.float32).astype(dtype.numpy)
    w = np.array([[-(1 + 2.0**-11)] * 128, [one] * 128], np.float32).astype(dtype.numpy)
    fresh = td.kernel(product.definition.fn)  # no plan made for other shapes is as good
    fused = fresh(x, w)
    apart = fresh(x, w, numerics=td.Numerics(contract=False))
    if dtype == f32:
        assert float(fused[0, 0]) == 2.0**-24 and float(apart[0, 0]) == 0.0
    want = product.reference(x, w, numerics=td.Numerics(contract=False))
    assert apart.tobytes() == want.tobytes()


def test_plans_without_contraction_have_none() -> None:
    given = [td.like(f32, 64, 64), td.like(f32, 64, 64)]
    assert "mma fma" in product.plan(*given).machine()
    text = product.plan(*given, numerics=td.Numerics(contract=False)).machine()
    assert "mma muladd" in text and "fma" not in text.partition("kernel ")[2]


# ---- mma_subnormals


def test_flushing_products_are_excluded_where_subnormals_are_kept() -> None:
    given = [td.like(bf16, 256, 256), td.like(bf16, 256, 256)]
    flushing = product.plan(*given, target="cpu:amx")
    kept = product.plan(*given, target="cpu:amx", numerics=td.Numerics(mma_subnormals="keep"))
    assert "amx" in flushing.machine().partition("kernel ")[2]
    assert "amx" not in kept.machine().partition("kernel ")[2] and kept.check().status == "verified"
    assert "mma_subnormals" in flushing.machine() and 'numerics "mma_subnormals' not in kept.machine()


def test_subnormal_products_are_kept() -> None:
    tiny = np.full((1, 2), 2.0**-130, np.float32).astype(bf16.numpy)
    ones = np.ones((2, 1), np.float32).astype(bf16.numpy)
    got = product(tiny, ones, numerics=td.Numerics(mma_subnormals="keep"))
    assert float(got[0, 0]) == 2.0**-129


def test_elementwise_operations_keep_subnormals() -> None:
    @td.kernel
    def halved(X: td.Tensor[M], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = X[m] * 0.5

    x = np.array([2.0**-126, 2.0**-140, -(2.0**-148)], np.float32)
    assert halved(x).tolist() == (x * np.float32(0.5)).tolist() and (halved(x) != 0).all()


# ---- fp8 products: exact, summed in f32


def test_products_of_fp8_are_summed_in_f32() -> None:
    """4096 products of 1.125 (the fifth bit of a partial sum above 2048 is lost with 14 bits, not with 24)."""
    x = np.full((2, 4096), 1.125, np.float32).astype(f8e4m3.numpy)
    w = np.ones((4096, 3), np.float32).astype(f8e4m3.numpy)
    for run in (product.reference, product):
        assert (run(x, w) == 4608.0).all()


# ---- repeatable: tests/numerics/test_repeatable.py; float sums of colliding writes


def scattering(dtype: Any, order: Any, repeatable: str | None) -> Any:
    @td.kernel(numerics=td.Numerics(repeatable=repeatable))
    def scattered(L: td.Tensor[M, i32], X: td.Tensor[M, dtype], H: td.Out[V, dtype]):
        H[V] = 0
        for m in td.serial(M):
            H.add_at(td.in_range(L[m], V), X[m], order=order)

    return scattered


def test_float_atomics_are_refused(snapshot: SnapshotAssertion) -> None:
    labels, x, h = np.zeros(5, np.int32), np.ones(5, np.float32), np.zeros(2, np.float32)
    with pytest.raises(TreadleError) as caught:
        scattering(f32, td.unordered, "run")(labels, x, h)
    assert caught.value.code == "numerics/repeatable"
    text = str(caught.value)
    assert re.sub(r"(?s)\n  at .*?(?=\n  found:)", "", text) == snapshot


@pytest.mark.parametrize(
    ("dtype", "order", "repeatable"),
    [(f32, td.fold_left, "run"), (i32, td.unordered, "batch"), (f32, td.unordered, None)],
)
def test_other_colliding_sums_are_taken(dtype: Any, order: Any, repeatable: str | None) -> None:
    labels = np.array([0, 1, 0, 0], np.int32)
    h = np.zeros(2, dtype.numpy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        scattering(dtype, order, repeatable)(labels, np.arange(1, 5).astype(dtype.numpy), h)
    assert h.tolist() == [8, 2]


# ---- refusals


@pytest.mark.parametrize("given", [{"subnormals": "flush"}], ids=lambda g: next(iter(g)))
def test_permissions_that_nothing_spends_are_refused(given: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TreadleError) as caught:
        td.Numerics(**given)
    assert caught.value.code == "numerics/not-built"
    text = str(caught.value)
    assert re.sub(r"(?s)\n  at .*?(?=\n  found:)", "", text) == snapshot


@pytest.mark.parametrize("knob", ["functions", "subnormals", "fp8_accumulate", "mma_subnormals", "repeatable"])
def test_words_that_no_knob_has_are_mistakes(knob: str) -> None:
    with pytest.raises(TreadleError) as caught:
        td.Numerics(**{knob: "perhaps"})
    assert caught.value.code == "capture/argument"


# ---- per call


def test_a_call_may_have_its_own_contract() -> None:
    x = sample(100)
    exact = td.Numerics(functions="exact")
    assert grown.reference(x, numerics=exact).tobytes() == grown(x, numerics=exact).tobytes()
    assert grown.program(x, numerics=exact).numerics["functions"] == "exact"
    assert grown.program(x).numerics["functions"] == "2ulp"
    assert grown.bind(x, numerics=exact)().tobytes() == grown(x, numerics=exact).tobytes()
    assert grown.under(exact) is grown.under(td.Numerics(functions="exact"))
    assert grown.sanitize(x, numerics=exact) == []
    assert not any(isinstance(v, Interpreted) for v in grown.variants)


def test_a_parameter_may_be_called_numerics() -> None:
    @td.kernel
    def scaled(X: td.Tensor[M], Y: td.Out[M] = None, *, numerics: float):
        for m in td.parallel(M):
            Y[m] = X[m] * numerics

    assert scaled(np.ones(3, np.float32), numerics=2.0).tolist() == [2, 2, 2]


def test_what_is_no_contract_is_a_mistake() -> None:
    with pytest.raises(TreadleError) as caught:
        grown(sample(3), numerics="fast")
    assert caught.value.code == "capture/argument"
