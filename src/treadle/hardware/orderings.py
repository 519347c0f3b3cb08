"""A row of the memory model: one word of machine text, with what it promises and who says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["documented", "observed", "assumed"]


@dataclass(frozen=True)
class Ordering:
    """`kind` is the word of machine text (a synchronisation, an engine, a pool, an effect). `grains` are the parts of
    an agent that may execute it: "" all threads, "warp" a lane of each warp, "elect" one. `since`: the first of CUDA's
    architectures that has it, if older ones that are targets have not."""

    kind: str
    targets: str
    grains: tuple[str, ...]
    promises: str
    source: str
    status: Status = "documented"
    measured: str = ""
    litmus: tuple[str, ...] = ()
    judged: bool = True
    since: Literal["", "sm_90", "sm_90a"] = ""


CUDA, GPU, CPU, WEB = "cuda", "cuda webgpu", "cpu", "webgpu"
ANY, ALL, ONE = ("", "warp", "elect"), ("",), ("elect",)
PTX = "PTX ISA 9.0, {}"
GUIDE = "CUDA C++ Programming Guide 13.0, {}"
WGSL = "WGSL (W3C Candidate Recommendation), {}"
