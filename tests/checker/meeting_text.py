"""A recurrence over vectors in one cooperative launch, whose workgroups meet in its loop (machine text)."""

from __future__ import annotations

TEXT = """tdm 1
target cuda:{arch}
program {{
  program smooth
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[N] out
    body
      %u: f32[N] = full 0.0
      region R0 serial (m in M each) carry (%u.1: f32[N] = %u) -> (%u.2)
        %v: f32[N] = full uninitialised
        region R1 parallel (n in N) carry (%v.1: f32[N] = %v) -> (%v.2)
          %0: f32[n] = extract %u.1[n]
          %1: f32[n] = load X[m, n]
          %2: f32[n] = sub %0, %1
          %3: f32[n] = abs %2
          %4: f32[] = reduce max %u.1 over N
          %5: f32[n] = add %3, %4
          %v.3: f32[N] = insert %v.1[n] = %5
          yield %v.3
        yield %v.2
      store Y[N] = %u.2
}}
guard {{
  injective(Y)
  disjoint(X, Y)
}}
host {{
  buffer b_u f32[N] workspace align 64
  buffer b_v f32[N] workspace align 64
  launch main grid 2 threads 32 cooperative
}}
kernel main {{
  frag u f32[]
  frag most f32[]
  frag u_1 f32[]
  frag u_2 f32[]
  frag x f32[]
  frag d f32[]
  frag a f32[]
  frag s f32[]
  frag v f32[]
  frag u_3 f32[]
  role worker agents 1 threads 32 {{
    version b_u ; %u[$0]
    tasks (n0 < N) over threads {{
      u = copy 0.0 ; %u[n0]
      store b_u[n0] = u ; %u[n0]
    }}
{first}    loop i = 0 .. M step 1 enters R0(m = i) {{
      invariant b_u ; %u.1[$0]
      version b_v ; %v.2[$0]
      tasks (n1 < N) over threads enters R1(n = n1 .. n1 + 1) {{
        most = copy -inf ; %4[] over (c0) : 0 <= c0, c0 < N, c0 < 0
        loop n2 = 0 .. N step 1 {{
          invariant most ; %4[] over (c0) : 0 <= c0, c0 < N, c0 < n2
          u_1 = load b_u[n2] ; %u.1[n2]
          most = fold max u_1 onto most ; %4[] over (c0) : 0 <= c0, c0 < N, c0 <= n2
        }}
        u_2 = load b_u[n1] ; %0[n1]
        x = load X[i, n1] ; %1[n1]
        d = sub u_2, x ; %2[n1]
        a = abs d ; %3[n1]
        s = add a, most ; %5[n1]
        store b_v[n1] = s ; %v.3[n1]
      }}
{middle}      version b_u ; %v.2[$0]
      tasks (n3 < N) over threads {{
        v = load b_v[n3] ; %v.2[n3]
        store b_u[n3] = v ; %v.2[n3]
      }}
{last}    }}
    tasks (n4 < N) over threads {{
      u_3 = load b_u[n4] ; %u.2[n4]
      store Y[n4] = u_3 ; store 0 [n4]
    }}
  }}
}}
"""
MEET = "sync grid.sync\n"


def text(first: str = MEET, middle: str = MEET, last: str = MEET, arch: str = "sm_90a") -> str:
    """With these lines between nests: before the loop, within it, at its end."""
    parts = {"first": ("    ", first), "middle": ("      ", middle), "last": ("      ", last)}
    made = {k: "".join(f"{pad}{line}\n" for line in v.splitlines()) for k, (pad, v) in parts.items()}
    return TEXT.format(arch=arch, **made)


STORES = """tdm 1
target cuda:sm_90a
program {
  program last
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[N] out
    body
      region R0 serial (m in M each)
        region R1 parallel (n in N)
          %x: f32[n] = load X[m, n]
          store Y[n] = %x
}
guard {
  injective(Y)
  disjoint(X, Y)
}
host {
  launch main grid 2 threads 32 cooperative
}
kernel main {
  frag x f32[]
  role worker agents 1 threads 32 {
    loop i = 0 .. M step 1 enters R0(m = i) {
      tasks (n < N) over threads enters R1(n = n .. n + 1) {
        x = load X[i, n] ; %x[n]
        store Y[n] = x ; store 0 [n]
      }
      sync grid.sync
    }
  }
}
"""
"""Stores of all iterations into one vector: the last one remains."""


WAIT = "        sync cpasync.wait (depth = 0)\n"
JOIN = "        sync barrier.sync (id = 0, threads = 32)\n"


def copied(wait: str = WAIT, last: str = MEET) -> str:
    """The recurrence whose vector comes back through copies of threads."""
    whole = text(last=last).replace("over threads", "over persistent")
    old = whole[whole.index("      tasks (n3 < N)") : whole.index("        store b_u[n3] = v ; %v.2[n3]\n      }\n")]
    new = f"""      tasks (n3 < (N + 63) // 64) over persistent {{
        version A fill 0.0 ; %v.2[64*n3 + $0] where 64*n3 + $0 < N
        copy cp.async A[$0] = b_v[64*n3 + $0] box (64)
        sync cpasync.commit
{wait}{JOIN}        w = load A[$0] where 64*n3 + $0 < N ; %v.2[64*n3 + $0] where 64*n3 + $0 < N
{JOIN}"""
    whole = whole.replace(old, new)
    whole = whole.replace(
        "store b_u[n3] = v ; %v.2[n3]",
        "store b_u[64*n3 + $0] = w where 64*n3 + $0 < N ; %v.2[64*n3 + $0] where 64*n3 + $0 < N",
    )
    whole = whole.replace(
        "  frag u f32[]\n",
        "  buffer A f32[64] shared align 16 @ 0\n  frag w f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)\n  frag u f32[]\n",
        1,
    )
    whole = whole.replace("  frag v f32[]\n", "").replace("cooperative\n", "cooperative shared 256\n")
    return whole.replace("  injective(Y)\n", "  injective(Y)\n  N % 4 == 0\n")
