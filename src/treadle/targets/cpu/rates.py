"""What the CPU cost model believes of a processor: capacities (facts), coefficients (seconds a unit), hand terms.

*Source*: coefficients by hand are of measured loops and copies on two x86 server cores (AVX-512); `treadle calibrate`
fits them for the machine at hand. Hand terms are what no microbenchmark tells apart; each says what it was seen on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf

from treadle.plan.coefficients import Coefficients, Term
from treadle.plan.facts import CallFacts

TERMS = (
    Term("fma", "vector multiply-adds of a register block"),
    Term("pair", "the same on pairs of 16-bit floats"),
    Term("tile", "the same on matrix tiles, as multiply-adds of vectors"),
    Term("load", "vectors and scalars loaded for a register block"),
    Term("simple", "other vector instructions"),
    Term("l1", "bytes of accumulators from the first cache"),
    Term("l2", "bytes from the second cache"),
    Term("l3", "bytes from the last cache"),
    Term("memory", "bytes from memory"),
    Term("packing", "bytes copied into packed operands, read and written"),
    Term("fork", "parallel launches"),
    Term("task", "tasks handed out"),
)


@dataclass(frozen=True)
class Rates:
    """One level of vector units. Capacities: `lanes`: f32 elements of a vector; `registers`: vectors; `l1`, `l2`, `l3`:
    bytes; `local`: bytes that a worker may hold in packed operands, whatever they save; `apart`: registers that a row
    of a register block takes beside its sums, 1 where no multiply-add takes an element of memory for all lanes.

    The rest are coefficients: units a second of each of `TERMS`, and for `fork` and `task` seconds.
    """

    lanes: int
    registers: int
    fma: float
    pair: float
    tile: float
    loads: float
    simple: float
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 16 << 20
    local: int = 256 << 20
    apart: int = 0
    l1_rate: float = 100e9
    l2_rate: float = 60e9
    l3_rate: float = 25e9
    memory_rate: float = 12e9
    packing_rate: float = 15e9
    fork: float = 1.5e-6
    task: float = 0.1e-6

    def issue(self, atom: str) -> float:
        """Instructions of an atom a second, as vectors of its accumulator."""
        return {"fma": self.fma, "dpbf16": self.pair, "dpbssd": self.fma}.get(atom, self.tile)


AVX2 = Rates(lanes=8, registers=16, fma=6.0e9, pair=6.0e9, tile=6.0e9, loads=6.0e9, simple=5.0e9)
AVX512 = Rates(lanes=16, registers=32, fma=3.3e9, pair=3.3e9, tile=3.3e9, loads=5.0e9, simple=3.0e9)
NEON = Rates(lanes=4, registers=32, fma=6.0e9, pair=6.0e9, tile=6.0e9, loads=6.0e9, simple=6.0e9, apart=1)
SVE = Rates(lanes=8, registers=32, fma=5.0e9, pair=5.0e9, tile=5.0e9, loads=5.0e9, simple=5.0e9, apart=1)
"""Of aarch64 nothing has been measured: assumed are two vectors an instruction kind and cycle, at 3 and 2.5 GHz."""
LEVELS = {"avx2": AVX2, "avx512": AVX512, "amx": AVX512, "neon": NEON, "neon_dot": NEON, "sve": SVE}

PER_SECOND = {
    "fma": "fma",
    "pair": "pair",
    "tile": "tile",
    "load": "loads",
    "simple": "simple",
    "l1": "l1_rate",
    "l2": "l2_rate",
    "l3": "l3_rate",
    "memory": "memory_rate",
    "packing": "packing_rate",
}
"""Terms that `Rates` has as units a second, by their names there."""


@dataclass(frozen=True)
class Hand:
    """Hand terms, dimensionless."""

    pair_width: float = 2.0
    """Elements that a product of pairs contracts at once."""
    four_width: float = 4.0
    """Elements that a product of fours contracts at once."""
    tile_width: float = 14.0
    """Vector multiply-adds that a product of tiles stands for."""
    block_least: float = 9.0
    """Multiply-adds in flight below which a register block waits for its own results."""
    wait: float = 0.5
    """The part of a task for which a worker is idle at the end."""
    late: float = 0.01
    """Of a task, for each of its rows: of plans that are equal otherwise, the one with smaller tasks is taken."""
    room: float = 2.0
    """The part of the second cache that a row of every tensor may take for the next one to be read ahead."""
    crowded: float = 2.0
    """How far blocks may exceed the second cache: accumulators stream through it, and are used once a pass."""
    back: float = 0.3
    """What it costs to read a packed operand back from the caches, of what it costs to pack as many bytes."""
    far: float = 0.02
    """The part of reading a panel from the second cache that arithmetic does not hide."""
    near: float = 4.0
    """How much faster whole lines come from the second cache than what is packed."""
    streams: int = 16
    """Rows of memory that are read at once without waiting for each."""
    chain: float = 3.0
    """Instructions' time that an iteration waits for the one before it."""
    turned: float = 0.6
    """Instructions for an element that changes from rows to columns, there and back."""
    window: float = 0.04
    """What each vector of a fragment beyond the first costs where windows of several rows lie in registers."""
    crossing: float = 2.5
    """How much dearer elementwise work and folds are between accumulators with different lanes (1.3 to 3 in all)."""


HAND = Hand()


def rates(facts: CallFacts) -> Rates:
    """The row for a call's target, with the coefficients that were measured, if any."""
    row = LEVELS.get(facts.target.partition(":")[2], AVX512)
    return measured(row, facts.coefficients) if facts.coefficients else row


def measured(row: Rates, seconds: Mapping[str, float]) -> Rates:
    """A row with other coefficients; what they leave out stays."""
    changed = {f.name: getattr(row, f.name) for f in fields(row)}
    for term, one in seconds.items():
        if term in PER_SECOND:
            changed[PER_SECOND[term]] = 1.0 / one if one > 0 else inf
        elif term in changed:
            changed[term] = one
    return Rates(**changed)


def coefficients(facts: CallFacts) -> Coefficients:
    """The coefficients of `rates(facts)`. *Ensures*: `measured(rates(facts), coefficients(facts)) == rates(facts)`."""
    row = rates(facts)
    per_second = {term: 1.0 / float(getattr(row, name)) for term, name in PER_SECOND.items()}
    return Coefficients(
        {**per_second, "fork": row.fork, "task": row.task}, "measured" if facts.coefficients else "hand"
    )


def traffic(rate: Rates, size: float, workers: float) -> float:
    """Seconds to move `size` bytes once, from the level where a working set of that size lives."""
    if size <= rate.l2:
        return size / (rate.l2_rate * workers)
    if size <= rate.l3:
        return size / (rate.l3_rate * workers)
    return size / (rate.memory_rate * min(workers, 2))
