"""Operations that show or test values and change no result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from treadle.ir.core import Op, Value


@dataclass(eq=False, kw_only=True)
class Print(Op):
    """Shows a tile with its coordinates where `where` holds."""

    keyword: ClassVar[str] = "print"
    label: str
    value: Value
    where: Value | None = None

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.value, *(() if self.where is None else (self.where,)))


@dataclass(eq=False, kw_only=True)
class Check(Op):
    """Raises after the launch, with `message`, when an element of `cond` is false."""

    keyword: ClassVar[str] = "check"
    cond: Value
    message: str

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.cond,)
