"""From a Python call to named arguments: omission, keywords, scalars, Outs, staged values, stand-ins."""

from __future__ import annotations

import array
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.base.errors import TreadleError
from treadle.driver.arguments import freeze, over_memory
from treadle.runtime.arrays import view

X = np.arange(12, dtype=np.float32)


def code_of(call: Any) -> str:
    with pytest.raises(TreadleError) as caught:
        call()
    return caught.value.code


def test_keywords_and_positions_are_one() -> None:
    x, w, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32), np.arange(5, dtype=np.float32)
    want = 4 + np.broadcast_to(b, (3, 5))
    y = np.empty((3, 5), np.float32)
    assert (k.linear_gelu(x, w, b) == want).all()
    assert (k.linear_gelu(bias=b, X=x, W=w) == want).all()
    assert (k.linear_gelu(x, W=w, bias=b) == want).all()
    assert k.linear_gelu(x, w, b, y) is y and k.linear_gelu(x, w, b, Y=y) is y and (y == want).all()


def test_none_is_an_argument_left_out() -> None:
    x, w = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    y = np.empty((3, 5), np.float32)
    for _ in range(2):  # the long way, then the short one
        assert (k.linear_gelu(x, w) == 4).all()
        assert (k.linear_gelu(x, w, None) == 4).all()
        y[...] = 0
        assert k.linear_gelu(x, w, None, y) is y and (y == 4).all()
        assert (k.linear_gelu(x, w, None, None) == 4).all()


def test_outs() -> None:
    y, z = k.pairs(X)
    assert (y == X + 1).all() and (z == X - 1).all()
    mine = np.empty_like(X)
    for _ in range(2):
        first, second = k.pairs(X, mine)
        assert first is mine and (second == X - 1).all() and second is not mine
        first, second = k.pairs(X, None, mine)
        assert second is mine and (first == X + 1).all()


def test_fresh_outputs_are_new_and_aligned() -> None:
    for n in (3, 100_000):
        x = np.ones(n, np.float32)
        outs = [k.double(x) for _ in range(4)]
        addresses = {o.__array_interface__["data"][0] for o in outs}
        assert len(addresses) == 4 and all(a % 64 == 0 for a in addresses)
        assert all((o == 2).all() for o in outs)


def test_an_out_of_rank_0() -> None:
    for _ in range(2):
        s = k.total(X)
        assert isinstance(s, np.ndarray) and s.shape == () and float(s) == 66.0
        mine = np.empty((), np.float32)
        assert k.total(X, mine) is mine and float(mine) == 66.0


@pytest.mark.parametrize("two", [2.0, 2, np.float32(2), np.float64(2), np.int8(2), np.array(2.0), True + 1])
def test_scalars(two: Any) -> None:
    for _ in range(2):
        assert (k.scale(X, two) == 2 * X).all()


def test_each_call_has_its_own_scalar() -> None:
    for s in (0.5, -3.0, float("inf"), 7.0):
        with np.errstate(invalid="ignore"):
            assert np.array_equal(k.scale(X, s), X * np.float32(s), equal_nan=True)


NO_NUMBERS = {
    "text": "2",
    "list": [2.0],
    "array": np.ones(2, np.float32),
    "complex": 2j,
    "object": object(),
    "huge": 1 << 2000,
    "array of text": np.array("x"),
}


@pytest.mark.parametrize("bad", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_is_no_number(bad: Any) -> None:
    assert code_of(lambda: k.scale(X, bad)) == "call/dtype"


def test_dtypes() -> None:
    for kind in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int64, np.uint8):
        x = np.arange(20).astype(kind)
        for _ in range(2):
            y = k.double(x)
            assert y.dtype == x.dtype and (y.astype(np.float64) == 2 * np.arange(20)).all()
    assert k.declared(np.ones(3, ml_dtypes.bfloat16)).dtype == np.float32
    assert code_of(lambda: k.declared(np.ones(3, np.float32))) == "call/dtype"
    assert code_of(lambda: k.declared(np.ones(3, ml_dtypes.bfloat16), np.ones(3, np.float64))) == "call/dtype"


@pytest.mark.parametrize(
    "call, code",
    [
        (lambda: k.double(), "call/arguments"),
        (lambda: k.double(None), "call/arguments"),
        (lambda: k.double(X, X.copy(), X), "call/arguments"),
        (lambda: k.double(X, X=X), "call/arguments"),
        (lambda: k.double(X, other=X), "call/arguments"),
        (lambda: k.scale(X), "call/arguments"),
        (lambda: k.listed(X), "capture/staged"),
        (lambda: k.double(3.0), "array/not-an-array"),
        (lambda: k.double(td.like(td.f32, 3)), "array/not-an-array"),
        (lambda: k.double.reference(td.like(td.f32, 3)), "array/not-an-array"),
        (lambda: k.double(X.astype(object)), "array/dtype-unsupported"),
        (lambda: k.double(X.astype(">f4")), "array/dtype-unsupported"),
        (lambda: k.double(X.astype(complex)), "array/dtype-unsupported"),
        (lambda: k.double(np.float32(3)), "call/rank"),
        (lambda: k.double(np.ones((2, 2), np.float32)), "call/rank"),
        (lambda: k.double(np.ma.masked_array(X)), "array/not-an-array"),
    ],
)
def test_calls_that_do_not_fit(call: Any, code: str) -> None:
    for _ in range(2):
        assert code_of(call) == code


def test_other_buffers() -> None:
    held = array.array("f", [1.0, 2.0, 3.0])
    assert (k.double(held) == [2, 4, 6]).all()
    assert (k.double(memoryview(held)) == [2, 4, 6]).all()
    out = array.array("f", [0.0, 0.0, 0.0])
    assert k.double(held, out) is out and list(out) == [2.0, 4.0, 6.0]
    assert (k.double.reference(held, array.array("f", [0.0] * 3)) == np.array([2, 4, 6])).all()


class Exported:
    """An array of another library: it speaks DLPack only."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()


@pytest.mark.filterwarnings("ignore:position runs in")
def test_dlpack() -> None:
    y = np.zeros(12, np.float32)
    assert (k.double(Exported(X)) == 2 * X).all()
    out = Exported(y)
    assert k.double(Exported(X), out) is out and (y == 2 * X).all()
    assert k.position(Exported(np.eye(3, dtype=np.float32))).tolist() == [0, 1, 2]


class OnDevice:
    """Claims to lie on a GPU, at an address that this process must not touch."""

    __cuda_array_interface__ = {"typestr": "<f4", "shape": (12,), "data": (4096, False), "version": 3}


def test_over_memory_is_the_same_memory() -> None:
    base = np.arange(60, dtype=np.int16).reshape(6, 10)
    for part in (base, base[::-2, 1::3], base.T, base[:0], base[2, 3]):
        held = np.asarray(part)
        seen = over_memory(view(held))
        assert seen.shape == held.shape and (seen == held).all()
        assert held.size == 0 or np.shares_memory(seen, held)
    base.flags.writeable = False
    assert not over_memory(view(base)).flags.writeable


@pytest.mark.parametrize(
    "a, b",
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ((1, 2), (1, 2.0)),
        ((1, 2), [1, 2]),
        ([0.0], [-0.0]),
        ([[1], 2], [[2], 2]),
        ({"a": 1}, {"a": 2}),
        (np.arange(3), np.arange(1, 4)),
        (np.zeros(2, np.float32), np.zeros(2, np.float64)),
        (len, max),
        (bytearray(b"x"), bytearray(b"x")),
    ],
)
def test_staged_values_that_differ_have_different_keys(a: Any, b: Any) -> None:
    assert freeze(a) != freeze(b)
    assert freeze(a) == freeze(a) and hash(freeze(a)) == hash(freeze(a)) and isinstance(hash(freeze(b)), int)


@pytest.mark.parametrize("make", [lambda: [1, (2, "x")], lambda: {"k": [1.5]}, lambda: float("nan"), lambda: np.eye(2)])
def test_staged_values_that_are_equal_have_equal_keys(make: Any) -> None:
    assert freeze(make()) == freeze(make())


def test_like_with_the_extents_first_says_how_it_is_called() -> None:
    with pytest.raises(TreadleError, match="capture/argument") as caught:
        td.like((64, 256))
    assert "td.like(f32, 64, 256)" in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: td.like(td.f32, -3),
        lambda: td.like(td.f32, 2.5),
        lambda: td.like(td.f32, 3, 4, strides=(4,)),
        lambda: td.like(td.f32, 3, align=2),
        lambda: td.like(td.f32, 3, align=48),
        lambda: td.like(td.f32, 3, align=0),
    ],
)
def test_stand_ins_that_no_array_has(make: Any) -> None:
    assert code_of(make) == "call/like"
