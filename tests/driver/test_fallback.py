"""Calls that no judged plan covers: the reference interpreter runs them, and everyone can see it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.base.errors import LimitError, TreadleError
from treadle.checker.verdict import Verdict
from treadle.driver import specialisation as module

X = np.arange(7, dtype=np.float32)


def test_operations_without_a_machine_form() -> None:
    kernel = td.kernel(k.position.definition.fn)
    x = np.eye(4, 5, dtype=np.float32)
    with pytest.warns(RuntimeWarning, match="position runs in the reference interpreter") as seen:
        assert kernel(x).tolist() == [0, 1, 2, 3]
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        out = np.empty(4, np.int64)
        assert kernel(x, out) is out and out.tolist() == [0, 1, 2, 3]
        launch = kernel.bind(x[::-1], out)
        assert launch() is out and out.tolist() == [3, 2, 1, 0]
        assert launch.launch() is out
    (variant,) = kernel.variants
    assert variant.plan.startswith("reference interpreter (no machine program: ") and "argreduce" in variant.plan
    assert variant.verdict["status"] == "none"
    with pytest.raises(LimitError) as caught:
        kernel.plan(x)
    assert caught.value.code == "plan/none"


@pytest.mark.filterwarnings("ignore:checked runs in")
def test_checks_hold_in_the_interpreter() -> None:
    assert (k.checked(X) == X).all()
    with pytest.raises(TreadleError) as caught:
        k.checked(-X - 1)
    assert caught.value.code == "check/failed"
    assert (k.checked(X) == X).all()


def judged(patch: pytest.MonkeyPatch, status: str) -> Any:
    build = module.room("build")
    patch.setattr(module, "fetch", lambda key: None)
    patch.setattr(module, "keep", lambda key, record: None)
    patch.setattr(build, "check", lambda machine: Verdict(status, judgement="J1", reason="a term was not equated"))
    return td.kernel(k.double.definition.fn)


def test_a_universal_plan_that_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = judged(monkeypatch, "unknown")
    with pytest.warns(RuntimeWarning, match="the universal plan is not verified: unknown"):
        assert (kernel(X) == 2 * X).all()
    (variant,) = kernel.variants
    assert "the universal plan is not verified" in variant.plan and "a term was not equated" in variant.plan
    with pytest.raises(TreadleError) as caught:
        kernel.plan(X)
    assert caught.value.code == "plan/universal-unknown" and caught.value.family == "bug in treadle"


def test_a_universal_plan_that_is_rejected_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = judged(monkeypatch, "rejected")
    with pytest.raises(TreadleError) as caught:
        kernel.plan(X)
    assert caught.value.code == "plan/universal-unverified"
    with pytest.warns(RuntimeWarning, match="reference interpreter"):
        assert (kernel(X) == 2 * X).all()
    assert (kernel.bind(X)() == 2 * X).all()
    assert [v.verdict["status"] for v in kernel.variants] == ["none"]


def test_a_plan_that_its_target_cannot_say_gives_way_to_the_universal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    build = module.room("build")
    assemble = build.assemble

    def refuses(built: Any) -> Any:
        if not built.candidate.universal:
            raise td.LimitError(doing="emitting", found="a form without text", expected="text", hint="none")
        return assemble(built)

    monkeypatch.setattr(module, "fetch", lambda key: None)
    monkeypatch.setattr(module, "keep", lambda key, record: None)
    monkeypatch.setattr(build, "assemble", refuses)
    kernel = td.kernel(k.double.definition.fn)
    assert (kernel(X) == 2 * X).all()
    assert [v.record.meta["family"] for v in kernel.variants] == ["universal"]


def test_an_output_that_overlaps_an_input() -> None:
    kernel = td.kernel(k.double.definition.fn)
    y = X.copy()
    for n in (1, 2):
        assert kernel(y, y) is y and (y == X * 2**n).all()
    assert [v.plan for v in kernel.variants] == ["reference interpreter (an output overlaps another argument)"]
    launch = kernel.bind(y, y)
    assert (launch() == X * 8).all()


def test_outputs_that_interleave_are_apart() -> None:
    both = np.zeros(14, np.float32)
    y, z = k.pairs(X, both[::2], both[1::2])
    assert (both[::2] == X + 1).all() and (both[1::2] == X - 1).all()
    held = np.arange(14, dtype=np.float32)
    assert (k.double(held[::2], held[1::2]) == held[::2] * 2).all()
    assert not any("overlaps" in v.plan for v in k.pairs.variants)


def test_outputs_that_share_an_element_are_refused() -> None:
    both = np.zeros(14, np.float32)
    for call in (k.pairs, k.pairs.bind, k.pairs.plan):
        for y, z in ((both[:7], both[6:13]), (both[:7], both[:7]), (both[:7], both[6::-1])):
            with pytest.raises(TreadleError) as caught:
                call(X, y, z)
            assert caught.value.code == "call/overlap"
    assert (both == 0).all()
