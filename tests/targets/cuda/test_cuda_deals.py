"""Uneven tasks: blocks that end within a step, orders with the heaviest first, tiles of the next task on their way."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.realise.texts import attention
from tests.targets.cuda.cuda_kit import arguments, clean, tried

from treadle.checker import check
from treadle.ir.core import Program
from treadle.ir.guard import Bound
from treadle.ir.parser import parse_program
from treadle.machine.form import MachineProgram, Tasks, walk
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.simulate.run import simulate
from treadle.targets.cuda.shape import shape_of
from treadle.targets.cuda.stream_deals import hands, weights
from treadle.targets.cuda.streams import Streams

SIZES = {"B": 1, "H": 3, "Q": 264, "S": 264, "D": 64}


@cache
def causal() -> tuple[Program, MachineProgram]:
    """Three consumers of 64 rows, keys in steps of 128: blocks end in the middle of a step."""
    source = parse_program(attention("bf16", causal=True).strip("\n"))
    family, facts = Streams(), contiguous(source, "cuda:sm_90a", {**SIZES, "Q": 4096, "S": 4096})
    point = {a.name: a.values[0] for a in family.axes(source, facts)}
    point |= {"consumers": 3, "step": 128, "versions": 2, "held": 2, "raster": "heavy first 16"}
    return source, family.build(source, facts, point, family.guard(source, facts, point))


def test_boxes_beyond_the_end_are_zeros() -> None:
    source, machine = causal()
    assert check(machine).status == "verified"
    assert sum(isinstance(f, Bound) and str(1 << 22) in str(f) for f in machine.guard.facts) == 1
    args = arguments(source, SIZES)
    tried(machine, source, SIZES, args=args, tolerance=2e-2)
    plain = simulate(machine, args).outputs["O"][:, :, :192]
    # What a task's queries do not see may be no number: 192 rows end in the middle of a step of 128.
    args["VT"][:, :, 192:] = np.nan
    assert np.array_equal(simulate(machine, args).outputs["O"][:, :, :192], plain)
    clean(machine)


TWINS = [
    ("not far enough", "4194304*max(", "64*max("),
    ("one box early", " + 1), $3]", " + 2), $3]"),
    ("one element late", " + 1), $3]", "), $3]"),
    ("tensors without an end", "S <= 4194304", "0 <= S"),
]


@pytest.mark.parametrize(("_", "right", "wrong"), TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins(_: str, right: str, wrong: str) -> None:
    text = print_machine(causal()[1])
    assert right in text
    assert check(parse_machine(text.replace(right, wrong))).status != "verified"


def test_the_heaviest_hand() -> None:
    assert set(hands([1, 2, 3, 4], 2, 2, "row")) == {(8, 4), (12, 4)}
    assert hands([1, 2, 3, 4], 2, 2, "heavy first all") == [(10, 4)]
    assert max(work for work, _ in hands(list(range(1, 33)), 64, 132, "heavy first")) == 264
    assert max(work for work, _ in hands(list(range(1, 33)), 64, 132, "heavy first all")) == 256
    assert sum(work for work, _ in hands([5], 3, 8, "drawn")) == 5
    assert set(hands([1, 2, 3, 4], 2, 2, "drawn 8")) == {(10, 4)}
    assert max(work for work, _ in hands(list(range(1, 33)), 64, 132, "drawn 8")) <= 260
    source, machine = causal()
    facts = contiguous(source, "cuda:sm_90a", {**SIZES, "Q": 4096, "S": 4096})
    shape = shape_of(source, facts)
    stream = Streams().stream(shape)
    assert not isinstance(stream, str)
    assert weights(shape, stream, 192, 128) == [-(-min(192 * (t + 1), 4096) // 128) for t in range(22)]
    orders = {s.raster for role in machine.kernels[0].roles for s in walk(role.body) if isinstance(s, Tasks)}
    assert orders == {("slow", 16, "reverse", "snake")}


@pytest.mark.parametrize("ahead", [False, True], ids=["plain", "ahead"])
def test_blocks_that_are_never_cut_have_no_masks_for_it(ahead: bool) -> None:
    source = parse_program(attention("bf16", causal=True).strip("\n"))
    sizes = {**SIZES, "H": 2, "Q": 256, "S": 256}
    family, facts = Streams(), contiguous(source, "cuda:sm_90a", sizes)
    point = {a.name: a.values[0] for a in family.axes(source, facts)}
    point |= {"consumers": 2, "step": 128, "versions": 2, "turns": True, "raster": "drawn 8", "ahead": ahead}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified"
    text = print_machine(machine)
    masks = [line.strip() for line in text.splitlines() if " copy " in line and " fill " in line]
    assert masks and all("fill -inf" in line and "$0" in line for line in masks)  # of the diagonal alone
    tried(machine, source, sizes, tolerance=2e-2)
    clean(machine)
    for fact in ("Q % 128 == 0",):
        assert fact in text
        assert check(parse_machine(text.replace(f"  {fact}\n", ""))).status != "verified"
    odd = contiguous(source, "cuda:sm_90a", {**SIZES, "Q": 264, "S": 264})
    assert "Q % 128" not in str(family.guard(source, odd, point))
