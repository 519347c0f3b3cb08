"""The device functions that emitted text calls: one is one instruction, or the exact meaning of one operation.

`Prelude` collects those that a text uses, so that a small kernel stays a small text. None of them knows an operator.
"""

from __future__ import annotations

from treadle.ir.ops.intrinsic import Meaning

HEAD = """#pragma nv_diag_suppress 177, 550
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define DEVICE __device__ __forceinline__
"""

_PARTS: dict[str, tuple[str, tuple[str, ...]]] = {}


def _part(name: str, text: str, *needs: str) -> None:
    _PARTS[name] = (text.strip("\n") + "\n", needs)


# ---- index arithmetic

_part("least", "template <class T> DEVICE T least(T a, T b) { return a < b ? a : b; }")
_part("most", "template <class T> DEVICE T most(T a, T b) { return a < b ? b : a; }")
_part(
    "floor_div",
    """
template <class T> DEVICE T floor_div(T a, T b) {
  const T q = a / b;
  return q - (T)(q * b > a);
}""",
)
_part(
    "floor_mod",
    """
template <class T> DEVICE T floor_mod(T a, T b) {
  const T r = a % b;
  return r < 0 ? r + b : r;
}""",
)

# Sums with numbers that a run tells: the nearest number that 64 bits hold.
_part(
    "held_add",
    """
DEVICE i64 held_add(i64 a, i64 b) {
  const i64 s = (i64)((u64)a + (u64)b);
  return ((a ^ s) & (b ^ s)) < 0 ? (a >> 63) ^ 0x7fffffffffffffffll : s;
}""",
)
_part(
    "held_sub",
    """
DEVICE i64 held_sub(i64 a, i64 b) {
  const i64 s = (i64)((u64)a - (u64)b);
  return ((a ^ b) & (a ^ s)) < 0 ? (a >> 63) ^ 0x7fffffffffffffffll : s;
}""",
)
_part(
    "held_times",
    """
DEVICE i64 held_times(i64 a, i64 b) {
  const i64 p = (i64)((u64)a * (u64)b);
  return __mul64hi(a, b) != (p >> 63) ? ((a ^ b) >> 63) ^ 0x7fffffffffffffffll : p;
}""",
)

# ---- values

_part(
    "pack_bf16",
    """
DEVICE u32 pack_bf16(float low, float high) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}""",
)
_part(
    "pack_f16",
    """
DEVICE u32 pack_f16(float low, float high) {
  u32 d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}""",
)
_part(
    "to_bf16",
    """
DEVICE u16 to_bf16(float x) {
  u16 d;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(d) : "f"(x));
  return d;
}""",
)
_part(
    "to_f16",
    """
DEVICE u16 to_f16(float x) {
  u16 d;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(d) : "f"(x));
  return d;
}""",
)
_part("from_bf16", "DEVICE float from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }")
_part(
    "from_f16",
    """
DEVICE float from_f16(u16 x) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(x));
  return d;
}""",
)
_part("pair", "DEVICE u32 pair(u16 low, u16 high) { return (u32)low | (u32)high << 16; }")
_part(
    "odd_float",
    """
// To f32 with the last bit set where something was cut off: a later rounding to fewer bits is then the only one.
DEVICE float odd_float(double x) {
  const float cut = __double2float_rz(x);
  return (double)cut == x || x != x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}""",
)
_part(
    "odd_signed",
    """
DEVICE float odd_signed(i64 x) {
  const float cut = __ll2float_rz(x);
  return (i64)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}""",
)
_part(
    "odd_unsigned",
    """
DEVICE float odd_unsigned(u64 x) {
  const float cut = __ull2float_rz(x);
  return (u64)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u);
}""",
)
for _name, _kind, _wide, _instruction in (
    ("i32_of_f32", "float", "int", "cvt.rzi.s32.f32"),
    ("u32_of_f32", "float", "u32", "cvt.rzi.u32.f32"),
    ("i64_of_f32", "float", "i64", "cvt.rzi.s64.f32"),
    ("u64_of_f32", "float", "u64", "cvt.rzi.u64.f32"),
    ("i32_of_f64", "double", "int", "cvt.rzi.s32.f64"),
    ("u32_of_f64", "double", "u32", "cvt.rzi.u32.f64"),
    ("i64_of_f64", "double", "i64", "cvt.rzi.s64.f64"),
    ("u64_of_f64", "double", "u64", "cvt.rzi.u64.f64"),
):
    _out = "l" if _wide in ("i64", "u64") else "r"
    _in = "f" if _kind == "float" else "d"
    _part(
        _name,
        f"""
// Truncates and saturates; the conversion of NaN is 0.
DEVICE {_wide} {_name}({_kind} x) {{
  {_wide} d;
  asm("{_instruction} %0, %1;" : "={_out}"(d) : "{_in}"(x));
  return x != x ? 0 : d;
}}""",
    )
_part(
    "within", "template <class T> DEVICE T within(T x, T low, T high) { return x < low ? low : x > high ? high : x; }"
)

# ---- operations

_part(
    "max_f32",
    """
DEVICE float max_f32(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}""",
)
_part(
    "min_f32",
    """
DEVICE float min_f32(float a, float b) {
  float d;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}""",
)
_part(
    "quotient",
    """
// a / b with r = 1 / b rounded: the product is off by less than 1.5 ulp, the remainder's share of it then rounds right
// (Markstein; its signs are such that zeros keep theirs). Wants 2^-20 <= b <= 2^20 and |a| zero or in [2^-100, 2^102].
DEVICE float quotient(float a, float b, float r) {
  const float first = a * r;
  return fmaf(fmaf(b, first, -a), -r, first);
}
DEVICE bool ordinary_divisor(float b) { return (b >= 0x1p-20f) & (b <= 0x1p+20f); }
// Over dividends: their sum is below 2^101, and `least` tells of one below 2^-100 that is not zero.
DEVICE void not_small(float a, u32& least) { least = __viaddmin_u32(__float_as_uint(a), 0xffffffffu, least); }
DEVICE void not_small_below(float a, u32& least) { least = __viaddmin_u32(__float_as_uint(a), 0x7fffffffu, least); }
DEVICE bool ordinary_dividends(float sum, u32 least) { return (sum < 0x1p+101f) & (least >= 0x0d7fffffu); }""",
)
_part("max_f64", "DEVICE double max_f64(double a, double b) { return b > a || b != b ? b : a; }")
_part("min_f64", "DEVICE double min_f64(double a, double b) { return b < a || b != b ? b : a; }")
_part(
    "int_floordiv",
    """
template <class T> DEVICE T int_floordiv(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < (T)0 && b == (T)-1) return (T)(0 - (u64)a);
  const T q = a / b, r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
template <class T> DEVICE T int_mod(T a, T b) {
  if (b == 0 || ((T)-1 < (T)0 && b == (T)-1)) return 0;
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}""",
)
_part(
    "shifts",
    """
template <class T, class U> DEVICE T shift_left(T a, T count) {
  return (U)count < 8 * sizeof(T) ? (T)((u64)(U)a << (u32)count) : (T)0;
}
template <class T, class U> DEVICE T shift_right(T a, T count) {
  const bool inside = (U)count < 8 * sizeof(T);
  if ((T)-1 < (T)0) return (T)(a >> (inside ? (u32)count : (u32)(8 * sizeof(T) - 1)));
  return inside ? (T)(a >> (u32)count) : (T)0;
}""",
)
_part(
    "float_mod",
    """
// The exact remainder of truncated division, then NumPy's floor division and modulus.
DEVICE float truncated(float x, float y) { return fmodf(x, y); }
DEVICE double truncated(double x, double y) { return fmod(x, y); }
template <class T> DEVICE T sized(T size, T sign) { return copysign(size, sign); }
template <class T> DEVICE T float_mod(T a, T b) {
  const T r = truncated(a, b);
  if (b == 0) return r;
  if (r == 0) return sized((T)0, b);
  return (b < 0) != (r < 0) ? r + b : r;
}
template <class T> DEVICE T float_floordiv(T a, T b) {
  if (b == 0) return a / b;
  const T r = truncated(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= (T)1;
  if (q == 0) return sized((T)0, a / b);
  T whole = floor(q);
  if (q - whole > (T)0.5) whole += (T)1;
  return whole;
}""",
)
for _name, _instruction in (
    ("exp2_approx", "ex2.approx.ftz.f32"),
    ("log2_approx", "lg2.approx.ftz.f32"),
    ("rsqrt_approx", "rsqrt.approx.ftz.f32"),
    ("reciprocal_approx", "rcp.approx.ftz.f32"),
    ("tanh_approx", "tanh.approx.f32"),
    ("sin_approx", "sin.approx.ftz.f32"),
    ("cos_approx", "cos.approx.ftz.f32"),
):
    _part(
        _name,
        f"""
DEVICE float {_name}(float x) {{
  float d;
  asm("{_instruction} %0, %1;" : "=f"(d) : "f"(x));
  return d;
}}""",
    )
for _name in ("max", "min"):
    _part(
        f"{_name}_pairs",
        f"""
DEVICE u32 {_name}_pairs(u32 a, u32 b) {{
  u32 d;
  asm("{_name}.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}}""",
    )
_part(
    "fma_unit",
    """
// a * b + c, clamped to [0, 1]; of NaN 0.
DEVICE float fma_unit(float a, float b, float c) {
  float d;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}""",
)
_part(
    "exp_approx",
    """
DEVICE float exp_approx(float x) { return exp2_approx(x * 0x1.715476p+0f); }""",
    "exp2_approx",
)

# ---- updates of memory that others update too

_part(
    "update",
    """
template <class F> DEVICE void update_u32(u32* at, F next) {
  u32 old = *(volatile u32*)at, seen;
  do {
    seen = old;
    old = atomicCAS(at, seen, next(seen));
  } while (old != seen);
}
template <class F> DEVICE void update_u64(u64* at, F next) {
  u64 old = *(volatile u64*)at, seen;
  do {
    seen = old;
    old = atomicCAS(at, seen, next(seen));
  } while (old != seen);
}
// Elements of one and two bytes: inside the word that holds them.
template <class F> DEVICE void update_part(void* at, u32 bits, F next) {
  const u64 address = (u64)at;
  const u32 shift = (u32)(address & 3) * 8, mask = ((1u << bits) - 1u) << shift;
  update_u32((u32*)(address & ~(u64)3), [&](u32 word) {
    return (word & ~mask) | (((u32)next((word & mask) >> shift) << shift) & mask);
  });
}""",
)

_part(
    "store_half",
    """
// Four bits of a byte, whatever is stored to the others meanwhile: cleared, then set, in the word around it.
DEVICE void store_half(u8* at, u32 low, u32 code) {
  const u64 address = (u64)at;
  const u32 shift = (u32)(address & 3) * 8 + low;
  u32* const word = (u32*)(address & ~(u64)3);
  atomicAnd(word, ~(15u << shift));
  atomicOr(word, (code & 15u) << shift);
}""",
)

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
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
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
    "barrier_wait",
    """
DEVICE void barrier_wait(u32 bar, u32 parity) {
  asm volatile(
      "{\\n.reg .pred done;\\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
      "@done bra passed;\\nbra again;\\npassed:\\n}" ::"r"(bar), "r"(parity) : "memory");
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

# ---- warpgroup mma

_part(
    "operand_desc",
    """
// Shared operand descriptor: address, leading and stride byte offsets, kind of swizzle.
DEVICE u64 operand_desc(u32 address, u32 leading, u32 stride, u32 kind) {
  return (u64)((address & 0x3FFFF) >> 4) | ((u64)(leading >> 4) << 16) | ((u64)(stride >> 4) << 32) | ((u64)kind << 62);
}""",
)
_part("mma_fence", 'DEVICE void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }')
_part("mma_commit", 'DEVICE void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }')
_part(
    "mma_wait",
    """
template <int P> DEVICE void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(P) : "memory"); }""",
)
_part(
    "landed",
    """
// No instruction: every register is redefined here, so arithmetic on it cannot be moved above the wait before it.
template <int R> DEVICE void landed(float (&f)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+f"(f[i])::"memory");
}
template <int R> DEVICE void landed(u32 (&f)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+r"(f[i])::"memory");
}
template <int R> DEVICE void landed(int (&f)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+r"(f[i])::"memory");
}""",
)
_part(
    "registers",
    """
template <int R> DEVICE void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> DEVICE void registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }""",
)
_part(
    "store_matrix_4",
    """
DEVICE void store_matrix_4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d) : "memory");
}""",
)
for _kind in ("bf16", "f16"):
    _part(
        f"mma_m16n8k16_{_kind}",
        f"""
DEVICE void mma_m16n8k16_{_kind}(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                               u32 b1) {{
  asm("mma.sync.aligned.m16n8k16.row.col.f32.{_kind}.{_kind}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
      "{{%0, %1, %2, %3}};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}}""",
    )
for _turned in ("", "_turned"):
    _part(
        f"load_matrix_4{_turned}",
        f"""
DEVICE void load_matrix_4{_turned}(u32 address, u32& a, u32& b, u32& c, u32& d) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{".trans" if _turned else ""}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}}""",
    )
_part(
    "mma_m16n8k8_tf32",
    """
DEVICE void mma_m16n8k8_tf32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                             u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}""",
)


class Prelude:
    """The parts that a text uses, in the order in which they must stand; `own` holds generated functions."""

    def __init__(self) -> None:
        self.parts: dict[str, None] = {}
        self.own: dict[str, str] = {}
        self.intrinsics: dict[str, Meaning] = {}  # operations of the user's own

    def use(self, name: str) -> str:
        """Has the part in the text; returns its name."""
        if name not in self.parts:
            for need in _PARTS[name][1]:
                self.use(need)
            self.parts[name] = None
        return name

    def define(self, name: str, text: str) -> str:
        """Has a generated function in the text; returns its name."""
        self.own.setdefault(name, text)
        return name

    def scan(self, text: str) -> None:
        """Has those parts in the text whose names occur in it."""
        for name in ("least", "most", "floor_div", "floor_mod", "held_add", "held_sub", "held_times", "shared_address"):
            if f"{name}(" in text:
                self.use(name)

    def text(self) -> str:
        """All of it, the typedefs first."""
        return HEAD + "".join(_PARTS[name][0] for name in self.parts) + "".join(self.own.values())
