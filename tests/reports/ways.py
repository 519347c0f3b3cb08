"""A kernel in every way that this machine has: reference and checked interpreter, ordinary and bound call."""

from __future__ import annotations

from typing import Any

import numpy as np


def everywhere(kernel: Any, *args: Any, **staged: Any) -> Any:
    """What the kernel returns. *Ensures*: the same bits in every way, no finding, inputs as they were, and
    plans that the judge verified for all calls (none in the interpreter)."""
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    assert kernel.sanitize(*args, **staged) == []
    expected = kernel.reference(*args, **staged)
    found = kernel(*args, **staged)
    again = kernel.bind(*args, **staged)()
    for one in (found, again):
        for a, b in zip(listed(expected), listed(one), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert same(a, b), f"{a} by the interpreter, {b} by the call"
    assert all(v.verdict["status"] == "verified" for v in kernel.variants), kernel.variants
    for now, old in zip(args, before, strict=True):
        if isinstance(now, np.ndarray):
            assert same(now, old)
    return expected


def listed(outs: Any) -> list[Any]:
    return list(outs) if isinstance(outs, tuple) else [outs]


def same(a: Any, b: Any) -> bool:
    """Equal elements; NaN is equal to NaN."""
    if a.dtype.kind in "iub?":
        return bool(np.array_equal(a, b))
    return bool(np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True))


def close(a: Any, b: Any, rtol: float) -> bool:
    """Within a relative bound that the caller derived; NaN and infinities where the other has them."""
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=rtol, equal_nan=True))
