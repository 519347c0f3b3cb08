"""Kernels copied and pickled, plans saved to and loaded from what is no path, dtypes by NumPy's names."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.base.errors import TreadleError

M = td.dims("M")
X = np.arange(5, dtype=np.float32)


@td.kernel
def doubled(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * 2.0


def test_copies_are_the_kernel_itself() -> None:
    assert copy.copy(doubled) is doubled and copy.deepcopy([doubled])[0] is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled


@pytest.mark.parametrize(
    "do",
    [
        lambda plan, _: plan.save(3),
        lambda plan, folder: plan.save(folder / "none" / "x"),
        lambda plan, _: td.load(3, doubled),
        lambda plan, folder: (plan.save(folder / "x"), td.load(folder / "x", X)),
    ],
)
def test_what_is_no_path_or_kernel(do: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(TreadleError) as caught:
        do(doubled.plan(X), tmp_path)
    assert caught.value.code == "capture/argument"


def test_dtypes_by_the_names_of_numpy() -> None:
    for name, kind in (("float32", td.f32), ("int64", td.i64), ("float16", td.f16)):
        assert td.like(name, 3).dtype == kind
    for name in ("f8", "M", "float", "complex64", "datetime64"):
        with pytest.raises(TreadleError):
            td.like(name, 3)


def test_the_command_line_as_a_module() -> None:
    ran = subprocess.run([sys.executable, "-m", "treadle.cli", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == td.__version__
