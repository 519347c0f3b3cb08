"""Shared memory between two distributions: a layout for it, how each side moves its pieces, and how many rounds.

A side moves *vectors*, registers that it has side by side, or 8x8 *matrices* of 16-bit units, which cross lanes on
their way (`ldmatrix`, `stmatrix`: a line of 16 bytes is in four lanes, or, *turned*, lane by lane in eight). Which of
them it can use hangs on the lowest bits of an offset, the *line*. Above it an offset has bits inside one row of all
banks, and segments: rows. Directions for segments are such that what the lanes of one access reach differs in banks,
on either side (`spans.avoiding`): plain ones, and sums of a lane's direction of one side and one of the other, which is
a swizzle. A tile that is larger than the room for it goes in rounds, which linear forms of the element tell apart.

*Source*: Linear Layouts (arXiv 2505.23819), section on shared-memory conversions; PTX ISA 9.0, ldmatrix and stmatrix.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from treadle.algebra.bits import BitLayout, Space, width
from treadle.algebra.conversions import images_of, linear
from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.spans import Span, avoiding, extending, meeting, rank, sums

WIDEST = 16
"""Bytes of the widest access of a thread, and of a line of a matrix."""
ROW = 128
"""Bytes of one row of all banks: what one access of a warp moves at best."""
WORD = 4
"""Bytes of a bank's word, and of a register of a matrix."""
ATOMS = ("ldmatrix", "stmatrix")
"""Instructions on matrices: which side may use them."""
Kind = Literal["vector", "matrix", "turned"]


@dataclass(frozen=True)
class Access:
    """How one side goes to memory: its kind, bytes of one instruction of a thread, instructions of a thread in all
    rounds, and the most words that one bank has to give to an access (1: no conflicts)."""

    kind: Kind
    bytes: int
    count: int
    conflicts: int


@dataclass(frozen=True)
class Staging:
    """A way through shared memory. `memory`: offset -> element, of round 0; `rounds`: forms (masks of element bits,
    whose parities number the round); `shifts`: elements, the i-th of which moves round 0 to round `1 << i`."""

    memory: BitLayout
    write: Access
    read: Access
    rounds: tuple[int, ...]
    shifts: tuple[int, ...]
    bytes: int
    """Of shared memory."""

    def round(self, element: int) -> int:
        """The round in which an element goes."""
        return sum(1 << i for i, form in enumerate(self.rounds) if (form & element).bit_count() & 1)

    @property
    def place(self) -> BitLayout:
        """element -> offset. *Ensures*: elements of one round lie apart, and fill the offsets."""
        units = [1 << i for i in range(width(self.memory.outs))]
        given = [*self.memory.images, *self.shifts]
        values = [*(1 << i for i in range(len(self.memory.images))), *(0 for _ in self.shifts)]
        assert rank(given) == len(units), "offsets and rounds tell elements apart"
        return linear(given, values, self.memory.outs, self.memory.ins)

    @property
    def rows(self) -> int:
        """Rows of banks that a warp's accesses take."""
        return self.write.count * self.write.conflicts + self.read.count * self.read.conflicts


def stage(
    source: BitLayout, destination: BitLayout, bytes: int, room: int | None = None, atoms: Collection[str] = ATOMS
) -> Staging:
    """The way with the fewest instructions, each counted as often as conflicts repeat it.

    `room`: bytes of shared memory that may be used, in as many rounds as it takes; None: the tile's. `atoms`: which
    instructions on matrices there are. *Ensures*: given the line and the accesses, no layout of memory that keeps the
    line has fewer conflicts on either side. *Errors*: `layout/undefined` for elements of other than 1, 2, 4, 8 or 16
    bytes, and where no rounds fit the room."""
    total = bytes << width(source.outs)
    if bytes & (bytes - 1) or not 1 <= bytes <= WIDEST:
        raise _undefined(f"elements of {bytes} bytes", "1, 2, 4, 8 or 16")
    count = 0 if room is None else (-(-total // max(1, room)) - 1).bit_length()
    ways: list[_Way] = []
    for line in lines(source, destination, bytes, atoms):
        forms = _forms(source, destination, line, count)
        if forms is not None:
            ways += _ways(source, destination, bytes, line, forms, atoms)
    best: Staging | None = None
    for way in sorted(ways, key=lambda w: w.least):
        if best is not None and best.rows <= way.least:
            break
        found = _staging(source, destination, bytes, way)
        if found is not None and (best is None or found.rows < best.rows):
            best = found
    if best is None:
        raise _undefined(f"{total} bytes in rounds of {room}", "registers of both sides that number the rounds")
    return best


# ---- lines


def lines(source: BitLayout, destination: BitLayout, bytes: int, atoms: Collection[str]) -> list[tuple[int, ...]]:
    """Candidates for the lowest bits of an offset: element directions that both sides have in registers, that one of
    them has, and those of a side's matrices; shorter beginnings of all of them too."""
    most = (WIDEST // bytes).bit_length() - 1
    mine, theirs = (extending([], images_of(side, "slot")) for side in (source, destination))
    both = [x for x in mine if x in theirs]
    found: list[tuple[int, ...]] = []
    for more in ([], mine, theirs):
        full = list(dict.fromkeys([*both, *more]))[:most]
        found += [tuple(extending([], full[:n])) for n in range(len(full), -1, -1)]
    for side in (source,) * ("stmatrix" in atoms) + (destination,) * ("ldmatrix" in atoms):
        for kind in ("matrix", "turned"):
            found += _matrix_lines(side, both, bytes, kind)
    return list(dict.fromkeys(found))


def _matrix_lines(side: BitLayout, both: Sequence[int], bytes: int, kind: str) -> Iterator[tuple[int, ...]]:
    """Lines of which a side's lanes have registers as matrices do."""
    unit = WORD if kind == "matrix" else WORD // 2
    lanes, slots = images_of(side, "lane"), extending([], images_of(side, "slot"))
    if bytes > unit or len(lanes) != 5:
        return
    low = (unit // bytes).bit_length() - 1  # directions inside a unit
    crossed = lanes[:2] if kind == "matrix" else lanes[2:]
    slots = [*[x for x in slots if x in both], *[x for x in slots if x not in both]]
    for start in range(max(1, len(slots) - low + 1)):
        line = (*slots[start : start + low], *crossed)
        if len(line) == low + len(crossed) == rank(line):
            yield line


# ---- accesses


@dataclass(frozen=True)
class Piece:
    """What an instruction of a side moves: `inside`, directions of the line that a register, or a vector of them, has;
    `at_once`, directions that lanes of one phase reach; `apart`, what must go in one round."""

    kind: Kind
    inside: tuple[int, ...]
    at_once: tuple[int, ...]
    apart: tuple[int, ...]


def pieces(side: BitLayout, line: Sequence[int], bytes: int, matrices: bool) -> list[Piece]:
    """The kinds of access that a side can use, given the line."""
    slots, lanes = Span(images_of(side, "slot")), images_of(side, "lane")
    reached = next((i for i, x in enumerate(line) if x not in slots), len(line))
    together = (ROW // max(WORD, bytes << reached)).bit_length() - 1
    found = [Piece("vector", tuple(line[:reached]), tuple(lanes[:together]), tuple(line[:reached]))]
    if not matrices or len(lanes) != 5 or bytes << len(line) != WIDEST:
        return found
    for kind, unit, crossed in (("matrix", WORD, lanes[:2]), ("turned", WORD // 2, lanes[2:])):
        low = max(0, (unit // bytes).bit_length() - 1)
        if bytes > unit or low > reached or list(line[low:]) != crossed:
            continue
        if kind == "matrix":
            found.append(Piece("matrix", tuple(line[:low]), tuple(lanes[2:]), tuple(line)))
        elif rank([*line, *(pair := second(side, line)), *lanes[:2]]) == len(line) + 3:
            found.append(Piece("turned", tuple(line[:low]), (*pair, *lanes[:2]), (*line, *pair)))
    return found


def second(side: BitLayout, line: Sequence[int]) -> list[int]:
    """The direction, if any, from the lower half of a side's register to its upper one, in turned matrices."""
    return extending(line, images_of(side, "slot"))[:1]


def _access(side: BitLayout, piece: Piece, bytes: int, rounds: int) -> tuple[int, int]:
    """Instructions of a thread in all rounds, and bytes of one: replicas in its own registers move once."""
    slots = rank(images_of(side, "slot"))
    if piece.kind == "vector":
        return 1 << (slots - len(piece.inside)), bytes << len(piece.inside)
    words = max(1, (bytes << slots - rounds) // WORD)
    most = min(4, words)
    return (words // most) << rounds, WORD * most


def _fits(side: BitLayout, piece: Piece, line: Sequence[int], place: BitLayout) -> bool:
    """Whether a side's accesses begin where lines, or its part of them, do: what moves is in the order of memory."""
    inside = (1 << len(piece.inside if piece.kind == "vector" else line)) - 1
    lanes, moved = images_of(side, "lane"), images_of(side, "warp")
    if piece.kind == "vector":
        moved += lanes
    else:  # in a matrix two or three of the lane's bits say which unit of a line, and nothing else does
        moved += lanes[2:] if piece.kind == "matrix" else lanes[:2]
        moved += [x for x in images_of(side, "slot") if x not in piece.inside]
    return not any(place.apply(x) & inside for x in moved)


# ---- a way


@dataclass(frozen=True)
class _Way:
    """The accesses of both sides, given the line and the forms of rounds: (piece, instructions, bytes of one)."""

    line: tuple[int, ...]
    forms: tuple[int, ...]
    sides: tuple[tuple[Piece, int, int], ...]

    @property
    def least(self) -> int:
        """Instructions, without conflicts."""
        return sum(count for _, count, _ in self.sides)


def _ways(
    source: BitLayout,
    destination: BitLayout,
    bytes: int,
    line: tuple[int, ...],
    forms: tuple[int, ...],
    atoms: Collection[str],
) -> Iterator[_Way]:
    # An element is stored by one lane, so that lanes with the same elements cannot store a matrix.
    alone = rank(images_of(source, "lane")) == len(images_of(source, "lane"))
    for one in pieces(source, line, bytes, alone and "stmatrix" in atoms):
        for two in pieces(destination, line, bytes, "ldmatrix" in atoms):
            if not any(_odd(f, x) for f in forms for x in (*one.apart, *two.apart)):
                sides = ((p, *_access(s, p, bytes, len(forms))) for s, p in ((source, one), (destination, two)))
                yield _Way(line, forms, tuple(sides))


def _staging(source: BitLayout, destination: BitLayout, bytes: int, way: _Way) -> Staging | None:
    """The memory for a way; None where accesses would not begin at lines."""
    bits = width(source.outs)
    space = _zeros_of(way.forms, [1 << i for i in range(bits)])
    (one, *_), (two, *_) = way.sides
    memory = memory_layout(source.outs, space, way.line, bytes, one.at_once, two.at_once)
    sides = [Access(p.kind, wide, count, conflicts(memory, p, bytes)) for p, count, wide in way.sides]
    found = Staging(memory, sides[0], sides[1], way.forms, _shifts(way.forms, bits), bytes << len(space))
    place = found.place
    fits = all(_fits(side, p, way.line, place) for side, p in ((source, one), (destination, two)))
    return found if fits else None


def memory_layout(
    outs: Space, space: Sequence[int], line: Sequence[int], bytes: int, a: Sequence[int], b: Sequence[int]
) -> BitLayout:
    """`offset -> element`: the line lowest, then bits inside a row of banks, then segments.

    `a`, `b`: directions that lanes of one access reach. *Ensures*: one-to-one onto the span of `space`; segments have
    as little in common with either as can be."""
    row, word = (max(0, (n // bytes).bit_length() - 1) for n in (ROW, WORD))
    whole = [*line, *extending(line, [*a, *b, *space])[: max(0, word - len(line))]]  # a word at least
    banks = max(0, row - len(whole))
    few = [extending(whole, side)[:banks] for side in (a, b)]
    modulo = Span(whole)
    free = sorted(map(modulo.rest, avoiding(space, few[0], few[1], whole)), key=lambda x: (x.bit_count(), -x))
    segments = extending(whole, free)[: max(0, len(space) - len(whole) - banks)]
    inner = extending([*whole, *segments], map(modulo.rest, sorted(space, key=lambda x: (x.bit_count(), x))))
    bits = len(whole) + len(inner) + len(segments)
    return BitLayout((("offset", bits),), outs, (*whole, *inner, *segments))


def conflicts(memory: BitLayout, piece: Piece, bytes: int) -> int:
    """Words of one bank that the lanes of an access want: those that differ in segments only.

    *Ensures*: equal to `bank_rows`, which counts them bank by bank."""
    row, word = (max(0, (n // bytes).bit_length() - 1) for n in (ROW, WORD))
    base, segments = memory.images[:word], memory.images[row:]
    inside = piece.inside if piece.kind == "vector" else memory.images[: (WIDEST // bytes).bit_length() - 1]
    return 1 << len(meeting([*base, *inside, *piece.at_once], [*base, *segments])) - rank(base)


def bank_rows(staging: Staging, side: BitLayout, access: Access, bytes: int) -> int:
    """The most different words that lanes want of one bank in one phase of an access, by counting bank by bank.

    Phases: lanes whose vectors make up one row of all banks; of matrices, the eight lines of each."""
    slots, lanes = images_of(side, "slot"), images_of(side, "lane")
    reached = (access.bytes if access.kind == "vector" else WIDEST) // bytes
    line = staging.memory.images[: reached.bit_length() - 1]
    together = (ROW // max(WORD, access.bytes)).bit_length() - 1
    phase = {"vector": lanes[:together], "matrix": lanes[2:], "turned": [*second(side, line), *lanes[:2]]}[access.kind]
    others = extending([*line, *phase], [*slots, *lanes, *images_of(side, "warp")])
    place = staging.place
    worst = 1
    for start in sums(others):
        words: dict[int, set[int]] = {}
        for x in sums(phase):
            first = (place.apply(start ^ x) & -reached) * bytes // WORD
            for word in range(first, first + max(1, reached * bytes // WORD)):
                words.setdefault(word % (ROW // WORD), set()).add(word)
        worst = max(worst, *(len(w) for w in words.values()))
    return worst


# ---- rounds


def _forms(source: BitLayout, destination: BitLayout, line: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Forms of the element that number `count` doublings of rounds: 0 on the line and on lanes of both sides, so that
    whole accesses go in a round, and as many on slots of either side; rather 0 on warps too. None: there are none."""
    if not count:
        return ()
    sides = (source, destination)
    bits = width(source.outs)
    lanes = [x for side in sides for x in images_of(side, "lane")]
    warps = [x for side in sides for x in images_of(side, "warp")]
    units = [1 << i for i in range(bits)]
    for fixed in ([*line, *lanes, *warps], [*line, *lanes]):
        space = _zeros_of(fixed, units)
        blind = [_zeros_of(images_of(side, "slot"), space) for side in sides]
        free = avoiding(space, blind[0], blind[1])
        if len(free) >= count:
            return tuple(sorted(free, key=lambda f: (f.bit_count(), -f))[:count])
    return None


def _zeros_of(forms: Sequence[int], space: Sequence[int]) -> list[int]:
    """A basis of the vectors of a space on which all forms are 0."""
    basis = extending([], space)
    for form in forms:
        odd = [x for x in basis if _odd(form, x)]
        basis = [x if not _odd(form, x) else x ^ odd[0] for x in basis if x is not (odd[0] if odd else None)]
    return basis


def _odd(form: int, vector: int) -> bool:
    return bool((form & vector).bit_count() & 1)


def _shifts(forms: Sequence[int], bits: int) -> tuple[int, ...]:
    """For each form an element on which it alone is odd."""
    found: list[int] = []
    for i, form in enumerate(forms):
        others = [f for k, f in enumerate(forms) if k != i]
        found.append(next(x for x in _zeros_of(others, [1 << k for k in range(bits)]) if _odd(form, x)))
    return tuple(found)


def _undefined(found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(
        doing="going through shared memory",
        found=found,
        expected=expected,
        hint="give the conversion more shared memory",
    )
