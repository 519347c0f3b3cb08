"""Loads that read a copy of their tensor in another order of axes: what stays, what is refused, what forgeries meet."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import treadle as td
from treadle import lib
from treadle.checker.derivation import validate
from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.rules import Derivation, relayout
from treadle.rules.refusals import FormUnsupported, Overwritten

LIKE = functools.partial(td.like, np.float32)


def first(stride: int = 1, pad: int = 1) -> Program:
    """A convolution with channels first."""
    kernel = lib.conv2d
    out = [(n + 2 * pad - 3) // stride + 1 for n in (7, 9)]
    return kernel.program(LIKE(1, 2, 7, 9), LIKE(4, 2, 3, 3), None, LIKE(1, 4, *out), stride=stride, pad=pad)


def last(stride: int) -> Program:
    """One with channels last."""
    kernel = lib.conv2d_nhwc
    out = [(n + 2 - 3) // stride + 1 for n in (7, 9)]
    return kernel.program(LIKE(1, 7, 9, 2), LIKE(3, 3, 2, 4), None, LIKE(1, *out, 4), stride=stride, pad=1)


def same(before: Program, after: Program, stride: int, channels_last: bool) -> None:
    """Asserts that both store the same numbers."""
    rng = np.random.default_rng(1)
    out = [(n + 2 - 3) // stride + 1 for n in (7, 9)]
    extents = {"B": 2, "G": 1, "P": 2, "Q": 4, "KH": 3, "KV": 3, "H": 7, "V": 9, "Ho": out[0], "Vo": out[1]}
    shapes = [(2, 7, 9, 2), (3, 3, 2, 4), (2, *out, 4)] if channels_last else [(2, 2, 7, 9), (4, 2, 3, 3), (2, 4, *out)]
    x, w = (rng.integers(-4, 5, s).astype(np.float32) for s in shapes[:2])
    found = [np.zeros(shapes[2], np.float32) for _ in range(2)]
    for program, y in zip((before, after), found, strict=True):
        evaluate(program, {"X": x, "W": w, "Y": y}, extents=extents)
    assert np.array_equal(*found) and np.any(found[0])


RIGHT = {
    "channels last": (first(), [0, 2, 3, 1], None, 1, False),
    "channels last, columns in phases": (first(2), [0, 2, 3, 1], [1, 1, 1, 2], 2, False),
    "channels last, rows and columns in phases": (first(2), [0, 2, 3, 1], [1, 1, 2, 2], 2, False),
    "phases of channels last": (last(3), [0, 1, 2, 3], [1, 3, 3, 1], 3, True),
    "rows outside": (last(1), [1, 0, 2, 3], None, 1, True),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_elements_are_those_of_the_tensor(name: str) -> None:
    before, order, strides, stride, channels_last = RIGHT[name]
    d = Derivation(before).then(relayout, "%window", order, strides)
    verdict = validate(before, d.steps[0], d.program)
    assert verdict.status == "verified", verdict
    same(before, d.program, stride, channels_last)


REFUSED = {
    "an order that forgets an axis": ("%window", [0, 2, 3, 3], None, FormUnsupported, "each axis of the tensor once"),
    "a stride too many": ("%window", [0, 2, 3, 1], [1, 1, 2], FormUnsupported, "a stride for each"),
    "coordinates of another stride": (
        "%window",
        [0, 2, 3, 1],
        [1, 1, 1, 2],
        FormUnsupported,
        "2 times those of a part",
    ),
    "no load": ("%acc", [0], None, FormUnsupported, "a load"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_copied_so(name: str) -> None:
    value, order, strides, kind, text = REFUSED[name]
    with pytest.raises(kind) as told:
        relayout(first(), value, order, strides)
    assert text in str(told.value)


M, N, K = td.dims("M N K")


@td.kernel
def twice(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        w = W[K, n]
        Y[m, n] = td.mma(X[m, K], w, td.zeros(m, n)) + w.sum(K)


@td.kernel
def onto(X: td.Out[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        x = X[m, K]
        Y[m, n] = td.mma(x, W[K, n], td.zeros(m, n))
    X[M, K] = 0


def test_only_contractions_read_another_order_of_axes() -> None:
    with pytest.raises(FormUnsupported, match="reads %w"):
        relayout(twice.program(LIKE(2, 3), LIKE(3, 4), LIKE(2, 4)), "%w", [1, 0])


def test_a_copy_would_miss_what_is_stored() -> None:
    program = onto.program(LIKE(2, 3), LIKE(3, 4), LIKE(2, 4))
    with pytest.raises(Overwritten, match="X is stored to"):
        relayout(program, "%x", [1, 0])


FORGED = {
    "another axis": ("%X_copy.3[b, r + y - 1, ", "%X_copy.3[b, s + y - 1, ", r"reads s \+ y"),
    "a copy of other elements": (
        "load X[b_1, {g_1, P}, h, v]",
        "load X[b_1, {g_1, P}, 0, v]",
        "does not copy X along H",
    ),
    "a copy of one image": ("(b_1 in B each, h in", "(b_1 in B[0 : 1] each, h in", "does not copy X along B"),
    "no fill": (" fill %6\n", "\n", "filled with something else"),
    "a copy that is more": (
        "      %X_copy.2: f32[B, H, V, G_P] = insert %X_copy.1[b_1, h, v, {g_1, P}] = %X\n",
        "      %9: f32[P, v] = add %X, %X\n"
        "      %X_copy.2: f32[B, H, V, G_P] = insert %X_copy.1[b_1, h, v, {g_1, P}] = %9\n",
        "does not put what it loads",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_copy_is_refused(name: str) -> None:
    before = first()
    d = Derivation(before).then(relayout, "%window", [0, 2, 3, 1])
    text, (old, new, _) = print_program(d.program), FORGED[name]
    assert old in text, text
    verdict = validate(before, d.steps[0], parse_program(text.replace(old, new), "a forgery"))
    assert verdict.status == "rejected" and re.search(FORGED[name][2], verdict.reason), verdict


PHASES = {
    "the other phase": ("s - 2*((s + 1) // (2)) + 1}", "-s + 2*((s + 1) // (2))}", "other coordinates|no phase"),
    "a coordinate further": ("index ((s + 1) // (2)) - 1", "index ((s + 1) // (2))", "other coordinates"),
    "a copy without zeros": (" fill %zero", "", "does not copy X"),
    "phases in another order": ("[{h_phase, v_phase}, b_1", "[{v_phase, h_phase}, b_1", ""),
}


@pytest.mark.parametrize("name", PHASES)
def test_forged_phases_are_refused(name: str) -> None:
    before = first(2)
    d = Derivation(before).then(relayout, "%window", [0, 2, 3, 1], [1, 1, 2, 2])
    text, (old, new, _) = print_program(d.program), PHASES[name]
    assert old in text, text
    verdict = validate(before, d.steps[0], parse_program(text.replace(old, new), "a forgery"))
    assert verdict.status == "rejected" and re.search(PHASES[name][2], verdict.reason), verdict
