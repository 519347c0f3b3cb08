"""Scans of rows over lanes and warps, held and swept; texts that say something else are refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.targets.cuda.cuda_kit import clean, tried

import treadle as td
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.lib import scans
from treadle.machine.form import MachineProgram, Scan
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts, contiguous
from treadle.targets.cuda.scanned import scanned_rows

M, N, T = td.dims("M N T")


@td.kernel
def two(X: td.Tensor[M, N], Y: td.Out[M, N], Z: td.Out[M, N]):
    for m in td.parallel(M):
        x = X[m, N].to(td.f32)
        s = td.scan(x * 2.0, N, td.Add)
        t = td.scan(x + s, N, td.Max)
        Y[m, N] = s + 1.0
        Z[m, N] = t - s


@td.kernel
def less_its_largest(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        s = td.scan(X[m, N], N, td.Add, reverse=True)
        Y[m, N] = s - s.max(N)


@td.kernel
def down(X: td.Tensor[T, N], Y: td.Out[T, N]):
    for n in td.parallel(N):
        Y[T, n] = td.scan(X[T, n], T, td.Add)


def expanded(kernel: td.Kernel, dtype: td.DType, **staged: Any) -> Program:
    parameters = kernel.definition.parameters
    given = {n: dtype for n in parameters if parameters[n].kind != "staged"}
    staged = {n: parameters[n].default for n in parameters if parameters[n].kind == "staged"} | staged
    return expand(kernel.definition.capture(given, staged, frozenset(given), extents={}))


def built(source: Program, sizes: dict[str, int], aligned: int = 64, **point: Any) -> MachineProgram:
    plain = contiguous(source, "cuda:sm_90a", sizes)
    facts = CallFacts(plain.target, plain.extents, plain.unit, dict.fromkeys(plain.aligned, aligned))
    family = scanned_rows()
    assert family.admits(source, facts) == []
    way = family.derivation(source, facts, point)
    assert way is not None and all(v.status == "verified" for v in validate_derivation(way.programs, way.steps))
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert any(isinstance(s, Scan) for s in machine.statements()) or source.name == "down"
    return machine


KINDS = {
    "sums": (scans.cumsum, td.f32, {}),
    "before": (scans.cumsum, td.bf16, {"exclusive": True}),
    "from the end": (scans.cumsum, td.i32, {"reverse": True}),
    "before, from the end": (scans.cumprod, td.f64, {"reverse": True, "exclusive": True}),
    "greatest": (scans.cummax, td.bf16, {}),
    "two": (two, td.f32, {}),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("warps", "held"), [(1, True), (1, False), (4, True), (4, False)])
def test_rows_of_any_length(name: str, warps: int, held: bool) -> None:
    kernel, dtype, staged = KINDS[name]
    source = expanded(kernel, dtype, **staged)
    for columns in (1, 129, 1037):
        sizes = {"M": 2, "N": columns}
        machine = built(source, sizes, 8, warps=warps, held=held)
        verdict = check(machine)
        assert verdict.status == "verified", verdict
        assert ("regroup" in verdict.permissions) == (dtype.is_float and kernel is not scans.cummax)
        tried(machine, source, sizes, tolerance=2e-2 if dtype.bits == 16 else 1e-6)
    if name in ("sums", "before"):
        clean(machine)


def test_what_follows_a_scan_and_one_beside_the_lanes() -> None:
    source = expanded(less_its_largest, td.f32)
    machine = built(source, {"M": 2, "N": 300}, 4, warps=4, held=True)
    assert check(machine).status == "verified"
    tried(machine, source, {"M": 2, "N": 300}, tolerance=1e-5)
    source = expanded(down, td.f32)
    machine = built(source, {"T": 5, "N": 70}, 4, warps=1, held=False)
    assert check(machine).status == "verified"
    tried(machine, source, {"T": 5, "N": 70}, tolerance=1e-5)


def test_the_default_plan_scans_by_lanes() -> None:
    plan = scans.cumsum.plan(td.like(td.f32, 4096, 4096), target="cuda:sm_90a")
    assert plan.machine().count(" = scan add ") >= 1 and plan.check().status == "verified"


@pytest.mark.parametrize(("name", "warps"), [("sums", 1), ("before, from the end", 4), ("two", 4), ("greatest", 1)])
def test_the_next_tile_is_loaded_early(name: str, warps: int) -> None:
    kernel, dtype, staged = KINDS[name]
    source = expanded(kernel, dtype, **staged)
    for columns in (1, 1300):
        sizes = {"M": 2, "N": columns}
        machine = built(source, sizes, 8, warps=warps, held=False, next=True)
        assert "_next" in print_machine(machine) and check(machine).status == "verified"
        tried(machine, source, sizes, tolerance=2e-2 if dtype.bits == 16 else 1e-6)


def test_what_is_loaded_early_is_the_next_tile() -> None:
    source = expanded(scans.cumsum, td.f32)
    text = print_machine(built(source, {"M": 8, "N": 4096}, warps=1, held=False, next=True))
    assert check(parse_machine(text)).status == "verified"
    for old, new in (
        ("load X[t_m, $0 + 512*n + 512]", "load X[t_m, $0 + 512*n]"),
        ("n + 2 <= (N + 511) // 512 fill -0.0", "n + 2 <= (N + 511) // 512 fill 0.5"),
        ("_0 = copy _0_next", "_0 = copy _2"),
    ):
        assert old in text, text
        assert check(parse_machine(text.replace(old, new, 1))).status != "verified", new


@pytest.mark.parametrize(("name", "warps"), [("sums", 1), ("from the end", 4), ("before", 4), ("greatest", 1)])
def test_few_long_rows_in_stretches(name: str, warps: int) -> None:
    kernel, dtype, staged = KINDS[name]
    source = expanded(kernel, dtype, **staged)
    for columns in (1, 5000):
        sizes = {"M": 2, "N": columns}
        machine = built(source, sizes, 8, warps=warps, held=False, stretches=3, next=warps == 1)
        assert [k.name for k in machine.kernels] == ["totals", "prefixes"]
        verdict = check(machine)
        assert verdict.status == "verified", verdict
        tried(machine, source, sizes, tolerance=2e-2 if dtype.bits == 16 else 1e-6)


def test_a_stretch_begins_where_all_before_it_end() -> None:
    source = expanded(scans.cumsum, td.f32)
    text = print_machine(built(source, {"M": 2, "N": 8192}, warps=1, held=False, stretches=4))
    assert check(parse_machine(text)).status == "verified"
    for old, new in (
        ("where $0 < t_stretch fill", "where $0 <= t_stretch fill"),
        ("pick _1_upto[31]", "pick _1_upto[29]"),
        ("    sync grid.wait\n", ""),
        (".. min((N + 511) // 512, 4*t_stretch + 4)", ".. min((N + 511) // 512, 4*t_stretch + 3)"),
        ("  N <= 65536\n", ""),
        ("b__1[t_m, t_stretch] = _1", "b__1[t_m, 0] = _1"),
    ):
        assert old in text, text
        assert check(parse_machine(text.replace(old, new, 1))).status != "verified", new
    few = scans.cumsum.plan(td.like(td.f32, 1, 1 << 24), target="cuda:sm_90a")
    assert "kernel totals" in few.machine() and few.check().status == "verified"


WRONG = {
    "an element too many": (1, " axes (0) onto", " axes (0) exclusive onto", None),
    "from the other end": (1, " axes (0) onto", " axes (0) reverse onto", None),
    "another monoid": (1, "scan add", "scan max", None),
    "nothing carried": (1, " onto _1[]", "", None),
    "the last prefix but one": (1, "pick _2[511]", "pick _2[510]", None),
    "padding that counts": (1, "fill -0.0", "fill 1.0", None),
    "a prefix of another lane": (1, "_3 = copy _2", "_3 = copy _2[511 - $0]", "J5"),
    "a chunk of another width": (1, "step 1 {", "step 2 {", None),
    "no meeting": (4, "      sync barrier.sync (id = 0, threads = 128)\n", "", "J2"),
    "the own warp's total too": (4, "axes (0) exclusive onto", "axes (0) onto", None),
    "the first warp's start": (4, "pick _6[$0]", "pick _6[0]", None),
    "the next warp's total": (4, "_5 = load x_1[$0]", "_5 = load x_1[$0 - 1] where 1 <= $0 fill -0.0", None),
    "a scan across warps": (4, "= scan add _2 axes (1)", "= scan add _2 axes (0)", None),
    "a copy across warps": (4, "= pick _6[$0]", "= copy _3[0, 127]", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_twins_are_refused(name: str) -> None:
    warps, old, new, judgement = WRONG[name]
    source = expanded(scans.cumsum, td.f32)
    text = print_machine(built(source, {"M": 8, "N": 4096}, warps=warps, held=False))
    assert check(parse_machine(text)).status == "verified"
    assert old in text, text
    verdict = check(parse_machine(text.replace(old, new, 1)))
    assert verdict.status != "verified", name
    assert judgement is None or verdict.judgement == judgement, verdict
