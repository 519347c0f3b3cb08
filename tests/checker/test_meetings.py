"""Accesses of threads and engines that meet: each text is right as it stands, and wrong where a meeting, a wait or a
fence that orders two of them may be passed by, comes too late or joins others. Each wrong twin is wrong in a schedule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import test_boxes_merged
import test_warps
from machine_text import judged, text, verified
from random_handovers import RIGHT
from random_handovers import text as handover

from treadle.driver.trial import expected, try_machine
from treadle.machine.parse import parse_machine
from treadle.simulate.run import run_schedules

LANES = "dist (lane 32 axis 0 stride 1, warp 2 axis 0 stride 32)"


def small(program: str, guard: str, kernel: str, launch: str = "grid J threads 64", frags: str = "") -> str:
    """A text of one role of 64 threads on a GPU."""
    body = "\n".join("      " + line for line in kernel.strip("\n").split("\n"))
    role = (
        f"  role worker agents 1 threads 64 {{\n    tasks (q < J) over grid enters R0(j = q) {{\n{body}\n    }}\n  }}"
    )
    return text("cuda:sm_90a", program, guard, launch, frags.strip("\n") + "\n" + role)


def wrong(machine: str, judgement: str, dims: dict[str, int], schedules: int = 4) -> None:
    """Asserts that a text is not verified, for this judgement, and that some schedule shows why."""
    verdict = judged(machine)
    assert verdict.status != "verified" and verdict.judgement == judgement, str(verdict)
    assert not try_machine(machine, "text", dims, 0, schedules).clean


# ---- meetings that may be passed by

EXCHANGE = small(
    """
  program p
    dim J
    dim K
    dim D = 64 static
    tensor X: f32[J, D]
    tensor Z: f32[K]
    tensor Y: f32[J, D] out
    body
      region R0 parallel (j in J each)
        %x: f32[D] = load X[j, D]
        store Y[j, D] = %x
""",
    "  1 <= J\n  1 <= K\n  injective(Y)\n  disjoint(X, Y)\n  disjoint(Y, Z)",
    """
x = load X[q, $0] ; %x[$0]
version S ; %x[$0]
store S[$0] = x
loop i = 0 .. K step 1 {
  sync barrier.sync (id = 0, threads = 64)
}
x = load S[63 - $0] ; %x[63 - $0]
store Y[q, 63 - $0] = x ; store 0 [63 - $0]
sync barrier.sync (id = 0, threads = 64)
""",
    "grid J threads 64 shared 256",
    f"  buffer S f32[64] shared align 16 @ 0\n  frag x f32[64] {LANES}",
)


def test_threads_that_meet_in_a_loop_meet_if_it_runs() -> None:
    verified(EXCHANGE)
    wrong(EXCHANGE.replace("  1 <= K\n", ""), "J2", {"J": 2, "K": 0})
    wrong(EXCHANGE.replace("loop i = 0 .. K ", "loop i = 1 .. K "), "J2", {"J": 2, "K": 1})


# ---- boxes and threads on one tensor

BOXES = """tdm 1
target cuda:sm_90a
program {
  program twice
    dim M
    dim N
    tensor X: f32[M, N]
    tensor Y: f32[M, N] out
    tensor Z: f32[M, N] out
    body
      region R0 parallel (m in M, n in N)
        %x: f32[m, n] = load X[m, n]
        store Y[m, n] = %x
        %y: f32[m, n] = load Y[m, n]
        store Z[m, n] = %y
}
guard {
  unit(Y, 1)
  pitch(Y, 0) % 4 == 0
  N % 4 == 0
  align(Y) >= 16
  injective(Y)
  injective(Z)
  disjoint(X, Y)
  disjoint(Z, Y)
  disjoint(X, Z)
}
host {
  let MT = (M + 31) // 32
  let NT = (N + 31) // 32
  map mY of Y f32 box (32, 32) swizzle 0 fill zero promotion 0
  launch main grid max(1, min(132, MT * NT)) threads 128 shared 8192
}
kernel main {
  buffer S f32[32, 32] shared align 128 versions 2 @ 0
  frag x f32[32, 32] dist (slot 8 axis 0 stride 4, lane 32 axis 1 stride 1, warp 4 axis 0 stride 1)
  frag y f32[32, 32] dist (slot 8 axis 0 stride 4, lane 32 axis 1 stride 1, warp 4 axis 0 stride 1)
  role worker agents 1 threads 128 counters (e) {
    tasks (tm < MT, tn < NT) over persistent enters R0(m = 32 * tm .. min(32 * tm + 32, M), n = 32 * tn .. min(32 * tn + 32, N)) {
      x = load X[32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N ; %x[32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N
      sync bulk.wait (depth = 1, read = 1) by elect
      sync barrier.sync (id = 1, threads = 128)
      version S ; %x[32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N
      store S{e}[$0, $1] = x
      sync fence.proxy.async
      sync barrier.sync (id = 1, threads = 128)
      copy tma.store Y[32 * tm + $0, 32 * tn + $1] = S{e}[$0, $1] box (32, 32) map mY by elect ; store 0 [32 * tm + $0, 32 * tn + $1]
      sync bulk.commit by elect
      sync bulk.wait (depth = 0) by elect
      sync barrier.sync (id = 1, threads = 128)
      advance e
      y = load Y[32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N ; %y[32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N
      store Z[32 * tm + $0, 32 * tn + $1] = y where 32 * tm + $0 < M, 32 * tn + $1 < N ; store 1 [32 * tm + $0, 32 * tn + $1]
    }
    sync bulk.wait (depth = 0) by elect
  }
}
"""
LANDED = "      sync bulk.wait (depth = 0) by elect\n      sync barrier.sync (id = 1, threads = 128)\n      advance e\n"
READ = BOXES[BOXES.index("      y = load") : BOXES.rindex("      store Z")]
FENCE = "      sync fence.proxy.async\n"


def test_a_box_is_read_by_threads_when_it_has_landed_and_all_know() -> None:
    verified(BOXES)
    assert try_machine(BOXES, "boxes", {"M": 33, "N": 68}, 0, 4).clean
    for less in (
        "      sync barrier.sync (id = 1, threads = 128)\n      advance e\n",
        "      sync bulk.wait (depth = 0, read = 1) by elect\n      sync barrier.sync (id = 1, threads = 128)\n      advance e\n",
        "      sync bulk.wait (depth = 1) by elect\n      sync barrier.sync (id = 1, threads = 128)\n      advance e\n",
        "      sync barrier.sync (id = 1, threads = 128)\n      sync bulk.wait (depth = 0) by elect\n      advance e\n",
    ):
        wrong(BOXES.replace(LANDED, less), "J2", {"M": 33, "N": 68})


def test_a_box_overwrites_what_threads_have_read_and_fenced() -> None:
    """The source reads Y first, and then a box goes there."""
    source = BOXES.replace("        store Y[m, n] = %x\n", "").replace(
        "store Z[m, n] = %y\n", "store Z[m, n] = %y\n        store Y[m, n] = %x\n"
    )
    source = (
        source.replace(READ, "")
        .replace("store 0 [", "store 2 [")
        .replace("store 1 [", "store 0 [")
        .replace("store 2 [", "store 1 [")
    )
    early = source.replace(FENCE, READ + FENCE)
    verified(early)
    assert try_machine(early, "boxes", {"M": 33, "N": 68}, 0, 4).clean
    late = judged(source.replace(FENCE, FENCE + READ))
    assert (late.status, late.judgement) == ("rejected", "J2") and "may still read it" in late.reason


def test_versions_of_one_slot_are_stored_apart() -> None:
    """Threads that hold other elements store the slot's second version while the first is stored."""
    again = "      y = load Y[32 * tm + $0, 32 * tn + $1]"
    turned = "frag y f32[32, 32] dist (slot 8 axis 1 stride 4, lane 32 axis 0 stride 1, warp 4 axis 1 stride 1)"
    store = "      store S{e}[$0, $1] = x\n"
    held = "32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N"
    second = f"      y = load X[{held} ; %x[{held}\n      y = abs y ; %a[{held}\n      version S ; %a[{held}\n      store S{{e}}[$0, $1] = y\n"
    twice = BOXES.replace(store, store + second).replace(
        BOXES[BOXES.index("  frag y") + 2 : BOXES.index("  role")], turned + "\n"
    )
    twice = twice.replace(
        "        store Y[m, n] = %x\n", "        %a: f32[m, n] = abs %x\n        store Y[m, n] = %a\n"
    )
    assert again in twice
    wrong(twice, "J2", {"M": 33, "N": 68})
    meet = "      sync barrier.sync (id = 1, threads = 128)\n"
    verified(twice.replace(second, meet + second))


def test_versions_that_are_handed_over_are_stored_apart() -> None:
    made = handover(**RIGHT["waits at once"])
    for old, new in (
        ("role one agents 1 threads 32", "role one agents 1 threads 64"),
        ("role two agents 1 threads 64", "role two agents 1 threads 32"),
        ("frag x f32[64] dist (lane 32 axis 0 stride 1, slot 2 axis 0 stride 32)", f"frag x f32[64] {LANES}\n  frag v f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)"),
        ("frag z f32[64] dist (warp 2 axis", "frag z f32[64] dist (slot 2 axis"),
        ("frag y f32[64] dist (warp 2 axis", "frag y f32[64] dist (slot 2 axis"),
    ):  # fmt: skip
        assert old in made
        made = made.replace(old, new)
    verified(made)
    cond = "where 64 * j + $0 < N"
    store, meet = f"        store S[$0] = x {cond}\n", "        sync barrier.sync (id = 3, threads = 64)\n"
    second = f"        v = load X[t, 64 * j + $0] {cond} ; %x[t, 64 * j + $0] {cond}\n        v = abs v {cond} ; %y[t, 64 * j + $0] {cond}\n        version S ; %y[t, 64 * j + $0] {cond}\n        store S[$0] = v {cond}\n"
    for old, new in (
        (store, store + second),
        ("z = load S[$0] where 64 * i + $0 < N ; %x[", "z = load S[$0] where 64 * i + $0 < N ; %y["),
        ("y = abs z", "y = copy z"),
    ):
        assert old in made
        made = made.replace(old, new)
    wrong(made, "J2", {"M": 3, "N": 64})
    verified(made.replace(second, meet + second))


def test_only_a_producer_s_steps_signal_a_ring() -> None:
    ring = (Path(__file__).parent / "patterns" / "cluster_begins_apart.right.tdm").read_text()
    own = ring.replace("shared 2080", "shared 3200").replace(
        "  frag x f32[8, 32]", "  buffer B f32[4, 32] shared align 128 @ 2176\n  frag x f32[8, 32]"
    )
    row = "$0 + 8*t, $1 + 32*j]"
    copy = f"        version B fill 0 ; %x[{row} where $0 + 8*t < M, $1 + 32*j < N\n        copy tma.load B[$0, $1] = X[{row} box (4, 32) signal full{{c}} map mX by elect\n        sync barrier.sync (id = 1, threads = 64)\n"
    own = own.replace("        y = mul x, z", copy + "        y = mul x, z")
    wrong(own, "J3", {"M": 9, "N": 100})


def test_operands_are_free_when_every_warp_s_product_is_over() -> None:
    """A warp that has met the others and waited for its own product knows nothing of theirs."""
    right = (Path(__file__).parent / "patterns" / "operands_overwritten_under_a_product.right.tdm").read_text()
    wait, meet = "        sync wgmma.wait (depth = 0)\n", "        sync barrier.sync (id = 0, threads = 128)\n"
    assert wait + meet in right
    alone = "grid max(1, min(132, ((M + 63) // 64) * ((N + 63) // 64)))"
    assert alone in right
    verified(right)
    wrong(right.replace(wait + meet, meet + wait).replace(alone, "grid 1"), "J2", {"M": 70, "N": 130})


# ---- who holds what

FIRST = small(
    """
  program p
    dim J
    dim V
    dim D = 64 static
    tensor I: i32[J, D]
    tensor X: f32[V]
    tensor Z: f32[J, D]
    tensor Y: f32[J, D] out
    body
      region R0 parallel (j in J each)
        %i: i32[D] = load I[j, D]
        %k: i32[] = extract %i[0]
        %x: f32[] = load X[in_range(%k())]
        %z: f32[D] = load Z[j, D]
        %y: f32[D] = add %z, %x
        store Y[j, D] = %y
""",
    "  1 <= J\n  injective(Y)\n  disjoint(X, Y)\n  disjoint(I, Y)\n  disjoint(Z, Y)",
    """
k = load I[q, 0] ; %k[]
ids = load I[q, $0] ; %i[$0]
let n = k()
x = load X[n] ; %x[]
y = load Z[q, $0] ; %z[$0]
y = add y, x ; %y[$0]
store Y[q, $0] = y ; store 0 [$0]
""",
    frags=f"  frag k i32[]\n  frag ids i32[64] {LANES}\n  frag x f32[]\n  frag y f32[64] {LANES}",
)


def test_a_name_stands_for_what_every_thread_holds() -> None:
    verified(FIRST)
    wrong(FIRST.replace("let n = k()", "let n = ids(0)"), "J5", {"J": 2, "V": 50})


def test_an_instruction_of_a_warp_is_not_one_thread_s() -> None:
    lines = [line[: line.index(" dist (")] if "  frag " in line else line for line in test_warps.TEXT.split("\n")]
    found = judged("\n".join(lines).replace("over persistent", "over threads"))
    assert (found.status, found.judgement) == ("rejected", "J5"), str(found)


# ---- contributions and elements in place, of other threads in another iteration

SUMS = small(
    """
  program p
    dim J
    dim T
    dim D = 64 static
    tensor X: f32[T, D]
    tensor C: f32[J, D] out
    body
      region R0 parallel (j in J each)
        region R1 serial (t in T each)
          %a: f32[D] = load X[t, D]
          %o: f32[D] = store C[j, D] add %a order ordered
""",
    "  1 <= J\n  injective(C)\n  disjoint(X, C)",
    """
loop i = 0 .. T step 1 enters R1(t = i) {
  a = load X[i, $0] ; %a[$0]
  store C[q, $0] = a effect add ; store 0 [$0]
}
""",
    frags=f"  frag a f32[64] {LANES}",
)
MOVED = "($0 + 32 * i) % 64"
"""The element that a slot stands for moves to the other warp and back."""


def differs(machine: str, sizes: dict[str, int]) -> bool:
    """Whether some schedule gives other bits than the source, for sums that depend on their order."""
    program, random = parse_machine(machine), np.random.default_rng(1)
    shapes = {t.name: tuple(int(d.extent.evaluate(sizes)) for d in t.dims) for t in program.program.tensors}
    arrays = {n: (random.standard_normal(s) * 10.0 ** random.integers(-3, 4, s)).astype(np.float32) for n, s in shapes.items()}  # fmt: skip
    want = expected(program, arrays, {}, sizes)
    return bool(run_schedules(program, arrays, 8, 0, expected=want).failures)


def test_ordered_contributions_are_one_thread_s() -> None:
    sizes = {"J": 2, "T": 5, "D": 64}
    verified(SUMS)
    assert not differs(SUMS, sizes)
    moved = SUMS.replace("X[i, $0]", f"X[i, {MOVED}]").replace("%a[$0]", f"%a[{MOVED}]")
    moved = moved.replace("C[q, $0]", f"C[q, {MOVED}]").replace("store 0 [$0]", f"store 0 [{MOVED}]")
    verified(moved.replace(" order ordered", ""))
    verified(moved.replace("f32", "i32"))
    verdict = judged(moved)
    assert (verdict.status, verdict.judgement) == ("rejected", "J6"), str(verdict)
    assert differs(moved, sizes)


def test_boxes_have_no_order_in_which_they_are_merged() -> None:
    boxes = test_boxes_merged.TEXT
    for old, new in (
        ("(k in K each, m in M, n in N)\n", "(m in M, n in N)\n        region R1 serial (k in K each)\n"),
        ("        %x: f32[m, n] = load X[k, m, n]\n        %old: f32[m, n] = store Y[m, n] add %x\n", "          %x: f32[m, n] = load X[k, m, n]\n          %old: f32[m, n] = store Y[m, n] add %x order ordered\n"),
        ("tasks (tk < K, tm < MT, tn < NT) over persistent enters R0(k = tk, m =", "tasks (tm < MT, tn < NT) over persistent enters R0(m ="),
        ("min(32 * tn + 32, N)) {\n", "min(32 * tn + 32, N)) {\n      loop tk = 0 .. K step 1 enters R1(k = tk) {\n"),
        ("      advance e\n", "      advance e\n      }\n"),
    ):  # fmt: skip
        assert old in boxes
        boxes = boxes.replace(old, new, 1)
    verified(boxes.replace(" order ordered", ""))
    verdict = judged(boxes)
    assert verdict.status != "verified" and verdict.judgement == "J6", str(verdict)
    assert differs(boxes, {"K": 6, "M": 5, "N": 8})


def test_two_ordered_stores_of_other_threads_are_not_kept_in_order() -> None:
    two = SUMS.replace(" order ordered", "").replace("          %o:", "          %b: f32[D] = neg %a\n          %o:")
    two = two.replace("add %a\n", "add %a\n          %p: f32[D] = store C[j, D] add %b\n")
    two = two.replace("  frag a", "  frag b f32[64] dist (warp 2 axis 0 stride 1, lane 32 axis 0 stride 2)\n  frag a")
    more = "        b = load X[i, $0] ; %a[$0]\n        b = neg b ; %b[$0]\n        store C[q, $0] = b effect add ; store 1 [$0]\n"
    end = "        store C[q, $0] = a effect add ; store 0 [$0]\n"
    assert end in two
    two = two.replace(end, end + more)
    verified(two)  # either order is one of those that `unordered` allows
    assert judged(two.replace("add %b", "add %b order ordered")).judgement == "J2"
    verified(two.replace("add %b", "add %b order ordered").replace("f32", "i32"))


RUNNING = SUMS.replace("          %o: f32[D] = store C[j, D] add %a order ordered\n", "          %x: f32[D] = load C[j, D]\n          store Z[j, t, D] = %x\n          %o: f32[D] = store C[j, D] add %a\n")  # fmt: skip
for _old, _new in (
    ("    tensor C", "    tensor Z: f32[J, T, D] out\n    tensor C"),
    ("  injective(C)\n", "  injective(C)\n  injective(Z)\n  disjoint(X, Z)\n  disjoint(C, Z)\n"),
    ("  frag a", f"  frag x f32[64] {LANES}\n  frag a"),
    ("        store C[q, $0] = a effect add ; store 0", "        x = load C[q, $0] ; %x[$0]\n        store Z[q, i, $0] = x ; store 0 [$0]\n        store C[q, $0] = a effect add ; store 1"),
):  # fmt: skip
    assert _old in RUNNING
    RUNNING = RUNNING.replace(_old, _new)


def test_a_thread_reads_what_it_added_itself() -> None:
    verified(RUNNING)
    assert try_machine(RUNNING, "running", {"J": 2, "T": 5}, 0, 4).clean
    body = RUNNING.index("      loop i")
    moved = RUNNING[:body] + RUNNING[body:].replace("$0", MOVED)
    wrong(moved, "J2", {"J": 2, "T": 5})


VIEWS = small(
    """
  program p
    dim J
    dim D = 128 static
    tensor X: i32[J, D]
    tensor B: i32[J, D]
    tensor C: i32[J, D] out
    tensor Z: i32[J, D] out
    body
      region R0 parallel (j in J each)
        %x: i32[D] = load B[j, D]
        %a: i32[D] = load X[j, D]
        store Z[j, D] = %x
        store C[j, D] = %a
""",
    "  1 <= J\n  injective(C)\n  injective(Z)\n  disjoint(X, C)\n  disjoint(X, Z)\n  disjoint(C, Z)\n  disjoint(B, Z)\n  same(B, C)",
    """
loop i = 0 .. 4 step 1 {
  if i < 2 {
    x = load B[q, AT] ; %x[AT]
    store Z[q, AT] = x ; store 0 [AT]
  }
  if i >= 2 {
    a = load X[q, AT] ; %a[AT]
    store C[q, AT] = a ; store 1 [AT]
  }
}
""",
    frags=f"  frag x i32[64] {LANES}\n  frag a i32[64] {LANES}",
)


def test_an_element_in_place_stays_one_thread_s_over_iterations() -> None:
    verified(VIEWS.replace("AT", "64 * (i % 2) + $0"))
    moved = VIEWS.replace("AT", "(64 * i + $0 + 32 * (i // 2)) % 128")
    found = judged(moved)
    assert (found.status, found.judgement) == ("rejected", "J2"), str(found)
    both, x = np.arange(256, dtype=np.int32).reshape(2, 128), np.ones((2, 128), np.int32)
    args = {"X": x, "B": both, "C": both, "Z": np.zeros_like(x)}
    assert run_schedules(parse_machine(moved), args, 4, 0, expected={"C": x, "Z": both.copy()}).failures


def test_barriers_join_whole_warps() -> None:
    one = text(
        "cuda:sm_90a",
        "  program p\n    dim J\n    tensor X: f32[J]\n    tensor Y: f32[J] out\n    body\n"
        "      region R0 parallel (j in J each)\n        %x: f32[] = load X[j]\n        store Y[j] = %x",
        "  injective(Y)\n  disjoint(X, Y)",
        "grid 1 threads 1",
        "  frag x f32[]\n  role worker agents 1 threads 1 {\n    loop q = 0 .. J step 1 enters R0(j = q) {\n"
        "      x = load X[q] ; %x[]\n      store Y[q] = x ; store 0 []\n    }\n  }",
    )
    verified(one)
    meet = one.replace("      store Y[q]", "      sync barrier.sync (id = 1, threads = 1)\n      store Y[q]")
    assert "no number of warps" in str(judged(meet))
