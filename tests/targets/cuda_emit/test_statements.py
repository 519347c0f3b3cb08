"""Single statements as text: how wide accesses are, who stores replicas, where masks stand, what is written out."""

from __future__ import annotations

import re

from tests.targets.cuda_emit.kit import built, cubin, small

from treadle.machine.parse import parse_machine
from treadle.targets.cuda.emit import emit

ROW = "  frag x f32[128] dist (slot 4 axis 0 stride 1, lane 32 axis 0 stride 4)\n"


def source(body: str, declarations: str = "", threads: int = 32, target: str = "cuda:sm_90a") -> str:
    """The text of a body."""
    return emit(parse_machine(small(body, declarations, threads=threads, target=target))).source


def test_neighbours_move_together_where_the_guard_allows() -> None:
    made = source("x = load X[0, $0] where $0 < N fill 0.0\nstore Y[0, $0] = x where $0 < N", ROW)
    assert made.count("*(const uint4*)") == 1 and made.count("*(uint4*)") == 1
    # From an index that is no multiple of four on, only the middle pair is aligned.
    apart = source("x = load X[0, $0 + 1] where $0 + 1 < N fill 0.0", ROW)
    assert apart.count("*(const uint4*)") == 0 and apart.count("*(const uint2*)") == 1 and apart.count("? *") == 2


def test_a_mask_stands_before_the_access() -> None:
    made = source("x = load X[0, $0] where $0 < N fill -inf", ROW)
    assert re.search(r"uint4 v\d+ = \{.*0xff800000u", made)
    assert re.search(r"if \(\(t0 \+ 1\) <= n_N\) v\d+ = ", made)


def test_one_replica_stores() -> None:
    declared = "  frag s f32[] dist (lane 32 axis - stride 0)\n" + ROW
    made = source("x = load X[0, $0]\ns = fold add x axes (0)\nstore Y[0, 0] = s", declared)
    assert "if ((lane & 31) == 0) {" in made
    assert made.count("__shfl_xor_sync") == 5


def test_slots_are_folded_before_lanes_by_halving() -> None:
    made = source("x = load X[0, $0]\ns = fold add x axes (0)\nstore Y[0, 0] = s", "  frag s f32[]\n" + ROW)
    sums = re.findall(r"const float (x\d+) = \((\S+) \+ (.+)\);", made)
    assert [s[1:] for s in sums[:2]] == [("f_x[0]", "f_x[2]"), ("f_x[1]", "f_x[3]")]
    assert sums[2][1:] == (sums[0][0], sums[1][0])
    assert [re.findall(r", (\d+)\)", s[2])[0] for s in sums[3:]] == ["16", "8", "4", "2", "1"]


def test_a_loop_that_chooses_registers_is_written_out() -> None:
    declared = "  frag y f32[4]\n  frag z f32[]\n"
    body = "y = copy 0.0\nloop j = 0 .. 4 step 1 {\n  z = copy y[j]\n  store Y[0, j] = z\n}\n"
    made = source(body, declared, threads=1)
    assert "f_z[0] = f_y[3];" in made and "for (" not in made.split("k_main")[1]
    kept = source("loop j = 0 .. 4 step 1 {\n  z = copy 1.0\n  store Y[0, j] = z\n}\n", declared, threads=1)
    assert "#pragma unroll 1" in kept


def test_what_one_thread_does_stands_under_one_condition() -> None:
    declared = "  buffer S f32[1024] shared align 16\n  barrier full count 1 versions 2 tx @ 4096\n"
    body = """loop j = 0 .. 4 step 1 {
  sync mbar.expect full{p} (bytes = 512) by elect
  copy bulk.load S[128 * j + $0] = X[0, 128 * j + $0] box (128) signal full{p} by elect
  advance p
}"""
    text = small(body, declared).replace("threads 128 {", "threads 128 counters (p) {")
    made = emit(parse_machine(text)).source
    assert made.count("if (member == 0) {") == 1
    assert "x_p = (x_p + 1) & 3;" in made
    assert "for (int x_j" in made


def test_every_swizzle_has_its_address() -> None:
    for swizzle, width in ((128, 64), (64, 32), (32, 16)):
        declared = f"  buffer S bf16[8, {width}] shared align 1024 swizzle {swizzle} @ 0\n  frag h bf16[8]\n"
        made = source("h = copy 1.0\nstore S[1, $0] = h", declared)
        assert f"swizzle_{swizzle}(" in made


def test_mixed_precision_rounds_in_pairs() -> None:
    declared = "  frag w bf16[4]\n  frag x f32[4]\n"
    made = source("x = copy 1.5\nw = cast x\nw = mul w, w\nx = cast w\nstore Y[0, $0] = x", declared, threads=1)
    assert made.count("= pack_bf16(") == 4


def test_division_by_one_number_is_prepared_once() -> None:
    declared = "  frag s f32[]\n  frag x f32[8]\n"
    made = built(
        parse_machine(small("s = copy 3.0\nx = load X[0, $0]\nx = div x, s[]\nstore Y[0, $0] = x", declared, threads=1))
    )
    assert made.emitted.source.count("quotient(f_x[") == 8
    assert made.cubin.messages == ()


def test_tensor_cores_before_hopper() -> None:
    declared = (
        "  frag acc f32[16, 8] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, lane 4 axis 1 stride 2, "
        "lane 8 axis 0 stride 1)\n"
        "  frag a bf16[16, 16] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 2 axis 1 stride 8, "
        "lane 4 axis 1 stride 2, lane 8 axis 0 stride 1)\n"
        "  frag b bf16[16, 8] dist (slot 2 axis 0 stride 1, slot 2 axis 0 stride 8, lane 4 axis 0 stride 2, "
        "lane 8 axis 1 stride 1)\n"
    )
    body = """a = copy 1.0
b = copy 1.0
acc = copy 0.0
acc = mma mma.sync.m16n8k16.bf16 a[$0, $2], b[$2, $1] onto acc contract (16)
store Y[$0, $1] = acc"""
    made = built(parse_machine(small(body, declared, threads=32, target="cuda:sm_80")))
    assert made.count("HMMA") == made.emitted.launches[0].counts["HMMA"] == 1
    assert made.cubin.messages == ()


def test_copies_by_threads() -> None:
    declared = "  buffer S f32[8, 64] shared align 16 @ 0\n"
    body = """copy cp.async S[$0, $1] = X[$0, $1] box (8, 64)
sync cpasync.commit
sync cpasync.wait (depth = 0)
sync barrier.sync (id = 0, threads = 128)"""
    made = built(parse_machine(small(body, declared, target="cuda:sm_80")))
    assert made.count("LDGSTS") >= 1
    assert made.cubin.messages == ()


def test_atomic_updates_assemble_for_every_dtype() -> None:
    for name in ("f32", "bf16", "u64", "i8"):
        body = "x = copy 1\nstore Y[0, $0] = x effect add\nstore Y[0, $0] = x effect max"
        text = small(body, f"  frag x {name}[2]\n", threads=1)
        text = text.replace("Y: f32", f"Y: {name}").replace("store Y[m, N] = %x", "")
        assert cubin(parse_machine(text)).messages == ()
