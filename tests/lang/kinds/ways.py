"""One kernel, three ways: the reference interpreter, the checked one, an ordinary call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
RNG = np.random.default_rng(11)
UNIT = 2.0**-24
"""Half an ulp of 1 in f32: the relative error of one operation."""


def ints(*shape: int, low: int = -4, high: int = 5, dtype: Any = np.float32) -> Array:
    """Small integers: sums of them are exact in any order."""
    return RNG.integers(low, high, shape).astype(dtype)


def reals(*shape: int) -> Array:
    """Numbers between -1 and 1."""
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def framed(array: Array, by: int = 2) -> Array:
    """The array as a view inside NaN (the highest value, of integers): what must not be looked at."""
    outside = np.nan if array.dtype.kind == "f" else (array.dtype.kind == "b" or np.iinfo(array.dtype).max)
    around = np.full(tuple(n + 2 * by for n in array.shape), outside, array.dtype)
    inner = around[tuple(slice(by, by + n) for n in array.shape)]
    inner[...] = array
    return inner


def listed(found: Any) -> list[Array]:
    """One result, or several, as a list."""
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def agrees(
    kernel: Any,
    *args: Any,
    wants: Any,
    bound: Any = None,
    called: bool = True,
    copied: Callable[[], tuple[Any, ...]] | None = None,
    **staged: Any,
) -> None:
    """Every way of running gives what is wanted: equal values, or each element within `bound` (an array, or one a
    result), which a test derives. `copied` makes arguments anew for each way, where the kernel writes to some."""
    ways = [("reference", kernel.reference)] + ([("call", kernel)] if called else [])
    for name, run in ways:
        given = args if copied is None else copied()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = listed(run(*given, **staged))
        bounds = listed(bound) if isinstance(bound, tuple) else [bound] * len(found)
        for mine, wanted, most in zip(found, listed(wants), bounds, strict=True):
            assert mine.shape == wanted.shape, (name, mine.shape, wanted.shape)
            if most is None:
                np.testing.assert_array_equal(mine, wanted, err_msg=name)
            else:
                off = np.abs(mine.astype(np.float64) - wanted)
                assert (off <= most).all(), f"{name}: {off.max()} beyond {np.max(most)}"
    findings = kernel.sanitize(*(args if copied is None else copied()), **staged)
    assert not findings, [str(f) for f in findings]
