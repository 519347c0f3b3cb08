"""The page docs/conversions.md: what conversions of the field's table cost.

`python -m tests.algebra.conversion_table` writes it.
"""

from __future__ import annotations

from pathlib import Path

from treadle.algebra.bits import BitLayout, Space
from treadle.algebra.emission import Emission, emission, staged

FILE = Path(__file__).resolve().parents[2] / "docs" / "conversions.md"


INTRODUCTION = """\
Made by `python -m tests.algebra.conversion_table` from `algebra.emission`: instructions of one thread, bytes of shared
memory, and the most words that one bank gives to an access (writing / reading; 1 is none). The last column is what the
linear layouts of Triton 3.8.0 emit for sm_90. They may use `ldmatrix`, which moves fragments across lanes as it loads;
nothing here does, so that transposes and accumulators are read in more pieces.
"""


def dealt(outs: Space, slot: list[int], lane: list[int], warp: list[int]) -> BitLayout:
    """A distribution by the element bit of each bit of slot, lane and warp."""
    ins = (("slot", len(slot)), ("lane", len(lane)), ("warp", len(warp)))
    return BitLayout(ins, outs, tuple(1 << k for k in (*slot, *lane, *warp)))


def in_a_row(bits: int, held: int) -> BitLayout:
    """2^held consecutive elements a lane."""
    return dealt((("element", bits),), list(range(held)), list(range(held, bits)), [])


def one_a_lane(bits: int) -> BitLayout:
    """Consecutive elements on consecutive lanes."""
    return dealt((("element", bits),), list(range(5, bits)), list(range(5)), [])


SIDE: Space = (("column", 6), ("row", 6))
LARGE: Space = (("column", 7), ("row", 7))
ROWS = dealt(SIDE, [0, 1, 2, 10, 11], [3, 4, 5, 6, 7], [8, 9])
COLUMNS = dealt(SIDE, [6, 7, 8, 4, 5], [9, 10, 11, 0, 1], [2, 3])
ACCUMULATOR = dealt(SIDE, [0, 9, 3, 4, 5], [1, 2, 6, 7, 8], [10, 11])
LARGE_ROWS = dealt(LARGE, [0, 1, 2, 11, 12, 13], [3, 4, 5, 6, 7], [8, 9, 10])
LARGE_ACCUMULATOR = dealt(LARGE, [0, 10, 3, 4, 5, 6], [1, 2, 7, 8, 9], [11, 12, 13])

CASES: dict[str, tuple[BitLayout, BitLayout, int, str]] = {
    "2 a lane to 1, 64 elements, 4 bytes": (in_a_row(6, 1), one_a_lane(6), 4, "2 shuffles, 4 selects"),
    "2 a lane to 1, 64 elements, 8 bytes": (in_a_row(6, 1), one_a_lane(6), 8, "4 shuffles, 4 selects"),
    "4 a lane to 1, 128 elements, 4 bytes": (in_a_row(7, 2), one_a_lane(7), 4, "1 store, 1 ldmatrix.x4, 512 bytes"),
    "4 a lane to 1, 128 elements, 2 bytes": (in_a_row(7, 2), one_a_lane(7), 2, "4 stores, 4 loads, 256 bytes"),
    "4 a lane to 1, 128 elements, 8 bytes": (in_a_row(7, 2), one_a_lane(7), 8, "4 stores, 4 loads, 1024 bytes"),
    "64x64, rows to columns, 2 bytes": (ROWS, COLUMNS, 2, "4 stores, 4 ldmatrix.x4.trans, 8192 bytes"),
    "64x64, rows to columns, 1 byte": (ROWS, COLUMNS, 1, "32 stores, 16 loads, 4096 bytes"),
    "64x64, accumulator to rows, 2 bytes": (ACCUMULATOR, ROWS, 2, "4 stores, 4 ldmatrix.x4, 8192 bytes"),
    "64x64, rows to accumulator, 2 bytes": (ROWS, ACCUMULATOR, 2, "4 stores, 4 ldmatrix.x4, 8192 bytes"),
    "64x64, accumulator to rows, 4 bytes": (ACCUMULATOR, ROWS, 4, "8 stores, 8 ldmatrix.x4, 8192 bytes"),
    "128x128, accumulator to rows, 4 bytes": (
        *(LARGE_ACCUMULATOR, LARGE_ROWS, 4),
        "16 stores, 16 ldmatrix.x4, 16384 bytes",
    ),
    "accumulator to the left operand, 2 bytes": (ACCUMULATOR, ACCUMULATOR, 2, "nothing"),
}
"""Source, destination, bytes of an element; what Triton 3.8.0 emits for it (sm_90, counted in its PTX)."""


def shown(found: Emission) -> str:
    """One way in words."""
    if found.way == "rename":
        return "nothing"
    if found.way == "shuffle":
        return f"{found.shuffles} shuffles, {found.selects} selects"
    stores = f"{found.stores} store{'s' if found.stores > 1 else ''} of {found.store_bytes}"
    sides = f"{stores}, {found.loads} loads of {found.load_bytes}"
    return f"{sides}, {found.shared} bytes; conflicts {found.write_conflicts} / {found.read_conflicts}"


def page() -> str:
    """The page."""
    lines = [
        "# What a conversion between distributions costs",
        "",
        *INTRODUCTION.splitlines(),
        "",
        "| conversion | within a warp | through shared memory | Triton |",
        "|---|---|---|---|",
    ]
    for name, (source, destination, bytes, theirs) in CASES.items():
        first = emission(source, destination, bytes)
        here = "" if first.way == "shared" else shown(first)
        memory = "" if first.way == "rename" else shown(staged(source, destination, bytes))
        lines.append(f"| {name} | {here} | {memory} | {theirs} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(page())
