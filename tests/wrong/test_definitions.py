"""Definitions of kernels: odd annotations, functions and options are mistakes at their line; unusual ones run."""

from __future__ import annotations

import linecache
import re
from typing import Any

import numpy as np
import pytest

from treadle.base.errors import TreadleError

BEFORE = """
import functools
import numpy as np
import treadle as td
from treadle import f32

M, N = td.dims("M N")
F = td.dims("F", 4)

def logged(f):
    @functools.wraps(f)
    def inside(*a, **k):
        return f(*a, **k)
    return inside
"""
BODY = "def k(X: td.Tensor[M], Y: td.Out[M] = None):\n    Y[M] = X[M]"

WRONG = {
    "a tuple": ("def k(X: (M, N), Y: td.Out[M]):\n    Y[M] = 0.0", "capture/signature"),
    "a call": ("def k(X: td.Tensor(M), Y: td.Out[M]):\n    Y[M] = 0.0", "capture/argument"),
    "a type of Python": ("def k(X: int, Y: td.Out[M]):\n    Y[M] = 0.0", "capture/signature"),
    "no dimensions": ("def k(X: td.Tensor, Y: td.Out[M]):\n    Y[M] = 0.0", "capture/signature"),
    "an unknown dtype": ("def k(X: td.Tensor[M, 'f33'], Y: td.Out[M]):\n    Y[M] = 0.0", "capture/argument"),
    "a dtype first": ("def k(X: td.Tensor[f32, M], Y: td.Out[M]):\n    Y[M] = 0.0", "capture/argument"),
    "a number": ("def k(X: td.Tensor[M, 64], Y: td.Out[M]):\n    Y[M] = 0.0", "capture/argument"),
    "a slice": ("def k(X: td.Tensor[M[0:2]], Y: td.Out[M]):\n    Y[M] = 0.0", "capture/outside"),
    "an ellipsis": ("def k(X: td.Tensor[...], Y: td.Out[M]):\n    Y[M] = 0.0", "capture/argument"),
    "a dimension twice": ("def k(X: td.Tensor[M, M], Y: td.Out[M]):\n    Y[M] = 0.0", "dims/twice"),
    "a scalar without dtype": ("def k(s: td.Scalar, Y: td.Out[M]):\n    Y[M] = s", "capture/signature"),
    "any keywords": ("def k(Y: td.Out[M], **named):\n    Y[M] = 0.0", "capture/signature"),
    "a coroutine": ("async def k(Y: td.Out[M]):\n    Y[M] = 0.0", "capture/unsupported"),
    "a generator": ("def k(Y: td.Out[M]):\n    Y[M] = 0.0\n    yield", "capture/unsupported"),
    "a class": ("class k:\n    pass", "capture/signature"),
    "nothing stored": ('def k(Y: td.Out[M]):\n    """Only words."""', "capture/no-effect"),
    "one Out of two stored": (
        "def k(X: td.Tensor[M], Y: td.Out[M], Z: td.Out[M]):\n    Y[M] = X[M]",
        "capture/no-effect",
    ),
    "stored elsewhere": ("def k(X: td.Tensor[M], Y: td.Out[M]):\n    X[M] = X[M] * 2", "capture/no-effect"),
    "an Out that is read": ("def k(X: td.Tensor[M], Y: td.Out[M]):\n    X[M] = Y[M]", "capture/no-effect"),
    "a name of an Out bound": (
        "def k(X: td.Tensor[M], Y: td.Out[M]):\n    Y = X[M]\n    X[M] = Y",
        "capture/no-effect",
    ),
    "an inlined kernel that never stores": (
        "@td.kernel\ndef helper(X: td.Tensor[M], A: td.Out[M] = None):\n    X[M] = 1.0\n@td.kernel\n"
        "def k(X: td.Tensor[M], Y: td.Out[M]):\n    Y[M] = helper(X)",
        "capture/no-effect",
    ),
    "no parameters": ("def k():\n    pass", "capture/no-effect"),
    "a wrapped function": (f"@logged\n{BODY}", "capture/signature"),
    "a cached function": (f"@functools.cache\n{BODY}", "capture/signature"),
    "a static method": (f"@staticmethod\n{BODY}", "capture/signature"),
    "a kernel": (f"@td.kernel\n{BODY}", "capture/signature"),
}
OPTIONS = {
    "no variants": ("variants=0", "capture/argument"),
    "variants of a word": ("variants='many'", "capture/argument"),
    "numerics of a word": ("numerics='fast'", "capture/argument"),
    "an unknown class of functions": ("numerics=td.Numerics(functions='quick')", "capture/argument"),
    "a repeatability of no name": ("numerics=td.Numerics(repeatable=True)", "capture/argument"),
}
RIGHT = {
    "plain": BODY,
    "a dtype of NumPy": "def k(X: td.Tensor[M, np.float32], Y: td.Out[M] = None):\n    Y[M] = X[M]",
    "a dtype by name": "def k(X: td.Tensor[M, 'f32'], Y: td.Out[M] = None):\n    Y[M] = X[M]",
    "quoted": "def k(X: 'td.Tensor[M]', Y: 'td.Out[M]' = None):\n    Y[M] = X[M]",
    "or None": "def k(X: td.Tensor[M], Z: td.Tensor[M] | None = None, Y: td.Out[M] | None = None):\n    Y[M] = X[M]",
    "positional only": "def k(X: td.Tensor[M], /, Y: td.Out[M] = None):\n    Y[M] = X[M]",
    "a name that hides another": "def k(N: td.Tensor[M], Y: td.Out[M] = None):\n    Y[M] = N[M]",
    "a store where a traced condition says": "def k(X: td.Tensor[M], Y: td.Out[M] = None):\n"
    "    for m in td.parallel(M.each):\n        if X[m] >= 0:\n            Y[m] = X[m]",
    "a second Out where a staged flag says": "def k(X: td.Tensor[M], Y: td.Out[M], Z: td.Out[M], *, z=True):\n"
    "    Y[M] = X[M]\n    if z:\n        Z[M] = X[M]",
    "a second Out by a helper": "def put(T, v):\n    T[M] = v\n@td.kernel\n"
    "def k(X: td.Tensor[M], Y: td.Out[M] = None, Z: td.Out[M] = None):\n    Y[M] = X[M]\n    put(Z, X[M])",
    "a list of dimensions": "def k(X: td.Tensor[[M]], Y: td.Out[M] = None):\n    Y[M] = X[M]",
    "other letters": "def k(größe: td.Tensor[M], Y: td.Out[M] = None):\n    Y[M] = größe[M]",
    "a wrapped helper": "@logged\ndef twice(x):\n    return x * 2\n@td.kernel\n"
    "def k(X: td.Tensor[M], Y: td.Out[M] = None):\n    Y[M] = twice(X[M]) / 2",
}


def define(text: str, option: str, future: bool) -> Any:
    """The kernel that the text defines."""
    first = "from __future__ import annotations\n" if future else ""
    decorated = text if "\n@td.kernel\n" in text else f"@td.kernel{f'({option})' if option else ''}\n{text}"
    whole = f"{first}{BEFORE}\n{decorated}\n"
    file = f"<definition {abs(hash(whole))}>"
    linecache.cache[file] = (len(whole), None, whole.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": "user"}
    exec(compile(whole, file, "exec", dont_inherit=True), space)
    space["k"].definition.capture()
    return space["k"]


@pytest.mark.parametrize("future", [False, True], ids=["objects", "texts"])
@pytest.mark.parametrize("name", [*WRONG, *OPTIONS])
def test_wrong(name: str, future: bool, snapshot: Any) -> None:
    text, option, code = (*WRONG[name][:1], "", WRONG[name][1]) if name in WRONG else (BODY, *OPTIONS[name])
    with pytest.raises(TreadleError) as caught:
        define(text, option, future)
    assert caught.value.code == code, str(caught.value)
    assert caught.value.span is not None and caught.value.span.file.startswith("<definition ")
    shown = re.sub(r"<definition \d+>:\d+", "FILE", str(caught.value))
    shown = re.sub(r"(?m)^ +(\d+)?(?= \| )", "   LINE", shown)
    assert shown == snapshot


@pytest.mark.parametrize("future", [False, True], ids=["objects", "texts"])
@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str, future: bool) -> None:
    x = np.arange(5, dtype=np.float32)
    got = define(RIGHT[name], "", future).reference(x)
    assert all(np.array_equal(y, x) for y in (got if isinstance(got, tuple) else (got,)))
