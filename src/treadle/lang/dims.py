"""Dimensions and parts as a user writes them.

`Dimension` is what `td.dims` gives; `Part` objects of the language (`PartRef`) are blocks, slices and whole dimensions
with a mode of iteration. In an elementwise expression a part stands for its coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import ONE, Expr, as_expr, sym
from treadle.ir.ranges import LIMIT
from treadle.lang.errors import BadDevice, BadDim, BadSize, DimTwice, OpenExtent, OutsideKernel
from treadle.lang.objects import words_of
from treadle.lang.operators import Operators
from treadle.lang.state import context, maybe_context, span_here

if TYPE_CHECKING:
    from treadle.ir.core import Block, RegionArg
    from treadle.lang.tile import Tile

Mode = Literal["block", "each"]


class PartRef(Operators):
    """A part of a dimension: subscript, region argument, axis of a new tile, or (in an expression) its coordinates.

    `mode`, `size` and `backward` say how a region iterates over it; `arg` is the region argument it is the block of.
    """

    __hash__ = object.__hash__

    def __init__(
        self,
        part: Part,
        *,
        mode: Mode = "block",
        size: int | None = None,
        backward: bool = False,
        arg: RegionArg | None = None,
        block: Block | None = None,
        above: PartRef | None = None,
    ) -> None:
        self._part = part
        self.mode: Mode = mode
        self.size = size
        self.backward = backward
        self.arg = arg
        self.block = block
        self.above = above

    # ---- ways to iterate

    @property
    def each(self) -> PartRef:
        """The single elements."""
        return self._with(mode="each", size=None)

    @property
    def reversed(self) -> PartRef:
        """The other way round."""
        return self._with(backward=not self.backward)

    def by(self, size: Any) -> PartRef:
        """Blocks of `size` elements (the last may have fewer). *Errors*: `block/size`."""
        number = _staged_int(size)
        if number is None or not 1 <= number <= LIMIT:
            raise BadSize(
                doing=f"fixing the block size of {self}",
                found=repr(size),
                expected="a staged integer of at least 1" + (", within 64 bits" if number and number > LIMIT else ""),
                hint="give a Python integer, for example .by(64)",
                span=_span(),
            )
        return self._with(mode="block", size=number)

    def _with(self, **changes: Any) -> PartRef:
        fields: dict[str, Any] = {
            "mode": self.mode,
            "size": self.size,
            "backward": self.backward,
            "arg": self.arg,
            "block": self.block,
            "above": self.above,
        }
        return PartRef(self.part, **(fields | changes))

    def __getitem__(self, key: Any) -> PartRef:
        """The coordinates from `start` up to `stop`, either of which may be left out."""
        return context().slice_part(self, key)

    # ---- facts of a part

    @property
    def part(self) -> Part:
        """The part of the program that this stands for."""
        return self._part

    @property
    def dim(self) -> Dim:
        """The dimension's identity in the program."""
        return self.part.dim

    @property
    def extent(self) -> Tile | int:
        """The number of elements. *Errors*: `block/open-extent` of a block whose size is open."""
        if self.arg is not None and self.arg.size is None:
            raise self._open("extent", "write a reduction over the part, or fix the size with .by")
        return context().index(self.part.extent)

    @property
    def start(self) -> Tile | int:
        """The first coordinate."""
        return context().index(self.part.lo, self)

    @property
    def stop(self) -> Tile | int:
        """One more than the last coordinate."""
        return context().index(self.part.hi, self)

    @property
    def index(self) -> Tile | int:
        """The number of the block, from 0. *Errors*: `block/open-extent` of a block whose size is open."""
        if self.arg is None or self.arg.size is None:
            raise self._open("index", "fix the size with .by")
        return context().index((self.part.lo - self.arg.domain.lo) // self.arg.size, self)

    @property
    def coords(self) -> Tile:
        """The i64 tile of coordinates."""
        return context().coords(self)

    def _open(self, what: str, hint: str) -> OpenExtent:
        return OpenExtent(
            doing=f"reading {self}.{what}",
            found=f"{self}, a part whose block size is open",
            expected="a block whose size .by has fixed",
            hint=hint,
            span=_span(),
        )

    def __str__(self) -> str:
        return str(self._part)

    __repr__ = __str__

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> NoReturn:
        raise OutsideKernel(
            doing=f"iterating over {self}",
            found=f"{self}, a part of a dimension, without a region",
            expected="td.parallel, td.serial, td.pipeline or td.reduce of it",
            hint=f"write for i in td.serial({self}.each): for an ordered loop over single elements"
            + ("" if maybe_context() else f"; td.dims of one name is that dimension: {self} = td.dims({str(self)!r})"),
            span=_span(),
        )


class Dimension(PartRef):
    """A dimension identity, as `td.dims` makes it. Two dimensions of the same size are different dimensions."""

    __hash__ = object.__hash__

    def __init__(self, identity: Dim) -> None:
        super().__init__(identity.whole())
        self.identity = identity

    @property
    def part(self) -> Part:
        ctx = maybe_context()
        return self._part if ctx is None else ctx.whole(self)

    @property
    def name(self) -> str:
        """The name it was made with."""
        return self.identity.name

    @property
    def extent(self) -> Tile | int:
        """The number of coordinates: a traced scalar in a kernel, a number where it is fixed.

        *Errors*: `capture/outside` outside a kernel where it is not fixed.
        """
        number = self.identity.extent.constant
        ctx = maybe_context()
        if ctx is None:
            if number is not None:
                return number
            raise OutsideKernel(
                doing=f"reading {self.name}.extent",
                found="no kernel is being captured",
                expected="a use inside a kernel, where the extent is a traced scalar",
                hint=f'fix the extent where the dimension is made: td.dims("{self.name}", 128)',
                span=span_here(),
            )
        return ctx.index(ctx.whole(self).extent)

    @property
    def device(self) -> DeviceAxis:
        """The first axis of a tensor that has one array for each coordinate: `td.Tensor[R.device, M, K]`.

        *Errors*: `region/device` for a product dimension.
        """
        if self.identity.factors:
            raise BadDevice(
                doing=f"reading {self.name}.device",
                found=f"{self.name}, a product of {', '.join(map(str, self.identity.factors))}",
                expected="a dimension of its own, or an alias of one",
                hint='make one for the devices: R = td.dims("R")',
                span=_span(),
            )
        return DeviceAxis(self)

    def alias(self, names: str) -> Any:
        """Further identities with this extent: one bare, several as a tuple."""
        made = [
            Dimension(Dim(n, self.identity.extent, self.identity, static=self.identity.static)) for n in _names(names)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def __str__(self) -> str:
        return self.identity.name

    __repr__ = __str__


@dataclass(frozen=True)
class DeviceAxis:
    """`R.device`: the axis of `td.Tensor[R.device, M, K]` along which there is one array per device."""

    dimension: Dimension

    def __str__(self) -> str:
        return f"{self.dimension}.device"

    __repr__ = __str__


def dims(names: str, extent: Any = None, *, static: bool = False) -> Any:
    """Fresh dimensions, one bare, several as a tuple; `extent` fixes the size; `static` asks for specialisation.

    *Errors*: `dims/definition`.
    """
    found = _names(names)
    size = None if extent is None else _staged_int(extent)
    if extent is not None and (size is None or not 0 <= size <= LIMIT):
        raise BadDim(
            doing=f"making the dimension {names}",
            found=f"the extent {extent!r}",
            expected="a staged integer of at least 0" + (", within 64 bits" if size and size > LIMIT else ""),
            hint=f'several dimensions are one text: td.dims("{names} {extent}")'
            if isinstance(extent, str)
            else "leave the extent out for a symbolic dimension, or use td.let for a computed one",
            span=_span(),
        )
    made = [Dimension(Dim(n, as_expr(size) if size is not None else sym(n), static=static)) for n in found]
    return made[0] if len(made) == 1 else tuple(made)


def product(*factors: Any, name: str | None = None) -> Dimension:
    """The row-major product of the factors, last fastest. *Errors*: `dims/definition`, `dims/twice`."""
    if len(factors) < 2 or not all(isinstance(f, Dimension) for f in factors):
        raise BadDim(
            doing="making a product dimension",
            found=", ".join(map(str, factors)) or "no factor",
            expected="at least two dimensions",
            hint="write td.product(G, R) with dimensions that td.dims made",
            span=_span(),
        )
    if len({f.identity for f in factors}) != len(factors):
        raise DimTwice(
            doing="making a product dimension",
            found=f"{', '.join(map(str, factors))}",
            expected="each factor once",
            hint=f"use an alias: {factors[0]}.alias(...)",
            span=_span(),
        )
    extent: Expr = ONE
    for factor in factors:
        extent = extent * factor.identity.extent
    label = name or "_".join(f.name for f in factors)
    return Dimension(Dim(label, extent, None, tuple(f.identity for f in factors)))


def _names(names: str) -> Sequence[str]:
    found = words_of(names)
    if not found or not all(n.isidentifier() for n in found):
        raise BadDim(
            doing="naming dimensions",
            found=repr(names),
            expected="identifiers separated by spaces",
            hint='write td.dims("M N K")',
            span=_span(),
        )
    return found


def _staged_int(value: Any) -> int | None:
    """A staged integer, dimensions with a fixed extent included; `None` for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):  # no integer; a class; an array of several elements
        return None


def _span() -> Any:
    return span_here()
