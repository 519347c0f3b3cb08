"""Subscripts that data decide, with a fill outside (`X.at(P[m], fill=0)`): vector plans, and right.

What decides has a value in masked lanes too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.checker import check
from treadle.driver.kernel import Kernel
from treadle.machine.parse import parse_machine

M, N, V = td.dims("M N V")


@td.kernel
def chosen(P: td.Tensor[M, td.i32], X: td.Tensor[V], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X.at(P[m], fill=0)


@td.kernel
def chosen_rows(P: td.Tensor[M, td.i32], X: td.Tensor[V, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        Y[m, N] = X.at(P[m], N, fill=0) * 2


@td.kernel
def chosen_columns(P: td.Tensor[N, td.i32], X: td.Tensor[M, V], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        Y[m, N] = X.at(m, P[N] + 1, fill=-1.0) * 2


@td.kernel
def sums(P: td.Tensor[M, N, td.i32], X: td.Tensor[M, V], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X.at(m, P[m, N], fill=0.0).sum(N)


@td.kernel
def shifted(S: td.Tensor[M, td.i32], X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M.each):
        Y[m, N] = X.at(m, N - S[m], fill=0.0)


@td.kernel
def computed(P: td.Tensor[M, td.i32], C: td.Tensor[M, td.i32], X: td.Tensor[V], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X.at(P[m] * 3 + C[m], fill=0) + td.where(C[m] > 0, 1.0, 2.0)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-5, 30, shape).astype(np.int32)


def table(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


CASES: dict[str, tuple[Kernel, Callable[[int], tuple[Any, ...]]]] = {
    "chosen": (chosen, lambda n: (drawn(n), table(20))),
    "rows": (chosen_rows, lambda n: (drawn(9), table(20, n))),
    "columns": (chosen_columns, lambda n: (drawn(n), table(9, 25))),
    "sums": (sums, lambda n: (drawn(9, n), table(9, 25))),
    "shifted": (shifted, lambda n: (drawn(9), table(9, n))),
    "computed": (computed, lambda n: (drawn(n), drawn(n), table(20))),
}


@pytest.mark.parametrize("name", CASES)
def test_vector_plans(name: str) -> None:
    kernel, arguments = CASES[name]
    plan = kernel.plan(*arguments(200))
    assert plan.decisions.family == "vector sweep" and plan.check().status == "verified"
    for n in (200, 1, 67):
        np.testing.assert_array_equal(plan(*arguments(n)), kernel.reference(*arguments(n)))


@pytest.mark.parametrize(
    ("old", "new"),
    [(" fill 0 ;", " ;"), ("0 <= _1($0), ", ""), ("_1($0) < V", "_1($0) <= V"), ("fill 0.0", "fill 1.0")],
)
def test_wrong_twins(old: str, new: str) -> None:
    text = chosen.plan(*CASES["chosen"][1](200)).machine()
    assert text.count(old) == 1, text
    assert check(parse_machine(text.replace(old, new))).status != "verified"
