"""The benchmark suite refuses what it must not time, and its rows say what was run. Times are never asserted."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from tests.bench.results import lacks

from treadle.bench.case import Case
from treadle.bench.cases import cpu_cases, linear_case, softmax_case
from treadle.bench.suite import NoCase, WrongResult, run_case, selected, write_rows
from treadle.cli import bench
from treadle.dtype.formats import bf16, f32


def test_every_case_has_a_name_of_its_own() -> None:
    names = [c.name for c in cpu_cases()]
    assert len(names) == len(set(names)) and all(n.count("/") == 2 for n in names)


def test_a_pattern_without_a_case(snapshot) -> None:
    with pytest.raises(NoCase) as caught:
        selected("nothing is called so")
    assert str(caught.value) == snapshot


@pytest.mark.parametrize("case", [softmax_case(f32, 4, 33), linear_case(bf16, 9, 17, 33)], ids=lambda c: c.name)
def test_a_row_says_what_was_run(case: Case, capsys) -> None:
    rows = list(run_case(case, peers=[], rounds=3))
    assert [r.peer for r in rows] == ["none"] and rows[0].case == case.name
    assert rows[0].verdict == "verified" and rows[0].ours_us > 0 and rows[0].ratio is None
    write_rows("-", rows)
    told = json.loads(capsys.readouterr().out)
    assert told["plan"] == rows[0].plan and lacks([told]) == []
    assert np.median(told["ours_samples_us"]) == pytest.approx(told["ours_us"])


def test_the_table_fits(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """No line of `treadle bench` is wider than 100 columns, and the plan is told in full."""
    case = dataclasses.replace(softmax_case(f32, 4, 33), family="a_family_of_cases_with_a_name")
    monkeypatch.setattr(bench, "selected", lambda pattern: [case])
    assert bench.run(["cpu", "--peers", "", "--rounds", "1"]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 100 and case.name in told
    assert case.kernel.variants[-1].plan.partition(": ")[2] in " ".join(told.split())
    legend = " ".join(told.split()).partition(" thr: ")[2]
    assert all(column in legend for column in ("ours", "peer us", "ratio", "limit", "others"))


def test_a_wrong_result_is_not_timed(snapshot) -> None:
    right = softmax_case(f32, 3, 5)
    wrong = dataclasses.replace(right, oracle=lambda a: np.zeros((3, 5)), tolerance=lambda a, want: np.zeros((3, 5)))
    zeros = dataclasses.replace(wrong, make=lambda _: {"x": np.zeros((3, 5), np.float32)})
    with pytest.raises(WrongResult) as caught:
        list(run_case(zeros, peers=[], rounds=1))
    assert str(caught.value) == snapshot
