# ruff: noqa: E501 (lines of CUDA text)
"""Litmus tests of the memory model's rows on the device: what each promises, kept and left out, counted.

`python benchmarks/device/litmus.py make` compiles (no GPU needed) to benchmarks/build/litmus;
`python benchmarks/device/litmus.py run OUT.json [NAME...]` runs there (those named, or all). Each test is a kernel in two variants: `kept` has the
synchronisation and must count no wrong value; `left` has it out: what it counts is an observation, and 0 no permission.
Every wait gives up after a while and counts as stuck, so that nothing hangs. `hardware/memory_model.py` names the tests
beside the rows that they are of.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "litmus"
sys.path[:0] = [str(ROOT / "src")]

from treadle.base.errors import TreadleError


@dataclass(frozen=True)
class Litmus:
    """A test: its kernel's body, the shape of its launch, what `left` leaves out. `map`: it takes a tensor map."""

    name: str
    what: str
    body: str
    threads: int = 128
    grid: int = 264
    cluster: int = 1
    shared: int = 0
    cooperative: bool = False
    map: str = ""
    launches: int = 20
    dependent: bool = False
    left: bool = True


PRELUDE = """
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap { u64 word[16]; };
#define DEVICE __device__ __forceinline__
DEVICE u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void init(u32 b, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory"); }
DEVICE void drop(u32 b) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(b) : "memory"); }
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void fence_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }
DEVICE void expect(u32 b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
DEVICE void arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
DEVICE bool over(u32 b, u32 parity) {
  u32 yes;
  asm volatile("{\\n.reg .pred p;\\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}"
               : "=r"(yes) : "r"(b), "r"(parity) : "memory");
  return yes;
}
DEVICE bool passed(u32 b, u32 parity, u32 most = 400000) {
  for (u32 i = 0; i < most; i++) if (over(b, parity)) return true;
  return false;
}
DEVICE void load(u32 dst, const void* src, u32 bytes, u32 b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(b) : "memory");
}
DEVICE void store(void* dst, u32 src, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes) : "memory");
}
DEVICE void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
DEVICE void wait_source() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
DEVICE void wait_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
DEVICE void bar_sync(u32 id, u32 n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
DEVICE void bar_arrive(u32 id, u32 n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }
DEVICE u32 volatile_load(const u32* p) { return *(const volatile u32*)p; }
DEVICE u32 pattern(u32 a, u32 b) { return (a * 2654435761u) ^ (b * 40503u + 17u); }
DEVICE void pause(u32 ns) { __nanosleep(ns); }
// out: 0 wrong, 1 checked, 2 stuck
#define WRONG(x) do { atomicAdd(out + 1, 1u); if (x) atomicAdd(out, 1u); } while (0)
#define STUCK atomicAdd(out + 2, 1u)
"""

TESTS: tuple[Litmus, ...] = (
    Litmus(
        "message_by_phase",
        "a phased barrier between a warp's writes and another's reads (left: a flag that nothing orders)",
        """
  __shared__ u32 data[32], flag; __shared__ u64 bars[2];
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (!threadIdx.x) { init(at(bars), 32); flag = 0; }
  __syncthreads();
  for (u32 r = 0; r < 500; r++) {
    if (warp == 0) {
      ((volatile u32*)data)[lane ^ 7] = pattern(r, lane ^ 7);
      if (KEPT) arrive(at(bars)); else if (lane == 31) *(volatile u32*)&flag = r + 1;
    } else {
      bool ok = true;
      if (KEPT) ok = passed(at(bars), r & 1);
      else { u32 i = 0; while (volatile_load(&flag) != r + 1 && ++i < 400000) {} ok = i < 400000; }
      if (!ok) STUCK;
      WRONG(volatile_load(data + lane) != pattern(r, lane));
    }
    __syncthreads();
  }""",
        threads=64,
    ),
    Litmus(
        "parity_of_the_phase_before",
        "a wait for the parity of the phase before returns at once, for that of the running phase not before its end",
        """
  __shared__ u64 bars[1];
  for (u32 r = 0; r < 200; r++) {
    if (!threadIdx.x) { init(at(bars), 1); }
    __syncthreads();
    WRONG(!over(at(bars), 1)); WRONG(over(at(bars), 0));
    __syncthreads();
    if (!threadIdx.x) arrive(at(bars));
    __syncthreads();
    WRONG(!over(at(bars), 0)); WRONG(over(at(bars), 1));
    __syncthreads();
    if (!threadIdx.x) drop(at(bars));
    __syncthreads();
  }""",
        left=False,
    ),
    Litmus(
        "bytes_hold_the_phase",
        "a phase with announced bytes ends when they have landed, not before its arrival (left: half the bytes announced)",
        """
  extern __shared__ __align__(1024) u32 data[]; __shared__ u64 bars[1];
  const u32 words = 4096;
  u32* mine = scratch + blockIdx.x * words;
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) mine[i] = pattern(blockIdx.x, i);
  fence_proxy(); __threadfence(); __syncthreads();
  for (u32 r = 0; r < 50; r++) {
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) data[i] = 0;
    if (!threadIdx.x) { init(at(bars), 1); fence_init(); }
    fence_proxy(); __syncthreads();
    if (!threadIdx.x) {
      if (r & 1) {  // the copy before its announcement: the arrival holds the phase
        load(at(data), mine, words * 4, at(bars)); pause(3000);
        WRONG(over(at(bars), 0));
        expect(at(bars), KEPT ? words * 4 : words * 2);
      } else { expect(at(bars), KEPT ? words * 4 : words * 2); load(at(data), mine, words * 4, at(bars)); }
    }
    bool ok = passed(at(bars), 0, KEPT ? 400000 : 10000);
    if (!ok && KEPT) STUCK;
    u32 bad = 0;
    for (u32 i = words - 1 - threadIdx.x; i < words; i -= blockDim.x) bad |= volatile_load(data + i) != pattern(blockIdx.x, i);
    WRONG(bad);
    pause(5000); __syncthreads();
    if (!threadIdx.x) drop(at(bars));
    __syncthreads();
  }""",
        shared=4096 * 4,
    ),
    Litmus(
        "clipped_boxes_count_whole",
        "a box that passes the end of its tensor counts whole and brings zeros (left: only its inside announced)",
        """
  extern __shared__ __align__(1024) u32 data[]; __shared__ u64 bars[1];
  for (u32 r = 0; r < 50; r++) {
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) data[i] = 7;
    if (!threadIdx.x) { init(at(bars), 1); fence_init(); }
    fence_proxy(); __syncthreads();
    if (!threadIdx.x) {
      expect(at(bars), KEPT ? 4096 : 12 * 20 * 4);
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        ::"r"(at(data)), "l"(&map), "r"(at(bars)), "r"(32), "r"(64) : "memory");
    }
    bool ok = passed(at(bars), 0, KEPT ? 400000 : 10000);
    if (!ok) STUCK;
    if (KEPT) for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) {
      u32 row = i / 32, column = i % 32;  // the tensor: 76 rows of 52, each word its index + 1
      u32 want = row < 12 && column < 20 ? (row + 64) * 64 + column + 32 + 1 : 0;
      WRONG(data[i] != want);
    } else WRONG(ok == false);
    pause(5000); __syncthreads();
    if (!threadIdx.x) drop(at(bars));
    __syncthreads();
  }""",
        shared=4096,
        map="load",
        launches=5,
    ),
    Litmus(
        "named_barrier_of_some",
        "a named barrier of 64 threads of 128 orders what they wrote (left: none)",
        """
  __shared__ u32 data[128];
  u32 pair = threadIdx.x / 64, there = threadIdx.x ^ 32;
  for (u32 r = 0; r < 500; r++) {
    data[threadIdx.x] = pattern(r, threadIdx.x);
    if (KEPT) bar_sync(1 + pair, 64);
    WRONG(volatile_load(data + there) != pattern(r, there));
    bar_sync(3 + pair, 64);
  }""",
    ),
    Litmus(
        "arrive_then_sync",
        "bar.arrive by the writers, bar.sync by the readers (left: neither)",
        """
  __shared__ u32 data[32];
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (u32 r = 0; r < 500; r++) {
    if (warp == 0) { if (r % 3 == 0) pause(200); data[lane] = pattern(r, lane); if (KEPT) bar_arrive(1, 64); }
    else { if (KEPT) bar_sync(1, 64); WRONG(volatile_load(data + lane) != pattern(r, lane)); }
    __syncthreads();
  }""",
        threads=64,
    ),
    Litmus(
        "cluster_barrier",
        "the barrier of a cluster between writes and reads of the other's shared memory (left: relaxed arrivals)",
        """
  __shared__ u32 data[128];
  u32 rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  u32 peer; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(at(data)), "r"(rank ^ 1));
  for (u32 r = 0; r < 300; r++) {
    data[threadIdx.x] = pattern(r * 2 + rank, threadIdx.x);
    if (KEPT) asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    else asm volatile("barrier.cluster.arrive.relaxed.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
    u32 got, i = (threadIdx.x * 37 + 11) % 128;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(got) : "r"(peer + 4 * i) : "memory");
    WRONG(got != pattern(r * 2 + (rank ^ 1), i));
    asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  }""",
        cluster=2,
    ),
    Litmus(
        "slot_given_back_to_a_peer",
        "boxes for both workgroups of a cluster into one slot, given back by plain arrivals at both barriers (left: each "
        "counts its own workgroup's)",
        """
  __shared__ __align__(128) u32 data[512]; __shared__ u64 bars[2];
  const u32 words = 512, rounds = 200;
  u32 rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  u32* mine = scratch + (blockIdx.x / 2) * 16 * words;
  if (!rank) for (u32 i = threadIdx.x; i < 16 * words; i += blockDim.x) mine[i] = pattern(i / words + launch, i % words);
  if (!threadIdx.x) { init(at(bars), 1); init(at(bars + 1), KEPT ? 6 : 3); fence_init(); }
  __threadfence(); fence_proxy();
  asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x < 32) {
    if (!threadIdx.x) for (u32 r = 0; r < rounds; r++) {
      if (!passed(at(bars + 1), (r + 1) & 1)) { STUCK; break; }
      expect(at(bars), words * 4);
      if (!rank)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
          ::"r"(at(data)), "l"(mine + r % 16 * words), "r"(words * 4), "r"(at(bars)), "h"((unsigned short)3) : "memory");
    }
  } else {
    for (u32 r = 0; r < rounds; r++) {
      if (!passed(at(bars), r & 1)) { STUCK; break; }
      u32 bad = 0;
      for (u32 i = threadIdx.x - 32; i < words; i += 96) bad |= volatile_load(data + i) != pattern(r % 16 + launch, i);
      WRONG(bad);
      if (rank && r % 3 == 0) pause(200);
      fence_proxy(); __syncwarp();
      if (threadIdx.x % 32 == 0)
        for (u32 q = 0; q < 2; q++) {
          if (!KEPT && q != rank) continue;
          u32 there; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(bars + 1)), "r"(q));
          asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
        }
    }
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");""",
        cluster=2,
    ),
    Litmus(
        "store_then_bulk_store",
        "a thread writes shared memory, fences, and stores it in bulk (left: no fence)",
        """
  __shared__ __align__(128) u32 data[4 * 128];
  u32* mine = scratch + (blockIdx.x * 128 + threadIdx.x) * 4;
  for (u32 r = 0; r < 100; r++) {
    for (u32 i = 0; i < 4; i++) ((volatile u32*)data)[threadIdx.x * 4 + i] = pattern(r, threadIdx.x + i);
    if (KEPT) fence_proxy();
    store(mine, at(data + threadIdx.x * 4), 16); commit(); wait_stored();
    u32 bad = 0;
    for (u32 i = 0; i < 4; i++) bad |= volatile_load(mine + i) != pattern(r, threadIdx.x + i);
    WRONG(bad);
    fence_proxy(); __syncthreads();
  }""",
    ),
    Litmus(
        "source_overwritten_early",
        "the source of a bulk store is overwritten after the wait for its reads (left: at once)",
        """
  extern __shared__ __align__(1024) u32 data[];
  const u32 words = 2048;
  u32* mine = scratch + blockIdx.x * words;
  for (u32 r = 0; r < 50; r++) {
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) data[i] = pattern(r, i);
    fence_proxy(); __syncthreads();
    if (!threadIdx.x) { store(mine, at(data), words * 4); commit(); if (KEPT) wait_source(); }
    __syncthreads();
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) data[i] = 0xdeadbeef;
    if (!threadIdx.x) wait_stored();
    __syncthreads();
    u32 bad = 0;
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) bad |= volatile_load(mine + i) != pattern(r, i);
    WRONG(bad);
    __syncthreads();
  }""",
        shared=2048 * 4,
    ),
    Litmus(
        "copies_of_threads",
        "cp.async, the wait for its group, a barrier, reads by others (left: no wait)",
        """
  __shared__ __align__(16) u32 data[4 * 128];
  for (u32 r = 0; r < 200; r++) {
    u32* from = scratch + (((blockIdx.x * 200 + r) * 128 + threadIdx.x) % (1 << 20)) * 4;
    for (u32 i = 0; i < 4; i++) data[threadIdx.x * 4 + i] = 0;
    for (u32 i = 0; i < 4; i++) from[i] = pattern((u32)(u64)from, i) | 1;
    __syncthreads();
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\\ncp.async.commit_group;" ::"r"(at(data + threadIdx.x * 4)), "l"(from) : "memory");
    if (KEPT) asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    u32 there = threadIdx.x ^ 64;
    u32* his = scratch + (((blockIdx.x * 200 + r) * 128 + there) % (1 << 20)) * 4;
    WRONG(volatile_load(data + there * 4 + 3) != (pattern((u32)(u64)his, 3) | 1));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }""",
    ),
    Litmus(
        "boxes_added",
        "boxes added into one place by every workgroup: none is lost",
        """
  __shared__ __align__(128) u32 data[256];
  for (u32 i = threadIdx.x; i < 256; i += blockDim.x) data[i] = 1;
  fence_proxy(); __syncthreads();
  if (!threadIdx.x) {
    for (u32 r = 0; r < 50; r++) {
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(scratch), "r"(at(data)), "r"(1024) : "memory");
      commit();
    }
    wait_stored(); __threadfence();
    u32 done = atomicAdd(scratch + 1024, 1) + 1;
    if (done % gridDim.x == 0) {
      __threadfence();
      for (u32 i = 0; i < 256; i++) WRONG(volatile_load(scratch + i) != done * 50);
    }
  }""",
        left=False,
    ),
    Litmus(
        "multicast_counts_everywhere",
        "a copy to both workgroups of a cluster counts its whole bytes at each one's barrier (left: the second expects half)",
        """
  extern __shared__ __align__(1024) u32 data[]; __shared__ u64 bars[1];
  const u32 words = 2048;
  u32 rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  u32* mine = scratch + (blockIdx.x / 2) * words;
  if (!rank) for (u32 i = threadIdx.x; i < words; i += blockDim.x) mine[i] = pattern(blockIdx.x / 2, i);
  for (u32 r = 0; r < 50; r++) {
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) data[i] = 0;
    if (!threadIdx.x) { init(at(bars), 1); fence_init(); expect(at(bars), KEPT || !rank ? words * 4 : words * 2); }
    fence_proxy(); __threadfence();
    asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (!rank && !threadIdx.x)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
        ::"r"(at(data)), "l"(mine), "r"(words * 4), "r"(at(bars)), "h"((unsigned short)3) : "memory");
    bool ok = passed(at(bars), 0, KEPT ? 400000 : 10000);
    if (!ok && KEPT) STUCK;
    u32 bad = 0;
    for (u32 i = words - 1 - threadIdx.x; i < words; i -= blockDim.x) bad |= volatile_load(data + i) != pattern(blockIdx.x / 2, i);
    WRONG(bad);
    pause(5000);
    asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (!threadIdx.x) drop(at(bars));
    __syncthreads();
  }""",
        cluster=2,
        shared=2048 * 4,
    ),
    Litmus(
        "message_between_workgroups",
        "a counter with release and acquire at gpu scope between two workgroups (left: relaxed)",
        """
  u32 pair = blockIdx.x / 2, t = threadIdx.x;
  u32 *data = scratch + pair * 512, *flag = data + 256, *back = data + 384;
  for (u32 r = 1; r <= 100; r++) {
    if (blockIdx.x % 2 == 0) {
      data[t] = pattern(r + launch * 1000, t);
      if (KEPT) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
      else asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
      u32 seen = 0, i = 0, base = (launch * 100 + r) * 128;
      do {
        if (KEPT) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        else asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
      } while (seen < base && ++i < 400000);
      if (i >= 400000) STUCK;
      u32 got, there = t ^ 77;
      asm volatile("ld.global.u32 %0, [%1];" : "=r"(got) : "l"(data + there) : "memory");
      WRONG(got != pattern(r + launch * 1000, there));
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(back) : "memory");
    }
    if (blockIdx.x % 2 == 0) {
      u32 seen = 0, i = 0;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(back) : "memory");
      while (seen < (launch * 100 + r) * 128 && ++i < 4000000);
      if (i >= 4000000) STUCK;
    }
  }""",
        grid=132,
        launches=10,
    ),
    Litmus(
        "last_to_arrive",
        "four workgroups leave 128 words each and count; whoever counts last reads all (left: relaxed, not joined)",
        """
  __shared__ u32 last;
  u32 t = threadIdx.x, k = blockIdx.x % 4;
  u32 *data = scratch + blockIdx.x / 4 * 4096, *count = data + 2048, *done = data + 3072;
  for (u32 r = 1; r <= 100; r++) {
    u32 round = launch * 100 + r;
    if (t >= 32) pause(300);
    data[k * 128 + t] = pattern(round, k * 128 + t);
    if (KEPT) __syncthreads();
    if (!t) {
      u32 seen;
      if (KEPT) asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(seen) : "l"(count) : "memory");
      else asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], 1;" : "=r"(seen) : "l"(count) : "memory");
      last = seen + 1 == round * 4;
    }
    __syncthreads();
    if (last) {
      for (u32 i = t; i < 512; i += 128) {
        u32 got, there = i ^ 77;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(got) : "l"(data + there) : "memory");
        WRONG(got != pattern(round, there));
      }
      __syncthreads();
      if (!t) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(done) : "memory");
    }
    if (!t) {
      u32 seen = 0, i = 0;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(done) : "memory");
      while (seen < round && ++i < 4000000);
      if (i >= 4000000) STUCK;
    }
    __syncthreads();
  }""",
        launches=10,
    ),
    Litmus(
        "tickets_are_drawn_once",
        "2,640 workgroups draw 4,000 numbers, and wait for who drew the one before: each is drawn once, none waits for ever",
        """
  __shared__ u32 n;
  u32 *base = scratch + launch * 65536, *flags = base + 64;
  for (;;) {
    __syncthreads();
    if (!threadIdx.x) {
      u32 drawn;
      asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], 1;" : "=r"(drawn) : "l"(base) : "memory");
      n = drawn;
    }
    __syncthreads();
    if (n >= 4000) break;
    if (!threadIdx.x) {
      u32 seen = 0, i = 0;
      if (n) do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flags + n - 1) : "memory");
      while (!seen && ++i < 4000000);
      if (i >= 4000000) STUCK;
      asm volatile("atom.add.release.gpu.global.u32 %0, [%1], 1;" : "=r"(seen) : "l"(flags + n) : "memory");
      WRONG(seen != 0);
    }
  }""",
        grid=2640,
        launches=10,
        left=False,
    ),
    Litmus(
        "grid_of_resident_workgroups",
        "all workgroups of a cooperative launch wait for one another, 100 times",
        """
  if (!threadIdx.x) for (u32 r = 1; r <= 100; r++) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(scratch) : "memory");
    u32 seen = 0, i = 0;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(scratch) : "memory");
    while (seen < (launch * 100 + r) * gridDim.x && ++i < 4000000);
    WRONG(i >= 4000000);
  }""",
        cooperative=True,
        launches=5,
        left=False,
    ),
    Litmus(
        "product_read_early",
        "an operand of an asynchronous product is overwritten after the wait for its group (left: before)",
        """
  extern __shared__ __align__(1024) unsigned short tile[];
  u32 base = (at(tile) + 1023) & ~1023u;
  unsigned short* a = tile + (base - at(tile)) / 2; unsigned short* b = a + 64 * 64;
  for (u32 r = 0; r < 50; r++) {
    for (u32 i = threadIdx.x; i < 64 * 64; i += 128) { a[i] = 0x3f80; b[i] = 0x3f80; }
    fence_proxy(); __syncthreads();
    float d[32];
    for (int i = 0; i < 32; i++) d[i] = 0.0f;
    u64 da = (u64)((base & 0x3FFFF) >> 4) | ((u64)1 << 16) | ((u64)64 << 32) | ((u64)1 << 62);
    u64 db = (u64)(((base + 8192) & 0x3FFFF) >> 4) | ((u64)1 << 16) | ((u64)64 << 32) | ((u64)1 << 62);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    #pragma unroll
    for (int k = 0; k < 4; k++)
      asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31])
        : "l"(da + 2 * k), "l"(db + 2 * k));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (KEPT) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (u32 i = threadIdx.x; i < 64 * 64; i += 128) ((volatile unsigned short*)a)[i] = 0x4000;
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    u32 bad = 0;
    #pragma unroll
    for (int i = 0; i < 32; i++) { asm volatile("" : "+f"(d[i]) :: "memory"); bad |= d[i] != 64.0f; }
    WRONG(bad);
    __syncthreads();
  }""",
        shared=2 * 8192 + 1024,
    ),
    Litmus(
        "box_written_in_chunks",
        "a stored box that passes the end of its tensor within 16 bytes: bytes beyond the end that change",
        """
  extern __shared__ __align__(1024) u32 data[];
  for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) data[i] = 9;
  fence_proxy(); __syncthreads();
  if (!threadIdx.x) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(at(data)), "r"(32), "r"(64) : "memory");
    commit(); wait_stored(); __threadfence();
    // the tensor: 76 rows of 53 words (pitch 64): words 53, 54, 55 share the last chunk, 56.. do not
    for (u32 row = 64; row < 76; row++) for (u32 column = 32; column < 64; column++) {
      u32 got = volatile_load(scratch + row * 64 + column);
      if (column < 53) WRONG(got != 9);
      else if (column < 56) { if (got == 9) atomicAdd(out + 3, 1u); }
      else WRONG(got == 9);
    }
  }""",
        shared=4096,
        map="store",
        grid=1,
        launches=5,
        left=False,
    ),
    Litmus(
        "dependent_launch",
        "a launch that may begin early reads what the one before it wrote, after griddepcontrol.wait (left: no wait)",
        """
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 before = volatile_load(scratch + i);
  if (KEPT) asm volatile("griddepcontrol.wait;" ::: "memory");
  u32 got = KEPT ? volatile_load(scratch + i) : before;
  if (launch) WRONG(got != pattern(launch - 1, i));
  if (!KEPT) asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  pause(20000);
  ((volatile u32*)scratch)[i] = pattern(launch, i);""",
        grid=132,
        launches=30,
        dependent=True,
    ),
    Litmus(
        "ring_of_copies",
        "slots that threads fill by cp.async, whose completion arrives at a phased barrier, and others read and give back"
        " (left: the threads arrive themselves)",
        """
  __shared__ __align__(16) u32 data[2][256]; __shared__ u64 bars[4];
  u32 t = threadIdx.x & 63;
  u32* mine = scratch + blockIdx.x * 4096;
  if (!threadIdx.x) for (u32 i = 0; i < 4; i++) init(at(bars + i), 64);
  for (u32 i = threadIdx.x; i < 4096; i += blockDim.x) mine[i] = pattern(blockIdx.x, i);
  __threadfence(); __syncthreads();
  for (u32 n = 0; n < 400; n++) {
    u32 slot = n & 1, turn = n >> 1;
    if (threadIdx.x < 64) {
      if (!passed(at(bars + 2 + slot), (turn & 1) ^ 1)) STUCK;
      u32* from = mine + (n * 256 + t * 4) % 4096;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(data[slot] + t * 4)), "l"(from) : "memory");
      if (KEPT) asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(bars + slot)) : "memory");
      else arrive(at(bars + slot));
    } else {
      if (!passed(at(bars + slot), turn & 1)) STUCK;
      u32 i = (t ^ 33) * 4 + 3;
      WRONG(volatile_load(data[slot] + i) != pattern(blockIdx.x, (n * 256 + i) % 4096));
      arrive(at(bars + 2 + slot));
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();""",
    ),
    Litmus(
        "stores_that_signal",
        "st.async to the other workgroup of a cluster, which waits for its bytes at the scope of the cluster (left: it reads"
        " before it waits)",
        """
  __shared__ __align__(16) u32 data[128]; __shared__ u64 bars[1];
  u32 rank, there, bar;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(data)), "r"(rank ^ 1));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(at(bars)), "r"(rank ^ 1));
  if (!threadIdx.x) { init(at(bars), 1); fence_init(); }
  data[threadIdx.x] = 0;
  asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  for (u32 r = 0; r < 300; r++) {
    if (!threadIdx.x) expect(at(bars), 512);
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there + 4 * threadIdx.x), "r"(pattern(r * 2 + rank, threadIdx.x)), "r"(bar) : "memory");
    u32 i = threadIdx.x ^ 64, early = volatile_load(data + i), yes = 0;
    for (u32 n = 0; n < 400000 && !yes; n++)
      asm volatile("{\\n.reg .pred p;\\nmbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}" : "=r"(yes) : "r"(at(bars)), "r"(r & 1) : "memory");
    if (!yes) STUCK;
    u32 got = KEPT ? volatile_load(data + i) : early;
    WRONG(got != pattern(r * 2 + (rank ^ 1), i));
    asm volatile("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  }""",
        cluster=2,
    ),
    Litmus(
        "clusters_that_meet",
        "all clusters of a cooperative launch wait for one another, 100 times",
        """
  if (!threadIdx.x) for (u32 r = 1; r <= 100; r++) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(scratch) : "memory");
    u32 seen = 0, i = 0;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(scratch) : "memory");
    while (seen < (launch * 100 + r) * gridDim.x && ++i < 4000000);
    WRONG(i >= 4000000);
  }""",
        cluster=2,
        cooperative=True,
        launches=5,
        left=False,
    ),
)
"""Every test; rows of the memory model name those that have run."""


def text() -> str:
    """The kernels."""
    parts = [PRELUDE]
    for test in TESTS:
        for kept in (1, 0)[: 1 + test.left]:
            name = f"{test.name}_{'kept' if kept else 'left'}"
            extra = ", const __grid_constant__ TensorMap map" if test.map else ""
            parts.append(
                f'#define KEPT {kept}\nextern "C" __global__ void __launch_bounds__({test.threads})\n'
                f"{name}(u32* out, u32* scratch, u32 launch{extra}) {{{test.body}\n}}\n#undef KEPT\n"
            )
    return "\n".join(parts)


def make() -> None:
    """The cubin."""
    compile_cuda = importlib.import_module("treadle.toolchain.nvrtc").compile_cuda
    BUILD.mkdir(parents=True, exist_ok=True)
    done = compile_cuda(text(), arch="sm_90a", name="litmus")
    (BUILD / "litmus.cubin").write_bytes(done.cubin)
    print(len(done.kernels), "kernels;", done.messages)


SCRATCH = 1 << 24
"""Words of the memory that every test may use."""


def map_of(test: Litmus, address: int) -> Any:
    """The tensor map of a test: 32 x 32 words out of a tensor of 76 rows with a pitch of 64 words."""
    tensor_map = importlib.import_module("treadle.runtime.tensor_map")
    columns = 52 if test.map == "load" else 53
    return tensor_map.TensorMapSpec(
        "u32", address, (columns, 76), (256,), (32, 32), (1, 1), "none", "none", "none", "zero"
    )


def variant(test: Litmus, kept: bool, module: Any, torch: Any) -> dict[str, Any]:
    """One variant: counts over all its launches."""
    cuda = importlib.import_module("treadle.runtime.cuda")
    out = torch.zeros(4, dtype=torch.int32, device="cuda")
    scratch = torch.zeros(SCRATCH, dtype=torch.int32, device="cuda")
    if test.map == "load":
        scratch[: 76 * 64] = torch.arange(1, 76 * 64 + 1, dtype=torch.int32, device="cuda")
    geometry = cuda.Geometry(
        (test.grid, 1, 1),
        (test.threads, 1, 1),
        (test.cluster, 1, 1),
        test.shared,
        test.cooperative,
        test.dependent,
    )
    name = f"{test.name}_{'kept' if kept else 'left'}"
    function = module.function(name, shared=test.shared, cluster=test.cluster)
    begun = time.perf_counter()
    for launch in range(test.launches):
        arguments = [cuda.Pointer(int(out.data_ptr())), cuda.Pointer(int(scratch.data_ptr())), cuda.Scalar(launch, 4)]
        if test.map:
            arguments.append(map_of(test, int(scratch.data_ptr())))
        call = cuda.CudaLaunch(function, geometry, arguments)
        call()
        if not test.dependent:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    wrong, checked, stuck, beyond = out.tolist()
    found = {"wrong": wrong, "checked": checked, "stuck": stuck, "seconds": round(time.perf_counter() - begun, 3)}
    return {**found, "words changed beyond the end": beyond} if test.map == "store" else found


def run(path: Path, only: tuple[str, ...] = ()) -> None:
    """Every test (`only`: these), kept and left out; the report is written after each, so that a lost device loses one."""
    torch = importlib.import_module("torch")
    cuda = importlib.import_module("treadle.runtime.cuda")
    device = importlib.import_module("treadle.runtime.driver").device
    torch.zeros(1, device="cuda")
    module = cuda.load_cubin((BUILD / "litmus.cubin").read_bytes(), "sm_90a", device(0), name="litmus")
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "method": __doc__, "tests": {}}
    for test in (t for t in TESTS if not only or t.name in only):
        entry: dict[str, Any] = {"what": test.what}
        for kept in (True, False)[: 1 + test.left]:
            try:
                entry["kept" if kept else "left"] = variant(test, kept, module, torch)
            except (TreadleError, RuntimeError) as failed:
                entry["kept" if kept else "left"] = {"failed": str(failed)[:300]}
        report["tests"][test.name] = entry
        print(test.name, {k: v for k, v in entry.items() if k != "what"}, flush=True)
        path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) >= 3 and sys.argv[1] == "run":
        run(Path(sys.argv[2]), tuple(sys.argv[3:]))
    else:
        raise SystemExit(__doc__)
