"""Vectors of elements: LLVM types of dtypes, constants, and the rearrangements of lanes.

In registers a bool is an i1; f16 and bf16 are their 16 bits as integers, because only conversions touch them and their
rounding is written out (`arith.py`). A 4-bit element is a byte: i4 with its sign extended, others with zeros above. In
memory a bool is a byte that is 0 or 1; 4-bit elements lie two in a byte in tensors (`nibbles.py`), one in a buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treadle.dtype.convert import convert
from treadle.dtype.formats import DType, bool_, f32, f64, from_numpy
from treadle.targets.cpu.emit.text import Function, Int


@dataclass(frozen=True)
class Vec:
    """An SSA operand with the dtype it stands for; `lanes` None is a scalar."""

    text: str
    dtype: DType
    lanes: int | None = None

    @property
    def type(self) -> str:
        """The LLVM type."""
        return vector(lane_type(self.dtype), self.lanes)

    @property
    def typed(self) -> tuple[str, str]:
        """`(type, operand)`."""
        return self.type, self.text


def lane_type(dtype: DType) -> str:
    """The LLVM type of one element in a register."""
    if dtype.is_bool:
        return "i1"
    if dtype == f32:
        return "float"
    if dtype == f64:
        return "double"
    return f"i{max(8, dtype.bits)}"


def memory_bytes(dtype: DType) -> int:
    """Bytes of one element in a buffer or a frame."""
    return max(1, dtype.bits // 8)


def memory_type(dtype: DType) -> str:
    """The LLVM type of one element in memory."""
    return "i8" if dtype.is_bool else lane_type(dtype)


def vector(kind: str, lanes: int | None) -> str:
    """`<lanes x kind>`, or the scalar."""
    return kind if lanes is None else f"<{lanes} x {kind}>"


def number_text(dtype: DType, number: float | int | bool) -> str:
    """The LLVM constant of one element, rounded as `dtype` does."""
    if isinstance(number, int) and not isinstance(number, bool) and dtype.is_int:
        wrapped = number & ((1 << dtype.bits) - 1)
        # A u4 is zero-extended in its byte.
        negative = wrapped >> (dtype.bits - 1) and not (dtype.packed and dtype.kind == "uint")
        return str(wrapped - (1 << dtype.bits) if negative else wrapped)
    whole = np.int64 if isinstance(number, int) and number < 1 << 63 else np.uint64
    source = from_numpy(np.asarray(number, dtype=whole if isinstance(number, int) else np.float64).dtype)
    value = convert(np.asarray(number, dtype=source.numpy), source, dtype)
    if dtype == bool_:
        return "true" if bool(value) else "false"
    if dtype in (f32, f64):
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    if dtype.is_float:
        return str(int(value.view(np.uint16 if dtype.bits == 16 else np.uint8)))
    return str(int(value))


def constant(dtype: DType, number: float | int | bool, lanes: int | None = None) -> Vec:
    """A constant element or vector."""
    text = number_text(dtype, number)
    return Vec(text if lanes is None else f"splat ({lane_type(dtype)} {text})", dtype, lanes)


def chunks(length: int, width: int) -> list[tuple[int, int]]:
    """`(start, lanes)` of the vectors that hold an axis: all of `width` lanes but perhaps the last."""
    return [(at, min(width, length - at)) for at in range(0, length, width)]


def power_below(length: int) -> int:
    """The largest power of two below `length`. Requires: length > 1."""
    return 1 << ((length - 1).bit_length() - 1)


class Lanes:
    """Rearrangements of lanes in one function."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn

    def splat(self, value: Vec, lanes: int | None) -> Vec:
        """A scalar in every lane."""
        if lanes is None or value.lanes is not None:
            return value
        kind = lane_type(value.dtype)
        if not value.text.startswith("%"):
            return Vec(f"splat ({kind} {value.text})", value.dtype, lanes)
        return Vec(self.splat_text(kind, value.text, lanes), value.dtype, lanes)

    def splat_text(self, kind: str, text: str, lanes: int) -> str:
        """The same for a bare LLVM type."""
        one = self.fn.value(f"insertelement <{lanes} x {kind}> poison, {kind} {text}, i64 0")
        if lanes == 1:
            return one
        return self.fn.value(
            f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, <{lanes} x i32> zeroinitializer"
        )

    def splat_int(self, value: Int, lanes: int) -> str:
        """An i64 in every lane."""
        return f"splat (i64 {value})" if isinstance(value, int) else self.splat_text("i64", value, lanes)

    def iota(self, start: int, lanes: int, kind: str = "i64", step: int = 1) -> str:
        """The constant `<start, start + step, ...>`."""
        return "<" + ", ".join(f"{kind} {start + i * step}" for i in range(lanes)) + ">"

    def shuffle(self, a: Vec, b: Vec | None, pattern: Sequence[int]) -> Vec:
        """Lanes of `a` and `b` (numbered behind those of `a`) in the order of `pattern`; -1 is any value."""
        if b is None and list(pattern) == list(range(a.lanes or 0)):
            return a
        mask = ", ".join("i32 poison" if p < 0 else f"i32 {p}" for p in pattern)
        other = "poison" if b is None else b.text
        text = self.fn.value(f"shufflevector {a.type} {a.text}, {a.type} {other}, <{len(pattern)} x i32> <{mask}>")
        return Vec(text, a.dtype, len(pattern))

    def widen(self, a: Vec, lanes: int) -> Vec:
        """The vector with undefined lanes added behind."""
        have = a.lanes or 0
        return a if have == lanes else self.shuffle(a, None, [i if i < have else -1 for i in range(lanes)])

    def element(self, a: Vec, lane: int) -> Vec:
        """One lane, as a scalar."""
        if a.lanes is None:
            return a
        return Vec(self.fn.value(f"extractelement {a.type} {a.text}, i64 {lane}"), a.dtype)

    def assemble(self, parts: Sequence[tuple[Vec, int]]) -> Vec:
        """The vector whose lane i is lane `parts[i][1]` of `parts[i][0]` (a scalar stands for itself)."""
        lanes = len(parts)
        sources = list({p.text: p for p, _ in parts}.values())
        dtype = parts[0][0].dtype
        result: Vec | None = None
        for source in sources:
            places = [lane if p.text == source.text else -1 for p, lane in parts]
            if source.lanes is None:
                result = self._insert(result, source, places, dtype)
                continue
            wide = max(lanes, source.lanes)
            if result is None:
                result = self.shuffle(source, None, places)
                continue
            a, b = self.widen(result, wide), self.widen(source, wide)
            result = self.shuffle(a, b, [i if p < 0 else wide + p for i, p in enumerate(places)])
        assert result is not None
        return result

    def _insert(self, into: Vec | None, scalar: Vec, places: Sequence[int], dtype: DType) -> Vec:
        kind = vector(lane_type(dtype), len(places))
        text = "poison" if into is None else into.text
        for i, place in enumerate(places):
            if place >= 0:
                text = self.fn.value(f"insertelement {kind} {text}, {lane_type(dtype)} {scalar.text}, i64 {i}")
        return Vec(text, dtype, len(places))

    def interleave(self, parts: Sequence[Vec]) -> Vec:
        """Lane 0 of each part, then lane 1 of each, and so on. Requires: two or four parts of equally many lanes."""
        if len(parts) == 4:
            # Pairs (a0 b0 a1 b1 ..), (c0 d0 c1 d1 ..), then pairs of these.
            ab, cd = self.interleave(parts[:2]), self.interleave(parts[2:])
            n = ab.lanes or 1
            return self.shuffle(ab, cd, [x for i in range(0, n, 2) for x in (i, i + 1, n + i, n + i + 1)])
        a, b = parts
        n = a.lanes or 1
        return self.shuffle(a, b, [x for i in range(n) for x in (i, n + i)])

    def transpose(self, rows: Sequence[Vec]) -> list[Vec]:
        """Columns of the matrix of rows: result[j] has lane i = lane j of rows[i].

        By perfect shuffles on a square of a power of two: after log2(n) rounds of interleaving row i with row i + n/2
        every lane stands in its column.
        """
        height, width = len(rows), rows[0].lanes or 1
        size = 1 << max(height - 1, width - 1, 0).bit_length()
        blank = Vec("poison", rows[0].dtype, size)
        square = [self.widen(r, size) for r in rows] + [blank] * (size - height)
        half = size // 2
        low = [x for i in range(half) for x in (i, size + i)]
        high = [x for i in range(half, size) for x in (i, size + i)]
        for _ in range(size.bit_length() - 1):
            square = [
                r if a.text != "poison" or b.text != "poison" else blank
                for i in range(half)
                for a, b in ((square[i], square[i + half]),)
                for r in (self._pair(a, b, low), self._pair(a, b, high))
            ]
        return [self.shuffle(column, None, list(range(height))) for column in square[:width]]

    def _pair(self, a: Vec, b: Vec, pattern: Sequence[int]) -> Vec:
        return a if a.text == b.text == "poison" else self.shuffle(a, b, pattern)
