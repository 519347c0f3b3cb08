"""Reference interpreter and CPU call against the oracle, in memory full of NaN: shapes and layouts of every kind."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tests.differential.cases import CASES, Case, Sizes, off
from tests.differential.frames import Framed, framed

from treadle.driver.variants import Interpreted

LAYOUTS = ("plain", "pitched", "strided", "transposed", "negative", "broadcast")


def arguments(case: Case, sizes: Sizes, layouts: Any, seed: int) -> tuple[dict[str, Any], dict[str, Framed]]:
    """Arguments by name, and the frames of those that are arrays; outputs full of NaN."""
    random = np.random.default_rng(seed)
    frames: dict[str, Framed] = {}
    passed: dict[str, Any] = {}
    for name, value in case.inputs(sizes, random).items():
        if isinstance(value, np.ndarray):
            layout = next(layouts)
            fixed = name in case.fixed_layout and layout == "broadcast"
            frames[name] = framed(value, "plain" if fixed else layout)
            value = frames[name].array
        passed[name] = value
    for name, (shape, dtype) in case.outs(sizes).items():
        layout = next(layouts)
        frames[name] = framed(np.full(shape, 77, dtype), "plain" if layout == "broadcast" else layout)
        passed[name] = frames[name].array
    return passed, frames


def compare(case: Case, passed: dict[str, Any], frames: dict[str, Framed], run: Any, what: str) -> None:
    """Runs a call on framed arguments: results, and everything around them."""
    wants = case.wants(passed)
    given = {n: passed[n] for n in wants}
    got = run(**passed, **case.staged)
    outs = got if isinstance(got, tuple) else (got,)
    assert all(o is given[n] for n, o in zip(given, outs, strict=True))
    for name, (want, bound) in wants.items():
        assert off(given[name], want, bound) == "", f"{case} {what}: {name}"
    assert [n for n, f in frames.items() if not f.unchanged(written=n in wants)] == [], f"{case} {what}: memory"


def cycle(start: int) -> Any:
    number = start
    while True:
        yield LAYOUTS[number % len(LAYOUTS)]
        number += 1


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_interpreter(case: Case) -> None:
    for number, sizes in enumerate(case.sizes[:3] if "attention" in case.name else case.sizes[:4]):
        passed, frames = arguments(case, sizes, cycle(number), number)
        compare(case, passed, frames, case.kernel.reference, f"interpreted at {sizes}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_cpu(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, sizes in enumerate(case.sizes):
            passed, frames = arguments(case, sizes, cycle(number % 2), number)
            compare(case, passed, frames, case.kernel, f"called at {sizes}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_layout_on_the_cpu(case: Case) -> None:
    for layout in LAYOUTS:
        passed, frames = arguments(case, case.sizes[0], iter([layout] * 9), 1)
        compare(case, passed, frames, case.kernel, f"called with {layout} arguments")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_left_out(case: Case) -> None:
    passed, _ = arguments(case, case.sizes[0], cycle(0), 2)
    inputs = {n: v for n, v in passed.items() if n not in case.outs(case.sizes[0])}
    got = case.kernel(**inputs, **case.staged)
    outs = got if isinstance(got, tuple) else (got,)
    for (name, (want, bound)), made in zip(case.wants(passed).items(), outs, strict=True):
        # Results that the call does not narrow are as good as those it stores in the caller's dtype.
        assert off(made, want, bound) == "", f"{case}: {name}"


@pytest.mark.parametrize("case", [c for c in CASES if c.in_place], ids=str)
def test_in_place(case: Case) -> None:
    """An output that is an input: as if the input had been a copy."""
    assert case.in_place is not None
    out, source = case.in_place
    passed, frames = arguments(case, case.sizes[0], cycle(1), 3)
    passed = {**passed, source: passed[source].copy()}
    wants = case.wants(passed)
    frames[out].array[...] = passed[source]
    call = {**passed, source: frames[out].array, out: frames[out].array}
    case.kernel(**call, **case.staged)
    want, bound = wants[out]
    assert off(frames[out].array, want, bound) == "" and frames[out].unchanged(written=True)


def test_one_array_for_two_inputs() -> None:
    linear = next(c for c in CASES if c.name == "linear_f32_plain")
    x = np.random.default_rng(0).integers(-3, 4, (33, 33)).astype(np.float32)
    assert (linear.kernel(x, x) == x @ x).all()
    assert (linear.kernel(x, x.T) == x @ x.T).all()
    assert (linear.kernel(x[::-1], x[:, ::-1]) == x[::-1] @ x[:, ::-1]).all()


def test_no_case_needs_the_interpreter() -> None:
    """All kernels of the list have judged plans (overlapping arguments aside)."""
    slow = [
        f"{case}: {v.plan}"
        for case in CASES
        for v in case.kernel.variants
        if isinstance(v, Interpreted) and "overlaps" not in v.reason
    ]
    assert slow == []
