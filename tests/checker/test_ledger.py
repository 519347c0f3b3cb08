"""The ledger (J6): what statements spend is granted and in the verdict, and no line says what no statement does."""

from __future__ import annotations

import pytest
from machine_text import judged, refused, text

from treadle.checker import check
from treadle.machine import form as f
from treadle.machine.parse import parse_machine

SUM = text(
    "cpu:avx512",
    """
  program p
    numerics contract = true
    dim M
    tensor X: f32[M]
    tensor W: f32[M]
    tensor Y: f32[] out
    body
      %x: f32[M] = load X[M]
      %w: f32[M] = load W[M]
      %e: f32[M] = exp %x
      %p: f32[M] = mul %e, %w
      %s: f32[] = reduce add %p over M
      store Y[] = %s
""",
    "  disjoint(X, Y)\n  disjoint(W, Y)\n  M % 4 == 0",
    "grid 1 threads 1",
    """
  frag x f32[4]
  frag w f32[4]
  frag e f32[4]
  frag p f32[4]
  frag s f32[]
  role worker agents 1 threads 1 {
    s = copy -0.0 ; %s[] over (c) : 0 <= c, c < 0
    loop i = 0 .. M step 4 {
      invariant s ; %s[] over (c) : 0 <= c, c < i
      x = load X[i + $0] ; %x[i + $0]
      w = load W[i + $0] ; %w[i + $0]
      e = exp x ; %e[i + $0]
      p = mul e, w ; %p[i + $0]
      s = fold add p axes (0) onto s ; %s[] over (c) : 0 <= c, c < i + 4
    }
    store Y[] = s ; store 0 []
  }
""",
)
ONE = SUM.replace("[4]", "[1]").replace("step 4", "step 1").replace("i + 4", "i + 1").replace("  M % 4 == 0\n", "")
STEP = "      s = fold add p axes (0) onto s ; %s[] over (c) : 0 <= c, c < i + 4\n"
EXACT = SUM.replace("f32", "i32").replace("e = exp x ; %e", "e = neg x ; %e").replace("= exp %x", "= neg %x")
EXACT = EXACT.replace("copy -0.0", "copy 0")


def line(entry: str) -> str:
    return f'numerics "{entry}"\nprogram {{'


def test_what_is_spent_is_in_the_verdict_with_and_without_a_line() -> None:
    assert judged(SUM).permissions == ("regroup",)
    noted = judged(SUM.replace("program {", line("regroup: four at a time"), 1))
    assert (noted.status, noted.permissions) == ("verified", ("regroup",)), str(noted)


def test_exact_folds_spend_nothing() -> None:
    assert judged(EXACT).permissions == ()


# (what is wrong, the text, the line)
LINES: list[tuple[str, str, str]] = [
    ("no product is fused", SUM, "contract: products and sums as one"),
    ("no atom flushes", SUM, "mma_subnormals: atoms flush"),
    ("integers are not regrouped", EXACT, "regroup: four at a time"),
    ("a function that the program has not", SUM, "functions: tanh by the hardware's instruction (1 ulp)"),
]


@pytest.mark.parametrize("case", LINES, ids=[c[0] for c in LINES])
def test_lines_that_nothing_spends_are_refused(case: tuple[str, str, str]) -> None:
    _, right, entry = case
    verdict = refused(right, "program {", line(entry), "J6", "rejected")
    assert entry in verdict.reason


def test_functions_that_the_program_has_may_be_the_hardwares() -> None:
    entry = "functions: exp by the hardware's ex2 (1 ulp)"
    noted = judged(SUM.replace("program {", line(entry), 1))
    assert noted.status == "verified" and "functions" in noted.permissions, str(noted)
    exact = SUM.replace("numerics contract = true", 'numerics functions = "exact"')
    refused(exact, "program {", line(entry), "J6", "rejected")


def test_a_regrouped_fold_under_an_order_is_refused() -> None:
    ordered = SUM.replace("reduce add %p over M", "reduce add %p over M order fold_left")
    verdict = judged(ordered)
    assert verdict.status != "verified" and verdict.judgement == "J6", str(verdict)


def claims_of(program: f.MachineProgram) -> list[f.Stmt]:
    return [s for s in program.statements() if isinstance(s, f.Stmt) and s.claim is not None]


@pytest.mark.parametrize("number", range(len(claims_of(parse_machine(SUM)))))
def test_a_claim_that_is_dropped_never_makes_a_text_more_right(number: int) -> None:
    """Claims are evidence: without one a right text is verified or unknown, a wrong one never verified."""
    program = parse_machine(SUM)
    claims_of(program)[number].claim = None
    assert check(program).status in ("verified", "unknown", "rejected")
    wrong = parse_machine(SUM.replace("load W[i + $0] ; %w[i + $0]", "load W[i] ; %w[i + $0]"))
    claims_of(wrong)[number].claim = None
    assert check(wrong).status != "verified"
