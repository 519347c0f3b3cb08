"""Kernels under schedules: they run what was derived; plans with other decisions are judged again."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import treadle as td
from treadle.checker.derivation_plans import validate_plan
from treadle.driver.rewriting import redecide, rewrite
from treadle.ir.guard import Bound
from treadle.ir.printer import print_program
from treadle.plan.steps import Step, decided_by
from treadle.rules import Derivation, fuse_siblings, inline, narrow, split_k, stage, tile
from treadle.rules.plans import AxisUnknown

from . import kernels


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def test_a_schedule_runs() -> None:
    chunked = rewrite(kernels.contract, lambda d: split_k(d, "R1", "k", 8))
    for m, k, n in ((5, 19, 7), (1, 8, 1), (3, 0, 2)):
        x, w = integers(m, k), integers(k, n)
        assert np.array_equal(chunked(x, w), x @ w)
        assert np.array_equal(chunked.reference(x, w), x @ w)
    assert chunked.variants[0].verdict["status"] == "verified"
    assert [s.kind for s in chunked.derivation(integers(2, 3), integers(3, 4)).steps] == ["factor"]
    assert "K_chunks" in chunked.plan(integers(5, 19), integers(19, 7)).source_program()


def test_a_schedule_of_schedules_runs() -> None:
    def schedule(d: Derivation) -> Derivation:
        return d.then(tile, "R0", {"m": 4, "n": 8}).then(stage, "X", "R1")

    x, w = integers(9, 11), integers(11, 17)
    assert np.array_equal(rewrite(kernels.contract, schedule)(x, w), x @ w)
    x = integers(9, 17)
    assert np.array_equal(rewrite(kernels.tiles, lambda d: inline(d, "%T.2"))(x), (x + 1) * 2)


def test_arguments_that_overlap_run_as_written() -> None:
    fused = rewrite(kernels.siblings, lambda d: fuse_siblings(d, "R0", "R1"))
    x = integers(4, 5)
    y, z = fused(x)
    assert np.array_equal(y, x + 1) and np.array_equal(z, (x + 1) * 2)
    (pair,) = {p for p in fused.derivation(x).disjoint if "X" in p}
    assert pair == ("X", "Z")
    special, _ = fused.prepare((x, np.empty_like(x), x), {})  # Z lies on X: not what the steps need
    assert special is kernels.siblings.prepare((x, np.empty_like(x), x), {})[0]
    mine, _ = fused.prepare((x, np.empty_like(x), np.empty_like(x)), {})
    assert mine is not special


def chunked(d: Derivation) -> Derivation:
    return split_k(d, "R1", "k", 8)


def test_other_contracts_and_pickles_keep_the_schedule() -> None:
    kernel = rewrite(kernels.contract, chunked)
    x, w = integers(3, 19), integers(19, 4)
    loose = td.Numerics(contract=False)
    assert kernel.under(loose) is kernel.under(loose)
    assert np.array_equal(kernel(x, w, numerics=loose), x @ w)
    assert kernel.derivation(x, w, numerics=loose).program.numerics["contract"] is False
    again = pickle.loads(pickle.dumps(kernel))
    assert [s.kind for s in again.derivation(x, w).steps] == ["factor"] and np.array_equal(again(x, w), x @ w)
    strict = rewrite(kernels.siblings, lambda d: fuse_siblings(d, "R0", "R1")).under(loose)
    special, _ = strict.prepare((x, np.empty_like(x), x), {})  # Z lies on X, under another contract too
    assert "region R1" in special.text


def test_decisions_of_a_plan() -> None:
    x, w = integers(33, 40), integers(40, 50)
    plan = kernels.contract.plan(x, w)
    other, step = redecide(plan, "bind", workers=1)
    assert (step, other.decisions.workers) == (Step("bind", {"workers": 1}), 1)
    assert np.array_equal(other(x, w), x @ w)
    kinds = {decided_by(axis) for axis in plan.decisions.point}
    assert kinds <= {"bind", "distribute", "retime", "refine"}
    with pytest.raises(AxisUnknown):
        redecide(plan, "retime", workers=1)
    with pytest.raises(AxisUnknown) as caught:
        redecide(plan, "refine", atom="wgmma")
    assert "fma" in caught.value.expected
    assert validate_plan(plan.program, step, other.program).status == "verified"
    assert validate_plan(plan.program, Step("hoist", {}), other.program).status == "unknown"
    foreign = kernels.tiles.plan(x).program
    assert validate_plan(plan.program, step, foreign).status == "rejected"


T = td.dims("T")


@td.kernel
def total(X: td.Tensor[T], S: td.Out[()] = None):
    s = td.zeros()
    for t in td.reduce(T):
        s = s + X[t].sum(t)
    S[()] = s


def test_decisions_of_a_plan_whose_program_was_derived() -> None:
    """The family derives another program first: decisions are still those of the captured one."""
    x = integers(1 << 17)
    plan = total.plan(x)
    assert print_program(plan.captured) == plan.source_program() != print_program(plan.program.program)
    other, step = redecide(plan, "bind", workers=1)
    assert other.decisions.point == {**plan.decisions.point, "workers": 1}
    assert print_program(other.captured) == plan.source_program()
    assert other(x) == x.sum() == plan(x)
    assert validate_plan(plan.program, step, other.program).status == "verified"


def test_a_narrower_guard() -> None:
    plan = kernels.contract.plan(integers(33, 40), integers(40, 50)).decisions
    less, step = narrow(plan, "M >= 8")
    assert step.kind == "guard" and isinstance(less.guard.facts[-1], Bound)
    assert replace(less, guard=plan.guard) == plan
