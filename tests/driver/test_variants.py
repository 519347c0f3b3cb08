"""Variants: how many shapes make how many plans, what a second shape of a class costs, what happens at the cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.driver import settling
from treadle.driver import specialisation as module
from treadle.driver.facts import ArrayFacts, CallFacts
from treadle.driver.record import Record
from treadle.driver.specialisation import Specialisation
from treadle.driver.targets import Place
from treadle.driver.variants import Interpreted, Variant, call_class, class_distance
from treadle.ir.guard import Guard
from treadle.ir.parser import parse_program
from treadle.plan.facts import streams
from treadle.runtime.memory import empty

M, N = td.dims("M N")


class Counter:
    """Counts the plans that are chosen and those that are compiled."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        build = module.room("build")
        self.chosen = self.compiled = 0
        choose, assemble = build.choose, build.assemble

        def count_choose(*args: Any, **named: Any) -> Any:
            self.chosen += 1
            return choose(*args, **named)

        def count_assemble(*args: Any) -> Any:
            self.compiled += 1
            return assemble(*args)

        patch.setattr(build, "choose", count_choose)
        patch.setattr(build, "assemble", count_assemble)
        for one in (module, settling):
            patch.setattr(one, "fetch", lambda key: None)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    yield Counter(monkeypatch)


def test_forty_shapes_have_at_most_eight_variants(counter: Counter) -> None:
    """One that is missed more than another takes its place; none is compiled twice."""
    random = np.random.default_rng(2)
    kernel = td.kernel(k.linear_gelu.definition.fn)
    for _ in range(40):
        m, n, depth = (int(e) for e in 2 ** random.uniform(0, 7.5, 3))
        x = random.integers(-3, 4, (m, depth)).astype(np.float32)
        w = random.integers(-3, 4, (depth, n)).astype(np.float32)
        b = random.integers(-3, 4, n).astype(np.float32)
        assert (kernel(x, w, b) == x @ w + b).all(), (m, n, depth)
    assert 1 <= counter.compiled <= 24 and len(kernel.variants) == min(8, counter.compiled)
    assert all(v.verdict["status"] == "verified" for v in kernel.variants)


def test_a_second_shape_of_a_class_compiles_nothing(counter: Counter) -> None:
    kernel = td.kernel(k.double.definition.fn)
    for n in (100, 200, 333, 65, 511):
        x = empty((n,), "f32")  # of one alignment: it is part of the class
        x[...] = 1
        assert (kernel(x) == 2).all()
    assert counter.chosen == counter.compiled == 1


def test_a_shape_seen_before_does_not_even_ask_for_its_class(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = td.kernel(k.double.definition.fn)
    x = np.ones(100, np.float32)
    kernel(x)
    monkeypatch.setattr(module, "call_class", None)
    monkeypatch.setattr(type(kernel), "prepare", None)
    assert (kernel(x) == 2).all() and counter.chosen == 1


def test_one_variant_and_the_universal_plan(counter: Counter) -> None:
    @td.kernel(variants=1)
    def copy(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
        for m, n in td.parallel(M, N):
            Y[m, n] = X[m, n]

    base = np.arange(600, dtype=np.float32).reshape(20, 30)
    first = base[:, ::2]
    shapes = [base, base.T, first, first.T, base[::-1], base[:1], base[:, :0], np.broadcast_to(base[0], (4, 30))]
    for x in [*shapes, *shapes]:
        assert (copy(x) == x).all()
    families = [v.record.meta["family"] for v in copy.variants if not isinstance(v, Interpreted)]
    assert len(families) <= 2 and families.count("universal") == len(families) - 1


def test_at_the_cap_the_nearest_plan_runs() -> None:
    @td.kernel(variants=2)
    def copy(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
        for m, n in td.parallel(M, N):
            Y[m, n] = X[m, n] + 1

    for shape in ((600, 600), (2, 600), (700, 3), (1, 1), (0, 9), (600, 2)):
        x = np.ones(shape, np.float32)
        assert (copy(x) == 2).all()
    assert len(copy.variants) <= 2


def facts(extent: int, strides: tuple[int, ...], address: int = 64) -> CallFacts:
    return CallFacts({"M": extent}, {"X": ArrayFacts(address, (extent, 4), strides)}, lambda a, b: True)


def test_near_sizes_are_nearer() -> None:
    """Among plans for other sizes, the one for the next smaller size is taken, whatever was planned first."""

    def cls(extent: int, kind: str = "cuda") -> str:
        return call_class(facts(extent, (4, 1)), 1, kind)

    def planned(*extents: int) -> Variant:
        return Variant(Record("", "", b"", {"guard": []}), Guard(()), None, planned={cls(n) for n in extents})

    ladder = [8, 128, 1024, 4096, 8192]
    for i, extent in enumerate(ladder):
        distances = [planned(n).distance(cls(extent)) for n in ladder]
        assert distances == [abs(i - j) for j in range(len(ladder))]
    assert planned(8, 4096).distance(cls(8192)) == 1 < planned(0).distance(cls(8192))
    # Layouts count beside sizes, and outputs beyond the last cache on the CPU.
    small = call_class(facts(100, (4, 1)), 1)
    assert class_distance(small, call_class(facts(100, (1, 100)), 1)) == 1
    assert class_distance(small, call_class(facts(1000, (4, 1)), 1, streams=True)) == 4


COLUMN = """program column
  dim M
  dim N = 9
  tensor X: f32[M, N]
  body
    region R0 parallel (m in M)
      %x: f32[m, N] = load X[m, N]"""


def test_at_the_cap_arrays_that_lie_otherwise_get_a_plan_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a plan that copies operands to another pitch first admits aligned ones, and is many times slower."""
    made = Specialisation(parse_program(COLUMN), "", 3)
    place = Place("cuda:0", "cuda:sm_90a", (), 1)

    def make(self: Specialisation, facts: CallFacts, cls: str, family: str | None, place: Place) -> Variant:
        self.variants.append(Variant(Record("", "", b"", {"guard": [], "target": place.target}), Guard(()), None))
        return self.variants[-1]

    monkeypatch.setattr(Specialisation, "_make", make)

    def chosen(extent: int, pitch: int) -> Variant:
        given = CallFacts({"M": extent}, {"X": ArrayFacts(64, (extent, 9), (pitch, 1))}, lambda a, b: True)
        found = made._choose(given, place)
        assert isinstance(found, Variant)
        return found

    odd = [chosen(n, 4095) for n in (2, 100, 1000)]
    assert len(set(map(id, odd))) == 3
    aligned = chosen(1000, 4096)
    assert aligned not in odd and len(made.variants) == 3
    assert chosen(9000, 4096) is aligned and chosen(9000, 4095) in odd  # the nearest of those that lie alike
    assert chosen(100, 4095).lies(call_class(facts(100, (4095, 1)), 1, "cuda"))


def test_classes() -> None:
    same = [facts(100, (4, 1)), facts(101, (4, 1)), facts(64, (9, 1)), facts(127, (9, 1), 128)]
    assert len({call_class(f, 2) for f in same}) == 1
    other = [facts(n, (4, 1)) for n in (0, 1, 2, 4, 63, 100, 128, 1000)]
    other += [facts(100, (1, 100)), facts(100, (0, 1))]
    assert len({call_class(f, 2) for f in other}) == len(other)
    addresses = [facts(100, (4, 1)), facts(100, (4, 1), 80), facts(100, (4, 1), 4)]
    # No plan of the CPU depends on how an address is aligned; plans of a GPU do.
    assert len({call_class(f, 2) for f in addresses}) == 1
    assert len({call_class(f, 2, "cuda") for f in addresses}) == 3
    pitches = [facts(100, (p, 1)) for p in (4096, 4104, 4100, 4095)]
    assert len({call_class(f, 2, "cuda") for f in pitches}) == 4 and len({call_class(f, 2) for f in pitches}) == 1
    assert call_class(other[0], 1) != call_class(other[0], 2)
    # Outputs that the last cache cannot hold are stored past it.
    sizes = [call_class(same[0], 2, streams=streams(n, 3 * n)) for n in (0, 1 << 20, 64 << 20, 1 << 30)]
    assert not streams(16 << 20, 32 << 20) and not streams(8 << 20, 64 << 20)
    assert sizes[0] == sizes[1] != sizes[2] == sizes[3]


def test_what_is_stored_decides_about_streaming() -> None:
    """A kernel that was planned for a small output gets another plan for one beyond the last cache."""

    @td.kernel
    def copy(X: td.Tensor[M, N], Y: td.Out[M, N]):
        for m in td.parallel(M):
            Y[m, N] = X[m, N] + 1.0

    for rows in (1024, 12288):
        x, y = empty((rows, 1024), "f32"), empty((rows, 1024), "f32")
        x[...] = 1
        copy(x, y)
        assert (y == 2).all()
    assert [("stream=True" in v.plan) for v in copy.variants] == [False, True]


def test_other_workers_are_another_class(counter: Counter, with_workers: Callable[[int], int]) -> None:
    kernel = td.kernel(k.double.definition.fn)
    x = empty((3000,), "f32")
    x[...] = 1
    with_workers(1)
    kernel(x)
    kernel(x)
    one = counter.chosen
    with_workers(2)
    assert (kernel(x) == 2).all()
    assert one == 1 and counter.chosen in (1, 2)
