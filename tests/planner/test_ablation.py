"""Ablated searches: they look at fewer points, never find a better one, and say when scopes cannot be parted."""

from __future__ import annotations

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion
from tests.rules import kernels

import treadle as td
from treadle.cli.plan import run
from treadle.evaluate.interpreter import evaluate
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify
from treadle.plan.facts import contiguous
from treadle.planner.ablation import ABLATIONS, NotSeparable, separate, withdrawn
from treadle.planner.enumerate import choose
from treadle.targets.cpu.families import families as cpu
from treadle.targets.cuda.families import families as cuda

M = td.dims("M")


@td.kernel
def halves(X: td.Tensor[M], Y: td.Out[M] = None):
    T = td.empty(M)
    for m in td.parallel(M):
        T[m] = X[m] * 0.5
    for m in td.parallel(M):
        Y[m] = T[m] + 1.0


@pytest.mark.parametrize("size", [64, 1000])
@pytest.mark.parametrize("target", ["cpu:avx512", "cuda:sm_90a"])
def test_knowing_less_is_never_better(target: str, size: int) -> None:
    program = kernels.program(kernels.contract)
    features = frozenset({"avx2", "fma", "avx512f"})
    facts = contiguous(program, target, dict.fromkeys("MNK", size), workers=2, features=features)
    families = cpu() if target.startswith("cpu") else cuda()
    joint = choose(program, facts, families).best
    for ablation in ABLATIONS:
        less = choose(program, facts, families, ablate=ablation).best
        assert less.cost.total >= joint.cost.total
        assert set(less.plan.point) == set(joint.plan.point) or less.plan.family != joint.plan.family
    early = choose(program, facts, families, ablate="place-early").best
    assert early.plan.family != joint.plan.family or early.searched <= joint.searched


def test_scopes_one_by_one_store_the_same() -> None:
    program = kernels.program(kernels.siblings)
    parts = separate(program)
    assert [[t.name for t in p.tensors] for p in parts] == [["X", "Y"], ["Y", "Z"]]
    arrays = {n: np.zeros((3, 4), np.float32) for n in "YZ"} | {"X": np.arange(12, dtype=np.float32).reshape(3, 4)}
    for part in parts:
        verify(part)
        evaluate(part, {t.name: arrays[t.name] for t in part.tensors}, extents={"M": 3, "N": 4})
    assert np.array_equal(arrays["Z"], (arrays["X"] + 1) * 2)


def test_without_permissions_folds_are_chains() -> None:
    program = kernels.program(kernels.contract)
    chain = withdrawn(program)
    verify(chain)
    assert "fold_left" in print_program(chain) and "fold_left" not in print_program(program)
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-3, 4, (5, 5)).astype(np.float32) for n in (t.name for t in program.tensors)}
    found = [
        dict(arrays) | {t.name: np.zeros((5, 5), np.float32) for t in p.tensors if t.out} for p in (program, chain)
    ]
    for one, held in zip((program, chain), found, strict=True):
        evaluate(one, held, extents=dict.fromkeys("MNK", 5))
    assert all(np.array_equal(a, b) for a, b in zip(found[0].values(), found[1].values(), strict=True))


def test_a_tile_that_crosses(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(NotSeparable) as caught:
        separate(halves.program(td.like(td.f32, 8)))
    assert str(caught.value) == snapshot


def test_the_command_plans_scopes_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    where = ["tests/rules/kernels.py:siblings", "--target", "cpu:avx2", "--dim", "M=64", "--dim", "N=64"]
    assert run(where) == 0 and "siblings on cpu:avx2" in capsys.readouterr().out
    assert run([*where, "--ablate", "no-interface"]) == 0
    printed = capsys.readouterr().out
    assert "siblings_0 on cpu:avx2" in printed and "siblings_1 on cpu:avx2" in printed
