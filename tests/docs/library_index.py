"""The index of the library, made from the docstrings.

`python -m tests.docs.library_index` writes docs/library/index.md.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from treadle.driver.kernel import Kernel
from treadle.lib import CONTENTS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "library"
HEAD = """# The library

`treadle.lib` is written in the language, without any arithmetic outside it: read an operator as an example, copy it,
change it. This page is made from the docstrings by `python -m tests.docs.library_index`.

Every operator takes NumPy arrays (or torch and CuPy arrays of a GPU) of any strides; outputs come last and may be left
out where nothing says "passed". What is computed is f32, f64 where an operand is f64; a result that is left
out has that dtype, one that is passed gets each element rounded once. `kernel.reference(...)` runs the reference
interpreter, `kernel.sanitize(...)` the checked one, on the same arguments. Parameters behind `*` are staged: a kernel
is specialised for each value of them. [library_training.py](../../examples/library_training.py) trains a classifier
with nothing else.
"""


def summary(text: str) -> str:
    """The first sentence of a docstring, on one line, without `|`, which ends a cell."""
    first = " ".join(text.split("\n\n")[0].split())
    first = re.split(r"(?<=[.)`]) (?=\*(?:Source|Shapes|Requires|Errors)\*)", first)[0]
    return first.replace("|", "\\|")


def described(chapter: str, name: str) -> tuple[str, str]:
    """An operator as it is called, and what it does."""
    found = getattr(importlib.import_module(f"treadle.lib.{chapter}"), name)
    fn = found.definition.fn if isinstance(found, Kernel) else found
    parts: list[str] = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default = getattr(p.default, "__name__", repr(p.default))
        parts.append(p.name if p.default in (inspect.Parameter.empty, None) else f"{p.name}={default}")
    return f"`{name}({', '.join(parts)})`", summary(inspect.getdoc(fn) or "")


def index() -> str:
    """The text of docs/library/index.md."""
    out = [HEAD]
    for chapter, names in CONTENTS.items():
        text = inspect.getdoc(importlib.import_module(f"treadle.lib.{chapter}")) or ""
        title, _, rest = text.partition("\n\n")
        page = FOLDER / f"{chapter}.md"
        example = f" [Examples]({page.name})." if page.exists() else ""
        out += [
            f"## {chapter}\n",
            f"{' '.join(title.split())} [Source](../../src/treadle/lib/{chapter}.py).{example}\n",
        ]
        if rest:
            out.append(f"{rest}\n")
        out += ["| operator | what it does |", "|---|---|"]
        out += [f"| {call} | {what} |" for call, what in (described(chapter, n) for n in names)]
        out.append("")
    return "\n".join(out)


if __name__ == "__main__":
    (FOLDER / "index.md").write_text(index())
