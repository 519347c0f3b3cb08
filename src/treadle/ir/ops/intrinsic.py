"""Operations of the user's own: a pointwise function, its meaning as a block, and texts that emitters put in its place.

Everybody between capture and emission treats it as a function of its operands of which nothing is known but that equal
operands give equal results. That a text computes what the meaning says, to the accuracy declared, is the author's word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from treadle.dtype.formats import DType
from treadle.ir.core import Block, Value
from treadle.ir.ops.elementwise import Elementwise

_LLVM = {"f32": "float", "f64": "double", "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64"}
PREFIX = "user_"
"""What the name of an intrinsic begins with: one named like a function of ours would be taken for that one."""


@dataclass(eq=False)
class Meaning:
    """What an intrinsic computes: `body` yields one scalar from the scalars `params`, by pointwise operations alone.

    `name` is the function's name in programs and machine programs; `numerics` how far from `body` an emission may be;
    `emit` the text by target, of a function called `symbol`.
    """

    name: str
    symbol: str
    params: list[Value]
    body: Block
    numerics: str
    emit: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def result(self) -> DType:
        """The dtype of what it gives."""
        return self.body.yields[0].type.dtype

    def text(self, target: str) -> str | None:
        """The emission for a target: that of its level, `cuda:sm_90a`, else that of its kind, `cuda`."""
        return self.emit.get(target, self.emit.get(target.partition(":")[0]))

    def wrong_text(self) -> tuple[str, str] | None:
        """What an LLVM text defines, and what it should, where they differ: LLVM compiles a call by other types."""
        types = [_LLVM.get(p.type.dtype.name, "none") for p in self.params]
        want = f"define {_LLVM.get(self.result.name, 'none')} @{self.symbol}({', '.join(types)})"
        for target, text in self.emit.items():
            if target.partition(":")[0] == "cpu" and (have := _definition(text, self.symbol)) != want:
                return f"{have} in the text for {target}", want
        return None


def _definition(text: str, symbol: str) -> str:
    """The types of a function that an LLVM text defines, and its calling convention where it has one of its own."""
    bare = re.sub(r";[^\n]*", "", text)
    found = re.search(rf'\bdefine\b([^@{{}}]*)@(?:{symbol}|"{symbol}")\s*\(', bare)
    if found is None:
        return f"no definition of @{symbol}"
    params, level = [""], 0
    for c in bare[found.end() :]:
        level += (c in "([{<") - (c in ")]}>")
        if level < 0:
            break
        if c == "," and not level:
            params.append("")
        else:
            params[-1] += c
    words = found[1].split()
    odd = [w for w in words if w.endswith("cc") and w != "ccc"]
    types = [p.strip().partition(" ")[0] for p in params if p.strip()]
    return f"define {' '.join([*odd, *words[-1:]])} @{symbol}({', '.join(types)})"


@dataclass(eq=False, kw_only=True)
class Intrinsic(Elementwise):
    """A pointwise function of the user; `fn` is the name of its `meaning`."""

    keyword: ClassVar[str] = "intrinsic"
    meaning: Meaning
