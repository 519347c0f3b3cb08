"""Texts of clusters whose threads read or write the shared memory of other workgroups."""

from __future__ import annotations

from tests.checker.text_parts import DISJOINT, SUMS, opening

BEGIN = "    sync cluster.arrive\n    sync cluster.wait\n"
MEET = "      sync cluster.arrive\n      sync cluster.wait\n"


def sums(host: str, guard: str = "  N <= 64\n  unit(X, 1)\n") -> str:
    """Sums by workgroups of clusters, up to the kernels."""
    ledger = 'numerics "permute %s: sums in lanes, by workgroups"\n'
    return opening("cuda:sm_90a", SUMS, guard + DISJOINT, host, ledger)


def role(declared: str, task: str, body: list[str], before: str = "") -> str:
    """A role and what it does in a task; the cluster meets in front of them and behind them."""
    tasks = f"    tasks ({task} < M) over clusters enters R0(m = {task} .. {task} + 1) {{\n{''.join(body)}    }}\n"
    return f"  role {declared} {{\n{before}{BEGIN}{tasks}{BEGIN}  }}\n"


LAUNCH = "  launch main grid 2 * max(1, min(M, 2)) threads 64 cluster 2 shared {}\n"
HEAD = f"""{sums(LAUNCH.format(64))}kernel main {{
  buffer S f32[2] shared align 16 @ 0
  frag x f32[32] dist (lane 32 axis 0 stride 1, warp 2 axis - stride 0)
  frag p f32[]
  frag a f32[]
  frag q f32[]
  role all agents 1 threads 64 {{
{BEGIN}    tasks (t < M) over clusters enters R0(m = t .. t + 1) {{
"""
MINE = "0 <= n, n < N, 32*{0} <= n, n < 32*{0} + 32"
PART = f"""      x = load X[t, 32*cta.rank + $0] where 32*cta.rank + $0 < N fill -0.0 ; %x[t, 32*cta.rank + $0] where 32*cta.rank + $0 < N
      p = fold add x axes (0) ; %s[t] over (n) : {MINE.format("cta.rank")}
"""
FOLD = """      a = copy -0.0
      loop i = 0 .. 2 step 1 {
        invariant a ; %s[t] over (n) : 0 <= n, n < N, n < 32*i
        q = load SLOT ; %s[t] over (n) : 0 <= n, n < N, 32*i <= n, n < 32*i + 32
        a = fold add q onto a ; %s[t] over (n) : 0 <= n, n < N, n < 32*i + 32
      }
      if cta.rank == 0 scope workgroup {
        store Y[t] = a by elect ; store 0 [t]
      }
"""
TAIL = f"    }}\n{BEGIN}  }}\n}}\n"
NEAR = f"      version S ; %s[t] over (n) : {MINE.format('cta.rank')}\n      store S[0] = p by elect\n"
FAR = f"      version S ; %s[t] over (n) : {MINE.format('$0')}\n      store S@(0)[cta.rank] = p by elect\n      store S@(1)[cta.rank] = p by elect\n"
ALL, OWN = FOLD.replace("SLOT", "S@(i)[0]"), FOLD.replace("SLOT", "S[i]")
READ = HEAD + PART + NEAR + MEET + ALL + MEET + TAIL
"""Each workgroup leaves its part in its own memory, all read all parts."""
WRITE = HEAD + PART + FAR + MEET + OWN + MEET + TAIL
"""Each workgroup leaves its part in the memory of both, all read their own."""
