"""The device functions that emitted text calls: one is one instruction, or the exact meaning of one operation.

`Prelude` collects those that a text uses, so that a small kernel stays a small text. None of them knows an operator.
Their texts are in chapters, the files `parts_*`.
"""

from __future__ import annotations

from treadle.ir.ops.intrinsic import Meaning
from treadle.targets.cuda.emit import parts_memory, parts_numbers, parts_operations, parts_products

HEAD = """#pragma nv_diag_suppress 177, 550
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define DEVICE __device__ __forceinline__
"""

_CHAPTERS = (parts_numbers, parts_operations, parts_memory, parts_products)
_PARTS = {name: part for chapter in _CHAPTERS for name, part in chapter.PARTS.known.items()}
assert len(_PARTS) == sum(len(chapter.PARTS.known) for chapter in _CHAPTERS)


class Prelude:
    """The parts that a text uses, in the order in which they must stand; `own` holds generated functions."""

    def __init__(self) -> None:
        self.parts: dict[str, None] = {}
        self.own: dict[str, str] = {}
        self.intrinsics: dict[str, Meaning] = {}  # operations of the user's own

    def use(self, name: str) -> str:
        """Has the part in the text; returns its name."""
        if name not in self.parts:
            for need in _PARTS[name][1]:
                self.use(need)
            self.parts[name] = None
        return name

    def define(self, name: str, text: str) -> str:
        """Has a generated function in the text; returns its name."""
        self.own.setdefault(name, text)
        return name

    def scan(self, text: str) -> None:
        """Has those parts in the text whose names occur in it."""
        for name in ("least", "most", "floor_div", "floor_mod", "held_add", "held_sub", "held_times", "shared_address"):
            if f"{name}(" in text:
                self.use(name)

    def text(self) -> str:
        """All of it, the typedefs first."""
        return HEAD + "".join(_PARTS[name][0] for name in self.parts) + "".join(self.own.values())
