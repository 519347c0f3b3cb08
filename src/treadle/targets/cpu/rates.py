"""What the CPU cost model believes of a processor: rates, capacities, overheads.

*Units*: operations and bytes per second and core, bytes, seconds. *Source*: measured loops and copies on two x86 server
cores (AVX-512); only ratios between candidates matter to the planner, so one row a level is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.plan.facts import CallFacts


@dataclass(frozen=True)
class Rates:
    """One level of vector units. `lanes`: f32 elements of a vector; `registers`: vectors; `fma`: FMAs a second.

    `local`: bytes that a worker may hold in packed operands, whatever they save.
    """

    lanes: int
    registers: int
    fma: float
    loads: float
    simple: float
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 16 << 20
    local: int = 256 << 20
    l2_rate: float = 60e9
    l3_rate: float = 25e9
    memory_rate: float = 12e9
    packing_rate: float = 15e9
    fork: float = 1.5e-6
    task: float = 0.1e-6


AVX2 = Rates(lanes=8, registers=16, fma=6.0e9, loads=6.0e9, simple=5.0e9)
AVX512 = Rates(lanes=16, registers=32, fma=3.3e9, loads=5.0e9, simple=3.0e9)

PAIR_RATE = 2.0
"""How many times faster a bf16 pair product (two contracted coordinates at once) is than an f32 FMA, per element."""

TILE_RATE = 14.0
"""The same for an AMX tile product."""


def rates(facts: CallFacts) -> Rates:
    """The row for a call's target."""
    return AVX2 if facts.target.endswith("avx2") else AVX512


def traffic(rate: Rates, size: float, workers: int) -> float:
    """Seconds to move `size` bytes once, from the level where a working set of that size lives."""
    if size <= rate.l2:
        return size / (rate.l2_rate * workers)
    if size <= rate.l3:
        return size / (rate.l3_rate * workers)
    return size / (rate.memory_rate * min(workers, 2))
