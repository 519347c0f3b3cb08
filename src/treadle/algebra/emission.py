"""What a conversion between distributions costs when it is emitted: instructions of a thread, shared bytes, conflicts.

A conversion through shared memory moves vectors: registers that a side has side by side, up to 16 bytes. Its memory
layout is `offset -> element`, offset bits being the vector, the banks, and the segments (rows of all banks);
directions for segments are sought outside of what the lanes of one access span, on either side, and are made of
differences of lanes (a swizzle) where plain directions do not do.

*Source*: Linear Layouts (arXiv 2505.23819), section on shared-memory conversions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.bits import BitLayout, pack, width
from treadle.algebra.conversions import Way, convert

WIDEST = 16
"""Bytes of the widest access of a thread."""
ROW = 128
"""Bytes of one row of all banks: what one access of a warp moves at best."""


@dataclass(frozen=True)
class Emission:
    """Instructions of one thread: shuffles of 4 bytes and the selects around them, or stores and loads of shared memory
    of `store_bytes` and `load_bytes`. Conflicts: the most words that one bank has to give to an access (1: none)."""

    way: Way
    shuffles: int = 0
    selects: int = 0
    stores: int = 0
    loads: int = 0
    store_bytes: int = 0
    load_bytes: int = 0
    shared: int = 0
    barriers: int = 0
    write_conflicts: int = 1
    read_conflicts: int = 1

    @property
    def instructions(self) -> int:
        """All of them."""
        return self.shuffles + self.selects + self.stores + self.loads + self.barriers


def emission(source: BitLayout, destination: BitLayout, bytes: int) -> Emission:
    """How the cheapest way of `convert` is emitted, for elements of `bytes` bytes.

    *Errors*: `layout/undefined` as `convert`."""
    found = convert(source, destination)
    if found.way == "rename":
        return Emission("rename")
    words = max(1, bytes // 4)
    if found.way == "shuffle" and found.turn is not None:
        slots = 1 << dict(found.holder.ins)["slot"]
        sent, kept = _choices(found.holder.images, found.turn, found.holder)
        return Emission("shuffle", found.rounds * words, (found.rounds * sent + slots * kept) * words)
    return staged(source, destination, bytes)


def _choices(images: Sequence[int], turn: BitLayout, holder: BitLayout) -> tuple[int, int]:
    """Selects that pick the register to send, a round, and that put a received one in its place: one for each bit of
    the register's number that differs from lane to lane."""
    turned = turn.rank
    slot = dict(holder.outs)["slot"]
    sizes = dict(holder.ins)
    by_lane = [x & ((1 << slot) - 1) for x in images[sizes["slot"] : sizes["slot"] + sizes["lane"]]]
    varies = BitLayout((("lane", len(by_lane)),), (("slot", slot),), tuple(by_lane)).rank
    return (1 << max(varies, turned)) - 1, turned


# ---- through shared memory


def staged(source: BitLayout, destination: BitLayout, bytes: int) -> Emission:
    """The accesses through shared memory that move the fewest rows of banks: vectors of both sides, of the source, or
    of the destination lie side by side. *Ensures*: conflicts are those counted bank by bank."""
    found = [_through(source, destination, bytes, v) for v in vectors(source, destination, bytes)]
    return min(found, key=lambda e: e.stores * e.write_conflicts + e.loads * e.read_conflicts)


def _through(source: BitLayout, destination: BitLayout, bytes: int, vector: Sequence[int]) -> Emission:
    memory = memory_layout(source, destination, bytes, vector)
    own = [reach(side, vector) for side in (source, destination)]
    counts = [_accesses(side, v) for side, v in zip((source, destination), own, strict=True)]
    conflicts = [bank_rows(memory, side, v, bytes) for side, v in zip((source, destination), own, strict=True)]
    warps = any(dict(side.ins)["warp"] for side in (source, destination))
    return Emission(
        "shared",
        stores=counts[0],
        loads=counts[1],
        store_bytes=bytes << len(own[0]),
        load_bytes=bytes << len(own[1]),
        shared=bytes << width(source.outs),
        barriers=1 if warps else 0,
        write_conflicts=conflicts[0],
        read_conflicts=conflicts[1],
    )


def vectors(source: BitLayout, destination: BitLayout, bytes: int) -> list[list[int]]:
    """Candidates for the lowest bits of an offset: element bits that both sides have in registers, that the source has,
    that the destination has; as many as an access is wide, those of both first."""
    most = max(0, (WIDEST // bytes).bit_length() - 1)
    mine, theirs = (sorted(x for x in _of(side, "slot") if x) for side in (source, destination))
    both = [x for x in mine if x in theirs]
    return [list(dict.fromkeys([*both, *more]))[:most] for more in ([], mine, theirs)]


def reach(side: BitLayout, vector: Sequence[int]) -> list[int]:
    """The bits of a vector that a side has in registers, from the lowest on: what it moves at once."""
    own = _of(side, "slot")
    found: list[int] = []
    for x in vector:
        if x not in own:
            break
        found.append(x)
    return found


def memory_layout(source: BitLayout, destination: BitLayout, bytes: int, vector: Sequence[int]) -> BitLayout:
    """`offset -> element`: the vector lowest, then banks, then segments.

    *Ensures*: one-to-one; segments share no direction with the lanes of one access of either side where that can be."""
    bits = width(source.outs)
    row = max(0, (ROW // bytes).bit_length() - 1 - len(vector))  # bank bits above the vector
    lanes = [_at_once(side, reach(side, vector), bytes) for side in (source, destination)]
    wanted = max(0, bits - len(vector) - row)
    plain = [1 << i for i in range(bits)]
    pairs = [a ^ b for a in lanes[0] for b in lanes[1] if a != b]
    segments: list[int] = []
    # A direction for segments is outside of what both sides reach at once, of one side, or merely new.
    for besides in (lanes, lanes[:1], lanes[1:], []):
        for x in [*reversed(plain), *pairs]:
            spans = [[*vector, *segments, *side] for side in ([], *besides)]
            if len(segments) < wanted and all(_rank([*span, x]) > _rank(span) for span in spans):
                segments.append(x)
    banks: list[int] = []
    for x in [*plain, *pairs]:
        if _rank([*vector, *segments, *banks, x]) > len(vector) + len(segments) + len(banks):
            banks.append(x)
    return BitLayout((("offset", bits),), source.outs, (*vector, *banks, *segments))


def bank_rows(memory: BitLayout, side: BitLayout, vector: Sequence[int], bytes: int) -> int:
    """The most different words that lanes want of one bank in one access, by counting bank by bank.

    Lanes whose vectors make up one row of all banks go at once."""
    inverse = memory.right_inverse()
    wide = bytes << len(vector)
    lanes = 1 << dict(side.ins)["lane"]
    together = max(1, min(lanes, ROW // max(4, wide)))
    outside = [k for k, x in enumerate(_of(side, "slot")) if x not in vector]
    worst = 1
    for choice in range(1 << len(outside)):
        slot = sum(1 << k for i, k in enumerate(outside) if choice >> i & 1)
        for first in range(0, lanes, together):
            words: dict[int, set[int]] = {}
            for lane in range(first, first + together):
                start = inverse.apply(side.apply(pack(side.ins, {"slot": slot, "lane": lane}))) * bytes
                for word in range(start // 4, (start + wide - 1) // 4 + 1):
                    words.setdefault(word % (ROW // 4), set()).add(word)
            worst = max(worst, *(len(w) for w in words.values()))
    return worst


def _accesses(side: BitLayout, vector: Sequence[int]) -> int:
    """Vectors that a thread moves: replicas in its own registers once."""
    return 1 << (_rank([x for x in _of(side, "slot") if x]) - len(vector))


def _at_once(side: BitLayout, vector: Sequence[int], bytes: int) -> list[int]:
    """What the lanes of one access reach."""
    wide = bytes << len(vector)
    count = max(0, (ROW // max(4, wide)).bit_length() - 1)
    return [x for x in _of(side, "lane")[:count] if x]


def _of(layout: BitLayout, label: str) -> list[int]:
    at = 0
    for name, count in layout.ins:
        if name == label:
            return list(layout.images[at : at + count])
        at += count
    return []


def _rank(vectors: Sequence[int]) -> int:
    bits = max((v.bit_length() for v in vectors), default=0)
    return BitLayout((("v", len(vectors)),), (("x", bits),), tuple(vectors)).rank
