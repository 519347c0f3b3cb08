"""Approximate exponentials of multiply-adds: one instruction an element less, only where nothing else sees the
argument; first atoms that add to nothing; registers that are ready before a turn."""

from __future__ import annotations

import re
from functools import cache

import pytest

import treadle as td
from treadle import f32
from treadle.machine.parse import parse_machine
from treadle.targets.cuda.emit import emit

M, N = td.dims("M N")
FAST = td.Numerics(functions="fast")


@td.kernel(numerics=FAST)
def scaled(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N]
        Y[m, N] = td.exp(x * 0.125 - x.max(N) * 0.125)


@td.kernel(numerics=FAST)
def scaled_twice(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N]
        shifted = x * 0.125 - x.max(N) * 0.125
        Y[m, N] = td.exp(shifted) * shifted


@td.kernel
def precise(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N]
        Y[m, N] = td.exp(x * 0.125 - x.max(N) * 0.125)


@td.kernel(numerics=td.Numerics(functions="fast", contract=False))
def apart(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N]
        Y[m, N] = td.exp(x * 0.125 - x.max(N) * 0.125)


@cache
def text(kernel: td.Kernel) -> tuple[str, str]:
    """Machine text and CUDA text of a plan of rows."""
    plan = kernel.plan(td.like(f32, 64, 1024), td.like(f32, 64, 1024), target="cuda:sm_90a")
    assert plan.check().status == "verified"
    assert plan.decisions.family == "rows"
    return plan.machine(), emit(plan.program).source


def test_a_product_and_a_difference_are_one_operation() -> None:
    machine, _ = text(precise)
    assert re.search(r"= fms \w+, 0\.125, ", machine)
    assert 'numerics "contract: ' in machine
    assert not re.search(r"= mul \w+\[?[^,]*, 0\.125 .*\[t_m, \$0\]", machine)


def test_contraction_is_a_permission() -> None:
    machine, _ = text(apart)
    assert "fms" not in machine
    assert "contract: " not in machine


def test_log2_e_goes_into_the_factor() -> None:
    _, source = text(scaled)
    assert re.search(r"exp2_approx\(fmaf\([^,]+, 0x1\.71\w+p-3f, shift\d+\)\)", source)
    assert "exp_approx(" not in source


@pytest.mark.parametrize("kernel", [scaled_twice, apart])
def test_an_argument_that_others_read_is_made(kernel: td.Kernel) -> None:
    _, source = text(kernel)
    assert "exp_approx(" in source
    assert not re.search(r"\bshift\d", source)


def test_the_precise_class_keeps_its_argument() -> None:
    _, source = text(precise)
    assert "exp_near(" in source
    assert not re.search(r"\bshift\d", source)


def test_an_operand_that_changes_in_between_is_read_first() -> None:
    machine, _ = text(scaled)
    line = [x for x in machine.split("\n") if " = exp " in x][-1]
    made = [x for x in machine.split("\n") if " = fms " in x][-1]
    operand = re.match(r" *\w+ = fms (\w+), 0\.125, (\w+)", made)
    assert operand is not None
    changed = machine.replace(line, f"      {operand[1]} = copy 0.0\n{line}")
    assert "exp_approx(" in emit(parse_machine(changed)).source
