"""The CUDA half on a real device: compile, load, launch with every feature, compare. Skipped where there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from treadle.runtime import timing
from treadle.runtime.cuda import CudaLaunch, Geometry, Pointer, Scalar, load_cubin
from treadle.runtime.driver import Device, current, devices, driver, ok
from treadle.runtime.errors import DeviceMissing, LaunchInvalid
from treadle.runtime.tensor_map import TensorMapSpec
from treadle.toolchain.nvrtc import compile_cuda

DEVICES = devices()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not DEVICES, reason="needs a CUDA device")]

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, float s, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = s * x[i];
}
extern "C" __global__ void wide(float* y) {
  extern __shared__ float room[];
  for (int i = threadIdx.x; i < 40000; i += blockDim.x) room[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = room[39999];
}
extern "C" __global__ void rank(unsigned* y) {
  unsigned r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  if (threadIdx.x == 0) y[blockIdx.x] = r;
}
"""
COPY = """
struct alignas(64) Map { unsigned long long word[16]; };
extern "C" __global__ void fetch(const __grid_constant__ Map map, float* y, int x0, int y0) {
  __shared__ alignas(128) float tile[8 * 16];
  __shared__ alignas(8) unsigned long long bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar), t = (unsigned)__cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(b) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(t), "l"(&map), "r"(b), "r"(x0), "r"(y0) : "memory");
  }
  __syncthreads();
  asm volatile("{.reg .pred d; again: mbarrier.try_wait.parity.shared::cta.b64 d, [%0], 0; @d bra passed;"
               " bra again; passed:}" ::"r"(b) : "memory");
  for (int i = threadIdx.x; i < 128; i += blockDim.x) y[i] = tile[i];
}
"""


class Room:
    """A NumPy array's copy on the device."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = np.ascontiguousarray(values)
        self.address = int(ok(driver().cuMemAlloc(self.values.nbytes), "allocating"))
        ok(driver().cuMemcpyHtoD(self.address, self.values.ctypes.data, self.values.nbytes), "copying")

    def read(self) -> np.ndarray[Any, Any]:
        ok(driver().cuCtxSynchronize(), "waiting")
        result = np.empty_like(self.values)
        ok(driver().cuMemcpyDtoH(result.ctypes.data, self.address, result.nbytes), "copying")
        return result


@pytest.fixture
def on() -> Iterator[Device]:
    with current(DEVICES[0]) as entered:
        yield entered


def arch(on: Device) -> str:
    return on.arch + ("a" if on.capability == (9, 0) else "")


def bits(value: float) -> int:
    return ctypes.c_uint32.from_buffer_copy(ctypes.c_float(value)).value


def test_launch_and_launch_again(on: Device) -> None:
    function = load_cubin(compile_cuda(SCALE, arch=arch(on), name="scale").cubin, arch(on), on).function("scale")
    x, y = Room(np.arange(1000, dtype=np.float32)), Room(np.zeros(1000, np.float32))
    arguments = [Pointer(x.address), Pointer(y.address), Scalar(bits(2.5), 4), Scalar(1000, 8)]
    bound = CudaLaunch(function, Geometry((8, 1, 1), (128, 1, 1)), arguments, outs="y")
    assert bound() == "y"
    assert np.array_equal(y.read(), x.values * np.float32(2.5))
    stream = ok(driver().cuStreamCreate(1), "making a stream")
    CudaLaunch(function, Geometry((8, 1, 1), (128, 1, 1)), [*arguments[:2], Scalar(bits(-1.0), 4), arguments[3]])(
        int(stream)
    )
    ok(driver().cuStreamSynchronize(stream), "waiting")
    assert np.array_equal(y.read(), -x.values)
    CudaLaunch(function, Geometry((0, 1, 1), (128, 1, 1)), arguments)()
    assert np.array_equal(y.read(), -x.values), "an empty grid launches nothing"
    assert function.registers > 0 and function.resident(128) >= on.multiprocessors


def test_large_shared_memory_and_cooperative(on: Device) -> None:
    module = load_cubin(compile_cuda(SCALE, arch=arch(on), name="wide").cubin, arch(on), on)
    y = Room(np.zeros(4, np.float32))
    function = module.function("wide", shared=160_000)
    CudaLaunch(function, Geometry((4, 1, 1), (256, 1, 1), shared=160_000, cooperative=True), [Pointer(y.address)])()
    assert y.read().tolist() == [39999.0] * 4
    with pytest.raises(LaunchInvalid):
        module.function("wide", shared=on.shared_bytes + 1)


def test_clusters_and_tensor_maps(on: Device) -> None:
    if on.capability != (9, 0):
        pytest.skip("needs a device of sm_90a")
    ranks = load_cubin(compile_cuda(SCALE, arch="sm_90a", name="rank").cubin, "sm_90a", on).function("rank")
    y = Room(np.zeros(8, np.uint32))
    CudaLaunch(ranks, Geometry((8, 1, 1), (32, 1, 1), cluster=(4, 1, 1)), [Pointer(y.address)])()
    assert y.read().tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    matrix = np.arange(20 * 32, dtype=np.float32).reshape(20, 32)
    x, tile = Room(matrix), Room(np.full((8, 16), -1, np.float32))
    spec = TensorMapSpec("f32", x.address, (30, 20), (128,), (16, 8), (1, 1), "none", "none", "128B", "zero")
    fetch = load_cubin(compile_cuda(COPY, arch="sm_90a", name="copy").cubin, "sm_90a", on).function("fetch")
    CudaLaunch(fetch, Geometry((1, 1, 1), (128, 1, 1)), [spec, Pointer(tile.address), Scalar(20, 4), Scalar(15, 4)])()
    expected = np.zeros((8, 16), np.float32)
    expected[:5, :10] = matrix[15:20, 20:30]
    assert np.array_equal(tile.read(), expected), "beyond the extents the engine fills with zeros"


def test_foreign_cubins_are_refused(on: Device) -> None:
    if on.capability[0] == 8:
        pytest.skip("needs a device that does not run sm_80")
    with pytest.raises(DeviceMissing):
        load_cubin(compile_cuda(SCALE, arch="sm_80", name="old").cubin, "sm_80", on)


def test_events(on: Device) -> None:
    function = load_cubin(compile_cuda(SCALE, arch=arch(on), name="scale").cubin, arch(on), on).function("scale")
    x = Room(np.zeros(1 << 20, np.float32))
    arguments = [Pointer(x.address), Pointer(x.address), Scalar(bits(1.0), 4), Scalar(1 << 20, 8)]
    bound = CudaLaunch(function, Geometry((8192, 1, 1), (128, 1, 1)), arguments)
    done = timing.interleaved_on_device({"a": bound, "b": bound}, rounds=5)
    assert all(0 < sample < 1 for row in done.values() for sample in row.samples)
