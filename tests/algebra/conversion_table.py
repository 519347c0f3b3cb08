"""The page docs/conversions.md: what conversions of the field's table cost.

`python -m tests.algebra.conversion_table` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from treadle.algebra.bits import BitLayout, Space
from treadle.algebra.emission import Emission, emission, staged
from treadle.algebra.staging import Access

FILE = Path(__file__).resolve().parents[2] / "docs" / "conversions.md"


INTRODUCTION = """\
Made by `python -m tests.algebra.conversion_table` from `algebra.emission`: instructions of one thread, bytes of shared
memory, barriers, and the most words that one bank gives to an access (writing / reading; 1 is none). The last column is
what the linear layouts of Triton 3.8.0 emit for sm_90 (counted in its PTX); through shared memory each row uses no more
of it than that, in rounds where the tile is larger. `stmatrix` and `ldmatrix` cross lanes on their way, in lines of 16
bytes (`.trans`: by columns).
"""


@dataclass(frozen=True)
class Theirs:
    """What another compiler emits: instructions of a thread, bytes of shared memory, barriers of the workgroup."""

    shuffles: int = 0
    selects: int = 0
    stores: int = 0
    loads: int = 0
    matrices: str = ""
    shared: int = 0
    barriers: int = 0

    @property
    def accesses(self) -> int:
        """Of shared memory."""
        return self.stores + self.loads


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

CASES: dict[str, tuple[BitLayout, BitLayout, int, Theirs]] = {
    "2 a lane to 1, 64 elements, 4 bytes": (in_a_row(6, 1), one_a_lane(6), 4, Theirs(2, 4)),
    "2 a lane to 1, 64 elements, 8 bytes": (in_a_row(6, 1), one_a_lane(6), 8, Theirs(4, 4)),
    "4 a lane to 1, 128 elements, 4 bytes": (
        *(in_a_row(7, 2), one_a_lane(7), 4),
        Theirs(0, 0, 1, 1, "ldmatrix.x4", 512),
    ),
    "4 a lane to 1, 128 elements, 2 bytes": (in_a_row(7, 2), one_a_lane(7), 2, Theirs(0, 0, 4, 4, "", 256)),
    "4 a lane to 1, 128 elements, 8 bytes": (in_a_row(7, 2), one_a_lane(7), 8, Theirs(0, 0, 4, 4, "", 1024)),
    "64x64, rows to columns, 2 bytes": (ROWS, COLUMNS, 2, Theirs(0, 0, 4, 4, "ldmatrix.x4.trans", 8192, 1)),
    "64x64, rows to columns, 1 byte": (ROWS, COLUMNS, 1, Theirs(0, 0, 32, 16, "", 4096, 1)),
    "64x64, accumulator to rows, 2 bytes": (ACCUMULATOR, ROWS, 2, Theirs(0, 0, 4, 4, "ldmatrix.x4", 8192, 1)),
    "64x64, rows to accumulator, 2 bytes": (ROWS, ACCUMULATOR, 2, Theirs(0, 0, 4, 4, "ldmatrix.x4", 8192, 1)),
    "64x64, accumulator to rows, 4 bytes": (ACCUMULATOR, ROWS, 4, Theirs(0, 0, 8, 8, "ldmatrix.x4", 8192, 3)),
    "128x128, accumulator to rows, 4 bytes": (
        *(LARGE_ACCUMULATOR, LARGE_ROWS, 4),
        Theirs(0, 0, 16, 16, "ldmatrix.x4", 16384, 7),
    ),
    "accumulator to the left operand, 2 bytes": (ACCUMULATOR, ACCUMULATOR, 2, Theirs()),
}
"""Source, destination, bytes of an element; what Triton emits for it."""


def many(count: int, one: str) -> str:
    """A count and a name."""
    return f"{count} {one}{'s' if count > 1 else ''}"


def access(side: Access, stores: bool) -> str:
    """One side's instructions."""
    if side.kind == "vector":
        return f"{many(side.count, 'store' if stores else 'load')} of {side.bytes}"
    return f"{side.count} {'stmatrix' if stores else 'ldmatrix'}.x{side.bytes // 4}{'.trans' * (side.kind == 'turned')}"


def shown(found: Emission) -> str:
    """One way in words."""
    if found.write is None or found.read is None:
        return "nothing" if found.way == "rename" else f"{found.shuffles} shuffles, {found.selects} selects"
    sides = f"{access(found.write, True)}, {access(found.read, False)}"
    barriers = f", {many(found.barriers, 'barrier')}" if found.barriers else ""
    conflicts = f"conflicts {found.write.conflicts} / {found.read.conflicts}"
    return f"{sides}{barriers}, {found.shared} bytes; {conflicts}"


def reference(theirs: Theirs) -> str:
    """The other compiler's way in words."""
    if not theirs.shared:
        return "nothing" if not theirs.shuffles else f"{theirs.shuffles} shuffles, {theirs.selects} selects"
    loads = f"{theirs.loads} {theirs.matrices}" if theirs.matrices else many(theirs.loads, "load")
    barriers = f", {many(theirs.barriers, 'barrier')}" if theirs.barriers else ""
    return f"{many(theirs.stores, 'store')}, {loads}{barriers}, {theirs.shared} bytes"


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
        memory = "" if first.way == "rename" else shown(staged(source, destination, bytes, theirs.shared or None))
        lines.append(f"| {name} | {here} | {memory} | {reference(theirs)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(page())
