"""What plain accesses, tasks, launches and the tile registers of a CPU promise."""

from __future__ import annotations

from treadle.hardware.orderings import ALL, ANY, CPU, CUDA, GPU, GUIDE, PTX, Ordering

MEMORY: tuple[Ordering, ...] = (
    Ordering(
        "load",
        "cpu cuda webgpu",
        ANY,
        "the value of the last write before it in its own thread, or in another thread that something orders; on a GPU "
        "it has arrived when it is used, not when it was issued",
        "PTX ISA 9.0, Memory Consistency Model: program order, causality; LLVM Language Reference, memory model",
        measured="an arrival of the value that nothing waits for: up to 298 of 300 launches wrong (fence.proxy.async)",
    ),
    Ordering(
        "store",
        "cpu cuda webgpu",
        ANY,
        "seen by later loads of its own thread, and by others that something orders behind it; elements of a byte or "
        "more are written apart from their neighbours",
        "PTX ISA 9.0, Memory Consistency Model: vector and packed accesses; LLVM Language Reference, memory model",
    ),
    Ordering(
        "store.packed",
        "cpu cuda",
        ALL,
        "a store to an element that shares its byte changes its own bits only, whatever else is stored meanwhile",
        "LLVM Language Reference, atomicrmw; PTX ISA 9.0, atom / red: .and, .or, .relaxed.gpu: every such store is "
        "emitted as two atomic updates of its byte or word",
    ),
    Ordering(
        "effect",
        "cpu cuda",
        ANY,
        "`effect add`, `max`, `min`: one indivisible update of each element, relaxed: it orders nothing else",
        "PTX ISA 9.0, red / atom: .relaxed.gpu; LLVM Language Reference, atomicrmw and cmpxchg: monotonic",
    ),
    Ordering(
        "shuffle",
        GPU,
        ALL,
        "a fold along lanes: all lanes of the warp take part, and a lane hands on its own value; none is absent",
        "PTX ISA 9.0, shfl.sync: membermask, all named lanes execute; WGSL, subgroup operations under uniform control",
    ),
    Ordering("prefetch", "cpu cuda", ANY, "nothing", "PTX ISA 9.0, prefetch: a hint; LLVM, llvm.prefetch: a hint"),
)

TASKS: tuple[Ordering, ...] = (
    Ordering(
        "tasks",
        CPU,
        ALL,
        "what was done before a fork is visible to its tasks, and what they did after the join",
        "LLVM Language Reference, memory model: the native pool forks and joins with release and acquire",
    ),
    Ordering(
        "workers",
        CPU,
        ALL,
        "each task is taken by exactly one worker; nothing orders two tasks; a task runs to its end on one thread",
        "LLVM Language Reference, atomicrmw: the native pool (runtime/pool_ir.py) hands each number out once",
    ),
    Ordering(
        "gang.sync",
        CPU,
        ALL,
        "the workers of a gang run at the same time and meet at its barrier: all have arrived, accesses are ordered",
        "LLVM Language Reference, memory model: an acquire-release counter of the gang, whose workers have all begun",
        "assumed",
    ),
    Ordering(
        "gangs",
        CPU,
        ALL,
        "each task is taken by exactly one gang, whose workers all run it, at the same time; nothing orders two tasks "
        "of different gangs",
        "LLVM Language Reference, atomicrmw: the number of a task is handed out once; no such pool is emitted yet",
        "assumed",
    ),
    Ordering(
        "grid",
        GPU,
        ALL,
        "each workgroup of the launch runs once, its threads from the first statement; nothing orders two workgroups",
        "CUDA C++ Programming Guide 13.0, Thread Hierarchy: blocks execute independently, in any order; WebGPU (W3C "
        "Candidate Recommendation), Compute Pass: dispatch of workgroups",
    ),
    Ordering(
        "persistent",
        CUDA,
        ALL,
        "as grid; a workgroup goes through its tasks in the order that the raster says",
        GUIDE.format("Thread Hierarchy"),
    ),
    Ordering(
        "tickets",
        CUDA,
        ALL,
        "a workgroup draws the next number from a counter of the launch until they are used up: each is drawn once, "
        "and by whom all lower ones were drawn has begun; nothing orders two tasks",
        PTX.format("atom: .relaxed.gpu: one indivisible update; red / atom: a total order of the updates of a word"),
        litmus=("tickets_are_drawn_once",),
    ),
    Ordering(
        "clusters",
        CUDA,
        ALL,
        "as persistent, of clusters: all workgroups of one go through the same tasks, and nothing but barriers orders "
        "them",
        GUIDE.format("Thread Block Clusters"),
        since="sm_90",
    ),
    Ordering(
        "warps",
        CUDA,
        ALL,
        "as grid, of warps: nothing orders two warps that do not meet",
        GUIDE.format("SIMT Architecture, Independent Thread Scheduling"),
    ),
    Ordering(
        "threads",
        GPU,
        ALL,
        "as grid, of threads: nothing orders two threads that do not meet",
        "CUDA C++ Programming Guide 13.0, SIMT Architecture, Independent Thread Scheduling; WGSL (W3C Candidate "
        "Recommendation), Compute Shaders and Workgroups",
    ),
    Ordering(
        "launch",
        "cpu cuda webgpu",
        ALL,
        "what earlier launches of a stream did is visible to later ones",
        "CUDA C++ Programming Guide 13.0, Streams; WebGPU (W3C Candidate Recommendation), usage scopes of dispatches",
    ),
    Ordering(
        "launch.cooperative",
        CUDA,
        ALL,
        "all workgroups of the launch are resident at once, so that waits between them end; else the launch fails",
        GUIDE.format("Cooperative Groups: Grid Synchronization"),
        litmus=("grid_of_resident_workgroups",),
    ),
    Ordering(
        "launch.cluster",
        CUDA,
        ALL,
        "workgroups `cluster * i ..` are resident together on neighbouring multiprocessors",
        GUIDE.format("Thread Block Clusters"),
        litmus=("cluster_barrier",),
        since="sm_90",
    ),
    Ordering(
        "launch.cooperative.clusters",
        CUDA,
        ALL,
        "a launch in clusters can be cooperative, too: all its clusters are resident at once, else it fails",
        GUIDE.format("Cooperative Groups: Grid Synchronization; Thread Block Clusters: attributes of one launch"),
        "observed",
        litmus=("clusters_that_meet",),
        since="sm_90",
    ),
    Ordering(
        "launch.dependent",
        CUDA,
        ALL,
        "the launch may begin while the one before it runs; griddepcontrol.wait ends when that one is complete and its "
        "memory visible",
        PTX.format("griddepcontrol; CUDA C++ Programming Guide 13.0, Programmatic Dependent Launch"),
        litmus=("dependent_launch",),
        since="sm_90",
    ),
)

TILES: tuple[Ordering, ...] = (
    Ordering(
        "amx.config",
        CPU,
        ALL,
        "the thread's tiles have their shapes, and hold zeros",
        "Intel SDM volume 2, LDTILECFG",
    ),
    Ordering("amx.release", CPU, ALL, "the thread has no tiles", "Intel SDM volume 2, TILERELEASE"),
)
