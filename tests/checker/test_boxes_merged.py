"""Boxes that an engine adds to a tensor: contributions that collide, each added once."""

from __future__ import annotations

import pytest
from tests.checker.machine_text import judged, refused, verified
from tests.marks import assembled

from treadle.driver.trial import try_machine
from treadle.machine.parse import parse_machine
from treadle.targets.cuda.emit import emit
from treadle.toolchain.nvrtc import compile_cuda

TEXT = """tdm 1
target cuda:sm_90a
program {
  program sums
    dim K
    dim M
    dim N
    tensor X: f32[K, M, N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (k in K each, m in M, n in N)
        %x: f32[m, n] = load X[k, m, n]
        %old: f32[m, n] = store Y[m, n] add %x
}
guard {
  unit(X, 2)
  unit(Y, 1)
  pitch(Y, 0) % 4 == 0
  N % 4 == 0
  align(Y) >= 16
  injective(Y)
  disjoint(X, Y)
}
host {
  let MT = (M + 31) // 32
  let NT = (N + 31) // 32
  map mY of Y f32 box (32, 32) swizzle 0 fill zero promotion 0
  launch main grid max(1, min(132, K * MT * NT)) threads 128 shared 8192
}
kernel main {
  buffer S f32[1, 32, 32] shared align 128 versions 2 @ 0
  frag x f32[32, 32] dist (slot 8 axis 0 stride 4, lane 32 axis 1 stride 1, warp 4 axis 0 stride 1)
  role worker agents 1 threads 128 index w counters (e) {
    tasks (tk < K, tm < MT, tn < NT) over persistent enters R0(k = tk, m = 32 * tm .. min(32 * tm + 32, M), n = 32 * tn .. min(32 * tn + 32, N)) {
      x = load X[tk, 32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N ; %x[32 * tm + $0, 32 * tn + $1] where 32 * tm + $0 < M, 32 * tn + $1 < N
      sync bulk.wait (depth = 1, read = 1) by elect
      sync barrier.sync (id = w + 1, threads = 128)
      version S ; %x[32 * tm + $1, 32 * tn + $2] where 32 * tm + $1 < M, 32 * tn + $2 < N
      store S{e}[w, $0, $1] = x
      sync fence.proxy.async
      sync barrier.sync (id = w + 1, threads = 128)
      copy tma.add Y[32 * tm + $0, 32 * tn + $1] = S{e}[w, $0, $1] box (32, 32) map mY by elect ; store 0 [32 * tm + $0, 32 * tn + $1]
      sync bulk.commit by elect
      advance e
    }
    sync bulk.wait (depth = 0) by elect
  }
}
"""


def test_boxes_added_are_verified_and_right() -> None:
    verified(TEXT)
    for dims in ({"K": 3, "M": 5, "N": 8}, {"K": 2, "M": 33, "N": 68}):
        assert try_machine(TEXT, "<boxes>", dims, 0, 6).clean


WRONG = {
    "stored, not added": ("copy tma.add", "copy tma.store", "J1"),
    "another effect": ("copy tma.add", "copy tma.max", "J7"),
    "not fenced": ("      sync fence.proxy.async\n", "", "J2"),
    "not joined": (
        "      sync fence.proxy.async\n      sync barrier.sync (id = w + 1, threads = 128)\n",
        "      sync fence.proxy.async\n",
        "J2",
    ),
    "a slot that an engine still reads": ("(depth = 1, read = 1)", "(depth = 2, read = 1)", "J2"),
    "another box": ("Y[32 * tm + $0, 32 * tn + $1] = S", "Y[32 * tm + $0, 32 * tn] = S", "J1"),
    "not by one thread": ("map mY by elect ;", "map mY ;", "J5"),
    "never waited for": ("    sync bulk.wait (depth = 0) by elect\n", "", "J2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_twins(name: str) -> None:
    old, new, judgement = WRONG[name]
    refused(TEXT, old, new, judgement)


def test_floats_are_not_merged_by_their_order() -> None:
    """Engines know the greater of integers only."""
    greater = TEXT.replace("] add %x", "] max %x").replace("tma.add", "tma.max")
    assert "tma.max of elements of f32" in str(judged(greater))
    verified(greater.replace("f32", "i32"))


def test_threads_and_engines_do_not_both_update() -> None:
    both = TEXT.replace(
        "      advance e\n",
        "      store Y[32 * tm + $0, 32 * tn + $1] = x effect add ; store 0 [32 * tm + $0, 32 * tn + $1]\n      advance e\n",
    )
    assert judged(both).status != "verified"


@assembled
@pytest.mark.parametrize("effect", ["add", "max", "min"])
def test_they_assemble(effect: str) -> None:
    text = TEXT.replace("] add %x", f"] {effect} %x").replace("tma.add", f"tma.{effect}").replace("f32", "i32")
    emitted = emit(parse_machine(text))
    assert f"{effect}_box_2(&m_mY" in emitted.source
    compiled = compile_cuda(emitted.source, arch=emitted.arch, name="sums")
    assert [k.spill_stores + k.spill_loads for k in compiled.kernels] == [0]
