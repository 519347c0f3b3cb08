"""Groups of rows whose number is loaded: ragged products as streams, with rows that are gathered or scattered."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.targets.cuda.cuda_kit import clean, expected, tried

import treadle as td
from treadle import lib
from treadle.checker.derivation import validate, validate_derivation
from treadle.checker.judge import check
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.lib import moe
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.simulate.run import simulate
from treadle.targets.cuda.parted import PartedStreams

EXPERTS, TOKENS, TOP, WIDE, DEEP = 4, 50, 3, 64, 64
SIZES = {"E": EXPERTS, "E1": EXPERTS + 1, "T": TOKENS, "L": TOP, "C": TOKENS * TOP, "N": WIDE, "K": DEEP}
START = np.array([0, 0, 131, 149, 150], np.int32)
"""A group without rows, one of more than a block, one of few, one of a single row."""


def like(*shape: int | str, dtype: Any = td.bf16) -> Any:
    return td.like(dtype, *shape, align=256)


def down(n: int = WIDE) -> Program:
    c = TOKENS * TOP
    given = like(c, n), like(EXPERTS, n, DEEP), like(c, dtype=td.i32), like(EXPERTS + 1, dtype=td.i32), like(c, DEEP)
    return planned(moe.experts_down, *given)


def up() -> Program:
    c = TOKENS * TOP
    weights = like(EXPERTS, DEEP, WIDE), like(EXPERTS, DEEP, WIDE)
    given = like(TOKENS, DEEP), *weights, like(c, dtype=td.i32), like(EXPERTS + 1, dtype=td.i32), like(c, WIDE)
    return planned(moe.experts_up, *given, top=TOP, act=lambda x: x)


def planned(kernel: Any, *given: Any, **staged: Any) -> Program:
    return parse_program(kernel.plan(*given, target="cuda:sm_90a", **staged).source_program().strip("\n"))


def built(source: Program, **axes: Any) -> tuple[MachineProgram, Program]:
    facts, family = contiguous(source, "cuda:sm_90a", SIZES), PartedStreams()
    assert family.admits(source, facts) == []
    point = {a.name: a.values[0] for a in family.axes(source, facts)}
    point |= {"columns": 64, "step": 64, "versions": 2, "staged": False, **axes}
    found = family.derivation(source, facts, point)
    if found is not None:
        assert {v.status for v in validate_derivation(found.programs, found.steps)} == {"verified"}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    return machine, machine.program


def values(source: Program) -> dict[str, Any]:
    rng, c = np.random.default_rng(5), TOKENS * TOP
    small = {t.name: rng.integers(-2, 3, [int(d.extent.evaluate(SIZES)) for d in t.dims]) for t in source.tensors}
    made = {t.name: small[t.name].astype(ml_dtypes.bfloat16) for t in source.tensors}
    return made | {"order": rng.permutation(c).astype(np.int32), "start": START}


@pytest.mark.parametrize(
    ("consumers", "shares", "raster", "staged"),
    [(1, 1, "row", False), (1, 3, "drawn", True), (2, 2, "row", True)],
    ids=["alone", "drawn", "two"],
)
def test_products_of_groups(consumers: int, shares: int, raster: str, staged: bool) -> None:
    """Scattered rows leave by threads, too, where results go through shared memory."""
    machine, source = built(down(), consumers=consumers, shares=shares, raster=raster, staged=staged)
    assert check(machine).status == "verified"
    assert any(b.name == "relay" for b in machine.kernels[-1].buffers) == staged
    tried(machine, source, SIZES, args=values(source))
    if staged:
        clean(machine)


def test_gathered_rows_are_packed_first() -> None:
    machine, source = built(up(), consumers=1, shares=2, raster="row")
    assert len(machine.host.launches) == 2 and check(machine).status == "verified"
    tried(machine, source, SIZES, args=values(source))
    clean(machine)


def test_rows_beside_all_groups_are_gathered_from_nowhere() -> None:
    """What no group has may be any number: nothing is read at it."""
    machine, source = built(up(), consumers=1, shares=1, raster="row")
    args = values(source)
    args["order"][149:] = [10**9]
    args["start"] = np.array([0, 0, 131, 149, 149], np.int32)
    wanted = expected(source, args, SIZES)["Y"][:149]
    run = simulate(machine, args)
    assert run.findings == [] and np.array_equal(run.outputs["Y"][:149], wanted)


WRONG = {
    "a share too few": (r"share < 3", "share < 2"),
    "shares of another length": (r"step 192", "step 128"),
    "shares that overlap": (r"64\*share", "32*share"),
    "the first share left out": (r"64\*share \+", "64*share + 64 +"),
    "one group's range with another's rows": (r"load start\[t_e \+ 1\]", "load start[t_e]"),
}


@pytest.mark.parametrize("change", WRONG, ids=lambda c: c.replace(" ", "-"))
def test_wrong_shares(change: str) -> None:
    machine, _ = built(down(), consumers=1, shares=3, raster="row")
    text = print_machine(machine)
    assert check(parse_machine(text)).status == "verified"
    changed, count = re.subn(*WRONG[change], text)
    assert count >= 2
    assert check(parse_machine(changed)).status != "verified"


def with_columns_in_a_loop(text: str, first: str, step: int) -> str:
    """The blocks of columns gone through by a loop around the one over rows, in both roles."""
    text = text.replace(", t_k < (K + 63) // 64", "").replace(", R1(k = 64*t_k .. min(64*t_k + 64, K))", "")
    head = f"loop {{}} = {first} .. K step {step} enters R1(k = {{}} .. min({{}} + 64, K)) {{{{"
    made: list[str] = []
    inside, name = "", ""
    for line in text.replace("64*t_k", "t_k").splitlines():
        found = re.match(r"( *)loop i0\S* = ", line)
        if found:
            inside, name = found[1], "c0" if "i0_" in line else "c1"
            made.append(inside + head.format(name, name, name))
        made.append(re.sub(r"\bt_k\b", name, line))
        if inside and line == inside + "}":
            made.append(line)
            inside = ""
    return "\n".join(made)


def test_one_variable_deals_out_one_range() -> None:
    """Columns dealt out by the variable that deals out the rows: nobody would have the first of those and the second of
    these."""
    machine, _ = built(down(), consumers=1, shares=2, raster="row")
    text = print_machine(machine)
    right, wrong = (with_columns_in_a_loop(text, *way) for way in (("0", 64), ("64*share", 128)))
    assert check(parse_machine(right)).status == "verified", check(parse_machine(right))
    verdict = check(parse_machine(wrong))
    assert verdict.status != "verified" and "is not where its domain begins" in verdict.reason, verdict


def test_promises_are_kept_only_where_instances_read() -> None:
    source = up()
    facts, family = contiguous(source, "cuda:sm_90a", SIZES), PartedStreams()
    point = {a.name: a.values[0] for a in family.axes(source, facts)}
    found = family.derivation(source, facts, point)
    assert found is not None
    *_, before, after = found.programs
    step = found.steps[-1]
    assert validate(before, step, after).status == "verified"
    text = print_program(after)
    promised = re.sub(r"X\[(%token\S*), (k\S*)\] fill \S+", r"X[in_range(\1), \2]", text)
    assert promised != text
    verdict = validate(before, step, parse_program(promised))
    assert verdict.status == "rejected" and "promised" in verdict.reason, verdict
    other = re.sub(r"order\[(i\S*)\]", r"start[0]", text, count=1)
    assert validate(before, step, parse_program(other)).status != "verified"


def test_keys_that_decide_where_others_go_are_kept() -> None:
    """Nobody reads the sorted keys, but the sort compares them: steps on the program around do not drop them."""
    weights = like(8, DEEP, WIDE), like(8, DEEP, WIDE), like(8, WIDE, DEEP)
    given = like(TOKENS, DEEP), like(DEEP, 8), *weights, like(TOKENS, DEEP)
    assert "universal" in moe.mixture.plan(*given, top=2, target="cuda:sm_90a").explain()


def test_choices_are_grouped_in_launches_that_assemble() -> None:
    """The places of what a later launch reads hang on numbers that its own statements do not mention."""
    plan = moe.group_by_expert.plan(
        like(1000, dtype=td.i32), like(1000, dtype=td.i32), like(9, dtype=td.i32), experts=8, target="cuda:sm_90a"
    )
    clean(parse_machine(plan.record.machine))


def test_packed_sequences() -> None:
    """Queries and keys of a sequence begin and end anywhere; what lies beside all of them is no number."""
    total, heads, keys, deep = 150, 4, 2, 64
    given = like(total, heads, deep), like(total, keys, deep), like(total, keys, deep)
    starts = like(4, dtype=td.i32), like(4, dtype=td.i32)
    source = planned(lib.varlen_attention, *given, *starts, like(total, heads, deep))
    sizes = {d.name: e for d, e in zip(source.dims, [total, keys, heads // keys, heads, deep, total, 4], strict=True)}
    facts, family = contiguous(source, "cuda:sm_90a", sizes), PartedStreams()
    assert family.admits(source, facts) == []
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | {"step": 64, "versions": 2, "turns": False}
    point |= {"consumers": 1, "shares": 2, "raster": "row", "resident": 1}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified"
    rng, at = np.random.default_rng(3), np.array([3, 3, 80, 149], np.int32)
    args: dict[str, Any] = {"q_start": at, "k_start": at, "Y": np.zeros((total, heads, deep), ml_dtypes.bfloat16)}
    for name, count in (("Q", heads), ("K", keys), ("V", keys)):
        args[name] = rng.normal(size=(total, count, deep)).astype(ml_dtypes.bfloat16)
        args[name][:3] = args[name][149:] = np.nan
    wanted = expected(source, args, sizes)["Y"][3:149].astype(np.float64)
    run = simulate(machine, args)
    assert run.findings == []
    assert np.abs(run.outputs["Y"][3:149].astype(np.float64) - wanted).max() < 0.03


PACKED = {"T": 151, "KV": 2, "R": 2, "KV_R": 4, "D": 64, "U": 173, "B1": 4}


@cache
def packed_causal() -> MachineProgram:
    """Packed sequences in which a query sees the keys up to its own place, counted from the end."""
    rows, keys, starts = like(PACKED["T"], 4, 64), like(PACKED["U"], 2, 64), like(4, dtype=td.i32)
    plan = lib.varlen_attention.plan(rows, keys, keys, starts, starts, rows, target="cuda:sm_90a", causal=True)
    assert plan.decisions.family == "streams"
    source = parse_program(plan.source_program().strip("\n"))
    facts, family = contiguous(source, "cuda:sm_90a", PACKED), PartedStreams()
    point = {a.name: a.values[0] for a in family.axes(source, facts)} | {"step": 64, "versions": 2, "turns": False}
    point |= {"consumers": 1, "shares": 2, "raster": "row", "resident": 1}
    return family.build(source, facts, point, family.guard(source, facts, point))


def test_packed_sequences_seen_up_to_the_query() -> None:
    """A block's keys end at the least of four places; more keys than queries, fewer, and none at all."""
    machine = packed_causal()
    assert check(machine).status == "verified"
    rng = np.random.default_rng(4)
    starts = {"q_start": np.array([3, 3, 80, 149], np.int32), "k_start": np.array([1, 6, 121, 170], np.int32)}
    args: dict[str, Any] = {**starts, "Y": np.zeros((PACKED["T"], 4, 64), ml_dtypes.bfloat16)}
    for name, long, count, at in (("Q", "T", 4, "q_start"), ("K", "U", 2, "k_start"), ("V", "U", 2, "k_start")):
        args[name] = rng.normal(size=(PACKED[long], count, 64)).astype(ml_dtypes.bfloat16)
        args[name][: starts[at][0]] = args[name][starts[at][-1] :] = np.nan
    wanted = expected(machine.program, args, PACKED)["Y"][3:149].astype(np.float64)
    run = simulate(machine, args)
    assert run.findings == []
    assert np.abs(run.outputs["Y"][3:149].astype(np.float64) - wanted).max() < 0.03
    assert np.all(run.outputs["Y"][80:100] == 0)  # 69 queries, 49 keys: the first twenty see none
    clean(machine)


@pytest.mark.parametrize(("keys", "deep"), [(16, 128), (4, 64)])
def test_long_packed_sequences_have_registers_enough(keys: int, deep: int) -> None:
    """An iteration that compares places with loaded numbers has fewer of them for its results."""
    rows, starts = like(26000, 16, deep), like(13, dtype=td.i32)
    given = rows, like(26000, keys, deep), like(26000, keys, deep), starts, starts, rows
    plan = lib.varlen_attention.plan(*given, target="cuda:sm_90a", causal=True)
    assert plan.decisions.family == "streams"
    clean(plan.program)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (r"(loop k0 = .* max\(min\(U, _8\(\))", r"\1 + 64"),  # a block too many
        (r"(loop k0_1 = .* max\(min\(U, _\d+\(\))", r"\1 - 64"),  # brought a block too few
        (r"index expr \$0 \+ k0 ", "index expr $0 + k0 - 1 "),  # a key too many is seen
        (r"s_1 = where mask\w*, s, -inf", "s_1 = copy s"),  # all keys are seen
        (r"(store Vs.* = nothing where )min\(U, _8\(\)\)", r"\1U"),  # what lies behind the end is no zero
    ],
)
def test_wrong_ends_of_packed_sequences(right: str, wrong: str) -> None:
    text, changed = re.subn(right, wrong, print_machine(packed_causal()))
    assert changed == 1
    assert check(parse_machine(text)).status != "verified"
