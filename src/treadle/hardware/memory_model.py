"""What orders memory on each target: one row a word of machine text, with what it promises and who says so.

These are assumptions: the judge's rules of rings, barriers, tasks and operations in flight rest on them and on nothing
else. `status` says what stands behind a row: a document that promises it, runs on a device that showed it (`litmus`
names the test in benchmarks/device/litmus.py), or nobody yet. `measured` tells what leaving the row out did on an H200:
a count of wrong results; zero of them never shows that a row is not needed.

A row that is not `judged` is vocabulary to come: what it would promise is written down and looked up, but no rule rests
on it, and `find_ordering` does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["documented", "observed", "assumed"]


@dataclass(frozen=True)
class Ordering:
    """`kind` is the word of machine text (a synchronisation, an engine, a pool, an effect). `grains` are the parts of
    an agent that may execute it: "" all threads, "warp" a lane of each warp, "elect" one."""

    kind: str
    targets: str
    grains: tuple[str, ...]
    promises: str
    source: str
    status: Status = "documented"
    measured: str = ""
    litmus: tuple[str, ...] = ()
    judged: bool = True


_CUDA, _GPU, _CPU, _WEB = "cuda", "cuda webgpu", "cpu", "webgpu"
_ANY, _ALL, _ONE = ("", "warp", "elect"), ("",), ("elect",)
_PTX = "PTX ISA 9.0, {}"
_GUIDE = "CUDA C++ Programming Guide 13.0, {}"
_WGSL = "WGSL (W3C Candidate Recommendation), {}"

_PHASED: tuple[Ordering, ...] = (
    Ordering(
        "mbar.init",
        _CUDA,
        _ONE,
        "the barrier expects `count` arrivals a phase, and is in phase 0",
        _PTX.format("mbarrier.init"),
    ),
    Ordering(
        "fence.mbar_init",
        _CUDA,
        ("", "elect"),
        "initialised barriers are visible to engines and other threads that meet later",
        _PTX.format("membar / fence: fence.mbarrier_init"),
        measured="left out: 0 of 60 launches wrong",
    ),
    Ordering(
        "mbar.expect",
        _CUDA,
        _ONE,
        "one arrival; the phase also waits for so many bytes",
        _PTX.format("mbarrier.arrive: .expect_tx"),
        litmus=("bytes_hold_the_phase", "clipped_boxes_count_whole"),
    ),
    Ordering(
        "mbar.arrive",
        _CUDA,
        _ANY,
        "one arrival a thread: what it did before is visible to who sees the phase complete",
        _PTX.format("mbarrier.arrive: default .release.cta"),
        measured="a plain shared load may still be on its way when its thread arrives: up to 6 of 300 launches wrong",
        litmus=("message_by_phase",),
    ),
    Ordering(
        "mbar.arrive.far",
        _CUDA,
        _ANY,
        "`mbar.arrive` at the barrier of another workgroup of the cluster, emitted with the scope of a workgroup: one "
        "arrival a thread, behind what is over for it then (values that have come, products waited for); it publishes "
        "nothing that its thread wrote",
        _PTX.format("mbarrier.arrive: .shared::cluster, mapa; default .release.cta"),
        "observed",
        "a slot of two workgroups given back by such arrivals: right in every launch",
        litmus=("slot_given_back_to_a_peer",),
    ),
    Ordering(
        "mbar.wait",
        _CUDA,
        ("", "elect"),
        "ends when the phase of that parity is complete; copies counted in it are visible",
        _PTX.format("mbarrier.test_wait / try_wait: default .acquire.cta, .parity"),
        litmus=("message_by_phase", "parity_of_the_phase_before"),
    ),
)

_MEETING: tuple[Ordering, ...] = (
    Ordering(
        "barrier.sync",
        _CUDA,
        _ALL,
        "all named threads have arrived; their shared and global accesses before are ordered",
        _PTX.format("bar / barrier: memory ordering among the participating threads"),
        litmus=("named_barrier_of_some",),
    ),
    Ordering(
        "barrier.arrive",
        _CUDA,
        _ALL,
        "counts as so many threads at the named barrier and goes on: what it did before is visible to those who sync",
        _PTX.format("bar / barrier: .arrive"),
        litmus=("arrive_then_sync",),
    ),
    Ordering(
        "cluster.arrive",
        _CUDA,
        _ALL,
        "counts as a thread at the barrier of the cluster: what it did before is visible to those who wait",
        _PTX.format("barrier.cluster.arrive: default .release.cluster"),
        litmus=("cluster_barrier",),
    ),
    Ordering(
        "cluster.wait",
        _CUDA,
        _ALL,
        "all threads of the cluster that have not exited have arrived; a workgroup whose shared memory others may "
        "still touch must not end before such a wait",
        _PTX.format("barrier.cluster.wait: default .acquire.cluster"),
        litmus=("cluster_barrier",),
    ),
    Ordering(
        "grid.sync",
        _CUDA,
        _ALL,
        "all threads of all workgroups of a cooperative launch have arrived; what they did before it is visible to all "
        "of them behind it",
        _GUIDE.format("Cooperative Groups: Grid Synchronization"),
        litmus=("grid_of_resident_workgroups",),
    ),
    Ordering(
        "grid.wait",
        _CUDA,
        _ALL,
        "the launch before, on which this one depends, is complete, and its memory is visible",
        _PTX.format("griddepcontrol.wait"),
        litmus=("dependent_launch",),
    ),
    Ordering(
        "grid.release",
        _CUDA,
        _ALL,
        "the launch that depends on this one may begin, once all workgroups have said so or have ended",
        _PTX.format("griddepcontrol.launch_dependents"),
        litmus=("dependent_launch",),
    ),
    Ordering(
        "workgroup.barrier",
        _WEB,
        _ALL,
        "all invocations of the workgroup have arrived under uniform control; their workgroup-memory accesses are "
        "ordered (workgroupBarrier), or their storage accesses within the workgroup (storageBarrier)",
        _WGSL.format("Synchronization Built-in Functions; Uniformity Analysis"),
    ),
)

_PROXIES: tuple[Ordering, ...] = (
    Ordering(
        "fence.proxy.async",
        _CUDA,
        ("", "elect"),
        "accesses of this thread are ordered with those of copy engines and asynchronous products",
        _PTX.format("membar / fence: fence.proxy.async; Memory Consistency Model: Proxies"),
        measured="left out between st.shared and a bulk store of the same thread: 45 % of words wrong; "
        "between shared loads and a bulk refill: up to 298 of 300 launches wrong; "
        "between a staged tile, a named barrier and its box: 60 of 60 launches wrong",
        litmus=("store_then_bulk_store",),
    ),
    Ordering(
        "fence.proxy.tensormap",
        _CUDA,
        _ANY,
        "a tensor map that was changed in memory is what engines read from here on (no text changes one: the host "
        "encodes every map before the launches, so no rule needs it)",
        _PTX.format("membar / fence: fence.proxy.tensormap::generic"),
        judged=False,
    ),
    Ordering(
        "fence.gpu",
        _CUDA,
        _ANY,
        "accesses before and after are ordered for all threads of the device",
        _PTX.format("membar / fence: fence.acq_rel.gpu"),
        litmus=("message_between_workgroups",),
    ),
    Ordering(
        "counter.add",
        _CUDA,
        _ANY,
        "adds to a counter in global memory; what its thread did before, and what others did before they joined it, is "
        "visible to who waits for the sum",
        _PTX.format("red / atom: .release.gpu; Memory Consistency Model: causality order"),
        litmus=("message_between_workgroups", "grid_of_resident_workgroups"),
    ),
    Ordering(
        "counter.wait",
        _CUDA,
        _ANY,
        "ends when the counter has reached a number; progress needs the others to be resident, or to have begun before",
        _PTX.format("ld: .acquire.gpu; Memory Consistency Model: causality order"),
        litmus=("message_between_workgroups", "grid_of_resident_workgroups"),
    ),
    Ordering(
        "counter.last",
        _CUDA,
        _ALL,
        "`if last`: an agent's threads meet, one adds 1 to a counter and learns its sum, all learn whether it is the "
        "last one; what those who added before did is visible to it then",
        _PTX.format("atom: .acq_rel.gpu; Memory Consistency Model: observation order through read-modify-writes"),
        litmus=("last_to_arrive",),
    ),
)

_PRODUCTS: tuple[Ordering, ...] = (
    Ordering(
        "wgmma",
        _CUDA,
        _ALL,
        "an asynchronous product: from its issue to the wait that covers its group its registers and operands in shared"
        " memory belong to it; those operands are read by the asynchronous proxy",
        _PTX.format("Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async, register and memory accesses"),
        measured="a slot given back with its own product in flight: 60 of 60 launches wrong",
        litmus=("product_read_early",),
    ),
    Ordering(
        "wgmma.fence",
        _CUDA,
        _ALL,
        "registers written before may be used by products after",
        _PTX.format("wgmma.fence"),
    ),
    Ordering(
        "wgmma.commit",
        _CUDA,
        _ALL,
        "the products since the last commit are a group",
        _PTX.format("wgmma.commit_group"),
    ),
    Ordering(
        "wgmma.wait",
        _CUDA,
        _ALL,
        "all groups but the last `depth` are complete: registers and memory are free",
        _PTX.format("wgmma.wait_group"),
        litmus=("product_read_early",),
    ),
    Ordering(
        "setmaxnreg",
        _CUDA,
        _ALL,
        "the warpgroup has that many registers a thread from here on; more are waited for until others gave theirs up",
        _PTX.format("setmaxnreg"),
    ),
)

_COPIES: tuple[Ordering, ...] = (
    Ordering(
        "tma.load",
        _CUDA,
        _ONE,
        "a box is written by the asynchronous proxy, zeros where it passes the tensor; its whole bytes complete at the "
        "barrier it signals, and not before they are visible to who waits there",
        _PTX.format("cp.async.bulk.tensor: .mbarrier::complete_tx::bytes; Tensors: out-of-bound access"),
        litmus=("clipped_boxes_count_whole",),
    ),
    Ordering(
        "tma.store",
        _CUDA,
        _ONE,
        "a box is read by the asynchronous proxy and written clipped to the tensor, in whole chunks of 16 bytes; it "
        "joins the open bulk group of its thread",
        _PTX.format("cp.async.bulk.tensor: .bulk_group"),
        "observed",
        "chunks: 513 columns of bf16, the frame to column 520 overwritten (spine-check)",
        litmus=("box_written_in_chunks",),
    ),
    Ordering(
        "tma.add",
        _CUDA,
        _ONE,
        "as tma.store, each element added to memory by one relaxed atomic operation at gpu scope",
        _PTX.format("cp.reduce.async.bulk.tensor: .bulk_group"),
        litmus=("boxes_added",),
    ),
    Ordering(
        "tma.max",
        _CUDA,
        _ONE,
        "as tma.store, the greater of each element and the one in memory stays, by one relaxed atomic operation at gpu "
        "scope",
        _PTX.format("cp.reduce.async.bulk.tensor: .bulk_group"),
    ),
    Ordering(
        "tma.min",
        _CUDA,
        _ONE,
        "as tma.store, the lesser of each element and the one in memory stays, by one relaxed atomic operation at gpu "
        "scope",
        _PTX.format("cp.reduce.async.bulk.tensor: .bulk_group"),
    ),
    Ordering(
        "tma.multicast",
        _CUDA,
        _ONE,
        "as tma.load, to the same place of every workgroup of the mask; each one's barrier at the same place counts the"
        " whole bytes of the box",
        _PTX.format("cp.async.bulk.tensor: .multicast::cluster"),
        litmus=("multicast_counts_everywhere",),
    ),
    Ordering(
        "bulk.load",
        _CUDA,
        _ONE,
        "as tma.load, of a run of bytes: addresses and length are multiples of 16",
        _PTX.format("cp.async.bulk: .shared::cta.global.mbarrier::complete_tx::bytes"),
        litmus=("bytes_hold_the_phase",),
    ),
    Ordering(
        "bulk.store",
        _CUDA,
        _ONE,
        "as tma.store, of a run of bytes: addresses and length are multiples of 16",
        _PTX.format("cp.async.bulk: .global.shared::cta.bulk_group"),
        litmus=("store_then_bulk_store",),
    ),
    Ordering(
        "bulk.commit",
        _CUDA,
        _ONE,
        "the boxes that this thread started are a group",
        _PTX.format("cp.async.bulk.commit_group"),
    ),
    Ordering(
        "bulk.wait",
        _CUDA,
        _ONE,
        "all groups of this thread but `depth` are written (read 1: their sources are free)",
        _PTX.format("cp.async.bulk.wait_group, .read"),
        measured="left out before a staging slot is filled again: 60 of 60 launches wrong",
        litmus=("source_overwritten_early",),
    ),
    Ordering(
        "cp.async",
        _CUDA,
        _ALL,
        "each thread copies chunks of 16 bytes in the generic proxy, zeros where the tensor or the condition ends; "
        "they join the open group of that thread",
        _PTX.format("cp.async: non-bulk copy, src-size"),
        litmus=("copies_of_threads",),
    ),
    Ordering(
        "cpasync.commit",
        _CUDA,
        _ALL,
        "the copies that this thread started since the last commit are a group",
        _PTX.format("cp.async.commit_group"),
    ),
    Ordering(
        "cpasync.wait",
        _CUDA,
        _ALL,
        "all groups of this thread but `depth` are complete and visible to this thread; to others after they meet",
        _PTX.format("cp.async.wait_group"),
        litmus=("copies_of_threads",),
    ),
    Ordering(
        "dsmem",
        _CUDA,
        _ANY,
        "a thread reads and writes the shared memory of another workgroup of its cluster, which has begun and has not "
        "ended; ordered by the barrier of the cluster",
        _GUIDE.format("Thread Block Clusters, Distributed Shared Memory; PTX ISA 9.0, mapa, .shared::cluster"),
        litmus=("cluster_barrier",),
    ),
)

_MEMORY: tuple[Ordering, ...] = (
    Ordering(
        "load",
        "cpu cuda webgpu",
        _ANY,
        "the value of the last write before it in its own thread, or in another thread that something orders; on a GPU "
        "it has arrived when it is used, not when it was issued",
        "PTX ISA 9.0, Memory Consistency Model: program order, causality; LLVM Language Reference, memory model",
        measured="an arrival of the value that nothing waits for: up to 298 of 300 launches wrong (fence.proxy.async)",
    ),
    Ordering(
        "store",
        "cpu cuda webgpu",
        _ANY,
        "seen by later loads of its own thread, and by others that something orders behind it; elements of a byte or "
        "more are written apart from their neighbours",
        "PTX ISA 9.0, Memory Consistency Model: vector and packed accesses; LLVM Language Reference, memory model",
    ),
    Ordering(
        "store.packed",
        "cpu cuda",
        _ALL,
        "a store to an element that shares its byte changes its own bits only, whatever else is stored meanwhile",
        "LLVM Language Reference, atomicrmw; PTX ISA 9.0, atom / red: .and, .or, .relaxed.gpu: every such store is "
        "emitted as two atomic updates of its byte or word",
    ),
    Ordering(
        "effect",
        "cpu cuda",
        _ANY,
        "`effect add`, `max`, `min`: one indivisible update of each element, relaxed: it orders nothing else",
        "PTX ISA 9.0, red / atom: .relaxed.gpu; LLVM Language Reference, atomicrmw and cmpxchg: monotonic",
    ),
    Ordering(
        "shuffle",
        _GPU,
        _ALL,
        "a fold along lanes: all lanes of the warp take part, and a lane hands on its own value; none is absent",
        "PTX ISA 9.0, shfl.sync: membermask, all named lanes execute; WGSL, subgroup operations under uniform control",
    ),
    Ordering("prefetch", "cpu cuda", _ANY, "nothing", "PTX ISA 9.0, prefetch: a hint; LLVM, llvm.prefetch: a hint"),
)

_TASKS: tuple[Ordering, ...] = (
    Ordering(
        "tasks",
        _CPU,
        _ALL,
        "what was done before a fork is visible to its tasks, and what they did after the join",
        "LLVM Language Reference, memory model: the native pool forks and joins with release and acquire",
    ),
    Ordering(
        "workers",
        _CPU,
        _ALL,
        "each task is taken by exactly one worker; nothing orders two tasks; a task runs to its end on one thread",
        "LLVM Language Reference, atomicrmw: the native pool (runtime/pool_ir.py) hands each number out once",
    ),
    Ordering(
        "gang.sync",
        _CPU,
        _ALL,
        "the workers of a gang run at the same time and meet at its barrier: all have arrived, accesses are ordered",
        "LLVM Language Reference, memory model: an acquire-release counter of the gang, whose workers have all begun",
        "assumed",
    ),
    Ordering(
        "gangs",
        _CPU,
        _ALL,
        "each task is taken by exactly one gang, whose workers all run it, at the same time; nothing orders two tasks "
        "of different gangs",
        "LLVM Language Reference, atomicrmw: the number of a task is handed out once; no such pool is emitted yet",
        "assumed",
    ),
    Ordering(
        "grid",
        _GPU,
        _ALL,
        "each workgroup of the launch runs once, its threads from the first statement; nothing orders two workgroups",
        "CUDA C++ Programming Guide 13.0, Thread Hierarchy: blocks execute independently, in any order; WebGPU (W3C "
        "Candidate Recommendation), Compute Pass: dispatch of workgroups",
    ),
    Ordering(
        "persistent",
        _CUDA,
        _ALL,
        "as grid; a workgroup goes through its tasks in the order that the raster says",
        _GUIDE.format("Thread Hierarchy"),
    ),
    Ordering(
        "tickets",
        _CUDA,
        _ALL,
        "a workgroup draws the next number from a counter of the launch until they are used up: each is drawn once, "
        "and by whom all lower ones were drawn has begun; nothing orders two tasks",
        _PTX.format("atom: .relaxed.gpu: one indivisible update; red / atom: a total order of the updates of a word"),
        litmus=("tickets_are_drawn_once",),
    ),
    Ordering(
        "clusters",
        _CUDA,
        _ALL,
        "as persistent, of clusters: all workgroups of one go through the same tasks, and nothing but barriers orders "
        "them",
        _GUIDE.format("Thread Block Clusters"),
    ),
    Ordering(
        "warps",
        _CUDA,
        _ALL,
        "as grid, of warps: nothing orders two warps that do not meet",
        _GUIDE.format("SIMT Architecture, Independent Thread Scheduling"),
    ),
    Ordering(
        "threads",
        _GPU,
        _ALL,
        "as grid, of threads: nothing orders two threads that do not meet",
        "CUDA C++ Programming Guide 13.0, SIMT Architecture, Independent Thread Scheduling; WGSL (W3C Candidate "
        "Recommendation), Compute Shaders and Workgroups",
    ),
    Ordering(
        "launch",
        "cpu cuda webgpu",
        _ALL,
        "what earlier launches of a stream did is visible to later ones",
        "CUDA C++ Programming Guide 13.0, Streams; WebGPU (W3C Candidate Recommendation), usage scopes of dispatches",
    ),
    Ordering(
        "launch.cooperative",
        _CUDA,
        _ALL,
        "all workgroups of the launch are resident at once, so that waits between them end; else the launch fails",
        _GUIDE.format("Cooperative Groups: Grid Synchronization"),
        litmus=("grid_of_resident_workgroups",),
    ),
    Ordering(
        "launch.cluster",
        _CUDA,
        _ALL,
        "workgroups `cluster * i ..` are resident together on neighbouring multiprocessors",
        _GUIDE.format("Thread Block Clusters"),
        litmus=("cluster_barrier",),
    ),
    Ordering(
        "launch.dependent",
        _CUDA,
        _ALL,
        "the launch may begin while the one before it runs; griddepcontrol.wait ends when that one is complete and its "
        "memory visible",
        _PTX.format("griddepcontrol; CUDA C++ Programming Guide 13.0, Programmatic Dependent Launch"),
        litmus=("dependent_launch",),
    ),
)

_TILES: tuple[Ordering, ...] = (
    Ordering(
        "amx.config",
        _CPU,
        _ALL,
        "the thread's tiles have their shapes, and hold zeros",
        "Intel SDM volume 2, LDTILECFG",
    ),
    Ordering("amx.release", _CPU, _ALL, "the thread has no tiles", "Intel SDM volume 2, TILERELEASE"),
)

FAMILIES: tuple[tuple[str, tuple[Ordering, ...]], ...] = (
    ("Phased barriers", _PHASED),
    ("Threads that meet", _MEETING),
    ("Proxies, fences and counters", _PROXIES),
    ("Asynchronous products and registers", _PRODUCTS),
    ("Copies", _COPIES),
    ("Plain accesses", _MEMORY),
    ("Tasks and launches", _TASKS),
    ("Tile registers of a CPU", _TILES),
)
"""The rows by what they are about."""

ROWS: tuple[Ordering, ...] = tuple(row for _, rows in FAMILIES for row in rows)
"""Every row. A kind that has none, or whose row is not judged, is unknown to the judge."""

_BY_KIND: dict[str, Ordering] = {r.kind: r for r in ROWS}


def find_ordering(kind: str, target_kind: str) -> Ordering | None:
    """The row of a word, if targets of that kind ("cpu", "cuda", "webgpu") have it and rules may rest on it."""
    row = _BY_KIND.get(kind)
    return row if row is not None and row.judged and target_kind in row.targets.split() else None
