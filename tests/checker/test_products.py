"""Tiles over products of extents that nobody knows: filled by rows, columns, blocks and elements, and read back.

Each is verified for all extents, runs so, and twins that write or read a neighbour's element are refused.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from machine_text import refused

import treadle as td
from treadle.driver.candidates import families
from treadle.driver.kernel import Kernel
from treadle.ir.expand import expand
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts

A, B, C, N = td.dims("A B C N")
AB, ABC = td.product(A, B), td.product(A, B, C)
T3, F3, T2, F2 = td.Tensor[A, B, C], td.Out[ABC], td.Tensor[A, B], td.Out[AB]


@td.kernel
def rows(X: T2, Y: F2 = None):
    f = td.empty(AB)
    for a in td.serial(A.each):
        f[a, B] = X[a, B] * 2
    Y[AB] = f


@td.kernel
def columns(X: T2, Y: F2 = None):
    f = td.empty(AB)
    for b in td.serial(B.each):
        f[A, b] = X[A, b] * 2
    Y[AB] = f


@td.kernel
def planes(X: T3, Y: F3 = None):
    f = td.zeros(ABC)
    for a in td.serial(A.each):
        f[a, B, C] = X[a, B, C] * 2
    Y[ABC] = f


@td.kernel
def lines(X: T3, Y: F3 = None):
    f = td.zeros(ABC)
    for a in td.serial(A.each):
        for b in td.serial(B.each):
            f[a, b, C] = X[a, b, C] * 2
    Y[ABC] = f


@td.kernel
def middles(X: T3, Y: F3 = None):
    f = td.zeros(ABC)
    for b in td.serial(B.each):
        f[A, b, C] = X[A, b, C] * 2
    Y[ABC] = f


@td.kernel
def lasts(X: T3, Y: F3 = None):
    f = td.zeros(ABC)
    for c in td.serial(C.each):
        f[A, B, c] = X[A, B, c] * 2
    Y[ABC] = f


@td.kernel
def tiles(X: T3, Y: F3 = None):
    f = td.empty(ABC)
    for a, b in td.parallel(A, B):
        f[a, b, C] = X[a, b, C] * 2
    for i in td.parallel(ABC):
        Y[i] = f[i]


@td.kernel
def elements(X: T3, Y: F3 = None):
    f = td.empty(ABC)
    for a, b, c in td.parallel(A.each, B.each, C.each):
        f[a, b, c] = X[a, b, c] * 2
    Y[ABC] = f


@td.kernel
def running(X: td.Tensor[N, A, B], Y: td.Out[N, AB] = None):
    s = td.zeros(AB)
    for n in td.serial(N.each):
        for a in td.serial(A.each):
            s[a, B] = s[a, B] + X[n, a, B]
        Y[n, AB] = s


@td.kernel
def groups(X: T2, V: td.Tensor[AB], start: td.Tensor[N, td.i32], Y: td.Out[AB] = None):
    f = td.empty(AB)
    f[A, B] = X[A, B]
    for n in td.parallel(N.each):
        for i in td.parallel(AB[start[n] : start[n] + 2]):
            f[i] = V[i] + 1
    Y[AB] = f


@td.kernel
def raised(X: td.Tensor[N], start: td.Tensor[A, td.i32], Y: td.Out[N] = None):
    f = td.empty(N)
    f[N] = X[N]
    for a in td.parallel(A.each):
        for i in td.parallel(N[start[a] : start[a] + 2]):
            f[i] = f[i] + 1
    Y[N] = f


THREE = (planes, lines, middles, lasts, tiles, elements)
SHAPES = ((1, 1, 1), (2, 3, 4), (5, 1, 3), (3, 17, 2), (0, 3, 2), (2, 0, 3))


def called(kernel: Kernel, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return kernel(*args)


@pytest.mark.parametrize("kernel", THREE, ids=lambda k: k.definition.name)
def test_three_factors(kernel: Kernel) -> None:
    for shape in SHAPES:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(called(kernel, x), (x * 2).ravel())


def test_two_factors() -> None:
    for shape in SHAPES:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape[0], shape[1] * shape[2])
        for kernel in (rows, columns):
            np.testing.assert_array_equal(called(kernel, x), (x * 2).ravel())
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    np.testing.assert_array_equal(called(running, x), np.cumsum(x, 0).reshape(3, 20))


def test_groups_of_a_product() -> None:
    x = np.arange(12, dtype=np.float32)
    want = x + np.isin(x, (1, 2, 6, 7, 11)).astype(np.float32)
    np.testing.assert_array_equal(called(groups, x.reshape(3, 4), x, np.array([1, 6, 11], np.int32)), want)
    np.testing.assert_array_equal(called(raised, x, np.array([1, 6, 11], np.int32)), want)


def text_of(kernel: Kernel) -> str:
    program = kernel.definition.capture({}, {}, extents={})
    meant = expand(program)
    family = next(f for f in families("cpu:avx512") if f.name == "universal")
    facts = CallFacts("cpu:avx512", disjoint=True, workers=2)
    return print_machine(replace(family.build(meant, facts, {}, family.guard(meant, facts, {})), captured=None))


TWINS = {
    "a neighbour's element": (raised, "f = load b_f[i0]", "f = load b_f[N - 1 - i0]", "J2"),
    "an element of another group": (raised, "store b_f[i0] = _7", "store b_f[N - 1 - i0] = _7", "J1"),
    "a row backwards": (rows, "store b_f[B*a_i + b] = _2", "store b_f[B*a_i + B - 1 - b] = _2", "J1"),
    "another row": (rows, "store b_f[B*a_i + b] = _2", "store b_f[B*A - B*a_i - B + b] = _2", "J1"),
    "a row short of one element": (rows, "loop b = 0 .. B step 1", "loop b = 0 .. B - 1 step 1", "J1"),
    "another line": (lines, "store b_f[B*C*a_i + C*b_i + c]", "store b_f[B*C*a_i + C*B - C - C*b_i + c]", "J1"),
    "outside": (lines, "store b_f[B*C*a_i + C*b_i + c]", "store b_f[B*C*a_i + C*b_i + c + C]", "J4"),
    "tasks that meet": (tiles, "t_a < A, t_b < B", "t_a < A, t_b < B, t_c < 2", "J2"),
}


@pytest.mark.parametrize("name", TWINS)
def test_twins_are_refused(name: str) -> None:
    kernel, right, wrong, judgement = TWINS[name]
    text = text_of(kernel)
    assert text.count(right) == 1, text
    refused(text, right, wrong, judgement)
