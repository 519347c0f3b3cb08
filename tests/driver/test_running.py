"""Bound calls, several threads, child processes, and what calls must never do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.base.errors import TreadleError
from treadle.driver import specialisation
from treadle.driver.rooms import planning
from treadle.runtime import launch as launch_module
from treadle.runtime.pool_systems import MAX_WORKERS

ROOT = Path(__file__).resolve().parents[2]
M, N = td.dims("M N")
X = np.arange(12, dtype=np.float32)


def test_a_bound_call() -> None:
    x, y = X.copy(), np.empty_like(X)
    launch = k.double.bind(x, y)
    assert isinstance(launch, td.Launch)
    assert launch() is y and (y == 2 * X).all()
    x += 1
    assert launch.launch() is y and (y == 2 * X + 2).all()


def test_a_bound_call_takes_no_arguments() -> None:
    overlapping = X.copy()
    for launch in (k.double.bind(X.copy()), k.pairs.bind(overlapping[:6], overlapping[6:], overlapping[:6])):
        with pytest.raises(TreadleError) as caught:
            launch(X, X)
        assert caught.value.code == "call/bound" and caught.value.found == "2 arguments"
        assert caught.value.span is not None and caught.value.span.file == __file__


def test_a_call_of_as_many_workers_as_the_pool_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with so many cores, more than a byte holds."""
    k.double(X)
    special, call = k.double.prepare((X,), {})
    block = special._block(call)
    keys = set()
    for count in (1, 2, 255, MAX_WORKERS):
        monkeypatch.setattr(specialisation, "workers", lambda count=count: count)
        keys.add(special._key(call, block))
    assert len(keys) == 4


def test_a_bound_call_allocates_its_outs_once_and_keeps_its_arguments() -> None:
    launch = k.double.bind(X.copy())
    first = launch()
    assert launch() is first and (first == 2 * X).all()
    y, z = k.pairs.bind(X)()
    assert (y - z == 2).all()
    assert float(k.total.bind(X)()) == 66.0


def test_a_bound_call_reports_what_a_call_does() -> None:
    with pytest.raises(TreadleError) as caught:
        k.even.bind(X[:3])
    assert caught.value.code == "call/require"


def test_the_short_way_catches_what_the_long_way_does() -> None:
    x, y = np.ones(8, np.float32), np.empty(8, np.float32)
    for _ in range(3):
        k.double(x, y)
    frozen = y[:]
    frozen.flags.writeable = False
    odd = np.zeros(33, np.uint8)[1:].view(np.float32)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((x, y[:7]), "call/extent-conflict"),
        ((x[::2], y), "call/extent-conflict"),
        ((x, frozen), "array/read-only"),
        ((x, np.broadcast_to(y[:1], 8)), "array/read-only"),
        ((x, np.lib.stride_tricks.as_strided(y, (8,), (0,))), "array/output-overlap"),
        ((odd, y), "array/misaligned"),
        ((x, odd), "array/misaligned"),
        ((np.lib.stride_tricks.as_strided(x, (4,), (6,)), y[:4]), "array/stride"),
        ((x.astype(">f4"), y), "array/dtype-unsupported"),
    ]
    for args, code in cases:
        before = y.copy()
        for _ in range(2):
            with pytest.raises(TreadleError) as caught:
                k.double(*args)
            assert caught.value.code == code
            assert caught.value.span is not None  # the call's, which the short way does not know
        assert (y == before).all()
    assert (k.double(y, y) == 4).all()  # in place, by the interpreter
    assert (k.double(x, y) == 2).all()


def test_requirements_hold_on_the_short_way() -> None:
    for _ in range(2):
        assert (k.even(X) == X).all()
        with pytest.raises(TreadleError) as caught:
            k.even(X[:5])
        assert caught.value.code == "call/require"


def test_threads() -> None:
    kernel = td.kernel(k.linear_gelu.definition.fn)
    wrong: list[str] = []
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        start.wait()
        try:
            for i in range(40):
                m, n, d = (int(e) for e in random.integers(1, 40, 3))
                x = random.integers(-3, 4, (m, d)).astype(np.float32)
                w = random.integers(-3, 4, (d, n)).astype(np.float32)
                if not (kernel(x, w) == x @ w).all():
                    wrong.append(f"{seed}: {i} at {m}x{n}x{d}")
        except TreadleError as error:
            wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def _in_child(queue: Any) -> None:
    x = np.ones(100_000, np.float32)
    queue.put(bool((k.double(x) == 2).all() and (k.staged(x[:9], by=7) == 7).all()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_calls_kernels() -> None:
    x = np.ones(100_000, np.float32)
    assert (k.double(x) == 2).all()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    child.join(60)
    assert child.exitcode == 0 and queue.get() is True
    assert (k.double(x) == 2).all()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_while_another_thread_plans() -> None:
    """The child has no thread that would ever give back what the parent's held: locks of imports and of LLVM too."""
    held, left = threading.Event(), threading.Event()

    def hold() -> None:
        with planning():
            held.set()
            time.sleep(0.2)
            left.set()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if left.is_set() and planning().acquire(timeout=5) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with planning():
        assert os.waitstatus_to_exitcode(_forked(lambda: planning().acquire(timeout=5))) == 0, "its own is no hindrance"


def _forked(act: Callable[[], bool]) -> int:
    """The status of a child that says whether something went well; of one that hangs, that of the alarm."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(300)
        os._exit(0 if act() else 1)
    return os.waitpid(pid, 0)[1]


FORKING = """
import os, signal, sys, threading, time
import numpy as np
from tests.driver import kernels as k

x = np.ones(3000, np.float32)
first = threading.Thread(target=lambda: k.double(x))
first.start()
time.sleep(float(sys.argv[1]))
pid = os.fork()
if pid == 0:
    signal.alarm(300)
    os._exit(0 if (k.double(x) == 2).all() and float(k.total(x)) == 3000 else 1)
first.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("after", [0.05, 0.4])
def test_a_child_forked_during_the_first_call_of_another_thread(after: float) -> None:
    """Whatever it is at then: it imports rooms, or plans, or LLVM compiles."""
    env = {**os.environ, "TREADLE_CACHE": "off", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, str(after)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_during_a_bound_call_makes_it() -> None:
    launch = k.double.bind(X.copy())
    launch._lock = threading.Lock()  # as of one with a workspace
    launch_module._locked.add(launch)
    with launch._lock:
        assert os.waitstatus_to_exitcode(_forked(lambda: bool((launch() == 2 * X).all()))) == 0


def test_reference_and_sanitize() -> None:
    x, w = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    y = np.zeros((3, 5), np.float32)
    assert k.linear_gelu.reference(x, w, None, y) is y and (y == 4).all()
    y[...] = 0
    assert k.linear_gelu.sanitize(x, w, None, y) == [] and (y == 0).all()
    assert (k.scale.reference(X, 3.0) == 3 * X).all()


def test_sanitize_finds_a_broken_promise() -> None:
    @td.kernel
    def collide(X: td.Tensor[M], at: td.Tensor[M, td.i32], Y: td.Out[M] = None):
        for m in td.parallel(M.each):
            Y[td.in_range(at[m], M)] = X[m]

    at = np.zeros(4, np.int32)
    assert collide.sanitize(X[:4], np.arange(4, dtype=np.int32)) == []
    codes = {f.code for f in collide.sanitize(X[:4], at)}
    assert codes != set()
    assert collide.sanitize(X[:4], at - 1) != []


class Elsewhere:
    """Claims to lie on a GPU, at an address that no code of this process may touch."""

    def __init__(self, n: int) -> None:
        self.__cuda_array_interface__ = {"typestr": "<f4", "shape": (n,), "data": (4096, False), "version": 3}


@pytest.mark.skipif(
    os.path.exists("/dev/nvidiactl"), reason="needs a machine without a CUDA device, which the test makes up"
)
def test_arrays_on_a_device_are_never_touched_from_here() -> None:
    for call in (k.double, k.double.bind, k.double.reference, k.double.sanitize):
        with pytest.raises(TreadleError):
            call(Elsewhere(12))
    with pytest.raises(TreadleError) as caught:
        k.double(X, Elsewhere(12))
    assert caught.value.code == "array/devices"


def test_empty_and_tiny() -> None:
    for n in (0, 1, 2):
        assert k.double(X[:n]).shape == (n,)
        x, w = np.ones((n, 0), np.float32), np.ones((0, 3), np.float32)
        assert (k.linear_gelu(x, w) == 0).all()
    assert float(k.total(X[:0])) == 0.0


def test_extents_that_no_memory_has() -> None:
    huge = np.broadcast_to(np.float32(1), (1 << 45,))
    for call in (k.double, k.double.bind):
        with pytest.raises(TreadleError) as caught:
            call(huge)
        assert caught.value.code == "runtime/out-of-memory"


def test_offset_views_of_every_kind() -> None:
    base = np.arange(4 * 6 * 10, dtype=np.float32).reshape(4, 6, 10)
    x = base[1]
    parts = [x, x.T, x[::-1, ::-1], x[:, 3:4], x[2:2], np.broadcast_to(x[:1], (5, 10)), base[:, 2, ::3], base[::-2, 1]]
    for a in parts:
        for b in (np.ones((a.shape[1], 7), np.float32), np.ones((7, a.shape[1]), np.float32).T):
            want = a @ b
            assert (k.linear_gelu(a, b) == want).all()
            y = np.full((7, a.shape[0] * 2), np.nan, np.float32)
            assert (k.linear_gelu(a, b, None, y[::-1, ::2].T) == want).all()
            assert np.isnan(y[:, 1::2]).all()
