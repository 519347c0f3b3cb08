"""The CPU families: what they admit, that their points are verified, and that they compute what the program means."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np
import pytest
from tests.marks import processor
from tests.realise.oracle import EXTENTS, Arrays, agrees
from tests.realise.texts import TEXTS, program
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, assembly

import treadle as td
from treadle.algebra.expr import sym
from treadle.checker import check
from treadle.dtype.formats import bf16
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.lib.decode import split_decode
from treadle.lib.products import matvec
from treadle.lib.scans import state_space
from treadle.machine.form import Claim, MachineProgram, Mma, Tasks, Version
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import Family, Point, points
from treadle.plan.pins import atom, place, tile, versions
from treadle.planner.enumerate import choose, realised
from treadle.runtime.host import host_features
from treadle.simulate.run import simulate
from treadle.targets.cpu.contraction import evenness
from treadle.targets.cpu.families import families
from treadle.targets.cpu.shape import shape_of
from treadle.toolchain.features import LEVELS

LARGE = dict(F=256, H=16, O=64, M=512, N=512, K=512, B=2, Q=256, S=256, T=512, V=100, D=64, W=512, A=20, C=64)
RAGGED: dict[str, list[dict[str, int]]] = {
    "softmax": [{"M": 5, "N": 130}, {"M": 0, "N": 7}, {"M": 2, "N": 64}],
    "linear": [{"M": 150, "N": 131, "K": 70}, {"M": 4, "N": 0, "K": 3}],
    "attention": [{"B": 1, "H": 1, "Q": 37, "S": 141}],
    "attention_f32_causal": [{"B": 1, "H": 1, "Q": 133, "S": 135}],
    "swiglu": [{"M": 21, "N": 70, "K": 33}],
}
NAMES = sorted(TEXTS)
WANTED = {
    "vector sweep": {"softmax", "softmax_bf16", "layernorm", "embed", "ragged", "two_phases", "recurrence", "branch",
                     "stencil", "pool", "columns", "histogram", "in_place"},
    "tiled contraction": {"linear", "linear_bf16", "linear_t", "swiglu", "batched", "mlp", "norm_linear"},
    "tiled regions": {"attention", "attention_f32_causal", "conv"},
    "universal": {"swap"},
}  # fmt: skip


def facts_for(source: Program, level: str = "avx512", extents: Mapping[str, int] = LARGE) -> CallFacts:
    features = LEVELS[level] | (host_features() & {"avx512_bf16"} if level == "avx512" else frozenset())
    return contiguous(source, f"cpu:{level}", extents, workers=2, features=features)


def runner(machine: MachineProgram, facts: CallFacts) -> Any:
    compiled = Compiled(machine, features=facts.features)

    def run(arrays: Arrays) -> Mapping[str, Any]:
        own = {name: a.copy() for name, a in arrays.items()}
        compiled(workers=2, **own)
        return own

    return run


@pytest.mark.parametrize("name", NAMES)
def test_the_expected_family_is_chosen_and_verified(name: str) -> None:
    source = program(name)
    facts = facts_for(source)
    choice = choose(source, facts, families())
    assert name in WANTED[choice.plan.family], choice.explain()
    verdict = check(realised(choice.plan, source, facts, families()))
    assert verdict.status == "verified", f"{choice.plan}\n{verdict}"


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_the_chosen_plan_computes_what_the_program_means(name: str, level: str) -> None:
    source = program(name)
    facts = facts_for(source, level)
    choice = choose(source, facts, families())
    run = runner(realised(choice.plan, source, facts, families()), facts)
    for extents in (*EXTENTS[name], *RAGGED.get(name, ())):
        agrees(name, source, run, extents)


def random_point(family: Family[MachineProgram], source: Program, facts: CallFacts, seed: str) -> Point:
    everything = list(points(family.axes(source, facts)))
    return random.Random(seed).choice(everything)


@processor("avx512")
@pytest.mark.parametrize("name", ["softmax_bf16", "linear_bf16", "attention", "swiglu", "two_phases"])
@pytest.mark.parametrize("seed", range(2))
def test_any_point_is_verified_and_right(name: str, seed: int) -> None:
    source = program(name)
    facts = facts_for(source)
    family = next(f for f in families() if name in WANTED[f.name])
    point = random_point(family, source, facts, f"{name}{seed}")
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    verdict = check(machine)
    assert verdict.status == "verified", f"{point}\n{verdict}"
    agrees(name, source, runner(machine, facts), EXTENTS[name][0])


def test_families_say_why_they_do_not_admit() -> None:
    source = program("softmax")
    reasons = {f.name: f.admits(source, facts_for(source)) for f in families()}
    assert reasons["tiled contraction"] == ["it has no contraction"]
    assert reasons["vector sweep"] == []
    overlapping = CallFacts("cpu:avx2", LARGE, disjoint=False)
    assert "an output may overlap another argument" in families()[0].admits(source, overlapping)
    strided = CallFacts("cpu:avx2", LARGE)
    assert families()[0].admits(source, strided) == ["no access is contiguous along a dimension"]


def test_no_plan_needs_to_know_the_sizes() -> None:
    source = program("linear")
    choice = choose(source, facts_for(source), families())
    assert not any("M" in str(f) and ">" in str(f) for f in choice.plan.guard.facts)


def test_small_calls_use_one_worker() -> None:
    source = program("softmax")
    choice = choose(source, facts_for(source, extents={"M": 4, "N": 64}), families())
    assert choice.plan.point["workers"] == 1


def test_pins_are_met_or_refused_with_the_fact() -> None:
    source = program("linear")
    facts = facts_for(source)
    choice = choose(source, facts, families(), [tile(m=128), tile(k=256)])
    machine = realised(choice.plan, source, facts, families())
    tasks = [s for s in machine.statements() if isinstance(s, Tasks)][-1]
    assert "128" in str(tasks.counts[0])
    family = families()[1]
    point = choice.plan.point
    assert family.refuses(source, facts, point, [tile(m=13)]) == ["R0.m is cut by 128, not 13"]
    assert family.refuses(source, facts, point, [tile(z=13)]) == ["no region has an open block z"]
    assert family.refuses(source, facts, point, [versions("X", 4)])
    assert family.refuses(source, facts, point, [place("acc", "shared")]) == ["the CPU has no memory shared"]


@processor("avx512_bf16")
def test_the_atom_follows_features_numerics_and_pins() -> None:
    source = program("linear_bf16")
    facts = facts_for(source)

    def atoms(source: Program, *pins: Any) -> set[str]:
        choice = choose(source, facts, families(), pins)
        machine = realised(choice.plan, source, facts, families())
        return {s.atom for s in machine.statements() if isinstance(s, Mma)}

    assert atoms(source) == {"dpbf16"}
    assert atoms(source, atom("acc", "fma")) == {"fma"}
    source.numerics["mma_subnormals"] = "keep"
    assert atoms(source) == {"fma"}


def test_matrix_tiles_are_used_where_the_target_has_them() -> None:
    source = program("linear_bf16")
    facts = contiguous(source, "cpu:amx", LARGE, workers=2, features=LEVELS["amx"])
    choice = choose(source, facts, families())
    assert choice.plan.point["atom"] == "amx.tdpbf16ps"
    machine = realised(choice.plan, source, facts, families())
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    # Two by two accumulators, two tiles an operand; four products a step.
    assert assembly(machine).count("tdpbf16ps") == 4
    done: dict[str, Any] = {}

    def run(arrays: Arrays) -> Mapping[str, Any]:
        done.update(simulate(machine, arrays, max_steps=10_000_000).outputs)
        return done

    agrees("linear_bf16", source, run, {"M": 37, "N": 35, "K": 45})


@pytest.mark.parametrize("rows", [2, 7, 16])
def test_few_rows_fill_whole_matrix_tiles(rows: int) -> None:
    """What is planned for a call of few rows has tiles of 32 all the same: the instruction knows no others."""
    source = program("linear_bf16")
    facts = contiguous(source, "cpu:amx", {**LARGE, "M": rows}, workers=1, features=LEVELS["amx"])
    family = next(f for f in families() if f.name == "tiled contraction")
    tiles = [p for p in points(family.axes(source, facts)) if str(p["atom"]).startswith("amx")]
    found = [p for p in tiles if family.cost(source, facts, p).total < inf]
    assert found
    machine = family.build(source, facts, found[0], family.guard(source, facts, found[0]))
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)


def test_a_product_without_rows_takes_no_matrix_tiles() -> None:
    """A matrix times a vector: a tile would have rows alone; of the family's points every fiftieth is built."""
    source = expand(matvec.program(td.like(bf16, 64, 64), td.like(bf16, 64)))
    facts = contiguous(source, "cpu:amx", {"M": 256, "K": 256}, workers=2, features=LEVELS["amx"])
    family = next(f for f in families() if f.name == "tiled contraction")
    assert family.admits(source, facts) == []
    found = [p for p in points(family.axes(source, facts)) if family.cost(source, facts, p).total < inf]
    assert len(found) > 100 and not any(str(p["atom"]).startswith("amx") for p in found)
    for point in found[::50]:
        machine = family.build(source, facts, point, family.guard(source, facts, point))
        assert check(machine).status == "verified", point


@processor("avx512")
@pytest.mark.parametrize("turned", ["X", "W", "Y", "XWY"])
def test_any_axis_may_be_the_contiguous_one(turned: str) -> None:
    source = program("linear")
    base = facts_for(source)
    unit = frozenset((name, 0 if name in turned else axis) for name, axis in base.unit)
    facts = replace(base, unit=unit)
    choice = choose(source, facts, families())
    machine = realised(choice.plan, source, facts, families())
    verdict = check(machine)
    assert choice.plan.family == "tiled contraction" and verdict.status == "verified", f"{choice.plan}\n{verdict}"
    compiled = Compiled(machine, features=facts.features)

    def run(arrays: Arrays) -> Mapping[str, Any]:
        own = {n: np.asfortranarray(a) if n in turned and a.ndim == 2 else a.copy() for n, a in arrays.items()}
        compiled(workers=2, **own)
        return own

    agrees("linear", source, run, {"M": 33, "N": 70, "K": 41})


@processor("avx512")
@pytest.mark.parametrize("name", ["linear", "linear_bf16", "linear_t", "swiglu", "mlp", "norm_linear"])
def test_operands_packed_once_for_all_tasks(name: str) -> None:
    source = program(name)
    facts = facts_for(source)
    family = next(f for f in families() if f.name == "tiled contraction")
    best = choose(source, facts, families()).plan.point
    point = {**best, "shared": True, "held": False, "outer": 14, "deep": 256, "workers": 2}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    first, *_, last = [s for s in machine.statements() if isinstance(s, Tasks)]
    # The packing is itself handed out, panel by panel, before the tasks that read it.
    assert len(first.vars) == 1 and not first.enters and last.enters
    verdict = check(machine)
    assert verdict.status == "verified", f"{point}\n{verdict}"
    for extents in (*EXTENTS[name], *RAGGED.get(name, ())):
        agrees(name, source, runner(machine, facts), extents)


@pytest.mark.parametrize("name", ["linear", "linear_bf16"])
def test_shared_operands_are_right_in_any_order_of_events(name: str) -> None:
    source = program(name)
    facts = facts_for(source)
    family = next(f for f in families() if f.name == "tiled contraction")
    best = choose(source, facts, families()).plan.point
    point = {**best, "shared": True, "held": False, "outer": 14, "columns": 16, "workers": 2}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    done: dict[str, Any] = {}

    def run(arrays: Arrays) -> Mapping[str, Any]:
        done.update(simulate(machine, arrays, max_steps=10_000_000).outputs)
        return done

    agrees(name, source, run, {"M": 33, "N": 35, "K": 29})


def test_tasks_of_unequal_size_are_counted_by_their_sizes() -> None:
    assert evenness([[448, 64]], 2) == pytest.approx(512 / 448)
    assert evenness([[256, 256], [64]], 2) == 2.0
    assert evenness([[448, 448, 128], [512, 512]], 2) == 2.0
    assert evenness([], 2) == 1.0 and evenness([[3] * 1000], 2) == 2.0


TOLD: dict[str, dict[str, list[str] | None]] = {
    # Windows of a convolution overlap, and are filled where the image ends; weights are told by their tap.
    "conv": {"%a": None, "%g": ["r", "s"]},
    # Keys and values lie in a batch and a head; weights of a softmax are computed, and of rows before their keys.
    "attention": {"%qv": ["b", "h"], "%kv": ["b", "h"], "%pb": None, "%vv": ["b", "h"]},
    "attention_f32_causal": {"%qv": ["b", "h"], "%kv": None, "%pb": None, "%vv": None},
    "batched": {"%a": ["b"], "%w": ["b"]},
    "linear": {"%a": [], "%b": []},
    "swiglu": {"%a": [], "%b": [], "%c": []},
    "mlp": {"%a": [], "%b": [], "%r": None, "%w": []},
}
"""Operands of contractions -> the arguments that tell which elements they are of, where nothing else does."""


@pytest.mark.parametrize("name", TOLD)
def test_only_operands_that_are_the_same_everywhere_may_be_shared(name: str) -> None:
    source = program(name)
    shape = shape_of(source, facts_for(source))
    values = [v for c in shape.contractions for v in (c.op.a, c.op.b)]
    told = {v.name: shape.everywhere(v) for v in values}
    assert {n: None if t is None else [a.name for a in t] for n, t in told.items()} == TOLD[name]
    for value in values:
        if (args := told[value.name]) is not None:
            dims = {*value.type.dims, *(a.domain.dim for a in args)}
            assert shape.distinct(value) == prod(d.extent.constant or LARGE[d.name] for d in dims)


def by_instances(name: str) -> tuple[Program, CallFacts, MachineProgram]:
    """A program with an operand that arguments tell, packed once for all tasks."""
    source = program(name)
    facts = facts_for(source, extents={**LARGE, "R": 3, "S": 3})
    family = next(f for f in families() if not f.admits(source, facts))
    best = next(p for p in points(family.axes(source, facts)) if family.cost(source, facts, p).total < inf)
    point = {**best, "shared": True, "held": False, "packed": True, "workers": 2}
    return source, facts, family.build(source, facts, point, family.guard(source, facts, point))


@processor("avx512")
@pytest.mark.parametrize(("name", "told"), [("conv", ["r", "s"]), ("batched", ["b"]), ("attention", ["b", "h"])])
def test_operands_that_arguments_tell_are_packed_once_for_all_tasks(name: str, told: list[str]) -> None:
    source, facts, machine = by_instances(name)
    first, *_, last = [s for s in machine.statements() if isinstance(s, Tasks)]
    assert not first.enters and last.enters
    # The buffer has an axis for each argument; what it holds is of the instance at its index.
    (made, *_) = [s for s in machine.statements() if isinstance(s, Version)]
    assert isinstance(made.claim, Claim)
    assert made.claim.instance == tuple((n, sym(f"${i}")) for i, n in enumerate(told))
    verdict = check(machine)
    assert verdict.status == "verified", f"{verdict}"
    for extents in (*EXTENTS[name], *RAGGED.get(name, ())):
        agrees(name, source, runner(machine, facts), extents)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("conv", "at (r = $0, s = $1)", "at (r = $1, s = $0)"),
        ("conv", r"= load b_g\[r_i, s_i,", "= load b_g[s_i, r_i,"),
        ("batched", "at (b = $0)", "at (b = 0)"),
        ("batched", r"= load b_w\[t_b,", "= load b_w[0,"),
    ],
)
def test_what_arguments_tell_is_read_at_the_instance_that_runs(name: str, right: str, wrong: str) -> None:
    _, _, machine = by_instances(name)
    text = print_machine(machine)
    changed, count = re.subn(right if "load" in right else re.escape(right), wrong, text)
    assert count == 1
    verdict = check(parse_machine(changed))
    assert verdict.status == "rejected", f"{verdict}"


@pytest.mark.parametrize("name", ["conv", "batched"])
def test_what_arguments_tell_is_right_in_any_order_of_events(name: str) -> None:
    source, _, machine = by_instances(name)

    def run(arrays: Arrays) -> Mapping[str, Any]:
        return simulate(machine, arrays, max_steps=10_000_000).outputs

    agrees(name, source, run, EXTENTS[name][0])


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_bounds_that_are_loaded_leave_the_plan_that_was_chosen(target: str) -> None:
    q, keys, length = td.like(td.f32, 2, 4, 64), td.like(td.f32, 2, 2, 300, 64), td.like(td.i32, 2)
    results = td.like(td.f32, 4, 2, 4, 64), td.like(td.f32, 4, 2, 4)
    plan = split_decode.plan(q, keys, keys, length, *results, target=target)
    assert "tiled regions" in str(plan) and "verified" in str(plan)


@pytest.mark.parametrize("columns", [16, 24])
def test_blocks_of_the_program_share_whole_panels(columns: int) -> None:
    source = expand(state_space.definition.capture({}, {}))
    facts = contiguous(source, "cpu:avx2", dict(B=2, T=200, H=2, P=64, S=128), workers=2, features=LEVELS["avx2"])
    family = next(f for f in families() if f.name == "tiled regions")
    axes = {a.name: a.values for a in family.axes(source, facts)}
    assert {"lanes", "columns", "shared"} <= axes.keys() and columns in axes["columns"]
    point = {name: values[0] for name, values in axes.items()}
    point |= {"lanes": "T", "columns": columns, "shared": True, "packed": True, "held": False}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    # Blocks of 64 are whole panels of 16, not of 24.
    shared = [b for b in machine.host.workspace if b.shape[-1].constant == columns]
    assert bool(shared) == (64 % columns == 0)
    assert (verdict := check(machine)).status == "verified", f"{verdict}"
