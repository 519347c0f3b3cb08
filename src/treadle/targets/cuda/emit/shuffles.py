"""A fragment under another distribution in the same warp: the rounds of shuffles that `algebra.conversions` finds.

In a round each thread gives one of its registers, which may hang on the thread, and takes what one lane gives. What is
given and where what came is put are brought in order by selects on single bits of the thread's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle.algebra.bits import BitLayout
from treadle.algebra.conversions import Conversion, Shuffles, convert, images_of, linear, width_of
from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.spans import extending, sums, total
from treadle.machine.distributions import bits as in_bits
from treadle.machine.form import Compute, FragRef
from treadle.targets.cuda.emit.fragments import Layout
from treadle.targets.cuda.emit.scans import shuffled
from treadle.targets.cuda.emit.scope import Scope
from treadle.targets.cuda.emit.values import HALVES, Val, bits, ctype

WARP = 32


def exchanged(scope: Scope, stmt: Compute, made: Layout) -> list[Val] | None:
    """All slots of the destination of a `pick` of the same elements; None where the distributions are no bit layouts,
    or where elements change warps."""
    (ref,) = stmt.args
    if not isinstance(ref, FragRef) or scope.lanes != WARP or stmt.by:
        return None
    source = scope.layout(ref.name)
    if source.frag.shape != made.frag.shape or source.frag.dtype != made.frag.dtype:
        return None
    if ref.coords is not None and any(str(c) != f"${i}" for i, c in enumerate(ref.coords)):
        return None
    try:
        way = convert(*(in_bits(f.frag, scope.lanes, scope.warps) for f in (source, made)))
    except LayoutUndefined:
        return None
    if way.way == "shared":
        return None
    dtype = made.frag.dtype
    held = [scope.read(ref.name, slot) for slot in range(source.count)]
    texts = [bits(v, scope.setting.prelude) if dtype in HALVES else v.text for v in held]
    return [Val(text, dtype) for text in _Exchange(scope, way, ctype(dtype), dtype.bits, texts).slots()]


@dataclass
class _Choice:
    """Registers that hang on the thread: `directions[i]` is added (xor) to a register's number where the variable
    `tests[i]` is true."""

    directions: list[int]
    tests: list[str]


class _Exchange:
    """Variables of the text for one conversion."""

    def __init__(self, scope: Scope, way: Conversion, kind: str, width: int, texts: Sequence[str]) -> None:
        self.scope, self.kind, self.width, self.texts = scope, kind, width, texts
        self.way = way
        self.count = 1 << width_of(way.holder.ins, "slot")

    def slots(self) -> list[str]:
        """The text of each slot of the destination."""
        shuffles = self.way.shuffles
        if shuffles is None:
            return [self.texts[self.way.holder(slot=s)["slot"]] for s in range(self.count)]
        came = self._rounds(shuffles)
        found = self._everyone(shuffles, came) if shuffles.everyone else self._some(shuffles, came)
        kept = shuffles.filled
        # Slots that repeat others: the sum of kept ones with the same source.
        images = images_of(self.way.holder, "slot")
        by_image = BitLayout((("k", len(kept)),), self.way.holder.outs, tuple(images[x.bit_length() - 1] for x in kept))
        result: list[str] = []
        for s in range(self.count):
            at = by_image.solve(self.way.holder.apply(s))
            assert at is not None, "a slot that is not kept repeats kept ones"
            result.append(found[total(x for i, x in enumerate(kept) if at >> i & 1)])
        return result

    def _rounds(self, shuffles: Shuffles) -> dict[int, str]:
        """What comes in each round."""
        holder = self.way.holder
        lanes, warps = width_of(holder.ins, "lane"), width_of(holder.ins, "warp")
        given: list[int] = [shuffles.gives.apply(1 << i) for i in range(lanes)]
        taken: list[int] = [shuffles.takes.apply(1 << i) for i in range(lanes)]
        for i in range(warps):
            first, here = shuffles.round(0, 0), shuffles.round(0, 1 << i)
            given.append(here.give ^ first.give)
            taken.append(here.source ^ first.source)
        source = self._number(taken)
        giving = self._choosing(given)
        staged = self._stages(giving, lambda slot: self.texts[slot])
        came: dict[int, str] = {}
        for k in range(shuffles.count):
            one = shuffles.round(k, 0)
            text = staged(one.give)
            if not shuffles.stays(k):
                shift = one.source ^ shuffles.takes.apply(one.shift)
                where = source if not shift else f"{source} ^ {shift}"
                text = self._named(shuffled("__shfl_sync", text, where, self.width, self.kind))
            came[k] = text
        return came

    def _everyone(self, shuffles: Shuffles, came: dict[int, str]) -> dict[int, str]:
        """Every slot gets what came in one of the rounds, which hangs on the lane."""
        by_put = {shuffles.round(k, 0).put ^ shuffles.puts.apply(shuffles.round(k, 0).shift): k for k in came}
        lanes = width_of(shuffles.puts.ins, "lane")
        staged = self._stages(
            self._choosing([shuffles.puts.apply(1 << i) for i in range(lanes)]), lambda slot: came[by_put[slot]]
        )
        return {slot: staged(slot) for slot in by_put}

    def _some(self, shuffles: Shuffles, came: dict[int, str]) -> dict[int, str]:
        """Slots of lanes that get something in this round; the others keep what they have."""
        lanes = width_of(shuffles.puts.ins, "lane")
        units = [1 << i for i in range(lanes)]
        # Forms of the lane that are 0 on takers, and the bits of the slot that is filled.
        more = extending(shuffles.takers, units)
        values = [0] * len(shuffles.takers) + [1 << i for i in range(len(more))]
        left = linear([*shuffles.takers, *more], values, (("lane", lanes),), (("out", len(more)),))
        slots = width_of(shuffles.puts.outs, "slot")
        both = self._number([left.apply(u) << slots | shuffles.puts.apply(u) for u in units])
        found: dict[int, str] = {}
        for slot in sums(shuffles.filled):
            name = self.scope.head.fresh("x")
            first = True
            for k, text in came.items():
                one = shuffles.round(k, 0)
                at = left.apply(one.shift) << slots | one.put ^ shuffles.puts.apply(one.shift) ^ slot
                if not self._ever(shuffles, one.put ^ shuffles.puts.apply(one.shift) ^ slot):
                    continue
                if first:
                    self.scope.line(f"{self.kind} {name} = {text};")
                    first = False
                else:
                    self.scope.line(f"if ({both} == {at}) {name} = {text};")
            found[slot] = name
        return found

    @staticmethod
    def _ever(shuffles: Shuffles, slot: int) -> bool:
        """Whether some lane adds this to the slot of a round."""
        return not extending(shuffles.puts.images, [slot])

    def _number(self, images: Sequence[int]) -> str:
        """A variable: the xor of images of the bits of lane and warp."""
        lanes = width_of(self.way.holder.ins, "lane")
        pieces: list[str] = []
        if all(image == 1 << i for i, image in enumerate(images[:lanes])):
            pieces, rest = ["lane"], range(lanes, len(images))
        else:
            rest = range(len(images))
        for i in rest:
            if images[i]:
                pieces.append(f"(({_bit(i, lanes)}) * {images[i]})")
        name = self.scope.head.fresh("at")
        self.scope.line(f"const int {name} = {' ^ '.join(pieces) or '0'};")
        return name

    def _choosing(self, images: Sequence[int]) -> _Choice:
        """Directions of registers, each with a test of the thread."""
        lanes = width_of(self.way.holder.ins, "lane")
        directions = extending([], images)
        slots = max(directions, default=0).bit_length()
        basis = BitLayout((("k", len(directions)),), (("slot", slots),), tuple(directions))
        made = [at for image in images if (at := basis.solve(image)) is not None]
        assert len(made) == len(images), "directions span the images"
        found = _Choice(directions, [])
        for i in range(len(directions)):
            pieces = [f"({_bit(k, lanes)})" for k, at in enumerate(made) if at >> i & 1]
            name = self.scope.head.fresh("odd")
            self.scope.line(f"const bool {name} = {' ^ '.join(pieces)};")
            found.tests.append(name)
        return found

    def _stages(self, choice: _Choice, leaf: Callable[[int], str]) -> Callable[[int], str]:
        """slot -> the text of what is at `slot` xor the directions whose tests hold; stages are shared."""
        made: dict[tuple[int, int], str] = {}

        def at(slot: int, stage: int) -> str:
            if stage == 0:
                return leaf(slot)
            if (slot, stage) not in made:
                direction, test = choice.directions[stage - 1], choice.tests[stage - 1]
                turned, plain = at(slot ^ direction, stage - 1), at(slot, stage - 1)
                made[slot, stage] = self._named(f"{test} ? {turned} : {plain}")
            return made[slot, stage]

        return lambda slot: at(slot, len(choice.directions))

    def _named(self, text: str) -> str:
        name = self.scope.head.fresh("x")
        self.scope.line(f"const {self.kind} {name} = {text};")
        return name


def _bit(i: int, lanes: int) -> str:
    return f"lane >> {i} & 1" if i < lanes else f"warp >> {i - lanes} & 1"
