"""Device functions on shared memory: copies, barriers, fences, clusters; one is one instruction."""

from __future__ import annotations

from treadle.targets.cuda.emit.parts import Parts

PARTS = Parts()
_part = PARTS.add

# ---- shared memory and synchronisation

_part("shared_address", "DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }")
_part("tensor_map", "struct alignas(64) TensorMap { u64 word[16]; };")
_part("swizzle_128", "DEVICE u32 swizzle_128(u32 at) { return at ^ ((at >> 3) & 0x70u); }")
_part("swizzle_64", "DEVICE u32 swizzle_64(u32 at) { return at ^ ((at >> 3) & 0x30u); }")
_part("swizzle_32", "DEVICE u32 swizzle_32(u32 at) { return at ^ ((at >> 3) & 0x10u); }")
_part(
    "barrier_init",
    """
DEVICE void barrier_init(u32 bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}""",
)
_part(
    "fence_barrier_init",
    'DEVICE void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }',
)
_part(
    "barrier_expect",
    """
DEVICE void barrier_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}""",
)
_part(
    "barrier_arrive",
    """
DEVICE void barrier_arrive(u32 bar) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
#else
  u64 state;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(bar) : "memory");
#endif
}""",
)
_part(
    "barrier_arrive_many",
    """
DEVICE void barrier_arrive_many(u32 bar, u32 count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}""",
)
_part(
    "barrier_arrive_at",
    """
// At the barrier of this place in another workgroup of the cluster.
DEVICE void barrier_arrive_at(u32 bar, u32 rank, u32 count) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(bar), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0], %1;" ::"r"(there), "r"(count) : "memory");
}""",
)
_part(
    "cluster_arrive",
    'DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }',
)
_part(
    "cluster_wait",
    'DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }',
)
_part("grid_wait", 'DEVICE void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }')
_part("grid_release", 'DEVICE void grid_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }')
_part(
    "grid_meet",
    """
// All workgroups of a cooperative launch: `arrivals` was 0 when it began and has been added to in each meeting before.
DEVICE void grid_meet(u32* arrivals, u32 meeting) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const u32 all = meeting * gridDim.x;
    u32 seen;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], 1;" : "=r"(seen) : "l"(arrivals) : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrivals) : "memory");
    } while (seen < all);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
  __syncthreads();
}""",
)
_part("fence_gpu", 'DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }')
_part(
    "counter_add",
    """
// What this thread did, and what others did before they joined it, is visible to who acquires the sum.
DEVICE void counter_add(u32* at) {
  asm volatile("red.add.release.gpu.global.u32 [%0], 1;" ::"l"(at) : "memory");
}""",
)
_part(
    "counter_wait",
    """
DEVICE void counter_wait(const u32* at, u32 count) {
  u32 seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory");
  } while (seen < count);
}""",
)
_part(
    "arrives_last",
    """
// The threads of an agent meet, one adds for all of them, and all learn whether theirs was arrival number `of`.
DEVICE bool arrives_last(u32* at, u32 of, u32 id, u32 threads, bool single) {
  u32 seen = 0, last;
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
  if (single) {
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(seen) : "l"(at) : "memory");
    seen = seen + 1 == of;
  }
  asm volatile(
      "{\\n.reg .pred mine, all;\\n"
      "setp.ne.u32 mine, %3, 0;\\n"
      "bar.red.or.pred all, %1, %2, mine;\\n"
      "selp.u32 %0, 1, 0, all;\\n}"
      : "=r"(last) : "r"(id), "r"(threads), "r"(seen) : "memory");
  return last != 0;
}""",
)
_part(
    "ticket_number",
    """
DEVICE int ticket_number(u32* tickets) {
  u32 drawn;
  asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], 1;" : "=r"(drawn) : "l"(tickets) : "memory");
  return (int)drawn;
}""",
)
_part(
    "draw",
    """
// The next ticket, for all threads of the workgroup.
DEVICE int draw(u32* tickets) {
  __shared__ int drawn;
  __syncthreads();
  if (threadIdx.x == 0) drawn = ticket_number(tickets);
  __syncthreads();
  return drawn;
}""",
    "ticket_number",
)
_part(
    "draw_apart",
    """
// Roles run apart: tickets go to them through two slots, each free again when all warps have read it.
__shared__ u64 tickets_full[2], tickets_free[2];
__shared__ int tickets_drawn[2];
DEVICE void draw_begin(u32 warps) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      barrier_init(shared_address(tickets_full + i), 1);
      barrier_init(shared_address(tickets_free + i), warps);
    }
  }
  __syncthreads();
}
DEVICE int draw_apart(u32* tickets, u32 round) {
  const u32 slot = round & 1, parity = round >> 1 & 1;
  const u32 full = shared_address(tickets_full + slot), free = shared_address(tickets_free + slot);
  if (threadIdx.x == 0) {
    if (round >= 2) barrier_wait(free, parity ^ 1);
    tickets_drawn[slot] = ticket_number(tickets);
    barrier_arrive(full);
  }
  __syncwarp();
  barrier_wait(full, parity);
  const int drawn = *(volatile int*)(tickets_drawn + slot);
  __syncwarp();
  if ((threadIdx.x & 31) == 0) barrier_arrive(free);
  return drawn;
}""",
    *("ticket_number", "shared_address", "barrier_init", "barrier_wait", "barrier_arrive"),
)
_part(
    "peer",
    """
// The same place in the shared memory of another workgroup of the cluster.
DEVICE unsigned char* peer(unsigned char* at, u32 rank) {
  u64 there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(at), "r"(rank));
  return (unsigned char*)there;
}""",
)
_part(
    "address_at",
    """
// The shared address of this place in another workgroup of the cluster.
DEVICE u32 address_at(u32 at, u32 rank) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  return there;
}""",
)
for _bits in (32, 64):
    _part(
        f"send_{_bits}",
        f"""
// Stored in another workgroup, whose barrier counts the bytes.
template <typename T> DEVICE void send_{_bits}(u32 dst, T value, u32 bar) {{
  u{_bits} word;
  memcpy(&word, &value, sizeof(word));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b{_bits} [%0], %1, [%2];" ::"r"(dst),
               "{"r" if _bits == 32 else "l"}"(word), "r"(bar) : "memory");
}}""",
    )
_part(
    "barrier_wait_far",
    """
// What other workgroups of the cluster stored and counted there is visible, too.
DEVICE void barrier_wait_far(u32 bar, u32 parity) {
  asm volatile(
      "{\\n.reg .pred done;\\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\\n"
      "@done bra passed;\\nbra again;\\npassed:\\n}" ::"r"(bar), "r"(parity) : "memory");
}""",
)
_part(
    "barrier_wait",
    """
DEVICE void barrier_wait(u32 bar, u32 parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\\n.reg .pred done;\\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
      "@done bra passed;\\nbra again;\\npassed:\\n}" ::"r"(bar), "r"(parity) : "memory");
#else
  u32 done;
  do {
    asm volatile(
        "{\\n.reg .pred over;\\nmbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\\n"
        "selp.u32 %0, 1, 0, over;\\n}" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (!done);
#endif
}""",
)
_part(
    "named_sync",
    """
DEVICE void named_sync(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
template <int I, int T> DEVICE void named_sync() { asm volatile("bar.sync %0, %1;" ::"n"(I), "n"(T) : "memory"); }""",
)
_part(
    "named_arrive",
    """
DEVICE void named_arrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
template <int I, int T> DEVICE void named_arrive() { asm volatile("bar.arrive %0, %1;" ::"n"(I), "n"(T) : "memory");
}""",
)
_part(
    "fence_async_proxy",
    """
// Ordinary shared accesses of this thread are ordered with the copy engine and the tensor cores.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }""",
)
_part(
    "fence_async_proxy_all",
    """
DEVICE void fence_async_proxy_all() { asm volatile("fence.proxy.async;" ::: "memory"); }""",
)
_part("bulk_commit", 'DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }')
_part(
    "bulk_wait",
    """
template <int P> DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(P) : "memory"); }
template <int P> DEVICE void bulk_wait_source() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(P) : "memory");
}""",
)
_part("copies_commit", 'DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }')
_part(
    "copies_wait",
    'template <int P> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(P) : "memory"); }',
)
_part(
    "copies_arrive",
    """
// When the copies of this thread are complete they arrive for it (`more`: the phase counts an arrival more for that).
DEVICE void copies_arrive(u32 bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
DEVICE void copies_arrive_more(u32 bar) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}""",
)
_part(
    "copy_16",
    """
// Copies `bytes` of 16 and zeros the rest.
DEVICE void copy_16(u32 dst, const void* src, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}""",
)
_part(
    "bulk_load",
    """
DEVICE void bulk_load(u32 dst, const void* src, u32 bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(bar) : "memory");
}""",
)
_part(
    "bulk_store",
    """
DEVICE void bulk_store(void* dst, u32 src, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes)
               : "memory");
}""",
)
_part(
    "prefetch_map",
    """
DEVICE void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}""",
    "tensor_map",
)
for _rank in range(1, 6):
    _coordinates = ", ".join(f"int c{i}" for i in range(_rank))
    _inputs = ", ".join(f'"r"(c{i})' for i in range(_rank))
    _load = ", ".join(f"%{3 + i}" for i in range(_rank))
    _cast = ", ".join(f"%{4 + i}" for i in range(_rank))
    _store = ", ".join(f"%{2 + i}" for i in range(_rank))
    _part(
        f"load_box_{_rank}",
        f"""
DEVICE void load_box_{_rank}(u32 dst, const TensorMap* map, u32 bar, {_coordinates}) {{
  asm volatile(
      "cp.async.bulk.tensor.{_rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {{{_load}}}], [%2];"
      ::"r"(dst), "l"(map), "r"(bar), {_inputs} : "memory");
}}""",
        "tensor_map",
    )
    _part(
        f"cast_box_{_rank}",
        f"""
DEVICE void cast_box_{_rank}(u32 dst, const TensorMap* map, u32 bar, u16 receivers, {_coordinates}) {{
  asm volatile(
      "cp.async.bulk.tensor.{_rank}d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {{{_cast}}}], [%2], %3;"
      ::"r"(dst), "l"(map), "r"(bar), "h"(receivers), {_inputs} : "memory");
}}""",
        "tensor_map",
    )
    _part(
        f"store_box_{_rank}",
        f"""
DEVICE void store_box_{_rank}(const TensorMap* map, u32 src, {_coordinates}) {{
  asm volatile("cp.async.bulk.tensor.{_rank}d.global.shared::cta.bulk_group [%0, {{{_store}}}], [%1];"
      ::"l"(map), "r"(src), {_inputs} : "memory");
}}""",
        "tensor_map",
    )

    for _effect in ("add", "max", "min"):
        _part(
            f"{_effect}_box_{_rank}",
            f"""
DEVICE void {_effect}_box_{_rank}(const TensorMap* map, u32 src, {_coordinates}) {{
  asm volatile("cp.reduce.async.bulk.tensor.{_rank}d.global.shared::cta.{_effect}.bulk_group [%0, {{{_store}}}], [%1];"
      ::"l"(map), "r"(src), {_inputs} : "memory");
}}""",
            "tensor_map",
        )
