"""A worker process that compiles, so that an abort inside LLVM cannot take the user's session with it.

One worker serves all threads in turn. Messages are pickles with a length before them, on the worker's standard
streams; both ends are this package. A worker that dies is replaced at the next request.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from treadle.base.errors import TreadleError
from treadle.toolchain.errors import CompilerDied

_HEADER = struct.Struct("<Q")
_lock = threading.Lock()


class _Worker:
    """The process and the file that takes what it says before it dies."""

    def __init__(self) -> None:
        self.stderr: IO[bytes] = tempfile.TemporaryFile()
        package_parent = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([package_parent, *(entry for entry in sys.path if entry)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "treadle.toolchain.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.pid = os.getpid()

    def last_words(self) -> str:
        self.stderr.seek(0)
        text = self.stderr.read().decode("utf-8", "replace").strip()
        return "\n".join(line for line in text.splitlines()[:6])

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass


_worker: _Worker | None = None


def compile_apart(doing: str, request: tuple[Any, ...], timeout: float) -> Any:
    """What `llvm.compile_here(*request)` returns, computed in the worker process.

    Units: `timeout` in seconds. Errors: those of compile_here; toolchain/compiler-died.
    """
    global _worker
    with _lock:
        if _worker is None or _worker.process.poll() is not None or _worker.pid != os.getpid():
            _discard()
            _worker = _Worker()
        worker = _worker
        try:
            reply = _exchange(worker, pickle.dumps(request), timeout)
        except BaseException:
            _discard()  # its answer, when it came, would be taken for that of the next request
            raise
        if reply is None:
            raise _death(doing, worker, timeout)
    answer = pickle.loads(reply)
    if isinstance(answer, TreadleError):
        raise answer
    return answer


def stop_worker() -> None:
    """End the worker process, if there is one."""
    with _lock:
        _discard()


def _discard() -> None:
    global _worker
    if _worker is not None and _worker.pid == os.getpid():
        _worker.stop()
    _worker = None


def _exchange(worker: _Worker, payload: bytes, timeout: float) -> bytes | None:
    stdin, stdout = worker.process.stdin, worker.process.stdout
    assert stdin is not None and stdout is not None
    deadline = time.monotonic() + timeout
    try:
        stdin.write(_HEADER.pack(len(payload)) + payload)
        stdin.flush()
        header = read_within(stdout.fileno(), _HEADER.size, deadline)
        return None if header is None else read_within(stdout.fileno(), _HEADER.unpack(header)[0], deadline)
    except OSError:
        return None


def read_within(descriptor: int, size: int, deadline: float) -> bytes | None:
    """So many bytes of a pipe; None where it closed, or the clock (`time.monotonic`) passed `deadline`, before."""
    parts = bytearray()
    while len(parts) < size:
        left = deadline - time.monotonic()
        chunk = (
            os.read(descriptor, min(size - len(parts), 1 << 20)) if left > 0 and _readable(descriptor, left) else b""
        )
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)


def _readable(descriptor: int, seconds: float) -> bool:
    """Waits until there is something to read, or the end. Of any descriptor: `select` has none above 1023."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def _death(doing: str, worker: _Worker, timeout: float) -> CompilerDied:
    try:
        code = worker.process.wait(timeout=0.5)
        found = f"the compiler process ended with {_signal_name(code)}"
    except subprocess.TimeoutExpired:
        found = f"no answer within {timeout:g} s; the compiler process was stopped"
    words = worker.last_words()
    _discard()
    return CompilerDied(
        doing=doing,
        found=found + (f"\n{words}" if words else ""),
        expected="object code or a message from LLVM",
        pass_name="toolchain.compile_ir",
    )


def _signal_name(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _forget_in_child() -> None:
    """The child of a fork has no part in its parent's worker, nor in a lock that was held at the fork."""
    global _lock, _worker
    _lock, _worker = threading.Lock(), None


atexit.register(stop_worker)
os.register_at_fork(after_in_child=_forget_in_child)
