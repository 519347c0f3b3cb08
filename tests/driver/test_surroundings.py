"""Kernels are captured anew when what they use beside their arguments is another."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.driver.surroundings import Surroundings

M = td.dims("M")
X = np.arange(5, dtype=np.float32)

FACTOR = 2.0
TABLE = [1.0, 2.0]
NUMBERS = {"a": 1.0}
WEIGHTS = np.array([1.0, 2.0], np.float32)


@dataclasses.dataclass
class Settings:
    shift: float = 0.0


class Names:
    shift = 0.0


SETTINGS = Settings()


def helper(x: Any) -> Any:
    return x + inner()


def inner() -> float:
    return 1.0


@td.kernel
def by_factor(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] * FACTOR


@td.kernel
def by_objects(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] * TABLE[1] + NUMBERS["a"] + SETTINGS.shift + Names.shift + float(WEIGHTS[0])


@td.kernel
def by_helper(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = helper(X[m])


@td.kernel
def by_staged(X: td.Tensor[M], Y: td.Out[M] = None, *, act=None):
    for m in td.parallel(M):
        Y[m] = act(X[m])


@td.kernel
def by_kernel(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = by_factor(X[m]) - 1.0


def positive() -> float:
    assert FACTOR > 0, f"a factor of {FACTOR}"  # pytest rewrites this: it reads a module of pytest
    return FACTOR


@td.kernel
def by_checked(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] * positive()


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = {k: v for k, v in globals().items() if k in ("FACTOR", "inner", "helper")}
    yield
    globals().update(before)
    TABLE[:] = [1.0, 2.0]
    NUMBERS["a"] = 1.0
    WEIGHTS[:] = [1.0, 2.0]
    SETTINGS.shift = Names.shift = 0.0


def test_a_global_number() -> None:
    for value in (2.0, 3.0, 2.0, 4.0):
        globals()["FACTOR"] = value
        for _ in range(3):
            assert (by_factor(X) == X * value).all()
        assert (by_factor.reference(X) == X * value).all()
        assert (by_factor.bind(X)() == X * value).all()
        assert (by_kernel(X) == X * value - 1).all()
    assert len({v.record.digest for v in by_factor.variants}) == 3  # a value that comes back is no new code


def test_what_mutable_objects_hold() -> None:
    assert (by_objects(X) == X * 2 + 2).all()
    TABLE[1] = 5.0
    assert (by_objects(X) == X * 5 + 2).all()
    NUMBERS["a"] = 0.0
    assert (by_objects(X) == X * 5 + 1).all()
    SETTINGS.shift = 10.0
    assert (by_objects(X) == X * 5 + 11).all()
    Names.shift = 100.0
    assert (by_objects(X) == X * 5 + 111).all()
    WEIGHTS[0] = 0.0
    assert (by_objects(X) == X * 5 + 110).all()


def test_called_functions_and_what_they_call() -> None:
    assert (by_helper(X) == X + 1).all()

    def other() -> float:
        return 2.0

    globals()["inner"] = other
    assert (by_helper(X) == X + 2).all()
    globals()["helper"] = lambda x: x * 7.0
    assert (by_helper(X) == X * 7).all()


def test_closures() -> None:
    amount = 1.0

    @td.kernel
    def local(X: td.Tensor[M], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = X[m] + amount

    assert (local(X) == X + 1).all()
    amount = 6.0
    assert (local(X) == X + 6).all()


def test_functions_given_as_staged_values() -> None:
    for value in (2.0, 9.0):
        globals()["FACTOR"] = value
        assert (by_staged(X, act=doubled) == X * value).all()


def doubled(x: Any) -> Any:
    return x * FACTOR


def test_a_module_that_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = write(tmp_path, 1)

    @td.kernel
    def through(X: td.Tensor[M], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = module.added(X[m])

    assert (through(X) == X + 1).all()
    write(tmp_path, 25)
    # Python goes on with what was loaded, and so does a capture for another dtype.
    assert (through(X.astype(np.float64)) == X + 1).all()
    importlib.reload(module)
    assert (through(X) == X + 25).all() and (through(X.astype(np.float64)) == X + 25).all()


def write(folder: Path, number: int) -> types.ModuleType:
    text = f"""
        def added(x):
            return x + {number}
        """
    (folder / "surrounding_module.py").write_text(textwrap.dedent(text))
    importlib.invalidate_caches()
    return sys.modules.get("surrounding_module") or importlib.import_module("surrounding_module")


def test_what_nobody_changes_is_not_watched() -> None:
    around = Surroundings(by_factor.definition)
    assert not around.changed()
    around.add([np.exp, td.gelu, len, 3, None, [around]])
    assert not around.changed()


def test_what_installed_packages_use_is_not_looked_at() -> None:
    assert any("pytest" in name for name in positive.__code__.co_names)
    assert Surroundings(by_checked.definition).watched < 50
    for value in (2.0, 3.0):
        globals()["FACTOR"] = value
        assert (by_checked(X) == X * value).all()


def test_the_total_is_bounded() -> None:
    around = Surroundings(by_factor.definition)
    around.add([[[i] for i in range(5_000)]])
    assert around.watched < 4_000 and not around.changed()


def test_a_kernel_of_an_installed_package_watches_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.driver.surroundings._installed", lambda package: True)
    around = Surroundings(by_helper.definition)
    globals()["inner"] = positive
    assert around.changed()
