"""Contractions in parts along their depth: several launches of one program, what lies between them, what is chosen."""

from __future__ import annotations

import functools
from pathlib import Path
from re import sub
from typing import Any

import numpy as np
import pytest
from tests.realise.texts import attention, program
from tests.targets.cuda.cuda_kit import arguments, clean, tried

import treadle as td
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.ir.parser import parse_program
from treadle.lib import quantised
from treadle.lib.linear import linear
from treadle.machine.form import MachineProgram, Tasks
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.targets.cuda.blocks import Blocks
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.families import families
from treadle.targets.cuda.parted import PartedStreams
from treadle.targets.cuda.rows import Rows

M, N, K = td.dims("M N K")


def built(source: Program, sizes: dict[str, int], **point: int | str | bool) -> MachineProgram:
    family, facts = PartedStreams(), contiguous(source, "cuda:sm_90a", sizes)
    assert family.admits(source, facts) == []
    whole = {a.name: a.values[0] for a in family.axes(source, facts)} | {"staged": False, "raster": "row"} | point
    assert family.cost(source, facts, whole).total < 1e-3
    way = family.derivation(source, facts, whole)
    assert way is not None and all(v.status == "verified" for v in validate_derivation(way.programs, way.steps))
    machine = family.build(source, facts, whole, family.guard(source, facts, whole))
    assert check(machine).status == "verified"
    return machine


@pytest.mark.parametrize(
    ("sizes", "point"),
    [
        ({"M": 136, "N": 72, "K": 648}, {"consumers": 2, "columns": 64, "step": 64, "flight": 1}),
        ({"M": 9, "N": 136, "K": 600}, {"consumers": 1, "columns": 16, "step": 128, "turned": True}),
    ],
)
def test_parts_are_folded_by_a_launch_of_their_own(sizes: dict[str, int], point: dict[str, int | str | bool]) -> None:
    source = program("linear_bf16")
    machine = built(source, sizes, parts=2, versions=2, **point)
    assert [x.dependent for x in machine.host.launches] == [False, True]
    assert [len(b.shape) for b in machine.host.workspace] == [3]
    tried(machine, source, sizes)
    clean(machine)


def test_agents_that_fill_one_place_are_refused() -> None:
    source = program("linear_bf16")
    text = print_machine(built(source, {"M": 136, "N": 72, "K": 648}, parts=2, consumers=2, columns=64, step=64))
    (place,) = [
        w for line in text.splitlines() if "store b_" in line for w in [line.split("store ")[1].split(" = ")[0]]
    ]
    for wrong in (place.replace("64*w", "63*w"), place.replace("t_k", "0*t_k")):
        assert check(parse_machine(text.replace(f"store {place}", f"store {wrong}"))).status == "rejected"
    # What only some agents have stored is not there for the launch behind.
    some = text.replace("where $0 + 128*t_m_1 + 64*w < M, ", "where $0 + 128*t_m_1 + 64*w < M, w < 1, ")
    assert some != text and check(parse_machine(some)).status == "rejected"


@pytest.mark.parametrize(
    ("sizes", "parts"), [((512, 512, 8192), True), ((16, 1024, 8192), True), ((4096, 4096, 4096), False)]
)
def test_few_tiles_are_cut_along_the_depth(sizes: tuple[int, int, int], parts: bool) -> None:
    source = program("linear_bf16")
    facts = contiguous(source, "cuda:sm_90a", dict(zip("MNK", sizes, strict=True)))
    best = choose(source, facts, families()).plan
    assert best.family == "streams" and (int(best.point["parts"]) > 1) == parts


def test_tasks_are_drawn_by_producer_and_consumers_alike() -> None:
    source = parse_program(attention("bf16", causal=True).strip("\n"))
    family, sizes = PartedStreams(), {"B": 1, "H": 1, "Q": 130, "S": 130, "D": 64}
    facts = contiguous(source, "cuda:sm_90a", sizes)
    point = {a.name: a.values[0] for a in family.axes(source, facts)}
    point |= {"step": 64, "versions": 2, "staged": False, "raster": "drawn", "turns": True}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified"
    assert [s.over for s in machine.statements() if isinstance(s, Tasks)] == ["tickets", "tickets"]
    tried(machine, source, sizes, tolerance=2e-2)
    clean(machine)
    rows, facts = program("softmax"), contiguous(program("softmax"), "cuda:sm_90a", {"M": 64, "N": 16384})
    drawn = {"warps": 16, "held": True, "exact": True, "slots": 1, "stages": 1, "tickets": True, "close": False}
    machine = Rows().build(rows, facts, drawn, Rows().guard(rows, facts, drawn))
    assert check(machine).status == "verified" and "over tickets" in print_machine(machine)


@td.kernel
def normalised(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        x = X[m, K].to(td.f32)
        y = (x - x.max(K) + x.min(K)).to(td.bf16)
        Y[m, n] = td.dot(y, W[K, n], over=K)


@td.kernel
def normalised_once(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        x = X[m, K].to(td.f32)
        y = (x - x.max(K) + x.min(K)).to(td.bf16)
        for n in td.parallel(N):
            Y[m, n] = td.dot(y, W[K, n], over=K)


@pytest.mark.parametrize("kernel", [normalised, normalised_once], ids=["flat", "nested"])
def test_an_operand_of_whole_rows_is_made_by_a_launch_before(kernel: Any) -> None:
    source = expand(kernel.program(*(td.like(td.bf16, 8, 8) for _ in range(3))))
    family, sizes = PartedStreams(), {"M": 136, "N": 72, "K": 72}
    facts = contiguous(source, "cuda:sm_90a", sizes)
    assert family.admits(source, facts) == []
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | {"columns": 64, "versions": 2}
    way = family.derivation(source, facts, point)
    assert way is not None and all(v.status == "verified" for v in validate_derivation(way.programs, way.steps))
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified" and len(machine.host.launches) == 2
    assert "K % 8 == 0" in str(machine.guard).splitlines()
    without = "\n".join(line for line in print_machine(machine).splitlines() if line.strip() != "K % 8 == 0")
    assert check(parse_machine(without + "\n")).status != "verified"
    tried(machine, source, sizes)
    clean(machine)


def test_such_a_plan_is_judged_explained_saved_and_loaded(tmp_path: Path) -> None:
    m, n, k = 512, 512, 8192
    args = (td.like(td.bf16, m, k), td.like(td.bf16, k, n), None, td.like(td.bf16, m, n))
    plan = linear.plan(*args, target="cuda:sm_90a")
    assert plan.check().status == "verified"
    assert f"parts={plan.decisions.point['parts']}" in plan.explain().splitlines()[0]
    plan.save(tmp_path / "plan.json")
    again = td.load(tmp_path / "plan.json", linear)
    assert again.decisions == plan.decisions and again.check().status == "verified"
    assert sub(r" origin \d+", "", again.machine()) == sub(r" origin \d+", "", plan.machine())


G, R = td.dims("G R")
GR = td.product(G, R)


@td.kernel
def scaled(X: td.Tensor[M, K], W: td.Tensor[N, K], a: td.Tensor[N], Y: td.Out[M, N] = None):
    """One operand is computed."""
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n)
        for k in td.reduce(K):
            s = td.mma(X[m, k], (W[n, k].to(td.f32) * a[n]).to(X.dtype), s)
        Y[m, n] = s


def narrow(rows: int, size: int) -> tuple[Any, Any]:
    """A kernel with computed operands and its arguments: both microscaled, or groups of half bytes, or bytes."""
    like = functools.partial(td.like, align=256)
    if size == 32:
        scales = like(td.f8e8m0, rows, 3), like(td.f8e8m0, 40, 3)
        both = like(td.f8e4m3, rows, 96), like(td.f8e5m2, 40, 96)
        return quantised.mxfp8_matmul, (*both, *scales, like(td.f32, rows, 40))
    if size == 128:
        given = like(td.bf16, rows, 384), like(td.i4, 40, 384), like(td.f32, 40, 3), None
        return quantised.int4_matmul, (*given, like(td.bf16, rows, 40))
    return scaled, (like(td.bf16, rows, 96), like(td.i8, 40, 96), like(td.f32, 40), like(td.f32, rows, 40))


@pytest.mark.parametrize(("size", "way"), [(32, "before"), (32, "x before"), (128, "before"), (1, "before")])
def test_computed_operands_are_made_by_a_launch_before(size: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way is a derivation that holds, and a program that is right."""
    ways = PartedStreams.ways
    monkeypatch.setattr(PartedStreams, "ways", lambda self, shape: [w for w in ways(self, shape) if w[0] == way])
    monkeypatch.setattr(Blocks, "admits", lambda *_: ["left out here"])
    kernel, given = narrow(72, size)
    plan = kernel.plan(*given, target="cuda:sm_90a")
    assert plan.decisions.family == "streams" and plan.check().status == "verified", plan.explain()
    made = 2 if (size, way) == (32, "before") else 1
    assert len(plan.program.host.workspace) == made and len(plan.program.kernels) == made + 1
    sizes = {"M": 72, "N": 40, "K": 96, "G": 3, "R": size}
    args = arguments(plan.program.program, sizes)
    if size == 32:
        # Neighbours have one scale: it is found by a shift, and read once.
        assert "int_floordiv" not in emit(plan.program).source
        for name, n in (("x_scale", 72), ("w_scale", 40)):
            args[name] = np.exp2(np.arange(3 * n) % 5 - 2.0).reshape(n, 3).astype(args[name].dtype)
    tried(plan.program, plan.program.program, sizes, args=args)
    clean(plan.program)


@pytest.mark.parametrize(("rows", "before"), [(4096, True), (16, False)])
def test_where_operands_are_made_hangs_on_how_often_they_are_needed(rows: int, before: bool) -> None:
    like = functools.partial(td.like, align=256)
    size = 4096
    given = like(td.bf16, rows, size), like(td.i8, size, size), like(td.f32, size), like(td.bf16, rows, size)
    plan = scaled.plan(*given, target="cuda:sm_90a")
    assert (plan.decisions.point["operands"] == "before") == before
