"""The exact texts of this room's errors, one of each code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.base.errors import TreadleError
from treadle.driver.rewriting import rewrite
from treadle.plan.cost import CostVector
from treadle.plan.plan import Guard, Plan
from treadle.plan.steps import Step
from treadle.rules import Derivation, factor, fuse, fuse_scopes, permute, recompute, replan, split, split_scopes
from treadle.rules.copies import dematerialise

from . import kernels

A_PLAN = Plan("contract", "cpu:avx2", "tiled", {"workers": 2, "atom": "fma"}, Guard(()), 2, cost=CostVector())


def derivation(kernel) -> Derivation:
    return Derivation(kernels.program(kernel))


def unrecorded() -> Derivation:
    d = derivation(kernels.contract).then(split, "R1", "k", 8)
    return replace(d, taken=((d.steps[0], d.start),)).replay()


def forged(d: Derivation) -> Derivation:
    return replace(d, taken=((Step("hoist", {}), d.program),))


TEXTS = {
    "name": lambda: derivation(kernels.contract).then(split, "R0", "k", 8),
    "coverage": lambda: derivation(kernels.largest).then(factor, "R1", "n", 6),
    "prefix": lambda: derivation(kernels.owned).then(fuse, "R0"),
    "order": lambda: derivation(kernels.ordered_sum).then(permute, "R0", ["n"], ["n"]),
    "dependence": lambda: derivation(kernels.neighbours).then(fuse_scopes, "R0", "R1"),
    "overwritten": lambda: derivation(kernels.crossed).then(dematerialise, "%2"),
    "used": lambda: derivation(kernels.siblings).then(split_scopes, "R0", 2),
    "chain": lambda: derivation(kernels.left_sum).then(factor, "R0", "n", 4),
    "form": lambda: derivation(kernels.contract).then(recompute, "%acc.2"),
    "gone": lambda: derivation(kernels.siblings).then(fuse_scopes, "R0", "R1").at("1"),
    "unreadable": lambda: Derivation.from_json("{}"),
    "replay": unrecorded,
    "axis": lambda: replan(A_PLAN, "refine", workers=1),
    "unverified": lambda: rewrite(kernels.pure, forged)(np.ones((3, 4), np.float32)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TreadleError) as caught:
        TEXTS[name]()
    assert caught.value.code == f"rules/{name}"
    assert str(caught.value) == snapshot
