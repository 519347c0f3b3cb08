"""The reference interpreter against NumPy, and what the checked interpreter finds."""

from __future__ import annotations

import numpy as np
import pytest
from tests.evaluate.programs import block_mean_wrong, contraction, row_maximum, scatter

from treadle.algebra.expr import maximum, minimum, sym
from treadle.dtype.formats import bf16, f32, i8
from treadle.evaluate import scalar
from treadle.evaluate.cuts import Even, Random
from treadle.evaluate.interpreter import evaluate
from treadle.evaluate.machine import Machine, OutOfRange
from treadle.evaluate.sanitize import sanitize

CUTS = [Even(1), Even(3), Even(1 << 40), Random(0), Random(1)]


@pytest.mark.parametrize("cuts", CUTS, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("m, n, k", [(5, 7, 9), (1, 1, 1), (4, 3, 0), (0, 3, 4), (13, 11, 17)])
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_contraction_is_exact_at_every_cut(rng, m, n, k, dtype, cuts):
    x = rng.integers(-4, 5, (m, k)).astype(dtype.numpy)
    w = rng.integers(-4, 5, (k, n)).astype(dtype.numpy)
    y = np.full((m, n), np.nan, np.float32)
    evaluate(contraction(dtype), {"X": x, "W": w, "Y": y}, extents={"M": m, "N": n, "K": k}, cuts=cuts)
    np.testing.assert_array_equal(y, x.astype(np.float32) @ w.astype(np.float32))


def test_maximum_propagates_nan_and_an_empty_row_is_the_identity():
    x = np.array([[1, np.nan, 3], [-5, -7, -6]], np.float32)
    y = np.zeros(2, np.float32)
    evaluate(row_maximum(), {"X": x, "Y": y}, extents={"M": 2, "N": 3})
    np.testing.assert_array_equal(y, [np.nan, -5])
    evaluate(row_maximum(), {"X": x[:, :0], "Y": y}, extents={"M": 2, "N": 0})
    np.testing.assert_array_equal(y, [-np.inf, -np.inf])


@pytest.mark.parametrize("monoid, dtype", [("add", f32), ("max", bf16), ("mul", i8), ("add", bf16)])
@pytest.mark.parametrize("exact", [False, True])
def test_a_fold_whose_kept_axis_is_empty_is_empty(monoid, dtype, exact):
    for shape in ((0, 3), (0, 0)):
        got = scalar.fold(monoid, dtype, np.zeros(shape, dtype.numpy), (1,), exact=exact, nan="propagate")
        assert got.shape == (0,) and got.dtype == dtype.numpy


def test_strided_views_are_read_and_written_in_place(rng):
    base = rng.standard_normal((20, 30)).astype(np.float32)
    whole = np.zeros((8, 10), np.float32)
    evaluate(row_maximum(), {"X": base[:16:2, ::-3], "Y": whole[::-1, 4]}, extents={"M": 8, "N": 10})
    np.testing.assert_array_equal(whole[::-1, 4], base[:16:2, ::-3].max(1))
    assert not whole[:, :4].any() and not whole[:, 5:].any()


def test_sanitize_reports_a_result_that_depends_on_the_cut(rng):
    x = rng.standard_normal(9).astype(np.float32)
    found = sanitize(block_mean_wrong(), {"X": x, "Y": np.zeros(9, np.float32)}, {}, {"M": 9})
    assert [f.code for f in found][:1] == ["block/observed"]
    assert "Y[" in found[0].message


def test_sanitize_reports_two_instances_that_write_one_element():
    x, y = np.arange(4, dtype=np.float32), np.zeros(5, np.float32)
    good = {"X": x, "ids": np.array([3, 0, 4, 1], np.int32), "Y": y}
    assert sanitize(scatter(), good, {}, {"T": 4, "V": 5}) == []
    bad = {**good, "ids": np.array([3, 0, 3, 1], np.int32)}
    found = sanitize(scatter(), bad, {}, {"T": 4, "V": 5})
    assert found[0].code == "parallel/interference"
    assert "t = 2" in found[0].message and "t = 0" in found[0].message and "Y[3]" in found[0].message
    assert sanitize(scatter("serial"), bad, {}, {"T": 4, "V": 5}) == []
    assert not y.any(), "sanitize works on copies"


def test_a_broken_in_range_promise_is_named():
    args = {"X": np.ones(1, np.float32), "ids": np.array([9], np.int32), "Y": np.zeros(5, np.float32)}
    with pytest.raises(OutOfRange) as caught:
        evaluate(scatter(), args, extents={"T": 1, "V": 5})
    assert "index 9" in str(caught.value) and "0 <= index < 5" in str(caught.value)
    assert [f.code for f in sanitize(scatter(), args, {}, {"T": 1, "V": 5})] == ["bounds/out-of-range"]


@pytest.mark.parametrize("fn", ["add", "mul", "maximum", "exp", "erf"])
def test_small_floats_round_once(rng, fn):
    x = rng.standard_normal((2, 500)).astype(bf16.numpy)
    arrays = x if fn in ("add", "mul", "maximum") else x[:1]
    got = scalar.apply(fn, bf16, *arrays)
    want = scalar.apply(fn, f32, *(a.astype(np.float32) for a in arrays)).astype(bf16.numpy)
    assert got.dtype == bf16.numpy
    # exp in f64 and in f32 can round to different sides of a bf16 tie, which is a 2^-16 event: none in these inputs.
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_integers_wrap_and_divide_like_floor():
    a, b = np.array([127, -128, 7, -7], np.int8), np.array([1, 1, -2, 2], np.int8)
    np.testing.assert_array_equal(scalar.apply("add", i8, a, b), np.array([-128, -127, 5, -5], np.int8))
    np.testing.assert_array_equal(scalar.apply("floordiv", i8, a, b), np.array([127, -128, -4, -4], np.int8))
    np.testing.assert_array_equal(scalar.apply("mod", i8, a, b), np.array([0, 0, -1, 1], np.int8))


def test_whole_boxes_read_what_indices_do(rng, monkeypatch):
    """Parts that are read as slices have the bits, findings and errors of the way by index arrays."""
    x, w = (rng.standard_normal(s, dtype=np.float32) for s in ((5, 7), (7, 6)))

    def seen(cuts):
        found = {"X": x, "W": w, "Y": np.zeros((5, 6), np.float32)}
        evaluate(contraction(f32), found, extents={"M": 5, "N": 6, "K": 7}, cuts=cuts)
        rows = {"X": x, "Y": np.zeros(5, np.float32)}
        evaluate(row_maximum(), rows, extents={"M": 5, "N": 7}, cuts=cuts)
        return found["Y"].tobytes(), rows["Y"].tobytes()

    def outside():
        with pytest.raises(OutOfRange) as caught:
            evaluate(row_maximum(), {"X": x, "Y": np.zeros(6, np.float32)}, extents={"M": 6, "N": 7})
        return str(caught.value)

    cuts = (Even(1), Even(3), Random(2))
    quick = [*map(seen, cuts), outside()]
    monkeypatch.setattr(Machine, "box", lambda *_: None)
    assert quick == [*map(seen, cuts[:2]), seen(Random(2)), outside()]


def test_one_product_is_the_contraction_of_one(rng):
    """*Ensures*: of operands with one element each, `mma` gives what `einsum` does."""
    for a, b in rng.standard_normal((20, 2)).astype(np.float32):
        y = np.zeros((1, 1), np.float32)
        arrays = {"X": np.full((1, 1), a), "W": np.full((1, 1), b), "Y": y}
        evaluate(contraction(f32), arrays, extents={"M": 1, "N": 1, "K": 1})
        assert y[0, 0] == np.einsum("mk,kn->mn", arrays["X"], arrays["W"])[0, 0] == a * b


def test_the_integer_of_an_expression_is_its_value(rng):
    a, b, c = sym("a"), sym("b"), sym("c")
    of_symbols = [a * 0, a - 3, a * b * 2 - c + 5, a * a - b * c]
    for expr in (*of_symbols, (a + b) // 4 - c, minimum(a, b) * 3, maximum(a - b, c) // (c * c + 1)):
        for _ in range(5):
            env = dict(zip("abc", map(int, rng.integers(-9, 10, 3)), strict=True))
            assert expr.integer(env) == expr.evaluate(env)
            assert type(expr.integer(env)) is int
    with pytest.raises(KeyError):
        (a + b).integer({"a": 1})
