"""What orders memory on each target: one row a kind of synchronisation, with what it promises and who says so.

These are assumptions: the judge's rules of rings, barriers and operations in flight rest on them and on nothing else.
`measured` tells what leaving the row out did on the H200 ("observed" counts never show that a row is not needed).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ordering:
    """`grains` are the parts of an agent that may execute it: "" all threads, "warp" a lane of each warp, "elect"
    one."""

    kind: str
    targets: str
    grains: tuple[str, ...]
    promises: str
    source: str
    measured: str = ""


_CUDA = "cuda"
_PTX = "PTX ISA 9.0, instruction {}"

ROWS: tuple[Ordering, ...] = (
    Ordering(
        "mbar.init",
        _CUDA,
        ("elect",),
        "the barrier expects `count` arrivals a phase, and is in phase 0",
        _PTX.format("mbarrier.init"),
    ),
    Ordering(
        "fence.mbar_init",
        _CUDA,
        ("", "elect"),
        "initialised barriers are visible to engines and other threads that meet later",
        _PTX.format("fence.mbarrier_init"),
    ),
    Ordering(
        "mbar.expect",
        _CUDA,
        ("elect",),
        "one arrival; the phase also waits for so many bytes",
        _PTX.format("mbarrier.arrive.expect_tx"),
    ),
    Ordering(
        "mbar.arrive",
        _CUDA,
        ("", "warp", "elect"),
        "one arrival a thread: what it did before is visible to who sees the phase complete",
        _PTX.format("mbarrier.arrive, default .release.cta"),
        "a plain shared load may still be on its way when its thread arrives: up to 6 of 300 launches wrong",
    ),
    Ordering(
        "mbar.wait",
        _CUDA,
        ("", "elect"),
        "ends when the phase of that parity is complete; copies counted in it are visible",
        _PTX.format("mbarrier.try_wait, default .acquire.cta"),
    ),
    Ordering(
        "barrier.sync",
        _CUDA,
        ("",),
        "all named threads have arrived; their shared and global accesses before are ordered",
        _PTX.format("barrier"),
    ),
    Ordering(
        "fence.proxy.async",
        _CUDA,
        ("", "elect"),
        "accesses of this thread are ordered with those of copy engines",
        _PTX.format("fence.proxy"),
        "left out between st.shared and a bulk store of the same thread: 45 % of words wrong; "
        "between shared loads and a bulk refill: up to 298 of 300 launches wrong",
    ),
    Ordering(
        "wgmma.fence",
        _CUDA,
        ("",),
        "registers written before may be used by products after",
        _PTX.format("wgmma.fence"),
    ),
    Ordering(
        "wgmma.commit",
        _CUDA,
        ("",),
        "the products since the last commit are a group",
        _PTX.format("wgmma.commit_group"),
    ),
    Ordering(
        "wgmma.wait",
        _CUDA,
        ("",),
        "all groups but the last `depth` are complete: registers and memory are free",
        _PTX.format("wgmma.wait_group"),
    ),
    Ordering(
        "bulk.commit",
        _CUDA,
        ("elect",),
        "the boxes that this thread started are a group",
        _PTX.format("cp.async.bulk.commit_group"),
    ),
    Ordering(
        "bulk.wait",
        _CUDA,
        ("elect",),
        "all groups of this thread but `depth` are written (read 1: their sources are free)",
        _PTX.format("cp.async.bulk.wait_group"),
    ),
    Ordering(
        "setmaxnreg",
        _CUDA,
        ("",),
        "the warpgroup has that many registers a thread from here on",
        _PTX.format("setmaxnreg"),
    ),
    Ordering("prefetch", "cpu cuda", ("", "warp", "elect"), "nothing", "no architectural effect"),
    Ordering(
        "amx.config",
        "cpu",
        ("",),
        "the thread's tiles have their shapes, and hold zeros",
        "Intel SDM volume 2, LDTILECFG",
    ),
    Ordering("amx.release", "cpu", ("",), "the thread has no tiles", "Intel SDM volume 2, TILERELEASE"),
    Ordering(
        "store.packed",
        "cpu",
        ("",),
        "a store to an element that shares its byte changes its own bits only, whatever else is stored meanwhile",
        "LLVM Language Reference, atomicrmw: every such store is emitted as two atomic updates of the byte (and, or)",
    ),
    Ordering(
        "tasks",
        "cpu",
        ("",),
        "what was done before a fork is visible to its tasks, and what they did after the join",
        "LLVM Language Reference, memory model: the native pool forks and joins with release and acquire",
    ),
    Ordering(
        "launch",
        "cpu cuda",
        ("",),
        "what earlier launches of a stream did is visible to later ones",
        "CUDA C++ Programming Guide 13.0, streams",
    ),
)
"""Every kind that the judge has a rule for; a kind without a row is unknown."""

_BY_KIND: dict[str, Ordering] = {r.kind: r for r in ROWS}


def find_ordering(kind: str, target_kind: str) -> Ordering | None:
    """The row of a synchronisation, if targets of that kind ("cpu", "cuda") have it."""
    row = _BY_KIND.get(kind)
    return row if row is not None and target_kind in row.targets.split() else None
