"""Reports about tuning: user data that trials change, candidates that crash, hang or take minutes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.reports.test_process import halved_in_place

import treadle as td
from treadle.driver import tuning
from treadle.driver.tuning_process import Trier

M, N, K = td.dims("M N K")


# U28: only a call changes the user's data, and once.


def test_u28_tuning_changes_nothing() -> None:
    x = np.arange(240, dtype=np.float32).reshape(12, 20)
    before = x.copy()
    tuned = halved_in_place.tune(x, budget=0.01)
    assert tuned.trials[0].seconds is not None and np.array_equal(x, before)
    halved_in_place(x)
    assert np.array_equal(x, before / 2)


# U33 and U64: a candidate that crashes, or never finishes, is named and skipped; the search goes on within its budget.


class Impatient(Trier):
    """Lets the planner's own plan through, and no compilation after that; its user presses Ctrl-C after one more."""

    asked = 0

    def ask(self, plan, until=None):
        self.asked += 1
        if self.asked > 2:
            raise KeyboardInterrupt
        answer = super().ask(plan, until)
        self.limits["compiling"] = 1e-9
        return answer


def test_u33_u64_a_bad_candidate_is_named_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    @td.kernel
    def product(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
        for m, n in td.parallel(M, N):
            acc = td.zeros(m, n)
            for k in td.reduce(K):
                acc = td.mma(A[m, k], B[k, n], acc)
            Y[m, n] = acc

    a, b = np.ones((32, 50), np.float32), np.ones((50, 20), np.float32)
    monkeypatch.setattr(tuning, "Trier", Impatient)
    start = time.monotonic()
    tuned = product.tune(a, b, budget=600)
    assert time.monotonic() - start < 60
    assert len(tuned.skipped) == 1 and not tuned.better and tuned.stopped == "interrupted"
    for trial in tuned.skipped:
        assert trial.skipped == "stopped after 1e-09 s while compiling" and trial.line(tuned.default) in str(tuned)
    assert (product(a, b) == 50).all() and product.variants[0].plan == tuned.default.line()
