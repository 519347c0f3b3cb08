"""Moving a tile from one distribution of registers to another: renaming, shuffles, or shared memory.

Distributions are bit layouts `slot, lane, warp -> element`. The element that a destination holds is found in the source
by linear algebra, `C = source^-1 . destination`, where replicas leave a choice. Then

- registers only: the destination's slots are other names of the source's,
- same warp: shuffles, always. In a round each lane gives one slot, to as many lanes as want it, and gets one. A round
  is a coset of a space of (slot, lane) pairs of the destination that meets neither the slots of one lane (a lane gets
  one) nor what comes out of one lane (a lane gives one); the largest such space makes the fewest rounds,
- else: through shared memory (`algebra.staging`).

*Source*: Linear Layouts (arXiv 2505.23819), section on conversions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from treadle.algebra.bits import BitLayout, Space, bits_of, pack, width
from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.spans import avoiding, extending, meeting, sums, total, zeros

LABELS = ("slot", "lane", "warp")
Way = Literal["rename", "shuffle", "shared"]


@dataclass(frozen=True)
class Round:
    """One shuffle. Lane l gives slot `give ^ gives(l)`; if `l ^ shift` is among the takers, it gets what lane
    `source ^ takes(l ^ shift)` gives and puts it into slot `put ^ puts(l ^ shift)` (maps of `Shuffles`)."""

    give: int
    source: int
    shift: int
    put: int


@dataclass(frozen=True)
class Shuffles:
    """Rounds of shuffles in a warp. `gives`: lane -> slot of the source, `takes`: lane -> lane, `puts`: lane -> slot of
    the destination; `takers`: the lanes, but for a round's shift, that get something; `apart`: (slot, lane) pairs of
    the destination, packed, that tell rounds from one another.

    *Ensures*: the rounds of a warp fill each slot of `filled`, of every lane, once."""

    gives: BitLayout
    takes: BitLayout
    puts: BitLayout
    takers: tuple[int, ...]
    apart: tuple[int, ...]
    holder: BitLayout

    @property
    def count(self) -> int:
        """Rounds, with those in which no lane gets anything from another."""
        return 1 << len(self.apart)

    @property
    def everyone(self) -> bool:
        """Whether all lanes get something in each round."""
        return len(self.takers) == width_of(self.takes.ins, "lane")

    def round(self, k: int, warp: int) -> Round:
        """Round k of a warp."""
        slots = width_of(self.puts.outs, "slot")
        at = total(x for i, x in enumerate(self.apart) if k >> i & 1)
        put, shift = at & ((1 << slots) - 1), at >> slots
        source = self.holder(slot=put, lane=shift, warp=warp)
        return Round(source["slot"] ^ self.gives.apply(source["lane"]), source["lane"], shift, put)

    def moved(self, k: int, warp: int) -> Iterator[tuple[int, int, int, int]]:
        """What round k does in a warp: the lanes that get, into which slot, the lane that gives, out of which slot."""
        one = self.round(k, warp)
        for at in sums(self.takers):
            giver = one.source ^ self.takes.apply(at)
            yield at ^ one.shift, one.put ^ self.puts.apply(at), giver, one.give ^ self.gives.apply(giver)

    def stays(self, k: int) -> bool:
        """Whether round k moves nothing between lanes, in any warp."""
        still = self._still()
        return still is not None and not total(x for i, x in enumerate(still) if k >> i & 1)

    @property
    def moving(self) -> int:
        """Rounds that move something between lanes."""
        still = self._still()
        return self.count - (0 if still is None else 1 << len(self.apart) - len(extending([], still)))

    def _still(self) -> list[int] | None:
        """How far, in lanes, what tells rounds apart moves; None where something moves in every round."""
        slots, theirs = width_of(self.puts.outs, "slot"), width_of(self.gives.outs, "slot")

        def far(x: int) -> int:
            lanes = (1 << width_of(self.takes.ins, "lane")) - 1
            return (self.holder.apply(x) >> theirs ^ x >> slots) & lanes

        together = [self.puts.apply(t) | t << slots for t in self.takers]
        first = slots + width_of(self.takes.ins, "lane")
        warps = [1 << first + i for i in range(width_of(self.holder.ins, "warp"))]
        return None if any(map(far, (*together, *warps))) else [far(x) for x in self.apart]

    @property
    def filled(self) -> tuple[int, ...]:
        """Slots of the destination that rounds fill, as directions; the others repeat them."""
        return tuple(_kept(self.holder, width_of(self.puts.outs, "slot")))


@dataclass(frozen=True)
class Conversion:
    """A way to move data. `holder`: destination (slot, lane, warp) -> source (slot, lane, warp) of the element;
    `shuffles`, for that way: its rounds."""

    way: Way
    holder: BitLayout
    shuffles: Shuffles | None = None

    @property
    def rounds(self) -> int:
        """Shuffles a thread executes, of one register each."""
        return 0 if self.shuffles is None else self.shuffles.moving


def width_of(space: Space, label: str) -> int:
    """The bits of a label."""
    return dict(space)[label]


def images_of(layout: BitLayout, label: str) -> list[int]:
    """Where the bits of a label go."""
    return [layout.images[i] for i in bits_of(layout.ins, label)]


def convert(source: BitLayout, destination: BitLayout) -> Conversion:
    """The cheapest way that moves every element.

    *Requires*: both have the inputs slot, lane, warp and the same outputs; lanes and warps agree in number.
    *Ensures*: `source.apply(holder.apply(x)) == destination.apply(x)`; the way is "rename" exactly when each slot of
    the destination is one slot of the source in all threads, else "shuffle" exactly when each warp holds in the source
    what it holds in the destination. Rounds are as few as the holder allows: the more of what a lane gets and of what a
    lane gives.
    *Errors*: `layout/undefined` for distributions of different tiles, and when the source misses an element."""
    for side in (source, destination):
        if tuple(k for k, _ in side.ins) != LABELS:
            raise _undefined(f"the inputs {side.ins}", "slot, lane, warp")
    if source.outs != destination.outs or source.ins[1:] != destination.ins[1:]:
        raise _undefined(f"{source.ins} of {source.outs}", f"{destination.ins} of {destination.outs}")
    holder = _renamed(source, destination)
    if holder is not None:
        return Conversion("rename", holder)
    ways = [_shuffles(h) for h in _in_warp(source, destination)]
    if ways:
        best = min(ways, key=lambda s: (s.moving, s.count))
        return Conversion("shuffle", best.holder, best)
    found = [source.solve(image) for image in destination.images]
    if any(x is None for x in found):
        raise _undefined("elements that the source does not hold", "a source that covers the tile")
    return Conversion("shared", BitLayout(destination.ins, source.ins, tuple(x for x in found if x is not None)))


def _renamed(source: BitLayout, destination: BitLayout) -> BitLayout | None:
    """Each thread's own registers under other names, or None."""
    if source.images[width_of(source.ins, "slot") :] != destination.images[width_of(destination.ins, "slot") :]:
        return None
    slots = _part(source, ("slot",))
    images: list[int] = []
    for image in images_of(destination, "slot"):
        found = slots.solve(image)
        if found is None:
            return None
        images.append(found)
    first = width_of(source.ins, "slot")
    images += [1 << first + i for i in range(len(destination.images) - len(images))]
    return BitLayout(destination.ins, source.ins, tuple(images))


# ---- holders in the same warp


def _in_warp(source: BitLayout, destination: BitLayout) -> list[BitLayout]:
    """Holders in the same warp: the nearest, and one in which replicas share the giving. Empty where there are none."""
    own, whole = _part(source, ("slot",)), _part(source, ("slot", "lane"))
    slots = width_of(source.ins, "slot")
    warps: list[int] = []
    for i, image in enumerate(images_of(destination, "warp")):
        bit = pack(source.ins, {"warp": 1 << i})
        found = whole.solve(image ^ source.apply(bit))
        if found is None:
            return []
        warps.append(bit ^ found)
    wanted = [*images_of(destination, "slot"), *images_of(destination, "lane")]
    near: list[int] = []
    kept: list[int] = []  # slots of the destination that are no sums of slots before them
    for i, image in enumerate(wanted[: width_of(destination.ins, "slot")]):
        before = BitLayout((("k", len(kept)),), destination.outs, tuple(wanted[k] for k in kept)).solve(image)
        if before is not None:
            near.append(total(near[k] for j, k in enumerate(kept) if before >> j & 1))
            continue
        kept.append(i)
        found = own.solve(image)
        found = whole.solve(image) if found is None else found
        if found is None:
            return []
        near.append(found)
    for i, image in enumerate(images_of(destination, "lane")):
        bit = 1 << slots + i
        found = own.solve(image ^ source.apply(bit))
        found = whole.solve(image) if found is None else found ^ bit
        if found is None:
            return []
        near.append(found)
    spread = _spread(source, own, whole, wanted)
    sections = [near, [spread.apply(x) for x in wanted]]
    return [BitLayout(destination.ins, source.ins, (*images, *warps)) for images in sections]


def _spread(source: BitLayout, own: BitLayout, whole: BitLayout, wanted: Sequence[int]) -> BitLayout:
    """element -> (slot, lane) of the source, on what is wanted: of what one lane holds in its slots, each lane that
    holds the same gives a part."""
    slots = width_of(source.ins, "slot")
    alike: list[int] = []  # (slot, lane) pairs that hold 0, with lanes that differ
    for z in whole.kernel():
        if extending([x >> slots for x in alike], [z >> slots]):
            alike.append(z)
    mine = meeting(wanted, own.images)
    values = [_found(own, x) ^ (alike[i] if i < len(alike) else 0) for i, x in enumerate(mine)]
    more = extending(mine, wanted)
    values += [_found(whole, x) for x in more]
    return linear([*mine, *more], values, source.outs, source.ins)


def _found(layout: BitLayout, image: int) -> int:
    found = layout.solve(image)
    assert found is not None, "what is wanted is in the warp"
    return found


def linear(given: Sequence[int], values: Sequence[int], ins: Space, outs: Space) -> BitLayout:
    """A linear map with these values, and 0 on a complement of what is given.

    *Requires*: there is one. *Ensures*: `linear(xs, vs, ...).apply(xs[i]) == vs[i]`."""
    bits = width(ins)
    kept = extending([], given)
    more = extending(kept, [1 << i for i in range(bits)])
    coordinates = BitLayout((("k", bits),), ins, (*kept, *more)).right_inverse()
    by_vector = dict(zip(reversed(given), reversed(values), strict=True))
    table = BitLayout((("k", bits),), outs, (*(by_vector[x] for x in kept), *(0 for _ in more)))
    return table.compose(coordinates)


def _part(layout: BitLayout, labels: tuple[str, ...]) -> BitLayout:
    """The layout on the first of its labels, the others 0."""
    ins: Space = tuple((k, n) for k, n in layout.ins if k in labels)
    return BitLayout(ins, layout.outs, layout.images[: sum(n for _, n in ins)])


# ---- rounds


def _shuffles(holder: BitLayout) -> Shuffles:
    """The rounds for a holder in the same warp."""
    slots, lanes, theirs = (
        width_of(x, k) for x, k in ((holder.ins, "slot"), (holder.ins, "lane"), (holder.outs, "slot"))
    )
    lane, slot = (("lane", lanes),), (1 << theirs) - 1
    kept = _kept(holder, slots)
    space = [*kept, *(1 << slots + i for i in range(lanes))]
    given = {x: holder.apply(x) & (1 << theirs + lanes) - 1 for x in space}
    same = zeros(space, [given[x] for x in space])  # lanes that get one and the same
    giver = zeros(space, [given[x] >> theirs for x in space])  # what comes out of one lane
    together = [*same, *avoiding(space, kept, giver, same)]
    takers = [x >> slots for x in together]
    member = linear(takers, together, lane, holder.ins)
    takes = tuple(holder.apply(x) >> theirs & (1 << lanes) - 1 for x in member.images)
    gave = [holder.apply(x) for x in together]
    return Shuffles(
        linear([x >> theirs for x in gave], [x & slot for x in gave], lane, (("slot", theirs),)),
        BitLayout(lane, lane, takes),
        BitLayout(lane, (("slot", slots),), tuple(x & (1 << slots) - 1 for x in member.images)),
        tuple(takers),
        tuple(extending(together, space)),
        holder,
    )


def _kept(holder: BitLayout, slots: int) -> list[int]:
    """The slots, as bits, that are no repetitions of slots before them."""
    found: list[int] = []
    for i in range(slots):
        if extending([holder.images[k.bit_length() - 1] for k in found], [holder.images[i]]):
            found.append(1 << i)
    return found


def _undefined(found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(
        doing="converting between distributions",
        found=found,
        expected=expected,
        hint="both distributions must cover one tile with the same lanes and warps",
    )
