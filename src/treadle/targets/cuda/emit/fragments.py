"""Fragments: which slot of which thread holds an element, and where in the text it stands.

A distribution gives every axis a *thread part*, a sum over bits of the lane and warp numbers, and to every slot a
constant. A reference to another fragment's element is resolved by comparing the two sums: the thread parts must agree
bit by bit, and what is left over must be the constant of one slot. So a thread only ever reads its own registers, by
constant indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from treadle.algebra.expr import ZERO, Expr, Sym, const, sym
from treadle.machine.form import Frag, Mode
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.values import HALVES, ctype


def lane_bit(number: int) -> str:
    """The symbol of a bit of the lane number."""
    return f"@lane{number}"


def warp_bit(number: int) -> str:
    """The symbol of a bit of the warp number in the agent."""
    return f"@warp{number}"


@dataclass(frozen=True)
class Layout:
    """A fragment's distribution, resolved. `slots[s][axis]`: the constant of slot `s`; `parts[axis]`: the thread part;
    `spare`: bits that choose among replicas; `short`: axes with coordinates outside the shape."""

    frag: Frag
    slots: tuple[tuple[int, ...], ...]
    parts: tuple[Expr, ...]
    spare: tuple[str, ...]
    short: tuple[int, ...]
    by_coords: Mapping[tuple[int, ...], int] = field(compare=False, repr=False)

    @property
    def count(self) -> int:
        """Slots a thread."""
        return len(self.slots)

    @property
    def packed(self) -> bool:
        """Whether two 16-bit elements share a register."""
        return self.frag.dtype in HALVES and self.count % 2 == 0

    @property
    def registers(self) -> int:
        """Length of the register array."""
        return self.count // 2 if self.packed else self.count

    @property
    def element_type(self) -> str:
        """The C++ type of a register."""
        return "u32" if self.packed else ctype(self.frag.dtype)

    def coords(self, slot: int) -> tuple[Expr, ...]:
        """The coordinates of a slot, as sums over thread bits."""
        return tuple(p + c for p, c in zip(self.parts, self.slots[slot]))

    def find(self, coords: Sequence[Expr]) -> int | None:
        """The slot of this very thread that holds the element, or None."""
        place: list[int] = []
        for part, coord in zip(self.parts, coords):
            rest = (coord - part).constant
            if rest is None:
                return None
            place.append(rest)
        return self.by_coords.get(tuple(place))


def layout(frag: Frag, lanes: int, warps: int) -> Layout:
    """The layout of a fragment held by `lanes * warps` threads.

    *Errors*: emit/cuda-unsupported for lane digits that are no powers of two, and `replica` digits.
    """
    if frag.place != "register":
        raise unsupported(f"the fragment {frag.name} in a {frag.place}", "registers", "tiles are the CPU's")
    if not frag.dist:
        slots = _row_major(frag.shape)
        bits = _bits("lane", 0, lanes) + _bits("warp", 0, warps)
        return _made(frag, slots, tuple(ZERO for _ in frag.shape), bits, ())
    slots: list[tuple[int, ...]] = [tuple(0 for _ in frag.shape)]
    parts = [ZERO for _ in frag.shape]
    radix = {"lane": 1, "warp": 1}
    spare: list[str] = []
    for mode in frag.dist:
        if mode.who == "slot":
            slots = [_moved(s, mode, digit) for digit in range(mode.size) for s in slots]
        elif mode.who in radix:
            names = _digit(frag, mode, radix[mode.who])
            radix[mode.who] *= mode.size
            if mode.axis is None:
                spare += names
                continue
            for i, name in enumerate(names):
                parts[mode.axis] = parts[mode.axis] + sym(name) * (mode.stride << i)
        else:
            raise unsupported(
                f"a digit of {frag.name} of kind {mode.who}",
                "slot, lane or warp digits",
                "spell a replica as a lane or warp digit with axis -",
            )
    if radix["lane"] > lanes or radix["warp"] > warps:
        raise ill_formed(
            f"{frag.name} spread over {radix['lane']} lanes and {radix['warp']} warps", f"{lanes} lanes, {warps} warps"
        )
    spare += _bits("lane", radix["lane"], lanes) + _bits("warp", radix["warp"], warps)
    short = tuple(
        a
        for a, extent in enumerate(frag.shape)
        if max(s[a] for s in slots) + sum(c for m, c in parts[a].terms if m != ()) >= extent
    )
    return _made(frag, slots, tuple(parts), spare, short)


def _made(
    frag: Frag, slots: Sequence[tuple[int, ...]], parts: tuple[Expr, ...], spare: Sequence[str], short: tuple[int, ...]
) -> Layout:
    places = {s: i for i, s in reversed(list(enumerate(slots)))}
    return Layout(frag, tuple(slots), parts, tuple(spare), short, places)


def _moved(slot: tuple[int, ...], mode: Mode, digit: int) -> tuple[int, ...]:
    return tuple(c + digit * mode.stride if a == mode.axis else c for a, c in enumerate(slot))


def _digit(frag: Frag, mode: Mode, radix: int) -> list[str]:
    """The symbols of a digit's bits."""
    if mode.size & (mode.size - 1) or radix & (radix - 1):
        raise unsupported(
            f"a {mode.who} digit of {mode.size} values in {frag.name}",
            "digits of 1, 2, 4, 8, ... values",
            "spread the fragment over a power of two of threads",
        )
    first = radix.bit_length() - 1
    name = lane_bit if mode.who == "lane" else warp_bit
    return [name(first + i) for i in range(mode.size.bit_length() - 1)]


def _bits(who: str, first: int, count: int) -> list[str]:
    """The bits of a thread number from the digit of weight `first` (0: all) up."""
    name = lane_bit if who == "lane" else warp_bit
    begin = max(1, first).bit_length() - 1
    return [name(i) for i in range(begin, (count - 1).bit_length())]


def _row_major(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    slots: list[tuple[int, ...]] = [()]
    for extent in shape:
        slots = [(*s, i) for s in slots for i in range(extent)]
    return slots


def part_text(part: Expr) -> str:
    """The C++ text of a thread part: runs of neighbouring bits together. Requires: variables `lane` and `warp`, and
    a sum of their bits."""
    bits = sorted((_bit(name), part.coefficient(Sym(name))) for name in part.symbols)
    pieces: list[str] = []
    while bits:
        (who, first), weight = bits.pop(0)
        length = 1
        while bits and bits[0] == ((who, first + length), weight << length):
            bits.pop(0)
            length += 1
        digit = f"({who} >> {first} & {(1 << length) - 1})" if first else f"({who} & {(1 << length) - 1})"
        pieces.append(digit if weight == 1 else f"{weight} * {digit}")
    return " + ".join(pieces) or "0"


def _bit(name: str) -> tuple[str, int]:
    who = "lane" if name.startswith("@lane") else "warp"
    return who, int(name[1 + len(who) :])


def spare_text(spare: Sequence[str]) -> str | None:
    """A condition that holds in the first replica only; None where there is one copy."""
    masks: dict[str, int] = {}
    for name in spare:
        who, bit = _bit(name)
        masks[who] = masks.get(who, 0) | 1 << bit
    tests = [f"({who} & {mask}) == 0" for who, mask in masks.items()]
    return " && ".join(tests) or None


def numbers(coords: Sequence[int]) -> tuple[Expr, ...]:
    """Coordinates as expressions."""
    return tuple(const(c) for c in coords)


def lane_rows() -> Expr:
    """The rows of an 8 x 8 matrix as lanes hold them in one register: lane / 4."""
    return sym(lane_bit(2)) + sym(lane_bit(3)) * 2 + sym(lane_bit(4)) * 4


def matrix_axes(made: Layout) -> tuple[int, int] | None:
    """The row and column axis of a fragment whose groups of eight slots are two by two 8 x 8 matrices, distributed as
    stmatrix and the accumulators of mma have them; None for another distribution."""
    columns = sym(lane_bit(0)) * 2 + sym(lane_bit(1)) * 4
    column = next((a for a, p in enumerate(made.parts) if p == columns), None)
    rows = lane_rows()
    row = next((a for a, p in enumerate(made.parts) if not _lanes_of(p - rows) and a != column), None)
    if row is None or column is None or made.count % 8:
        return None
    for base in range(0, made.count, 8):
        for j in range(8):
            want = list(made.slots[base])
            want[column] += (j & 1) + 8 * (j >> 2)
            want[row] += 8 * (j >> 1 & 1)
            if made.slots[base + j] != tuple(want):
                return None
    return row, column


def _lanes_of(part: Expr) -> frozenset[str]:
    return frozenset(n for n in part.symbols if n.startswith("@lane"))
