"""`explain` describes the plan that runs; cheaper ones that were tried are listed with what refused them."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from treadle.checker.verdict import Verdict
from treadle.driver import build
from treadle.machine.form import MachineProgram

M, N = td.dims("M N")


@td.kernel
def doubled(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = X[m, N] * 2.0


def test_the_plan_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((4, 8), np.float32)
    first = doubled.plan(x)
    seen: list[MachineProgram] = []
    judge = build.check

    def doubts_the_first(machine: MachineProgram) -> Verdict:
        seen.append(machine)
        return judge(machine) if len(seen) > 1 else Verdict("unknown")

    monkeypatch.setattr(build, "check", doubts_the_first)
    second = doubled.plan(x)
    assert first.decisions.line() != second.decisions.line()
    text = second.explain().splitlines()
    assert text[0] == second.decisions.line()
    assert second.decisions.cost is not None and text[1].startswith(f"  predicted {second.decisions.cost};")
    tried = text.index(f"  tried and not taken: {first.decisions.line()}")
    assert text[tried + 1] == f"    predicted {first.decisions.cost}" and text[tried + 2].startswith("    unknown")
    assert not any(line.startswith(f"  instead of {first.decisions.family}") for line in text)
    assert not any(line.startswith(f"  instead of {second.decisions.family}") for line in text)
    assert first.explain().splitlines()[0] == first.decisions.line()
    assert "  planned for M = 4, N = 8" in text
