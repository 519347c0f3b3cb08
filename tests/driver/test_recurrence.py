"""A program whose universal plan the judge does not verify still runs, in the interpreter, and says so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import treadle as td

M = td.dims("M")


@td.kernel
def running_sum(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M.each):
        Y[m] = X[m] + Y.at(m - 1, fill=0.0)


def test_a_recurrence_through_an_output_is_right() -> None:
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        running_sum(x, y)
    np.testing.assert_array_equal(y, np.cumsum(x))
    interpreted = [v for v in running_sum.variants if v.verdict["status"] == "none"]
    # Once the judge knows such loads, the plan is verified and nothing is said.
    assert bool(interpreted) == any("reference interpreter" in str(w.message) for w in caught)


def test_asking_for_its_plan_names_what_the_judge_says() -> None:
    try:
        plan = running_sum.plan(td.like(td.f32, 5), td.like(td.f32, 5))
    except td.TreadleError as error:
        assert error.code in ("plan/universal-unverified", "plan/universal-unknown") and "J" in error.found
    else:
        assert plan.check().status == "verified"


@pytest.mark.parametrize("n", [0, 1, 7])
def test_it_keeps_no_state(n: int) -> None:
    x, y = np.ones(n, np.float32), np.full(n, 9, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        running_sum(x, y)
    np.testing.assert_array_equal(y, np.arange(1, n + 1))
