"""Sums of products over steps, by asynchronous products of a cooperative launch whose workgroups meet in its loop."""

from __future__ import annotations

ACC = "dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 8 axis 1 stride 8, lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)"
ROW = "dist (lane 32 axis 1 stride 1, slot 2 axis 1 stride 32, warp 4 axis 0 stride 1, slot 16 axis 0 stride 4)"
MEET = "      sync grid.sync\n"
WAIT = "        sync wgmma.wait (depth = 0)\n"
FENCE = "        sync fence.proxy.async\n        sync barrier.sync (id = 0, threads = 128)\n"
HEAD = f"""tdm 1
target cuda:sm_90a
program {{
  program steps
    dim M
    dim R
    dim N
    dim K = 64 static
    tensor X: bf16[M, R, K]
    tensor W: bf16[M, K, N]
    tensor Y: f32[R, N] out
    body
      %z: f32[R, N] = full 0.0
      region R0 serial (m in M each) carry (%a: f32[R, N] = %z) -> (%b)
        %x: bf16[R, K] = load X[m, R, K]
        %w: bf16[K, N] = load W[m, K, N]
        %p: f32[R, N] = mma %x, %w, %a
        yield %p
      store Y[R, N] = %b
}}
guard {{
  injective(Y)
  disjoint(X, Y)
  disjoint(W, Y)
}}
host {{
  let RT = (R + 63) // 64
  let NT = (N + 63) // 64
  buffer b_a f32[R, N] workspace align 64
  buffer b_b f32[R, N] workspace align 64
  launch main grid 2 threads 128 cooperative shared 16384
}}
kernel main {{
  buffer A bf16[64, 64] shared align 1024 swizzle 128 @ 0
  buffer B bf16[64, 64] shared align 1024 swizzle 128 @ 8192
  frag z f32[64, 64] {ACC}
  frag v f32[64, 64] {ACC}
  frag y f32[64, 64] {ACC}
  frag acc f32[64, 64] {ACC}
  frag xr bf16[64, 64] {ROW}
  frag wr bf16[64, 64] {ROW}
"""


def at(n: int) -> tuple[str, str]:
    """Coordinates in a tile, and where they are inside."""
    return f"64*r{n} + $0, 64*n{n} + $1", f"64*r{n} + $0 < R, 64*n{n} + $1 < N"


def text(wait: str = WAIT, fence: str = FENCE, middle: str = MEET, last: str = MEET, first: str = MEET) -> str:
    """The program."""
    (c0, w0), (c1, w1), (c2, w2), (c3, w3) = map(at, range(4))
    return f"""{HEAD}  role worker agents 1 threads 128 {{
    version b_a ; %z[$0, $1]
    tasks (r0 < RT, n0 < NT) over persistent {{
      z = copy 0.0 ; %z[{c0}] where {w0}
      store b_a[{c0}] = z where {w0} ; %z[{c0}] where {w0}
    }}
{first}    loop i = 0 .. M step 1 enters R0(m = i) {{
      invariant b_a ; %a[$0, $1]
      version b_b ; %p[$0, $1]
      tasks (r1 < RT, n1 < NT) over persistent {{
        xr = load X[i, 64*r1 + $0, $1] where 64*r1 + $0 < R fill 0.0 ; %x[64*r1 + $0, $1] where 64*r1 + $0 < R
        wr = load W[i, $0, 64*n1 + $1] where 64*n1 + $1 < N fill 0.0 ; %w[$0, 64*n1 + $1] where 64*n1 + $1 < N
        sync barrier.sync (id = 0, threads = 128)
        version A fill 0.0 ; %x[64*r1 + $0, $1] where 64*r1 + $0 < R
        store A[$0, $1] = xr
        version B fill 0.0 ; %w[$0, 64*n1 + $1] where 64*n1 + $1 < N
        store B[$0, $1] = wr
{fence}        acc = load b_a[{c1}] where {w1} fill 0.0 ; %a[{c1}] where {w1}
        sync wgmma.fence
        loop kk = 0 .. 4 step 1 unroll 4 {{
          invariant acc ; %p[{c1}] where {w1} over (k) : 0 <= k, k < 16*kk
          acc = mma wgmma.m64n64k16.bf16 A[$0, 16*kk + $2], B[16*kk + $2, $1] onto acc contract (16) ; %p[{c1}] where {w1} over (k) : 0 <= k, k < 16*kk + 16
        }}
        sync wgmma.commit
{wait}        store b_b[{c1}] = acc where {w1} ; %p[{c1}] where {w1}
      }}
{middle}      version b_a ; %p[$0, $1]
      tasks (r2 < RT, n2 < NT) over persistent {{
        v = load b_b[{c2}] where {w2} ; %p[{c2}] where {w2}
        store b_a[{c2}] = v where {w2} ; %p[{c2}] where {w2}
      }}
{last}    }}
    tasks (r3 < RT, n3 < NT) over persistent {{
      y = load b_a[{c3}] where {w3} ; %b[{c3}] where {w3}
      store Y[{c3}] = y where {w3} ; store 0 [{c3}]
    }}
  }}
}}
"""
