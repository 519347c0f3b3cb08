"""The other end of trials: a process that is started, asked, limited in time, and replaced when it dies."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from treadle.driver.tuning_trial import HEADER, Measured, Refused, Stage, Task
from treadle.plan.plan import Plan
from treadle.toolchain.isolation import read_within

_MAIN = "from treadle.driver.tuning_trial import main; main()"  # by import: messages are classes of that module
LIMITS = {"starting": 60.0, "realising": 20.0, "judging": 30.0, "compiling": 60.0, "running": 10.0}
"""Seconds that a stage may take; `running` is stretched for kernels that are slow anyway."""


class Trier:
    """A process that tries plans. *Ensures*: a request is answered or refused within the limits of its stages."""

    def __init__(self, task: Task, limits: dict[str, float] | None = None) -> None:
        self.task = task
        self.limits = {**LIMITS, **(limits or {})}
        self.best: Plan | None = None
        self.deaths = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None

    def ask(self, plan: Plan, until: float | None = None) -> Measured | Refused | None:
        """Tries a plan; None where the clock (`time.monotonic`) passed `until` first."""
        return self._request("try", plan, until)

    def adopt(self, plan: Plan, seconds: float) -> None:
        """Others are measured against this one from now on. `seconds`: what it takes."""
        self.best = plan
        self.limits["running"] = max(self.limits["running"], 200 * seconds)
        self._request("best", plan, None)

    def stop(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, self._words):
                if stream is not None:
                    stream.close()

    # ---- the process

    def _request(self, word: str, plan: Plan, until: float | None) -> Measured | Refused | None:
        try:
            if self._process is None:
                answer = self._start(until)
                if not isinstance(answer, Measured):
                    return answer
            return self._exchange((word, plan), "realising", until)
        except BaseException:
            self.stop()  # its answer, when it came, would be taken for that of the next request
            raise

    def _start(self, until: float | None) -> Measured | Refused | None:
        """A new process, which gets the task and the plan to measure against."""
        parents = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *(p for p in sys.path if p)])
        self._words = tempfile.TemporaryFile()  # closed in stop
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={**os.environ, "PYTHONPATH": parents},
            pass_fds=(self.task.descriptor,),
            start_new_session=True,
        )
        answer = self._exchange(replace(self.task), "starting", until)
        if isinstance(answer, Measured) and self.best is not None:
            return self._exchange(("best", self.best), "realising", until)
        return answer

    def _exchange(self, request: Any, stage: str, until: float | None) -> Measured | Refused | None:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        data = pickle.dumps(request)
        try:
            process.stdin.write(HEADER.pack(len(data)) + data)
            process.stdin.flush()
        except OSError:
            return self._dead(stage)
        deadline = time.monotonic() + self.limits[stage]
        while True:
            end = deadline if until is None else min(deadline, until)
            message = _receive(process.stdout.fileno(), end)
            if message is None:
                over = until is not None and time.monotonic() >= until
                if over and process.poll() is None:
                    self.stop()
                    return None
                return self._dead(stage)
            if isinstance(message, Refused) and message.reason.startswith("cuda/fault"):
                self.stop()  # its context on the GPU answers nothing any more
            if not isinstance(message, Stage):
                return message
            stage = message.name
            deadline = time.monotonic() + self.limits[stage]

    def _dead(self, stage: str) -> Refused:
        """Why there was no answer; the process is gone afterwards."""
        process = self._process
        assert process is not None
        self.deaths += 1
        try:
            code = process.wait(timeout=0.3)
            how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            words = self._last_words()
        except subprocess.TimeoutExpired:
            how, words = f"stopped after {self.limits[stage]:g} s", ""
        self.stop()
        return Refused(f"{how} while {stage}{words}")

    def _last_words(self) -> str:
        if self._words is None:
            return ""
        self._words.seek(0)
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][:160]}" if lines else ""


def _receive(descriptor: int, end: float) -> Any:
    header = read_within(descriptor, HEADER.size, end)
    data = None if header is None else read_within(descriptor, HEADER.unpack(header)[0], end)
    return None if data is None else pickle.loads(data)


Progress = Callable[[float, str], None]
