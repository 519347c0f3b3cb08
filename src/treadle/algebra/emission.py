"""What a conversion between distributions costs when it is emitted: instructions of a thread, shared bytes, conflicts.

*Source*: Linear Layouts (arXiv 2505.23819), whose table of conversions `docs/conversions.md` compares with.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.algebra.bits import BitLayout
from treadle.algebra.conversions import Shuffles, Way, convert, images_of, width_of
from treadle.algebra.spans import rank
from treadle.algebra.staging import Access, stage


@dataclass(frozen=True)
class Emission:
    """Instructions of one thread: shuffles of 4 bytes and the selects around them; or `write` and `read`, accesses of
    shared memory in `rounds` rounds, with `barriers` between them."""

    way: Way
    shuffles: int = 0
    selects: int = 0
    write: Access | None = None
    read: Access | None = None
    rounds: int = 1
    shared: int = 0
    barriers: int = 0

    @property
    def instructions(self) -> int:
        """All of them."""
        accesses = sum(side.count for side in (self.write, self.read) if side is not None)
        return self.shuffles + self.selects + accesses + self.barriers


def emission(source: BitLayout, destination: BitLayout, bytes: int, room: int | None = None) -> Emission:
    """How the cheapest way of `convert` is emitted, for elements of `bytes` bytes.

    *Errors*: `layout/undefined` as `convert` and `staging.stage`."""
    found = convert(source, destination)
    if found.way == "rename":
        return Emission("rename")
    words = max(1, bytes // 4)
    if found.shuffles is not None:
        # A select takes 8 bytes, a shuffle 4.
        return Emission("shuffle", found.rounds * words, selects(found.shuffles) * max(1, bytes // 8))
    return staged(source, destination, bytes, room)


def staged(source: BitLayout, destination: BitLayout, bytes: int, room: int | None = None) -> Emission:
    """How the way through shared memory is emitted."""
    found = stage(source, destination, bytes, room)
    rounds = 1 << len(found.rounds)
    # Of one warp alone, lanes meet; else warps do, before each turn of writing and of reading.
    barriers = 2 * rounds - 1 if width_of(source.ins, "warp") else 0
    return Emission("shared", 0, 0, found.write, found.read, rounds, found.bytes, barriers)


def selects(shuffles: Shuffles) -> int:
    """Selects that bring what a lane gives and gets in order.

    Registers that differ from lane to lane by a number of r bits are exchanged in r steps, all of them in each, or
    chosen one by one, with 2^r - 1 selects each; where not all lanes get something, what they had is kept by one."""
    gives, puts = rank(shuffles.gives.images), rank(shuffles.puts.images)
    theirs = 1 << rank(images_of(shuffles.holder, "slot")) if shuffles.everyone else shuffles.count
    slots = 1 << width_of(shuffles.gives.outs, "slot")
    giving = min(gives * slots, shuffles.count * ((1 << gives) - 1))
    if not shuffles.everyone:
        return giving + (shuffles.count << puts)
    return giving + min(puts * theirs, theirs * ((1 << puts) - 1))
