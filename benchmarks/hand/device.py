"""What the device runs share: tensor maps, launches, poisoned surroundings, interleaved timing, the report's head."""

from __future__ import annotations

import ctypes
import pathlib
import random
import subprocess

import torch
from cuda.bindings import driver

HERE = pathlib.Path(__file__).parent
TENSOR_MAP_BYTES = 128


def ok(result):
    status, *rest = result
    if int(status) != 0:
        raise SystemExit(f"driver call failed: {status}")
    return rest[0] if len(rest) == 1 else rest


def tensor_map(address: int, dims: list[int], pitches: list[int], box: list[int], promotion: int = 256):
    """bf16 map with 128-byte swizzle and zero fill; `dims` innermost first, `pitches` in bytes of dims 1.."""
    u64, u32 = driver.cuuint64_t, driver.cuuint32_t
    promote = {
        128: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        256: driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }[promotion]
    return ok(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            len(dims),
            address,
            [u64(d) for d in dims],
            [u64(p) for p in pitches],
            [u32(b) for b in box],
            [u32(1) for _ in dims],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            promote,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


class Kernel:
    def __init__(self, name: str, entry: str, shared: int):
        image = (HERE / "build" / f"{name}.cubin").read_bytes()
        self.module = ok(driver.cuModuleLoadData(image))
        self.function = ok(driver.cuModuleGetFunction(self.module, entry.encode()))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ok(driver.cuFuncSetAttribute(self.function, attribute, shared))
        self.shared = shared
        self.name = name

    def launch(self, grid: int, threads: int, arguments: list):
        """A callable that launches with these arguments (tensor maps, ints, floats, tensors) on the current stream."""
        holders = []
        for argument in arguments:
            if isinstance(argument, driver.CUtensorMap):
                holder = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer_copy(
                    ctypes.string_at(argument.getPtr(), TENSOR_MAP_BYTES)
                )
            elif isinstance(argument, float):
                holder = ctypes.c_float(argument)
            elif isinstance(argument, int):
                holder = ctypes.c_int(argument)
            else:
                holder = ctypes.c_void_p(0 if argument is None else argument.data_ptr())
            holders.append(holder)
        pointers = (ctypes.c_void_p * len(holders))(*[ctypes.addressof(h) for h in holders])
        address = ctypes.addressof(pointers)

        def go() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            ok(driver.cuLaunchKernel(self.function, grid, 1, 1, threads, 1, 1, self.shared, stream, address, 0))

        go.keep = (holders, pointers, arguments)
        return go


SMS = 132


def inside(rows: int, columns: int, fill, pad: int = 8) -> torch.Tensor:
    """A rows x columns view whose neighbours on every side are NaN."""
    room = torch.full((rows + 4, columns + 2 * pad), float("nan"), dtype=torch.bfloat16, device="cuda")
    view = room[2 : rows + 2, pad : columns + pad]
    view.copy_(fill)
    return view


def neighbours_untouched(view: torch.Tensor) -> bool:
    room = view._base.clone()
    rows, columns = view.shape
    pad = (room.shape[1] - columns) // 2
    room[2 : rows + 2, pad : columns + pad] = float("nan")
    return bool(room.isnan().all())


def time_interleaved(calls: dict, rounds: int, flush: torch.Tensor) -> dict:
    samples = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    order = list(calls)
    shuffle = random.Random(7)
    for _ in range(rounds):
        shuffle.shuffle(order)
        events = []
        for name in order:
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            calls[name]()
            end.record()
            events.append((name, start, end))
        torch.cuda.synchronize()
        for name, start, end in events:
            samples[name].append(start.elapsed_time(end) * 1000)
    return samples


def clock() -> str:
    query = "clocks.sm,power.draw,driver_version,name"
    return subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()


def begin(experiment: str) -> dict:
    """The head of a report; makes the context current."""
    torch.zeros(1, device="cuda")
    report: dict = {
        "experiment": experiment,
        "device": torch.cuda.get_device_name(),
        "clock": clock(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "cuda": torch.version.cuda,
        "method": "CUDA events around each call, 512 MiB overwritten before each, call order shuffled each round, "
        "random normal data",
    }
    print(report, flush=True)
    return report
