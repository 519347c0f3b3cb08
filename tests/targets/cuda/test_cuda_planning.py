"""What the planner takes on CUDA, and that it assembles without a complaint of the assembler."""

from __future__ import annotations

from typing import Any

import pytest
from tests.marks import assembled
from tests.realise.texts import attention, linear, program
from tests.targets.cuda.test_cuda_streams import gated, halves, read

from treadle.ir.guard import Pitch
from treadle.machine.form import MachineProgram
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import Axis, Point, Setting, points
from treadle.planner.enumerate import Choice, choose, realised
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.families import families
from treadle.targets.cuda.shape import shape_of
from treadle.targets.cuda.stream_room import NEEDING
from treadle.targets.cuda.streams import Streams
from treadle.toolchain.nvrtc import compile_cuda

BIG = {"M": 4096, "N": 4096, "K": 4096}
KEYS = {"B": 4, "H": 16, "Q": 4096, "S": 4096, "D": 64}
SOURCES = {
    "rows": (program("softmax"), {"M": 4096, "N": 1000}, "rows"),
    "halves": (program("softmax_bf16"), {"M": 4096, "N": 8192}, "rows"),
    "activated": (read(halves(linear("bf16"))), BIG, "streams"),
    "gated": (read(gated()), BIG, "streams"),
    "chained": (read(attention("bf16", causal=True)), KEYS, "streams"),
    "floats": (program("linear"), BIG, "blocks"),
    "gather": (program("embed"), {"T": 64, "V": 64, "D": 64}, "rows"),
    "recurrence": (program("recurrence"), {"T": 64, "D": 64}, "rows"),
}


def planned(name: str) -> tuple[Choice, MachineProgram]:
    source, sizes, _ = SOURCES[name]
    facts = contiguous(source, "cuda:sm_90a", sizes)
    choice = choose(source, facts, families())
    return choice, realised(choice.plan, source, facts, families())


@pytest.mark.parametrize("name", SOURCES)
def test_the_family_that_fits_is_taken(name: str) -> None:
    choice, _ = planned(name)
    assert choice.plan.family == SOURCES[name][2]


def test_the_plan_of_a_large_product() -> None:
    choice, _ = planned("activated")
    point = choice.plan.point
    assert (point["consumers"], point["columns"], point["versions"], point["staged"]) == (2, 256, 4, True)


def test_the_accumulator_of_a_chain_is_counted_once() -> None:
    choice, _ = planned("chained")
    point = choice.plan.point
    assert (point["consumers"], point["step"], point["turns"], point["resident"]) == (2, 128, True, 1)


def test_odd_strides_are_copied_first() -> None:
    source, _, _ = SOURCES["activated"]
    plain = contiguous(source, "cuda:sm_90a", {"M": 4095, "N": 4097, "K": 4093})
    odd = CallFacts(plain.target, plain.extents, plain.unit, dict.fromkeys(plain.aligned, 2))
    choice = choose(source, odd, families())
    assert choice.plan.family == "streams" and choice.best.cost.packing > 0
    assert not any(isinstance(f, Pitch) for f in choice.plan.guard.facts)


class Seen(dict[str, Setting]):
    """A point that notes what is read of it."""

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Setting:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("name", ["activated", "gated", "chained"])
def test_whether_a_point_fits_hangs_on_what_it_is_remembered_by(name: str) -> None:
    source, sizes, _ = SOURCES[name]
    facts = contiguous(source, "cuda:sm_90a", sizes)
    family = next(f for f in families() if isinstance(f, Streams))
    axes = [Axis(a.name, a.values[-3:]) for a in family.axes(source, facts)]
    read: set[str] = set()
    for point in list(points(axes))[::7]:
        seen, costs = Seen(point), family.costs(shape_of(source, facts), point)
        assert costs.exceeds(point) == costs._exceeds(seen)
        read |= seen.names
    assert read <= set(NEEDING) and {"consumers", "columns", "step"} <= read


@assembled
@pytest.mark.parametrize("name", ["rows", "activated", "gated", "chained"])
def test_assembled_as_the_text_says(name: str) -> None:
    _, machine = planned(name)
    made = emit(machine)
    cubin = compile_cuda(made.source, arch=made.arch, name=name)
    assert cubin.messages == ()
    assert all(k.spill_stores == 0 and k.stack == 0 for k in cubin.kernels)
    if name != "rows":
        assert [k.registers for k in cubin.kernels] == [168]
