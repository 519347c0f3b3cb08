"""Widened bf16 stays in pairs; rows that fill their threads' shares have no masks; others are read with the fold's
identity beyond their end."""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.realise.texts import program
from tests.targets.cuda.cuda_kit import tried

import treadle as td
from treadle.checker import check
from treadle.lib.rows import softmax
from treadle.machine.parse import parse_machine
from treadle.plan.facts import contiguous
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.rows import Rows


@cache
def planned(columns: int, dtype: str = "bf16") -> tuple[str, str]:
    """Machine text and CUDA text of the plan for rows of a length."""
    format_ = getattr(td, dtype)
    plan = softmax.plan(*(td.like(format_, 4096, columns, align=256) for _ in range(2)), target="cuda:sm_90a")
    assert plan.check().status == "verified"
    assert plan.decisions.point["exact"] == (columns in (4096, 8192))
    return plan.machine(), emit(plan.program).source


@pytest.mark.parametrize("columns", [4096, 8192])
def test_rows_that_fill_their_shares_have_no_masks(columns: int) -> None:
    machine, source = planned(columns)
    kernel = machine[machine.index("kernel main") :]
    assert "fill" not in kernel and "if " not in kernel and " where " not in kernel
    assert "<= n_N" not in source[source.index("extern") :]


def test_other_rows_are_read_with_what_the_fold_leaves_alone() -> None:
    machine, _ = planned(8000)
    assert re.search(r"= load X\[t_m, \$0\] where \$0 < N fill -inf", machine)
    assert machine.count(" fill ") == 2  # the second is of the sum


def test_pairs_are_folded_and_redefined_behind_the_barrier() -> None:
    _, source = planned(8192)
    body = source[source.index("extern") :]
    assert "max_pairs(w_" in body
    assert re.search(r"named_sync<0, \d+>\(\);\n *landed\(w_x\);", body)
    assert body.count("landed(") == 1  # nothing of it is read behind the other barrier
    assert not re.search(r"f_x\[\d+\] =", body)


def test_a_fragment_that_two_statements_assign_is_wide() -> None:
    machine, _ = planned(8192)
    line = next(x for x in machine.split("\n") if " = cast _0 " in x)
    twice = machine.replace(line, f"{line}\n      x = copy x")
    assert "w_x" not in emit(parse_machine(twice)).source


def test_f32_stays_as_it_is() -> None:
    _, source = planned(4096, "f32")
    assert "max_pairs" not in source


@pytest.mark.parametrize(("warps", "columns"), [(1, 256), (4, 1024)])
def test_exact_rows_are_right(warps: int, columns: int) -> None:
    source = program("softmax_bf16")
    sizes = {"M": 3, "N": columns}
    facts = contiguous(source, "cuda:sm_90a", sizes)
    family, point = Rows(), {"warps": warps, "held": True, "exact": True}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    assert check(machine).status == "verified"
    tried(machine, source, sizes, tolerance=1e-2)
    assert family.cost(source, contiguous(source, "cuda:sm_90a", {"M": 3, "N": columns - 8}), point).total == float(
        "inf"
    )
