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
}
_CODE_FLAGS = frozenset(
    "sse3 ssse3 sse4_1 sse4_2 popcnt cx16 avx avx2 fma f16c bmi1 bmi2 lzcnt movbe gfni avx_vnni avx512f avx512bw "
    "avx512dq avx512vl avx512cd avx512vbmi avx512_vbmi2 avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 "
    "amx_int8".split()
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
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
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


def require_pool_platform() -> None:
    """Be on a platform that the worker pool is written for. Errors: runtime/platform."""
    if not _is_linux_x86():
        raise PlatformUnsupported(
            doing="starting the worker pool",
            found=f"{platform.system()} on {platform.machine()}",
            expected="Linux on x86_64",
            hint="run with one worker: TREADLE_WORKERS=1",
        )


def available_cores() -> int:
    """How many cores this process may use at once: its affinity mask, and its control group's quota rounded up."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    quota = _quota()
    return max(1, min(cores, quota) if quota is not None else cores)


def _quota() -> int | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else -(-int(limit) // int(period))
    except (OSError, ValueError):
        return None
