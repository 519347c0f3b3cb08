"""The exact texts of this room's errors; every code of the room has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion
from tests.driver import wrong as w

import treadle as td
from treadle.base.errors import TreadleError
from treadle.checker.verdict import Verdict
from treadle.driver import build, plan
from treadle.driver.check import judge_text
from treadle.driver.describe import described_plan
from treadle.driver.devices import on_one_device
from treadle.driver.locate import locate, numbers, settings
from treadle.driver.targets import resolve
from treadle.runtime.arrays import ArrayView

ROOT = Path(__file__).resolve().parents[2]
Patch = pytest.MonkeyPatch
X = np.ones(6, np.float32)
BOTH = np.zeros(12, np.float32)


def like_shape(patch: Patch, tmp: Path) -> None:
    td.like(td.f32, 3, 4, strides=(4,))


def like_align(patch: Patch, tmp: Path) -> None:
    td.like(td.f32, 3, align=2)


def arguments_missing(patch: Patch, tmp: Path) -> None:
    w.scale(X)


def arguments_many(patch: Patch, tmp: Path) -> None:
    w.scale(X, 1.0, X, X)


def arguments_unknown(patch: Patch, tmp: Path) -> None:
    w.scale(X, 1.0, other=2)


def arguments_read_first(patch: Patch, tmp: Path) -> None:
    w.added(X)


def arguments_counted_first(patch: Patch, tmp: Path) -> None:
    w.counted(np.zeros(3, np.int32), np.zeros(4, np.int32))


def bound(patch: Patch, tmp: Path) -> None:
    w.pairs.bind(np.ones(4, np.float32))(1)


def dtype_array(patch: Patch, tmp: Path) -> None:
    w.spread(X)


def dtype_number(patch: Patch, tmp: Path) -> None:
    w.scale(X, "2")


def rank(patch: Patch, tmp: Path) -> None:
    w.scale(X.reshape(6, 1), 2.0)


def conflict(patch: Patch, tmp: Path) -> None:
    w.scale(X, 2.0, np.empty(5, np.float32))


def unknown(patch: Patch, tmp: Path) -> None:
    w.spread(X.astype(np.float16))


def require(patch: Patch, tmp: Path) -> None:
    w.pairs(X[:5])


def overlap(patch: Patch, tmp: Path) -> None:
    w.pairs(X, BOTH[:6], BOTH[5:11])


def guard_fact(patch: Patch, tmp: Path) -> None:
    w.pairs.plan(X, target="cpu:avx2")(BOTH[::2])


def guard_program(patch: Patch, tmp: Path) -> None:
    w.scale.plan(X, 1.0, target="cpu:avx2")(X, 1.0, by=2)


def target(patch: Patch, tmp: Path) -> None:
    resolve("cpu:sse2")


def target_absent(patch: Patch, tmp: Path) -> None:
    made = w.scale.plan(X, 1.0, target="cpu:avx512")
    patch.setattr(plan, "host_target", lambda: "cpu:avx2")
    made(X, 1.0)


def target_of_no_kernel(patch: Patch, tmp: Path) -> None:
    w.scale.plan(X, 1.0, target="cpu:avx2").save(tmp / "scale.plan")
    td.load(tmp / "scale.plan")(X, 1.0)


def arrays_elsewhere(patch: Patch, tmp: Path) -> None:
    raise plan.arrays_elsewhere("scale", "cpu:avx2", "cuda:0")


def judged(patch: Patch, status: str) -> None:
    verdict = Verdict(status, judgement="J1", reason="reads X outside its axis 0", missing="m < M")
    patch.setattr(build, "check", lambda machine: verdict)


def universal_unknown(patch: Patch, tmp: Path) -> None:
    judged(patch, "unknown")
    w.scale.plan(X, 1.0, target="cpu:avx2")


def universal_unverified(patch: Patch, tmp: Path) -> None:
    judged(patch, "rejected")
    w.scale.plan(X, 1.0, target="cpu:avx2")


def unverified(patch: Patch, tmp: Path) -> None:
    w.scale.plan(X, 1.0, target="cpu:avx2").save(tmp / "scale.plan")
    judged(patch, "unknown")
    td.load(tmp / "scale.plan", w.scale)


def source_differs(patch: Patch, tmp: Path) -> None:
    text = w.scale.plan(X, 1.0, target="cpu:avx2").machine()
    judge_text(text, "scale.tdm", w.scale.program(X, 1.0, by=2))


def plan_of_another(patch: Patch, tmp: Path) -> None:
    w.scale.plan(X, 1.0).save(tmp / "scale.plan")
    td.load(tmp / "scale.plan", w.added)


def no_kernel(patch: Patch, tmp: Path) -> None:
    locate(f"{ROOT}/tests/driver/wrong.py:square")


def no_file(patch: Patch, tmp: Path) -> None:
    locate("kernels.py")


def no_name(patch: Patch, tmp: Path) -> None:
    locate(f"{ROOT}/tests/driver/wrong.py")


def no_list(patch: Patch, tmp: Path) -> None:
    w.of_devices(X)


def unlike_list(patch: Patch, tmp: Path) -> None:
    w.of_devices([X, X[1:]])


def tuning_repeatable(patch: Patch, tmp: Path) -> None:
    w.scale.under(td.Numerics(repeatable="run")).tune(X, 1.0, by=1)


def tuning_overlap(patch: Patch, tmp: Path) -> None:
    w.scale.tune(X, 1.0, X)


def several_gpus(patch: Patch, tmp: Path) -> None:
    views = {f"X_{k}": ArrayView(4096, (3,), (1,), "f32", f"cuda:{k}", True, None) for k in range(2)}
    on_one_device(w.of_devices.definition, views)


def no_text(patch: Patch, tmp: Path) -> None:
    w.own.plan(X, target="cpu:avx512")


def broken_text(patch: Patch, tmp: Path) -> None:
    w.misspelt.plan(X, target="cpu:avx2").record


def argument_dimension(patch: Patch, tmp: Path) -> None:
    described_plan(f"{ROOT}/tests/driver/wrong.py:scale", [], [], ["K=4"], [], None)


def argument_extent(patch: Patch, tmp: Path) -> None:
    described_plan(f"{ROOT}/tests/driver/wrong.py:unrolled", [], [], ["M=4"], [], None)


def argument_number(patch: Patch, tmp: Path) -> None:
    numbers(["M=4k"])


def argument_set(patch: Patch, tmp: Path) -> None:
    settings(["by=x y"])


CASES: dict[str, list[Callable[[Patch, Path], None]]] = {
    "call/like": [like_shape, like_align],
    "call/arguments": [
        arguments_missing,
        arguments_many,
        arguments_unknown,
        arguments_read_first,
        arguments_counted_first,
    ],
    "call/bound": [bound],
    "call/dtype": [dtype_array, dtype_number],
    "call/rank": [rank],
    "call/extent-conflict": [conflict],
    "call/extent-unknown": [unknown],
    "call/require": [require],
    "call/overlap": [overlap],
    "call/devices": [no_list, unlike_list],
    "limit/devices": [several_gpus],
    "tune/unsupported": [tuning_repeatable, tuning_overlap],
    "limit/intrinsic": [no_text],
    "plan/intrinsic-text": [broken_text],
    "plan/guard": [guard_fact, guard_program],
    "plan/target": [target],
    "plan/target-absent": [target_absent, target_of_no_kernel, arrays_elsewhere],
    "plan/universal-unknown": [universal_unknown],
    "plan/universal-unverified": [universal_unverified],
    "plan/unverified": [unverified],
    "plan/unreadable": [plan_of_another],
    "machine/source-differs": [source_differs],
    "cli/kernel": [no_kernel, no_file, no_name],
    "cli/argument": [argument_number, argument_set, argument_dimension, argument_extent],
}


@pytest.mark.parametrize(
    "code, make",
    [(c, m) for c, made in CASES.items() for m in made],
    ids=lambda v: str(v) if isinstance(v, str) else v.__name__,
)
def test_text(
    code: str, make: Callable[[Patch, Path], None], snapshot: SnapshotAssertion, monkeypatch: Patch, tmp_path: Path
) -> None:
    with pytest.raises(TreadleError) as caught:
        make(monkeypatch, tmp_path)
    assert caught.value.code == code
    text = str(caught.value).replace(f"{ROOT}/", "").replace(f"{tmp_path}/", "")
    if caught.value.span is not None and caught.value.span.file == __file__:  # where this file stands is no text
        text = re.sub(r"(?m)(?<=test_error_texts.py:)\d+", "LINE", text)
        text = re.sub(r"(?m)^ +\d+(?= \| )", "    LINE", text)
        text = re.sub(r"(?m)^ +(?= \| )", "        ", text)
    assert text == snapshot
