"""CUDA C++ text to a cubin through NVRTC, with what ptxas said about it as data.

No GPU and no driver is needed. NVRTC comes with the extra `treadle[cuda]`; `_bindings` is this room's one seam to it.
What ptxas reports is parsed into records: registers, spills, stack and shared memory of each kernel, and the numbered
messages (wgmma serialised, waits injected, register directives ignored) that decide whether a plan came out as meant.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from treadle.toolchain.errors import CudaRejected, NvrtcFailed, NvrtcMissing


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What ptxas gave one kernel. Units: registers per lane; all others bytes, `shared` is the static part."""

    name: str
    registers: int
    barriers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    constant: int = 0


@dataclass(frozen=True, slots=True)
class PtxasMessage:
    """One message of ptxas: `code` is `"C7510"`, or empty for a message without a number."""

    code: str
    severity: str
    text: str
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class CompiledCubin:
    """A cubin and its compiler's report. Units: `seconds`."""

    name: str
    arch: str
    cubin: bytes
    log: str
    kernels: tuple[KernelResources, ...]
    messages: tuple[PtxasMessage, ...]
    compiler: str
    ptx: str | None = None
    seconds: float = field(default=0.0, compare=False)

    def kernel(self, name: str) -> KernelResources:
        """The record of kernel `name`. Errors: KeyError."""
        for record in self.kernels:
            if record.name == name:
                return record
        raise KeyError(name)


def _bindings() -> Any:
    """The optional NVRTC bindings, with the library behind them loaded.

    Errors: toolchain/nvrtc-missing.
    """
    try:
        module = importlib.import_module("cuda.bindings.nvrtc")
        module.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise NvrtcMissing(
            doing="loading the CUDA compiler NVRTC",
            found=f"{type(error).__name__}: {error}",
            expected="the packages cuda-bindings and nvidia-cuda-nvrtc, version 13.0",
            hint="in a checkout of the repository: ./dev setup cuda, or pip install '.[cuda]'",
        ) from error
    return module


def nvrtc_version() -> str:
    """NVRTC's version, as part of cache keys: `"13.0"`. Errors: toolchain/nvrtc-missing."""
    _, major, minor = _bindings().nvrtcVersion()
    return f"{major}.{minor}"


def compile_cuda(
    text: str,
    *,
    arch: str,
    name: str,
    contract: bool = False,
    options: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    want_ptx: bool = False,
) -> CompiledCubin:
    """The cubin of the CUDA C++ `text` for `arch` (`"sm_90a"`, `"sm_80"`).

    `contract` allows fused multiply-add where the text multiplies and adds. `headers` maps the names that the text
    includes to their texts; there are no others.
    Errors: toolchain/nvrtc-missing, toolchain/nvrtc-failed, toolchain/cuda-rejected.
    """
    nvrtc = _bindings()
    start = time.perf_counter()
    flags = [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        f"--fmad={'true' if contract else 'false'}",
        "--ptxas-options=-v",
        "--ptxas-options=--warn-on-spills",
        "--no-cache",  # where a driver is, code from its cache comes without what ptxas says of it
        *options,
    ]
    included = dict(headers or {})
    status, program = nvrtc.nvrtcCreateProgram(
        text.encode(),
        f"{name}.cu".encode(),
        len(included),
        [body.encode() for body in included.values()],
        [header.encode() for header in included],
    )
    _expect(nvrtc, status, f"creating an NVRTC program for {name}")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = _fetch(nvrtc, program, "ProgramLog").decode("utf-8", "replace").rstrip("\0").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _rejection(nvrtc, status, name, arch, text, log)
        cubin = _fetch(nvrtc, program, "CUBIN")
        ptx = _fetch(nvrtc, program, "PTX").decode().rstrip("\0") if want_ptx else None
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    kernels, messages = parse_log(log)
    version = f"nvrtc {nvrtc_version()}"
    return CompiledCubin(name, arch, cubin, log, kernels, messages, version, ptx, time.perf_counter() - start)


def _fetch(nvrtc: Any, program: Any, what: str) -> bytes:
    """One of NVRTC's results by the two calls that each has: its size, then its bytes."""
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _expect(nvrtc, status, f"reading NVRTC's {what}")
    # The bindings write into the bytes object; a fresh one of zeros is never shared unless it is one zero byte.
    data = bytes(size)
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, data)
    _expect(nvrtc, status, f"reading NVRTC's {what}")
    return data


def _expect(nvrtc: Any, status: Any, doing: str) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise NvrtcFailed(
            doing=doing,
            found=str(status.name),
            expected="NVRTC_SUCCESS",
            hint="check that nvidia-cuda-nvrtc is of version 13.0: treadle doctor",
        )


def _rejection(nvrtc: Any, status: Any, name: str, arch: str, text: str, log: str) -> CudaRejected | NvrtcFailed:
    doing = f"compiling the CUDA text of {name} for {arch}"
    if status != nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
        return NvrtcFailed(
            doing=doing,
            found=f"{status.name}\n{log}".strip(),
            expected="a compilation that starts",
            hint=f"check that this NVRTC knows {arch}: treadle doctor",
        )
    return CudaRejected(
        doing=doing,
        found="\n".join(log.splitlines()[:20]),
        expected="text that NVRTC and ptxas accept",
        pass_name="emit",
        before=text,
    )


_PROPERTIES = re.compile(r"(?:Function properties for|Compiling entry function) '?([^\s']+)'?")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_AMOUNTS = (
    ("barriers", re.compile(r"used (\d+) barriers")),
    ("shared", re.compile(r"(\d+) bytes smem")),
    ("constant", re.compile(r"(\d+) bytes cmem\[0\]")),
)
_MESSAGE = re.compile(r"^ptxas\s*(?P<place>[^:]*?)\s*(?P<severity>info|warning|error|fatal)\s*:\s*(?P<text>.*)$")
_CODE = re.compile(r"^\((C\d+)\)\s*|\((C\d+)\)")
_IN_KERNEL = re.compile(r"in (?:the )?(?:function|kernel) '([^']+)'|for entry (?:function )?'([^']+)'")
_ROUTINE = re.compile(
    r"^(\d+ bytes gmem|Compiling entry function|Function properties|Used \d+ registers|Compile time|Overriding)"
)


def parse_log(log: str) -> tuple[tuple[KernelResources, ...], tuple[PtxasMessage, ...]]:
    """The kernels' resources and the messages that are not routine, in the order of `log`."""
    kernels: dict[str, KernelResources] = {}
    messages: list[PtxasMessage] = []
    current: str | None = None
    for line in log.splitlines():
        named = _PROPERTIES.search(line)
        if named is not None:
            current = str(named[1])
            kernels.setdefault(current, KernelResources(current, 0))
            continue
        frame, used = _FRAME.search(line), _USED.search(line)
        if current is not None and frame is not None:
            stack, stores, loads = (int(part) for part in frame.groups())
            kernels[current] = replace(kernels[current], stack=stack, spill_stores=stores, spill_loads=loads)
        elif current is not None and used is not None:
            amounts = {key: int(found[1]) for key, pattern in _AMOUNTS if (found := pattern.search(line))}
            kernels[current] = replace(kernels[current], registers=int(used[1]), **amounts)
        else:
            message = _message(line)
            if message is not None:
                messages.append(message)
    # A device function that was not inlined has properties and no registers of its own.
    return tuple(record for record in kernels.values() if record.registers), tuple(messages)


def _message(line: str) -> PtxasMessage | None:
    match = _MESSAGE.match(line.strip())
    if match is None or _ROUTINE.match(match["text"]):
        return None
    text = match["text"].strip()
    code = _CODE.search(text)
    kernel = _IN_KERNEL.search(text)
    return PtxasMessage(
        code=(code[1] or code[2]) if code is not None else "",
        severity=match["severity"],
        text=_CODE.sub("", text).strip() if code is not None else text,
        kernel=(kernel[1] or kernel[2]) if kernel is not None else None,
    )
