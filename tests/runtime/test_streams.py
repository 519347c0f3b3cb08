"""Streams, captures and workspace against a driver that notes what is enqueued."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest
from tests.runtime.fake_cuda import FakeDriver, installed

from treadle.base.errors import TreadleError
from treadle.runtime import device_memory, dlpack, driver, streams
from treadle.runtime.arrays import ArrayView, check_output, view
from treadle.runtime.cuda import CudaLaunch, CudaModule, Geometry, Pointer
from treadle.runtime.errors import (
    CaptureRefused,
    CudaFailed,
    CudaFault,
    DeviceOutOfMemory,
    ModuleUnusable,
    ReadOnly,
)
from treadle.runtime.graph import Graph


@pytest.fixture
def cuda() -> Iterator[FakeDriver]:
    with installed(FakeDriver()) as fake:
        yield fake


class Array:
    """An array of a library on a GPU, by the CUDA array interface."""

    def __init__(self, address: int, stream: int | None = None) -> None:
        self.__cuda_array_interface__ = {
            "typestr": "<f4",
            "shape": (8,),
            "data": (address, False),
            "version": 3,
            "stream": stream,
        }


CupyArray = type("ndarray", (Array,), {"__module__": "cupy"})
TorchArray = type("Tensor", (Array,), {"__module__": "torch"})


def library(monkeypatch: pytest.MonkeyPatch, name: str, stream: list[int]) -> None:
    """A made-up torch or CuPy whose current stream is `stream[0]`."""
    made: Any = types.ModuleType(name)
    if name == "torch":
        made.cuda = types.SimpleNamespace(is_initialized=lambda: True)
        made._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: stream[0])
    else:
        device = type(
            "Device", (), {"__init__": lambda s, n: None, "__enter__": lambda s: s, "__exit__": lambda s, *_: None}
        )
        made.cuda = types.SimpleNamespace(
            Device=device, get_current_stream=lambda ordinal: types.SimpleNamespace(ptr=stream[0])
        )
    monkeypatch.setitem(sys.modules, name, made)


def launch(cuda: FakeDriver) -> CudaLaunch:
    function = CudaModule(b"code", driver.device(0), "scale").function("scale")
    return CudaLaunch(function, Geometry((8, 1, 1), (128, 1, 1)), [Pointer(4096)])


def test_a_call_runs_on_the_stream_of_its_library(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch, "torch", [71])
    library(monkeypatch, "cupy", [72])
    assert streams.current_stream(0) == 71 and streams.current_stream(0, "cupy") == 72
    order = streams.order_of([3, CupyArray(4096)])
    assert (order.library, order.plain) == ("cupy", True)
    both = streams.order_of([CupyArray(4096), TorchArray(8192)])
    assert (both.library, both.others) == ("cupy", ("torch",))
    with streams.ordered(0, both) as stream:
        cuda.enqueue("launch", stream)
    (_, a, first), (_, b, second), (_, c), (_, d, third), (_, e, fourth) = cuda.log
    assert (a, b, c, d, e) == (71, 72, 72, 72, 71) and first == second and third == fourth
    assert [row[0] for row in cuda.log] == ["record", "follow", "launch", "record", "follow"]


def test_interfaces_tell_their_stream(cuda: FakeDriver) -> None:
    order = streams.order_of([Array(4096, stream=90), Array(4096), Array(8192, stream=90)])
    assert order.before == (90,) and not order.wait
    with streams.ordered(0, order):
        pass
    assert [row[:2] for row in cuda.log] == [("record", 90), ("follow", 0), ("record", 0), ("follow", 90)]
    cuda.log.clear()
    with streams.ordered(0, streams.order_of([Array(4096, stream=1)])):
        pass
    assert cuda.log == [], "1 is the default stream"


class Exporter:
    """An array that speaks DLPack and notes how it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, **words: Any) -> Any:
        self.asked.append(words.get("stream"))
        return object()


def test_exporters_are_asked_for_no_more_than_they_understand(cuda: FakeDriver) -> None:
    waited: list[int] = []
    torch, cupy = (type("T", (Exporter,), {"__module__": name})() for name in ("torch", "cupy"))
    jax = type("A", (Exporter,), {"__module__": "jaxlib._jax", "block_until_ready": lambda self: waited.append(1)})()
    other = Exporter()
    for one, stream in ((torch, -1), (cupy, -1), (jax, None), (other, 1)):
        dlpack.export(one)
        assert one.asked == [stream]
    assert waited == [1], "JAX takes a stream for a handle and knows no -1: it is waited for"
    foreign = streams.order_of([jax])
    assert foreign.wait and not foreign.before
    with streams.ordered(0, foreign):
        pass
    assert cuda.log == [("wait", 0)], "nobody could order what comes after"
    assert streams.order_of([other]).before == (streams.LEGACY,)


def test_launches_hold_nothing_that_streams_share(cuda: FakeDriver) -> None:
    one = launch(cuda)
    together = threading.Barrier(4)

    def many(stream: int) -> None:
        together.wait()
        for _ in range(50):
            one(stream)

    threads = [threading.Thread(target=many, args=(10 + k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(row[1] for row in cuda.log) == sorted([10, 11, 12, 13] * 50)
    one()
    assert cuda.log[-1][:2] == ("launch", 0) and cuda.contexts == [], "entered for the default stream, and left"


def test_workspace_is_of_one_run_in_the_order_of_its_stream(cuda: FakeDriver) -> None:
    with device_memory.taken(0, 1000, 50, "x") as first:
        with device_memory.taken(0, 1000, 60, "x") as second:
            assert first != second and first % 256 == 0
    with device_memory.taken(0, 1000, 50, "x"):
        pass
    assert [row[:2] for row in cuda.log] == [
        ("take", 50),
        ("take", 60),
        ("give", 60),
        ("give", 50),
        ("take", 50),
        ("give", 50),
    ]
    with pytest.raises(ZeroDivisionError):
        with device_memory.taken(0, 1000, 50, "x"):
            raise ZeroDivisionError
    assert not cuda.held, "a failed call gives its workspace back"


def test_memory_that_is_refused(cuda: FakeDriver) -> None:
    cuda.fail["cuMemAllocFromPoolAsync"] = [2]
    with device_memory.taken(0, 1 << 20, 5, "softmax"):
        assert cuda.calls["cuMemPoolTrimTo"] == 1, "what the pool keeps is given back before anybody is refused"
    cuda.fail["cuMemAllocFromPoolAsync"] = [2, 2]
    with pytest.raises(DeviceOutOfMemory) as caught:
        device_memory.take(0, 1 << 20, 5, "softmax")
    assert "softmax" in str(caught.value) and "1,048,576 bytes" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "error"),
    [(1, CudaFailed), (2, DeviceOutOfMemory), (200, ModuleUnusable), (209, ModuleUnusable), (222, ModuleUnusable)]
    + [(700, CudaFault), (719, CudaFault), (900, CaptureRefused), (901, CaptureRefused)],
)
def test_statuses_have_their_errors(cuda: FakeDriver, status: int, error: type[TreadleError]) -> None:
    cuda.fail["cuLaunchKernelEx"] = [status]
    with pytest.raises(error) as caught:
        launch(cuda)(9)
    assert type(caught.value) is error and "launching scale" in str(caught.value)


def test_a_graph_records_and_replays(cuda: FakeDriver) -> None:
    one = launch(cuda)
    graph = Graph()
    with pytest.raises(CaptureRefused):
        graph()
    with graph:
        stream = streams.current_stream(0)
        assert streams.capturing(0, stream)
        one()
        with device_memory.taken(0, 512, stream, "x"):
            one()
        with pytest.raises(CaptureRefused, match="another recording"):
            Graph().__enter__()
        with pytest.raises(CaptureRefused, match="reads"):
            streams.refuse_capture(0, stream, "calling x", "it reads results", "call it outside")
        launch(cuda)  # code that is loaded now is loaded beside the capture
    assert cuda.log == [] and streams.current_stream(0) == 0
    graph()
    assert [row[0] for row in cuda.log] == ["launch", "take", "launch", "give"]
    assert {row[1] for row in cuda.log} == {0}
    with pytest.raises(CaptureRefused, match="recorded before"):
        graph.__enter__()


def test_a_recording_that_fails_leaves_nothing_behind(cuda: FakeDriver) -> None:
    graph = Graph()
    with pytest.raises(ZeroDivisionError):
        with graph:
            raise ZeroDivisionError
    assert streams.current_stream(0) == 0 and not cuda.captured
    with pytest.raises(CaptureRefused):
        graph()


def test_arrays_that_never_change_are_no_outputs() -> None:
    seen = ArrayView(4096, (8,), (1,), "f32", "cpu", False, None)
    assert view(seen) is seen
    jax = pytest.importorskip("jax", reason="needs JAX, a peer and no dependency")
    array = jax.numpy.arange(8.0)
    assert view(array).ptr == array.unsafe_buffer_pointer(), "no copy"
    with pytest.raises(ReadOnly):
        check_output(view(array))
