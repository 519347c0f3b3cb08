"""Contractions of warps: fragments lie as the instruction has them, or the text is refused."""

from __future__ import annotations

import pytest

from treadle.checker import check
from treadle.machine.parse import parse_machine

TEXT = """tdm 1
target cuda:sm_80
numerics "regroup: K inside an atom"
program {
  program product
    dim M
    dim N = 16 static
    dim K = 32 static
    tensor X: bf16[M, K]
    tensor W: bf16[N, K]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %start: f32[m, N] = full 0.0
        %x: bf16[m, K] = load X[m, K]
        %w: bf16[N, K] = load W[N, K]
        %s: f32[m, N] = mma %x, %w, %start
        store Y[m, N] = %s
}
guard {
  injective(Y)
  disjoint(X, Y)
  disjoint(W, Y)
}
host {
  launch main grid max(1, (M + 31) // 32) threads 128
}
kernel main {
  frag acc f32[32, 16] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, lane 4 axis 1 stride 2, \
lane 8 axis 0 stride 1, warp 2 axis 0 stride 16, warp 2 axis 1 stride 8)
  frag x bf16[32, 16] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 2 axis 1 stride 8, \
lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 2 axis 0 stride 16, warp 2 axis - stride 0)
  frag w bf16[16, 16] dist (slot 2 axis 1 stride 1, slot 2 axis 1 stride 8, lane 4 axis 1 stride 2, \
lane 8 axis 0 stride 1, warp 2 axis - stride 0, warp 2 axis 0 stride 8)
  role all agents 1 threads 128 {
    tasks (t < (M + 31) // 32) over persistent enters R0(m = 32*t .. min(32*t + 32, M)) {
      acc = copy 0.0 ; %start[32*t + $0, $1]
      loop f = 0 .. 2 step 1 {
        invariant acc ; %s[32*t + $0, $1] where 32*t + $0 < M over (k) : 0 <= k, k < 16*f
        x = load X[32*t + $0, 16*f + $1] where 32*t + $0 < M fill 0 ; %x[32*t + $0, 16*f + $1] where 32*t + $0 < M
        w = load W[$0, 16*f + $1] ; %w[$0, 16*f + $1]
        acc = mma mma.sync.m16n8k16.bf16 x[$0, $2], w[$1, $2] onto acc contract (16) \
; %s[32*t + $0, $1] where 32*t + $0 < M over (k) : 0 <= k, k < 16*f + 16
      }
      store Y[32*t + $0, $1] = acc where 32*t + $0 < M ; store 0 [32*t + $0, $1]
    }
  }
}
"""
COLUMNS, ROWS = "lane 4 axis 1 stride 2", "lane 8 axis 0 stride 1"
SUM = "warp 2 axis 0 stride 16, warp 2 axis 1"
PAIRS = f"frag x bf16[32, 16] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 2 axis 1 stride 8, {COLUMNS}"
FOURS = "frag x bf16[32, 16] dist (slot 4 axis 1 stride 1, slot 2 axis 0 stride 8, lane 4 axis 1 stride 4"
NEAR = "slot 2 axis 0 stride 1, lane 4 axis 1 stride 2, lane 8 axis 0 stride 2, warp 2 axis 0"
LEFT = ("warp 2 axis 0 stride 16, warp 2 axis - stride 0)", "warp 2 axis - stride 0, warp 2 axis 0 stride 16)")
RIGHT = ("warp 2 axis - stride 0, warp 2 axis 0 stride 8)", "warp 2 axis 0 stride 8, warp 2 axis - stride 0)")
WRONG = {
    "lanes of the sum turned": (f"{COLUMNS}, {ROWS}, {SUM}", f"{ROWS}, {COLUMNS}, {SUM}"),
    "rows in neighbours": (f"slot 2 axis 0 stride 8, {COLUMNS}, {ROWS}, warp 2 axis 0", NEAR),
    "the depth in fours": (PAIRS, FOURS),
    "another warp's rows": LEFT,
    "another warp's columns": RIGHT,
    "half the depth": ("x[$0, $2], w[$1, $2]", "x[$0, $2], w[$1, ($2 + 8) % 16]"),
    "the next column": ("w[$1, $2]", "w[($1 + 1) % 16, $2]"),
}


def test_the_instruction_s_own_layout_is_verified() -> None:
    verdict = check(parse_machine(TEXT))
    assert verdict.status == "verified", str(verdict)


@pytest.mark.parametrize("name", WRONG)
def test_another_layout_is_refused(name: str) -> None:
    assert WRONG[name][0] in TEXT
    verdict = check(parse_machine(TEXT.replace(*WRONG[name])))
    assert (verdict.status, verdict.judgement) in (("rejected", "J5"), ("rejected", "J1")), str(verdict)
