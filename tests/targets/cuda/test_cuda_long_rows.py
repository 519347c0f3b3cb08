"""Few long rows: each fold of a row by many workgroups, a launch a fold, or one with an arrival."""

from __future__ import annotations

from re import sub
from typing import Any

import pytest
from tests.targets.cuda.cuda_kit import clean, tried

import treadle as td
from treadle import lib
from treadle.checker import check
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose
from treadle.targets.cuda.families import families
from treadle.targets.cuda.long_rows import LongRows
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.shape import shape_of

TARGET = "cuda:sm_90a"
SWEEPING = {"held": False, "exact": False, "slots": 0, "stages": 0, "tickets": False, "close": False, "first": False}


def of(*shape: int, dtype: Any = td.f32) -> Any:
    return td.like(dtype, *shape, align=256)


M, N = td.dims("M N")


@td.kernel
def ranged(X: td.Tensor[M, N], Y: td.Out[M], Z: td.Out[M]):
    """Two folds of a row, neither of which needs the other."""
    for m in td.parallel(M):
        x = X[m, N]
        Y[m] = x.max(N)
        Z[m] = x.min(N)


KERNELS: dict[str, tuple[Any, tuple[Any, ...], int]] = {
    "sums": (lib.rows_sum, (of(4, 8), of(4)), 1),
    "softmax": (lib.softmax, (of(4, 8), of(4, 8)), 3),
    "layernorm": (lib.layernorm, (of(4, 8), of(8), of(8), of(4, 8)), 3),
    "both ends": (ranged, (of(4, 8), of(4), of(4)), 2),
    "variances": (lib.rows_var, (of(4, 8), of(4)), 2),
}


def source(name: str) -> Program:
    kernel, args, _ = KERNELS[name]
    return expand(kernel.program(*args))


def built(name: str, warps: int, stretches: int) -> tuple[Program, MachineProgram]:
    program, family = source(name), LongRows()
    facts = contiguous(program, TARGET, {"M": 3, "N": 5000})
    point = SWEEPING | {"warps": warps, "stretches": stretches}
    return program, family.build(program, facts, point, family.guard(program, facts, point))


@pytest.mark.parametrize("name", KERNELS)
def test_stretches_are_judged_run_and_assembled(name: str) -> None:
    program, machine = built(name, 4, 3)
    assert len(machine.host.launches) == KERNELS[name][2]
    assert len(machine.host.counters) == (0 if KERNELS[name][2] == 3 else 1)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    tried(machine, program, {"M": 3, "N": 5000}, tolerance=2e-6)
    clean(machine)


def test_rows_of_a_warp_are_not_cut() -> None:
    with pytest.raises(td.TreadleError, match="more than a workgroup's tasks"):
        built("softmax", 1, 4)


def test_wrong_stretches_are_refused() -> None:
    for name, wrong in (
        (
            "sums",
            (
                (r"of \(\(N \+ 2047\) // 2048 \+ 0\) // 1 id|of \(N \+ 2047\) // 2048 id", "of 2 id"),
                (r"  1 <= N\n", ""),
                (r"store (b_\w+)\[t_m, t_stretch\]", r"store \1[t_m, 0]"),
            ),
        ),
        (
            "softmax",
            (
                (r"\$0 < \(N \+ 2047\) // 2048 fill -inf", "$0 < (N + 2047) // 2048 - 1 fill -inf"),
                (r"    sync grid.wait\n", ""),
                (r"loop n_2 = t_stretch \.\.", "loop n_2 = 0 .."),
            ),
        ),
    ):
        text = print_machine(built(name, 4, 3)[1])
        for pattern, new in wrong:
            changed = sub(pattern, new, text)
            assert changed != text, pattern
            assert check(parse_machine(changed)).status != "verified", pattern


@pytest.mark.parametrize(
    ("name", "rows", "columns", "many"),
    [
        *((n, 1, 1 << 20, True) for n in KERNELS),
        *((n, 8, 1 << 20, True) for n in ("sums", "softmax", "layernorm")),
        *(("softmax", *size, False) for size in ((132, 1 << 20), (4096, 4096), (16, 4096))),
    ],
)
def test_few_long_rows_are_cut(name: str, rows: int, columns: int, many: bool) -> None:
    program = source(name)
    facts = contiguous(program, TARGET, {"M": rows, "N": columns})
    assert (len(LongRows().shares(shape_of(program, facts))) > 1) == (many or columns == 4096 and rows == 16)
    best = choose(program, facts, families()).plan
    assert best.family == "rows" and (int(best.point.get("stretches", 1)) > 1) == many


def test_more_stretches_bring_more_bytes_under_way() -> None:
    """A multiprocessor has no more of a row's bytes under way than its stretches ask for; sums read a row once."""
    program = expand(lib.rows_sum.program(of(1, 1 << 24), of(1)))
    family, facts = LongRows(), contiguous(program, TARGET, {"M": 1, "N": 1 << 24})
    costs = [
        family.cost(program, facts, {**SWEEPING, "warps": 8, "stretches": n}).memory * 1e6 for n in (132, 264, 528)
    ]
    assert costs[0] > costs[1] > costs[2]
    read = (1 << 26) / rates(facts).memory * 1e6  # once, in microseconds
    assert costs[2] == pytest.approx(read, rel=0.25)
    assert family.cost(program, facts, {**SWEEPING, "warps": 8, "stretches": 528}).cache == 0.0
