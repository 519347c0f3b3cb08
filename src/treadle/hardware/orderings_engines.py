"""What asynchronous products and copies promise."""

from __future__ import annotations

from treadle.hardware.orderings import ALL, ANY, CUDA, GUIDE, ONE, PTX, Ordering

PRODUCTS: tuple[Ordering, ...] = (
    Ordering(
        "wgmma",
        CUDA,
        ALL,
        "an asynchronous product: from its issue to the wait that covers its group its registers and operands in shared"
        " memory belong to it; those operands are read by the asynchronous proxy",
        PTX.format("Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async, register and memory accesses"),
        measured="a slot given back with its own product in flight: 60 of 60 launches wrong",
        litmus=("product_read_early",),
        since="sm_90a",
    ),
    Ordering(
        "wgmma.fence",
        CUDA,
        ALL,
        "registers written before may be used by products after",
        PTX.format("wgmma.fence"),
        since="sm_90a",
    ),
    Ordering(
        "wgmma.commit",
        CUDA,
        ALL,
        "the products since the last commit are a group",
        PTX.format("wgmma.commit_group"),
        since="sm_90a",
    ),
    Ordering(
        "wgmma.wait",
        CUDA,
        ALL,
        "all groups but the last `depth` are complete: registers and memory are free",
        PTX.format("wgmma.wait_group"),
        litmus=("product_read_early",),
        since="sm_90a",
    ),
    Ordering(
        "setmaxnreg",
        CUDA,
        ALL,
        "the warpgroup has that many registers a thread from here on; more are waited for until others gave theirs up",
        PTX.format("setmaxnreg"),
        since="sm_90a",
    ),
)

COPIES: tuple[Ordering, ...] = (
    Ordering(
        "tma.load",
        CUDA,
        ONE,
        "a box is written by the asynchronous proxy, zeros where it passes the tensor; its whole bytes complete at the "
        "barrier it signals, and not before they are visible to who waits there",
        PTX.format("cp.async.bulk.tensor: .mbarrier::complete_tx::bytes; Tensors: out-of-bound access"),
        litmus=("clipped_boxes_count_whole",),
        since="sm_90",
    ),
    Ordering(
        "tma.store",
        CUDA,
        ONE,
        "a box is read by the asynchronous proxy and written clipped to the tensor, in whole chunks of 16 bytes; it "
        "joins the open bulk group of its thread",
        PTX.format("cp.async.bulk.tensor: .bulk_group"),
        "observed",
        "chunks: 513 columns of bf16, the frame to column 520 overwritten (spine-check)",
        litmus=("box_written_in_chunks",),
        since="sm_90",
    ),
    Ordering(
        "tma.add",
        CUDA,
        ONE,
        "as tma.store, each element added to memory by one relaxed atomic operation at gpu scope",
        PTX.format("cp.reduce.async.bulk.tensor: .bulk_group"),
        litmus=("boxes_added",),
        since="sm_90",
    ),
    Ordering(
        "tma.max",
        CUDA,
        ONE,
        "as tma.store, the greater of each element and the one in memory stays, by one relaxed atomic operation at gpu "
        "scope",
        PTX.format("cp.reduce.async.bulk.tensor: .bulk_group"),
        since="sm_90",
    ),
    Ordering(
        "tma.min",
        CUDA,
        ONE,
        "as tma.store, the lesser of each element and the one in memory stays, by one relaxed atomic operation at gpu "
        "scope",
        PTX.format("cp.reduce.async.bulk.tensor: .bulk_group"),
        since="sm_90",
    ),
    Ordering(
        "tma.multicast",
        CUDA,
        ONE,
        "as tma.load, to the same place of every workgroup of the mask; each one's barrier at the same place counts the"
        " whole bytes of the box",
        PTX.format("cp.async.bulk.tensor: .multicast::cluster"),
        litmus=("multicast_counts_everywhere",),
        since="sm_90",
    ),
    Ordering(
        "bulk.load",
        CUDA,
        ONE,
        "as tma.load, of a run of bytes: addresses and length are multiples of 16",
        PTX.format("cp.async.bulk: .shared::cta.global.mbarrier::complete_tx::bytes"),
        litmus=("bytes_hold_the_phase",),
        since="sm_90",
    ),
    Ordering(
        "bulk.store",
        CUDA,
        ONE,
        "as tma.store, of a run of bytes: addresses and length are multiples of 16",
        PTX.format("cp.async.bulk: .global.shared::cta.bulk_group"),
        litmus=("store_then_bulk_store",),
        since="sm_90",
    ),
    Ordering(
        "bulk.commit",
        CUDA,
        ONE,
        "the boxes that this thread started are a group",
        PTX.format("cp.async.bulk.commit_group"),
        since="sm_90",
    ),
    Ordering(
        "bulk.wait",
        CUDA,
        ONE,
        "all groups of this thread but `depth` are written (read 1: their sources are free)",
        PTX.format("cp.async.bulk.wait_group, .read"),
        measured="left out before a staging slot is filled again: 60 of 60 launches wrong",
        litmus=("source_overwritten_early",),
        since="sm_90",
    ),
    Ordering(
        "cp.async",
        CUDA,
        ALL,
        "each thread copies chunks of 16 bytes in the generic proxy, zeros where the tensor or the condition ends; "
        "they join the open group of that thread",
        PTX.format("cp.async: non-bulk copy, src-size"),
        litmus=("copies_of_threads",),
    ),
    Ordering(
        "cpasync.commit",
        CUDA,
        ALL,
        "the copies that this thread started since the last commit are a group",
        PTX.format("cp.async.commit_group"),
    ),
    Ordering(
        "cpasync.wait",
        CUDA,
        ALL,
        "all groups of this thread but `depth` are complete and visible to this thread; to others after they meet",
        PTX.format("cp.async.wait_group"),
        litmus=("copies_of_threads",),
    ),
    Ordering(
        "cpasync.arrive",
        CUDA,
        ALL,
        "an arrival of each executing thread at a phased barrier, made when all copies that the thread started before "
        "are complete: they are visible to who sees the phase complete (`more` 1: the phase counts one arrival more "
        "for each, so that it waits for the copies and for as many arrivals as before)",
        PTX.format("cp.async.mbarrier.arrive: arrive-on triggered by the completion of all prior cp.async, .noinc"),
        litmus=("ring_of_copies",),
    ),
    Ordering(
        "st.async",
        CUDA,
        ANY,
        "a store that `signal`s: it writes shared memory of a workgroup of the cluster when it likes, and its bytes "
        "complete at a phased barrier of that workgroup, not before they are visible to who waits there for the scope "
        "of the cluster (`cluster` 1)",
        PTX.format("st.async: .mbarrier::complete_tx::bytes, relaxed, its complete-tx releases at .cluster scope"),
        litmus=("stores_that_signal",),
        since="sm_90",
    ),
    Ordering(
        "dsmem",
        CUDA,
        ANY,
        "a thread reads and writes the shared memory of another workgroup of its cluster, which has begun and has not "
        "ended; ordered by the barrier of the cluster",
        GUIDE.format("Thread Block Clusters, Distributed Shared Memory; PTX ISA 9.0, mapa, .shared::cluster"),
        litmus=("cluster_barrier",),
        since="sm_90",
    ),
)
