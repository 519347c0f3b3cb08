"""Arguments that do not fit, in every place and way of calling: a mistake with a code, or the right result."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import treadle as td
from treadle import bf16, f32
from treadle.base.errors import TreadleError
from treadle.base.source import shown_path

M, N, K = td.dims("M N K")
D = td.dims("D", 4)


@td.kernel
def product(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = td.dot(X[m, K], W[K, n], over=K)


@td.kernel
def typed(
    X: td.Tensor[M, bf16],
    s: td.Scalar[f32],
    i: td.Scalar[td.i32],
    b: td.Scalar[td.bool_],
    Y: td.Out[M, f32] = None,
    *,
    k=1,
):
    for m in td.parallel(M):
        Y[m] = td.where(b, X[m].to(f32) * s * k, td.full(m, value=i).to(f32))


@td.kernel
def paired(X: td.Tensor[M, D], Z: td.Tensor[M] = None, Y: td.Out[M] = None, Q: td.Out[M] = None):
    td.require(M.extent % 2 == 0)
    for m in td.parallel(M):
        y = X[m, D].sum(D)
        if Z is not None:
            y = y + Z[m]
        Y[m] = y
        Q[m] = y * 2


@td.kernel
def spread(X: td.Tensor[M], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m]


@td.kernel
def resized(X: td.Tensor[M], Y: td.Out[N] = None):
    td.let(N, M.extent // 2)
    for n in td.parallel(N):
        Y[n] = X.at(n.coords, fill=0)


class Raises:
    """An object whose array protocols fail."""

    def __dlpack__(self, **_: Any) -> Any:
        raise RuntimeError("not now")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def misaligned() -> Any:
    return np.frombuffer(bytearray(17), np.uint8)[1:17].view(np.float32)


def read_only() -> Any:
    made = np.ones(4, np.float32)
    made.flags.writeable = False
    return made


def overlapping_rows() -> Any:
    return np.lib.stride_tricks.as_strided(np.zeros(7, np.float32), (4, 4), (4, 4))


SQUARE = np.arange(16, dtype=np.float32).reshape(4, 4)
ROW = np.arange(4, dtype=np.float32)
BF = ROW.astype(ml_dtypes.bfloat16)


# ---- one by one, with their texts

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a missing argument": (lambda: product(SQUARE), "call/arguments"),
    "an argument too many": (lambda: product(SQUARE, SQUARE, None, SQUARE), "call/arguments"),
    "an unknown keyword": (lambda: product(SQUARE, SQUARE, axis=1), "call/arguments"),
    "an argument twice": (lambda: product(SQUARE, SQUARE, X=SQUARE), "call/arguments"),
    "None for what is needed": (lambda: product(SQUARE, None), "call/arguments"),
    "a list": (lambda: product([[1.0, 2.0]], SQUARE), "array/not-an-array"),
    "a number for a tensor": (lambda: product(3.0, SQUARE), "array/not-an-array"),
    "objects": (lambda: product(np.array([[None]]), SQUARE), "array/dtype-unsupported"),
    "complex numbers": (lambda: product(SQUARE.astype(np.complex64), SQUARE), "array/dtype-unsupported"),
    "the other byte order": (lambda: product(SQUARE.astype(">f4"), SQUARE), "array/dtype-unsupported"),
    "a row for a matrix": (lambda: product(ROW, SQUARE), "call/rank"),
    "extents that differ": (lambda: product(np.ones((4, 5), np.float32), SQUARE), "call/extent-conflict"),
    "an extent that is fixed": (lambda: paired(np.ones((4, 5), np.float32)), "call/extent-conflict"),
    "an output of another extent": (
        lambda: product(SQUARE, SQUARE, np.ones((4, 5), np.float32)),
        "call/extent-conflict",
    ),
    "an extent that nothing tells": (lambda: spread(ROW), "call/extent-unknown"),
    "an extent that td.let gives": (lambda: resized(ROW, np.ones(3, np.float32)), "call/extent-conflict"),
    "a broken requirement": (lambda: paired(np.ones((3, 4), np.float32)), "call/require"),
    "another dtype than declared": (lambda: typed(ROW, 1.0, 2, True), "call/dtype"),
    "a fraction for an integer": (lambda: typed(BF, 1.0, 2.5, True), "call/dtype"),
    "an integer beyond the dtype": (lambda: typed(BF, 1.0, 2**31, True), "call/dtype"),
    "a number for a bool": (lambda: typed(BF, 1.0, 2, 1), "call/dtype"),
    "an array for a scalar": (lambda: typed(BF, ROW, 2, True), "call/dtype"),
    "a scalar that is text": (lambda: typed(BF, "1", 2, True), "call/dtype"),
    "a staged value that does not fit": (lambda: typed(BF, 1.0, 2, True, k="twice"), "capture/argument"),
    "a read-only output": (lambda: paired(SQUARE, None, read_only()), "array/read-only"),
    "an output of stride 0": (
        lambda: product(SQUARE, SQUARE, np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (4, 4), (0, 4))),
        "array/output-overlap",
    ),
    "an output whose rows overlap": (lambda: product(SQUARE, SQUARE, overlapping_rows()), "array/output-overlap"),
    "one array for two outputs": (lambda: _twice(np.zeros(4, np.float32)), "call/overlap"),
    "a misaligned array": (lambda: paired(SQUARE, misaligned()), "array/misaligned"),
    "a plan for overlapping arrays": (lambda: product.plan(SQUARE, SQUARE, SQUARE), "plan/none"),
    "a description with a negative extent": (lambda: td.like(f32, -1), "call/like"),
    "a description with strides of another rank": (lambda: td.like(f32, 4, 4, strides=(1,)), "call/like"),
    "an unknown target": (lambda: product.plan(SQUARE, SQUARE, target="cpu:sse"), "plan/target"),
    "no function": (lambda: td.kernel(3), "capture/signature"),
    "a huge staged array": (
        lambda: typed(BF, 1.0, 2, True, k=np.broadcast_to(np.float32(1), (1 << 40,))),
        "capture/argument",
    ),
}


def _twice(y: Any) -> Any:
    return paired(SQUARE, None, y, y)


@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str, snapshot: Any) -> None:
    call, code = WRONG[name]
    with pytest.raises(TreadleError) as caught:
        call()
    error = caught.value
    assert error.code == code, str(error)
    assert error.family == ("not supported" if code == "plan/none" else "mistake")
    text = str(error).replace(shown_path(__file__), "FILE")
    text = re.sub(r"(?<=FILE:)\d+", "LINE", text)
    text = re.sub(r"(?m)^ +\d+(?= \| )", "    LINE", text)
    text = re.sub(r"(?m)^ +(?= \| )", "        ", text)
    assert re.sub(r"0x[0-9a-f]+", "ADDRESS", text) == snapshot


def test_the_right_ones_beside_them() -> None:
    assert np.array_equal(product(SQUARE, SQUARE), SQUARE @ SQUARE)
    assert np.array_equal(product(SQUARE, W=SQUARE, Y=np.zeros((4, 4), np.float32)), SQUARE @ SQUARE)
    assert np.array_equal(product(SQUARE[::-1], SQUARE.T), SQUARE[::-1] @ SQUARE.T)
    assert product(np.zeros((4, 0), np.float32), np.zeros((0, 3), np.float32)).tolist() == np.zeros((4, 3)).tolist()
    assert np.array_equal(typed(BF, 2.0, 7, True, k=3), ROW * 6)
    assert np.array_equal(typed(BF, 2, np.int64(7), np.bool_(False)), np.full(4, 7.0))
    y, q = paired(SQUARE, ROW)
    assert np.array_equal(y, SQUARE.sum(1) + ROW) and np.array_equal(q, 2 * y)
    assert spread(ROW, np.zeros((4, 3), np.float32)).tolist() == np.repeat(ROW[:, None], 3, 1).tolist()
    assert resized(ROW).tolist() == [0, 1]
    assert product.plan(td.like(f32, 4, 4), td.like(f32, 4, 4)).check().status == "verified"


def test_a_scalar_may_be_nan() -> None:
    assert np.isnan(typed(BF, float("nan"), 2, True)[1:]).all()


# ---- anything in any place

THINGS: dict[str, Callable[[], Any]] = {
    "square": lambda: SQUARE.copy(),
    "row": lambda: ROW.copy(),
    "bf16": lambda: BF.copy(),
    "none": lambda: None,
    "list": lambda: [1.0, 2.0],
    "text": lambda: "abc",
    "bytes": lambda: b"abcd" * 4,
    "number": lambda: 3,
    "float": lambda: 2.5,
    "nan": lambda: float("nan"),
    "huge": lambda: 10**400,
    "complex": lambda: 1j,
    "bool": lambda: True,
    "object": object,
    "objects": lambda: np.array([None] * 4),
    "texts": lambda: np.array(["a"] * 4),
    "complex array": lambda: np.ones(4, np.complex64),
    "f64": lambda: np.ones((4, 4)),
    "f16": lambda: np.ones(4, np.float16),
    "u64": lambda: np.ones(4, np.uint64),
    "other byte order": lambda: np.ones((4, 4), ">f4"),
    "dates": lambda: np.zeros(4, "M8[s]"),
    "records": lambda: np.zeros(4, [("a", "f4")]),
    "long double": lambda: np.ones(4, np.longdouble),
    "NumPy scalar": lambda: np.float32(3),
    "rank 0": lambda: np.array(3.0),
    "empty": lambda: np.zeros((0, 4), np.float32),
    "rank 3": lambda: np.ones((2, 2, 2), np.float32),
    "odd": lambda: np.ones((3, 4), np.float32),
    "read-only": read_only,
    "misaligned": misaligned,
    "stride 0": lambda: np.broadcast_to(np.float32(1), (4, 4)),
    "backwards": lambda: SQUARE.copy()[::-1, ::-1],
    "transposed": lambda: SQUARE.copy().T,
    "overlapping": overlapping_rows,
    "masked": lambda: np.ma.masked_array(ROW.copy(), [0, 1, 0, 0]),
    "matrix": lambda: SQUARE.copy().view(np.matrix),
    "f8": lambda: np.ones(4, ml_dtypes.float8_e4m3fn),
    "raises": Raises,
    "dtype": lambda: f32,
    "dimension": lambda: M,
    "kernel": lambda: product,
    "like": lambda: td.like(f32, 4, 4),
    "type": lambda: np.float32,
    "function": lambda: len,
    "generator": lambda: (i for i in ()),
    "dictionary": dict,
    "slice": lambda: slice(1),
    "beyond every memory": lambda: np.broadcast_to(np.float32(1), (1 << 40,)),
}
PLACES: dict[str, Callable[[Any], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "first": lambda a: (product, (a, SQUARE), {}),
    "second": lambda a: (product, (SQUARE, a), {}),
    "output": lambda a: (product, (SQUARE, SQUARE, a), {}),
    "everywhere": lambda a: (product, (a, a, a), {}),
    "keyword": lambda a: (product, (SQUARE,), {"W": a}),
    "too many": lambda a: (product, (SQUARE, SQUARE, None, a), {}),
    "typed": lambda a: (typed, (a, 1.0, 2, True), {}),
    "float scalar": lambda a: (typed, (BF, a, 2, True), {}),
    "integer scalar": lambda a: (typed, (BF, 1.0, a, True), {}),
    "bool scalar": lambda a: (typed, (BF, 1.0, 2, a), {}),
    "staged": lambda a: (typed, (BF, 1.0, 2, True), {"k": a}),
    "optional": lambda a: (paired, (SQUARE, a), {}),
    "both outputs": lambda a: (paired, (SQUARE, None, a, a), {}),
    "unknown": lambda a: (paired, (SQUARE,), {"nothing": a}),
}
WAYS = ("__call__", "reference", "sanitize", "bind", "plan")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(THINGS)), st.sampled_from(sorted(PLACES)), st.sampled_from(WAYS))
@example("square", "everywhere", "plan")
@example("beyond every memory", "keyword", "__call__")
def test_anything_in_any_place(thing: str, place: str, way: str) -> None:
    kernel, args, named = PLACES[place](THINGS[thing]())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            getattr(kernel, way)(*args, **named)
        except TreadleError as error:
            assert error.family in ("mistake", "not supported"), str(error)
            assert str(error).startswith(error.code)
