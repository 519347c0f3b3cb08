"""What costs count is what machine programs do: loops are walked, and every access is counted by value and level.

The simulator walks the loops; it is watched while it reads, writes and multiplies. No cache is modelled: an element
that is read twice counts twice, and beside it how many different elements were touched.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.planner.test_counts import CASES

from treadle.ir.core import Program
from treadle.machine.form import MachineProgram, Mma
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import points
from treadle.simulate import control
from treadle.simulate.run import simulate
from treadle.simulate.thread import Thread
from treadle.targets.cpu.blocking import Blocking
from treadle.targets.cpu.contraction import Sizes, TiledContraction
from treadle.targets.cpu.shape import shape_of
from treadle.targets.cpu.sweep import VectorSweep
from treadle.targets.cpu.windows import again, tile_bytes


@dataclass
class Walk:
    """Elements read and written by the name of a tensor or buffer; different elements touched; products."""

    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    touched: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    products: int = 0


def walked(machine: MachineProgram, arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Walk:
    found = Walk()
    place, contract, store = Thread.place, control.contract, Thread._store
    storing = [False]

    def watched(self: Thread, ref: Any, count: int) -> Any:
        view, index = place(self, ref, count)
        (found.written if storing[0] else found.read)[ref.name] += count
        if ref.name in arrays:
            found.touched.setdefault(ref.name, set()).update(zip(*(i.tolist() for i in index), strict=True))
        return view, index

    def stored(self: Thread, item: Any) -> None:
        storing[0] = True
        store(self, item)
        storing[0] = False

    def contracted(thread: Thread, item: Mma) -> None:
        found.products += thread.fragment(item.dst).count
        contract(thread, item)

    with monkeypatch.context() as patch:
        patch.setattr(Thread, "place", watched)
        patch.setattr(Thread, "_store", stored)
        patch.setattr(control, "contract", contracted)
        simulate(machine, arrays)
    return found


class Small(TiledContraction):
    """The family with blocks that small extents cross."""

    sizes = Sizes((4, 8), (16, 32), (4, 8))


def made(program: Program, extents: dict[str, int], **features: int) -> tuple[CallFacts, dict[str, Any]]:
    facts = contiguous(program, "cpu:avx2", extents, workers=2, features=frozenset({"avx2", "fma"}))
    table = {t.name: np.zeros([facts.value(d.extent) for d in t.dims], np.float32) for t in program.tensors}
    return facts, table


@pytest.mark.parametrize("extents", [{"M": 9, "N": 37, "K": 10}, {"M": 16, "N": 32, "K": 8}])
def test_contractions_count_what_they_do(extents: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    program = CASES["contract"]
    family = Small()
    facts, arrays = made(program, extents)
    shape = shape_of(program, facts)
    (result,) = (t.name for t in program.tensors if t.out)
    seen = 0
    for number, point in enumerate(points(family.axes(program, facts))):
        if number % 9 or family.cost(program, facts, point).total > 1:
            continue
        walk = walked(family.build(program, facts, point, family.guard(program, facts, point)), arrays, monkeypatch)
        blocking = Blocking(shape, family.block(shape, point))
        (role,) = blocking.roles
        assert walk.products == round(family.slots(blocking, role), 6), point
        for value, trips in family.trips(blocking, role):
            times = 1 if family.once(blocking, role, value) else trips
            source = shape.uses.definition[value.name].tensor.name
            assert walk.read[source] == times * shape.elements(role.found.op, value.type.dims), (point, source)
        assert walk.written[result] == extents["M"] * extents["N"], point
        assert touched_bytes(walk) == shape.bytes
        seen += 1
    assert seen > 8


def touched_bytes(walk: Walk) -> int:
    return sum(4 * len(elements) for elements in walk.touched.values())


@pytest.mark.parametrize("name", ["softmax", "siblings", "layernorm"])
def test_sweeps_move_what_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = CASES[name]
    family = VectorSweep()
    facts, arrays = made(program, {"M": 5, "N": 37})
    shape = shape_of(program, facts)
    for point in list(points(family.axes(program, facts)))[::7]:
        walk = walked(family.build(program, facts, point, family.guard(program, facts, point)), arrays, monkeypatch)
        # Every tensor moves once, however often its elements are read from the caches.
        assert touched_bytes(walk) == shape.bytes and set(walk.touched) == set(arrays), point
        stored = [t.name for t in program.tensors if t.out]
        assert all(walk.written[t] == len(walk.touched[t]) for t in stored)


@pytest.mark.parametrize("rows", [4, 16])
def test_bands_make_again_what_they_say(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = CASES["harris"]
    family = VectorSweep()
    facts, arrays = made(program, {"H": 38, "V": 21})
    shape = shape_of(program, facts)
    first = {a.name: a.values[0] for a in family.axes(program, facts)}
    for beside in (1, 2):
        point = first | {"rows": rows, "bands": True, "beside": beside}
        walk = walked(family.build(program, facts, point, family.guard(program, facts, point)), arrays, monkeypatch)
        (band,) = shape.bands
        factor = again(shape, band, family.choices(shape, point).cuts)
        stored = sum(count for name, count in walk.written.items() if name not in arrays)
        assert 4 * stored == round(tile_bytes(shape, band) * factor, 6), point
        assert factor > 1 and touched_bytes(walk) == shape.bytes
