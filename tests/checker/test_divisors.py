"""What a text computes divides by positive numbers, wherever it is computed: a processor traps on others."""

from __future__ import annotations

import pytest
from tests.checker.machine_study import truth_of
from tests.checker.machine_text import judged
from tests.checker.random_machines import Drawn

from treadle.machine.parse import parse_machine

TEXT = """tdm 1
target cpu:avx2
program {
  program rows
    dim M
    dim N
    tensor X: f32[M]
    tensor Z: f32[N]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: f32[m] = load X[m]
        %a: f32[m] = abs %x
        store Y[m] = %a
}
guard {
  disjoint(X, Y)
  injective(Y)
}
host {
  launch main grid 1 threads 1
}
kernel main {
  frag x f32[]
  frag a f32[]
  frag q i64[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
LINE      x = load X[t] ; %x[t]
      a = abs x ; %a[t]
      store Y[t] = a ; store 0 [t]
    }
  }
}
"""
INSIDE = "      loop i = 0 .. {} step 1 {{\n        let Q = i // N\n      }}\n"
RIGHT = {
    "at least one": "      let Q = M // max(1, N)\n",
    "below the divisor": INSIDE.format("N"),
    "below a product with it": INSIDE.format("M * N"),
    "under a condition": "      if 1 <= N {\n        let Q = M // N\n      }\n",
}
WRONG = {
    "a name": "      let Q = M // N\n",
    "a value": "      q = index expr M // N\n",
    "a remainder": "      q = index expr M % N\n",
    "a bound": "      loop i = 0 .. M // N step 1 {\n        q = copy 0\n      }\n",
    "a condition": "      q = copy 0 where M // N < 5\n",
    "below another number": INSIDE.format("M"),
}
SIZES = ({"M": 3, "N": 4}, {"M": 3, "N": 0}, {"M": 0, "N": 2})


@pytest.mark.parametrize("name", RIGHT)
def test_divisors_that_are_positive(name: str) -> None:
    text = TEXT.replace("LINE", RIGHT[name])
    verdict = judged(text)
    assert verdict.status == "verified", str(verdict)
    assert truth_of(parse_machine(text), Drawn("divisors", text, SIZES))[0] == "safe"


@pytest.mark.parametrize("name", WRONG)
def test_divisors_that_may_be_zero(name: str) -> None:
    text = TEXT.replace("LINE", WRONG[name])
    verdict = judged(text)
    assert (verdict.status, verdict.judgement) == ("rejected", "J4"), str(verdict)
    assert verdict.counterexample is not None and verdict.counterexample["N"] == 0
    assert truth_of(parse_machine(text), Drawn("divisors", text, SIZES))[0] == "unsafe"
