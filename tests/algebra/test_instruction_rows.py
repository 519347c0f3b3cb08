"""Rows for instructions that move fragments: each covers its tile exactly, as the manual's formulas have it; a row with
two lanes exchanged does not.

*Source*: PTX ISA 9.0, "Warp-level matrix load instruction: ldmatrix", "Matrix fragments for mma.m16n8k16" and
"Register fragments and shared memory matrix layouts" of wgmma.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from treadle.algebra.bits import BitLayout, pack
from treadle.algebra.layouts import Layout, Swizzle, compose, divide

Row = tuple[Layout, Callable[[int, int], tuple[int, int]], int, int]


def fragment(*digits: tuple[tuple[int, int], ...]) -> Layout:
    """(thread, value) -> column-major position, from (extent, stride) digits of both."""
    return Layout(tuple(tuple(e for e, _ in d) for d in digits), tuple(tuple(s for _, s in d) for d in digits))


def matrices(count: int, transposed: bool) -> Row:
    """`ldmatrix.xN`: matrix i in register pair i, rows 8 i .. of a column-major stack of 8x8 matrices."""
    rows = 8 * count
    row, column = (1, rows) if not transposed else (rows, 1)
    values = ((2, column), (count, 8)) if count > 1 else ((2, column),)
    layout = fragment(((4, 2 * column), (8, row)), values)

    def formula(lane: int, value: int) -> tuple[int, int]:
        a, b = lane // 4, 2 * (lane % 4) + value % 2
        return (8 * (value // 2) + (b if transposed else a), a if transposed else b)

    return layout, formula, rows, 8


def accumulator(columns: int) -> Row:
    """`wgmma.m64nNk16`: 64 rows, N columns, 128 threads."""
    layout = fragment(((4, 128), (8, 1), (4, 16)), ((2, 64), (2, 8), (columns // 8, 512)))

    def formula(thread: int, value: int) -> tuple[int, int]:
        row = 16 * (thread // 32) + 8 * (value // 2 % 2) + thread % 32 // 4
        return row, 8 * (value // 4) + 2 * (thread % 4) + value % 2

    return layout, formula, 64, columns


def left_operand() -> Row:
    """A of `mma.m16n8k16`: 16 x 16, eight values a lane."""
    layout = fragment(((4, 32), (8, 1)), ((2, 16), (2, 8), (2, 128)))

    def formula(lane: int, value: int) -> tuple[int, int]:
        row = lane // 4 + 8 * (value // 2 % 2)
        return row, 2 * (lane % 4) + value % 2 + 8 * (value // 4)

    return layout, formula, 16, 16


def right_operand() -> Row:
    """B of `mma.m16n8k16`: 16 x 8, four values a lane."""
    layout = fragment(((4, 2), (8, 16)), ((2, 1), (2, 8)))

    def formula(lane: int, value: int) -> tuple[int, int]:
        return 2 * (lane % 4) + value % 2 + 8 * (value // 2), lane // 4

    return layout, formula, 16, 8


def small_accumulator() -> Row:
    """C of `mma.m16n8k16`: 16 x 8, four values a lane."""
    layout = fragment(((4, 32), (8, 1)), ((2, 16), (2, 8)))

    def formula(lane: int, value: int) -> tuple[int, int]:
        return lane // 4 + 8 * (value // 2), 2 * (lane % 4) + value % 2

    return layout, formula, 16, 8


ROWS: dict[str, Row] = {
    **{f"ldmatrix.x{n}{'.trans' if t else ''}": matrices(n, t) for n in (1, 2, 4) for t in (False, True)},
    "mma.m16n8k16 a": left_operand(),
    "mma.m16n8k16 b": right_operand(),
    "mma.m16n8k16 c": small_accumulator(),
    **{f"wgmma.m64n{n}k16": accumulator(n) for n in (8, 64, 256)},
}


def dealt(layout: Layout) -> list[list[int]]:
    """Thread by thread, the position of each value."""
    threads = layout[0].size
    return [[layout(t + threads * v) for v in range(layout[1].size)] for t in range(threads)]


def covers(deal: list[list[int]], row: Row) -> bool:
    """Whether each element of a row's tile is held once."""
    return sorted(at for mine in deal for at in mine) == list(range(row[2] * row[3]))


def misplaced(deal: list[list[int]], row: Row) -> set[int]:
    """The threads with a value that is not where the manual says."""
    _, formula, rows, _ = row
    return {t for t, mine in enumerate(deal) for v, at in enumerate(mine) if (at % rows, at // rows) != formula(t, v)}


@pytest.mark.parametrize("name", ROWS)
def test_rows_cover_their_tiles(name: str) -> None:
    deal = dealt(ROWS[name][0])
    assert covers(deal, ROWS[name]) and not misplaced(deal, ROWS[name])


@pytest.mark.parametrize("name", ROWS)
def test_rows_with_two_lanes_exchanged_do_not_fit(name: str) -> None:
    """Any two: the tile is covered all the same, and exactly these two lanes hold what they should not."""
    deal = dealt(ROWS[name][0])
    pairs = [(a, b) for b in range(32) for a in range(b)]
    for a, b in pairs if len(deal) == 32 else [*pairs[::60], (0, len(deal) - 1), (31, 32)]:
        turned = list(deal)
        turned[a], turned[b] = deal[b], deal[a]
        assert misplaced(turned, ROWS[name]) == {a, b} and covers(turned, ROWS[name])


def test_a_matrix_load_decomposes_into_eight_by_eight_tiles() -> None:
    """A 16x16 tile of 16x16 elements in 8x8 pieces: each piece an instruction's matrix, all of them the tile."""
    tile = Layout((16, 16), (1, 16))
    pieces = divide(compose(tile, Layout((8, 2, 16), (1, 8, 16))), Layout((8, 8), (1, 16)))
    inside, over = pieces[0], pieces[1]
    found = sorted(inside(i) + over(j) for i in range(inside.size) for j in range(over.size))
    assert (inside.size, over.size) == (64, 4) and found == list(range(256))


def test_one_nest_binds_operands_that_lie_unalike() -> None:
    """C += A B for one instruction: the lanes of A, B and the accumulator agree where the contraction needs them to."""
    a, b = (
        BitLayout.of((("row", 4), ("col", 4)), **ins)
        for ins in (_bits(ROWS["mma.m16n8k16 a"], 8), _bits(ROWS["mma.m16n8k16 b"], 4))
    )
    for lane in range(32):
        rows = {a(lane=lane, value=v)["row"] for v in range(8)}
        columns = {b(lane=lane, value=v)["col"] for v in range(4)}
        assert rows == {lane // 4, lane // 4 + 8} and columns == {lane // 4}
        assert {a(lane=lane, value=v)["col"] for v in range(8)} == {b(lane=lane, value=v)["row"] for v in range(4)}
    assert pack(a.ins, {"lane": 31, "value": 7}) == 255


Place = tuple[int, int] | int


def held(row: Row) -> dict[tuple[int, int], Place]:
    """Where the instruction has each element: (thread, value)."""
    layout, _, rows, _ = row
    threads = layout[0].size
    at = {layout(t + threads * v): (t, v) for t in range(threads) for v in range(layout[1].size)}
    return {(x % rows, x // rows): place for x, place in at.items()}


def swizzled(columns: int, depth: int) -> dict[tuple[int, int], Place]:
    """B in shared memory, of 16-bit elements: a row of 128 bytes a column, in chunks of 16 bytes that are swizzled."""
    swizzle = Swizzle(3, 4, 3)
    return {(k, n): swizzle(128 * n + 2 * k) for k in range(depth) for n in range(columns)}


def test_the_same_nest_is_bound_to_the_instruction_of_a_warp_and_to_that_of_a_warpgroup() -> None:
    """Operands and accumulator lie unalike, in registers and in memory; the nest only asks where an element is."""
    left = fragment(((4, 128), (8, 1), (4, 16)), ((2, 64), (2, 8), (2, 512)))
    group: Row = (left, lambda t, v: (0, 0), 64, 16)
    bound = {
        "mma.m16n8k16": (held(ROWS["mma.m16n8k16 a"]), held(ROWS["mma.m16n8k16 b"]), held(ROWS["mma.m16n8k16 c"])),
        "wgmma.m64n64k16": (held(group), swizzled(64, 16), held(ROWS["wgmma.m64n64k16"])),
    }
    dice = random.Random(1)
    for name, (a, b, c) in bound.items():
        assert all(len(set(where.values())) == len(where) for where in (a, b, c)), name
        x, y = ({at: dice.randint(-9, 9) for at in where} for where in (a, b))
        registers, memory = ({where[at]: n for at, n in values.items()} for where, values in ((a, x), (b, y)))
        found = {c[i, j]: sum(registers[a[i, k]] * memory[b[k, j]] for k in range(16)) for i, j in c}
        assert found == {place: sum(x[i, k] * y[k, j] for k in range(16)) for (i, j), place in c.items()}, name
        # what a thread of the accumulator adds up comes from rows that it, or another lane of its row, holds
        assert {t // 32 for t, _ in c.values()} == {t // 32 for t, _ in a.values()}


def _bits(row: Row, values: int) -> dict[str, list[dict[str, int]]]:
    """Images of the bits of lane and value, from the layout at powers of two."""
    layout, _, rows, _ = row

    def place(lane: int, value: int) -> dict[str, int]:
        at = layout(lane + 32 * value)
        return {"row": at % rows, "col": at // rows}

    return {
        "lane": [place(1 << k, 0) for k in range(5)],
        "value": [place(0, 1 << k) for k in range(values.bit_length() - 1)],
    }
