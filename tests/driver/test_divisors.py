"""Kernels that divide by an extent are native wherever it is not 0; a call where it is 0 is the interpreter's."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.algebra.expr import DivisionByZero, ge, sym
from treadle.analysis.divisors import divisors, zero_divisor
from treadle.checker import check
from treadle.checker.judge import base_facts
from treadle.driver.errors import GuardBroken
from treadle.ir.guard import Bound, Guard
from treadle.machine.parse import parse_machine

M, N, K = td.dims("M N K")


@td.kernel
def wrapped(X: td.Tensor[N], Z: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        Y[m] = X[m % N.extent] + Z[m]


@td.kernel
def wrapped_tile(X: td.Tensor[N], Z: td.Tensor[M], Y: td.Out[M] = None):
    Y[M] = X[M % N.extent] + Z[M]


@td.kernel
def stated(X: td.Tensor[N], Z: td.Tensor[M], Y: td.Out[M] = None):
    td.require(N.extent >= 2)
    Y[M] = X[M % N.extent] + Z[M]


@td.kernel
def shared(X: td.Tensor[M], Z: td.Tensor[N], Y: td.Out[M] = None):
    for m in td.serial(M[: td.minimum(M.extent, M.extent // N.extent)]):
        Y[m] = X[m]


@td.kernel
def scaled(X: td.Tensor[M], Z: td.Tensor[N], Y: td.Out[M] = None):
    Y[M] = X[M] * (M.extent // N.extent)


@td.kernel
def parts(X: td.Tensor[M], Z: td.Tensor[N], Y: td.Out[K] = None):
    td.let(K, M.extent // N.extent)
    Y[K] = td.zeros(K)


@td.kernel
def whole_parts(X: td.Tensor[M], Z: td.Tensor[N], Y: td.Out[M] = None):
    td.require(M.extent % N.extent == 0)
    Y[M] = X[M]


def numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


@pytest.mark.parametrize("kernel", [wrapped, wrapped_tile, stated], ids=lambda k: k.__name__)
def test_native_where_it_is_not_zero(kernel: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for n, m in ((2, 9), (4, 4), (7, 3), (3, 0)):
            np.testing.assert_array_equal(kernel(numbers(n), np.ones(m, np.float32)), np.arange(m) % n + 1)


def test_the_plan_says_so_and_the_judge_needs_it() -> None:
    for kernel in (wrapped, wrapped_tile):
        plan = kernel.plan(numbers(4), numbers(9))
        machine = parse_machine(plan.machine())
        assert "N - 1 >= 0" in str(plan.guard).splitlines() and check(machine).status == "verified"
        less = Guard(tuple(f for f in machine.guard.facts if not isinstance(f, Bound)))
        assert check(replace(machine, guard=less)).status != "verified"
        with pytest.raises(GuardBroken):
            plan(numbers(0), numbers(9))


def test_what_divides() -> None:
    def found(kernel: Any, *shapes: int) -> list[str]:
        return list(map(str, divisors(kernel.program(*map(numbers, shapes)))))

    assert found(wrapped, 4, 9) == found(wrapped_tile, 4, 9) == found(shared, 4, 9) == found(scaled, 4, 9) == ["N"]
    assert found(stated, 4, 9) == []  # required
    program = wrapped.program(numbers(4), numbers(9))
    assert zero_divisor(program, {"M": 9, "N": 4}) is None
    assert zero_divisor(program, {"M": 9, "N": 0}) == "it divides by N, which is 0 in this call"


def test_zero_where_nothing_divides() -> None:
    with pytest.warns(RuntimeWarning, match="it divides by N, which is 0 in this call"):
        assert wrapped(numbers(0), numbers(0)).shape == (0,)


@pytest.mark.parametrize(
    ("kernel", "line"),
    [
        (wrapped, "Y[m] = X[m % N.extent] + Z[m]"),
        (shared, "for m in td.serial(M[: td.minimum(M.extent, M.extent // N.extent)]):"),
        (scaled, "Y[M] = X[M] * (M.extent // N.extent)"),
        (parts, "def parts("),
        (whole_parts, "def whole_parts("),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
@pytest.mark.filterwarnings("ignore:.*it divides by N")
def test_zero_is_a_mistake_at_the_users_line(kernel: Any, line: str) -> None:
    args = (numbers(0), numbers(6)) if kernel is wrapped else (numbers(6), numbers(0))
    for call in (kernel, kernel.reference):
        with pytest.raises(DivisionByZero) as caught:
            call(*args)
        assert line in str(caught.value) and "a division by N, which is 0 in this call" in str(caught.value)


def test_the_judge_takes_no_difference_for_positive() -> None:
    """A call is a mistake where an extent divides that is 0; by what may be negative it may divide."""
    plan = parts.plan(td.like(td.f32, 12), td.like(td.f32, 3))
    assert plan.check().status == "verified" and "N - 1 >= 0" in str(plan.guard)
    machine = parse_machine(plan.machine())
    m, n = sym("M"), sym("N")
    for by, known in ((n, True), (m * n + 2 * n, True), (n - 5, False), (5 - n, False), (n // m, False)):
        one = copy.copy(machine.program)
        one.lets = {"K": m // by}
        assert (ge(by, 1) in base_facts(replace(machine, program=one, guard=Guard(())))) == known, by
