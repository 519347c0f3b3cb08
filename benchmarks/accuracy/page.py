"""Writes the generated parts of docs/numerics.md: `python -m benchmarks.accuracy.page`, or `--check` to compare only.

Formats and promotion come from `treadle.dtype`, the accuracy of functions from the newest results beside this folder.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from treadle.base.errors import UserError
from treadle.dtype import promote as rules
from treadle.dtype.formats import ALL, DType
from treadle.math.table import FUNCTIONS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "numerics.md"
ARITHMETIC = [d for d in ALL if d.has_arithmetic]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def code(x: object) -> str:
    """In the type of code."""
    return f"`{x}`"


def asked(rule: Callable[[], DType]) -> str:
    """The dtype that a rule gives, or the code of its error."""
    try:
        return str(rule())
    except UserError as error:
        return code(error.code)


def formats() -> str:
    """What each dtype holds."""
    rows: list[list[str]] = []
    for d in ALL:
        special = [w for w, has in (("inf", d.has_inf), ("NaN", d.has_nan)) if has] if d.is_float else []
        special += ["no zero"] if d.is_float and not d.has_zero else []
        bits = f"{d.exponent} + {d.mantissa}" if d.is_float else ""
        low = f"{d.smallest:.6g}" if d.is_float else str(d.finite_min)
        high = f"{d.finite_max:.6g}" if d.is_float else str(d.finite_max)
        held = "two to a byte, low bits first" if d.packed else f"{d.itemsize} B"
        rows.append([code(d), bits, low, high, ", ".join(special), held, "yes" if d.has_arithmetic else "`mma`, `.to`"])
    return table(["dtype", "exponent + mantissa", "smallest", "largest", "special", "in memory", "arithmetic"], rows)


def promotion() -> str:
    """The dtype of an operation on each pair, on each dtype and a Python number, and of what is derived."""
    head = ["", *(code(d) for d in ARITHMETIC), "Python int", "Python float"]
    rows: list[list[str]] = []
    for a in ARITHMETIC:
        row = [asked(lambda a=a, b=b: rules.promote(a, b)) for b in ARITHMETIC]
        weak = [asked(lambda a=a, w=w: rules.promote_weak(a, w)) for w in (1, 1.0)]
        rows.append([f"**{code(a)}**", *row, *weak])
    return table(head, rows).replace("`dtype/no-common`", "mistake")


def derived() -> str:
    """The dtype of operations on one dtype."""
    rows = [
        [
            code(a),
            *(str(rule(a)) for rule in (rules.division, rules.function, rules.total, rules.average, rules.computing)),
        ]
        for a in ARITHMETIC
    ]
    return table(["dtype", "`/`", "functions", "`sum`, `prod`", "`mean`, `var`", "computed in"], rows)


def results() -> dict[str, Any]:
    """The newest measurement."""
    newest = sorted((ROOT / "benchmarks" / "results").glob("*-accuracy.json"))[-1]
    return {"file": newest.name, **json.loads(newest.read_text())}


def accuracy() -> str:
    """The largest errors, in ulp of the dtype; of 16-bit floats also how many arguments are not rounded to nearest."""
    known = results()
    measured = known["measured"]

    def error(d: str, name: str, kind: str, stated: float | None = None) -> str:
        found = measured[d].get(name, {}).get(kind)
        bound = "" if stated is None else f" (<= {stated})"
        return "" if found is None else f"{found['ulp']:.3f}{bound}"

    def rounded(d: str, name: str) -> str:
        found = measured[d].get(name, {}).get("2ulp")
        return "" if found is None else f"{found['ulp']:.4f} ({found['not_nearest']})"

    rows: list[list[str]] = []
    for name, row in FUNCTIONS.items():
        fast = (
            "as `2ulp`"
            if row.classes["fast"] is row.classes["2ulp"]
            else error("f32", name, "fast", row.classes["fast"].ulp)
        )
        exact = "" if row.wide is None else error("f32", name, "exact")
        near = ", ".join(f"<= {e.ulp}" for e in row.hardware.values())
        picked = error("f32", name, "picked", row.picked.ulp if row.picked else None)
        wide = error("f64", name, "2ulp", row.wide.ulp if row.wide else None)
        small = [rounded(d, name) for d in ("f16", "bf16")]
        precise = error("f32", name, "2ulp", row.classes["2ulp"].ulp)
        rows.append([code(name), precise, fast, exact, picked, near, wide, *small])
    head = ["function", "f32 `2ulp`", "f32 `fast`", "f32 `exact`, `storage`", "f32 on CPUs", "f32 on `sm_90a`"]
    head += ["f64", "f16", "bf16"]
    samples = f"2^{known['samples']} seeded arguments of f32 and 2^{known['samples'] - 6} of f64 a function and class"
    text = f"Measured ([results](../benchmarks/results/{known['file']})): {samples}, every argument of f16 and bf16"
    return f"{text}, the worst by mpmath.\n\n{table(head, rows)}"


PARTS: dict[str, Callable[[], str]] = {
    "formats": formats,
    "promotion": promotion,
    "derived dtypes": derived,
    "accuracy": accuracy,
}
_PART = r"(<!-- generated: {0} -->\n).*?(\n<!-- end of {0} -->)"


def written(text: str) -> str:
    """The page with its generated parts as they must be."""
    for name, make in PARTS.items():
        made = make()
        text, count = re.subn(_PART.format(name), lambda m, made=made: m[1] + made + m[2], text, flags=re.S)
        assert count == 1, f"docs/numerics.md has no part {name!r}"
    return text


def main() -> int:
    """Writes the page, or tells whether it is up to date."""
    old = PAGE.read_text()
    new = written(old)
    if "--check" in sys.argv:
        return int(old != new)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
