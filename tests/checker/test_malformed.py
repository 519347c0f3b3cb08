"""A text whose embedded program breaks the rules of its form is rejected with the code of the rule, whatever else it
says."""

from __future__ import annotations

import pytest
from machine_text import text, verified

from treadle.checker import check
from treadle.machine.parse import parse_machine

RIGHT = text(
    "cpu:avx512",
    """
  program p
    dim M
    dim K
    tensor X: f32[M, K]
    tensor Y: f32[M, K] out
    body
      region R0 parallel (m in M each)
        %x: f32[K] = load X[m, K]
        %two: f32[] = full 2.0
        %y: f32[K] = mul %x, %two
        store Y[m, K] = %y
""",
    "  injective(Y)\n  disjoint(X, Y)",
    "grid 1 threads 1",
    """
  frag x f32[]
  frag y f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t) {
      loop k = 0 .. K step 1 {
        x = load X[t, k] ; %x[k]
        y = mul x, 2.0 ; %y[k]
        store Y[t, k] = y ; store 0 [k]
      }
    }
  }
""",
)
# what is wrong with the program, what stands there, what stands there instead, the code
WRONG = [
    ("a result of another dtype", "%y: f32[K] = mul", "%y: f64[K] = mul", "ir/type"),
    ("a result without its axis", "%y: f32[K] = mul", "%y: f32[] = mul", "ir/type"),
    ("a tensor's dtype", "%x: f32[K] = load", "%x: bf16[K] = load", "ir/type"),
    ("an axis of another dimension", "load X[m, K]", "load X[K, m]", "ir/type"),
    ("too few subscripts", "load X[m, K]", "load X[m]", "ir/type"),
    ("a coordinate of no region", "store Y[m, K]", "store Y[q, K]", "ir/structure"),
    ("a store of another dtype", "tensor Y: f32[M, K] out", "tensor Y: i32[M, K] out", "ir/type"),
    ("an axis twice", "tensor X: f32[M, K]", "tensor X: f32[M, M]", "ir/structure"),
    ("a function of one argument", "mul %x, %two", "mul %x", "ir/type"),
    ("numbers of two dtypes", "%two: f32[] = full", "%two: i64[] = full", "ir/type"),
]


def test_the_right_one_is_verified() -> None:
    verified(RIGHT)


@pytest.mark.parametrize("wrong", WRONG, ids=[w[0] for w in WRONG])
def test_malformed_programs_are_rejected(wrong: tuple[str, str, str, str]) -> None:
    _, old, new, code = wrong
    assert old in RIGHT
    verdict = check(parse_machine(RIGHT.replace(old, new, 1)))
    assert verdict.status == "rejected" and verdict.judgement == "J1"
    assert f"the embedded program is malformed ({code})" in verdict.reason
