"""`treadle doctor`: what this machine has, in one table."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence

from treadle.base.errors import TreadleError
from treadle.cli.parser import Parser
from treadle.driver.targets import host_target
from treadle.runtime.cache import default_cache
from treadle.runtime.driver import devices
from treadle.runtime.host import amx_permission, available_cores, host_features
from treadle.runtime.pool import workers

PACKAGES = ("numpy", "ml_dtypes", "islpy", "llvmlite", "rich", "cuda-bindings", "nvidia-cuda-nvrtc", "torch")
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")


def run(argv: Sequence[str]) -> int:
    """Prints the table; exit status 0."""
    Parser(prog="treadle doctor", description="What this machine has and can run.").parse_args(argv)
    for name, value in rows():
        print(f"{name:<12} {value}")
    return 0


def rows() -> Iterator[tuple[str, str]]:
    """Names and values of the table."""
    yield "treadle", importlib.metadata.version("treadle")
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    have = host_features()
    yield "cpu flags", " ".join(f for f in FLAGS if f in have) or "none that code generation uses"
    yield "cpu target", _or_reason(host_target)
    if "amx_tile" in have:
        yield "amx", "permitted" if amx_permission() else "refused by the system"
    yield "workers", f"{workers()} of {available_cores()} cores (TREADLE_WORKERS, td.set_workers)"
    yield "cuda", _or_reason(lambda: f"{len(devices())} devices")
    yield "cache", str(default_cache().stats().root)
    for package in PACKAGES:
        yield package, _version(package)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _or_reason(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except TreadleError as error:
        return f"no: {error.found}"
