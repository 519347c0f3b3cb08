"""Habits from other languages that raise Python's exceptions at capture are told what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.lang.advice import advice
from treadle.lang.errors import ObservedBlock, PythonError

M, N = td.dims("M N")


@td.kernel
def habit(X: td.Tensor[M, N], Y: td.Out[M, N], *, write: Callable[..., Any]):
    for m in td.parallel(M):
        Y[m, N] = write(X, X[m, N], N)


def astype(X: Any, x: Any, n: Any) -> Any:
    return x.astype(td.f32)


def axis(X: Any, x: Any, n: Any) -> Any:
    return x.sum(axis=1)


def shape(X: Any, x: Any, n: Any) -> Any:
    return x / X.shape[1]


def length(X: Any, x: Any, n: Any) -> Any:
    return x / len(n)


def counted(X: Any, x: Any, n: Any) -> Any:
    for _ in range(n):
        x = x + x
    return x


def transposed(X: Any, x: Any, n: Any) -> Any:
    return x.T


def reshaped(X: Any, x: Any, n: Any) -> Any:
    return x.reshape(-1)


def composed(X: Any, x: Any, n: Any) -> Any:
    return td.softmax(x)


def folded(X: Any, x: Any, n: Any) -> Any:
    return td.sum(x)


def misspelt(X: Any, x: Any, n: Any) -> Any:
    return td.epx(x)


def misspelt_method(X: Any, x: Any, n: Any) -> Any:
    return x.mx(N)


def counting(X: Any, x: Any, n: Any) -> Any:
    return x + td.arange(4)


@pytest.mark.parametrize(
    "write, says",
    [
        (astype, ".to(td.f32)"),
        (axis, "x.sum(N)"),
        (shape, "M.extent"),
        (length, "M.extent"),
        (counted, "td.serial(M)"),
        (transposed, "axes match by dimension"),
        (reshaped, "td.product"),
        (composed, "docs/language.md"),
        (folded, "x.sum(N)"),
        (counting, "m.coords"),
        (misspelt, "perhaps exp is meant"),
        (misspelt_method, "perhaps max is meant"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_advice(write: Callable[..., Any], says: str) -> None:
    with pytest.raises(PythonError) as caught:
        habit(np.ones((2, 3), np.float32), write=write)
    assert says in (caught.value.hint or ""), str(caught.value)


def test_other_exceptions_have_none() -> None:
    assert advice(IndexError("list index out of range")) is None
    for of, name in ((np, "epx"), (np.ones(3), "mx"), (td, "zzzzzz")):
        with pytest.raises(AttributeError) as caught:
            getattr(of, name)
        assert advice(caught.value) is None


def test_a_fold_without_names_takes_all() -> None:
    @td.kernel
    def total(X: td.Tensor[M, N], Y: td.Out[M]):
        for m in td.parallel(M):
            Y[m] = X[m, N].sum()

    with pytest.raises(ObservedBlock) as caught:
        total(np.ones((2, 3), np.float32))
    assert "no name means all" in (caught.value.hint or "")
