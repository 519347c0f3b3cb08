"""Arguments chosen to break calls: each is refused with a code or computed rightly, and nothing else is written."""

from __future__ import annotations

import gc
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.base.errors import TreadleError

M, N = td.dims("M N")
X = np.arange(12, dtype=np.float32)


@td.kernel
def shifted(X: td.Tensor[M, td.i32], by: td.Scalar[td.i32], on: td.Scalar[td.bool_], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = td.where(on, X[m] + by, X[m])


def code_of(call: Any) -> str:
    with pytest.raises(TreadleError) as caught:
        call()
    return caught.value.code


def test_integer_scalars() -> None:
    x = np.arange(5, dtype=np.int32)
    for _ in range(2):
        assert (shifted(x, -3, True) == x - 3).all() and (shifted(x, 7, False) == x).all()
        assert (shifted(x, np.int64(4), np.bool_(True)) == x + 4).all()
        assert (shifted(x, 2**31 - 1, True)[0]) == 2**31 - 1
    for by in (2**31, -(2**31) - 1, 2.0, float("nan"), "3", None):
        assert code_of(lambda by=by: shifted(x, by, True)) in ("call/dtype", "call/arguments", "array/dtype")
    for on in (2, "yes", 1.0):
        assert code_of(lambda on=on: shifted(x, 1, on)) in ("call/dtype", "array/dtype")


@pytest.mark.parametrize("by", [10**400, "x", object(), [1], {}, 2j, float("nan"), np.ones(3), None, td.f32])
def test_staged_values_that_cannot_be_used(by: Any) -> None:
    for _ in range(2):
        try:
            got = k.staged(X, by=by)
        except TreadleError as error:
            assert error.family == "mistake"
        else:
            assert np.isnan(got[1:]).all()


def test_a_staged_function_that_raises() -> None:
    def broken(x: Any) -> Any:
        raise ValueError("mine")

    for _ in range(2):
        with pytest.raises((ValueError, TreadleError)):
            k.staged(X, f=broken)
    assert (k.staged(X) == X).all()


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_arrays_that_are_more_than_arrays() -> None:
    assert (k.double(X.view(np.recarray)) == 2 * X).all()
    matrix = np.matrix(np.ones((2, 3), np.float32))
    assert (np.asarray(k.linear_gelu(matrix, np.ones((3, 4), np.float32))) == 3).all()
    record = np.zeros(4, [("a", "f4"), ("b", "i4")])
    assert code_of(lambda: k.double(record)) == "array/dtype-unsupported"
    record["a"] = 3
    assert (k.double(record["a"]) == 6).all()  # a stride of two elements
    packed = np.zeros(4, [("a", "f4"), ("b", "i1")])
    assert code_of(lambda: k.double(packed["a"])) in ("array/stride", "array/misaligned")
    for bad in (np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]"), np.zeros(2, "V4"), np.zeros(2, np.longdouble)):
        assert code_of(lambda bad=bad: k.double(bad)) == "array/dtype-unsupported"


@pytest.mark.parametrize("value", [3, "x", [1.0], (1.0,), {}, object(), type, lambda: 0, 2j])
def test_what_is_no_array(value: Any) -> None:
    for call in (k.double, k.double.bind, k.double.plan, k.double.reference, k.double.sanitize):
        assert code_of(lambda call=call: call(value)) == "array/not-an-array"
        assert code_of(lambda call=call: call(X, value)) == "array/not-an-array"


def test_bytes_are_read_only_numbers() -> None:
    assert k.double(b"\x01\x02").tolist() == [2, 4]
    assert code_of(lambda: k.double(np.zeros(2, np.uint8), b"\0\0")) == "array/read-only"


def test_shapes_whose_product_has_no_size() -> None:
    far = np.broadcast_to(np.float32(1), (1 << 31,))
    huge = np.broadcast_to(np.float32(1), (1 << 40, 1)), np.broadcast_to(np.float32(1), (1, 1 << 40))
    for call in (k.linear_gelu, k.linear_gelu.bind):
        assert code_of(lambda call=call: call(*huge)) == "runtime/out-of-memory"
    assert code_of(lambda: k.double(far, X)) == "call/extent-conflict"


def test_outputs_that_lie_in_one_another() -> None:
    held = np.zeros((4, 6), np.float32)
    for y in (
        np.lib.stride_tricks.as_strided(held, (3,), (0,)),
        np.lib.stride_tricks.as_strided(held, (3, 4), (8, 4)),
        np.broadcast_to(held[:, :1], (4, 3)),
    ):
        args = (np.ones((3, 2), np.float32), np.ones((2, 4), np.float32)) if y.ndim == 2 else (X[:3],)
        kernel = k.linear_gelu if y.ndim == 2 else k.double
        code = code_of(lambda kernel=kernel, args=args, y=y: kernel(*args, Y=y))
        assert code in ("array/output-overlap", "array/read-only", "call/extent-conflict")
    assert (held == 0).all()


def test_results_outlive_what_they_were_made_of() -> None:
    made = [k.double(np.full(1000, i, np.float32)) for i in range(50)]
    launch = k.double.bind(np.full(1000, 7, np.float32))
    gc.collect()
    assert all((m == 2 * i).all() for i, m in enumerate(made))
    assert (launch() == 14).all()


def test_results_are_independent_of_later_calls() -> None:
    for n in (4, 1000, 200_000):
        first = k.double(np.ones(n, np.float32))
        second = k.double(np.full(n, 5, np.float32))
        assert (first == 2).all() and (second == 10).all()
        first[...] = 0
        assert (second == 10).all()


def test_errors_on_many_threads_do_not_disturb_right_calls() -> None:
    wrong: list[Any] = []

    def bad() -> None:
        for i in range(100):
            try:
                k.double(X, X[: i % 11])
                wrong.append(i)
            except TreadleError:
                pass

    def good() -> None:
        for i in range(100):
            if not (k.double(X + i) == 2 * (X + i)).all():
                wrong.append(i)

    threads = [threading.Thread(target=t) for t in (bad, good, bad, good)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_special_numbers_pass_through() -> None:
    for kind in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
        x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float64).astype(kind)
        for _ in range(2):
            y = k.double(x)
            assert np.array_equal(y.astype(np.float64), 2 * x.astype(np.float64), equal_nan=True)
            assert np.signbit(y.astype(np.float64)[4])
