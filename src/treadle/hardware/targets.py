"""Targets: their names and the capacities that a machine program must respect.

*Source* of the x86 rows: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapters
on AVX2, AVX-512 and AMX. Of the WebGPU row: WebGPU (W3C Candidate Recommendation), Limits: the defaults that every
device grants. Of the CUDA rows: CUDA C++ Programming Guide 13.0, "Compute Capabilities", table "Technical
Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Capacities. Bytes for memories; `dependent_launches`: one may begin before the launch before it is over;
    `vector_bits` is the widest vector; `registers` a thread (CUDA) or vectors
    (CPU)."""

    name: str
    kind: str
    vector_bits: int = 0
    vector_registers: int = 0
    tiles: int = 0
    tile_bytes: int = 0
    shared_bytes: int = 0
    registers: int = 0
    registers_a_thread: int = 0
    threads_a_workgroup: int = 0
    named_barriers: int = 0
    warp: int = 0
    cluster: int = 1
    dependent_launches: bool = False


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("cpu:avx2", "cpu", vector_bits=256, vector_registers=16),
        Target("cpu:avx512", "cpu", vector_bits=512, vector_registers=32),
        Target("cpu:amx", "cpu", vector_bits=512, vector_registers=32, tiles=8, tile_bytes=1024),
        Target(
            "cuda:sm_80",
            "cuda",
            shared_bytes=163 * 1024,
            registers=65536,
            registers_a_thread=255,
            threads_a_workgroup=1024,
            named_barriers=16,
            warp=32,
        ),
        Target(
            "cuda:sm_90a",
            "cuda",
            shared_bytes=227 * 1024,
            registers=65536,
            registers_a_thread=255,
            threads_a_workgroup=1024,
            named_barriers=16,
            warp=32,
            cluster=16,
            dependent_launches=True,
        ),
        Target("webgpu", "webgpu", shared_bytes=16 * 1024, threads_a_workgroup=256),
    )
}
"""By the name that a machine program states."""


def find_target(name: str) -> Target | None:
    """The target's row; a bare kind is its most general member."""
    return TARGETS.get({"cpu": "cpu:avx2", "cuda": "cuda:sm_80"}.get(name, name))
