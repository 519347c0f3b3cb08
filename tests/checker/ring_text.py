"""A contraction through a ring of four slots: one producer, two consumers, results stored by boxes (machine text)."""

RING = """
tdm 1
target cuda:sm_90a
program {
  program product
    dim M
    dim N
    dim K
    tensor X: bf16[M, K]
    tensor W: bf16[K, N]
    tensor Y: bf16[M, N] out
    body
      region R0 parallel (m in M, n in N)
        %start: f32[m, n] = full 0.0
        region R1 reduce (k in K) carry (%acc: f32[m, n] = %start) -> (%sum)
          %x: bf16[m, k] = load X[m, k]
          %w: bf16[k, n] = load W[k, n]
          %next: f32[m, n] = mma %x, %w, %acc
          yield %next
        %y: bf16[m, n] = cast %sum
        store Y[m, n] = %y
}
guard {
  1 <= K
  unit(X, 1)
  unit(W, 1)
  unit(Y, 1)
  pitch(X, 0) % 8 == 0
  pitch(W, 0) % 8 == 0
  pitch(Y, 0) % 8 == 0
  N % 8 == 0
  align(X) >= 16
  align(W) >= 16
  align(Y) >= 16
  injective(Y)
  disjoint(X, Y)
  disjoint(W, Y)
}
host {
  let MT = (M + 127) // 128
  let NT = (N + 127) // 128
  map mX of X bf16 box (128, 64) swizzle 128 fill zero promotion 256
  map mW of W bf16 box (64, 64) swizzle 128 fill zero promotion 256
  map mY of Y bf16 box (64, 64) swizzle 128 fill zero promotion 256
  launch main grid max(1, min(132, MT * NT)) threads 384 shared 163904
}
kernel main {
  buffer A bf16[128, 64] shared align 1024 versions 4 swizzle 128 @ 0
  buffer B bf16[2, 64, 64] shared align 1024 versions 4 swizzle 128 @ 65536
  buffer S bf16[2, 64, 64] shared align 1024 versions 2 swizzle 128 @ 131072
  frag acc f32[64, 128] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 16 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)
  frag y bf16[64, 64] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 8 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)
  frag v f32[64, 64] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 8 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)
  barrier full count 1 versions 4 tx @ 163840
  barrier empty count 8 versions 4 @ 163872
  role producer agents 1 threads 128 registers 40 counters (p) {
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 384)
    sync setmaxnreg (registers = 40)
    tasks (tm < MT, tn < NT) over persistent raster (group, 16) enters R0(m = 128 * tm .. min(128 * tm + 128, M), n = 128 * tn .. min(128 * tn + 128, N)) {
      loop k0 = 0 .. K step 64 enters R1(k = k0 .. min(k0 + 64, K)) {
        sync mbar.wait empty{p} (phase = (p // 4 + 1) % 2) by elect
        sync mbar.expect full{p} (bytes = 32768) by elect
        version A fill 0 ; %x[128 * tm + $0, k0 + $1] where 128 * tm + $0 < M, k0 + $1 < K
        version B fill 0 ; %w[k0 + $1, 128 * tn + 64 * $0 + $2] where k0 + $1 < K, 128 * tn + 64 * $0 + $2 < N
        copy tma.load A{p}[$0, $1] = X[128 * tm + $0, k0 + $1] box (128, 64) signal full{p} map mX by elect
        loop c0 = 0 .. 2 step 1 unroll 2 {
          copy tma.load B{p}[c0, $0, $1] = W[k0 + $0, 128 * tn + 64 * c0 + $1] box (64, 64) signal full{p} map mW by elect
        }
        advance p
      }
    }
  }
  role consumer agents 2 threads 128 index w registers 232 counters (c, e) {
    sync barrier.sync (id = 0, threads = 384)
    sync setmaxnreg (registers = 232)
    tasks (tm < MT, tn < NT) over persistent raster (group, 16) enters R0(m = 128 * tm .. min(128 * tm + 128, M), n = 128 * tn .. min(128 * tn + 128, N)) {
      acc = copy 0.0 ; %start[128 * tm + 64 * w + $0, 128 * tn + $1]
      loop k0 = 0 .. K step 64 enters R1(k = k0 .. min(k0 + 64, K)) {
        invariant acc ; %acc[128 * tm + 64 * w + $0, 128 * tn + $1] where 128 * tm + 64 * w + $0 < M, 128 * tn + $1 < N
        sync mbar.wait full{c} (phase = (c // 4) % 2)
        sync wgmma.fence
        loop kk = 0 .. 4 step 1 unroll 4 {
          invariant acc ; %next[128 * tm + 64 * w + $0, 128 * tn + $1] where 128 * tm + 64 * w + $0 < M, 128 * tn + $1 < N over (k) : k0 <= k, k < k0 + 16 * kk, k < K
          acc = mma wgmma.m64n128k16.bf16 A{c}[64 * w + $0, 16 * kk + $2], B{c}[$1 // 64, 16 * kk + $2, $1 - 64 * ($1 // 64)] onto acc contract (16) ; %next[128 * tm + 64 * w + $0, 128 * tn + $1] where 128 * tm + 64 * w + $0 < M, 128 * tn + $1 < N over (k) : k0 <= k, k < k0 + 16 * kk + 16, k < K
        }
        sync wgmma.commit
        sync wgmma.wait (depth = 1)
        if 1 <= k0 scope workgroup {
          sync mbar.arrive empty{c - 1} by warp
        }
        advance c
      }
      sync wgmma.wait (depth = 0)
      sync mbar.arrive empty{c - 1} by warp
      loop g = 0 .. 2 step 1 unroll 2 {
        v = copy acc[$0, 64 * g + $1] ; %sum[128 * tm + 64 * w + $0, 128 * tn + 64 * g + $1] where 128 * tm + 64 * w + $0 < M, 128 * tn + 64 * g + $1 < N
        y = cast v ; %y[128 * tm + 64 * w + $0, 128 * tn + 64 * g + $1] where 128 * tm + 64 * w + $0 < M, 128 * tn + 64 * g + $1 < N
        sync bulk.wait (depth = 1, read = 1) by elect
        sync barrier.sync (id = w + 1, threads = 128)
        version S ; %y[128 * tm + 64 * $0 + $1, 128 * tn + 64 * g + $2] where 128 * tm + 64 * $0 + $1 < M, 128 * tn + 64 * g + $2 < N
        store S{e}[w, $0, $1] = y
        sync fence.proxy.async
        sync barrier.sync (id = w + 1, threads = 128)
        copy tma.store Y[128 * tm + 64 * w + $0, 128 * tn + 64 * g + $1] = S{e}[w, $0, $1] box (64, 64) map mY by elect ; store 0 [128 * tm + 64 * w + $0, 128 * tn + 64 * g + $1]
        sync bulk.commit by elect
        advance e
      }
    }
    sync bulk.wait (depth = 0) by elect
  }
}
"""
