"""The exact texts of mistakes that are made outside a kernel's body (the others are in test_wrong_programs)."""

from __future__ import annotations

import inspect
import re

import pytest

import treadle.lang.api as td
from treadle.base.errors import TreadleError
from treadle.base.source import shown_path
from treadle.dtype.formats import bf16, f32

M, N = td.dims("M N")


@td.kernel
def scaled(X: td.Tensor[M, N, bf16], Y: td.Out[M] = None, *, factor):
    Y[M] = X[M, N].sum(N) * factor


@td.kernel
def unrolled(X: td.Tensor[M, N], Y: td.Out[M] = None):
    Y[M] = X[M, range(N.extent)[0]]


def unannotated(X):
    return X


def from_text():
    space = {"td": td, "M": M}
    exec("def made(X: td.Tensor[M], Y: td.Out[M]):\n    Y[M] = X[M]", space)
    return space["made"]


TEXTS = {
    "capture/no-source": lambda: td.kernel(from_text()).capture(),
    "capture/signature": lambda: td.kernel(unannotated),
    "capture/staged": scaled.capture,
    "capture/staged unknown": lambda: scaled.capture({}, {"factor": 1, "colour": 2}),
    "capture/argument missing": lambda: scaled.capture({}, {"factor": 1}, set()),
    "capture/argument dimension": lambda: td.Tensor[M, 64],
    "capture/argument numerics": lambda: td.Numerics(functions="sloppy"),
    "capture/outside": lambda: M.extent,
    "dims/needs-extent": unrolled.capture,
    "dims/definition": lambda: td.dims("M, 1"),
    "dims/definition product": lambda: td.product(M),
    "dims/twice": lambda: td.Out[M, N, M],
    "dtype/argument": lambda: scaled.capture({"X": f32}, {"factor": 1}),
    "region/device": lambda: td.Tensor[M, N.device],
    "region/device product": lambda: td.product(M, N).device,
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name, snapshot):
    with pytest.raises(TreadleError) as caught:
        TEXTS[name]()
    assert caught.value.code == name.split()[0]
    lines = inspect.getsource(inspect.getmodule(from_text)).splitlines()
    shown = str(caught.value).replace(shown_path(__file__), "FILE")
    if caught.value.span is not None:
        assert caught.value.span.file == __file__ and caught.value.span.line <= len(lines)
    assert re.sub(r"(?m)(?<=FILE:)\d+|^( +)\d+(?= \| )", "LINE", shown) == snapshot
