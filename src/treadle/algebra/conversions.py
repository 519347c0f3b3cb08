"""Moving a tile from one distribution of registers to another: renaming, shuffles, or shared memory.

Distributions are bit layouts `slot, lane, warp -> element`. The element that a destination holds is found in the source
by linear algebra, `C = source^-1 . destination`, where replicas leave a choice: holders in the same thread are taken
before holders in the same warp. Then

- registers only: the destination's slots are other names of the source's,
- same warp: one shuffle a slot, after a permutation of each lane's slots that lets every lane give one value a round,
- else: through shared memory, where a shift of banks by the segment's number keeps accesses apart.

*Source*: Linear Layouts (arXiv 2505.23819), section on conversions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from treadle.algebra.bits import BitLayout, Space, pack, unpack, width
from treadle.algebra.layouts import LayoutUndefined

LABELS = ("slot", "lane", "warp")
Way = Literal["rename", "shuffle", "shared"]


@dataclass(frozen=True)
class Conversion:
    """A way to move data. `holder`: destination (slot, lane, warp) -> source (slot, lane, warp) of the element.

    For "shuffle": in round k the destination's lane l fills slot `k ^ turn(l)` from `holder` of it; in each round every
    source lane gives one slot only."""

    way: Way
    holder: BitLayout
    turn: BitLayout | None = None

    @property
    def rounds(self) -> int:
        """Shuffles a thread executes."""
        if self.way != "shuffle" or self.turn is None:
            return 0
        return sum(1 for k in range(1 << dict(self.holder.ins)["slot"]) if not self._stays(k))

    def _stays(self, k: int) -> bool:
        """Round k moves nothing between lanes."""
        return all(got == lane for lane, (got, _) in enumerate(self.round(k, 0)))

    def round(self, k: int, warp: int) -> Iterator[tuple[int, int]]:
        """For each destination lane of a warp: (source lane, source slot) of what it gets in round k."""
        assert self.turn is not None
        for lane in range(1 << dict(self.holder.ins)["lane"]):
            slot = k ^ self.turn(lane=lane)["slot"]
            source = self.holder(slot=slot, lane=lane, warp=warp)
            yield source["lane"], source["slot"]


def convert(source: BitLayout, destination: BitLayout) -> Conversion:
    """The cheapest way that moves every element.

    *Requires*: both have the inputs slot, lane, warp and the same outputs; lanes and warps agree in number.
    *Ensures*: `source.apply(holder.apply(x)) == destination.apply(x)`.
    *Errors*: `layout/undefined` for distributions of different tiles, and when the source misses an element."""
    for side in (source, destination):
        if tuple(k for k, _ in side.ins) != LABELS:
            raise _undefined(f"the inputs {side.ins}", "slot, lane, warp")
    if source.outs != destination.outs or source.ins[1:] != destination.ins[1:]:
        raise _undefined(f"{source.ins} of {source.outs}", f"{destination.ins} of {destination.outs}")
    for fixed, way in (("thread", "rename"), ("warp", "shuffle"), ("none", "shared")):
        holder = _holder(source, destination, fixed)
        if holder is None:
            continue
        if way == "rename":
            return Conversion("rename", holder)
        if way == "shared":
            return Conversion("shared", holder)
        turn = _turn(holder)
        if turn is not None:
            return Conversion("shuffle", holder, turn)
    raise _undefined("elements that the source does not hold", "a source that covers the tile")


def _holder(source: BitLayout, destination: BitLayout, fixed: str) -> BitLayout | None:
    """`source^-1 . destination` with the lane and warp of the destination kept as `fixed` says, or None."""
    free = {"thread": ("slot",), "warp": ("slot", "lane"), "none": LABELS}[fixed]
    part = _restricted(source, free)
    images: list[int] = []
    at = 0
    for label, bits in destination.ins:
        for i in range(bits):
            kept = {} if label in free else {label: 1 << i}
            wanted = destination.images[at] ^ source.apply(pack(source.ins, kept))
            at += 1
            if fixed == "thread" and label != "slot":
                if wanted:  # the slot would hang on the thread: no mere name
                    return None
                images.append(pack(source.ins, kept))
                continue
            found = _nearest(part, wanted, label, i)
            if found is None:
                return None
            images.append(pack(source.ins, {**unpack(part.ins, found), **kept}))
    return BitLayout(destination.ins, source.ins, tuple(images))


def _restricted(layout: BitLayout, labels: tuple[str, ...]) -> BitLayout:
    """The layout on some of its labels, the others 0."""
    ins: Space = tuple((k, n) for k, n in layout.ins if k in labels)
    images: list[int] = []
    at = 0
    for label, bits in layout.ins:
        if label in labels:
            images += layout.images[at : at + bits]
        at += bits
    return BitLayout(ins, layout.outs, tuple(images))


def _nearest(part: BitLayout, wanted: int, label: str, bit: int) -> int | None:
    """A holder of `wanted`; the same bit of the same label where that is one (replicas)."""
    if any(k == label and bit < n for k, n in part.ins):
        same = pack(part.ins, {label: 1 << bit})
        if part.apply(same) == wanted:
            return same
    return part.solve(wanted)


def _turn(holder: BitLayout) -> BitLayout | None:
    """lane -> slot such that in every round (slots `k ^ turn(lane)`) the source lane is another one for each lane.

    Without a turn the source lane of lane l is D(l); its missing directions are filled from what the slots reach."""
    sizes = dict(holder.ins)
    lanes, slots = sizes["lane"], sizes["slot"]
    reached = [unpack(holder.outs, image)["lane"] for image in holder.images]
    by_slot, by_lane = reached[:slots], reached[slots : slots + lanes]
    turn = [0] * lanes
    now = list(by_lane)
    for _ in range(lanes + 1):
        square = BitLayout((("lane", lanes),), (("lane", lanes),), tuple(now))
        loose = square.kernel()
        if not loose:
            return BitLayout((("lane", lanes),), (("slot", slots),), tuple(turn))
        # One lane direction that goes nowhere gets a slot direction that leads outside the present image.
        outside = next((i for i, x in enumerate(by_slot) if square.solve(x) is None), None)
        if outside is None:
            return None
        lane = (loose[0] & -loose[0]).bit_length() - 1
        turn[lane] ^= 1 << outside
        now[lane] ^= by_slot[outside]
    return None


@dataclass(frozen=True)
class Staging:
    """A shared-memory layout `offset -> element` between two distributions, and its worst bank conflicts (1: none)."""

    layout: BitLayout
    write_conflicts: int
    read_conflicts: int

    @property
    def total(self) -> int:
        """Both directions; 2 is none."""
        return self.write_conflicts + self.read_conflicts


def bank_conflicts(memory: BitLayout, distribution: BitLayout, bytes: int, banks: int = 32) -> int:
    """The most different 4-byte words of one bank that are wanted at once when lanes access a slot each, by counting.

    Lanes that go at once: those whose elements make up one row of all banks. *Requires*: `memory` is one-to-one,
    `offset -> element`; `bytes` is a power of two."""
    inverse = memory.right_inverse()
    sizes = dict(distribution.ins)
    lanes = 1 << sizes["lane"]
    together = min(lanes, 4 * banks // max(4, bytes))
    worst = 1
    for slot in range(1 << sizes["slot"]):
        for first in range(0, lanes, together):
            words: dict[int, set[int]] = {}
            for lane in range(first, first + together):
                element = distribution.apply(pack(distribution.ins, {"slot": slot, "lane": lane}))
                start = inverse.apply(element) * bytes
                for word in range(start // 4, (start + bytes - 1) // 4 + 1):
                    words.setdefault(word % banks, set()).add(word)
            worst = max(worst, *(len(w) for w in words.values()))
    return worst


def stage(source: BitLayout, destination: BitLayout, bytes: int) -> Staging:
    """A shared-memory layout for writing from `source` and reading into `destination` with the fewest conflicts found.

    Candidates: elements in order, and in order with bits inside a row of banks shifted (xor) by bits of the row's
    number. *Ensures*: the layout is one-to-one; conflicts are those that `bank_conflicts` counts, never more than
    those of the plain order."""
    bits = width(source.outs)
    row = (128 // bytes).bit_length() - 1  # offset bits inside one row of all banks
    best: Staging | None = None
    for images in _shifted(bits, row):
        layout = BitLayout((("offset", bits),), source.outs, images)
        found = Staging(layout, bank_conflicts(layout, source, bytes), bank_conflicts(layout, destination, bytes))
        if best is None or found.total < best.total:
            best = found
        if best.total == 2:
            break
    assert best is not None, "the plain order comes first"
    return best


def _shifted(bits: int, row: int) -> Iterator[tuple[int, ...]]:
    """Images of the offset's bits: plain, then with `count` bits from `high` on shifting those from `low` on."""
    plain = tuple(1 << i for i in range(bits))
    yield plain
    for high in range(row, bits):
        for low in range(row):
            for count in range(1, min(row - low, bits - high) + 1):
                moved = {high + i: 1 << (low + i) for i in range(count)}
                yield tuple(image | moved.get(i, 0) for i, image in enumerate(plain))


def _undefined(found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(
        doing="converting between distributions",
        found=found,
        expected=expected,
        hint="both distributions must cover one tile with the same lanes and warps",
    )
