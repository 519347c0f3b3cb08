"""Statements written again with other names, and where that happens: the rest of a row's task, done by the last one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.targets.cuda.cuda_kit import arguments, clean, tried

import treadle as td
from treadle.algebra.expr import ZERO, Constraint, Expr, Fn, const, of, sym
from treadle.checker import check
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.machine.form import (
    Body,
    Claim,
    Compute,
    FragRef,
    If,
    Invariant,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Store,
)
from treadle.plan.facts import contiguous
from treadle.realise.replacing import renamed, replaced
from treadle.targets.cuda.long_rows import LongRows

M, N, K = td.dims("M N K")
SIZES = {"M": 3, "N": 5000, "K": 1}


def spoken(name: str, var: str) -> Body:
    """Statements of every kind in which a fragment is named, `var` in their expressions."""
    at = of(Fn(name, (of(Fn(name, (sym(var),))) + 1,)))
    here = Constraint(at - 3)
    claim = Claim("%v", (at,), where=(here,), over=(), instance=(("b", at),))
    inner: Body = [
        Load(dst=name, src=MemRef("name", (at,)), where=(here,), claim=claim),
        Mma(atom="a", dst=name, a=FragRef(name), b=FragRef("other"), acc=FragRef(name)),
        Store(dst=MemRef("name", (sym(var),)), src=FragRef(name), mask=FragRef(name, (at,)), old=name),
    ]
    loop = Loop(var="name", lo=ZERO, hi=at, step=const(1), invariants=(Invariant(name, claim),), body=inner)
    return [Compute(dst=name, fn="add", args=(FragRef(name), 1.0)), If(cond=name, then=[loop], orelse=[*inner])]


def test_every_name_and_every_expression_is_another() -> None:
    """Tensors, values and loops of the same name keep it; what was there stays as it was."""
    before = spoken("name", "i")
    assert renamed(before, {"name": "new"}) == spoken("new", "i") != before
    assert renamed(before, {"names": "new"}) == before == spoken("name", "i")
    env: dict[str, Expr] = {"i": sym("j")}
    assert replaced(before, env) == spoken("name", "j") != before
    made = renamed(before, {})
    assert made == before and made[0] is not before[0]


@td.kernel
def ended(X: td.Tensor[M, N], S: td.Tensor[K], Y: td.Out[M]):
    """What follows a fold, under a condition."""
    td.require(K.extent >= 1)
    for m in td.parallel(M):
        s = X[m, N].sum(N)
        if S[0] > 0:
            Y[m] = s + 1


@td.kernel
def between(X: td.Tensor[M, N], S: td.Tensor[K], Y: td.Out[M], Z: td.Out[M]):
    """The same, another fold behind it."""
    td.require(K.extent >= 1)
    for m in td.parallel(M):
        x = X[m, N]
        s = x.sum(N)
        if S[0] > 0:
            Y[m] = s + 1
        Z[m] = (x - s).max(N)


@td.kernel
def swept(X: td.Tensor[M, N], S: td.Tensor[K], Y: td.Out[M], Z: td.Out[M, N]):
    """The same, with a sweep that stores behind it."""
    td.require(K.extent >= 1)
    for m in td.parallel(M):
        x = X[m, N]
        s = x.sum(N)
        if S[0] > 0:
            Y[m] = s + 1
        Z[m, N] = x - s


@td.kernel
def chosen(X: td.Tensor[M, N], S: td.Tensor[K], Y: td.Out[M], Z: td.Out[M, N]):
    """A sweep under a condition: one executor would do all of it."""
    td.require(K.extent >= 1)
    for m in td.parallel(M):
        x = X[m, N]
        s = x.sum(N)
        Y[m] = s
        if S[0] > 0:
            Z[m, N] = x - s


def built(kernel: Any, more: tuple[tuple[int, ...], ...]) -> tuple[Program, MachineProgram]:
    """The program, and rows of it in three stretches."""
    shapes = ((td.f32, 4, 8), (td.i32, 1), (td.f32, 4), *((td.f32, *s) for s in more))
    program = expand(kernel.program(*(td.like(dtype, *shape, align=256) for dtype, *shape in shapes)))
    family, facts = LongRows(), contiguous(program, "cuda:sm_90a", SIZES)
    point = {a.name: a.values[0] for a in family.axes(program, facts)}
    point |= {"warps": 4, "stretches": 3, "held": False, "exact": False, "slots": 0, "stages": 0, "tickets": False}
    point |= {"close": False, "first": False}
    return program, family.build(program, facts, point, family.guard(program, facts, point))


@pytest.mark.parametrize(("kernel", "more"), [(ended, ()), (between, ((4,),)), (swept, ((4, 8),))])
def test_a_condition_behind_a_fold_of_stretches(kernel: Any, more: tuple[tuple[int, ...], ...]) -> None:
    program, machine = built(kernel, more)
    assert len(machine.host.launches) == 1 + len(more)
    verdict = check(machine)
    assert verdict.status == "verified", str(verdict)
    args = arguments(program, SIZES) | {"S": np.ones(1, np.int32)}
    tried(machine, program, SIZES, args=args, tolerance=2e-6)
    clean(machine)


def test_a_sweep_under_a_condition_is_not_cut() -> None:
    with pytest.raises(td.TreadleError, match="a sweep under a condition"):
        built(chosen, ((4, 8),))
