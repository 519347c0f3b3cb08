"""Targets: their names and the capacities that a machine program must respect."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.hardware.orderings import GUIDE, Status


@dataclass(frozen=True)
class Target:
    """Capacities. Bytes for memories; `dependent_launches`: one may begin before the launch before it is over;
    `vector_bits` is the widest vector; `registers` are those of a workgroup, `registers_a_thread` of one thread."""

    name: str
    kind: str
    source: str
    status: Status
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


_SDM = "Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, {}"
_ARM = "Arm Architecture Reference Manual for A-profile architecture (DDI 0487), {}"
_CAPABILITIES = GUIDE.format("Compute Capabilities: Technical Specifications per Compute Capability")

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("cpu:avx2", "cpu", _SDM.format("chapter on AVX2"), "documented", vector_bits=256, vector_registers=16),
        Target(
            "cpu:avx512", "cpu", _SDM.format("chapter on AVX-512"), "documented", vector_bits=512, vector_registers=32
        ),
        Target(
            "cpu:amx",
            "cpu",
            _SDM.format("chapters on AVX-512 and AMX"),
            "documented",
            vector_bits=512,
            vector_registers=32,
            tiles=8,
            tile_bytes=1024,
        ),
        Target(
            "cpu:neon",
            "cpu",
            _ARM.format("part A: Advanced SIMD, 32 registers of 128 bits"),
            "documented",
            vector_bits=128,
            vector_registers=32,
        ),
        Target(
            "cpu:neon_dot",
            "cpu",
            _ARM.format("part A: FEAT_FP16 and FEAT_DotProd"),
            "documented",
            vector_bits=128,
            vector_registers=32,
        ),
        Target(
            "cpu:sve",
            "cpu",
            _ARM.format("part A: SVE, 32 registers of a multiple of 128 bits, which are 256 at this level"),
            "documented",
            vector_bits=256,
            vector_registers=32,
        ),
        Target(
            "cuda:sm_80",
            "cuda",
            _CAPABILITIES,
            "documented",
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
            f"{_CAPABILITIES}; Thread Block Clusters; Programmatic Dependent Launch",
            "documented",
            shared_bytes=227 * 1024,
            registers=65536,
            registers_a_thread=255,
            threads_a_workgroup=1024,
            named_barriers=16,
            warp=32,
            cluster=16,
            dependent_launches=True,
        ),
        Target(
            "webgpu",
            "webgpu",
            "WebGPU (W3C Candidate Recommendation), Limits: the defaults that every device grants",
            "documented",
            shared_bytes=16 * 1024,
            threads_a_workgroup=256,
        ),
    )
}
"""By the name that a machine program states."""


def find_target(name: str) -> Target | None:
    """The target's row; a bare kind is its most general member."""
    return TARGETS.get({"cpu": "cpu:avx2", "cuda": "cuda:sm_80"}.get(name, name))
