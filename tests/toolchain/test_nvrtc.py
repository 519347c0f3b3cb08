"""CUDA text to cubins, and ptxas' report and the machine instructions read back. Needs the cuda extra, no GPU."""

from __future__ import annotations

import pytest
from tests.marks import assembled

from treadle.toolchain import nvrtc, sass
from treadle.toolchain.errors import CudaRejected, DisassemblerFailed, NvrtcFailed, NvrtcMissing

SPILLS = """
__device__ __noinline__ float g(float x) { return x * x + 1.f; }
extern "C" __global__ void __launch_bounds__(128, 8) k(float* p, int n) {
  __shared__ float s[32];
  float a[64], t = 0;
  for (int i = 0; i < 64; i++) a[i] = p[i * n];
  for (int i = 0; i < 64; i++) t += g(a[i]);
  s[threadIdx.x & 31] = a[n & 63];
  __syncthreads();
  p[threadIdx.x] = s[0] + t;
}
"""
WGMMA = """
extern "C" __global__ void w(float* p, unsigned long long a, unsigned long long b) {
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < 4; i++) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b + i));
    d[0] += 1.f;
  }
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  p[threadIdx.x] = d[0] + d[1];
}
"""


@assembled
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_resources_are_read_back(arch: str) -> None:
    done = nvrtc.compile_cuda(SPILLS, arch=arch, name="spills")
    assert done.cubin[:4] == b"\x7fELF" and done.arch == arch
    record = done.kernel("k")
    assert 0 < record.registers <= 64 and record.barriers == 1 and record.shared == 128
    assert record.stack >= 256
    assert [kernel.name for kernel in done.kernels] == ["k"], "a device function is no kernel"
    with pytest.raises(KeyError):
        done.kernel("g")


@assembled
def test_serialised_wgmma_is_reported_and_counted() -> None:
    done = nvrtc.compile_cuda(WGMMA, arch="sm_90a", name="serialised", want_ptx=True)
    codes = [message.code for message in done.messages]
    assert codes.count("C7517") == 4 and "C7511" in codes
    assert all(message.kernel == "w" for message in done.messages)
    assert done.ptx is not None and "wgmma.mma_async" in done.ptx
    read = sass.disassemble(done.cubin)
    assert read.count("w", "HGMMA") == 4 and read.count("w", "STL") == 0
    assert sum(n for name, n in read.spelled["w"].items() if name.startswith("HGMMA.")) == 4
    assert read.count("w", "HGMMA.64x8x16") == 4 and read.count("w", "HGMMA.64x16x16") == 0


@assembled
def test_local_memory_shows_in_the_disassembly() -> None:
    done = nvrtc.compile_cuda(SPILLS, arch="sm_90a", name="spills")
    read = sass.disassemble(done.cubin)
    assert read.count("k", "LDL") > 0 and read.count("k", "STL") > 0 and read.count("k", "LDG.E") == 64


@assembled
def test_contraction_is_off_unless_asked_for() -> None:
    text = 'extern "C" __global__ void k(float* p) { p[0] = p[1] * p[2] + p[3]; }'
    exact = nvrtc.compile_cuda(text, arch="sm_80", name="k", want_ptx=True)
    fused = nvrtc.compile_cuda(text, arch="sm_80", name="k", want_ptx=True, contract=True)
    assert exact.ptx and "fma.rn.f32" not in exact.ptx
    assert fused.ptx and "fma.rn.f32" in fused.ptx


@assembled
def test_headers_are_the_given_ones() -> None:
    text = '#include "own.h"\nextern "C" __global__ void k(float* p) { p[0] = VALUE; }'
    done = nvrtc.compile_cuda(text, arch="sm_80", name="k", headers={"own.h": "#define VALUE 2.0f\n"})
    assert done.kernel("k").registers > 0
    with pytest.raises(CudaRejected):
        nvrtc.compile_cuda(text, arch="sm_80", name="k")


@assembled
def test_wrong_text_and_wrong_architecture() -> None:
    with pytest.raises(CudaRejected) as caught:
        nvrtc.compile_cuda("int x = ;", arch="sm_80", name="wrong")
    assert "wrong.cu(1): error" in caught.value.found and caught.value.before == "int x = ;"
    with pytest.raises(NvrtcFailed) as failed:
        nvrtc.compile_cuda("", arch="sm_1", name="wrong")
    assert "sm_1" in str(failed.value)


@assembled
def test_ptxas_errors_are_rejections() -> None:
    text = 'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    with pytest.raises(CudaRejected) as caught:
        nvrtc.compile_cuda(text, arch="sm_80", name="old")
    assert "sm_90a" in caught.value.found or "wgmma" in caught.value.found


def test_missing_extra_has_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(nvrtc.importlib, "import_module", absent)
    with pytest.raises(NvrtcMissing) as caught:
        nvrtc.compile_cuda("", arch="sm_80", name="k")
    assert caught.value.code == "toolchain/nvrtc-missing" and "[cuda]" in caught.value.hint


@assembled
def test_garbage_is_no_cubin() -> None:
    with pytest.raises(DisassemblerFailed):
        sass.disassemble(b"not a cubin")


def test_log_records() -> None:
    log = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
        "non wgmma instructions defining accumulator registers of a wgmma in the function 'main'\n"
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function 'main' for 'sm_90a'\n"
        "ptxas info    : Function properties for main\n"
        "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes smem, 640 bytes cmem[0]\n"
        "ptxas warning : setmaxnreg ignored to maintain minimum register requirements.\n"
    )
    kernels, messages = nvrtc.parse_log(log)
    assert kernels == (nvrtc.KernelResources("main", 168, 3, 16, 8, 4, 1024, 640),)
    assert [(m.code, m.severity, m.kernel) for m in messages] == [("C7510", "info", "main"), ("", "warning", None)]
