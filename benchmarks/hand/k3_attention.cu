// K3 by hand: attention forward, bf16 [BH, S, D], f32 state. Options: D, KV, NC (consumers of 64 query rows), CAUSAL,
// AHEAD (first product of step j+1 issued before the second of step j), TURNS (consumers take turns at issuing), LAZY (the row
// sum stays split over the four lanes of a row until the end: a regrouping that an exact chain does not grant).
#define Q_ROWS (NC * 64)
#define Q_BYTES (Q_ROWS * D * 2)
#define KV_BYTES (KV * D * 2)
#ifndef VERSIONS
#define VERSIONS 2
#endif
#define K_OFFSET Q_BYTES
#define V_OFFSET (Q_BYTES + VERSIONS * KV_BYTES)
#define BARRIER_OFFSET (Q_BYTES + 2 * VERSIONS * KV_BYTES)
#define CHUNKS (D / 64)
#define ACROSS_QUAD(x) x += __shfl_xor_sync(~0u, x, 1), x += __shfl_xor_sync(~0u, x, 2);
#ifdef LAZY
#define QUAD_SUM(x)
#else
#define QUAD_SUM(x) ACROSS_QUAD(x)
#endif
#define CAT_(a, b, c) a##b##c
#define CAT(a, b, c) CAT_(a, b, c)

extern "C" __global__ void __launch_bounds__(128 + 128 * NC, 1)
    k3(const __grid_constant__ TensorMap mapQ, const __grid_constant__ TensorMap mapK,
       const __grid_constant__ TensorMap mapV, u16* O, int BH, int Sq, int Sk, float scale_log2, int heads) {
  extern __shared__ unsigned char raw[];
  const u32 base = (shared_address(raw) + 1023u) & ~1023u;
  const u32 q_full = base + BARRIER_OFFSET, q_empty = q_full + 8;
  const u32 k_full = q_full + 16, k_empty = k_full + 8 * VERSIONS, v_full = k_empty + 8 * VERSIONS, v_empty = v_full + 8 * VERSIONS;
  const int tiles_q = (Sq + Q_ROWS - 1) / Q_ROWS, tiles = tiles_q * BH, rounds = (tiles + gridDim.x - 1) / gridDim.x;
  const int role = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    barrier_init(q_full, 1);
    barrier_init(q_empty, 4 * NC);
    for (int s = 0; s < VERSIONS; s++) {
      barrier_init(k_full + 8 * s, 1);
      barrier_init(k_empty + 8 * s, 4 * NC);
      barrier_init(v_full + 8 * s, 1);
      barrier_init(v_empty + 8 * s, 4 * NC);
    }
    fence_barrier_init();
  }
  __syncthreads();
// Work order: full: query tiles of a head follow one another; causal: heavy tiles first in groups of heads, every
// second round dealt in reverse. Both roles run these same lines, so they enumerate the same tiles.
#if CAUSAL
#define DECODE(r)                                                                                                   \
  const int t = r * gridDim.x + (r & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);                                  \
  if (t >= tiles) continue;                                                                                         \
  const int group = t / (heads * tiles_q), within = t - group * heads * tiles_q;                                    \
  const int wide = BH - group * heads < heads ? BH - group * heads : heads;                                         \
  const int bh = group * heads + within % wide, q0 = (tiles_q - 1 - within / wide) * Q_ROWS;                        \
  const int stop = Sk < q0 + Q_ROWS ? Sk : q0 + Q_ROWS, steps = (stop + KV - 1) / KV;
#else
#define DECODE(r)                                                                                                   \
  const int t = r * gridDim.x + blockIdx.x;                                                                         \
  if (t >= tiles) continue;                                                                                         \
  const int bh = t / tiles_q, q0 = (t - bh * tiles_q) * Q_ROWS, steps = (Sk + KV - 1) / KV;
#endif
  if (role == 0) {
    registers_fewer<24>();
    if (threadIdx.x == 0) {
      u32 slot = 0, phase = 0, tile_phase = 0;
#pragma unroll 1
      for (int r = 0; r < rounds; r++) {
        DECODE(r)
        barrier_wait(q_empty, tile_phase ^ 1);
        barrier_expect(q_full, Q_BYTES);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) load_box_3d(base + c * Q_ROWS * 128, &mapQ, q_full, c * 64, q0, bh);
        tile_phase ^= 1;
#pragma unroll 1
        for (int j = 0; j < steps; j++) {
          barrier_wait(k_empty + 8 * slot, phase ^ 1);
          barrier_expect(k_full + 8 * slot, KV_BYTES);
#pragma unroll
          for (int c = 0; c < CHUNKS; c++)
            load_box_3d(base + K_OFFSET + slot * KV_BYTES + c * KV * 128, &mapK, k_full + 8 * slot, c * 64, j * KV, bh);
          barrier_wait(v_empty + 8 * slot, phase ^ 1);
          barrier_expect(v_full + 8 * slot, KV_BYTES);
#pragma unroll
          for (int c = 0; c < CHUNKS; c++)
            load_box_3d(base + V_OFFSET + slot * KV_BYTES + c * KV * 128, &mapV, v_full + 8 * slot, c * 64, j * KV, bh);
          if (++slot == VERSIONS) slot = 0, phase ^= 1;
        }
      }
    }
  } else {
    registers_more<NC == 2 ? 240 : 160>();
    const u32 consumer = role - 1, warp = (threadIdx.x / 32) & 3, lane = threadIdx.x & 31;
    const u32 q = base + consumer * 8192;
    u32 ks = 0, kp = 0, vs = 0, vp = 0, tile_phase = 0;
    float s[KV / 2], o[D / 2];
    u32 p[KV / 4];
#if TURNS
    if (consumer == NC - 1) named_arrive(1, 256);
#define TURN_BEGIN() named_sync(1 + consumer, 256)
#define TURN_END() named_arrive(2 - consumer, 256)
#else
#define TURN_BEGIN()
#define TURN_END()
#endif
#pragma unroll 1
    for (int r = 0; r < rounds; r++) {
      DECODE(r)
      const int row = q0 + consumer * 64 + warp * 16 + lane / 4;
      float top0 = __uint_as_float(0xFF800000u), top1 = top0, sum0 = 0.0f, sum1 = 0.0f, keep0, keep1;
#define FIRST_PRODUCT()                                                                                             \
  _Pragma("unroll") for (int i = 0; i < D / 16; i++) CAT(mma_ss_, KV, _k_k)(                                        \
      s, operand_desc(q + (i / 4) * Q_ROWS * 128, 16, 1024) + (i % 4) * 2,                                          \
      operand_desc(base + K_OFFSET + ks * KV_BYTES + (i / 4) * KV * 128, 16, 1024) + (i % 4) * 2, i != 0);          \
  mma_commit();
#define SECOND_PRODUCT(started)                                                                                     \
  _Pragma("unroll") for (int i = 0; i < KV / 16; i++) CAT(mma_rs_, D, _mn)(                                         \
      o, p + 4 * i, operand_desc(base + V_OFFSET + vs * KV_BYTES, KV * 128, 1024) + i * 128, (started) || i != 0);  \
  mma_commit();
#define RELEASE(bar, slot_, phase_)                                                                                 \
  if (lane == 0) barrier_arrive(bar + 8 * slot_);                                                                   \
  if (++slot_ == VERSIONS) slot_ = 0, phase_ ^= 1;
#define SOFTMAX(j)                                                                                                  \
  {                                                                                                                 \
    const int k0 = (j) * KV;                                                                                        \
    if (k0 + KV > Sk || (CAUSAL && k0 + KV > q0 + (int)consumer * 64)) {                                            \
      _Pragma("unroll") for (int i = 0; i < KV / 2; i++) {                                                          \
        const int key = k0 + (i / 4) * 8 + 2 * (lane & 3) + (i & 1), query = row + ((i / 2) & 1) * 8;               \
        if (key >= Sk || (CAUSAL && key > query)) s[i] = __uint_as_float(0xFF800000u);                              \
      }                                                                                                             \
    }                                                                                                               \
    float high0 = top0, high1 = top1;                                                                               \
    _Pragma("unroll") for (int i = 0; i < KV / 2; i += 4) {                                                         \
      high0 = fmaxf(high0, fmaxf(s[i], s[i + 1]));                                                                  \
      high1 = fmaxf(high1, fmaxf(s[i + 2], s[i + 3]));                                                              \
    }                                                                                                               \
    high0 = fmaxf(high0, __shfl_xor_sync(~0u, high0, 1)), high0 = fmaxf(high0, __shfl_xor_sync(~0u, high0, 2));     \
    high1 = fmaxf(high1, __shfl_xor_sync(~0u, high1, 1)), high1 = fmaxf(high1, __shfl_xor_sync(~0u, high1, 2));     \
    keep0 = exp2_fast((top0 - high0) * scale_log2), keep1 = exp2_fast((top1 - high1) * scale_log2);                 \
    top0 = high0, top1 = high1;                                                                                     \
    const float shift0 = high0 * scale_log2, shift1 = high1 * scale_log2;                                           \
    float part0 = 0.0f, part1 = 0.0f;                                                                               \
    _Pragma("unroll") for (int i = 0; i < KV / 2; i += 4) {                                                         \
      s[i] = exp2_fast(fmaf(s[i], scale_log2, -shift0)), s[i + 1] = exp2_fast(fmaf(s[i + 1], scale_log2, -shift0)); \
      s[i + 2] = exp2_fast(fmaf(s[i + 2], scale_log2, -shift1));                                                    \
      s[i + 3] = exp2_fast(fmaf(s[i + 3], scale_log2, -shift1));                                                    \
      part0 += s[i] + s[i + 1], part1 += s[i + 2] + s[i + 3];                                                       \
    }                                                                                                               \
    QUAD_SUM(part0) QUAD_SUM(part1)                                                                                 \
    sum0 = sum0 * keep0 + part0, sum1 = sum1 * keep1 + part1;                                                       \
  }
#define PACK() _Pragma("unroll") for (int i = 0; i < KV / 4; i++) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
#define RESCALE()                                                                                                   \
  _Pragma("unroll") for (int i = 0; i < D / 2; i += 4) o[i] *= keep0, o[i + 1] *= keep0, o[i + 2] *= keep1, o[i + 3] *= keep1;

      barrier_wait(q_full, tile_phase);
      tile_phase ^= 1;
#if AHEAD
      barrier_wait(k_full + 8 * ks, kp);
      TURN_BEGIN();
      mma_fence();
      FIRST_PRODUCT()
      TURN_END();
      mma_wait<0>();
      landed(s);
      RELEASE(k_empty, ks, kp)
      SOFTMAX(0)
      PACK()
#pragma unroll
      for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
#pragma unroll 1
      for (int j = 1; j < steps; j++) {
        barrier_wait(k_full + 8 * ks, kp);
        TURN_BEGIN();
        mma_fence();
        FIRST_PRODUCT()
        barrier_wait(v_full + 8 * vs, vp);
        mma_fence();
        SECOND_PRODUCT(true)
        TURN_END();
        mma_wait<1>();
        landed(s);
        RELEASE(k_empty, ks, kp)
        SOFTMAX(j)
        mma_wait<0>();
        landed(o);
        landed(p);
        RELEASE(v_empty, vs, vp)
        RESCALE()
        PACK()
      }
      if (lane == 0) barrier_arrive(q_empty);
      barrier_wait(v_full + 8 * vs, vp);
      mma_fence();
      SECOND_PRODUCT(true)
      mma_wait<0>();
      landed(o);
      RELEASE(v_empty, vs, vp)
#else
#pragma unroll
      for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
#pragma unroll 1
      for (int j = 0; j < steps; j++) {
        barrier_wait(k_full + 8 * ks, kp);
        mma_fence();
        FIRST_PRODUCT()
        mma_wait<0>();
        landed(s);
        RELEASE(k_empty, ks, kp)
        SOFTMAX(j)
        RESCALE()
        PACK()
        barrier_wait(v_full + 8 * vs, vp);
        mma_fence();
        SECOND_PRODUCT(true)
        mma_wait<0>();
        landed(o);
        landed(p);
        RELEASE(v_empty, vs, vp)
      }
      if (lane == 0) barrier_arrive(q_empty);
#endif
#ifdef LAZY
      ACROSS_QUAD(sum0) ACROSS_QUAD(sum1)
#endif
      const float inv0 = 1.0f / sum0, inv1 = 1.0f / sum1;
      u16* out = O + ((long long)bh * Sq + row) * D + 2 * (lane & 3);
#pragma unroll
      for (int i = 0; i < D / 2; i += 4) {
        if (row < Sq) store_u32(out + i * 2, pack_bf16(o[i] * inv0, o[i + 1] * inv0));
        if (row + 8 < Sq) store_u32(out + 8 * D + i * 2, pack_bf16(o[i + 2] * inv1, o[i + 3] * inv1));
      }
    }
#if TURNS
    if (consumer == 0) named_sync(1, 256);
#endif
  }
}
