"""Cooperative launches with more than loads and stores of threads: squares go to the workspace, all workgroups meet, and
come back through engines, copies of threads, or to clusters (machine text)."""

from __future__ import annotations

import re

from tests.checker.peer_text import READ

HEAD = """tdm 1
target cuda:{arch}
program {{
  program squares
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    body
      %t: f32[M, N] = full uninitialised
      region R0 parallel (m in M) carry (%t.1: f32[M, N] = %t) -> (%t.2)
        %x: f32[m, N] = load X[m, N]
        %q: f32[m, N] = mul %x, %x
        %t.3: f32[M, N] = insert %t.1[m, N] = %q
        yield %t.3
      region R1 parallel (r in M)
        %s: f32[r, N] = extract %t.2[r, N]
        %y: f32[r, N] = sqrt %s
        store Y[r, N] = %y
}}
guard {{
  disjoint(X, Y)
  injective(Y)
  N % 4 == 0
  1 <= M
  1 <= N
}}
host {{
  buffer W f32[M, N] workspace align 64
{host}}}
kernel main {{
"""
FRAGS = """  frag x f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag q f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag s f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
  frag y f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)
"""
SQUARE = """    version W ; %t.2[$0, $1]
    tasks (a < M) over {over} enters R0(m = a .. a + 1) {{
      loop k = 0 .. (N + 63) // 64 step 1 {{
        x = load X[a, 64 * k + $0] where 64 * k + $0 < N ; %x[a, 64 * k + $0] where 64 * k + $0 < N
        q = mul x, x where 64 * k + $0 < N ; %q[a, 64 * k + $0] where 64 * k + $0 < N
        store W[a, 64 * k + $0] = q where 64 * k + $0 < N ; %t.3[a, 64 * k + $0] where 64 * k + $0 < N
      }}
    }}
"""
ROOT = """        y = sqrt s where 64 * j + $0 < N ; %y[t, 64 * j + $0] where 64 * j + $0 < N
        store Y[t, 64 * j + $0] = y where 64 * j + $0 < N ; store 0 [t, 64 * j + $0]
"""
FENCE = "    sync fence.proxy.async\n"
MEET = "    sync grid.sync\n"


def ring(fence: str = FENCE, meet: str = MEET, other_meet: str = MEET, behind: str = "") -> str:
    """The squares come back through a ring of boxes that another role fills."""
    host = "  map mW of W f32 box (1, 64) swizzle 0 fill zero promotion 256\n  launch main grid max(1, min(M, 2)) threads 96 cooperative shared 1024\n"
    text = HEAD.format(arch="sm_90a", host=host)
    text += "  buffer A f32[64] shared align 128 versions 2 @ 0\n" + FRAGS
    text += "  barrier full count 1 versions 2 tx @ 512\n  barrier empty count 64 versions 2 @ 528\n"
    text += f"""  role producer agents 1 threads 32 counters (p) {{
{other_meet}    sync mbar.init full by elect
    sync mbar.init empty by elect
    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 96)
{behind}    tasks (u < M) over persistent enters R1(r = u .. u + 1) {{
      loop h = 0 .. (N + 63) // 64 step 1 {{
        sync mbar.wait empty{{p}} (phase = (p // 2 + 1) % 2) by elect
        sync mbar.expect full{{p}} (bytes = 256) by elect
        version A fill 0 ; %t.2[u, 64 * h + $0] where 64 * h + $0 < N
        copy tma.load A{{p}}[$1] = W[u, 64 * h + $1] box (1, 64) signal full{{p}} map mW by elect
        advance p
      }}
    }}
  }}
  role taker agents 1 threads 64 counters (c) {{
{SQUARE.format(over="persistent")}{fence}{meet}    sync barrier.sync (id = 0, threads = 96)
    tasks (t < M) over persistent enters R1(r = t .. t + 1) {{
      loop j = 0 .. (N + 63) // 64 step 1 {{
        sync mbar.wait full{{c}} (phase = c // 2 % 2)
        s = load A{{c}}[$0] where 64 * j + $0 < N ; %s[t, 64 * j + $0] where 64 * j + $0 < N
        sync fence.proxy.async
        sync mbar.arrive empty{{c}}
        advance c
{ROOT}      }}
    }}
  }}
}}
"""
    return text


def copies(wait: str = "        sync cpasync.wait (depth = 0)\n", meet: str = MEET, arch: str = "sm_80") -> str:
    """Rows are squared out of copies of threads, and come back by copies of threads."""
    join = "        sync barrier.sync (id = 0, threads = 64)\n"
    host = "  launch main grid max(1, min(M, 2)) threads 64 cooperative shared 1024\n"
    head = HEAD.replace(
        "  disjoint(X, Y)\n", "  disjoint(X, Y)\n  unit(X, 1)\n  pitch(X, 0) % 4 == 0\n  align(X) >= 16\n"
    )
    text = head.format(arch=arch, host=host)
    text += "  buffer A f32[64] shared align 16 @ 0\n  buffer B f32[64] shared align 16 @ 256\n" + FRAGS
    square = SQUARE.format(over="persistent").replace(
        "        x = load X[a, 64 * k + $0] where 64 * k + $0 < N",
        "        version A fill 0 ; %x[a, 64 * k + $1] where 64 * k + $1 < N\n".replace("$1", "$0")
        + "        copy cp.async A[$1] = X[a, 64 * k + $1] box (1, 64)\n        sync cpasync.commit\n"
        + f"{wait}{join}        x = load A[$0] where 64 * k + $0 < N",
    )
    square = square.replace("where 64 * k + $0 < N\n      }\n", f"where 64 * k + $0 < N\n{join}      }}\n")
    text += f"""  role all agents 1 threads 64 {{
{square}{meet}    tasks (t < M) over persistent enters R1(r = t .. t + 1) {{
      loop j = 0 .. (N + 63) // 64 step 1 {{
        version B fill 0 ; %t.2[t, 64 * j + $0] where 64 * j + $0 < N
        copy cp.async B[$1] = W[t, 64 * j + $1] box (1, 64)
        sync cpasync.commit
        sync cpasync.wait (depth = 0)
{join}        s = load B[$0] where 64 * j + $0 < N ; %s[t, 64 * j + $0] where 64 * j + $0 < N
{ROOT}{join}      }}
    }}
  }}
}}
"""
    return text


def clusters(flags: str = "cooperative", meet: str = MEET, begin: str | None = None) -> str:
    """Workgroups of clusters that sum rows together, in two nests between which all clusters meet."""
    start = READ.index("    sync cluster.arrive")
    head, work = READ[:start], READ[start : READ.rindex("  }\n}")]
    tasks = work[work.index("    tasks") :]
    names = {"t": "t2", "i": "i2"}
    again = re.sub(r"\b(t|i)\b", lambda m: names[m.group(1)], tasks)
    again = again.replace("R0(m =", "R1(m2 =").replace("%", "%z_").replace("Y[", "Z[").replace("store 0", "store 1")
    region = head[head.index("      region R0") : head.index("}\nguard")]
    more = re.sub(r"\bm\b", "m2", region.replace("R0", "R1").replace("%", "%z_").replace("store Y", "store Z"))
    head = head.replace(region, region + more).replace(
        "    tensor Y: f32[M] out\n", "    tensor Y: f32[M] out\n    tensor Z: f32[M] out\n"
    )
    head = head.replace("  injective(Y)\n", "  injective(Y)\n  injective(Z)\n  disjoint(X, Z)\n  disjoint(Y, Z)\n")
    head = head.replace("cluster 2", f"cluster 2 {flags}".rstrip())
    head = head.replace(
        'numerics "permute %s: sums in lanes, by workgroups"\n',
        'numerics "permute %s: sums in lanes, by workgroups"\nnumerics "permute %z_s: sums in lanes, by workgroups"\n',
    )
    welcome = "    sync cluster.arrive\n    sync cluster.wait\n" if begin is None else begin
    return head + work + meet + welcome + again + "  }\n}\n"
