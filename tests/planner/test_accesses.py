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
from treadle.ir.expand import expand
from treadle.ir.ops.access import Load
from treadle.lib.attention import attention
from treadle.machine.form import MachineProgram, Mma, Tasks, walk
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import Axis, points
from treadle.simulate import control
from treadle.simulate.run import simulate
from treadle.simulate.thread import Thread
from treadle.targets.cpu.accesses import accumulator, slots, source, waste
from treadle.targets.cpu.blocking import Blocking
from treadle.targets.cpu.contraction import Contracting, Sizes, TiledContraction, TiledRegions
from treadle.targets.cpu.roles import Roles
from treadle.targets.cpu.shape import Shape, shape_of
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
    """The family with blocks that small extents cross, whatever the rows."""

    sizes = Sizes((4, 8), (8, 16), (4, 8))

    def blocks(self, shape: Shape) -> list[Axis]:
        return Contracting.blocks(self, shape)


def made(program: Program, extents: dict[str, int], **features: int) -> tuple[CallFacts, dict[str, Any]]:
    facts = contiguous(program, "cpu:avx2", extents, workers=2, features=frozenset({"avx2", "fma"}))
    table = {t.name: np.zeros([facts.value(d.extent) for d in t.dims], np.float32) for t in program.tensors}
    return facts, table


def levels(machine: MachineProgram) -> dict[str, str]:
    """The level of every buffer by name; of everything else it is memory. What is outside tasks belongs to the only
    worker where nothing is handed out."""
    alone = not any(isinstance(s, Tasks) for k in machine.kernels for r in k.roles for s in walk(r.body))
    shared = {b.name: "local" if alone else "shared" for b in machine.host.workspace}
    return shared | {b.name: "local" for k in machine.kernels for b in k.buffers}


def by_value(program: Program, moved: Walk, machine: MachineProgram) -> dict[tuple[str, str], tuple[int, int]]:
    """Reads and writes of what a contraction has in memory: by the tensor of an operand or by `acc`, and the level."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    level = levels(machine)
    loads = [op for op in program.body.walk() if isinstance(op, Load)]
    source = {f"b__{op.result.name.lstrip('%')}": op.tensor.name for op in loads}
    for name in moved.read.keys() | moved.written.keys():
        key = ("acc" if name.startswith("b_acc") else source.get(name, name)), level.get(name, "memory")
        found[key] = moved.read[name], moved.written[name]
    return found


def counted(blocking: Blocking, role: Roles, alone: bool) -> dict[tuple[str, str], tuple[int, int]]:
    """The same as costs count it, and of a copy what follows: as often as it is packed with its padding, and read whole
    panels at a time for every register block beside."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    rows = 1 if role.row is None else blocking.tile[role.row.name]
    for value, dim, beside in (
        (role.lane_operand, role.lane, rows),
        (role.row_operand, role.row, blocking.block.columns),
    ):
        op = blocking.shape.uses.definition[value.name]
        assert isinstance(op, Load)
        read = source(blocking, role, value)
        found[op.tensor.name, "memory"] = round(read), 0
        if blocking.in_place(value, role):
            continue
        handed = not alone and (blocking.shared(value, role) or not blocking.level(value, role))
        written = round(read * waste(blocking, dim))
        found[op.tensor.name, "shared" if handed else "local"] = round(slots(blocking, role) / beside), written
    sums = accumulator(blocking, role)
    if sums.written:
        found["acc", "local"] = round(sums.read), round(sums.written)
    return found


@pytest.mark.parametrize(
    ("workers", "extents"),
    [(2, {"M": 9, "N": 19, "K": 5}), (1, {"M": 8, "N": 16, "K": 8}), (2, {"M": 1, "N": 17, "K": 5})],
)
def test_contractions_count_what_they_do(
    workers: int, extents: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every mapping of small blocks: products, and accesses by value and level."""
    program = CASES["contract"]
    family = Small()
    facts, arrays = made(program, extents)
    shape = shape_of(program, facts)
    (result,) = (t.name for t in program.tensors if t.out)
    seen: set[str] = set()
    for point in points(family.axes(program, facts)):
        if point["columns"] == 24 or point["workers"] != workers or family.cost(program, facts, point).total > 1:
            continue
        machine = family.build(program, facts, point, family.guard(program, facts, point))
        if (text := print_machine(machine)) in seen:
            continue
        seen.add(text)
        found = walked(machine, arrays, monkeypatch)
        blocking = Blocking(shape, family.block(shape, point))
        (role,) = blocking.roles
        told = by_value(program, found, machine)
        assert told.pop((result, "memory")) == (0, extents["M"] * extents["N"]), point
        assert found.products == round(slots(blocking, role), 6), point
        assert told == counted(blocking, role, alone=point["workers"] == 1), point
        assert touched_bytes(found) == shape.bytes
    assert len(seen) > 40


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


class SmallRegions(TiledRegions):
    """The family with blocks that small extents cross."""

    sizes = Sizes((4, 8), (8, 16), (4, 8))


@pytest.mark.parametrize("causal", [False, True])
def test_copies_of_what_blocks_of_another_argument_see(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are copied for each block of queries, as many as those see; queries once, weights not at all."""
    program = expand(attention.definition.capture({}, {"causal": causal}))
    family = SmallRegions()
    facts, arrays = made(program, {"B": 1, "H": 2, "Sq": 21, "Sk": 24, "D": 5})
    shape = shape_of(program, facts)
    seen: set[str] = set()
    shares: set[float] = set()
    for point in points(family.axes(program, facts)):
        if point["columns"] != 8 or point["workers"] != 1 or family.cost(program, facts, point).total > 1:
            continue
        machine = family.build(program, facts, point, family.guard(program, facts, point))
        if (text := print_machine(machine)) in seen:
            continue
        seen.add(text)
        found = walked(machine, arrays, monkeypatch)
        blocking = Blocking(shape, family.block(shape, point))
        scores, sums = blocking.roles
        told: dict[str, float] = {}
        for role in (scores, sums):
            for value in (role.lane_operand, role.row_operand):
                op = shape.uses.definition[value.name]
                if isinstance(op, Load) and not blocking.in_place(value, role):
                    told[op.tensor.name] = source(blocking, role, value)
        assert told and {t: found.read[t] for t in told} == {t: round(n, 6) for t, n in told.items()}, point
        # What registers fill up is at most a block in each of the blocks that are cut short.
        filled = slots(blocking, scores) + slots(blocking, sums)
        assert 0.8 * filled <= found.products <= 1.3 * filled, point
        shares.add(round(found.read["V"] / (2 * 24 * 5), 6))
    assert len(seen) > 5 and len(shares) > 1
    assert shape.spans({}) == ({} if not causal else pytest.approx({id(shape.hanging[0][0]): 14.0}))
