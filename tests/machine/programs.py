"""Machine programs written by hand, as text, for tests of rooms that judge, run, print or emit them."""

from __future__ import annotations

from textwrap import indent

from tests.realise.texts import SOFTMAX

from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine

ROWS = "program {\n" + indent(SOFTMAX.strip("\n"), "  ") + "\n}\n"

ROWS_SCALAR = f"""\
tdm 1
target cpu:avx2
{ROWS}guard {{
  1 <= M
  1 <= N
  disjoint(X, Y)
}}
host {{
  launch main grid M threads 1
}}
kernel main {{
  frag x f32[]
  frag top f32[]
  frag d f32[]
  frag e f32[]
  frag s f32[]
  frag y f32[]
  role worker agents 1 threads 1 {{
    tasks (m < M) over workers enters R0(m = m .. m + 1) {{
      top = copy -inf
      loop i = 0 .. N step 1 {{
        invariant top ; %top[m] over (n) : 0 <= n, n < i
        x = load X[m, i] ; %x[m, i]
        top = fold max x onto top ; %top[m] over (n) : 0 <= n, n <= i
      }}
      s = copy -0.0
      loop j = 0 .. N step 1 {{
        invariant s ; %s[m] over (n) : 0 <= n, n < j
        x = load X[m, j] ; %x[m, j]
        d = sub x, top ; %d[m, j]
        e = exp d ; %e[m, j]
        s = fold add e onto s ; %s[m] over (n) : 0 <= n, n <= j
      }}
      loop k = 0 .. N step 1 {{
        x = load X[m, k] ; %x[m, k]
        d = sub x, top ; %d[m, k]
        e = exp d ; %e[m, k]
        y = div e, s ; %y[m, k]
        store Y[m, k] = y ; store 0 [m, k]
      }}
    }}
  }}
}}
"""

ROWS_VECTOR = f"""\
tdm 1
target cpu:avx512
numerics "permute %s: a sum of 16 lanes"
{ROWS}guard {{
  1 <= M
  1 <= N
  disjoint(X, Y)
  unit(X, 1)
}}
host {{
  launch main grid ((M + 3) // 4) threads 1
}}
kernel main {{
  buffer row f32[N] local align 64
  frag x f32[16]
  frag t f32[16]
  frag top f32[]
  frag d f32[16]
  frag e f32[16]
  frag p f32[16]
  frag s f32[]
  frag y f32[16]
  role worker agents 1 threads 1 {{
    tasks (t0 < (M + 3) // 4) over workers {{
      loop m = 4*t0 .. min(4*t0 + 4, M) step 1 enters R0(m = m .. m + 1) {{
        t = copy -inf
        loop i = 0 .. N step 16 {{
          invariant t ; %top[m] over (n) : 0 <= n, n < i, n == 16*e0 + $0
          x = load X[m, i + $0] where i + $0 < N fill -inf ; %x[m, i + $0] where i + $0 < N
          t = fold max x onto t ; %top[m] over (n) : 0 <= n, n < i + 16, n == 16*e0 + $0
        }}
        top = fold max t axes (0) ; %top[m]
        p = copy -0.0
        version row ; %e[m, $0]
        loop j = 0 .. N step 16 {{
          invariant p ; %s[m] over (n) : 0 <= n, n < j, n == 16*e0 + $0
          x = load X[m, j + $0] where j + $0 < N ; %x[m, j + $0] where j + $0 < N
          d = sub x, top where j + $0 < N ; %d[m, j + $0] where j + $0 < N
          e = exp d where j + $0 < N fill -0.0 ; %e[m, j + $0] where j + $0 < N
          store row[j + $0] = e where j + $0 < N
          p = fold add e onto p ; %s[m] over (n) : 0 <= n, n < j + 16, n == 16*e0 + $0
        }}
        s = fold add p axes (0) ; %s[m]
        loop k = 0 .. N step 16 {{
          e = load row[k + $0] where k + $0 < N ; %e[m, k + $0] where k + $0 < N
          y = div e, s ; %y[m, k + $0] where k + $0 < N
          store Y[m, k + $0] = y where k + $0 < N ; store 0 [m, k + $0]
        }}
      }}
    }}
  }}
}}
"""

PRODUCT = """\
program {
  program product
    dim M
    dim N
    dim K
    tensor X: DTYPE[M, K]
    tensor W: DTYPE[K, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M, n in N)
        %z: f32[m, n] = full 0.0
        region R1 reduce (k in K) carry (%acc: f32[m, n] = %z) -> (%r)
          %a: DTYPE[m, k] = load X[m, k]
          %b: DTYPE[k, n] = load W[k, n]
          %c: f32[m, n] = mma %a, %b, %acc
          yield %c
        store Y[m, n] = %r
}
"""

PACKED = f"""\
tdm 1
target cpu:avx512
{PRODUCT.replace("DTYPE", "f32")}guard {{
  1 <= M
  1 <= N
  disjoint(X, Y)
  disjoint(W, Y)
}}
host {{
  let MT = (M + 7) // 8
  let NT = (N + 15) // 16
  buffer P f32[NT, K, 16] workspace align 64
  launch main grid MT threads 1
}}
kernel main {{
  buffer A f32[8, 32] local align 64
  frag w f32[16]
  frag a f32[]
  frag b f32[16]
  frag acc f32[8, 16]
  role worker agents 1 threads 1 {{
    version P fill 0.0 ; %b[$1, 16*$0 + $2] where 16*$0 + $2 < N
    tasks (jp < NT) over workers {{
      loop kp = 0 .. K step 1 {{
        w = load W[kp, 16*jp + $0] where 16*jp + $0 < N fill 0.0 ; %b[kp, 16*jp + $0] where 16*jp + $0 < N
        store P[jp, kp, $0] = w
      }}
    }}
    tasks (tm < MT, tn < NT) over workers enters R0(m = 8*tm .. min(8*tm + 8, M), n = 16*tn .. min(16*tn + 16, N)) {{
      acc = copy 0.0 ; %z[8*tm + $0, 16*tn + $1]
      loop k0 = 0 .. K step 32 enters R1(k = k0 .. min(k0 + 32, K)) {{
        invariant acc ; %acc[8*tm + $0, 16*tn + $1] where 8*tm + $0 < M, 16*tn + $1 < N
        version A fill 0.0 ; %a[8*tm + $0, k0 + $1] where 8*tm + $0 < M, k0 + $1 < K
        loop i = 0 .. 8 step 1 {{
          loop ka = k0 .. min(k0 + 32, K) step 1 {{
            a = load X[8*tm + i, ka] where 8*tm + i < M fill 0.0 ; %a[8*tm + i, ka] where 8*tm + i < M
            store A[i, ka - k0] = a
          }}
        }}
        loop kk = k0 .. min(k0 + 32, K) step 1 {{
          b = load P[tn, kk, $0] ; %b[kk, 16*tn + $0] where 16*tn + $0 < N
          acc = mma fma A[$0, kk - k0], b[$1] onto acc ; %c[8*tm + $0, 16*tn + $1] over (k) : k0 <= k, k <= kk
        }}
      }}
      store Y[8*tm + $0, 16*tn + $1] = acc where 8*tm + $0 < M, 16*tn + $1 < N ; store 0 [8*tm + $0, 16*tn + $1]
    }}
  }}
}}
"""

_DIST = "slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 2 axis 1 stride 8, lane 4 axis 1 stride 2"
_ENTER = "R0(m = 128*tm + 64*c .. min(128*tm + 64*c + 64, M), n = 16*tn .. min(16*tn + 16, N))"
_SLOT = "128*tm + 64*c + $0, 16*tn + $1"

RING = f"""\
tdm 1
target cuda:sm_90a
{PRODUCT.replace("DTYPE", "bf16")}guard {{
  1 <= M
  1 <= N
  1 <= K
  align(X) >= 16
  align(W) >= 16
  align(Y) >= 16
  unit(X, 1)
  unit(W, 1)
  unit(Y, 1)
  pitch(X, 0) % 8 == 0
  pitch(W, 0) % 8 == 0
  pitch(Y, 0) % 4 == 0
  injective(Y)
  disjoint(X, Y)
  disjoint(W, Y)
}}
host {{
  let MT = (M + 127) // 128
  let NT = (N + 15) // 16
  map mX of X bf16 box (128, 32) swizzle 64 fill zero promotion 256
  map mW of W bf16 box (32, 16) swizzle 32 fill zero promotion 256
  map mY of Y f32 box (64, 16) swizzle 0 fill zero promotion 256
  launch main grid min(2, MT*NT) threads 384 shared 27680
}}
kernel main {{
  buffer A bf16[128, 32] shared align 1024 versions 2 swizzle 64 @ 0
  buffer B bf16[32, 16] shared align 1024 versions 2 swizzle 32 @ 16384
  buffer S f32[2, 64, 16] shared align 1024 @ 18432
  frag acc f32[64, 16] dist ({_DIST}, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)
  barrier full count 1 versions 2 tx @ 26624
  barrier empty count 8 versions 2 @ 26640
  role producer agents 1 threads 128 registers 40 counters (n) {{
    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 384)
    sync setmaxnreg (registers = 40)
    tasks (tm < MT, tn < NT) over persistent raster (group, 2) {{
      loop k0 = 0 .. K step 32 {{
        sync mbar.wait empty{{n}} (phase = (n // 2 + 1) % 2) by elect
        sync mbar.expect full{{n}} (bytes = 9216) by elect
        version A fill 0.0 ; %a[128*tm + $0, k0 + $1] where 128*tm + $0 < M, k0 + $1 < K
        copy tma.load A{{n}}[$0, $1] = X[128*tm + $0, k0 + $1] box (128, 32) signal full{{n}} map mX by elect
        version B fill 0.0 ; %b[k0 + $0, 16*tn + $1] where k0 + $0 < K, 16*tn + $1 < N
        copy tma.load B{{n}}[$0, $1] = W[k0 + $0, 16*tn + $1] box (32, 16) signal full{{n}} map mW by elect
        advance n
      }}
    }}
  }}
  role consumer agents 2 threads 128 index c registers 232 counters (q) {{
    sync barrier.sync (id = 0, threads = 384)
    sync setmaxnreg (registers = 232)
    tasks (tm < MT, tn < NT) over persistent raster (group, 2) enters {_ENTER} {{
      acc = copy 0.0 ; %z[{_SLOT}]
      loop k0 = 0 .. K step 32 enters R1(k = k0 .. min(k0 + 32, K)) {{
        invariant acc ; %acc[{_SLOT}] where 128*tm + 64*c + $0 < M, 16*tn + $1 < N
        sync mbar.wait full{{q}} (phase = q // 2 % 2)
        sync wgmma.fence
        loop kk = 0 .. 32 step 16 unroll 2 {{
          acc = mma wgmma.m64n16k16 A{{q}}[64*c + $0, kk + $2], B{{q}}[kk + $2, $1] onto acc contract (16) ; \
%c[{_SLOT}] over (k) : k0 <= k, k < k0 + kk + 16, k < K
        }}
        sync wgmma.commit
        sync wgmma.wait (depth = 0)
        sync mbar.arrive empty{{q}} by warp
        advance q
      }}
      sync bulk.wait (depth = 0, read = 1) by elect
      sync barrier.sync (id = c + 1, threads = 128)
      version S ; %r[128*tm + 64*$0 + $1, 16*tn + $2]
      store S[c, $0, $1] = acc
      sync fence.proxy.async
      sync barrier.sync (id = c + 1, threads = 128)
      copy tma.store Y[128*tm + 64*c + $0, 16*tn + $1] = S[c, $0, $1] box (64, 16) map mY by elect ; store 0 [{_SLOT}]
      sync bulk.commit by elect
    }}
    sync bulk.wait (depth = 0, read = 1) by elect
  }}
}}
"""

TEXTS = {"rows_scalar": ROWS_SCALAR, "rows_vector": ROWS_VECTOR, "packed": PACKED, "ring": RING}


def rows_scalar() -> MachineProgram:
    """Softmax of rows, one element at a time."""
    return parse_machine(ROWS_SCALAR)


def rows_vector() -> MachineProgram:
    """Softmax of rows, 16 lanes, exponentials kept in a local row."""
    return parse_machine(ROWS_VECTOR)


def packed() -> MachineProgram:
    """A contraction with one operand packed in the workspace, the other in a local block."""
    return parse_machine(PACKED)


def ring() -> MachineProgram:
    """A contraction by a producer, two consumers, a ring of copied slots and a staged store."""
    return parse_machine(RING)


def edited(text: str, old: str, new: str, count: int = 1) -> MachineProgram:
    """The program of the text with its `count` occurrences of `old` replaced."""
    assert text.count(old) == count, f"{text.count(old)} occurrences of {old!r}"
    return parse_machine(text.replace(old, new))
