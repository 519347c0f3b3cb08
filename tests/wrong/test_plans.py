"""Plans with constraints that cannot be, called with arguments that they do not hold for, loaded from odd files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treadle as td
from treadle.base.errors import TreadleError
from treadle.base.source import shown_path

M, N, K = td.dims("M N K")


@td.kernel
def product(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None, *, factor=1.0):
    for m, n in td.parallel(M, N, name="blocks"):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, n], acc)
        Y[m, n] = acc * factor


@td.kernel
def doubled(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] * 2


A = np.ones((20, 30), np.float32)
B = np.ones((30, 40), np.float32)


def plan(where: Any = (), target: str = "cpu:avx2", **staged: Any) -> Any:
    return product.plan(A, B, target=target, where=where, **staged)


PINS: dict[str, tuple[Any, str]] = {
    "no constraint": (3, "plan/pin-form"),
    "a dictionary": ({"m": 8}, "plan/pin-form"),
    "a list in a list": ([[td.tile(m=8)]], "plan/pin-form"),
    "the function itself": (td.tile, "plan/pin-form"),
    "a block of zero": (td.tile(m=0), "plan/pin-form"),
    "a block of a fraction": (td.tile(m=2.5), "plan/pin-form"),
    "a block of an array": (td.tile(m=np.ones(3)), "plan/pin-form"),
    "versions below one": (td.versions("A", 0), "plan/pin-form"),
    "a memory of no name": (td.place("acc", None), "plan/pin-form"),
    "an unknown block": (td.tile(q=8), "plan/pin-name"),
    "an unknown region": (td.tile(**{"rows.m": 16}), "plan/pin-name"),
    "a dimension for a block": (td.tile(K=8), "plan/pin-name"),
    "an unknown value to place": (td.place("total", "register"), "plan/pin-name"),
    "an unknown value to contract": (td.atom("total", "fma"), "plan/pin-name"),
    "an unknown tensor": (td.versions("Z", 2), "plan/pin-name"),
    "an instruction of another target": (td.atom("acc", "wgmma"), "plan/pin-refused"),
    "a memory that the target lacks": (td.place("acc", "shared"), "plan/pin-refused"),
    "versions where nothing is copied": (td.versions("A", 4), "plan/pin-refused"),
}


def shown(error: TreadleError) -> str:
    text = str(error).replace(shown_path(__file__), "FILE")
    text = re.sub(r"(?<=FILE:)\d+", "LINE", text)
    text = re.sub(r"(?m)^ +\d+(?= \| )", "    LINE", text)
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", re.sub(r"(?m)^ +(?= \| )", "        ", text))


@pytest.mark.parametrize("name", PINS)
def test_constraints(name: str, snapshot: Any) -> None:
    where, code = PINS[name]
    with pytest.raises(TreadleError) as caught:
        plan(where)
    assert caught.value.code == code, str(caught.value)
    if code != "plan/pin-refused":  # the families and what they try are the planner's
        assert shown(caught.value) == snapshot
    else:
        assert "tiled contraction" in caught.value.found


def test_the_right_ones_beside_them() -> None:
    for where in (None, td.tile(m=64), [td.place("acc", "register"), td.atom("acc", "fma")]):
        assert np.array_equal(plan(where)(A, B), A @ B)


MISUSES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "arguments of another layout": (lambda _: plan()(A, B[:, ::2]), "plan/guard"),
    "arguments of another dtype": (lambda _: plan()(A.astype(np.float16), B.astype(np.float16)), "plan/guard"),
    "another staged value": (lambda _: plan()(A, B, factor=3.0), "plan/guard"),
    "a plan for another machine": (lambda _: plan(target="cuda:sm_90a")(A, B), "plan/target-absent"),
    "a file that is not there": (lambda folder: td.load(folder / "nothing.plan"), "plan/unreadable"),
    "a folder": (lambda folder: td.load(folder), "plan/unreadable"),
    "a file of noise": (lambda folder: td.load(_file(folder, bytes(range(256)))), "plan/unreadable"),
    "an empty file": (lambda folder: td.load(_file(folder, b"")), "plan/unreadable"),
    "a plan of another kernel": (lambda folder: td.load(_saved(folder), doubled), "plan/unreadable"),
    "decisions without a program": (lambda folder: td.load(_cut(folder, 0.5)), "plan/unreadable"),
    "most of a plan": (lambda folder: td.load(_cut(folder, 0.9)), "text/syntax"),
}


def _file(folder: Path, content: bytes) -> Path:
    made = folder / "made.plan"
    made.write_bytes(content)
    return made


def _saved(folder: Path) -> Path:
    made = folder / "saved.plan"
    plan().save(made)
    return made


def _cut(folder: Path, share: float) -> Path:
    text = _saved(folder).read_bytes()
    return _file(folder, text[: int(len(text) * share)])


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(name: str, tmp_path: Path) -> None:
    act, code = MISUSES[name]
    with pytest.raises(TreadleError) as caught:
        act(tmp_path)
    assert caught.value.code == code, str(caught.value)


def test_a_saved_plan_is_loaded_and_runs(tmp_path: Path) -> None:
    assert np.array_equal(td.load(_saved(tmp_path), product)(A, B), A @ B)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_plan_is_refused_or_still_judged(tmp_path: Path, data: st.DataObject) -> None:
    whole = tmp_path / "whole.plan"
    if not whole.exists():
        doubled.plan(A[0], target="cpu:avx2").save(whole)
    text = whole.read_bytes()
    at = data.draw(st.integers(0, len(text) - 1))
    what = data.draw(st.binary(min_size=0, max_size=3))
    drop = data.draw(st.integers(0, 20))
    try:
        loaded = td.load(_file(tmp_path, text[:at] + what + text[at + drop :]), doubled)
        assert loaded.check().status == "verified"
    except TreadleError as error:
        assert error.family in ("mistake", "not supported"), str(error)
