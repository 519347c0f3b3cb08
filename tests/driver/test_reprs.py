"""What objects of a kernel print as: a line that says which one it is, or the text that it stands for."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from treadle import bf16, f32, i32
from treadle.ir.parser import parse_program

M, N = td.dims("M N")
R = td.dims("R", 2)
X = np.ones((4, 8), np.float32)


@td.kernel
def scaled(X: td.Tensor[M, N], s: td.Scalar[f32], Y: td.Out[M] = None, *, by=2.0, bias=0):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N) * s * by + bias


@td.kernel
def checked(X: td.Tensor[M, N, f32], Y: td.Out[M, N] = None):
    td.check(X[M, N] > 0, "positive")
    Y[M, N] = X[M, N]


@td.kernel
def scattered(X: td.Tensor[M], at: td.Tensor[M, i32], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        Y[td.in_range(at[m], M)] = X[m]


def test_kernels_show_their_heading() -> None:
    assert repr(scaled) == "<treadle kernel scaled(X[M, N], s, *, by, bias) -> Y[M]>" == str(scaled)
    assert repr(checked.under(td.Numerics(contract=False))) == "<treadle kernel checked(X[M, N, f32]) -> Y[M, N]>"


def test_programs_print_their_text() -> None:
    program = scaled.program(X, 1.0)
    assert repr(program).startswith("<program scaled(X: f32[M, N], Y: f32[M]), ")
    assert str(program).startswith("program scaled\n") and str(parse_program(str(program))) == str(program)


def test_bound_calls_show_their_arguments() -> None:
    assert repr(scaled.bind(X, 2.0)) == "<bound scaled: X[4, 8], Y[4], s>"
    assert repr(checked.bind(X)).startswith("<bound checked: X[4, 8], Y[4, 8]")


def test_plans_and_variants_show_decisions_and_verdict() -> None:
    plan = scaled.plan(X, 2.0, target="cpu:avx2")
    assert repr(plan) == f"<plan {plan.decisions.line()}: verified>" == str(plan)
    kernel = td.kernel(scaled.definition.fn)
    kernel(X, 2.0)
    assert repr(kernel.variants[0]) == f"<variant {kernel.variants[0].plan}: verified>"


def test_findings_show_code_message_and_lines() -> None:
    (found, *_) = scattered.sanitize(X[0], np.zeros(8, np.int32))
    assert repr(found) == f"<{found}>"
    assert str(found).startswith("parallel/interference: the instance m = 1 writes") and "test_reprs.py:" in str(found)


@pytest.mark.parametrize(
    "value, text",
    [
        (td.Tensor[M, N, bf16], "td.Tensor[M, N, bf16]"),
        (td.Out[M], "td.Out[M]"),
        (td.Out[()], "td.Out[()]"),
        (td.Tensor[R.device, M], "td.Tensor[R.device, M]"),
        (td.Scalar[f32], "td.Scalar[f32]"),
        (td.Monoid(0.0, lambda s, t: s + t), "td.Monoid(lambda)"),
        (td.Add, "td.Add"),
    ],
)
def test_words_of_annotations_and_monoids_read_as_written(value: object, text: str) -> None:
    assert repr(value) == text
