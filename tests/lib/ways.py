"""Every operator is run the same ways: called (planned, judged, compiled) and by the reference interpreter.

`run` compares all of them with what is wanted: equal where that is an array, within its bound where it is a `Num`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tests.lib.rounding import Num

from treadle.driver.kernel import Kernel

Array = NDArray[Any]
F32, F64, BF16, F16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
I32 = np.dtype(np.int32)


WAITS: set[str] = set()
"""Kernels that some plans leave to the interpreter (docs/library/index.md): called all the same, and right."""


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def whole(r: np.random.Generator, *shape: int, most: int = 3, dtype: Any = F32) -> Array:
    """Small integers, whose products and sums are exact in f32."""
    return r.integers(-most, most + 1, shape).astype(dtype)


def reals(r: np.random.Generator, *shape: int, dtype: Any = F32, scale: float = 1.0) -> Array:
    return (r.standard_normal(shape) * scale).astype(dtype)


def compare(got: Any, want: Any, what: str = "") -> None:
    """`want`: an array or number, which must be equal (NaN to NaN), or a `Num`, with its bound."""
    if isinstance(want, Num):
        value = want.value
        assert got.shape == value.shape, f"{what}: shape {got.shape}, wanted {value.shape}"
        found = np.asarray(got).astype(np.float64)
        with np.errstate(invalid="ignore"):
            bad = np.abs(found - value) > want.bound
        bad |= np.isnan(found) != np.isnan(value)
        bad &= ~(np.isinf(value) & (found == value))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            bound = np.broadcast_to(want.bound, value.shape)[at]
            raise AssertionError(
                f"{what} at {at}: {found[at]!r}, wanted {value[at]!r} within {bound:.3g}; {bad.sum()} bad"
            )
        return
    want = np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, wanted {want.shape}"
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, what)
    else:
        np.testing.assert_array_equal(np.asarray(got).astype(np.float64), want.astype(np.float64), what)


_CALLED: set[str] = set()
SMALL = 400
"""Elements of arguments that the checked interpreter, which tries several cuts and orders, still takes quickly."""


def run(kernel: Kernel, *args: Any, want: Any, compiled: bool | None = None, **staged: Any) -> Any:
    """The kernel called and interpreted, both compared with `want` (a tuple for several Outs); gives the Outs.

    Making a plan takes a while: unless `compiled` says so, only a kernel's first case in a process is called, and the
    others are interpreted. The pages of the library call every kernel too. The first case is also sanitized, if it is
    small.
    A plan that is not verified, so that the call would run in the interpreter, is a failure, but for those that wait.
    """
    name = kernel.definition.name
    first = name not in _CALLED
    _CALLED.add(name)
    wants: Sequence[Any] = want if isinstance(want, tuple) else (want,)
    outs: Any = None
    if first and sum(np.size(a) for a in args) <= SMALL:
        clean(kernel, *args, **staged)
    for way in ("reference", "call") if (first if compiled is None else compiled) else ("reference",):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if name in WAITS else "error", RuntimeWarning)
            outs = kernel(*args, **staged) if way == "call" else kernel.reference(*args, **staged)
        got = outs if isinstance(outs, tuple) else (outs,)
        assert len(got) == len(wants)
        for i, (g, w) in enumerate(zip(got, wants, strict=True)):
            compare(g, w, f"{name}, {way}, output {i}")
    return outs


def clean(kernel: Kernel, *args: Any, **staged: Any) -> None:
    """The checked interpreter finds nothing."""
    findings = kernel.sanitize(*args, **staged)
    assert findings == [], findings
