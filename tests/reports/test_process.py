"""The process around kernels: what calls leave alone, caches, printing, variants, missing devices, imports."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import treadle as td
from treadle.driver.arguments import bind_arguments

M, N = td.dims("M N")
REPOSITORY = Path(__file__).resolve().parents[2]


@td.kernel
def halved_in_place(X: td.Out[M, N]):
    for m in td.parallel(M):
        X[m, N] = X[m, N] * 0.5


@td.kernel
def row_sums(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N)


# U28: only a call changes the user's data, and once.


def test_u28_looking_at_a_kernel_changes_nothing() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    before = x.copy()
    plan = halved_in_place.plan(x)
    assert plan.explain() and plan.check().status == "verified" and plan.source()
    launch = halved_in_place.bind(x)
    assert halved_in_place.sanitize(x) == []
    assert np.array_equal(x, before)
    halved_in_place(x)
    assert np.array_equal(x, before / 2)
    launch()
    assert np.array_equal(x, before / 4)
    plan(x)
    assert np.array_equal(x, before / 8)


# U33: a mistake in one call leaves the next alone.


def test_u33_a_failing_call_harms_no_other() -> None:
    @td.kernel
    def checked(X: td.Tensor[N], Y: td.Out[N] = None):
        for n in td.parallel(N):
            td.check(X[n] < 5, "too large")
            Y[n] = X[n]

    x = np.arange(8, dtype=np.float32)
    for _ in range(3):
        with pytest.raises(td.TreadleError) as caught:
            checked(x)
        assert caught.value.code == "check/failed" and "too large" in str(caught.value)
        assert np.array_equal(checked(x[:5]), x[:5])
        assert np.array_equal(row_sums(x.reshape(2, 4)), x.reshape(2, 4).sum(1))


# U52: what is missing is said before anything is compiled.


def test_u52_a_plan_for_a_device_that_is_not_here_says_so() -> None:
    x = np.ones((4, 4), np.float32)
    plan = row_sums.plan(x, target="cuda:sm_90a")
    assert plan.check().status == "verified"
    with pytest.raises(td.TreadleError) as caught:
        plan(x)
    assert caught.value.code == "plan/target-absent"
    assert "cuda:sm_90a" in str(caught.value) and caught.value.hint


def test_u52_doctor_names_what_is_missing() -> None:
    done = run("-m", "treadle", "doctor")
    assert done.returncode == 0
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines() if " " in line)
    assert {"treadle", "python", "cuda", "workers", "cache"} <= lines.keys()


# U66 and U69 and U70: caches.

HELPED = """
import treadle as td

M = td.dims("M")

def shifted(x):
    return x + {by}

@td.kernel
def kernel(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = shifted(X[m])
"""


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_u66_a_changed_helper_is_a_changed_kernel(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    for i, by in enumerate((1, 2, 1)):
        file = tmp_path / f"helped{i}.py"
        file.write_text(HELPED.format(by=by))
        kernel = load(file, f"helped{i}").kernel
        assert np.array_equal(kernel(x), x + by) and np.array_equal(kernel(x), x + by)


ELSEWHERE = """
def shifted(x):
    return x + {by}
"""
CALLS_ELSEWHERE = """
import numpy as np
import treadle as td
import elsewhere

M = td.dims("M")

@td.kernel
def kernel(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = elsewhere.shifted(X[m])

print(kernel(np.zeros(2, np.float32)).tolist())
elsewhere.shifted = lambda x: x + 7
print(kernel(np.zeros(2, np.float32)).tolist())
"""


def test_u66_a_function_of_another_file_that_changed_is_seen_by_processes_of_one_cache(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS_ELSEWHERE)
    for by in (1, 2):
        (tmp_path / "elsewhere.py").write_text(ELSEWHERE.format(by=by))
        done = run(str(tmp_path / "calls.py"), TREADLE_CACHE=str(tmp_path / "cache"), PYTHONDONTWRITEBYTECODE="1")
        assert done.stdout.splitlines() == [f"[{by}.0, {by}.0]", "[7.0, 7.0]"], done.stderr


FACTOR = 3.0


@td.kernel
def scaled_by_a_global(X: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N):
        Y[n] = X[n] * FACTOR


def test_u66_a_changed_global_is_a_changed_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(4, dtype=np.float32)
    for factor in (3.0, 5.0, 3.0):
        monkeypatch.setattr(sys.modules[__name__], "FACTOR", factor)
        for run_once in (scaled_by_a_global, scaled_by_a_global.reference, scaled_by_a_global):
            assert np.array_equal(run_once(x), x * factor)


WORK = """
import numpy as np
import treadle as td

M, N = td.dims("M N")

@td.kernel
def kernel(X: td.Tensor[M, N], Y: td.Out[M] = None, *, k=0):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N) * k

x = np.ones((3, 5), np.float32)
print([float(kernel(x, k=k)[0]) for k in range(8)])
"""


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
    )


def test_u69_u70_processes_share_one_cache(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(WORK)
    words = [sys.executable, str(script)]
    environment = {**os.environ, "TREADLE_CACHE": str(tmp_path / "cache")}
    started = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    done = [p.communicate(timeout=300) for p in started]
    assert [p.returncode for p in started] == [0, 0], done
    assert {out for out, _ in done} == {f"{[5.0 * k for k in range(8)]}\n"}


def test_u70_a_plan_is_recorded_and_pinned(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((33, 129), np.float32)
    first = row_sums.plan(x)
    first.save(tmp_path / "a.plan")
    td.load(tmp_path / "a.plan", row_sums).save(tmp_path / "b.plan")
    assert (tmp_path / "a.plan").read_bytes() == (tmp_path / "b.plan").read_bytes()
    again = td.load(tmp_path / "b.plan", row_sums)
    assert again.decisions.to_json() == first.decisions.to_json() and again.guard == first.guard
    results = [first(x), again(x), first(x)]
    assert all(np.array_equal(results[0], r) for r in results)


# U72: which device an argument is on.


class Elsewhere:
    """An array that says it lies on a GPU, at an address that this process must not touch."""

    def __init__(self, device: int, *shape: int) -> None:
        self.device = SimpleNamespace(id=device)
        self.__cuda_array_interface__ = {"typestr": "<f4", "shape": shape, "data": (4096, False), "version": 3}


def test_u72_arrays_of_several_devices_are_refused_by_name() -> None:
    x = np.ones((2, 2), np.float32)
    for first, second, said in (
        (x, Elsewhere(1, 2), "X on cpu; Y on cuda:1"),
        (Elsewhere(0, 2, 2), Elsewhere(1, 2), "X on cuda:0; Y on cuda:1"),
    ):
        with pytest.raises(td.TreadleError) as caught:
            row_sums(first, second)
        assert caught.value.code == "array/devices" and said in caught.value.found


def test_u72_the_device_is_that_of_the_arrays() -> None:
    """Whichever device is the current one: a call with arrays of GPU 1 asks for GPU 1."""
    call = bind_arguments(row_sums.definition, (Elsewhere(1, 2, 2), Elsewhere(1, 2)), {})
    assert call.device == "cuda:1"


# U74: a whole tile is shown.


@td.kernel
def printed(X: td.Tensor[M, N, td.i32], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N]
        td.print("x", x)
        td.print("odd", x, where=x % 2 == 1)
        Y[m, N] = x


@pytest.mark.parametrize("way", ["__call__", "reference"])
def test_u74_every_element_is_printed_with_its_coordinates(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(5 * 33, dtype=np.int32).reshape(5, 33)
    assert np.array_equal(getattr(printed, way)(x), x)
    lines = sorted(capsys.readouterr().out.splitlines())
    every = [f"x[M = {m}, N = {n}] = {x[m, n]}" for m in range(5) for n in range(33)]
    odd = [f"odd[M = {m}, N = {n}] = {x[m, n]}" for m in range(5) for n in range(33) if x[m, n] % 2]
    assert lines == sorted(every + odd)


# U76: how many plans a kernel keeps.


def test_u76_variants_are_few_and_can_be_one() -> None:
    @td.kernel
    def many(X: td.Tensor[M, N], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = X[m, N].max(N)

    @td.kernel(variants=1)
    def one(X: td.Tensor[M, N], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = X[m, N].max(N)

    for batch in (1, 3, 16, 17, 2, 64, 5, 1):
        x = np.arange(batch * 20, dtype=np.float32).reshape(batch, 20)
        assert np.array_equal(many(x), x.max(1)) and np.array_equal(one(x), x.max(1))
    assert 1 <= len(many.variants) <= 8
    assert len(one.variants) <= 2  # its own, and the universal plan for what that does not cover


# U78: importing needs nothing that only some machines have.


def test_u78_import_needs_no_device_library() -> None:
    blocked = ["torch", "cuda", "cupy", "nvidia"]
    script = f"""
        import sys
        for name in {blocked!r}:
            sys.modules[name] = None
        import numpy as np
        import treadle as td
        M = td.dims("M")
        @td.kernel
        def k(X: td.Tensor[M], Y: td.Out[M] = None):
            for m in td.parallel(M):
                Y[m] = X[m] + 1
        print(k(np.zeros(2, np.float32)).tolist())
        plan = k.plan(td.like(td.f32, 8), target="cuda:sm_90a")
        print(plan.check().status)
        try:
            plan(np.zeros(8, np.float32))
        except td.TreadleError as error:
            print(error.code)
    """
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"treadle_import_{os.getpid()}.py"
    path.write_text(textwrap.dedent(script))
    try:
        done = run(str(path))
    finally:
        path.unlink()
    assert done.stdout.split() == ["[1.0,", "1.0]", "verified", "plan/target-absent"], done.stderr
