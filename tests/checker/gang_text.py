"""Texts of CPU kernels whose workers run tasks together: sums of rows, a part for each worker."""

from __future__ import annotations

from tests.checker.text_parts import DISJOINT, SUMS, opening

MEET = "      sync gang.sync\n"
LEDGER, HOST = 'numerics "permute %s: sums in parts"\n', "  launch main grid 1 threads 3 shared 64\n"
GANG = f"""{opening("cpu:avx2", SUMS, DISJOINT, HOST, LEDGER)}kernel main {{
  buffer S f32[3] shared align 4 @ 0
  frag x f32[]
  frag p f32[]
  frag q f32[]
  frag a f32[]
  role worker agents 3 threads 1 index w {{
    tasks (t < M) over gangs enters R0(m = t .. t + 1) {{
      p = copy -0.0 ; %s[t] over (n) : 0 <= n, n < 0
      loop j = w .. N step 3 {{
        invariant p ; %s[t] over (n) : 0 <= n, n < j, n < N, n == 3*e0 + w
        x = load X[t, j] ; %x[t, j]
        p = fold add x onto p ; %s[t] over (n) : 0 <= n, n <= j, n < N, n == 3*e0 + w
      }}
      version S ; %s[t] over (n) : 0 <= n, n < N, n == 3*e0 + $0
      store S[w] = p ; %s[t] over (n) : 0 <= n, n < N, n == 3*e0 + w
{MEET}      if w == 0 {{
        a = copy -0.0
        loop i = 0 .. 3 step 1 {{
          invariant a ; %s[t] over (n) : 0 <= n, n < N, n == 3*e0 + e1, 0 <= e1, e1 < i
          q = load S[i] ; %s[t] over (n) : 0 <= n, n < N, n == 3*e0 + i
          a = fold add q onto a ; %s[t] over (n) : 0 <= n, n < N, n == 3*e0 + e1, 0 <= e1, e1 <= i
        }}
        store Y[t] = a ; store 0 [t]
      }}
{MEET}    }}
  }}
}}
"""
