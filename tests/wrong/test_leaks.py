"""Whatever a kernel does with a value, capture answers with a program or with an error at a line of the user's.

Pairs of a value and a construct of Python (`constructs`) are drawn at random, and nested; each becomes the body of a
kernel. No exception of Python may come out of treadle: neither raw, nor (as the cause of `capture/python-error`) from
code that is not the user's own expression.
"""

from __future__ import annotations

import io
import linecache
import re
import textwrap
import traceback
import warnings
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.wrong.constructs import USES, VALUES

import treadle
from treadle.base.errors import TreadleError
from treadle.lang.definition import Definition

BEFORE = """
import copy, functools, itertools, json, math, operator
from functools import partial
import numpy as np
import treadle as td
from treadle import f32

M, N = td.dims("M N")
F = td.dims("F", 4)
STORE = []
SHARED = 0
ARRAY = np.arange(3.0)
MON = td.Monoid(0.0, lambda a, b: a + b, commutative=True)

class Box:
    def __init__(self, held): self.held = held
    def method(self, x): return x + self.held
    @property
    def doubled(self): return self.held * 2

BOX = Box(1.0)

def helper(x): return x * 2
def helper2(a, b): return a + b
def endless(x): return endless(x)
def countdown(n): return 0 if n == 0 else countdown(n - 1)
def keeps(x, seen=[]):
    seen.append(x)
    return seen[0]
def local_generator(x): yield x
def wrap(f):
    @functools.wraps(f)
    def inside(*a, **k): return f(*a, **k)
    return inside

@wrap
def wrapped(x): return x + 1

@functools.cache
def cached(x): return x

@td.kernel
def inner(X: td.Tensor[N], Z: td.Out[N] = None):
    Z[N] = X[N] * 2
"""
KERNEL = """
def k(X: td.Tensor[M, N], I: td.Tensor[M, td.i32], s: td.Scalar[f32], i: td.Scalar[td.i32],
      Y: td.Out[M, N] = None, Z: td.Out[M] = None):
    Y[M, N], Z[M] = X[M, N], 0.0
    for m in td.parallel(M):
        for n in td.serial(N):
"""
# Where Python itself works on what the user wrote: operators, calls, attributes, subscripts, iteration.
PYTHON_AT_WORK = {"lang/expressions.py", "lang/capture.py", "lang/statements.py", "lang/assignments.py", "__init__.py"}
ENDLESS = {("huge", use) for use in ("power", "range", "pow", "list_comprehension")}
SPACE: dict[str, Any] = {"__name__": "user"}
exec(BEFORE, SPACE)
SPACE["SINK"] = io.StringIO()

pairs = st.tuples(st.sampled_from(sorted(VALUES)), st.sampled_from(sorted(USES))).filter(lambda p: p not in ENDLESS)
PURE = sorted(n for n, u in USES.items() if u.startswith("r = ") and "\n" not in u)


def used(value: str, use: str) -> str:
    return re.sub(r"\bV\b", lambda _: value, use)


def compiled(body: str, file: str) -> CodeType | None:
    """The kernel with this body, its text known by `file`; nothing where it is no Python."""
    text = KERNEL + textwrap.indent(body, " " * 12) + "\n"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compile(text, file, "exec")
        except SyntaxError:
            return None


def capture(body: str, file: str = "<body of a kernel>") -> TreadleError | None:
    """The error that the kernel's capture ends with. *Ensures*: it is one of the user's, at one of the user's lines."""
    code = compiled(body, file)
    if code is None:
        return None
    space = dict(SPACE)
    exec(code, space)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Definition(space["k"]).capture()
    except TreadleError as error:
        assert error.family in ("mistake", "not supported"), str(error)
        assert error.span is not None and error.span.file in (file, "<string>"), str(error)
        assert str(error).startswith(f"{error.code}: ")
        if error.code == "capture/python-error":
            refuse_own(error)
        return error
    return None


def refuse_own(error: TreadleError) -> None:
    """The exception was not raised in code of treadle that the user's expression did not ask for."""
    assert error.__cause__ is not None
    last = traceback.extract_tb(error.__cause__.__traceback__)[-1]
    root = str(Path(treadle.__file__).parent) + "/"
    inside = last.filename.removeprefix(root) if last.filename.startswith(root) else None
    assert inside is None or inside in PYTHON_AT_WORK, f"{error}\n{inside}:{last.lineno}"


@settings(max_examples=180, deadline=None)
@given(pairs)
@example(("integer_tile", "carried_replaced"))
@example(("tile", "kernel_in_kernel"))
@example(("array", "sum_order"))
@example(("block", "fold_of"))
@example(("type", "by"))
def test_a_value_in_a_construct(pair: tuple[str, str]) -> None:
    capture(used(VALUES[pair[0]], USES[pair[1]]))


@settings(max_examples=60, deadline=None)
@given(pairs, st.sampled_from(PURE))
def test_a_construct_in_a_construct(pair: tuple[str, str], outer: str) -> None:
    first = USES[pair[1]]
    if not first.startswith("r = ") or "\n" in first:
        return
    capture(used(f"({used(VALUES[pair[0]], first)[4:]})", USES[outer]))


@settings(max_examples=40, deadline=None)
@given(st.lists(pairs, min_size=2, max_size=4), st.booleans())
def test_statements_after_one_another(body: list[tuple[str, str]], traced: bool) -> None:
    lines = [used(VALUES[v], USES[u]) for v, u in body]
    if traced:
        lines[0] = "if s > 0:\n" + textwrap.indent(lines[0], "    ")
    capture("\n".join(lines))


@pytest.mark.parametrize("value", sorted(VALUES))
def test_every_value_can_be_named(value: str) -> None:
    assert capture(f"r = {VALUES[value]}") is None


@pytest.mark.parametrize("use", sorted(USES))
def test_every_construct_with_a_tile(use: str) -> None:
    capture(used(VALUES["tile"], USES[use]))
