"""Launches recorded once as a CUDA graph, and replayed by one driver call.

    with td.graph() as g:      # nothing runs: what kernels of this thread would enqueue is recorded
        first(x, y)
        second(y, z)
    g()                        # runs both, on the stream that is current then; again and again

What a call would do is fixed when it is recorded: arrays, extents, numbers, plans. The graph keeps the code, the
workspace and the arrays of its launches, and outputs that calls left out.
Work of other libraries is not recorded; `torch.cuda.graph` records that and treadle's calls alike.
"""

from __future__ import annotations

from typing import Any, Self

from treadle.runtime.device_memory import entered
from treadle.runtime.driver import check, current, device, driver, entry, ok
from treadle.runtime.errors import CaptureRefused
from treadle.runtime.streams import current_stream, recording


class Graph:
    """A recording, and what replays it. Calling it launches the graph, once it is recorded.

    *Errors*: `cuda/capture` for what cannot be recorded, and for a graph that is called while or before it is;
    `cuda/no-driver`, `cuda/no-device`, `cuda/failed`.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self._device = device(ordinal)
        self._keeps: list[Any] = []
        self._graph: Any = None
        self._exec: Any = None
        self._address = 0
        self._stream: Any = None
        self._recording: Any = None

    def __enter__(self) -> Self:
        if self._exec is not None or self._stream is not None:
            raise self._wrong("a graph that was recorded before", "one recording for each graph")
        cu, doing = driver(), "recording a graph"
        with current(self._device):
            self._stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING), doing)
            mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            ok(cu.cuStreamBeginCapture(self._stream, mode), doing)
        self._recording = recording(int(self._stream), self._keeps.append)
        self._recording.__enter__()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._recording.__exit__(None, None, None)
        cu, doing = driver(), "ending a recording"
        stream, self._stream = self._stream, None
        try:
            with current(self._device):
                result = cu.cuStreamEndCapture(stream)
                if kind is not None:
                    return  # what was raised inside says more than a broken capture
                self._graph = ok(result, doing)
                self._exec = ok(cu.cuGraphInstantiate(self._graph, 0), doing)
                self._address = int(self._exec)
        finally:
            cu.cuStreamDestroy(stream)

    def __call__(self) -> None:
        """Launches all that was recorded, on the stream that is current. Errors: cuda/capture, cuda/failed."""
        if not self._address:
            raise self._wrong("no recording that has ended", "a graph whose with block is over")
        stream = current_stream(self._device.ordinal)
        with entered(self._device.ordinal, stream):
            check(entry("cuGraphLaunch")(self._address, stream), "launching a graph")

    launch = __call__

    def __del__(self) -> None:
        if self._exec is not None:
            cu = driver()
            cu.cuGraphExecDestroy(self._exec)  # a launch that runs still keeps what it needs
            cu.cuGraphDestroy(self._graph)

    def _wrong(self, found: str, expected: str) -> CaptureRefused:
        return CaptureRefused(
            doing="using a CUDA graph",
            found=found,
            expected=expected,
            hint="with td.graph() as g: ...; then g()",
        )


def graph(device: int = 0) -> Graph:
    """Records kernel calls of this thread: `with td.graph() as g: kernel(x, y)`, then `g()` runs them as one launch.

    `device` is the number of the GPU. *Errors*: `cuda/capture`, `cuda/no-driver`, `cuda/no-device`.
    """
    return Graph(device)
