"""Warpgroup contractions: operand descriptors from the layout of buffers, and the instruction for any legal shape.

A descriptor promises the tensor core a fixed pattern of addresses. It is derived by fitting: the buffer's own address
function over the atom's coordinates must equal the pattern of a K-major or MN-major operand for some strides, at every
element. What does not fit is refused, so a buffer's axes, their order and its swizzle are all that a plan has to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.expr import Expr, sym
from treadle.hardware.atoms import find_atom
from treadle.machine.form import FragRef, MemRef, Mma
from treadle.targets.cuda.emit.access import storage
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.fragments import lane_bit, warp_bit
from treadle.targets.cuda.emit.prelude import Prelude
from treadle.targets.cuda.emit.scope import Scope, register
from treadle.targets.cuda.emit.storage import Storage

_BYTES = 32
"""Of the contracted dimension of one wgmma, whatever the format."""
_SWIZZLE_KIND = {128: 1, 64: 2, 32: 3}
_ATOM = re.compile(r"^wgmma\.m64n(\d+)k(\d+)(?:\.(bf16|f16|tf32|i8|fp8))?$")
_KINDS = {
    "bf16": "bf16",
    "f16": "f16",
    "f32": "tf32",
    "i8": "s8",
    "u8": "u8",
    "f8e4m3": "e4m3",
    "f8e5m2": "e5m2",
}
"""Operand formats as the instruction names them."""


@dataclass(frozen=True)
class Operand:
    """A shared operand: bytes from the start of shared memory to its first element, whether MN is contiguous, and the
    descriptor's leading and stride offsets in bytes."""

    start: Expr
    mn_major: bool
    leading: int
    stride: int
    kind: int


def contract(scope: Scope, stmt: Mma) -> None:
    """`dst = acc + a b` by wgmma. One instruction for each 32 bytes of contracted elements."""
    scope.setting.need_hopper(stmt.atom)
    match = _ATOM.match(stmt.atom)
    made = scope.layout(stmt.dst)
    if match is None:
        raise unsupported(f"the atom {stmt.atom}", "wgmma.m64nNk16 and its kin")
    columns, each = int(match[1]), int(match[2])
    row = find_atom(f"cuda:{scope.setting.arch}", stmt.atom)
    dtypes = tuple(_dtype(scope, r).name for r in (stmt.a, stmt.b))
    problem = (
        "no such instruction"
        if row is None
        else row.refuses(made.frag.dtype.name, dtypes, made.frag.shape, stmt.contracted, made.frag.place)
    )
    if problem is not None or made.frag.shape != (64, columns):
        raise ill_formed(f"{stmt.atom} into {made.frag.dtype}{made.frag.shape}", f"(64, {columns}): {problem}")
    if scope.lanes * scope.warps != 128 or not _is_accumulator(scope, stmt.dst):
        raise unsupported(f"{stmt.dst} with its distribution", "the accumulators' distribution over a warpgroup")
    depth = stmt.contracted[0] if len(stmt.contracted) == 1 else 0
    if stmt.acc is not None and (stmt.acc.name != stmt.dst or stmt.acc.coords is not None):
        raise unsupported(f"{stmt.atom} onto {stmt.acc.name} into {stmt.dst}", "one accumulator")
    kinds = _KINDS[dtypes[0]], _KINDS[dtypes[1]]
    for step in range(0, depth, each):
        _step(scope, stmt, Shape(columns, each, *kinds), step)


def _dtype(scope: Scope, ref: FragRef | MemRef) -> Any:
    return scope.layout(ref.name).frag.dtype if isinstance(ref, FragRef) else storage(scope, ref.name).dtype


@dataclass(frozen=True)
class Shape:
    """Of an instruction on 64 rows: columns, contracted elements, operand formats in its own words."""

    columns: int
    depth: int
    left: str
    right: str

    @property
    def sums(self) -> str:
        """The accumulator's format."""
        return "s32" if self.left in ("s8", "u8") else "f32"

    @property
    def turns(self) -> bool:
        """Whether operands may have their own dimension contiguous."""
        return self.depth == 16

    @property
    def name(self) -> str:
        """Part of a device function's name."""
        both = self.left if self.left == self.right else f"{self.left}_{self.right}"
        return f"m64n{self.columns}k{self.depth}_{both}"


def _step(scope: Scope, stmt: Mma, shape: Shape, step: int) -> None:
    if not isinstance(stmt.b, MemRef):
        raise unsupported(f"{stmt.atom} with its second operand in registers", "a shared buffer")
    b = fit(scope, stmt.b, 1, shape.columns, shape.depth, step)
    accumulate = 1 if stmt.acc is not None or step else 0
    own = register(stmt.dst)
    right = _descriptor(scope, b)
    prelude = scope.setting.prelude
    if isinstance(stmt.a, FragRef):
        if not shape.turns:
            raise unsupported(f"{stmt.atom} with its first operand in registers", "a shared buffer")
        words = register_operand(scope, stmt.a, step)
        called = wrapper(prelude, shape, "r", b.mn_major)
        scope.line(f"{called}({own}, {', '.join(words)}, {right}, {accumulate});")
    else:
        a = fit(scope, stmt.a, 0, 64, shape.depth, step)
        if not shape.turns and (a.mn_major or b.mn_major):
            raise unsupported(f"{stmt.atom} of a turned operand", "operands contiguous along the contracted dimension")
        called = wrapper(prelude, shape, "mn" if a.mn_major else "k", b.mn_major)
        scope.line(f"{called}({own}, {_descriptor(scope, a)}, {right}, {accumulate});")
    scope.setting.counts["HGMMA"] += 1


def _descriptor(scope: Scope, operand: Operand) -> str:
    scope.use("operand_desc")
    start = scope.symbols.text(operand.start)
    return f"operand_desc(base + {start.narrow()}, {operand.leading}, {operand.stride}, {operand.kind})"


def wrapper(prelude: Prelude, shape: Shape, a: str, b_mn: bool) -> str:
    """The device function of one instruction; `a` is r (registers), k or mn (shared, that dimension contiguous)."""
    name = f"wgmma_{shape.name}_{a}_{'mn' if b_mn else 'k'}"
    count = shape.columns // 2
    regs = ", ".join(f"%{i}" for i in range(count))
    held, letter = ("int", "r") if shape.sums == "s32" else ("float", "f")
    outs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    if a == "r":
        left = "u32 a0, u32 a1, u32 a2, u32 a3"
        operand = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        ins, used = '"r"(a0), "r"(a1), "r"(a2), "r"(a3)', 4
    else:
        left, operand, ins, used = "u64 a", f"%{count}", '"l"(a)', 1
    # Signs of the operands, then which of them are turned: integers have neither, only 16-bit operands can be turned.
    flags = "p" if shape.sums == "s32" else "p, 1, 1"
    if shape.turns:
        flags += f", {int(b_mn)}" if a == "r" else f", {int(a == 'mn')}, {int(b_mn)}"
    formats = f"{shape.sums}.{shape.left}.{shape.right}"
    text = (
        f"DEVICE void {name}({held} (&d)[{count}], {left}, u64 b, int accumulate) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + used + 1}, 0;\\n"\n'
        f'      "wgmma.mma_async.sync.aligned.m64n{shape.columns}k{shape.depth}.{formats} {{{regs}}}, {operand}, '
        f'%{count + used}, {flags};\\n}}"\n'
        f'      : {outs}\n      : {ins}, "l"(b), "r"(accumulate));\n}}\n'
    )
    return prelude.define(name, text)


# ---- operands in shared memory


def fit(scope: Scope, ref: MemRef, axis: int, rows: int, deep: int, step: int) -> Operand:
    """The operand of a buffer reference in `$axis` (its row or column) and `$2` (contracted, `deep` of them), from
    element `step` on."""
    memory = storage(scope, ref.name)
    if memory.kind != "shared" or memory.swizzle not in _SWIZZLE_KIND:
        raise unsupported(f"the operand {ref.name}", "a shared buffer with swizzle 128, 64 or 32")
    mine, depth = f"${axis}", "$2"
    index = [i.substitute({depth: sym(depth) + step}) for i in ref.index]
    offset = scope.symbols.replaced(memory.offset(index, ref.version)) * memory.itemsize
    start, moving = _split(offset, (mine, depth))
    r, k = np.indices((rows, deep), np.int64)
    distance = np.broadcast_to(np.asarray(moving.evaluate({mine: r, depth: k})), r.shape)
    start = scope.symbols.decided(start + int(distance[0, 0]) + memory.start)
    distance = distance - distance[0, 0]
    known = scope.symbols.text(start)
    atom = 8 * memory.swizzle
    for mn_major in (False, True):
        strides = _strides(distance, memory, mn_major)
        if strides is None:
            continue
        if not _aligned(scope, start, known.by, atom, memory.swizzle, mn_major):
            continue
        leading, stride = strides
        return Operand(start, mn_major, leading, stride, _SWIZZLE_KIND[memory.swizzle])
    raise unsupported(
        f"the operand {ref.name}[{', '.join(map(str, ref.index))}] in this layout",
        f"rows of {memory.swizzle} bytes in groups of eight, K-major or MN-major",
        "give the buffer the axes [chunks, rows, 128 bytes] with swizzle 128",
    )


def _split(offset: Expr, names: Sequence[str]) -> tuple[Expr, Expr]:
    """The part without these symbols, and the part that has nothing else."""
    still = Expr(tuple((m, c) for m, c in offset.terms if not _mentions(m, names)))
    moving = offset - still
    if not moving.symbols <= set(names) or moving.functions:
        raise unsupported(f"the operand address {offset}", "coordinates of the atom apart from other symbols")
    return still, moving


def _mentions(monomial: Sequence[Any], names: Sequence[str]) -> bool:
    return any(Expr(((tuple([a]), 1),)).symbols & set(names) for a in monomial)


def _strides(distance: NDArray[np.int64], memory: Storage, mn_major: bool) -> tuple[int, int] | None:
    """Leading and stride offsets that make the pattern equal to `distance` (bytes), or None."""
    size, width = memory.itemsize, memory.swizzle
    rows, depth = int(distance.shape[0]), int(distance.shape[1])
    r, k = np.indices((rows, depth), np.int64)
    if mn_major:
        chunk = width // size
        leading = int(distance[chunk, 0]) if rows > chunk else 16
        stride = int(distance[0, 8]) if depth > 8 else 8 * width
        pattern = (k % 8) * width + (k // 8) * stride + (r % chunk) * size + (r // chunk) * leading
    else:
        leading, stride = 16, int(distance[8, 0]) if rows > 8 else 8 * width
        pattern = (r % 8) * width + (r // 8) * stride + k * size
    legal = 0 < stride < 1 << 18 and 0 < leading < 1 << 18 and not stride % 16 and not leading % 16
    return (leading, stride) if legal and bool((pattern == distance).all()) else None


def _aligned(scope: Scope, start: Expr, by: int, atom: int, width: int, mn_major: bool) -> bool:
    """Whether the operand begins at a swizzle atom, up to a step along the contiguous dimension inside a row of it."""
    constant = start.offset
    rest = scope.symbols.text(start - constant).by
    within = constant % atom
    if rest % atom:
        return False
    return within == 0 or (not mn_major and within < width and within % _BYTES == 0)


# ---- operands in registers


def register_operand(scope: Scope, ref: FragRef, step: int) -> list[str]:
    """The four words of a 64 x 16 operand: word `j` holds row + 8 (j & 1), columns 8 (j >> 1) and the next."""
    made = scope.layout(ref.name)
    if not made.packed or ref.coords is None:
        raise unsupported(f"the register operand {ref.name}", "a packed 16-bit fragment with coordinates")
    row = sym(lane_bit(2)) + sym(lane_bit(3)) * 2 + sym(lane_bit(4)) * 4 + sym(warp_bit(0)) * 16 + sym(warp_bit(1)) * 32
    column = sym(lane_bit(0)) * 2 + sym(lane_bit(1)) * 4
    words: list[str] = []
    for j in range(4):
        slots = [
            scope.source(ref.name, ref.coords, {"$0": row + 8 * (j & 1), "$2": column + 8 * (j >> 1) + h + step})
            for h in range(2)
        ]
        if slots[0] % 2 or slots[1] != slots[0] + 1:
            raise unsupported(f"the register operand {ref.name} in this distribution", "pairs of columns in a word")
        words.append(f"{register(ref.name)}[{slots[0] // 2}]")
    return words


def _is_accumulator(scope: Scope, name: str) -> bool:
    """Slot i: row 16 w + l / 4 + 8 ((i >> 1) & 1), column 8 (i >> 2) + 2 (l & 3) + (i & 1)."""
    made = scope.layout(name)
    row = sym(lane_bit(2)) + sym(lane_bit(3)) * 2 + sym(lane_bit(4)) * 4 + sym(warp_bit(0)) * 16 + sym(warp_bit(1)) * 32
    column = sym(lane_bit(0)) * 2 + sym(lane_bit(1)) * 4
    slots = tuple((8 * (i >> 1 & 1), 8 * (i >> 2) + (i & 1)) for i in range(made.frag.shape[1] // 2))
    return made.parts == (row, column) and made.slots == slots
