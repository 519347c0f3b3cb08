"""Targets by name: `cpu`, `cpu:avx2|avx512|amx` and `cpu:neon|neon_dot|sve` (aarch64), `cuda`, `cuda:sm_80|sm_90a`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from treadle.base.source import user_position
from treadle.driver.errors import TargetAbsent, TargetUnknown
from treadle.runtime.driver import Device, device, devices, ordinal_of
from treadle.runtime.host import host_features
from treadle.runtime.pool import workers
from treadle.toolchain.features import LEVELS

LADDERS = (("avx2", "avx512", "amx"), ("neon", "neon_dot", "sve"))
"""Levels of the CPU by kind of processor: what runs a level runs all before it."""
CPU_LEVELS = tuple(level for ladder in LADDERS for level in ladder)
CUDA_LEVELS = ("sm_80", "sm_90a")
NAMES = (*(f"cpu:{level}" for level in CPU_LEVELS), *(f"cuda:{level}" for level in CUDA_LEVELS))


@dataclass(frozen=True)
class Place:
    """Where calls run: a device, its target's full name, and what plans for it are chosen by beside a call's facts."""

    device: str
    target: str
    features: tuple[str, ...]
    workers: int

    @property
    def kind(self) -> str:
        """`cpu` or `cuda`."""
        return self.target.partition(":")[0]


def place_of(device_name: str) -> Place:
    """The place of arrays on a device, as `cpu` or `cuda:0`. *Errors*: `plan/target-absent`, `cuda/*`."""
    if device_name == "cpu":
        return Place("cpu", host_target(), tuple(sorted(host_features())), workers())
    return _gpu(device_name)


@functools.cache
def _gpu(device_name: str) -> Place:
    kind = device_name.partition(":")[0]
    found = device(ordinal_of(device_name)) if kind == "cuda" else None
    level = None if found is None else _level(found)
    if found is None or level is None:
        raise TargetAbsent(
            doing="choosing a target for the arguments' device",
            found=device_name if found is None else f"{found.name}, which is {found.arch}",
            expected="this machine's memory, or an NVIDIA GPU of compute capability 8.x or 9.0",
            hint="copy the arrays to the CPU",
        )
    return Place(device_name, f"cuda:{level}", (f"processors={found.multiprocessors}",), 1)


def _level(found: Device) -> str | None:
    return next((level for level in reversed(CUDA_LEVELS) if found.runs(level)), None)


def resolve(name: Any) -> str:
    """The full name of a target: `cpu` is the best level of this machine, `cuda` is `cuda:sm_90a`.

    *Errors*: `plan/target`.
    """
    kind, _, level = str(name).partition(":")
    if kind == "cpu" and not level:
        return host_target()
    if kind == "cuda" and not level:
        return "cuda:sm_90a"
    if name in NAMES:
        return name
    raise TargetUnknown(
        doing="choosing a target",
        found=repr(name),
        span=user_position(),
        expected="cpu, cuda, or one of " + ", ".join(NAMES),
        hint="leave target= out for the device of the arguments",
    )


def host_target() -> str:
    """The best CPU level of this machine. *Errors*: `plan/target-absent` without AVX2."""
    have = host_features()
    for level in reversed(CPU_LEVELS):
        if LEVELS[level] - {"amx_int8"} <= have:
            return f"cpu:{level}"
    raise TargetAbsent(
        doing="choosing a target for this machine",
        found="a processor without " + ", ".join(sorted(LEVELS["avx2"] - have)),
        expected="AVX2 and FMA at least, or an aarch64 processor",
        hint="use kernel.reference, which needs no code generation",
    )


def level_runs(level: str, host: str) -> bool:
    """Whether a machine whose best level is `host` runs code for `level`."""
    return any(level in ladder[: ladder.index(host) + 1] for ladder in LADDERS if host in ladder)


def features_of(target: str) -> frozenset[str]:
    """The flags that code for a CPU target may use: the level's own, and what this machine has beyond them.

    A target above this machine's level has its own flags only: its text is assembled, not run. For a CUDA target: the
    count of multiprocessors, when this machine has such a device.
    """
    kind, _, level = target.partition(":")
    if kind == "cuda":
        counts = [d.multiprocessors for d in devices() if d.runs(level)]
        return frozenset(f"processors={n}" for n in counts[:1])
    if LEVELS[level] - {"amx_int8"} <= host_features() and level != "avx2":
        return LEVELS[level] | host_features()
    return LEVELS[level]


def arrays_elsewhere(kernel: str, target: str, device_name: str) -> TargetAbsent:
    """The error for arrays on a device that a plan is not for."""
    return TargetAbsent(
        doing=f"running a plan of {kernel} for {target}",
        found=f"arrays on {device_name}",
        expected="arrays on the plan's device",
        hint="call the kernel itself, which plans for the arguments, or move the arrays",
    )
