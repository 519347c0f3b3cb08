"""Elements of 64 bits in index arithmetic may be any number: what 64 bits do not hold is refused, what they do is right
of the least and the largest, as texts are simulated and as they are compiled. Each wrong text was verified once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from machine_text import judged, text, verified
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled

from treadle.algebra.expr import Expr, Fn, compared, eq, ge, gt, of, sym
from treadle.checker import check
from treadle.evaluate.interpreter import evaluate
from treadle.machine.parse import parse_machine
from treadle.simulate.run import run_schedules
from treadle.targets.cuda.emit.index import Known, Symbols

PROGRAM = """
  program p
    dim M
    tensor X: i64[M]
    tensor Z: i64[M]
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %x: i64[m] = load X[m]
        %z: i64[m] = load Z[m]
        %k: i64[m] = full 5
        SOURCE
        %o: f32[m] = full 1.0
        %p: f32[m] = full 2.0
        %y: f32[m] = where %c, %o, %p
        store Y[m] = %y
"""
GUARD = "  injective(Y)\n  disjoint(X, Y)\n  disjoint(Z, Y)\n  M % 8 == 0"
KERNEL = """
  frag x i64[{shape}]
  frag z i64[{shape}]
  frag y f32[{shape}]
  role worker agents 1 threads 1 {{
    tasks (t < {count}) over workers enters R0(m = {block}) {{
      x = load X[{at}] ; %x[{at}]
      z = load Z[{at}] ; %z[{at}]
      y = copy 1.0 where {condition} fill 2.0 ; %y[{at}]
      store Y[{at}] = y ; store 0 [{at}]
    }}
  }}
"""
FORMS = {
    "one element": {"shape": "", "count": "M", "block": "t .. t + 1", "at": "t"},
    "a vector": {"shape": "8", "count": "M // 8", "block": "8*t .. 8*t + 8", "at": "8*t + $0"},
}
MOST, LEAST = 2**63 - 1, -(2**63)
ENDS = (LEAST, LEAST + 1, -(2**62), -1, 0, 4, 5, 6, 2**62, MOST - 1, MOST)


def whole(condition: str, source: str, form: str, level: str = "avx512") -> str:
    """The text whose slots are 1 where a condition holds; `source` says so by values."""
    slot = "$0" if FORMS[form]["shape"] else ""
    condition = condition.replace("x()", f"x({slot})").replace("z()", f"z({slot})")
    program = PROGRAM.replace("SOURCE", source)
    return text(f"cpu:{level}", program, GUARD, "grid 1 threads 1", KERNEL.format(**FORMS[form], condition=condition))


GREATER = "%c: bool[m] = gt %x, %k"
RIGHT = {
    "x() >= 6": GREATER,
    "x() >= z() + 1": "%c: bool[m] = gt %x, %z",
    "z() + 1 <= x()": "%c: bool[m] = gt %x, %z",
    "x() - z() + 4 >= 5": "%c: bool[m] = gt %x, %z",
    "x() >= z()": "%c: bool[m] = ge %x, %z",
    "x() <= z()": "%c: bool[m] = le %x, %z",
    "x() == z()": "%c: bool[m] = eq %x, %z",
    "min(x() + 1, 7) >= 7": GREATER,
    "max(3 - x(), -3) <= -3": GREATER,
    "x() % 2 == 0, x() >= 6": "%i: i64[m] = full 1\n        %b: i64[m] = and %x, %i\n        %n: i64[m] = full 0\n"
    "        %d: bool[m] = eq %b, %n\n        %e: bool[m] = gt %x, %k\n        %c: bool[m] = and %d, %e",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("condition", RIGHT)
def test_the_order_of_any_two_words(condition: str, form: str) -> None:
    """*Ensures*: simulated and compiled, what the source says of each pair of the least and largest numbers."""
    pairs = [(a, b) for a in ENDS for b in ENDS]
    pairs += [(0, 0)] * (-len(pairs) % 8)
    x, z = (np.array(side, np.int64) for side in zip(*pairs))
    for level in HOST_LEVELS:
        right = whole(condition, RIGHT[condition], form, level)
        verified(right)
        machine = parse_machine(right)
        want: dict[str, Any] = {"X": x, "Z": z, "Y": np.zeros(len(x), np.float32)}
        got = {name: array.copy() for name, array in want.items()}
        evaluate(machine.program, want, {}, extents={"M": len(x)})
        Compiled(machine)(**got)
        assert np.array_equal(got["Y"], want["Y"]), level
        few = slice(None, 16)  # the least with all
        args = {"X": x[few], "Z": z[few], "Y": np.zeros(16, np.float32)}
        assert run_schedules(machine, args, 1, 0, expected={"Y": want["Y"][few]}).right


WRONG = {
    "2*x() >= 11": GREATER,
    "(x() + 1) // 2 >= 4": "%s: i64[m] = full 7\n        %c: bool[m] = ge %x, %s",
    "min(2*x(), 12) >= 12": GREATER,
    "2*x() >= 2*z()": "%c: bool[m] = ge %x, %z",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("condition", WRONG)
def test_what_64_bits_may_not_hold(condition: str, form: str) -> None:
    wrong = whole(condition, WRONG[condition], form)
    verdict = judged(wrong)
    assert verdict.status == "unknown" and verdict.judgement == "J4", str(verdict)
    assert verdict.reason is not None and verdict.reason.startswith("64 bits may not hold")
    verified(wrong.replace("i64", "i32"))


def test_conditions_before_bound_what_is_computed() -> None:
    """Of a word that is known to be small, twice its value is."""
    both = "%n: i64[m] = full 100\n        %a: bool[m] = gt %x, %k\n        %b: bool[m] = lt %x, %n\n"
    source = both + "        %c: bool[m] = and %a, %b"
    for form in FORMS:
        verified(whole("0 <= x(), x() < 100, 2*x() >= 11", source, form))
        assert judged(whole("2*x() >= 11, 0 <= x(), x() < 100", source, form)).judgement == "J4"


@pytest.mark.parametrize("name", ["let", "loop"])
def test_names_for_loaded_numbers_are_loaded_numbers(name: str) -> None:
    named = whole("2*n >= 11", GREATER, "one element")
    if name == "let":
        wrong = named.replace("      y = copy", "      let n = x()\n      y = copy")
    else:
        loop = "      loop n = x() .. min(x() + 1, 9223372036854775807) step 1 {\n"
        wrong = named.replace("      y = copy", loop + "      y = copy")
        wrong = wrong.replace("      store Y[t]", "      }\n      store Y[t]")
    verdict = check(parse_machine(wrong))
    assert verdict.status == "unknown" and verdict.judgement == "J4", str(verdict)


SCALAR = """
  program p
    dim M
    scalar s: i64 = %s
    tensor Y: f32[M] out
    body
      region R0 parallel (m in M)
        %i: i64[] = index %s()
        %j: i64[] = add %i, %i
        %z: i64[] = full 0
        %c: bool[] = gt %j, %z
        %o: f32[m] = full 1.0
        %p: f32[m] = full 2.0
        %y: f32[m] = where %c, %o, %p
        store Y[m] = %y
"""
OF_A_SCALAR = """
  frag y f32[]
  role worker agents 1 threads 1 {
    tasks (t < M) over workers enters R0(m = t .. t + 1) {
      y = copy 1.0 where %s() >= 1 fill 2.0 ; %y[t]
      store Y[t] = y ; store 0 [t]
    }
  }
"""


def test_values_of_a_scalar_of_64_bits_wrap() -> None:
    """Twice 2^62 is negative as a value, as it is not as an index: of 32 bits both are one number."""
    wrong = text("cpu:avx512", SCALAR, "  injective(Y)", "grid 1 threads 1", OF_A_SCALAR)
    assert judged(wrong).status == "unknown"
    verified(wrong.replace("scalar s: i64", "scalar s: i32"))
    verified(wrong.replace("add %i, %i", "minimum %i, %i"))


def element(name: str) -> Expr:
    return of(Fn(name, ()))


def test_comparisons_of_opaque_numbers() -> None:
    """*Ensures*: `compared` says what the constraint does, on numbers whose difference 64 bits do not hold."""
    x, z = element("x"), element("z")
    for fact, how in ((ge(x, z), ">="), (gt(x, z), ">"), (eq(x, z), "==")):
        found = compared(fact)
        assert found is not None and {found[0].name, found[2].name} == {"x", "z"} and found[1] == how
        for a in ENDS:
            for b in ENDS:
                first, second = ({"x": a, "z": b}[f.name] for f in (found[0], found[2]))
                says = {">=": first >= second, ">": first > second, "==": first == second}[how]
                assert says == fact.holds({}, {"x": partial(int, a), "z": partial(int, b)})
    assert all(compared(c) is None for c in (ge(x, z + 2), eq(x, z + 1), ge(x, 0), ge(x * 2, z), ge(x, z + sym("n"))))


def test_cuda_compares_words_as_they_are() -> None:
    """No difference is formed of two words that may be any; of short ones it may be."""
    wide = Symbols(element=lambda f: Known(f.name, LEAST, MOST, 1, True))
    x, z = element("x"), element("z")
    assert wide.condition(gt(x, z)) == "x > z" and wide.condition(ge(x, z)) == "x >= z"
    assert wide.condition(eq(x, z)) in ("x == z", "z == x")
