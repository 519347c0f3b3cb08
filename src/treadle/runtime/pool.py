"""The native worker pool: how many workers there are, and the address of its `run`.

`run(fn, arg, tasks, workers)` calls `void fn(ptr arg, i64 task, i64 worker)` for every task, on at most `workers`
threads, the caller among them, and returns when all are done. `worker` is below `workers`; no two tasks run at once
under one number. How the pool works is written in `pool_ir.py`.

**On every platform** (`pool_systems.SYSTEMS`): at most `TREADLE_WORKERS` workers, else one for each CPU of the
process's affinity mask or control group's quota (macOS has no masks: one for each CPU), never more than these. Threads
are kept off the caller's CPU on Linux and Windows. A child of a fork has a pool of its own.

Tasks must not wait for one another: a second caller, a nested call and a thread that woke too late all have their
tasks run one after the other. What must be ordered goes into two jobs.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable

from treadle.runtime import host
from treadle.runtime.cpu import LoadedObject
from treadle.runtime.errors import WorkersInvalid
from treadle.runtime.making import making
from treadle.runtime.native import load_native
from treadle.runtime.pool_ir import SYMBOLS, pool_ir
from treadle.runtime.pool_systems import MASK_BYTES, MAX_WORKERS

SPIN_THREAD = 6000
"""Pauses (10 to 40 ns each) for which a thread without work stays awake: waking it later costs 40 µs and more."""

SPIN_JOIN = 3000
"""Pauses for which a caller that has finished its own part stays awake."""

_RUN_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_CONFIGURE_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p
)
_PLAIN_TYPE = ctypes.CFUNCTYPE(None)
_COUNT_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32)


def _after_fork(act: Callable[[], None]) -> None:
    """Has a child of a fork do something first; Windows has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


class Pool:
    """The loaded pool. There is one in a process, because its state is in its code's own memory: `pool()`.

    `run_address` hands tasks out as workers ask for them; `run_static_address` gives task `t` to worker
    `t % workers`, so that a repeated launch finds its data in the same core's cache.
    """

    def __init__(self, loaded: LoadedObject, limit: int) -> None:
        loaded.pin()
        self.run_address = loaded.addresses["treadle_pool_run"]
        self.run_static_address = loaded.addresses["treadle_pool_run_static"]
        self._run = loaded.function("treadle_pool_run", _RUN_TYPE)
        self._run_static = loaded.function("treadle_pool_run_static", _RUN_TYPE)
        self._configure = loaded.function("treadle_pool_configure", _CONFIGURE_TYPE)
        self._threads = loaded.function("treadle_pool_threads", _COUNT_TYPE)
        self._stop = loaded.function("treadle_pool_stop", _PLAIN_TYPE)
        self._forget = loaded.function("treadle_pool_forget", _PLAIN_TYPE)
        self.configure(limit)
        _after_fork(self._forget)
        atexit.register(self.stop)

    def configure(self, limit: int, *, spin_thread: int = SPIN_THREAD, spin_join: int = SPIN_JOIN) -> None:
        """Use at most `limit` workers from the next job on. Units: the spins are in processor pauses."""
        allowed = host.allowed_cpus()
        mask = bytearray(MASK_BYTES)
        for cpu in allowed:
            if cpu < MASK_BYTES * 8:
                mask[cpu >> 3] |= 1 << (cpu & 7)
        self._configure(limit, int(host.can_place(allowed, limit)), spin_thread, spin_join, bytes(mask))

    def run(self, fn: int, arg: int, tasks: int, workers: int, *, static: bool = False) -> None:
        """Run one job: `fn` and `arg` are addresses."""
        (self._run_static if static else self._run)(fn, arg, tasks, workers)

    @property
    def threads(self) -> int:
        """How many threads the pool has started; a job that needs more starts them."""
        return int(self._threads())

    def stop(self) -> None:
        """End all threads and wait for them. The next job starts new ones."""
        self._stop()


class _State:
    """What the process has decided so far."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limit: int | None = None
        self.pool: Pool | None = None


_state = _State()


def _forget_lock() -> None:
    _state.lock = threading.Lock()


_after_fork(_forget_lock)


def workers() -> int:
    """How many workers a launch uses at most: `set_workers`, else `TREADLE_WORKERS`, else the cores of this process.

    Ensures: 1 <= workers() <= host.available_cores(). Errors: runtime/workers for an unreadable `TREADLE_WORKERS`.
    """
    if _state.limit is None:
        named = os.environ.get("TREADLE_WORKERS", "").strip()
        wanted = _positive(named, "reading TREADLE_WORKERS") if named else host.available_cores()
        _state.limit = _bounded(wanted)
    return _state.limit


def set_workers(count: int) -> int:
    """Use at most `count` workers from the next launch on; returns the number in force, never above the cores.

    Errors: runtime/workers.
    """
    with _state.lock:
        _state.limit = _bounded(_positive(count, "setting the number of workers"))
        if _state.pool is not None:
            _state.pool.configure(_state.limit)
    return _state.limit


def _bounded(count: int) -> int:
    return max(1, min(count, host.available_cores(), MAX_WORKERS))


def _positive(value: object, doing: str) -> int:
    try:
        count = int(value) if isinstance(value, (int, str)) else 0
    except ValueError:
        count = 0
    if count < 1:
        raise WorkersInvalid(
            doing=doing,
            found=repr(value),
            expected="a whole number of workers, at least 1",
            hint="1 runs everything on the calling thread",
        )
    return count


def pool() -> Pool:
    """The process's pool, loaded at the first call; its threads start with the first job that needs them.

    Errors: runtime/platform, runtime/no-native-code.
    """
    if _state.pool is None:
        text = pool_ir(host.pool_system())
        # Tile registers must be permitted before threads start: one permission then serves all of them.
        host.amx_permission()
        with making():
            if _state.pool is None:
                loaded = load_native("treadle_pool", text, SYMBOLS)
                with _state.lock:
                    _state.pool = Pool(loaded, workers())
    return _state.pool
