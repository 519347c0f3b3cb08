"""Calls that no judged plan covers: the reference interpreter runs them, and everyone can see it."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.base.errors import TreadleError
from treadle.checker.verdict import Verdict
from treadle.driver import prints, settling
from treadle.driver import specialisation as module
from treadle.driver.overlap import copies_suffice
from treadle.plan.pins import NoPlan

X = np.arange(7, dtype=np.float32)
EXPECTED = {"double": True, "checked": True, "twice_over": False, "running": False}


def refused(patch: pytest.MonkeyPatch) -> None:
    """Plans are refused as if the program had a form that no plan can say."""
    build = module.room("build")

    def choose(*args: Any, **options: Any) -> Any:
        raise NoPlan(doing="planning", found="an operation `whirl`", expected="a family that admits it", hint="none")

    patch.setattr(module, "fetch", lambda key: None)
    patch.setattr(settling, "fetch", lambda key: None)
    patch.setattr(build, "choose", choose)


def test_operations_without_a_machine_form(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(monkeypatch)
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
    assert variant.plan == "reference interpreter (no machine program: an operation `whirl`)"
    assert variant.verdict["status"] == "none"


def test_prints_that_no_launch_keeps_run_in_the_interpreter_and_say_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(RuntimeWarning, match="reference interpreter") as seen:
        assert (k.printed_cut(X) == X + 1).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (k.printed_cut.bind(X)() == X + 1).all()
    assert capsys.readouterr().out.splitlines() == ["start = 0"] * 2
    (variant,) = k.printed_cut.variants
    why = r"td\.print\('start'\) at \S*kernels\.py:\d+ is shown once a block, however M is cut into blocks"
    assert re.fullmatch(rf"reference interpreter \({why}\)", variant.plan)
    assert re.search(why, str(seen[0].message)) and seen[0].filename == __file__


def test_a_print_whose_number_is_loaded_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(RuntimeWarning, match=r"td\.print\('i'\) at \S*kernels\.py:\d+ shows as many elements as"):
        k.printed_loaded(X[:2], np.array([1, 2], np.int32))
    assert capsys.readouterr().out.splitlines() == ["i = 0", "i = 0", "i = 1"]


PRINTING = [
    (k.printed, lambda r: [r.standard_normal(9).astype(np.float32)]),
    (k.printed_rows, lambda r: [r.integers(-3, 3, (4, 5)).astype(np.float32)]),
    (k.printed_product, lambda r: [r.integers(-3, 3, s).astype(np.float32) for s in ((7, 9), (9, 6))]),
]


@pytest.mark.parametrize("kernel, make", PRINTING, ids=lambda x: getattr(x, "__name__", ""))
def test_compiled_kernels_print_what_the_interpreter_prints(
    kernel: td.Kernel, make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same lines in the same order, by calls, bound calls and plans, again and again."""
    args = make(np.random.default_rng(1))
    expected = kernel.reference(*args)
    lines = capsys.readouterr().out
    assert len(lines.splitlines()) > 8
    plan, bound = kernel.plan(*args), kernel.bind(*args)
    for run in (lambda: kernel(*args), lambda: kernel(*args), bound, lambda: plan(*args)):
        np.testing.assert_equal(run(), expected)
        assert capsys.readouterr().out == lines
    assert [v.verdict["status"] for v in kernel.variants] == ["verified"]
    assert kernel.sanitize(*args) == [] and capsys.readouterr().out == ""


def test_more_prints_than_a_launch_keeps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prints, "MOST", 4)
    assert (k.printed_few(np.arange(4.0, dtype=np.float32)) == 1).all()
    with pytest.warns(RuntimeWarning, match="td.print shows more than 4 elements"):
        assert (k.printed_few(np.arange(5.0, dtype=np.float32)) == 1).all()
    assert capsys.readouterr().out.splitlines() == ["x[M = 3] = 3.0", "x[M = 3] = 3.0", "x[M = 4] = 4.0"]
    assert [v.verdict["status"] for v in k.printed_few.variants] == ["verified", "none"]


def test_a_failed_check_is_raised_after_the_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for run in (k.printed_checked, k.printed_checked.reference):
        with pytest.raises(TreadleError) as caught:
            run(np.array([1.0, -2.0], np.float32))
        assert caught.value.code == "check/failed"
        assert capsys.readouterr().out.splitlines() == ["x[M = 0] = 1.0", "x[M = 1] = -2.0"]


def checks_raised(run: Any) -> None:
    with pytest.raises(TreadleError) as caught:
        run()
    assert caught.value.code == "check/failed" and "no negative numbers" in str(caught.value)


def test_checks_raise_after_the_launch() -> None:
    out = np.empty_like(X)
    for _ in range(3):
        assert (k.checked(X) == X).all()
        checks_raised(lambda: k.checked(-X - 1, out))
        assert (out == -X - 1).all()  # the launch is finished all the same
    assert k.checked(X[:0]).shape == (0,)
    checks_raised(lambda: k.checked.reference(-X - 1))
    bad = -X - 1
    launch, good = k.checked.bind(bad, out), k.checked.bind(X)
    for _ in range(2):
        checks_raised(launch)
        assert (good() == X).all()
    bad[...] = X
    assert (launch() == X).all()
    plan = k.checked.plan(X)
    assert plan.check().status == "verified" and (plan(X) == X).all()
    checks_raised(lambda: plan(-X - 1))
    assert [v.verdict["status"] for v in k.checked.variants] == ["verified"] * len(k.checked.variants)


def test_the_first_of_several_checks_is_told() -> None:
    for x, message in ((X - 3, "no negative numbers"), (X * 100, "no large numbers"), (X - 100, "no negative numbers")):
        with pytest.raises(TreadleError, match=message):
            k.checked_twice(x)
    assert k.checked_twice(X).tolist() == X.tolist()


def judged(patch: pytest.MonkeyPatch, status: str) -> Any:
    build = module.room("build")
    patch.setattr(module, "fetch", lambda key: None)
    patch.setattr(settling, "fetch", lambda key: None)
    patch.setattr(module, "keep", lambda key, record: None)
    patch.setattr(settling, "keep", lambda key, record: None)
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
    monkeypatch.setattr(settling, "fetch", lambda key: None)
    monkeypatch.setattr(module, "keep", lambda key, record: None)
    monkeypatch.setattr(settling, "keep", lambda key, record: None)
    monkeypatch.setattr(build, "assemble", refuses)
    kernel = td.kernel(k.double.definition.fn)
    assert (kernel(X) == 2 * X).all()
    assert [v.record.meta["family"] for v in kernel.variants] == ["universal"]


def test_an_output_that_overlaps_an_input() -> None:
    kernel = td.kernel(k.double.definition.fn)
    y = X.copy()
    for n in (1, 2):
        assert kernel(y, y) is y and (y == X * 2**n).all()
    launch = kernel.bind(y, y)
    assert (launch() == X * 8).all() and (launch() == X * 16).all() and launch.launch() is y
    shifted = np.zeros(9, np.float32)
    shifted[:7] = X
    assert (kernel(shifted[:7], shifted[2:]) == 2 * X).all()  # as if the input had been read before
    # One plan that runs in place, one that reads a copy of the input.
    assert [v.verdict["status"] for v in kernel.variants] == ["verified", "verified"]
    assert ["same(X, Y)" in str(v.guard) for v in kernel.variants] == [True, False]


def test_every_input_in_place_that_the_judge_verifies() -> None:
    kernel = td.kernel(k.scaled.definition.fn)
    for first, second in ((True, False), (False, True), (True, True)):
        y = X.copy()
        assert kernel(y if first else X, y if second else X, y) is y and (y == X * X).all()
    assert len({str(v.guard) for v in kernel.variants}) == 3


def test_an_order_that_does_not_hold_in_place_reads_a_copy() -> None:
    y = X.copy()
    assert k.turned_over(y, y) is y and (y == X[::-1]).all()
    assert not any("same" in str(v.guard) for v in k.turned_over.variants)


def test_a_serial_loop_in_place_has_a_plan() -> None:
    y = X.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert k.running(y, y) is y and (y == np.cumsum(X)).all()
    assert (k.running.bind(y, y)() == np.cumsum(np.cumsum(X))).all()
    assert [v.verdict["status"] for v in k.running.variants] == ["verified"]


def test_several_outputs_each_in_place_of_an_input() -> None:
    x, y = X.copy(), X + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        k.two_in_place(x, y, x, y)  # X is read after Z is stored, but lies under Y
    assert (x == X + (X + 1)).all() and (y == (X + 1) * 2).all()


def test_an_input_that_is_read_after_the_output_was_stored() -> None:
    y = X.copy()
    for n in (1, 2):
        assert k.twice_over(y, y) is y and (y == X * 4**n).all()
    assert (k.twice_over(X) == 2 * X).all()
    kernel = td.kernel(k.running.definition.fn)
    held = np.full(8, 3, np.float32)
    kernel(held[:7], held[1:])  # X[m + 1] is Y[m]
    assert (held[1:] == 3 * 2.0 ** np.arange(7)).all()
    (variant,) = kernel.variants
    assert variant.verdict["status"] == "verified" and "disjoint" not in str(variant.guard)


def test_when_copies_of_inputs_mean_the_same() -> None:
    programs = {name: kernel.program(td.like(td.f32, 7)) for name, kernel in vars(k).items() if name in EXPECTED}
    assert {name: copies_suffice(p, ["X"], ["Y"]) for name, p in programs.items()} == EXPECTED


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
