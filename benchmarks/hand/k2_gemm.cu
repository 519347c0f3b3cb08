// K2 by hand: Y[M,N] = act(X[M,K] W[K,N] + bias[N]), bf16 in and out, f32 state. One line here is one line of
// k2_gemm.machine.txt. Options: BIAS (1 loaded in the epilogue, 2 before the k loop), ACT (0 none, 1 erf gelu, 2 erf gelu
// with a short polynomial), VERSIONS, PENDING, RASTER, X_KM (X stored [K,M]), W_NK (W stored [N,K]), ZERO (accumulator set to
// zero by stores instead of the scale predicate), RELEASE_ONE (one arrival a consumer instead of one a warp).
#ifndef VERSIONS
#define VERSIONS 4
#endif
#ifndef PENDING
#define PENDING 1
#endif
#ifndef RASTER
#define RASTER 16
#endif
#ifdef RELEASE_ONE
#define ARRIVALS 1
#define RELEASES leader
#else
#define ARRIVALS 4
#define RELEASES (lane == 0)
#endif
#define TILE_M 128
#define TILE_N 256
#define TILE_K 64
#define A_BYTES (TILE_M * TILE_K * 2)
#define B_BYTES (TILE_N * TILE_K * 2)
#define SLOT_BYTES (A_BYTES + B_BYTES)
#define B_OFFSET (VERSIONS * A_BYTES)
#define STAGE_OFFSET (VERSIONS * SLOT_BYTES)
#define BARRIER_OFFSET (STAGE_OFFSET + 2 * 2 * 8192)

DEVICE float gelu(float x) {
#if ACT == 2
  // erf through Abramowitz and Stegun 7.1.26: absolute error 1.5e-7.
  float z = fabsf(x) * 0.70710678f;
  float t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
  float y = fmaf(1.061405429f, t, -1.453152027f);
  y = fmaf(y, t, 1.421413741f);
  y = fmaf(y, t, -0.284496736f);
  y = fmaf(y, t, 0.254829592f) * t * exp2_fast(-1.44269504f * z * z);  // 1 - erf(z)
  float half = 0.5f * x;
  return x >= 0.0f ? fmaf(-half, y, x) : half * y;
#else
  return 0.5f * x * (1.0f + erff(x * 0.70710678f));
#endif
}

#ifdef X_KM
#define STEP_A 128
#define MMA_A mn
#else
#define STEP_A 2
#define MMA_A k
#endif
#ifdef W_NK
#define STEP_B 2
#define MMA_B k
#else
#define STEP_B 128
#define MMA_B mn
#endif
#define MMA__(a, b) mma_ss_256_##a##_##b
#define MMA_(a, b) MMA__(a, b)
#define MMA MMA_(MMA_A, MMA_B)
#ifdef ZERO
#define STARTED 1
#else
#define STARTED ((k | i) != 0)
#endif

extern "C" __global__ void __launch_bounds__(384, 1)
    k2(const __grid_constant__ TensorMap mapX, const __grid_constant__ TensorMap mapW,
       const __grid_constant__ TensorMap mapY, const u16* bias, int M, int N, int K) {
  extern __shared__ unsigned char raw[];
  const u32 base = (shared_address(raw) + 1023u) & ~1023u;
  const u32 full = base + BARRIER_OFFSET, empty = full + 8 * VERSIONS;
  const int tiles_m = (M + TILE_M - 1) / TILE_M, tiles_n = (N + TILE_N - 1) / TILE_N, tiles = tiles_m * tiles_n;
  const int steps = (K + TILE_K - 1) / TILE_K;
  const int role = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < VERSIONS; s++) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, 2 * ARRIVALS);
    }
    fence_barrier_init();
  }
  __syncthreads();
#define DECODE(t)                                                                                                   \
  const int group = t / (RASTER * tiles_n), first = group * RASTER, within = t - group * RASTER * tiles_n;          \
  const int height = tiles_m - first < RASTER ? tiles_m - first : RASTER;                                           \
  const int m0 = (first + within % height) * TILE_M, n0 = within / height * TILE_N;
  if (role == 0) {
    registers_fewer<40>();
    if (threadIdx.x == 0) {
      u32 slot = 0, phase = 0;
#pragma unroll 1
      for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        DECODE(t)
#pragma unroll 1
        for (int k = 0; k < steps; k++) {
          const u32 a = base + slot * A_BYTES, b = base + B_OFFSET + slot * B_BYTES, bar = full + 8 * slot;
          barrier_wait(empty + 8 * slot, phase ^ 1);
          barrier_expect(bar, SLOT_BYTES);
#ifdef X_KM
#pragma unroll
          for (int c = 0; c < TILE_M / 64; c++) load_box_2d(a + c * 8192, &mapX, bar, m0 + c * 64, k * TILE_K);
#else
          load_box_2d(a, &mapX, bar, k * TILE_K, m0);
#endif
#ifdef W_NK
          load_box_2d(b, &mapW, bar, k * TILE_K, n0);
#else
#pragma unroll
          for (int c = 0; c < TILE_N / 64; c++) load_box_2d(b + c * 8192, &mapW, bar, n0 + c * 64, k * TILE_K);
#endif
          if (++slot == VERSIONS) slot = 0, phase ^= 1;
        }
      }
    }
  } else {
    registers_more<232>();
    const u32 consumer = role - 1, warp = (threadIdx.x / 32) & 3, lane = threadIdx.x & 31;
    const u32 stage = base + STAGE_OFFSET + consumer * 8192;
    const bool leader = (threadIdx.x & 127) == 0;
    u32 slot = 0, phase = 0;
    float acc[TILE_N / 2];
#pragma unroll 1
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
      DECODE(t)
#if PENDING == 1
      u32 previous = 0;
#endif
#ifdef ZERO
#pragma unroll
      for (int i = 0; i < TILE_N / 2; i++) acc[i] = 0.0f;
#endif
#if BIAS
      const int column = n0 + 2 * (lane & 3);
#endif
#if BIAS == 2
      u32 held[TILE_N / 8];
#pragma unroll
      for (int j = 0; j < TILE_N / 8; j++) held[j] = column + j * 8 < N ? load_u32(bias + column + j * 8) : 0u;
#endif
#pragma unroll 1
      for (int k = 0; k < steps; k++) {
        const u32 a = base + slot * A_BYTES + consumer * 8192, b = base + B_OFFSET + slot * B_BYTES;
        barrier_wait(full + 8 * slot, phase);
        const u64 da = operand_desc(a, 16, 1024), db = operand_desc(b, 8192, 1024);
        mma_fence();
#pragma unroll
        for (int i = 0; i < TILE_K / 16; i++) MMA(acc, da + i * STEP_A, db + i * STEP_B, STARTED);
        mma_commit();
#if PENDING == 1
        mma_wait<1>();
        if (k > 0 && RELEASES) barrier_arrive(empty + 8 * previous);
        previous = slot;
#else
        mma_wait<0>();
        if (RELEASES) barrier_arrive(empty + 8 * slot);
#endif
        if (++slot == VERSIONS) slot = 0, phase ^= 1;
      }
      mma_wait<0>();
      landed(acc);
#if PENDING == 1
      if (RELEASES) barrier_arrive(empty + 8 * previous);
#endif
#pragma unroll
      for (int c = 0; c < TILE_N / 64; c++) {
        const u32 buffer = stage + (c & 1) * 16384;
        if (leader) bulk_wait_source<1>();
        named_sync(1 + consumer, 128);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          u32 packed[4];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            float* v = acc + c * 32 + (j + h) * 4;
#if BIAS
#if BIAS == 2
            const u32 two = held[c * 8 + j + h];
#else
            const int n = column + c * 64 + (j + h) * 8;
            const u32 two = n < N ? load_u32(bias + n) : 0u;
#endif
            v[0] += low_bf16(two), v[1] += high_bf16(two), v[2] += low_bf16(two), v[3] += high_bf16(two);
#endif
#if ACT
#pragma unroll
            for (int e = 0; e < 4; e++) v[e] = gelu(v[e]);
#endif
            packed[2 * h] = pack_bf16(v[0], v[1]);
            packed[2 * h + 1] = pack_bf16(v[2], v[3]);
          }
          const u32 row = warp * 16 + (lane & 15), chunk = j + (lane >> 4);
          store_matrix_4(buffer + row * 128 + ((chunk ^ (row & 7)) << 4), packed[0], packed[1], packed[2], packed[3]);
        }
        fence_async_proxy();
        named_sync(1 + consumer, 128);
        if (leader) {
          store_box_2d(&mapY, buffer, n0 + c * 64, m0 + consumer * 64);
          bulk_commit();
        }
      }
    }
    if (leader) bulk_wait<0>();
  }
}
