"""This machine: its instruction flags, the tile permission, and how many cores this process may use.

Read from the operating system, without LLVM; `treadle.toolchain.features` reads the flags a second way, and a test
compares the two. Flags are spelled as Linux spells them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from pathlib import Path
from typing import Any

import llvmlite.binding

from treadle.runtime.errors import PlatformUnsupported, TilesRefused
from treadle.runtime.pool_systems import SYSTEMS, System

llvm: Any = llvmlite.binding  # ships without types

_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_TILE_DATA = 18

# Where Linux's name for a flag is not the one used here, or LLVM's is not Linux's.
_FROM_LINUX = {"pni": "sse3", "abm": "lzcnt"}
_FROM_LLVM = {
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "avxvnni": "avx_vnni",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "fp-armv8": "fp",
    "neon": "asimd",
    "fullfp16": "asimdhp",
    "dotprod": "asimddp",
}
_CODE_FLAGS = frozenset(
    "sse3 ssse3 sse4_1 sse4_2 popcnt cx16 avx avx2 fma f16c bmi1 bmi2 lzcnt movbe gfni avx_vnni avx512f avx512bw "
    "avx512dq avx512vl avx512cd avx512vbmi avx512_vbmi2 avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 "
    "amx_int8 fp asimd asimdhp asimddp sve".split()
)


@functools.cache
def host_features() -> frozenset[str]:
    """The flags of this processor that code can be compiled for and that the operating system has switched on."""
    return frozenset((_linux_flags() or _llvm_flags()) & _CODE_FLAGS)


def _llvm_flags() -> set[str]:
    seen: dict[str, bool] = llvm.get_host_cpu_features()
    return {_FROM_LLVM.get(name, name) for name, on in seen.items() if on}


def _linux_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return {_FROM_LINUX.get(flag, flag) for flag in value.split()}
    return set()


@functools.cache
def amx_permission() -> bool:
    """Whether this process may use tile registers; asks Linux for the permission at the first call.

    One call serves all threads that exist or start later. False where the processor has no tiles.
    """
    if "amx_tile" not in host_features() or not _is_linux_x86():
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA) == 0


def require_tiles(doing: str) -> None:
    """Have the tile permission. Errors: runtime/tiles-refused."""
    if not amx_permission():
        raise TilesRefused(
            doing=doing,
            found="the system call that asks for tile registers was refused",
            expected="a processor with amx_tile and Linux 5.16 or later",
            hint="plan for another target: cpu:avx512",
        )


def _is_linux_x86() -> bool:
    return platform.system() == "Linux" and platform.machine() in ("x86_64", "AMD64")


def pool_system() -> System:
    """The platform of the worker pool that this is. Errors: runtime/platform."""
    found = SYSTEMS.get((platform.system(), platform.machine()))
    if found is None:
        raise PlatformUnsupported(
            doing="starting the worker pool",
            found=f"{platform.system()} on {platform.machine()}",
            expected=", ".join(f"{system} on {machine}" for system, machine in SYSTEMS),
            hint="run with one worker: TREADLE_WORKERS=1",
        )
    return found


_GROUP = 64
"""The most CPUs that a thread's mask has on Windows."""


def _calling_thread() -> frozenset[int]:
    """The CPUs on which the calling thread may run, where the system tells; else all."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    every = frozenset(range(os.cpu_count() or 1))
    if platform.system() != "Windows":
        return every
    allowed, there = ctypes.c_size_t(), ctypes.c_size_t()
    kernel: Any = vars(ctypes)["WinDLL"]("kernel32")  # a name of ctypes on Windows only
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    # The masks are 0 for a process with threads in several groups.
    fine = kernel.GetProcessAffinityMask(process, ctypes.byref(allowed), ctypes.byref(there))
    if len(every) > _GROUP or not fine or not allowed.value:
        return every
    return frozenset(i for i in range(_GROUP) if allowed.value >> i & 1)


_AT_IMPORT = _calling_thread()
_BINDS = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def allowed_cpus() -> frozenset[int]:
    """The CPUs on which this process may run.

    The calling thread's, but for a thread that an OpenMP library has bound to a part of them (`OMP_PROC_BIND` and its
    kin are set): then those that it had when this room was loaded, and those of all threads of the process.
    """
    mine = _calling_thread()
    bound = os.environ.get("OMP_PROC_BIND", "false").lower() != "false" or any(name in os.environ for name in _BINDS)
    if not bound or not hasattr(os, "sched_getaffinity"):
        return mine
    return mine.union(_AT_IMPORT, *(_of_thread(name) for name in _threads()))


def _threads() -> list[str]:
    try:
        return os.listdir("/proc/self/task")
    except OSError:
        return []


def _of_thread(name: str) -> set[int]:
    try:
        return os.sched_getaffinity(int(name))
    except OSError:
        return set()  # it has ended


def can_place(cpus: frozenset[int], workers: int) -> bool:
    """Whether the pool keeps its threads off the caller's CPU: there must be another one, and one for each worker."""
    few = platform.system() != "Windows" or max(cpus) < _GROUP
    return pool_system().places and few and len(cpus) > 1 and workers <= len(cpus)


def available_cores() -> int:
    """How many cores this process may use at once: its affinity mask, and its control group's quota rounded up."""
    cores = len(allowed_cpus())
    quota = _quota()
    return max(1, min(cores, quota) if quota is not None else cores)


def _quota() -> int | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        return None if limit == "max" else -(-int(limit) // int(period))
    except (OSError, ValueError):
        return None
