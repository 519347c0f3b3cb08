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
CUDA_TYPES = {
    "f32": "float",
    "f64": "double",
    "i32": "int",
    "u32": "unsigned int",
    "i64": "long long",
    "u64": "unsigned long long",
}
"""The types of operands and results in texts of CUDA C++."""
PREFIX = "user_"
"""What the name of an intrinsic begins with: one named like a function of ours would be taken for that one."""


@dataclass(eq=False, repr=False)
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

    def __repr__(self) -> str:
        return self.name

    @property
    def result(self) -> DType:
        """The dtype of what it gives."""
        return self.body.yields[0].type.dtype

    def text(self, target: str) -> str | None:
        """The emission for a target: that of its level, `cuda:sm_90a`, else that of its kind, `cuda`."""
        return self.emit.get(target, self.emit.get(target.partition(":")[0]))

    def first_line(self, target: str) -> str:
        """The first line of the emission for a target."""
        return next(iter((self.text(target) or "").strip().splitlines()), "")

    def wrong_text(self) -> tuple[str, str] | None:
        """What a text defines, and what it should, where they differ.

        LLVM compiles a call by other types without a word; C++ converts, and loses what does not fit. A C++ text that
        is not plainly a function of scalars is left to its compiler.
        """
        types = [_LLVM.get(p.type.dtype.name, "none") for p in self.params]
        want = f"define {_LLVM.get(self.result.name, 'none')} @{self.symbol}({', '.join(types)})"
        for target, text in self.emit.items():
            if target.partition(":")[0] == "cpu" and (have := _definition(text, self.symbol)) != want:
                return f"{have} in the text for {target}", want
        kinds = tuple(CUDA_TYPES.get(t.name, "none") for t in (self.result, *(p.type.dtype for p in self.params)))
        for target, text in self.emit.items():
            found = _signature(text, self.symbol) if target.partition(":")[0] == "cuda" else None
            if found is not None and found != kinds:
                return f"{_prototype(self.symbol, found)} in the text for {target}", _prototype(self.symbol, kinds)
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


def _prototype(symbol: str, types: tuple[str, ...]) -> str:
    return f"{types[0]} {symbol}({', '.join(types[1:])})"


_C_WORDS = frozenset(
    "const volatile static inline constexpr extern __device__ __host__ __forceinline__ __inline__ __noinline__".split()
)
_C_NAMES = {
    "float": "float",
    "double": "double",
    "int": "int",
    "signed": "int",
    "int32_t": "int",
    "unsigned": "unsigned int",
    "uint32_t": "unsigned int",
    "long long": "long long",
    "long": "long long",
    "int64_t": "long long",
    "unsigned long long": "unsigned long long",
    "unsigned long": "unsigned long long",
    "uint64_t": "unsigned long long",
    "short": "short",
    "char": "char",
    "bool": "bool",
}


def _signature(text: str, symbol: str) -> tuple[str, ...] | None:
    """The scalar types of the result and the parameters of the one C++ function `symbol`; None where they are not
    plain."""
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    found = re.findall(rf"([\w\s]*?)\b{symbol}\s*\(([\w\s,]*)\)\s*\{{", bare)
    if len(found) != 1 or "template" in bare:
        return None
    result, params = found[0]
    parts = [p for p in params.split(",") if p.strip()]
    types = [_plain_type(result), *(_plain_type(p, named=True) for p in parts)]
    return tuple(t for t in types if t is not None) if None not in types else None


def _plain_type(words: str, *, named: bool = False) -> str | None:
    """The type that words of C++ name, a parameter's name behind it left aside."""
    kept = [w for w in words.split() if w not in _C_WORDS]
    if named and len(kept) > 1 and kept[-1] not in _C_NAMES:
        kept = kept[:-1]
    if len(kept) > 1:  # `unsigned int`, `long long int`, `signed long`
        kept = [w for w in kept if w not in ("int", "signed")] or ["int"]
    return _C_NAMES.get(" ".join(sorted(kept, key=lambda w: w != "unsigned")))


@dataclass(eq=False, kw_only=True)
class Intrinsic(Elementwise):
    """A pointwise function of the user; `fn` is the name of its `meaning`."""

    keyword: ClassVar[str] = "intrinsic"
    meaning: Meaning
