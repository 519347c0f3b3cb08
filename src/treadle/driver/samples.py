"""Random arguments for a program: small integers, so that sums are exact in any order; indices within range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treadle.dtype.formats import DType
from treadle.ir.core import Program
from treadle.ir.ops.access import Store
from treadle.runtime.memory import empty

PRIMES = (17, 23, 29, 11, 13, 19, 7, 31)
"""Default extents, one a dimension: no block size divides them."""


def default_extents(program: Program, given: Mapping[str, int]) -> dict[str, int]:
    """An extent for every dimension symbol: given ones, `td.let`s, and small primes."""
    found = dict(given)
    symbols = [s for d in program.dims for s in sorted(d.extent.symbols)]
    free = [s for s in dict.fromkeys(symbols) if s not in found and s not in program.lets]
    found |= dict(zip(free, PRIMES * (1 + len(free) // len(PRIMES)), strict=False))
    for name, expr in program.lets.items():
        if expr.symbols <= found.keys():
            found[name] = int(expr.evaluate(found))
    return found


def arguments(program: Program, extents: Mapping[str, int], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by tensor name (outputs poisoned, unless something is merged into them; hidden ones cleared) and scalars
    by name.

    Floats are small integers; integers are non-negative and below every extent, so that they can be indices: along a
    rank-1 integer tensor they never decrease, so that they can be offsets.
    """
    random = np.random.default_rng(seed)
    least = max(1, min((n for n in extents.values() if n > 0), default=1))
    arrays: dict[str, Any] = {}
    merged = {op.tensor.name for op in program.body.walk() if isinstance(op, Store) and op.effect != "set"}
    for tensor in program.tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in tensor.dims)
        array = empty(shape, tensor.dtype.name)
        if tensor.hidden:
            array[...] = 0
        elif tensor.out and tensor.name not in merged:
            array[...] = poison(tensor.dtype)
        elif tensor.dtype.is_float:
            array[...] = random.integers(-4, 5, shape).astype(tensor.dtype.numpy)
        else:
            values = random.integers(0, min(least, int(tensor.dtype.finite_max) + 1), shape)
            array[...] = (np.sort(values) if len(shape) == 1 else values).astype(tensor.dtype.numpy)
        arrays[tensor.name] = array
    scalars = {s.name: int(random.integers(1, 5)) for s in program.scalars}
    return arrays, scalars


def poison(dtype: DType) -> Any:
    """A value that no kernel is likely to store."""
    return np.nan if dtype.is_float else True if dtype.is_bool else dtype.finite_max
