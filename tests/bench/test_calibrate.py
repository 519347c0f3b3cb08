"""Fits find the coefficients that made the numbers, never negative ones; what is kept is whole, and this machine's."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from treadle.bench import calibrate as room
from treadle.bench.calibrate import NoProbe, Probe, calibrate, cpu_probes, rows
from treadle.bench.fit import fitted, nnls, rank_correlation
from treadle.bench.held_out import on_host
from treadle.bench.regret import Point, Row, again, summary
from treadle.bench.subject import Subject, sample
from treadle.cli.calibrate import run
from treadle.driver import calibration, record
from treadle.driver.candidates import plan_facts
from treadle.driver.targets import host_target
from treadle.lib.activations import activation
from treadle.plan.facts import CallFacts
from treadle.targets.cpu.rates import TERMS, coefficients


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 9))
def test_least_squares_without_negative_numbers(seed: int, columns: int, lines: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((lines, columns)), rng.standard_normal(lines)
    x = nnls(a, b)
    slope = a.T @ (a @ x - b)
    assert (x >= 0).all()
    # No step into the allowed makes it better: the conditions of Karush, Kuhn and Tucker.
    assert (slope >= -1e-7).all() and np.abs(slope[x > 1e-9]).max(initial=0.0) < 1e-7


def test_a_fit_finds_what_made_the_numbers() -> None:
    truth = {"a": 2e-9, "b": 5e-10, "c": 1e-7, "never": 4e-9}
    counts = np.random.default_rng(1).uniform(0.0, 1e5, (12, 3))

    def model(line: int):
        a, b, c = counts[line]
        return lambda w: max(a * w["a"], b * w["b"]) + 0.01 * c * w["c"]

    start = {name: 1e-9 for name in truth} | {"never": 4e-9}
    models = [model(i) for i in range(12)]
    found = fitted(models, [m(truth) for m in models], start, keep=1e-3, rounds=30)
    assert all(math.isclose(found[n], truth[n], rel_tol=0.02) for n in truth), found


def test_ranks() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == 1.0 and rank_correlation([1, 2, 3], [3, 2, 1]) == -1.0
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0.0
    assert rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1.0)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_kept_is_used_on_this_machine_only(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = host_target()
    key = record.record_key("program", target, "class")
    assert calibration.measured_for(target) == {} and not calibration.drop_coefficients("cpu")
    path = calibration.keep_coefficients(target, {"memory": 5e-11}, {"readings": []})
    assert path is not None and calibration.measured_for(target) == {"memory": 5e-11}
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    # Plans that were chosen under other coefficients are not found any more.
    assert record.record_key("program", target, "class") != key
    x = np.ones((64, 128), np.float32)
    special, call = activation.prepare((x,), {"act": abs})
    assert plan_facts(special.expanded, target, special.facts(call)).coefficients == {"memory": 5e-11}
    for wrong in ("{", "[]", json.dumps({**json.loads(path.read_text()), "machine": "another"})):
        path.write_text(wrong)
        assert calibration.measured_for(target) == {}
    calibration.keep_coefficients(target, {"memory": 5e-11}, {})
    assert calibration.drop_coefficients("cpu") and record.record_key("program", target, "class") == key
    (cache / "file").touch()
    monkeypatch.setenv("TREADLE_CACHE", str(cache / "file"))  # nothing can be written below it
    assert calibration.keep_coefficients(target, {"memory": 5e-11}, {}) is None
    monkeypatch.setenv("TREADLE_CACHE", "off")
    assert calibration.keep_coefficients(target, {"memory": 5e-11}, {}) is None


def test_the_command(cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    few = [p for p in cpu_probes(1) if p.label in ("16x1024", "64x512", "no such")]
    monkeypatch.setattr("treadle.cli.calibrate.cpu_probes", lambda workers: few)
    assert run(["--show"]) == 0 and "nothing is kept" in capsys.readouterr().out
    assert run(["--json", str(cache / "told.json")]) == 0
    told = json.loads((cache / "told.json").read_text())
    assert [r["excites"] for r in told["readings"]] == ["l2", "simple"] and all(
        r["samples_us"] for r in told["readings"]
    )
    assert set(told["seconds"]) == {t.name for t in TERMS} and min(told["seconds"].values()) >= 0
    # What no probe tells stays as it was.
    assert told["seconds"]["packing"] == pytest.approx(told["before"]["packing"])
    capsys.readouterr()
    assert run(["--show"]) == 0 and "nothing is kept" not in capsys.readouterr().out
    assert run(["--forget"]) == 0 and capsys.readouterr().out == "forgotten\n"


def test_every_probe_is_a_point_or_says_why(cache: Path) -> None:
    probes = list(cpu_probes(2))
    assert {p.excites for p in probes} == {t.name for t in TERMS}
    small = [Probe("l2", activation, rows(4, 64), "vector sweep", {"rows": 3}, "4x64", {"act": abs})]
    with pytest.raises(NoProbe, match="the family has no such point"):
        calibrate(
            host_target(), coefficients(CallFacts(host_target())).seconds, small, on_host(np.random.default_rng(0))
        )


def test_no_probe(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(NoProbe) as caught:
        calibrate("cpu:avx2", {"fma": 1e-9}, [], on_host(np.random.default_rng(0)))
    assert str(caught.value) == snapshot


def test_samples_have_the_choice_and_what_differs_in_one_decision() -> None:
    x = np.ones((64, 128), np.float32)
    plans = Subject(activation, [x, x.copy()], {"act": abs}).plans()
    assert sample(plans, 1000) == list(plans)
    few = sample(plans, 12)
    assert few[0] == plans[0] and len(few) == 12 and few == sample(plans, 12)
    assert [p.cost.total for p in few if p.cost is not None] == sorted(p.cost.total for p in few if p.cost is not None)


def test_rows_of_regret() -> None:
    points = tuple(Point("f", {"a": n}, 10.0 + n, "compute", (t, t + 1)) for n, t in enumerate((30.0, 20.0, 25.0)))
    row = Row("c/f32/1", "c", "f32", "cpu", "m", "hand", 1, 3, points, 0, (), 0, 0.5, -0.5)
    better = again(row, lambda p: {0: 3.0, 1: 1.0, 2: 2.0}[int(p.point["a"])])
    assert (better.chosen, better.regret, better.rank) == (1, 0.0, 1.0) and row.line().endswith("f a=1")
    assert summary([row, better])[-1].split() == ["all", "2", "25.0%", "50.0%", "0.25"]
    assert json.loads(row.as_json())["measured"][0]["samples_us"] == [30.0, 31.0]
    assert room.least((3.0, 1.0, 2.0)) == 1.0
