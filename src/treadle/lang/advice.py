"""What to write instead of a habit from NumPy, torch or Triton that raised a Python exception at capture.

The exception is Python's own (`'Tile' object has no attribute 'astype'`); its text is matched here, so that the names
of the language stay free of methods that only refuse.
"""

from __future__ import annotations

import re

_OBJECT = r"'(Tile|TensorRef|PartRef|Dimension|Block)' object has no attribute "

_ADVICE: tuple[tuple[str, str], ...] = (
    (_OBJECT + r"'astype'", "write x.to(td.f32)"),
    (
        _OBJECT + r"'(view|reinterpret)'",
        "write x.bitcast(dtype) for the same bits; axes are not reshaped, td.product joins",
    ),
    (_OBJECT + r"'(shape|size|ndim)'", "extents belong to dimensions: M.extent"),
    (
        _OBJECT + r"'(T|mT|transpose|permute|swapaxes)'",
        "axes match by dimension, so a transpose needs nothing: Y[n, m] = x",
    ),
    (
        _OBJECT + r"'(reshape|squeeze|unsqueeze|expand|broadcast_to|ravel|flatten)'",
        "axes match by dimension and a missing one broadcasts; td.product(A, B) names two axes as one",
    ),
    (_OBJECT + r"'std'", "write td.sqrt(x.var(N))"),
    (
        r"unexpected keyword argument '(axis|dim|keepdims|keepdim)'",
        "name the dimension: x.sum(N); the result broadcasts",
    ),
    (
        r"'(Dimension|PartRef)' object cannot be interpreted as an integer",
        "for a loop write td.parallel(M), td.serial(M) or td.reduce(M); for a number M.extent",
    ),
    (r"object of type '(Dimension|PartRef)' has no len", "write M.extent"),
    (r"treadle has no '(arange|iota|range)'", "a dimension, or a block of it, is its coordinates: m.coords"),
    (r"treadle has no '(softmax|log_softmax|layer_norm|layernorm|rms_norm)'", "compose it: see docs/language.md"),
    (r"treadle has no '(program_id|num_programs|cdiv)'", "a region gives the instances: for m in td.parallel(M)"),
    (r"treadle has no 'store'", "write Y[m, n] = value"),
    (r"treadle has no '(sum|max|min|prod|mean|var|any|all|argmax|argmin)'", "it is a method of tiles: x.sum(N)"),
    (r"treadle has no '(matmul|tensordot)'", "write td.mma(a, b, acc), td.dot(a, b, over=K) or a @ b"),
)


def advice(error: Exception) -> str | None:
    """What to write instead, or None for an exception that is no known habit."""
    text = str(error)
    return next((hint for pattern, hint in _ADVICE if re.search(pattern, text)), None)
