"""Monoids: identities leave every value alone, bit for bit; exactness is what NumPy shows."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.algebra.monoids import MONOIDS
from treadle.dtype.formats import DType, bool_, f32, i8, i32, u8

MERGE = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def samples(dtype: DType) -> np.ndarray:
    if dtype.is_float:
        return np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 1e-45], dtype.numpy)
    if dtype.is_bool:
        return np.array([False, True])
    return np.array([dtype.finite_min, 0, 1, 5, dtype.finite_max], dtype.numpy)


CASES = [(m, d) for m in MONOIDS for d in (f32, i8, i32, u8, bool_) if not (d.is_float and m in ("and", "or", "xor"))]
# Sums and products of bools are counted in integers.
CASES = [(m, d) for m, d in CASES if not (d.is_bool and m in ("add", "mul"))]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_identity_changes_no_value(name: str, dtype: DType) -> None:
    monoid = MONOIDS[name]
    number = monoid.identity(dtype)
    assert monoid.is_identity(number, dtype)
    x = samples(dtype)
    with np.errstate(all="ignore"):
        merged = MERGE[name](np.full_like(x, number), x)
    assert merged.tobytes() == x.tobytes() or np.array_equal(np.isnan(merged), np.isnan(x)) and dtype.is_float
    keep = ~np.isnan(x) if dtype.is_float else np.ones(len(x), bool)
    assert merged[keep].tobytes() == x[keep].tobytes()


def test_positive_zero_is_no_identity_of_a_float_sum() -> None:
    add = MONOIDS["add"]
    assert not add.is_identity(0.0, f32) and add.is_identity(-0.0, f32) and add.starts_empty(0.0, f32)
    assert np.signbit(np.float32(-0.0) + np.float32(-0.0)) and not np.signbit(np.float32(0.0) + np.float32(-0.0))


@pytest.mark.parametrize("name", MONOIDS)
def test_only_float_sums_and_products_depend_on_the_order(name: str) -> None:
    monoid = MONOIDS[name]
    assert monoid.exact(i32) and monoid.exact(bool_)
    assert monoid.exact(f32) == (name not in ("add", "mul"))


@pytest.mark.parametrize(("name", "dtype"), [(m, d) for m, d in CASES if d in (i8, u8, bool_)])
def test_laws_over_the_whole_domain(name: str, dtype: DType) -> None:
    """Associative and commutative for every triple of values; idempotent where the table says so."""
    merge = MERGE[name]
    every = np.array([False, True]) if dtype.is_bool else np.arange(256).astype(dtype.numpy)
    a, b = every[:, None], every[None, :]
    pairs = merge(a, b)
    assert (pairs == pairs.T).all()
    assert not MONOIDS[name].idempotent or (merge(every, every) == every).all()
    for c in every[::17]:
        assert (merge(pairs, c) == merge(a, merge(b, c))).all()
