"""The reference of the language, made from the docstrings.

`python -m tests.docs.language_reference` writes docs/reference.md.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import treadle as td
from treadle.dtype.formats import DType
from treadle.lang.dims import Dimension, PartRef
from treadle.lang.functions import ORDER_MEANING
from treadle.lang.operators import Operators
from treadle.lang.subscript import TensorRef
from treadle.lang.tile import Tile

FILE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
HEAD = """# Reference

Every public name, from its docstring; made by `python -m tests.docs.language_reference`.
[The language](language.md) is the page to read first, [semantics](semantics.md) says what programs mean,
[numerics](numerics.md) what rounding does. Codes in docstrings are those of [the error pages](errors).
"""

SLICE = f"| `[start:stop]` | {(inspect.getdoc(PartRef.__getitem__) or '').splitlines()[0]} |"

CHAPTERS: dict[str, tuple[str, ...]] = {
    "Kernels": ("kernel", "Kernel", "Launch", "Plan", "load", "like", "Numerics", "rewrite", "graph", "set_workers"),
    "Dimensions and parameters": ("dims", "Dimension", "product", "let", "require", "Tensor", "Out", "Scalar"),
    "Regions": ("parallel", "serial", "pipeline", "reduce", "stage", "unordered", "ordered", "fold_left", "fold_right"),
    "Tiles": ("Tile", "zeros", "full", "empty", "where", "in_range", "memory", "Memory"),
    "Contractions": ("mma", "dot", "einsum"),
    "Folds, scans, sorting": (
        *("Monoid", "fold", "scan", "sort", "argsort", "topk"),
        *("Add", "Mul", "Max", "Min", "And", "Or", "Xor"),
    ),
    "Functions": (
        *("abs", "ceil", "cos", "erf", "exp", "exp2", "expm1", "floor", "isinf", "isnan", "log", "log1p", "log2"),
        *("maximum", "minimum", "pow", "round", "rsqrt", "sin", "sqrt", "tanh", "trunc"),
        *("gelu", "relu", "sigmoid", "silu", "softplus"),
    ),
    "Random numbers": ("uniform", "normal", "bits"),
    "Looking inside": ("print", "check"),
    "Pins of a plan": ("tile", "place", "atom", "versions"),
    "Intrinsics": ("intrinsic", "Intrinsic"),
    "Errors": ("TreadleError", "UserError", "LimitError", "InternalError"),
}


def public() -> set[str]:
    """The names that `dir(treadle)` offers, dtypes aside."""
    return {n for n in dir(td) if not n.startswith("_") and not isinstance(getattr(td, n), DType)} - {"Definition"}


def signature(name: str, value: Any) -> str:
    """A name as it is called; bare for what is not called."""
    if not callable(value) or isinstance(value, DType):
        return name
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parts: list[str] = []
    for p in found.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts and not any(x.startswith("*") for x in parts):
            parts.append("*")
        star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = p.default
        shown = getattr(default, "__name__", None) or repr(default)
        parts.append(f"{star}{p.name}" + ("" if default is inspect.Parameter.empty else f"={shown}"))
    return f"{name}({', '.join(parts)})"


def described(name: str, value: Any, prefix: str = "td.") -> list[str]:
    """The entry of one name."""
    text = ORDER_MEANING[value] if isinstance(value, str) else inspect.getdoc(value) or ""
    return [f"### `{prefix}{signature(name, value)}`\n", f"{text}\n"]


def methods(cls: type) -> list[str]:
    """What a class's public methods and properties say, one line each."""
    rows = ["| | |", "|---|---|"]
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_"):
            continue
        member = value.fget if isinstance(value, property) else value
        doc = inspect.getdoc(member) or ""
        if not callable(member) or not doc:
            continue
        call = name if isinstance(value, property) else signature(name, member)
        first = re.split(r"(?<=[.)`]) (?=\*[A-Z])", " ".join(doc.split("\n\n")[0].split()))[0]
        rows.append(f"| `.{call}` | {first.replace('|', chr(92) + '|')} |")
    return [*rows, ""]


def reference() -> str:
    """The text of docs/reference.md."""
    out = [HEAD]
    for title, names in CHAPTERS.items():
        out.append(f"## {title}\n")
        for name in names:
            out += described(name, getattr(td, name))
            if name in ("Kernel", "Launch", "Plan"):
                out += methods(getattr(td, name))
            if name == "Tile":
                out += [*methods(Operators)[:-1], *methods(Tile)[2:]]
            if name == "Dimension":
                out += ["It, and its parts and blocks (slices `N[a:b]`, `N.by(b)`, arguments of regions) have:\n"]
                out += [*methods(PartRef)[:-1], *methods(Dimension)[2:-1], SLICE, ""]
            if name == "Tensor":
                out += ["In a kernel a parameter of this kind has:\n", *methods(TensorRef)]
    dtypes = sorted((n for n in dir(td) if isinstance(getattr(td, n), DType)), key=lambda n: (getattr(td, n).bits, n))
    out.append("## dtypes\n")
    out.append(", ".join(f"`td.{n}`" for n in dtypes) + ".\n")
    return "\n".join(line.rstrip() for line in "\n".join(out).splitlines()) + "\n"


if __name__ == "__main__":
    FILE.write_text(reference())
