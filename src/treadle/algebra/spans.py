"""Subspaces over GF(2), each given by vectors that span it: integers whose bits are coordinates.

Conversions between distributions are questions about subspaces: what lanes reach, what slots reach, and which
directions are in neither. The one construction with a proof of its own is `avoiding`.

*Source*: Linear Layouts (arXiv 2505.23819), where pairs of directions build shuffles and swizzles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Span:
    """The span of vectors, with membership and remainders. *Ensures*: `x in span` exactly when x is a sum (xor) of some
    of the vectors; `span.rest(x)` is the same for all vectors of a coset."""

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: dict[int, int] = {}  # by leading bit; no other row has that bit
        for v in vectors:
            self.add(v)

    def add(self, vector: int) -> bool:
        """Makes the span larger; whether it became so."""
        vector = self.rest(vector)
        if not vector:
            return False
        top = vector.bit_length() - 1
        for k, row in self._rows.items():
            if row >> top & 1:
                self._rows[k] = row ^ vector
        self._rows[top] = vector
        return True

    def rest(self, vector: int) -> int:
        """What is left of a vector modulo the span."""
        for top, row in self._rows.items():
            if vector >> top & 1:
                vector ^= row
        return vector

    def __contains__(self, vector: int) -> bool:
        return not self.rest(vector)

    def __len__(self) -> int:
        """The dimension."""
        return len(self._rows)

    def basis(self) -> list[int]:
        """A basis."""
        return list(self._rows.values())


def rank(vectors: Iterable[int]) -> int:
    """The dimension of a span."""
    return len(Span(vectors))


def extending(base: Iterable[int], vectors: Iterable[int]) -> list[int]:
    """Those of `vectors`, in order, that are independent of `base` and of those before.

    *Ensures*: with a basis of `base` they are a basis of the span of both."""
    span = Span(base)
    return [v for v in vectors if span.add(v)]


def eliminate(vectors: Sequence[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """((vector, which of the given ones add up to it) with distinct leading bits, largest first; which of them add up
    to 0)."""
    rows: list[tuple[int, int]] = []
    kernel: list[int] = []
    for i, vector in enumerate(vectors):
        combination = 1 << i
        for row, made in rows:
            if vector ^ row < vector:
                vector ^= row
                combination ^= made
        if vector:
            rows.append((vector, combination))
            rows.sort(reverse=True)
        else:
            kernel.append(combination)
    return rows, kernel


def total(vectors: Iterable[int]) -> int:
    """The sum of all."""
    found = 0
    for v in vectors:
        found ^= v
    return found


def sums(vectors: Iterable[int]) -> list[int]:
    """All sums of some: entry k is that of the vectors at the bits of k."""
    found = [0]
    for v in vectors:
        found += [x ^ v for x in found]
    return found


def zeros(vectors: Sequence[int], images: Sequence[int]) -> list[int]:
    """What spans the sums of vectors whose images, the same ones, add up to 0.

    *Ensures*: x is in its span exactly when some vectors add up to x and their images to 0."""
    return [total(v for i, v in enumerate(vectors) if k >> i & 1) for k in eliminate(images)[1]]


def meeting(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A basis of what two spans have in common. *Ensures*: x is in its span exactly when it is in both."""
    left, right = extending([], a), extending([], b)
    return zeros([*left, *(0 for _ in right)], [*left, *right])


def avoiding(space: Sequence[int], a: Sequence[int], b: Sequence[int], besides: Sequence[int] = ()) -> list[int]:
    """A largest subspace of a space that meets neither of two subspaces of it, but for 0; all modulo the span of
    `besides`.

    Directions outside of both go in as they are; of what only one of the two has, pairs go in: the sum of a direction
    that `a` has and one that `b` has is in neither.

    *Requires*: `a`, `b` and `besides` span subspaces of `space`. *Ensures*: its dimension is that of `space` less the
    larger one of theirs (modulo `besides`), which is the most that there can be."""
    common = [*besides, *meeting([*besides, *a], [*besides, *b])]
    pairs = [x ^ y for x, y in zip(extending(common, a), extending(common, b), strict=False)]
    return extending([*besides, *a, *b], space) + pairs
