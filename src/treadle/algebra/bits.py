"""Bit layouts: maps between indices of power-of-two spaces that are linear over GF(2), `L(x ^ y) == L(x) ^ L(y)`.

Inputs and outputs are labelled groups of bits (slot, lane, warp -> row, column; row, column -> offset). A layout is the
image of each input bit; a zero image is replication. Replicas, vectors, swizzles and the registers of tensor cores are
such maps, and moving data between two distributions is a question of linear algebra (`algebra.conversions`).

*Source*: Linear Layouts (arXiv 2505.23819), sections on labelled spaces, products, division and inverses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.spans import eliminate, rank

Space = tuple[tuple[str, int], ...]  # (label, bits), lowest bits first


@dataclass(frozen=True)
class BitLayout:
    """`ins -> outs`; `images[i]` is the packed output of input bit i (the first label's bits are lowest).

    *Errors*: `layout/undefined` for a wrong number of images or images outside the output space."""

    ins: Space
    outs: Space
    images: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.images) != width(self.ins):
            raise _undefined("making a bit layout", f"{len(self.images)} images", f"{width(self.ins)} input bits")
        if any(not 0 <= x < 1 << width(self.outs) for x in self.images):
            raise _undefined("making a bit layout", f"images {self.images}", f"numbers of {width(self.outs)} bits")

    @classmethod
    def of(cls, outs: Space, **images: Sequence[Mapping[str, int]]) -> BitLayout:
        """A layout by label: `lane=[{"row": 1}, {"row": 2}, {}]` says where each bit of `lane` goes."""
        packed = tuple(pack(outs, image) for rows in images.values() for image in rows)
        return cls(tuple((label, len(rows)) for label, rows in images.items()), outs, packed)

    @classmethod
    def identity(cls, space: Space) -> BitLayout:
        """The map of a space to itself."""
        return cls(space, space, tuple(1 << i for i in range(width(space))))

    def apply(self, x: int) -> int:
        """The packed output of a packed input. *Ensures*: `apply(x ^ y) == apply(x) ^ apply(y)`."""
        out = 0
        for i, image in enumerate(self.images):
            if x >> i & 1:
                out ^= image
        return out

    def __call__(self, **values: int) -> dict[str, int]:
        """The outputs by label; labels left out are 0."""
        return unpack(self.outs, self.apply(pack(self.ins, values)))

    def compose(self, inner: BitLayout) -> BitLayout:
        """`self` after `inner`. *Ensures*: `self.compose(M).apply(x) == self.apply(M.apply(x))`."""
        if inner.outs != self.ins:
            raise _undefined("composing bit layouts", f"outputs {inner.outs}", f"the inputs {self.ins}")
        return BitLayout(inner.ins, self.outs, tuple(map(self.apply, inner.images)))

    def product(self, other: BitLayout) -> BitLayout:
        """Side by side: `other` takes the next bits of each label. *Ensures*: on its own bits each acts as before."""
        ins, outs = _joined(self.ins, other.ins), _joined(self.outs, other.outs)
        images: list[int] = []
        for label, _ in ins:
            for part, low in ((self, {}), (other, dict(self.outs))):
                for i in bits_of(part.ins, label):
                    image = unpack(part.outs, part.images[i])
                    images.append(pack(outs, {k: v << low.get(k, 0) for k, v in image.items()}))
        return BitLayout(ins, outs, tuple(images))

    def divide(self, inner: BitLayout) -> BitLayout:
        """The layout Q with `inner.product(Q) == self`. *Errors*: `layout/undefined` when there is none."""
        have, low_outs = dict(self.ins), dict(inner.outs)
        ins = tuple((k, have[k] - dict(inner.ins).get(k, 0)) for k, _ in self.ins)
        outs = tuple((k, n - low_outs.get(k, 0)) for k, n in self.outs)
        if all(n >= 0 for _, n in ins + outs) and dict(inner.ins).keys() <= have.keys():
            images: list[int] = []
            for label, _ in self.ins:
                for i in bits_of(self.ins, label)[dict(inner.ins).get(label, 0) :]:
                    image = unpack(self.outs, self.images[i])
                    images.append(pack(outs, {k: v >> low_outs.get(k, 0) for k, v in image.items()}))
            quotient = BitLayout(ins, outs, tuple(images))
            if inner.product(quotient) == self:
                return quotient
        raise _undefined("dividing a bit layout", f"{self}", f"a product with {inner}")

    def ordered(self, ins: Sequence[str], outs: Sequence[str]) -> BitLayout:
        """The same map with its labels in another order."""
        if sorted(ins) != sorted(dict(self.ins)) or sorted(outs) != sorted(dict(self.outs)):
            raise _undefined("ordering labels", f"{tuple(ins)} -> {tuple(outs)}", "each label once")
        new_in = tuple((k, dict(self.ins)[k]) for k in ins)
        new_out = tuple((k, dict(self.outs)[k]) for k in outs)
        images = [pack(new_out, unpack(self.outs, self.images[i])) for k, _ in new_in for i in bits_of(self.ins, k)]
        return BitLayout(new_in, new_out, tuple(images))

    @property
    def rank(self) -> int:
        """The dimension of the image."""
        return rank(self.images)

    @property
    def injective(self) -> bool:
        """No two inputs have one output."""
        return self.rank == width(self.ins)

    @property
    def surjective(self) -> bool:
        """Every output is reached."""
        return self.rank == width(self.outs)

    def kernel(self) -> tuple[int, ...]:
        """A basis of the inputs with output 0: the replicas of each element. *Ensures*: `apply(k) == 0`."""
        return tuple(eliminate(self.images)[1])

    def solve(self, y: int) -> int | None:
        """Some x with `apply(x) == y`, or None."""
        x = 0
        for image, combination in eliminate(self.images)[0]:
            if y ^ image < y:
                y ^= image
                x ^= combination
        return x if y == 0 else None

    def right_inverse(self) -> BitLayout:
        """R with `self.apply(R.apply(y)) == y`. *Errors*: `layout/undefined` when the map is not onto."""
        found = [self.solve(1 << i) for i in range(width(self.outs))]
        if any(x is None for x in found):
            raise _undefined("inverting a bit layout", f"rank {self.rank}", f"rank {width(self.outs)}")
        return BitLayout(self.outs, self.ins, tuple(x for x in found if x is not None))


def width(space: Space) -> int:
    """The bits of a space."""
    return sum(n for _, n in space)


def pack(space: Space, values: Mapping[str, int]) -> int:
    """One number of labelled ones. *Errors*: `layout/undefined` for unknown labels and values that do not fit."""
    out, at = 0, 0
    for label, bits in space:
        value = values.get(label, 0)
        if not 0 <= value < 1 << bits:
            raise _undefined("packing bits", f"{label} = {value}", f"a number of {bits} bits")
        out |= value << at
        at += bits
    unknown = set(values) - {label for label, _ in space}
    if unknown:
        raise _undefined("packing bits", f"the labels {sorted(unknown)}", f"labels of {space}")
    return out


def unpack(space: Space, packed: int) -> dict[str, int]:
    """Labelled numbers of one. *Ensures*: `pack(space, unpack(space, x)) == x`."""
    out: dict[str, int] = {}
    for label, bits in space:
        out[label] = packed & ((1 << bits) - 1)
        packed >>= bits
    return out


def bits_of(space: Space, label: str) -> range:
    """Where the bits of a label are."""
    at = 0
    for name, bits in space:
        if name == label:
            return range(at, at + bits)
        at += bits
    return range(0)


def _joined(a: Space, b: Space) -> Space:
    more = dict(b)
    return tuple((k, n + more.get(k, 0)) for k, n in a) + tuple((k, n) for k, n in b if k not in dict(a))


def _undefined(doing: str, found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(
        doing=doing,
        found=found,
        expected=expected,
        hint="give spaces whose labels and bits agree",
    )
