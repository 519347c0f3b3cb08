"""What barriers, meetings, fences and counters promise."""

from __future__ import annotations

from treadle.hardware.orderings import ALL, ANY, CUDA, GUIDE, ONE, PTX, WEB, WGSL, Ordering

PHASED: tuple[Ordering, ...] = (
    Ordering(
        "mbar.init",
        CUDA,
        ONE,
        "the barrier expects `count` arrivals a phase, and is in phase 0",
        PTX.format("mbarrier.init"),
    ),
    Ordering(
        "fence.mbar_init",
        CUDA,
        ("", "elect"),
        "initialised barriers are visible to engines and other threads that meet later",
        PTX.format("membar / fence: fence.mbarrier_init"),
        measured="left out: 0 of 60 launches wrong",
        since="sm_90",
    ),
    Ordering(
        "mbar.expect",
        CUDA,
        ONE,
        "one arrival; the phase also waits for so many bytes",
        PTX.format("mbarrier.arrive: .expect_tx"),
        litmus=("bytes_hold_the_phase", "clipped_boxes_count_whole"),
        since="sm_90",
    ),
    Ordering(
        "mbar.arrive",
        CUDA,
        ANY,
        "one arrival a thread: what it did before is visible to who sees the phase complete",
        PTX.format("mbarrier.arrive: default .release.cta"),
        measured="a plain shared load may still be on its way when its thread arrives: up to 6 of 300 launches wrong",
        litmus=("message_by_phase",),
    ),
    Ordering(
        "mbar.arrive.far",
        CUDA,
        ANY,
        "`mbar.arrive` at the barrier of another workgroup of the cluster, emitted with the scope of a workgroup: one "
        "arrival a thread, behind what is over for it then (values that have come, products waited for); it publishes "
        "nothing that its thread wrote",
        PTX.format("mbarrier.arrive: .shared::cluster, mapa; default .release.cta"),
        "observed",
        "a slot of two workgroups given back by such arrivals: right in every launch",
        litmus=("slot_given_back_to_a_peer",),
        since="sm_90",
    ),
    Ordering(
        "mbar.wait",
        CUDA,
        ("", "elect"),
        "ends when the phase of that parity is complete; copies counted in it are visible (`cluster` 1, from sm_90 on: "
        "what other workgroups of the cluster stored and signalled, too)",
        PTX.format("mbarrier.test_wait / try_wait: default .acquire.cta, .acquire.cluster, .parity"),
        litmus=("message_by_phase", "parity_of_the_phase_before"),
    ),
)

MEETING: tuple[Ordering, ...] = (
    Ordering(
        "barrier.sync",
        CUDA,
        ALL,
        "all named threads have arrived; their shared and global accesses before are ordered",
        PTX.format("bar / barrier: memory ordering among the participating threads"),
        litmus=("named_barrier_of_some",),
    ),
    Ordering(
        "barrier.arrive",
        CUDA,
        ALL,
        "counts as so many threads at the named barrier and goes on: what it did before is visible to those who sync",
        PTX.format("bar / barrier: .arrive"),
        litmus=("arrive_then_sync",),
    ),
    Ordering(
        "cluster.arrive",
        CUDA,
        ALL,
        "counts as a thread at the barrier of the cluster: what it did before is visible to those who wait",
        PTX.format("barrier.cluster.arrive: default .release.cluster"),
        litmus=("cluster_barrier",),
        since="sm_90",
    ),
    Ordering(
        "cluster.wait",
        CUDA,
        ALL,
        "all threads of the cluster that have not exited have arrived; a workgroup whose shared memory others may "
        "still touch must not end before such a wait",
        PTX.format("barrier.cluster.wait: default .acquire.cluster"),
        litmus=("cluster_barrier",),
        since="sm_90",
    ),
    Ordering(
        "grid.sync",
        CUDA,
        ALL,
        "all threads of all workgroups of a cooperative launch have arrived; what they did before it is visible to all "
        "of them behind it",
        GUIDE.format("Cooperative Groups: Grid Synchronization"),
        litmus=("grid_of_resident_workgroups",),
    ),
    Ordering(
        "grid.wait",
        CUDA,
        ALL,
        "the launch before, on which this one depends, is complete, and its memory is visible",
        PTX.format("griddepcontrol.wait"),
        litmus=("dependent_launch",),
        since="sm_90",
    ),
    Ordering(
        "grid.release",
        CUDA,
        ALL,
        "the launch that depends on this one may begin, once all workgroups have said so or have ended",
        PTX.format("griddepcontrol.launch_dependents"),
        litmus=("dependent_launch",),
        since="sm_90",
    ),
    Ordering(
        "workgroup.barrier",
        WEB,
        ALL,
        "all invocations of the workgroup have arrived under uniform control; their workgroup-memory accesses are "
        "ordered (workgroupBarrier), or their storage accesses within the workgroup (storageBarrier)",
        WGSL.format("Synchronization Built-in Functions; Uniformity Analysis"),
    ),
)

PROXIES: tuple[Ordering, ...] = (
    Ordering(
        "fence.proxy.async",
        CUDA,
        ("", "elect"),
        "accesses of this thread are ordered with those of copy engines and asynchronous products",
        PTX.format("membar / fence: fence.proxy.async; Memory Consistency Model: Proxies"),
        measured="left out between st.shared and a bulk store of the same thread: 45 % of words wrong; "
        "between shared loads and a bulk refill: up to 298 of 300 launches wrong; "
        "between a staged tile, a named barrier and its box: 60 of 60 launches wrong",
        litmus=("store_then_bulk_store",),
        since="sm_90",
    ),
    Ordering(
        "fence.proxy.tensormap",
        CUDA,
        ANY,
        "a tensor map that was changed in memory is what engines read from here on (no text changes one: the host "
        "encodes every map before the launches, so no rule needs it)",
        PTX.format("membar / fence: fence.proxy.tensormap::generic"),
        judged=False,
        since="sm_90",
    ),
    Ordering(
        "fence.gpu",
        CUDA,
        ANY,
        "accesses before and after are ordered for all threads of the device",
        PTX.format("membar / fence: fence.acq_rel.gpu"),
        litmus=("message_between_workgroups",),
    ),
    Ordering(
        "counter.add",
        CUDA,
        ANY,
        "adds to a counter in global memory; what its thread did before, and what others did before they joined it, is "
        "visible to who waits for the sum",
        PTX.format("red / atom: .release.gpu; Memory Consistency Model: causality order"),
        litmus=("message_between_workgroups", "grid_of_resident_workgroups"),
    ),
    Ordering(
        "counter.wait",
        CUDA,
        ANY,
        "ends when the counter has reached a number; progress needs the others to be resident, or to have begun before",
        PTX.format("ld: .acquire.gpu; Memory Consistency Model: causality order"),
        litmus=("message_between_workgroups", "grid_of_resident_workgroups"),
    ),
    Ordering(
        "counter.last",
        CUDA,
        ALL,
        "`if last`: an agent's threads meet, one adds 1 to a counter and learns its sum, all learn whether it is the "
        "last one; what those who added before did is visible to it then",
        PTX.format("atom: .acq_rel.gpu; Memory Consistency Model: observation order through read-modify-writes"),
        litmus=("last_to_arrive",),
    ),
)
