"""Targets by name: `cpu`, `cpu:avx2|avx512|amx`, `cuda`, `cuda:sm_80|sm_90a`."""

from __future__ import annotations

from treadle.driver.errors import TargetAbsent, TargetUnknown
from treadle.runtime.host import host_features
from treadle.toolchain.features import LEVELS

CPU_LEVELS = ("avx2", "avx512", "amx")
CUDA_LEVELS = ("sm_80", "sm_90a")
NAMES = (*(f"cpu:{level}" for level in CPU_LEVELS), *(f"cuda:{level}" for level in CUDA_LEVELS))


def resolve(name: str) -> str:
    """The full name of a target: `cpu` is the best level of this machine, `cuda` is `cuda:sm_90a`.

    *Errors*: `plan/target`.
    """
    kind, _, level = name.partition(":")
    if kind == "cpu" and not level:
        return host_target()
    if kind == "cuda" and not level:
        return "cuda:sm_90a"
    if name in NAMES:
        return name
    raise TargetUnknown(
        doing="choosing a target",
        found=repr(name),
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
        expected="AVX2 and FMA at least",
        hint="use kernel.reference, which needs no code generation",
    )


def features_of(target: str) -> frozenset[str]:
    """The flags that code for a CPU target may use: the level's own, and what this machine has beyond them.

    A target above this machine's level has its own flags only: its text is assembled, not run.
    """
    level = target.partition(":")[2]
    if LEVELS[level] - {"amx_int8"} <= host_features() and level != "avx2":
        return LEVELS[level] | host_features()
    return LEVELS[level]


def arrays_elsewhere(kernel: str, device: str) -> TargetAbsent:
    """The error for arrays on a device that no code runs on."""
    return TargetAbsent(
        doing=f"running {kernel}",
        found=f"arrays on {device}",
        expected="arrays in this machine's memory: no code runs on that device yet",
        hint="copy the arrays to the CPU, or plan for the device: kernel.plan(..., target='cuda')",
    )
