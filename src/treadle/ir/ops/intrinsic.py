"""Operations of the user's own: a pointwise function, its meaning as a block, and texts that emitters put in its place.

Everybody between capture and emission treats it as a function of its operands of which nothing is known but that equal
operands give equal results. That a text computes what the meaning says, to the accuracy declared, is the author's word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from treadle.dtype.formats import DType
from treadle.ir.core import Block, Value
from treadle.ir.ops.elementwise import Elementwise

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


@dataclass(eq=False, kw_only=True)
class Intrinsic(Elementwise):
    """A pointwise function of the user; `fn` is the name of its `meaning`."""

    keyword: ClassVar[str] = "intrinsic"
    meaning: Meaning
