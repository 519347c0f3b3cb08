"""Division of many slots by one number: the corrections of the text are right to the last bit where they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.targets.cuda_emit.kit import built, small

from treadle.machine.parse import parse_machine
from treadle.math.numpy_ops import NumpyOps
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.emit.prelude import Prelude

F = NDArray[np.float32]
OPS = NumpyOps()
N = 1 << 16


def quotient(a: F, b: F) -> F:
    """As the prelude's `quotient` with the rounded reciprocal."""
    r = np.float32(1) / b
    first = a * r
    return OPS.fma(OPS.fma(b, first, -a), -r, first)


def same(a: F, b: F) -> bool:
    with np.errstate(all="ignore"):
        return bool((quotient(a, b).view(np.int32) == (a / b).view(np.int32)).all())


def test_the_prelude_says_the_same() -> None:
    prelude = Prelude()
    prelude.use("quotient")
    assert "const float first = a * r;\n  return fmaf(fmaf(b, first, -a), -r, first);" in prelude.text()


def test_rounded_right_where_it_is_hard() -> None:
    rng = np.random.default_rng(1)
    top = (1 << 24) - 1
    near_2 = (top - np.arange(300)).astype(np.float32)
    a, b = np.meshgrid(near_2, near_2)
    assert same(a.ravel(), b.ravel())
    over = ((1 << 23) + rng.integers(0, 4096, N)).astype(np.float32)
    assert same(over, (top - rng.integers(0, 4096, N)).astype(np.float32))
    # Dividends next to a divisor times the middle of two neighbours.
    b = rng.integers(1 << 23, 1 << 24, N).astype(np.float32)
    middle = (rng.integers(1 << 24, 1 << 25, N) | 1).astype(np.float64)
    near = np.rint(middle * b / 2.0**25).astype(np.int64)
    inside = (near >= 1 << 23) & (near < top)
    for step in (-1, 0, 1):
        assert same((near + step)[inside].astype(np.float32), b[inside])


def test_rounded_right_over_the_interval() -> None:
    rng = np.random.default_rng(2)
    a = np.ldexp(rng.integers(1 << 23, 1 << 24, N).astype(np.float32), rng.integers(-100, 102, N) - 23)
    b = np.ldexp(rng.integers(1 << 23, 1 << 24, N).astype(np.float32), rng.integers(-20, 20, N) - 23)
    assert same(a * rng.choice(np.array([-1, 1], np.float32), N), b)
    assert same(np.array([0.0, -0.0], np.float32), np.array([3.0, 3.0], np.float32))


FRAGS = """  frag x f32[256] dist (slot 8 axis 0 stride 1, lane 32 axis 0 stride 8)
  frag e f32[256] dist (slot 8 axis 0 stride 1, lane 32 axis 0 stride 8)
  frag y f32[256] dist (slot 8 axis 0 stride 1, lane 32 axis 0 stride 8)
  frag s f32[] dist (lane 32 axis - stride 0)
"""
BODY = "x = load X[0, $0]\n{made}\ns = fold add e axes (0)\ny = div e, s[]\nstore Y[0, $0] = y"


def test_one_test_less_for_what_is_never_below_zero() -> None:
    for made, tests in (("e = exp x", 8), ("e = neg x", 16), ("e = abs x\ne = copy e where $0 < N fill -0.0", 8)):
        text = emit(parse_machine(small(BODY.format(made=made), FRAGS, threads=32))).source
        assert text.count(" not_small(f_e") + text.count(" not_small_below(f_e") == tests


def test_a_sum_that_was_folded_is_not_made_again() -> None:
    made = built(parse_machine(small(BODY.format(made="e = exp x"), FRAGS, threads=32)))
    adds = built(parse_machine(small(BODY.format(made="e = exp x").replace("y = div e, s[]", "y = mul e, s[]"), FRAGS)))
    slow = 8
    assert made.count("FADD") - adds.count("FADD") <= slow


def test_few_instructions() -> None:
    body = "x = load X[0, $0]\ns = fold max x axes (0)\ne = div x, s[]\nstore Y[0, $0] = e"
    made = built(parse_machine(small(body, FRAGS, threads=32)))
    # Tests of both signs; the slow way divides slot by slot.
    assert made.count("VIADDMNMX") == 16
    assert made.count("FCHK") == 8
