"""Two rings, one of which its consumer takes a step ahead: a shape of the grammar in `random_machines`, and a text whose
lines tests change."""

from __future__ import annotations

from typing import Any

from tests.checker.text_parts import ROWS_ADDED, boxes, opening

GUARD = "  disjoint(X, Y)\n  disjoint(W, Y)\n  injective(Y)\n" + boxes("X", "W")
TASKS = "    tasks (t < MT) over persistent enters R0(m = 4 * t .. min(4 * t + 4, M)) {\n"
AT = "4 * t + $0, 32 * j + $1"
IN = "4 * t + $0 < M, 32 * j + $1 < N"
TAKE = f"""{{pad}}sync mbar.wait fullA{{{{c}}}} (phase = c // {{slots}} % 2)
{{pad}}x = load A{{{{c}}}}[$0, $1] ; %x[{AT}] where {IN}
{{pad}}sync fence.proxy.async
{{pad}}sync mbar.arrive emptyA{{{{c}}}}
{{pad}}advance c
"""
FILL = f"""        sync mbar.wait empty{{ring}}{{{{{{p}}}}}} (phase = ({{p}} // {{slots}} + 1) % 2) by elect
        sync mbar.expect full{{ring}}{{{{{{p}}}}}} (bytes = 512) by elect
        version {{ring}} fill 0 ; %{{value}}[{AT}] where {IN}
        copy tma.load {{ring}}{{{{{{p}}}}}}[$0, $1] = {{tensor}}[{AT}] box (4, 32) signal full{{ring}}{{{{{{p}}}}}} map m{{tensor}} by elect
        advance {{p}}
"""


def filled(ring: str, slots: int) -> str:
    """A step of the producer."""
    p, tensor, value = {"A": ("p", "X", "x"), "B": ("q", "W", "w")}[ring]
    return FILL.format(ring=ring, p=p, slots=slots, tensor=tensor, value=value)


def taken(slots: int, at: str, pad: str) -> str:
    """A step of the consumer in the ring that it takes ahead, for column block `at`."""
    return TAKE.format(pad=pad, slots=slots).replace("32 * j", f"32 * ({at})" if at != "0" else "0")


def text(
    slots: int = 2,
    first: str = "      if 0 < NT {\n{take}      }\n",
    ahead: str = "        if j + 1 < NT {\n{take}        }\n",
    fills: str = "AB",
    order: str = "wait ahead",
    grid: int = 1,
) -> str:
    """The program. `first`, `ahead`: what takes a step in front of the loop, and inside for the next iteration;
    `fills`: the producer's order; `order` of what the consumer does in an iteration."""
    dist = "dist (lane 32 axis 1 stride 1, slot 4 axis 0 stride 1)"
    size = 512 * (slots + 1)
    second = f"""        sync mbar.wait fullB{{d}} (phase = d % 2)
        w = load B{{d}}[$0, $1] ; %w[{AT}] where {IN}
        sync fence.proxy.async
        sync mbar.arrive emptyB{{d}}
        advance d
        y = add x, w where {IN} ; %y[{AT}] where {IN}
        store Y[{AT}] = y where {IN} ; store 0 [{AT}]
"""
    next_ = ahead.replace("{take}", taken(slots, "j + 1", "          "))
    parts = {"wait": second, "ahead": next_}
    body = "".join(parts[word] for word in order.split())
    inits = "".join(f"    sync mbar.init {kind}{ring} by elect\n" for ring in "AB" for kind in ("full", "empty"))
    barriers = "".join(
        f"  barrier full{r} count 1 versions {n} tx @ {at}\n  barrier empty{r} count 32 versions {n} @ {at + 8 * n}\n"
        for r, n, at in (("A", slots, size), ("B", 1, size + 16 * slots))
    )
    host = f"""  let MT = (M + 3) // 4
  let NT = (N + 31) // 32
  map mX of X f32 box (4, 32) swizzle 0 fill zero promotion 256
  map mW of W f32 box (4, 32) swizzle 0 fill zero promotion 256
  launch main grid max(1, min(MT, {grid})) threads 64 shared {size + 16 * slots + 16}
"""
    kernel = f"""kernel main {{
  buffer A f32[4, 32] shared align 128 versions {slots} @ 0
  buffer B f32[4, 32] shared align 128 versions 1 @ {512 * slots}
  frag x f32[4, 32] {dist}
  frag w f32[4, 32] {dist}
  frag y f32[4, 32] {dist}
{barriers}  role producer agents 1 threads 32 counters (p, q) {{
{inits}    sync fence.mbar_init by elect
    sync barrier.sync (id = 0, threads = 64)
{TASKS}      loop j = 0 .. NT step 1 {{
{"".join(filled(ring, slots if ring == "A" else 1) for ring in fills)}      }}
    }}
  }}
  role consumer agents 1 threads 32 counters (c, d) {{
    sync barrier.sync (id = 0, threads = 64)
{TASKS}{first.replace("{take}", taken(slots, "0", "        "))}      loop j = 0 .. NT step 1 {{
        invariant x ; %x[{AT}] where {IN}
{body}      }}
    }}
  }}
}}
"""
    return opening("cuda:sm_90a", ROWS_ADDED, GUARD, host) + kernel


def ahead_text(draw: Any) -> tuple[str, tuple[dict[str, int], ...]]:
    """The shape, with conditions, phases, slots, releases and the order of steps drawn."""
    slots = draw.one(1, 2, 2, 3)
    first = draw.pick("if 0 < NT", "if 1 < NT", "if 0 <= NT", "if 2 <= NT + t", "if 0 == 0")
    ahead = draw.pick("if j + 1 < NT", "if j + 2 < NT", "if j < NT", "if j + 1 <= NT + t", "if 1 <= j")
    found = text(
        slots,
        f"      {first} {{\n{{take}}      }}\n",
        f"        {ahead} {{\n{{take}}        }}\n",
        draw.pick("AB", "AB", "BA"),
        draw.pick("wait ahead", "ahead wait") if slots == 1 else "wait ahead",
        draw.one(1, 2),
    )
    others = [
        (f"phase = c // {slots} % 2", (f"phase = (c // {slots} + 1) % 2", f"phase = c // {slots + 1} % 2")),
        ("emptyA{c}", ("emptyA{c - 1}", "emptyA{c + 1}")),
        ("load A{c}", ("load A{c + 1}",) if slots > 1 else ()),
        ("          advance c\n", ("", "          advance c\n          advance c\n")),
        ("          sync fence.proxy.async\n", ("",)),
        ("X[4 * t + $0, 32 * j + $1]", ("X[4 * t + $0, 32 * j + $1 + 32]",)),
        ("emptyA count 32", ("emptyA count 64",)),
    ]
    for old, new in others:
        if new:
            found = found.replace(old, draw.pick(old, *new)) if old in found else found
    return found, ({"M": 1, "N": 4}, {"M": 5, "N": 36}, {"M": 4, "N": 32 * (slots + 1)}, {"M": 3, "N": 0})
