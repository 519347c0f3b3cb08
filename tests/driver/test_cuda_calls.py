"""Calls on a GPU as far as a driver sees them that only takes notes: streams, workspace, copies, captures, failures."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.fake_cuda import ATTRIBUTES, FakeDriver, installed

import treadle as td
from treadle.driver import cuda_variant, targets
from treadle.driver.kernel import Kernel
from treadle.driver.tuning_arrays import PAGE, DeviceCopies, write_arguments
from treadle.driver.tuning_trial import DeviceClock
from treadle.lib.linear import linear
from treadle.lib.rows import softmax
from treadle.runtime import cache, driver, streams
from treadle.runtime.arrays import ArrayView
from treadle.runtime.errors import CaptureRefused, CudaFault, DeviceOutOfMemory, ModuleUnusable

M, N = td.dims("M N")


@td.kernel
def doubled(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        Y[m, N] = X[m, N] * 2


@td.kernel
def positive(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        td.check(X[m] > 0, "X is positive")
        Y[m] = X[m]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver that takes notes, a CuPy whose current stream is 7, and a compiler that compiles nothing."""
    compiled = types.SimpleNamespace(cubin=b"fresh", kernels=(), messages=(), compiler="none")
    monkeypatch.setattr(cuda_variant, "compile_cuda", lambda *args, **kwargs: compiled)
    monkeypatch.setenv("TREADLE_CACHE", "off")
    monkeypatch.setattr(cache, "_default", [])  # what is made here is no code, and stays here
    targets._gpu.cache_clear()
    with installed(FakeDriver()) as fake:
        cupy: Any = types.ModuleType("cupy")
        around = {"__init__": lambda self, n: None, "__enter__": lambda self: self, "__exit__": lambda self, *_: None}
        cupy.cuda = types.SimpleNamespace(
            Device=type("Device", (), around), get_current_stream=lambda ordinal: types.SimpleNamespace(ptr=STREAM[0])
        )
        cupy.ndarray = OnGpu
        cupy.empty = lambda shape, dtype: OnGpu(shape, np.dtype(dtype))
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        STREAM[0] = 7
        yield fake
    targets._gpu.cache_clear()


STREAM = [7]


class OnGpu:
    """A CuPy array that nobody can read."""

    address = 1 << 40

    def __init__(self, shape: tuple[int, ...], dtype: Any = np.float32, address: int | None = None) -> None:
        kind = np.dtype(dtype)
        if address is None:
            address = OnGpu.address
            OnGpu.address += -(-int(np.prod(shape)) * kind.itemsize // 4096) * 4096 + 4096
        self.shape, self.dtype, self.data = shape, kind, types.SimpleNamespace(ptr=address)
        self.strides = np.empty(shape, kind).strides
        self.device = type("D", (), {"id": 0, "__enter__": lambda s: s, "__exit__": lambda s, *_: None})()
        self.__cuda_array_interface__ = {
            "typestr": kind.str,
            "shape": shape,
            "data": (address, False),
            "version": 3,
        }


OnGpu.__module__ = "cupy"


def fresh(kernel: Any) -> Kernel:
    """The kernel without what earlier calls left."""
    return Kernel(kernel.definition)


def test_a_call_launches_on_its_librarys_stream(cuda: FakeDriver) -> None:
    kernel, x = fresh(doubled), OnGpu((64, 128))
    y = kernel(x)
    assert isinstance(y, OnGpu) and y.shape == (64, 128)
    STREAM[0] = 8
    kernel(x, y)
    STREAM[0] = 9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "prepare", None)
        assert kernel(x, y) is y, "a call that was seen before goes the short way"
    assert [row[:2] for row in cuda.log] == [("launch", 7), ("launch", 8), ("launch", 9)]
    cuda.log.pop()
    assert kernel.variants[0].verdict["status"] == "verified"
    bound = kernel.bind(x, y)
    before = cuda.calls["cuModuleGetFunction"]
    STREAM[0] = 9
    assert bound() is y and bound() is y
    assert [row[1] for row in cuda.log[2:]] == [9, 9] and cuda.calls["cuModuleGetFunction"] == before


def test_workspace_is_taken_for_each_call(cuda: FakeDriver) -> None:
    x, w = OnGpu((257, 513), np.float16), OnGpu((513, 259), np.float16)
    kernel, y = fresh(linear), OnGpu((257, 259), np.float16)
    kernel(x, w, None, y)
    plan = kernel.variants[0].plan
    assert "streams" in plan, "an odd pitch is copied to another one first"
    assert [row[0] for row in cuda.log] == ["take", *["launch"] * (len(cuda.log) - 2), "give"] and len(cuda.log) > 3
    bound = kernel.bind(x, w, None, y)
    cuda.log.clear()
    for stream in (7, 8, 7):
        STREAM[0] = stream
        bound()
    assert {row[1] for row in cuda.log} == {7, 8} and not cuda.held
    with td.graph() as graph:
        bound()
        kernel(x, w, None, y)
    cuda.log.clear()
    graph()
    assert [row[0] for row in cuda.log].count("take") == [row[0] for row in cuda.log].count("give") == 2
    cuda.fail["cuLaunchKernelEx"] = [700]
    with pytest.raises(CudaFault):
        bound()
    assert not cuda.held, "also where the launch fails"


def test_inputs_on_outputs_are_copied_in_the_order_of_the_stream(cuda: FakeDriver) -> None:
    kernel, whole = fresh(doubled), OnGpu((65, 128))
    address = whole.__cuda_array_interface__["data"][0]
    x, y = OnGpu((64, 128), address=address), OnGpu((64, 128), address=address + 4 * 128)
    for _ in range(3):
        cuda.log.clear()
        kernel(x, y)
        assert [row[:2] for row in cuda.log] == [("take", 7), ("copy", 7), ("launch", 7), ("give", 7)]
    bound = kernel.bind(x, y)
    cuda.log.clear()
    STREAM[0] = 8
    assert bound() is y
    bound()
    assert [row[:2] for row in cuda.log] == [("take", 8), ("copy", 8), ("launch", 8), ("give", 8)] * 2
    cuda.log.clear()
    cuda.fail["cuMemAllocFromPoolAsync"] = [2, 2]
    with pytest.raises(DeviceOutOfMemory, match="a copy of X"):
        bound()
    assert cuda.log == [], "nothing was launched"


def test_one_view_of_input_and_output_runs_in_place(cuda: FakeDriver) -> None:
    kernel, x = fresh(softmax), OnGpu((64, 1000))
    assert kernel(x, x) is x
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "prepare", None)
        kernel(x, x)  # the short way
    kernel.bind(x, x)()
    assert [row[:2] for row in cuda.log] == [("launch", 7)] * 3, "no copy"
    variant = kernel.variants[0]
    assert "same(X, Y)" in variant.record.machine and variant.verdict["status"] == "verified"
    source = variant.record.source
    assert "__restrict__" not in source.split("__global__")[1].split("{")[0], "loads may meet stores"


def test_a_first_call_inside_a_capture(cuda: FakeDriver) -> None:
    x, y = OnGpu((64, 128)), OnGpu((64, 128))
    with td.graph() as graph:
        fresh(doubled)(x, y)
    assert cuda.log == []
    graph()
    assert [row[0] for row in cuda.log] == ["launch"]


def test_what_no_graph_can_hold(cuda: FakeDriver) -> None:
    x, y = OnGpu((64,)), OnGpu((64,))
    with pytest.raises(CaptureRefused, match="td.check or td.print"):
        with td.graph():
            fresh(positive)(x, y)
    assert streams.current_stream(0) == 7, "the recording is over"
    special, call = fresh(doubled).prepare((OnGpu((4, 8)), OnGpu((4, 8))), {})
    with pytest.raises(CaptureRefused, match="reference interpreter"):
        with td.graph(), cuda_variant.images(call.views):
            raise AssertionError(special)


def test_code_that_the_driver_refuses_is_compiled_anew(cuda: FakeDriver) -> None:
    kernel, x, y = fresh(doubled), OnGpu((64, 128)), OnGpu((64, 128))
    cuda.fail["cuModuleLoadData"] = [200]
    kernel(x, y)
    assert cuda.calls["cuModuleLoadData"] == 2 and [row[0] for row in cuda.log] == ["launch"]
    cuda.fail["cuModuleLoadData"] = [200, 222]
    with pytest.raises(ModuleUnusable):
        fresh(doubled)(x, y)


def test_another_gpu_is_refused(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "device", lambda n: replace(driver.device(n), capability=(7, 0), name="a Volta GPU"))
    with pytest.raises(td.UserError) as caught:
        fresh(doubled)(OnGpu((64, 128)))
    assert caught.value.code == "plan/target-absent" and "a Volta GPU" in str(caught.value)


def test_copies_for_trials_are_the_same_bytes_at_the_same_places(cuda: FakeDriver) -> None:
    room = np.arange(4096, dtype=np.float32)
    at = int(driver.driver().cuMemAlloc(room.nbytes)[1])
    driver.driver().cuMemcpyHtoD(at, room.ctypes.data, room.nbytes)
    views = {
        "X": ArrayView(at + 4 * 100, (3, 5), (-20, 2), "f32", "cuda:0", True, None),
        "Y": ArrayView(at + 4 * 2000, (4, 10), (16, 1), "f32", "cuda:0", True, None),
        "E": ArrayView(at, (0, 3), (3, 1), "f32", "cuda:0", True, None),
    }
    file, placed = write_arguments(views)
    with file:
        copies = DeviceCopies(file.fileno(), placed, "cuda:0")
        for name, seen in views.items():
            made = copies.arrays[name]
            assert (made.shape, made.dtype, made.device) == (seen.shape, seen.dtype, seen.device)
            if seen.size:
                assert made.strides == seen.strides and made.ptr % PAGE == seen.ptr % PAGE and made.ptr != seen.ptr
                read = np.empty(seen.span[1] - seen.span[0], np.uint8)
                driver.driver().cuMemcpyDtoH(read.ctypes.data, made.span[0], read.size)
                first = (seen.span[0] - at) // 4
                assert np.array_equal(read.view(np.float32), room[first : first + read.size // 4])
                driver.driver().cuMemcpyHtoD(made.span[0], bytes(read.size), read.size)
        copies.refresh(["Y"])
        read = np.empty(4, np.float32)
        driver.driver().cuMemcpyDtoH(read.ctypes.data, copies.arrays["Y"].ptr, 16)
        assert read.tolist() == [2000, 2001, 2002, 2003]


def test_trials_on_a_gpu_are_timed_by_events(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setitem(ATTRIBUTES, "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE", 1 << 20)
    monkeypatch.setattr(FakeDriver, "do_cuEventElapsedTime", lambda self, first, last: 2.5, raising=False)
    clock = DeviceClock(0)
    found = clock.together({"plan": lambda: ran.append("plan"), "best": lambda: ran.append("best")}, 3)
    assert found["plan"].samples == (0.0025,) * 3 and ran.count("plan") == 4
    assert cuda.calls["cuMemsetD8Async"] == 6, "the cache is overwritten before each sample"
    assert clock.once(lambda: None) == 0.0025
