"""The worker pool: every task once, under a worker's number of its own, from any number of callers, across a fork."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

import pytest

from treadle.runtime import host, native, pool
from treadle.runtime.cpu import LoadedObject
from treadle.runtime.errors import NativeCodeMissing, WorkersInvalid

if not host._is_linux_x86():
    pytest.skip("needs Linux on x86-64: the tasks are text for it", allow_module_level=True)

TASKS = """
declare void @llvm.x86.sse2.pause()

; counts[task] += 1, owners[task] = worker; owners lie 4096 words behind the counts
define void @count(ptr %arg, i64 %task, i64 %worker) {
  %p = getelementptr i64, ptr %arg, i64 %task
  %old = atomicrmw add ptr %p, i64 1 monotonic
  %q.i = add i64 %task, 4096
  %q = getelementptr i64, ptr %arg, i64 %q.i
  store i64 %worker, ptr %q
  ret void
}

; Arrive, then wait (not for ever) until arg[1] have arrived; arg[2] counts those who saw it.
define void @meet(ptr %arg, i64 %task, i64 %worker) {
entry:
  %old = atomicrmw add ptr %arg, i64 1 seq_cst
  %want.p = getelementptr i64, ptr %arg, i64 1
  %want = load i64, ptr %want.p
  %seen.p = getelementptr i64, ptr %arg, i64 2
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %n.next, %again ]
  %now = load atomic i64, ptr %arg seq_cst, align 8
  %all = icmp sge i64 %now, %want
  br i1 %all, label %met, label %again
again:
  call void @llvm.x86.sse2.pause()
  %n.next = add i64 %n, 1
  %more = icmp slt i64 %n.next, 200000000
  br i1 %more, label %spin, label %done
met:
  %o = atomicrmw add ptr %seen.p, i64 1 seq_cst
  br label %done
done:
  ret void
}

; A task that is a job itself: run is arg[0], the counts begin at arg[1].
define void @nested(ptr %arg, i64 %task, i64 %worker) {
  %run = load ptr, ptr %arg
  %inner = getelementptr i64, ptr %arg, i64 1
  call void %run(ptr @count, ptr %inner, i64 50, i64 2)
  ret void
}
"""


@pytest.fixture(scope="module")
def tasks(load: Callable[..., LoadedObject]) -> LoadedObject:
    return load(TASKS, "count", "meet", "nested")


@pytest.fixture
def workers(with_workers: Callable[[int], int]) -> pool.Pool:
    """The pool with a worker for each core, whatever the process was told to use."""
    with_workers(host.available_cores())
    return pool.pool()


def counted(tasks: LoadedObject, p: pool.Pool, number: int, workers: int, static: bool) -> tuple[list[int], list[int]]:
    room = (ctypes.c_int64 * 8192)()
    p.run(tasks.addresses["count"], ctypes.addressof(room), number, workers, static=static)
    return list(room[:number]), list(room[4096 : 4096 + number])


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2, 3, 17, 1000])
def test_every_task_runs_once(tasks: LoadedObject, workers: pool.Pool, number: int, static: bool) -> None:
    for wanted in (1, 2, 5):
        counts, owners = counted(tasks, workers, number, wanted, static)
        assert counts == [1] * number
        assert all(0 <= owner < wanted for owner in owners)


def test_static_hand_out_is_by_remainder(tasks: LoadedObject, workers: pool.Pool) -> None:
    for _ in range(50):
        _, owners = counted(tasks, workers, 101, 2, static=True)
        used = min(2, pool.workers())
        assert owners == [task % used for task in range(101)]


def test_two_workers_run_at_once(tasks: LoadedObject, workers: pool.Pool) -> None:
    if pool.workers() < 2:
        pytest.skip("needs two CPUs")
    for _ in range(20):
        room = (ctypes.c_int64 * 3)(0, 2, 0)
        workers.run(tasks.addresses["meet"], ctypes.addressof(room), 2, 2)
        assert list(room) == [2, 2, 2]
    assert 1 <= workers.threads < host.available_cores()


def test_calls_release_the_interpreter(tasks: LoadedObject, workers: pool.Pool) -> None:
    room = (ctypes.c_int64 * 3)(0, 2, 0)
    other = threading.Timer(0.05, lambda: room.__setitem__(0, 2))
    other.start()
    workers.run(tasks.addresses["meet"], ctypes.addressof(room), 1, 1)
    other.join()
    assert room[2] == 1, "the task saw what another Python thread wrote while it ran"


def test_callers_in_several_threads(tasks: LoadedObject, workers: pool.Pool) -> None:
    room = (ctypes.c_int64 * 8192)()

    def many() -> None:
        for turn in range(200):
            workers.run(tasks.addresses["count"], ctypes.addressof(room), 64, 2, static=bool(turn % 2))

    callers = [threading.Thread(target=many) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert list(room[:64]) == [800] * 64


@pytest.mark.parametrize("static", [False, True])
def test_a_task_may_start_a_job(tasks: LoadedObject, workers: pool.Pool, static: bool) -> None:
    room = (ctypes.c_int64 * 8192)(workers.run_static_address if static else workers.run_address)
    workers.run(tasks.addresses["nested"], ctypes.addressof(room), 10, 2, static=static)
    assert list(room[1:51]) == [10] * 50


def test_threads_leave_and_come_back(tasks: LoadedObject, workers: pool.Pool) -> None:
    counted(tasks, workers, 64, 2, False)
    workers.stop()
    assert workers.threads == 0
    assert counted(tasks, workers, 64, 2, True)[0] == [1] * 64
    assert workers.threads == min(2, pool.workers()) - 1


def test_sleeping_threads_are_woken_or_done_without(tasks: LoadedObject, workers: pool.Pool) -> None:
    limit = pool.workers()
    workers.configure(limit, spin_thread=0, spin_join=0)
    try:
        for turn in range(300):
            counts, _ = counted(tasks, workers, 7, 2, static=bool(turn % 2))
            assert counts == [1] * 7
        if limit > 1:
            room = (ctypes.c_int64 * 3)(0, 2, 0)
            workers.run(tasks.addresses["meet"], ctypes.addressof(room), 2, 2)
            assert room[2] == 2
    finally:
        workers.configure(limit)


def test_child_of_a_fork_has_a_pool_of_its_own(tasks: LoadedObject, workers: pool.Pool) -> None:
    counted(tasks, workers, 64, 2, False)
    child = os.fork()
    if child == 0:
        fine = workers.threads == 0 and counted(tasks, workers, 64, 2, True)[0] == [1] * 64
        os._exit(0 if fine and workers.threads == min(2, pool.workers()) - 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counted(tasks, workers, 64, 2, False)[0] == [1] * 64


def test_number_of_workers(tasks: LoadedObject, workers: pool.Pool) -> None:
    cores = host.available_cores()
    assert pool.set_workers(10_000) == cores == pool.workers()
    assert pool.set_workers(1) == 1
    assert set(counted(tasks, workers, 100, 2, True)[1]) == {0}
    for wrong in (0, -1, "two", 1.5, None):
        with pytest.raises(WorkersInvalid):
            pool.set_workers(wrong)


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("100000", None), ("", None)])
def test_workers_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, count: int | None) -> None:
    monkeypatch.setattr(pool._state, "limit", None)
    monkeypatch.setenv("TREADLE_WORKERS", text)
    assert pool.workers() == (count or host.available_cores())
    monkeypatch.setattr(pool._state, "limit", None)
    monkeypatch.setenv("TREADLE_WORKERS", "many")
    with pytest.raises(WorkersInvalid):
        pool.workers()


def test_a_warm_cache_needs_no_compiler(workers: pool.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(text: str, name: str) -> bytes:
        raise AssertionError(f"{name} was compiled again")

    # Another test may have cleared the cache since the pool was loaded: make the entry, if it is gone, first.
    native.load_native("treadle_pool", pool.pool_ir(host.pool_system()), ["treadle_pool_threads"])
    monkeypatch.setattr(native, "_compiler", [never])
    again = native.load_native("treadle_pool", pool.pool_ir(host.pool_system()), ["treadle_pool_threads"])
    assert again.addresses["treadle_pool_threads"] != 0
    monkeypatch.setattr(native, "_compiler", [])
    with pytest.raises(NativeCodeMissing):
        native.load_native("other", "; another text", ["f"])
