"""Ways through shared memory: simulated access by access, conflicts counted and compared with all layouts there are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from tests.algebra.conversion_table import ACCUMULATOR, COLUMNS, LARGE_ACCUMULATOR, LARGE_ROWS, ROWS
from tests.algebra.distributions import mixed, pair

from treadle.algebra.bits import BitLayout, pack, width
from treadle.algebra.conversions import convert, images_of
from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.spans import Span, avoiding, extending, meeting, rank, sums, total, zeros
from treadle.algebra.staging import ROW, Access, Staging, bank_rows, conflicts, lines, memory_layout, pieces, stage


def elements(side: BitLayout, lane: int, warp: int) -> list[int]:
    """What a thread holds, register by register."""
    slots = 1 << dict(side.ins)["slot"]
    return [side.apply(pack(side.ins, {"slot": s, "lane": lane, "warp": warp})) for s in range(slots)]


def moved(found: Staging, side: BitLayout, access: Access, bytes: int) -> Iterator[list[tuple[int, int, list[int]]]]:
    """The instructions of all warps and rounds, each as what it moves: (lane, offset, elements side by side from there
    on that are this lane's), as the manual says which lane has what of a vector or a line."""
    place = found.place
    for warp in range(1 << dict(side.ins)["warp"]):
        held = [elements(side, lane, warp) for lane in range(1 << dict(side.ins)["lane"])]
        wide = (
            access.bytes // bytes if access.kind == "vector" else max(1, (4 if access.kind == "matrix" else 2) // bytes)
        )
        pieces_of: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
        for lane, mine in enumerate(held):
            by_start: dict[tuple[int, int], dict[int, int]] = {}
            for x in mine:
                at = place.apply(x)
                by_start.setdefault((found.round(x), at // wide), {})[at % wide] = x
            for (round_, start), part in sorted(by_start.items()):
                assert len(part) == wide, "an instruction moves what the lane does not have"
                pieces_of.setdefault((round_, lane), []).append((lane, start * wide, [part[i] for i in range(wide)]))
        for key in sorted(pieces_of):
            yield pieces_of[key]


def lines_of_a_warp(found: Staging, side: BitLayout, access: Access, bytes: int, warp: int) -> None:
    """Each register of a matrix access is made of whole lines of 16 bytes: lane 4 i + j has word j of line i; turned,
    lane 4 j + i has unit j of lines 2 i and 2 i + 1."""
    place, line = found.place, 16 // bytes
    held = [elements(side, lane, warp) for lane in range(32)]
    unit = max(1, 4 // bytes if access.kind == "matrix" else 2 // bytes)
    for lane, mine in enumerate(held):
        words: dict[tuple[int, int], set[int]] = {}
        for x in mine:
            at = place.apply(x)
            where = at % line // unit
            assert where == (lane % 4 if access.kind == "matrix" else lane // 4)
            words.setdefault((found.round(x), at // line), set()).add(at % unit)
        assert all(len(w) == unit for w in words.values())
        if access.kind == "matrix":
            first = {(r, n) for r, n in words}
            row = 4 * (lane // 4)
            assert all({(found.round(x), place.apply(x) // line) for x in held[row + j]} == first for j in range(4))
        else:
            same = [{(found.round(x), place.apply(x) // line) for x in held[4 * j + lane % 4]} for j in range(8)]
            assert all(s == set(words) for s in same) and len(words) % 2 == 0


def check(source: BitLayout, destination: BitLayout, bytes: int, room: int | None = None) -> Staging:
    """A way: memory is filled once, read as wanted, by accesses that the kinds allow, with the conflicts it says."""
    found = stage(source, destination, bytes, room)
    place = found.place
    total = 1 << width(source.outs)
    spots = {(found.round(x), place.apply(x)) for x in range(total)}
    assert len(spots) == total and found.bytes << len(found.rounds) == bytes * total
    assert {at for _, at in spots} == set(range(found.bytes // bytes))
    for side, access in ((source, found.write), (destination, found.read)):
        warps = 1 << dict(side.ins)["warp"]
        if access.kind != "vector":
            for warp in range(warps):
                lines_of_a_warp(found, side, access, bytes, warp)
        distinct = 1 << rank(images_of(side, "slot"))
        assert access.bytes * access.count == bytes * distinct
        for threads in moved(found, side, access, bytes):
            assert threads
        assert access.conflicts == bank_rows(found, side, access, bytes)
    return found


def test_random_pairs() -> None:
    dice = random.Random(6)
    kinds: dict[str, int] = {}
    for _ in range(60):
        a, b, bytes = pair(dice)
        if convert(a, b).way == "shared":
            found = check(a, b, bytes)
            for side in (found.write, found.read):
                kinds[side.kind] = kinds.get(side.kind, 0) + 1
    assert kinds["vector"] > 10 and kinds.get("matrix", 0)


def test_mixed_pairs_and_rounds() -> None:
    """Lanes and registers that hold the same, or sums of others; less memory than the tile takes."""
    dice = random.Random(78)
    rounds = 0
    for _ in range(120):
        a, b, bytes = pair(dice)
        a, b = (mixed(dice, x) if dice.random() < 0.6 else x for x in (a, b))
        try:
            if convert(a, b).way != "shared":
                continue
        except LayoutUndefined:  # some element is held by nobody
            continue
        check(a, b, bytes)
        try:
            rounds += len(check(a, b, bytes, (bytes << width(a.outs)) // dice.choice((2, 4))).rounds)
        except LayoutUndefined:
            pass
    assert rounds > 5


def test_lanes_that_hold_the_same_have_no_matrix() -> None:
    """Of a matrix each lane of four, or of eight, has a unit of its own of a line."""
    ins = (("slot", 2), ("lane", 5), ("warp", 3))
    source = BitLayout(ins, (("element", 5),), (8, 0, 0, 4, 0, 3, 8, 16, 16, 2))
    destination = BitLayout(ins, (("element", 5),), (8, 0, 1, 4, 0, 1, 0, 0, 16, 2))
    found = check(source, destination, 4)
    assert (found.write.kind, found.read.kind) == ("vector", "vector")


def subspaces(space: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """All subspaces of a dimension, each once, as reduced bases."""
    n = len(space)

    def rows(first: int, left: int, pivots: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if left == 0:
            free = [[k for k in range(p) if k not in pivots] for p in pivots]
            yield from fill(pivots, free, 0, ())
            return
        for p in range(first, n):
            yield from rows(p + 1, left - 1, (*pivots, p))

    def fill(
        pivots: tuple[int, ...], free: list[list[int]], at: int, made: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        if at == len(pivots):
            yield made
            return
        for choice in range(1 << len(free[at])):
            row = space[pivots[at]]
            for i, k in enumerate(free[at]):
                row ^= space[k] if choice >> i & 1 else 0
            yield from fill(pivots, free, at + 1, (*made, row))

    yield from rows(0, count, ())


def fewest(a: BitLayout, b: BitLayout, line: tuple[int, ...], bytes: int) -> list[int]:
    """Conflicts of either side with the layout that is chosen for a line; no layout of memory that keeps the line,
    whatever it xors into the banks, has fewer on any side."""
    n = width(a.outs)
    units = [1 << i for i in range(n)]
    (one,), (two,) = pieces(a, line, bytes, False), pieces(b, line, bytes, False)
    memory = memory_layout(a.outs, units, line, bytes, one.at_once, two.at_once)
    mine = [conflicts(memory, p, bytes) for p in (one, two)]
    row = (ROW // bytes).bit_length() - 1
    least = list(mine)
    for segments in subspaces(extending(line, units), max(0, n - row)):
        other = BitLayout(memory.ins, a.outs, (*line, *extending([*line, *segments], units), *segments))
        least = [min(m, conflicts(other, p, bytes)) for m, p in zip(least, (one, two), strict=True)]
    assert mine == least
    return mine


def test_no_layout_of_memory_has_fewer_conflicts() -> None:
    """Small tiles, against all layouts."""
    dice = random.Random(8)
    seen = 0
    while seen < 12:
        a, b, bytes = pair(dice)
        plain = not any(x & (x - 1) for x in (*a.images, *b.images))
        if plain and width(a.outs) - (ROW // bytes).bit_length() + 1 in (1, 2) and width(a.outs) <= 7:
            seen += 1
            fewest(a, b, dice.choice(lines(a, b, bytes, ())), bytes)
    # The second side has what a vector of the first has side by side in other warps: its lanes meet four in a bank.
    ins = (("slot", 2), ("lane", 5), ("warp", 2))
    vectors = BitLayout(ins, (("element", 9),), tuple(1 << i for i in range(9)))
    singles = BitLayout(ins, (("element", 9),), tuple(1 << i for i in (7, 8, 2, 3, 4, 5, 6, 0, 1)))
    assert fewest(vectors, singles, (1, 2), 4) == [1, 4]
    assert stage(vectors, singles, 4, atoms=()).rows == 8 and stage(vectors, singles, 4).rows == 2


def test_spaces_that_avoid_two_others_are_as_large_as_can_be() -> None:
    dice = random.Random(2)
    for _ in range(200):
        n = dice.randint(1, 5)
        space = [1 << i for i in range(n)]
        a, b, base = ([dice.randrange(1 << n) for _ in range(dice.randint(0, 3))] for _ in range(3))
        found = avoiding(space, a, b, base)
        for other in (a, b):
            assert rank([*found, *base]) == len(found) + rank(base)
            assert rank([*found, *other, *base]) == len(found) + rank([*other, *base])
        assert len(found) == n - max(rank([*a, *base]), rank([*b, *base]))
        both = Span(meeting(a, b))
        assert all((x in both) == (x in Span(a) and x in Span(b)) for x in range(1 << n))


def test_sums_whose_images_add_up_to_nothing() -> None:
    dice = random.Random(5)
    for _ in range(200):
        vectors, images = ([dice.randrange(16) for _ in range(dice.randint(0, 4))] for _ in range(2))
        vectors = (vectors + [0] * 4)[: len(images)]
        both = list(zip(sums(vectors), sums(images), strict=True))
        assert all(x == total(v for i, v in enumerate(vectors) if k >> i & 1) for k, (x, _) in enumerate(both))
        assert set(sums(zeros(vectors, images))) == {x for x, y in both if y == 0}


def test_rounds_through_less_memory() -> None:
    """Registers of both sides number the rounds, so that each thread moves as much in each of them."""
    whole = check(ACCUMULATOR, ROWS, 4)
    half = check(ACCUMULATOR, ROWS, 4, 8192)
    assert (whole.bytes, half.bytes, len(half.rounds)) == (16384, 8192, 1)
    assert (half.write.count, half.read.count) == (whole.write.count, whole.read.count) == (8, 8)
    large = check(LARGE_ACCUMULATOR, LARGE_ROWS, 4, 16384)
    assert (large.bytes, len(large.rounds), large.write.count, large.read.count) == (16384, 2, 16, 16)
    lanes = images_of(LARGE_ROWS, "lane") + images_of(LARGE_ACCUMULATOR, "lane")
    assert not any((f & x).bit_count() & 1 for f in large.rounds for x in lanes)
    with pytest.raises(LayoutUndefined):
        stage(ACCUMULATOR, ROWS, 4, 64)
    with pytest.raises(LayoutUndefined):
        stage(ACCUMULATOR, ROWS, 3)


def test_matrices_move_what_would_take_more_pieces() -> None:
    for source, destination in ((ROWS, COLUMNS), (ACCUMULATOR, ROWS), (ROWS, ACCUMULATOR)):
        found = check(source, destination, 2)
        assert (found.write.count, found.read.count, found.rows) == (4, 4, 8)
        assert {found.write.kind, found.read.kind} != {"vector"}
        plain = stage(source, destination, 2, atoms=())
        assert plain.rows > found.rows and plain.write.kind == plain.read.kind == "vector"
        only = stage(source, destination, 2, atoms=("ldmatrix",))
        assert only.write.kind == "vector" and only.rows <= plain.rows
