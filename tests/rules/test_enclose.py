"""Programs that no region is around, put into one; what would meet is refused, by the rule and by the validator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.checker.derivation import validate, validate_derivation
from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program, Region
from treadle.ir.expand import expand
from treadle.ir.ops.elementwise import Full
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.rules import Derivation, dematerialise, enclose, enclosing, factor, materialise
from treadle.rules.refusals import CoverageBroken, DependenceBroken, FormUnsupported, NameUnknown

from . import kernels

M, N = td.dims("M N")


@td.kernel
def shifted(X: td.Tensor[N], Y: td.Out[N]):
    Y[N] = X[N] * 2.0
    Y[td.in_range(0, N)] = X.at(1, fill=0.0)


@td.kernel
def running(X: td.Tensor[N], Y: td.Out[N]):
    Y[N] = td.scan(X[N], N, td.Add)


@td.kernel
def neighbours(X: td.Tensor[N], Y: td.Out[N]):
    t = X[N] * 2.0
    Y[N] = t + t.at(0, fill=0.0)


@td.kernel
def read_back(X: td.Tensor[N], Y: td.Out[N]):
    Y[N] = X[N]
    Y[N] = Y.at(0, fill=0.0) + X[N]


def captured(kernel: td.Kernel) -> Program:
    return expand(kernels.program(kernel))


def stored(p: Program, extents: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    arrays = {
        t.name: rng.integers(-3, 4, tuple(int(d.extent.evaluate(extents)) for d in t.dims)).astype(t.dtype.numpy)
        for t in p.tensors
    }
    evaluate(p, arrays, extents=extents)
    return {t.name: arrays[t.name].tolist() for t in p.tensors if t.out}


@pytest.mark.parametrize(
    ("kernel", "dims"),
    [
        (kernels.at_once, ["M"]),
        (kernels.at_once, ["N", "M"]),
        (kernels.at_once, []),
        (kernels.everything, ["N"]),
        (kernels.everything, []),
        (shifted, []),
    ],
)
def test_it_means_the_same(kernel: td.Kernel, dims: list[str]) -> None:
    d = Derivation(captured(kernel)).then(enclose, dims)
    assert [v.status for v in validate_derivation(d.programs, d.steps)] == ["verified"]
    assert [type(op) for op in d.program.body.ops] == [Region]
    assert Derivation.from_json(d.to_json()).replay().to_json() == d.to_json()
    for extents in ({"M": 0, "N": 3}, {"M": 1, "N": 2}, {"M": 5, "N": 7}):
        assert stored(d.start, extents) == stored(d.program, extents)


def test_a_fold_in_parts_that_are_tasks() -> None:
    d = Derivation(captured(kernels.everything)).then(enclose, ["N"]).then(factor, "R0", "m", 4)
    d = d.then(materialise, "%total.4").then(dematerialise, "%total.7")
    assert [v.status for v in validate_derivation(d.programs, d.steps)] == ["verified"] * 4
    assert [type(op) for op in d.program.body.ops] == [Full, Region, Region]
    for m in (0, 1, 4, 11):
        assert stored(d.start, {"M": m, "N": 3}) == stored(d.program, {"M": m, "N": 3})


@pytest.mark.parametrize(
    ("kernel", "dims", "error", "match"),
    [
        (kernels.everything, ["M"], CoverageBroken, "not along M"),
        (kernels.everything, ["K"], NameUnknown, "no dimension K"),
        (kernels.at_once, ["M", "M"], NameUnknown, "no dimension M"),
        (shifted, ["N"], CoverageBroken, "not along N"),
        (running, ["N"], FormUnsupported, "is not apart along N"),
        (neighbours, ["N"], FormUnsupported, "picks from"),
        (read_back, ["N"], DependenceBroken, "other coordinates of N"),
    ],
)
def test_what_meets_is_refused(kernel: td.Kernel, dims: list[str], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        enclose(captured(kernel), dims)


FORGED = {
    "a store of another block": ("store Y[M, N_b]", "store Y[M, N]", "malformed"),
    "some blocks only": ("parallel (N_b in N)", "parallel (N_b in N[1 : N])", "in blocks that nothing says why"),
    "another function": ("sub %x, %", "add %x, %", "another fn"),
    "in order": ("region R_whole parallel", "region R_whole serial", "not the body of one new parallel region"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_steps_are_refused(name: str) -> None:
    old, new, reason = FORGED[name]
    d = Derivation(captured(kernels.at_once)).then(enclose, ["N"])
    text = print_program(d.program)
    assert old in text, text
    verdict = validate(d.start, d.steps[0], parse_program(text.replace(old, new, 1), "a forgery"))
    assert verdict.status == "rejected" and reason in verdict.reason, verdict


def test_tensors_that_may_overlap_are_said() -> None:
    d = Derivation(captured(kernels.at_once)).then(enclose, ["N"])
    assert ("X", "Y") in d.disjoint and ("Y", "Z") in d.disjoint
    step = d.steps[0]
    args = {k: v for k, v in step.args.items() if k != "disjoint"}
    verdict = validate(d.start, type(step)(step.kind, args, step.forward), d.program)
    assert verdict.status == "rejected" and "may overlap" in verdict.reason


@pytest.mark.parametrize(
    ("kernel", "dims", "reason"),
    [
        (running, ["N"], "runs over N"),
        (neighbours, ["N"], "picks some of N"),
        (read_back, ["N"], "other coordinates of N"),
        (kernels.everything, ["M"], "runs over M"),
    ],
)
def test_the_validator_knows_what_meets(
    kernel: td.Kernel, dims: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enclosing, "_apart", lambda draft, dim: None)
    before = captured(kernel)
    after, step = enclose(before, dims)
    verdict = validate(before, step, after)
    assert verdict.status == "rejected" and reason in verdict.reason, verdict
