"""Shifted operands: boxes at moved coordinates, zeros outside the tensor; ordered regions over several axes."""

from __future__ import annotations

import functools
import re
from math import isinf

import pytest
from tests.realise.texts import near, windows
from tests.targets.cuda.cuda_kit import clean, tried
from tests.targets.cuda.test_cuda_streams import built, read

import treadle as td
from treadle import lib
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.driver.candidates import plan_facts
from treadle.driver.describe import described_facts
from treadle.driver.locate import captured
from treadle.driver.tiles import wanted_dims
from treadle.dtype.formats import named
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.machine.form import Copy, MachineProgram
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import Point
from treadle.planner.enumerate import choose
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.families import families
from treadle.targets.cuda.parted import BEFORE, LAID, PartedStreams
from treadle.targets.cuda.streams import Streams


def sizes(height: int, width: int, taps: int, pad: int) -> dict[str, int]:
    out = 2 * pad + 1 - taps
    return {"B": 2, "H": height, "V": width, "KH": taps, "KV": taps, "Ho": height + out, "Vo": width + out}


def boxes(machine: MachineProgram, tensor: str) -> list[str]:
    return [
        ", ".join(map(str, s.src.index)) for s in machine.statements() if isinstance(s, Copy) and s.src.name == tensor
    ]


@pytest.mark.parametrize(
    ("taps", "pad", "channels", "point"),
    [
        (3, 1, 128, {"flight": 1, "versions": 3, "consumers": 1}),
        (2, 0, 64, {"staged": False, "versions": 2}),
    ],
)
def test_windows_are_boxes_at_shifted_coordinates(taps: int, pad: int, channels: int, point: dict[str, int]) -> None:
    source = read(windows(channels, pad=pad))
    given = sizes(3, 69, taps, pad)
    machine = built(source, given, **({"step": 64, "flight": 0} | point))
    tried(machine, source, given)
    clean(machine)
    assert boxes(machine, "X")


def test_they_are_planned_so() -> None:
    source = read(windows(256, 256))
    facts = contiguous(source, "cuda:sm_90a", sizes(56, 56, 3, 1) | {"B": 32})
    assert choose(source, facts, families()).plan.family == "streams"


def test_windows_without_zeros_are_told() -> None:
    source = read(windows(fill=False, pad=0))
    facts = contiguous(source, "cuda:sm_90a", sizes(8, 72, 3, 0))
    (reason,) = Streams().admits(source, facts)
    assert "where a load has `fill=0`" in reason


def test_keys_from_a_moving_multiple_of_a_block() -> None:
    source = read(near(100, stop="64*((q.stop + 63) // 64)"))
    given = {"B": 1, "H": 1, "Q": 200, "S": 200, "D": 64}
    machine = built(source, given, step=64, versions=2, consumers=2, staged=False)
    tried(machine, source, given, tolerance=2e-2)


def test_keys_from_anywhere_are_told_what_to_write() -> None:
    source = read(near(100, block=1))
    facts = contiguous(source, "cuda:sm_90a", {"B": 1, "H": 1, "Q": 200, "S": 200, "D": 64})
    (reason,) = Streams().admits(source, facts)
    assert "where VT goes on" in reason and "from and to multiples" in reason


def test_factors_of_product_axes_are_told_of_each_call() -> None:
    like = functools.partial(td.like, td.bf16, align=256)
    for channels, groups in ((256, 1), (128, 1), (128, 2)):
        given = like(2, 8, 64, 128), like(3, 3, 128 // groups, channels), None, like(2, 8, 64, channels)
        plan = lib.conv2d_nhwc.plan(*given, pad=1, groups=groups, target="cuda:sm_90a")
        assert "streams" in plan.explain().splitlines()[0]
        (q,) = (d for d in plan.program.program.dims if d.name == "Q")
        assert q.extent.constant == channels // groups


TAPS = {"KH": 3, "KV": 3, "G": 1, "P": 64, "Q": 64, "B": 1}
SPREAD = [
    ("conv1d", {"pad": 1, "stride": 2}, {"KL": 3, "G": 1, "P": 64, "Q": 64, "B": 2, "L": 21, "Lo": 11}),
    ("conv2d", {"pad": 1}, TAPS | {"H": 3, "V": 9, "Ho": 3, "Vo": 9}),
    (
        "conv3d",
        {"pad": 1},
        {"KD": 2, "KH": 2, "KV": 2, "C": 64, "N": 64, "B": 1} | {"D": 2, "H": 3, "V": 9, "Do": 3, "Ho": 4, "Vo": 10},
    ),
    ("conv2d_nhwc", {"pad": 1, "stride": 2}, TAPS | {"H": 7, "V": 9, "Ho": 4, "Vo": 5}),
    ("conv_transposed2d", {"stride": 2}, TAPS | {"KH": 2, "KV": 2, "H": 2, "V": 4, "Ho": 4, "Vo": 8}),
    ("conv2d_weights", {"pad": (0, 1)}, TAPS | {"KH": 1, "H": 2, "V": 64, "Ho": 2, "Vo": 64}),
]


WAYS = [
    *((*case, BEFORE, {"materialise"}) for case in SPREAD),
    *((*case, LAID, {"materialise", "relayout"}) for case in SPREAD[:2]),
    (*SPREAD[3], LAID, {"relayout"}),
]
"""Full windows made first, or a copy of the image with channels last (a strided axis in phases), of which they are
boxes; weights lie right with channels last."""


def planned(
    name: str, staged: dict[str, int], extents: dict[str, int], operands: str
) -> tuple[Program, CallFacts, PartedStreams, Point]:
    """A kernel's program, the call, and the best settings of its stream with operands made so."""
    definition = getattr(lib, name).definition
    absent = [] if name.endswith("weights") else ["bias"]
    dtypes = {name: named("bf16") for name in (("X", "dY", "dW") if name.endswith("weights") else ("X", "W", "Y"))}
    open_ = captured(definition, dtypes, staged, extents, absent)
    sides = {n: extents[n] for n in wanted_dims(open_, extents)}
    assert {"KH", "KV"} <= sides.keys() or "KL" in sides
    source = expand(captured(definition, dtypes, staged, extents, absent, specialised=sides))
    facts = plan_facts(source, "cuda:sm_90a", described_facts(source, extents))
    family = next(f for f in families() if f.name == "streams")
    assert isinstance(family, PartedStreams)
    point = {**choose(source, facts, [family]).plan.point, "operands": operands}
    assert not isinf(family.cost(source, facts, point).total)
    return source, facts, family, point


@pytest.mark.parametrize(("name", "staged", "extents", "operands", "kinds"), WAYS)
def test_windows_that_lie_across_memory_or_apart_are_made_first(
    name: str, staged: dict[str, int], extents: dict[str, int], operands: str, kinds: set[str]
) -> None:
    source, facts, family, point = planned(name, staged, extents, operands)
    steps = family.derivation(source, facts, point)
    assert steps is not None and {s.kind for s in steps.steps} == kinds
    verdicts = validate_derivation(steps.programs, steps.steps)
    assert {str(v.status) for v in verdicts} == {"verified"}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified"
    assert not boxes(machine, "X")  # engines fault where the innermost coordinate is no multiple of 16 bytes
    tried(machine, source, extents)
    clean(machine)


def test_loads_of_a_thread_are_under_way_together() -> None:
    source, facts, family, point = planned(*SPREAD[0], BEFORE)
    text = emit(family.build(source, facts, point, family.guard(source, facts, point))).source
    assert not re.search(r"&&[^;?]*\? \*", text)  # a branch before each
    assert len(re.findall(r"pair\(\*q\d+", text)) == 1  # the first pair of a run


def test_a_group_may_have_more_channels_than_a_task() -> None:
    like = functools.partial(td.like, td.bf16, align=256)
    plan = lib.conv1d.plan(like(4, 64, 512), like(512, 64, 3), None, like(4, 512, 512), pad=1, target="cuda:sm_90a")
    assert "streams" in plan.explain().splitlines()[0]


M, N, K = td.dims("M N K")


@pytest.mark.parametrize(("columns", "depth"), [(3, 0), (0, 3), (8, 16)])
def test_boxes_begin_at_chunks_of_engines(columns: int, depth: int) -> None:
    @td.kernel
    def later(X: td.Tensor[M, K], W: td.Tensor[N, K], Y: td.Out[M, N]):
        """Columns and depth from a few on."""
        for m, n in td.parallel(M, N[columns:]):
            s = td.zeros(m, n, dtype=td.f32)
            for k in td.reduce(K[depth:]):
                s = td.mma(X[m, k], W[n, k], s)
            Y[m, n] = s.to(Y.dtype)

    extents = {"M": 70, "N": 200, "K": 144}
    dtypes = {name: named("bf16") for name in ("X", "W", "Y")}
    source = expand(captured(later.definition, dtypes, {}, extents, []))
    facts = plan_facts(source, "cuda:sm_90a", described_facts(source, extents))
    family = PartedStreams()
    if depth % 8:
        assert family.admits(source, facts)
        return
    point = dict(choose(source, facts, [family]).plan.point) | {"staged": True, "columns": 64, "turned": False}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert bool(boxes(machine, "stage")) == (not columns % 8)
    assert check(machine).status == "verified"
