"""The shapes of the grammar in `random_machines` that copy by threads (`cp.async`): rings whose slots are indices.

Blocks of rows come through a ring of slots, some blocks ahead. At each place where such kernels go wrong the right line
or another is drawn: how far ahead copies run, how many groups a wait leaves, which meetings there are and of whom, what
the prologue copies, where a loop is peeled, and what is waited for before the next task uses the slots again.
"""

from __future__ import annotations

from typing import Any

AT = "4 * t + $0 < M, 32 * j + $1 < N"


def copies_text(draw: Any) -> tuple[str, str, tuple[dict[str, int], ...]]:
    """Kernel and host part of a drawn ring, and the extents to try it at."""
    slots = draw.one(2, 3, 3, 4)
    twice = draw.flip(0.25)  # a second meeting behind the reads lets copies run one slot further
    most = slots if twice else slots - 1
    ahead = draw.one(*range(1, most + 1)) if draw.flip(0.3) else most
    ahead = int(draw.pick(str(ahead), str(most + 1)))
    meet = "        sync barrier.sync (id = 0, threads = 64)\n"
    some = "        sync barrier.sync (id = 1, threads = 32)\n"
    depth = int(draw.pick(str(ahead - 1), str(ahead), "0"))
    peeled, guarded, parted = draw.flip(0.35), draw.flip(0.4), draw.flip(0.25)
    late = twice or draw.flip(0.3)  # copies stand behind the reads
    block = "4 * t + $1 < M, 32 * {0} + $2 < N"
    tile = f"(j + ($0 - j) % {slots})"
    inside = block.format(tile)
    within = f"($0 - j) % {slots} < {ahead}" + (f", {tile} < NT" if guarded else "")
    holds = f"        invariant A fill 0 within {within} ; %x[4 * t + $1, 32 * {tile} + $2] where {inside}\n"
    following = f"(j + {ahead})"
    version = f"        version A fill 0 ; %x[4 * t + $1, 32 * {following} + $2] where {block.format(following)}\n"
    slot = draw.pick(f"{following} % {slots}", f"({following} + 1) % {slots}", f"j % {slots}")
    copy = f"        copy cp.async A[{slot}, $0, $1] = X[4 * t + $0, 32 * {following} + $1] box (4, 32)\n"
    if parted:  # as two copies of half the rows
        half = copy.replace("box (4, 32)", "box (2, 32)")
        copy = half + half.replace(", $0, $1] =", ", $0 + 2, $1] =").replace("4 * t + $0", "4 * t + 2 + $0")
    if guarded:
        copy = f"        if {following} < NT scope workgroup {{\n  {copy.rstrip()}\n        }}\n".replace(
            "\n        copy", "\n          copy"
        )
    commit = draw.pick("        sync cpasync.commit\n", "")
    issue = version + copy + commit
    wait = draw.pick(f"        sync cpasync.wait (depth = {depth})\n", "")
    join = draw.pick(meet, "", some)
    use = f"        x = load A[{draw.pick(f'j % {slots}', f'(j + 1) % {slots}')}, $0, $1] ; %x[4 * t + $0, 32 * j + $1] where {AT}\n"
    rest = f"        y = abs x where {AT} ; %y[4 * t + $0, 32 * j + $1] where {AT}\n        store Y[4 * t + $0, 32 * j + $1] = y where {AT} ; store 0 [4 * t + $0, 32 * j + $1]\n"
    order = draw.pick("wait join", "join wait") if draw.flip(0.5) else "wait join"
    first = "".join({"wait": wait, "join": join}[w] for w in order.split())
    back = draw.pick(meet, "") if twice else ""
    body = first + (use + back + issue + rest if late else issue + use + rest + back)
    fill = f"%x[4 * t + $1, 32 * s + $2] where {block.format('s')}"
    start = f"""      loop s = 0 .. {draw.pick(str(ahead), str(max(0, ahead - 1)))} step 1 {{
        invariant A fill 0 within $0 < s ; %x[4 * t + $1, 32 * $0 + $2] where {block.format("$0")}
        version A fill 0 ; {fill}
        copy cp.async A[s, $0, $1] = X[4 * t + $0, 32 * s + $1] box (4, 32)
        sync cpasync.commit
      }}
"""
    if peeled:
        main, tail = f"max(NT - {ahead}, 0)", "NT"
        last = holds.replace("j", "i").replace(f"< {ahead} ;", f"< {ahead}, {tile.replace('j', 'i')} < NT ;")
        if not guarded:
            last = f"        invariant A fill 0 within ($0 - i) % {slots} < {ahead}, (i + ($0 - i) % {slots}) < NT ; %x[4 * t + $1, 32 * {tile.replace('j', 'i')} + $2] where {inside.replace('j', 'i')}\n"
        drained = draw.pick(
            "        sync cpasync.wait (depth = 0)\n", "", f"        sync cpasync.wait (depth = {max(1, ahead - 1)})\n"
        )
        spare = draw.pick(meet, "", some)
        second = f"      loop i = {main} .. {tail} step 1 {{\n{last}{drained}{spare}{(use + rest).replace('j', 'i')}      }}\n"
    else:
        main, second = "NT", ""
    free = draw.pick("      sync cpasync.wait (depth = 0)\n", "")
    over, grid = ("persistent", f"max(1, min(MT, {draw.one(1, 2)}))") if draw.flip(0.7) else ("grid", "MT")
    free += draw.pick(meet[2:], "") if over == "persistent" else ""
    kernel = f"""kernel main {{
  buffer A f32[{slots}, 4, 32] shared align 16 @ 0
  frag x f32[4, 32] dist (lane 32 axis 1 stride 1, warp 2 axis 0 stride 1, slot 2 axis 0 stride 2)
  frag y f32[4, 32] dist (lane 32 axis 1 stride 1, warp 2 axis 0 stride 1, slot 2 axis 0 stride 2)
  role all agents 1 threads 64 {{
    tasks (t < MT) over {over} enters R0(m = 4 * t .. min(4 * t + 4, M)) {{
{start}      loop j = 0 .. {main} step 1 {{
{holds}{body}      }}
{second}{free}    }}
  }}
}}
"""
    host = f"  let MT = (M + 3) // 4\n  let NT = (N + 31) // 32\n  launch main grid {grid} threads 64 shared {slots * 512}\n"
    sizes = ({"M": 5, "N": 4}, {"M": 3, "N": 32 * slots + 4}, {"M": 5, "N": 32 * (slots + 2)})
    return kernel, host, sizes
