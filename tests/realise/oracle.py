"""Arguments for the sample programs, and the comparison of a machine program with the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program

Arrays = dict[str, np.ndarray[Any, Any]]

EXTENTS: dict[str, list[dict[str, int]]] = {
    "mlp": [{"M": 9, "N": 11, "K": 7, "F": 21}],
    "conv": [{"B": 1, "H": 3, "W": 6, "C": 5, "O": 19}],
    "norm_linear": [{"M": 5, "N": 35, "K": 18}],
    "histogram": [{"T": 21, "V": 5}],
    "in_place": [{"M": 4, "N": 19}],
    "softmax": [{"M": 3, "N": 37}, {"M": 1, "N": 1}],
    "softmax_bf16": [{"M": 3, "N": 37}],
    "layernorm": [{"M": 3, "N": 21}],
    "linear": [{"M": 17, "N": 35, "K": 9}, {"M": 3, "N": 2, "K": 0}, {"M": 1, "N": 1, "K": 1}],
    "linear_bf16": [{"M": 15, "N": 33, "K": 9}],
    "linear_t": [{"M": 15, "N": 33, "K": 17}],
    "attention": [{"B": 1, "H": 2, "Q": 5, "S": 9}],
    "attention_f32_causal": [{"B": 1, "H": 1, "Q": 9, "S": 7}],
    "swiglu": [{"M": 15, "N": 33, "K": 5}],
    "embed": [{"T": 5, "V": 7, "D": 19}],
    "ragged": [{"B": 4, "T": 9, "D": 5}],
    "two_phases": [{"M": 5, "N": 7}],
    "recurrence": [{"T": 5, "D": 6}],
    "swap": [{"T": 5}],
    "branch": [{"M": 5, "N": 6}],
    "stencil": [{"H": 5, "W": 21}],
    "batched": [{"B": 2, "M": 15, "N": 33, "K": 5}],
    "pool": [{"M": 4, "A": 3, "C": 19}],
    "columns": [{"M": 5, "N": 37}],
}
"""Small extents: ragged, one, empty."""

INDEX_LIMIT = {"embed": "V", "ragged": "T", "histogram": "V"}
"""Programs whose integer arguments index a dimension."""


def arguments(name: str, program: Program, extents: Mapping[str, int], seed: int = 0) -> Arrays:
    """Random arguments: normal floats, integers that are valid indices."""
    rng = np.random.default_rng(seed)
    found: Arrays = {}
    for tensor in program.tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in tensor.dims)
        if tensor.dtype.is_int:
            limit = extents[INDEX_LIMIT[name]] if name in INDEX_LIMIT else 2
            data: Any = rng.integers(0, max(1, limit), shape)
        else:
            data = rng.standard_normal(shape)
        found[tensor.name] = np.ascontiguousarray(np.asarray(data).astype(tensor.dtype.numpy))
    return found


def expected(program: Program, arrays: Arrays, extents: Mapping[str, int]) -> Arrays:
    """What the reference interpreter makes of copies of the arguments."""
    copies = {name: a.copy() for name, a in arrays.items()}
    with np.errstate(all="ignore"):
        evaluate(program, copies, {}, extents=extents)
    return {t.name: copies[t.name] for t in program.tensors if t.out}


def assert_close(program: Program, found: Mapping[str, Any], wanted: Arrays) -> None:
    """Outputs agree: 16-bit floats within two units in the last place, f32 within reassociation."""
    for tensor in program.tensors:
        if tensor.out:
            bits = 2.0**-7 if tensor.dtype.bits == 16 else 1e-4
            a, b = (np.asarray(x).astype(np.float64) for x in (found[tensor.name], wanted[tensor.name]))
            np.testing.assert_allclose(a, b, rtol=2 * bits, atol=bits, equal_nan=True)


def agrees(name: str, program: Program, run: Callable[[Arrays], Mapping[str, Any]], extents: Mapping[str, int]) -> None:
    """`run` gives on random arguments what the reference interpreter gives."""
    arrays = arguments(name, program, extents)
    assert_close(program, run(arrays), expected(program, arrays, extents))
