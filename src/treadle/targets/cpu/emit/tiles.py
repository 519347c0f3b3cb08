"""Matrix-unit tiles (AMX): fixed registers, loads and stores by rows, and the two dot-product instructions.

A fragment of place "tile" is a grid of tile registers. Accumulators and left operands have coordinates (row, column);
a right operand has (k // g, column, k % g) with g elements of k in four bytes, as the instruction reads it. Register
numbers are given in the order in which fragments are declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import Constraint, Expr, sym
from treadle.dtype.formats import DType, bf16, f32, i8, i32, u8
from treadle.machine.form import Compute, Frag, FragRef, Load, Mma, Store
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.index import IndexWriter, Point
from treadle.targets.cpu.emit.places import Memory, Place
from treadle.targets.cpu.emit.text import Function

REGISTERS = 8
"""Tile registers of a core."""

_ROWS = 16
_ROW_BYTES = 64
_PRODUCTS = {
    (bf16, bf16, f32): "tdpbf16ps",
    (i8, i8, i32): "tdpbssd",
    (i8, u8, i32): "tdpbsud",
    (u8, i8, i32): "tdpbusd",
    (u8, u8, i32): "tdpbuud",
}


@dataclass(frozen=True)
class Grid:
    """Registers from `first` on: `down` x `across` tiles of `rows` rows x `columns` columns of `group` elements."""

    first: int
    down: int
    across: int
    rows: int
    columns: int
    group: int
    dtype: DType

    def register(self, i: int, j: int) -> int:
        """The number of a tile's register."""
        return self.first + i * self.across + j

    def corner(self, i: int, j: int) -> tuple[int, ...]:
        """The coordinates of a tile's first element."""
        at = (i * self.rows, j * self.columns)
        return at if self.group == 1 else (*at, 0)


def grids(frags: Sequence[Frag]) -> dict[str, Grid]:
    """The registers of every tile fragment."""
    found: dict[str, Grid] = {}
    first = 0
    for frag in frags:
        if frag.place != "tile":
            continue
        group = frag.shape[2] if len(frag.shape) == 3 else 1
        widest = _ROW_BYTES // (frag.dtype.itemsize * group)
        rows, columns = min(_ROWS, frag.shape[0]), min(widest, frag.shape[1])
        if len(frag.shape) not in (2, 3) or frag.shape[0] % rows or frag.shape[1] % columns:
            raise unsupported(f"a tile fragment of shape {frag.shape}", f"multiples of {_ROWS} rows and 64 bytes a row")
        grid = Grid(first, frag.shape[0] // rows, frag.shape[1] // columns, rows, columns, group, frag.dtype)
        found[frag.name] = grid
        first += grid.down * grid.across
    if first > REGISTERS:
        raise unsupported(f"{first} tile registers", f"at most {REGISTERS}", "use smaller tile fragments")
    return found


def configuration(found: dict[str, Grid]) -> str:
    """The 64 bytes that `ldtilecfg` reads, as an LLVM constant."""
    data = bytearray(64)
    data[0] = 1
    for grid in found.values():
        for i in range(grid.down):
            for j in range(grid.across):
                number = grid.register(i, j)
                width = grid.columns * grid.group * grid.dtype.itemsize
                data[16 + 2 * number : 18 + 2 * number] = width.to_bytes(2, "little")
                data[48 + number] = grid.rows
    return 'c"' + "".join(f"\\{byte:02X}" for byte in data) + '"'


class Tiles:
    """Tile statements of one function."""

    def __init__(self, fn: Function, index: IndexWriter, found: dict[str, Grid]) -> None:
        self.fn = fn
        self.index = index
        self.grids = found

    def configure(self) -> None:
        """Loads the shapes of all registers."""
        self.fn.module.support(
            "tile_shapes", f"@tile_shapes = internal constant [64 x i8] {configuration(self.grids)}, align 64"
        )
        self.fn.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_shapes")])

    def release(self) -> None:
        """Gives the unit back."""
        self.fn.call("void", "llvm.x86.tilerelease", [])

    def zero(self, stmt: Compute) -> None:
        """`dst = 0`."""
        if stmt.fn != "copy" or stmt.args not in ((0.0,), (0,)) or stmt.where:
            raise unsupported(f"{stmt.fn} into the tile {stmt.dst}", "a copy of 0, a load, or a product")
        for i, j in self._cells(stmt.dst):
            self.fn.call("void", "llvm.x86.tilezero", [("i8", str(self.grids[stmt.dst].register(i, j)))])

    def load(self, stmt: Load, memory: Memory, where: Sequence[Constraint]) -> None:
        """Rows from memory."""
        self._move("llvm.x86.tileloadd64", stmt.dst, Place(self.index, memory, stmt.src, self._rank(stmt.dst)), where)

    def store(self, stmt: Store, memory: Memory, where: Sequence[Constraint]) -> None:
        """Rows to memory."""
        if stmt.src.coords is not None or stmt.mask is not None or stmt.effect != "set":
            raise unsupported(f"this store of the tile {stmt.src.name}", "a plain store of the whole tile")
        name = stmt.src.name
        self._move("llvm.x86.tilestored64", name, Place(self.index, memory, stmt.dst, self._rank(name)), where)

    def _rank(self, name: str) -> int:
        return 2 if self.grids[name].group == 1 else 3

    def _cells(self, name: str) -> list[tuple[int, int]]:
        grid = self.grids[name]
        return [(i, j) for i in range(grid.down) for j in range(grid.across)]

    def _move(self, instruction: str, name: str, place: Place, where: Sequence[Constraint]) -> None:
        grid = self.grids[name]
        steps = place.steps
        inner = (1,) if grid.group == 1 else (grid.group, 1)
        if where or steps is None or steps[1:] != inner or place.memory.dtype != grid.dtype:
            raise unsupported(
                f"moving the tile {name} from or to {place.memory.name}",
                "whole rows, contiguous in a buffer of the tile's dtype",
                "go through a local buffer",
            )
        pitch = self.fn.mul(steps[0], grid.dtype.itemsize)
        for i, j in self._cells(name):
            spot = place.at(Point(grid.corner(i, j)))
            self.fn.call(
                "void",
                instruction,
                [("i8", str(grid.register(i, j))), ("ptr", spot.pointer), ("i64", str(pitch))],
            )

    def product(self, stmt: Mma) -> None:
        """`dst += a * b`, tile by tile."""
        if not isinstance(stmt.a, FragRef) or not isinstance(stmt.b, FragRef):
            raise unsupported("a tile product of memory operands", "tile fragments")
        if not {stmt.a.name, stmt.b.name} <= self.grids.keys():
            raise unsupported(f"a tile product of {stmt.a.name} and {stmt.b.name}", "tile fragments")
        c, a, b = self.grids[stmt.dst], self.grids[stmt.a.name], self.grids[stmt.b.name]
        instruction = _PRODUCTS.get((a.dtype, b.dtype, c.dtype))
        depth = a.across * a.columns
        fits = (
            stmt.acc == FragRef(stmt.dst)
            or (stmt.acc is not None and stmt.acc == FragRef(stmt.dst, (sym("$0"), sym("$1"))))
        ) and stmt.contracted == (depth,)
        shapes = a.columns == b.rows * b.group and (c.down, c.rows) == (a.down, a.rows)
        shapes = shapes and (c.across, c.columns) == (b.across, b.columns) and a.across == b.down
        if instruction is None or not fits or not shapes or not _operand_coordinates(stmt.a, stmt.b, b.group):
            raise unsupported(
                f"the product of {stmt.a.name} and {stmt.b.name} into {stmt.dst}",
                "dst = dst + a[$0, $2] * b[$2 // g, $1, $2 % g] over the whole depth, dtypes of one instruction",
            )
        for k in range(a.across):
            for i in range(c.down):
                for j in range(c.across):
                    numbers = (c.register(i, j), a.register(i, k), b.register(k, j))
                    self.fn.call("void", f"llvm.x86.{instruction}", [("i8", str(n)) for n in numbers])


def _operand_coordinates(a: FragRef, b: FragRef, group: int) -> bool:
    row, column, k = sym("$0"), sym("$1"), sym("$2")
    right: tuple[Expr, ...] = (k // group, column, k % group)
    return a.coords == (row, k) and b.coords == right
