"""`td.memory`: addressable storage with identity, owned by the scope that declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle.dtype.formats import DType
from treadle.lang.errors import BadArgument
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context

PLACES = ("global", "shared", "register", "tile")


@dataclass(eq=False)
class Memory:
    """Storage of a scope: `buffer[m, k] = tile` writes, `buffer[m, k]` reads a snapshot.

    Two names of one memory are the same storage, and so is the memory that a called function was given. What is in it
    is a tile, which regions carry like any other.
    """

    tile: Tile

    @property
    def dtype(self) -> DType:
        """The scalar format."""
        return self.tile.dtype

    @property
    def dims(self) -> tuple[Any, ...]:
        """The parts that are its axes."""
        return self.tile.dims

    def __getitem__(self, key: Any) -> Tile:
        return self.tile[key]

    def at(self, *subs: Any, fill: Any = None) -> Tile:
        """The subscripted elements; `fill` stands for those outside."""
        return self.tile.at(*subs, fill=fill)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tile[key] = value

    def __str__(self) -> str:
        return f"td.memory({self.tile.type})"

    __repr__ = __str__


def constraint(ctx: Context, name: str, value: Any, allowed: tuple[str, ...]) -> str | None:
    """A wish about storage as text. *Errors*: `capture/argument`."""
    if value is None:
        return None
    if isinstance(value, str) and (not allowed or value in allowed):
        return value
    raise BadArgument(
        doing="making td.memory",
        found=f"{name}={value!r}",
        expected=f"one of {', '.join(allowed)}" if allowed else "the layout in words, or none",
        hint=f"leave {name}= out: where storage lives and how it is laid out is planned",
        span=ctx.span,
    )
