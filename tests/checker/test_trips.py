"""Loops of zero, one, V - 1, V and V + 1 trips around rings of V slots, counters that go on from tile to tile, tiles
with trips of their own: what the judge verifies for all of them runs right in each."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import pytest
from tests.checker.interleavings import explore
from tests.checker.random_machines import SHAPES, Draw

from treadle.algebra.expr import const
from treadle.checker import check
from treadle.driver.build import choose
from treadle.driver.describe import described_facts
from treadle.driver.samples import arguments
from treadle.driver.trial import close_enough, expected
from treadle.dtype.formats import bf16
from treadle.lib.attention import attention
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.simulate.run import record, simulate


def on_one_workgroup(program: MachineProgram) -> MachineProgram:
    """The persistent program with all tiles on one workgroup, so that counters go on."""
    return replace(
        program, host=replace(program.host, launches=[replace(k, grid=const(1)) for k in program.host.launches])
    )


def first_with(kind: str, slots: int) -> str:
    """Of the right programs of a shape whose rings have so many slots, the first of those with the fewest threads."""
    texts = (SHAPES[kind](Draw(seed, 1.0)).text for seed in range(200))
    return min((text for text in texts if f" versions {slots} " in text), key=threads_of)


def threads_of(text: str) -> int:
    """The threads of the (one) launch."""
    return int(re.findall(r"launch main grid .* threads (\d+)", text)[0])


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("kind", ["ring", "relay", "staged", "ahead"])
def test_trips_around_the_slots(kind: str, slots: int) -> None:
    """All interleavings of each are visited: `TooMany` fails the test."""
    program = parse_machine(first_with(kind, slots))
    assert check(program).status == "verified"
    program = on_one_workgroup(program)
    rows = int(next(iter(re.findall(r"M \+ (\d+)\) // ", first_with(kind, slots))))) + 1
    for trips in sorted({0, 1, slots - 1, slots, slots + 1}):
        for tiles in (1, 3):
            extents = {"M": rows * (tiles - 1) + 1, "N": max(0, 32 * trips - 4)}
            arrays, scalars = arguments(program.program, extents, trips)
            want = expected(program, arrays, scalars, extents)
            run, replayer = record(program, {**arrays, **scalars}, seed=4 * trips + tiles)
            assert run.findings == [], (extents, run.findings[0])
            assert close_enough(want["Y"], run.outputs["Y"]), extents
            assert replayer is not None
            assert explore(replayer).wrong == "", extents


@pytest.mark.parametrize("some", [True, False])
@pytest.mark.parametrize("slots", [1, 2])
def test_products_of_every_length(slots: int, some: bool) -> None:
    """Accumulators that wait one group behind, and at once, for none (where the guard allows it: there the last step is
    given back behind a loop that may have had none), one, to V + 1 steps a tile, two tiles in a row."""
    texts = (SHAPES["products"](Draw(seed, 1.0)).text for seed in range(400))
    right = (t for t in texts if f" versions {slots} " in t and ("1 <= K" in t) == some)
    program = parse_machine(next(t for t in right if some or slots == 1 or "if 0 < K" in t))
    assert check(program).status == "verified"
    program = on_one_workgroup(program)
    for trips in range(1 if some else 0, slots + 2):
        extents = {"M": 65, "N": 8, "K": max(0, 64 * trips - 8)}
        arrays, scalars = arguments(program.program, extents, trips)
        want = expected(program, arrays, scalars, extents)
        run = simulate(program, {**arrays, **scalars}, seed=trips)
        assert run.findings == [] and close_enough(want["Y"], run.outputs["Y"]), extents


@pytest.mark.parametrize(("queries", "keys"), [(300, 300), (140, 268), (200, 72)])
def test_tiles_with_trips_of_their_own(causal: MachineProgram, queries: int, keys: int) -> None:
    """Causal attention: each tile of queries sees one block of keys more than the last, the first ones none where there
    are fewer keys than queries."""
    program = on_one_workgroup(causal)
    extents = {"B": 1, "H": 1, "Sq": queries, "Sk": keys, "D": 64}
    arrays, scalars = arguments(program.program, extents, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without a key are NaN
        want = expected(program, arrays, scalars, extents)
        run = simulate(program, {**arrays, **scalars}, seed=queries)
    assert run.findings == []
    assert close_enough(want["Y"], run.outputs["Y"])


@pytest.fixture(scope="module")
def causal() -> MachineProgram:
    """A plan of causal attention on a Hopper GPU for blocks that end anywhere, which the judge verifies."""
    dtypes = dict.fromkeys("QKVY", bf16)
    definition = attention.__treadle_definition__
    program = definition.capture(dtypes, {"causal": True}, frozenset(dtypes), extents={"D": 64})
    facts = described_facts(program, {"B": 4, "H": 16, "Sq": 4000, "Sk": 4000})
    machine = choose(program, "cuda:sm_90a", facts, ()).machine
    assert check(machine).status == "verified"
    return machine
