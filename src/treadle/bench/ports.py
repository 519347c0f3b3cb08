"""The same cases as each library's users write them, in lines: how much of a port says what, and how much says how.

A *line* is one with code on it, in the body of the function that makes the port; docstrings and comments are none. An
*annotation* is a line that decides how and not what: a schedule of Halide, a pin or block size of ours.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treadle.bench.halide_peers import HALIDE
from treadle.bench.jax_peers import JAX
from treadle.bench.numpy_peers import NUMPY
from treadle.bench.onnx_peers import ONNX
from treadle.bench.torch_peers import WRITTEN

ANNOTATIONS: Mapping[str, str] = {
    "treadle": r"\.by\(|scope=|versions=|td\.memory\(|td\.stage\(",
    "halide": r"\.(tile|split|vectorize|parallel|unroll|reorder|compute_at|compute_root|store_at|hoist_storage)\(",
}


@dataclass(frozen=True)
class Port:
    """A case in a library: lines of code, and which of them are annotations (None where the library takes none)."""

    family: str
    library: str
    lines: int
    annotations: int | None


def count(library: str, family: str, function: Any) -> Port:
    """The lines of a port's function."""
    text = textwrap.dedent(inspect.getsource(function))
    kept = _code_lines(text)
    pattern = ANNOTATIONS.get(library)
    return Port(family, library, len(kept), None if pattern is None else sum(bool(re.search(pattern, x)) for x in kept))


def _code_lines(text: str) -> list[str]:
    """Lines of a function's body with code; all of a text that is part of an expression, such as a lambda's."""
    lines = text.splitlines()
    try:
        (node,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return [x for x in lines if _is_code(x)]
    if not isinstance(node, ast.FunctionDef):
        return [x for x in lines if _is_code(x)]
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    inner = body[0] if isinstance(body[0], ast.FunctionDef) and len(body) == 2 else None
    if inner is not None and isinstance(body[-1], ast.Return):  # a function made around the port
        return _code_lines(textwrap.dedent("\n".join(lines[inner.lineno - 1 : inner.end_lineno])))
    return [x for x in lines[body[0].lineno - 1 : node.end_lineno] if _is_code(x)]


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def ports(kernels: Mapping[str, Any]) -> list[Port]:
    """The ports of every family in `kernels` (family -> the treadle kernel)."""
    others: dict[str, Mapping[str, Callable[..., Any]]] = {
        "numpy": NUMPY,
        "torch": WRITTEN,
        "jax": {family: write for family, (_, write) in JAX.items()},
        "onnxruntime": ONNX,
        "halide": HALIDE,
    }
    found: list[Port] = []
    for family, kernel in kernels.items():
        found.append(count("treadle", family, kernel.definition.fn))
        found += [count(name, family, table[family]) for name, table in others.items() if family in table]
    return found


def table(found: list[Port]) -> str:
    """A row a family, a column a library: lines, and how many of them are annotations."""
    libraries = list(dict.fromkeys(p.library for p in found))
    rows = [f"{'lines (annotations)':<20}" + "".join(f"{name:>13}" for name in libraries)]
    for family in dict.fromkeys(p.family for p in found):
        cells = {p.library: p for p in found if p.family == family}
        told = [f"{_cell(cells.get(name)):>13}" for name in libraries]
        rows.append(f"{family:<20}" + "".join(told))
    return "\n".join(rows)


def _cell(port: Port | None) -> str:
    if port is None:
        return "-"
    return str(port.lines) if port.annotations is None else f"{port.lines} ({port.annotations})"
