"""What to write instead: of habits from NumPy, torch or Triton, and of forms of Python that kernels lack.

The exception of a habit is Python's own (`'Tile' object has no attribute 'astype'`); its text is matched here, so that
the names of the language stay free of methods that only refuse.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from types import ModuleType
from typing import Any

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

_FORMS: dict[str, tuple[str, str]] = {
    "Try": ("a try statement", "values raise nothing in a kernel: select with td.where, or state td.check"),
    "TryStar": ("a try statement", "values raise nothing in a kernel: select with td.where, or state td.check"),
    "With": ("a with statement", "enter the context around the call of the kernel"),
    "Match": ("a match statement", "write it as if and elif on the staged value"),
    "Global": ("a global statement", "pass the value as a keyword-only parameter, and store results into a td.Out"),
    "Nonlocal": ("a nonlocal statement", "return the new value from the inner function and assign it outside"),
    "Delete": ("a del statement", "leave it out: names of a kernel need no deleting"),
    "ClassDef": ("a class definition", "define the class in the module, for example as a dataclass of tiles"),
    "AsyncFunctionDef": ("an async function", "define a plain function: a kernel has nothing to wait for"),
    "AsyncFor": ("an async for", "iterate over a region, or over a Python iterable"),
    "AsyncWith": ("an async with", "enter the context around the call of the kernel"),
    "Await": ("await", "wait before the kernel is called"),
    "Yield": ("yield", "return a list"),
    "YieldFrom": ("yield from", "return a list"),
    "Raise": ("raise without an exception", "name the exception to raise, or state td.check"),
    "decorator": (
        "a decorator inside a kernel",
        "define the decorated function in the module, or leave the decorator out",
    ),
    "orelse": ("an else of a region", "write the statements after the region: regions run to their end"),
}


def unsupported(form: str) -> tuple[str, str]:
    """A form of Python that kernels do not have, in words, and what to write instead."""
    return _FORMS.get(form, (f"Python's {form}", "move it out of the kernel, into code that runs before it is defined"))


_BUILTINS = {
    "min": "write td.minimum(x, y) for two values, x.min(N) along a dimension",
    "max": "write td.maximum(x, y) for two values, x.max(N) along a dimension",
    "any": "combine values by |, or fold a tile: x.any(N)",
    "all": "combine values by &, or fold a tile: x.all(N)",
    "sorted": "write td.sort(x, N)",
    "filter": "select with td.where: which elements there are is not known at capture",
    "bool": "compare: x != 0",
    "int": "write x.to(td.i64); a staged number is a keyword-only parameter",
    "float": "write x.to(td.f32); a staged number is a keyword-only parameter",
    "complex": "keep real and imaginary parts in two tiles",
    "len": "extents belong to dimensions: N.extent",
    "range": "write a region for a traced count: for i in td.serial(n)",
    "list": "compute with whole tiles, or iterate over a dimension: for n in td.serial(N.each)",
    "tuple": "compute with whole tiles, or iterate over a dimension: for n in td.serial(N.each)",
    "sum": "sum a tile along a dimension: x.sum(N)",
    "round": "write td.round(x)",
    "divmod": "write x // y and x % y",
}


def builtin_advice(name: str) -> str | None:
    """What to write instead of a built-in function that needs what a traced value does not have."""
    return _BUILTINS.get(name)


def advice(error: Exception) -> str | None:
    """What to write instead, or None for an exception that is no known habit."""
    text = str(error)
    known = next((hint for pattern, hint in _ADVICE if re.search(pattern, text)), None)
    return known or _spelling(error)


def _spelling(error: Exception) -> str | None:
    """The nearest name of the language, where the exception is of one that it does not have."""
    if not isinstance(error, AttributeError) or not error.name:
        return None
    of: Any = error.obj
    home = of.__name__ if isinstance(of, ModuleType) else type(of).__module__
    if home.partition(".")[0] != "treadle":
        return None
    near = get_close_matches(error.name, [name for name in dir(of) if not name.startswith("_")], 1)
    return f"perhaps {near[0]} is meant" if near else None
