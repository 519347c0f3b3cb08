"""Rows that copy engines bring and take: verified, right under every schedule; every wrong twin is refused."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.marks import assembled

import treadle as td
from treadle.algebra.expr import Constraint, sym
from treadle.analysis.uses import Uses
from treadle.checker import check
from treadle.ir.core import Program
from treadle.ir.guard import Aligned, Bound, Divisible, Guard, Pitch, Unit
from treadle.lib.norms import add_rmsnorm
from treadle.lib.rows import softmax
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.realise.channels import Channels, through_channels
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.rows import Stripe, over_lanes
from treadle.realise.universal import base_facts
from treadle.simulate.run import simulate
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda

WARPS, WIDTH = 4, 128


def captured(kernel: Any, *arrays: Any) -> Program:
    return kernel.plan(*arrays, target="cuda:sm_90a").program.program


def rows_of(count: int) -> list[Any]:
    return [td.like(td.bf16, 9, WIDTH, align=256) for _ in range(count)]


def built(program: Program, exact: bool, channels: Channels, *drop: str) -> MachineProgram:
    """Rows over four warps of one element a lane, two workgroups, so that rings go round."""
    facts = base_facts(program, Uses(program), disjoint=True)
    for tensor in program.tensors:
        last = len(tensor.dims) - 1
        facts += [Unit(tensor.name, last), Aligned(tensor.name, 16)]
        facts += [Pitch(tensor.name, a, 8) for a in range(last)]
    n = sym("N")
    facts += [Divisible(n, 8), Bound(Constraint(WIDTH - n)), Bound(Constraint(n - (WIDTH if exact else 1)))]
    guard = Guard(tuple(f for f in facts if str(f) not in drop))
    stripes = {"R0": {"N": Stripe(1, 1, True, exact)}}
    told = Choices(tasks=frozenset(["R0"]))
    machine = over_lanes(program, told, guard, "cuda:sm_90a", stripes, warps=WARPS, agents=4, workgroups=2)
    return through_channels(machine, channels)


SOFTMAX = captured(softmax, *rows_of(2))
"""The program as captured."""


def values(rows: int, columns: int) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(rows * columns).normal(size=(rows, columns)).astype(ml_dtypes.bfloat16)
    want = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    return {"X": x, "Y": np.zeros_like(x)}, want / want.sum(1, keepdims=True)


def close(run: Any, want: np.ndarray[Any, Any]) -> bool:
    return bool((np.abs(run.outputs["Y"].astype(np.float64) / want - 1) < 2.0**-8).all())


@pytest.mark.parametrize("channels", [Channels(1, 1), Channels(2, 1), Channels(2, 2), Channels(3, 0)], ids=str)
@pytest.mark.parametrize("exact", [True, False])
def test_rows_are_verified_for_all_sizes_and_right_under_schedules(exact: bool, channels: Channels) -> None:
    machine = built(SOFTMAX, exact, channels)
    text = print_machine(machine)
    assert print_machine(parse_machine(text)) == text
    assert check(machine).status == "verified", str(check(machine))
    for columns in (WIDTH,) if exact else (WIDTH, 8, 120):
        args, want = values(9, columns)
        for seed in range(3):
            run = simulate(machine, {n: a.copy() for n, a in args.items()}, seed=seed)
            assert [str(f) for f in run.findings] == [] and close(run, want)


def test_several_rows_come_and_several_leave() -> None:
    x, r, y, z = rows_of(4)
    program = captured(add_rmsnorm, x, r, td.like(td.bf16, WIDTH, align=256), y, z)
    machine = built(program, True, Channels(2, 1))
    text = print_machine(machine)
    assert text.count("copy bulk.load") == 2 and text.count("copy bulk.store") == 2
    assert "scale[$0]" in text  # the same for every row: threads read it
    assert check(machine).status == "verified", str(check(machine))
    rng = np.random.default_rng(1)
    args = {n: rng.normal(size=(9, WIDTH)).astype(ml_dtypes.bfloat16) for n in ("X", "R", "Y", "Z")}
    args["scale"] = rng.normal(size=WIDTH).astype(ml_dtypes.bfloat16)
    total = args["X"].astype(np.float64) + args["R"].astype(np.float64)
    want = total / np.sqrt((total**2).mean(1, keepdims=True) + 1e-6) * args["scale"].astype(np.float64)
    for seed in range(3):
        run = simulate(machine, {n: a.copy() for n, a in args.items()}, seed=seed)
        assert run.clean and np.allclose(run.outputs["Y"].astype(np.float64), want, rtol=0.02, atol=0.02)


def test_facts_that_engines_need_are_asked_for() -> None:
    for fact in ("align(X) >= 16", "pitch(X, 0) % 8 == 0", "N % 8 == 0", "unit(X, 1)", "N - 1 >= 0"):
        with pytest.raises(NotLowered):
            built(SOFTMAX, False, Channels(2, 0), fact)


@assembled
def test_the_text_is_assembled_without_spills() -> None:
    for exact in (True, False):
        emitted = emit(built(SOFTMAX, exact, Channels(2, 2)))
        done = compile_cuda(emitted.source, arch=emitted.arch, name="rows")
        assert [(k.spill_stores, k.stack) for k in done.kernels] == [(0, 0)]
        assert emitted.source.count("  bulk_load(") == 1 and emitted.source.count("  bulk_store(") == 1


TEXT = re.sub(r" origin \d+", "", print_machine(built(SOFTMAX, False, Channels(2, 2))))
FULL = "      sync mbar.wait full_X{at_X} (phase = (at_X // 2) % 2)\n"
EMPTY = "      sync mbar.wait empty_X{at_X} (phase = (at_X // 2 + 1) % 2) by elect\n"
MEET = "      sync barrier.sync (id = 1, threads = 128)\n"
FENCE = "      sync fence.proxy.async\n"
ARRIVE = "      sync mbar.arrive empty_X{at_X} by elect\n"
FREE = "      sync bulk.wait (depth = 1, read = 1) by elect\n"
TAKEN = "      _0 = load in_X{at_X}[$0] where $0 < N ; %0[t_m, $0] where $0 < N\n"
LOADED = TAKEN + FENCE + MEET + ARRIVE

# (what is wrong, text as it stands, text instead, judgement, what the reason must say)
TWINS: list[tuple[str, str, str, str, str]] = [
    ("read before it is brought", FULL, "", "J2|J3|J5", ""),
    ("parity of the other turn", "(phase = (at_X // 2) % 2)", "(phase = (at_X // 2 + 1) % 2)", "J3", "phase"),
    ("brought into a slot in use", EMPTY, "", "J3", "nobody has waited until its slot is free"),
    ("bytes of whole boxes", "(bytes = 2*N)", "(bytes = 256)", "J3", "announces"),
    ("bytes of a chunk more", "(bytes = 2*N)", "(bytes = 2*N + 16)", "J3", "announces"),
    ("the whole box read", "box (1, 128) where $1 < N signal", "box (1, 128) signal", "J1|J3", ""),
    ("an element too few brought", "where $1 < N signal", "where $1 < N - 1 signal", "J3|J7", ""),
    ("another row brought", "= X[t_m, $1]", "= X[0*t_m, $1]", "J1", ""),
    ("a run that starts inside a chunk", "= X[t_m, $1]", "= X[t_m, $1 + 1]", "J1|J4", ""),
    ("a neighbour's element", "load in_X{at_X}[$0]", "load in_X{at_X}[127 - $0]", "J1", ""),
    ("all of the slot read", "load in_X{at_X}[$0] where $0 < N", "load in_X{at_X}[$0]", "J1", "brought"),
    ("given back before it arrived", TAKEN + FENCE, TAKEN, "J2", "given back"),
    ("given back for others", LOADED, TAKEN + FENCE + ARRIVE + MEET, "J2", "have not met"),
    ("given back before it is read", LOADED, ARRIVE + TAKEN + FENCE + MEET, "J2", ""),
    ("given back by every warp", ARRIVE, ARRIVE.replace("elect", "warp"), "J3", "arrivals"),
    ("never given back", ARRIVE, "", "J5", "never gives"),
    ("written out of a slot on its way", FREE, "", "J2", "staging step"),
    ("the wait is one group short", FREE, FREE.replace("depth = 1", "depth = 2"), "J2", "may still be read"),
    ("filled while the engine's thread waits", FREE + MEET, FREE, "J2", "staging step"),
    ("not made known to the engine", FENCE + MEET + "      copy", MEET + "      copy", "J2", "staging step"),
    ("stored before all have written", FENCE + MEET + "      copy", FENCE + "      copy", "J2", "staging step"),
    ("never committed", "      sync bulk.commit by elect\n", "", "J2", "staging step"),
    ("the end overtakes the last row", "    sync bulk.wait (depth = 0) by elect\n", "", "J2", "may end"),
    ("stored by every warp", "where $1 < N by elect", "where $1 < N by warp", "J5", "one thread"),
    ("stored past the end", "box (1, 128) where $1 < N by", "box (1, 128) by", "J1|J4", ""),
    ("no fence after the set-up", "    sync fence.mbar_init by elect\n", "", "J2", "fence"),
    ("addresses not aligned", "  align(X) >= 16\n", "", "J7", "align"),
    ("pitches not aligned", "  pitch(Y, 0) % 8 == 0\n", "", "J7", "pitch"),
    ("rows of odd length", "  N % 8 == 0\n", "", "J7|J4", "8 == 0"),
    ("rows of no length", "  1 <= N\n", "", "J4", "empty"),
    ("rows longer than a slot", "  N <= 128\n", "", "J1|J4", ""),
    ("slots that overlap", "versions 2 @ 128", "versions 2 @ 192", "J4", ""),
    (
        "rows aligned to a word",
        "buffer in_X bf16[128] shared align 128",
        "buffer in_X bf16[128] shared align 4",
        "J4",
        "",
    ),
]


@pytest.mark.parametrize("twin", TWINS, ids=[t[0] for t in TWINS])
def test_wrong_twins_are_refused(twin: tuple[str, str, str, str, str]) -> None:
    _, old, new, judgement, reason = twin
    assert old in TEXT, old
    verdict = check(parse_machine(TEXT.replace(old, new, 1)))
    assert verdict.status in ("rejected", "unknown"), str(verdict)
    assert verdict.judgement is not None and re.fullmatch(judgement, verdict.judgement), str(verdict)
    assert re.search(reason, verdict.reason + (verdict.missing or "")), str(verdict)


BROKEN = {
    "given back before it arrived": (TAKEN + FENCE, TAKEN),
    "given back for others": (LOADED, TAKEN + FENCE + ARRIVE + MEET),
    "brought into a slot in use": (EMPTY, ""),
    "read before it is brought": (FULL, ""),
    "written out of a slot on its way": (FREE, ""),
    "not made known to the engine": (FENCE + MEET + "      copy", MEET + "      copy"),
    "stored before all have written": (FENCE + MEET + "      copy", FENCE + "      copy"),
    "bytes of whole boxes": ("(bytes = 2*N)", "(bytes = 256)"),
    "a part of a chunk": ("where $1 < N by", "where $1 < N - 1 by"),
    "the end overtakes the last row": ("    sync bulk.wait (depth = 0) by elect\n", ""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_schedules_show_what_is_broken(name: str) -> None:
    old, new = BROKEN[name]
    assert old in TEXT
    machine = parse_machine(TEXT.replace(old, new, 1))
    args, want = values(9, 120)
    for seed in range(12):
        run = simulate(machine, {n: a.copy() for n, a in args.items()}, seed=seed)
        if not run.clean or not close(run, want):
            return
    raise AssertionError("no schedule shows it")
