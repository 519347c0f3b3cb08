"""The NumPy backend's primitives, and that expansions use the primitives as emitters with typed values need them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.math.numpy_ops import NumpyOps, apply
from treadle.math.ops import AnyOps, Ops, polynomial
from treadle.math.table import FUNCTIONS

f32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def rounded(exact: Fraction) -> float:
    """To f32 by integer arithmetic; beyond the largest number infinity."""
    size = abs(exact)
    if size == 0:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, -126) - 23)
    whole, rest = divmod(size, step)
    if 2 * rest > step or (2 * rest == step and whole % 2):
        whole += 1
    value = whole * step
    result = float(value) if value < Fraction(2) ** 128 else float("inf")
    return result if exact > 0 else -result


@given(f32, f32, f32)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    got = apply(lambda o, *v: o.fma(*v), np.float32(a), np.float32(b), np.float32(c))
    assert float(got) == rounded(Fraction(a) * Fraction(b) + Fraction(c))


def test_fma_where_rounding_twice_is_wrong() -> None:
    rng = np.random.default_rng(1)
    a, b = (1 + rng.integers(0, 1 << 23, (2, 1 << 12)) * 2.0**-23).astype(np.float32)
    product = a.astype(np.float64) * b
    # A midpoint of f32 neighbours minus a little: adding c in f64 hides the little.
    middle = (
        product.astype(np.float32).astype(np.float64) + np.spacing(product.astype(np.float32)).astype(np.float64) / 2
    )
    c = (middle * 2.0**30 - product).astype(np.float32)
    got = apply(lambda o, *v: o.fma(*v), a, b, c)
    assert [float(g) for g in got] == [
        rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in zip(a, b, c)
    ]


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 31))
def test_integer_primitives(a: int, b: int, count: int) -> None:
    o = NumpyOps()
    x, y, n = o.const_i32(a), o.const_i32(b), o.const_i32(count)

    def bits(v: np.ndarray) -> int:
        return int(v) & 0xFFFFFFFF

    with np.errstate(all="ignore"):
        assert bits(o.imul(x, y)) == a * b % 2**32 and bits(o.umulhi(x, y)) == a * b >> 32
        assert bits(o.iadd(x, y)) == (a + b) % 2**32 and bits(o.isub(x, y)) == (a - b) % 2**32
        assert bits(o.shl(x, n)) == (a << count) % 2**32 and bits(o.lshr(x, n)) == a >> count
        assert bits(o.ashr(x, n)) == (int(x) >> count) % 2**32


class Kinds:
    """An emitter whose values are the kinds `f`, `i`, `m`: any method fails on an operand of the wrong kind."""

    SIGNATURES = {
        "f f f": "add sub mul div copysign max min",
        "f f f f": "fma",
        "f f": "sqrt neg abs round_even",
        "i f": "float_to_int as_int",
        "f i": "int_to_float as_float",
        "i i i": "iadd isub imul umulhi and_ or_ xor shl lshr ashr",
        "m f f": "lt le gt ge eq ne",
        "m f": "is_nan",
        "m i i": "ieq ilt",
    }

    def __init__(self) -> None:
        self.used: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., str]:
        signature = next(s for s, names in self.SIGNATURES.items() if name in names.split())
        result, *operands = signature.split()

        def method(*values: str) -> str:
            assert list(values) == operands, f"{name} of {values}"
            self.used.append(name)
            return result

        return method

    def const_f32(self, value: float) -> str:
        assert float(np.float32(value)) == value or value != value
        return "f"

    def const_i32(self, value: int) -> str:
        assert -(2**31) <= value < 2**32
        return "i"

    def select(self, mask: str, a: str, b: str) -> str:
        assert mask == "m" and a == b and a in "fi"
        return a

    def rare(self, mask: str, slow: Callable[[], str], fast: str) -> str:
        return self.select(mask, slow(), fast)


@pytest.mark.parametrize("accuracy", ["2ulp", "fast"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_expansions_are_typed_and_short(name: str, accuracy: str) -> None:
    kinds = Kinds()
    function = FUNCTIONS[name]
    assert function.classes[accuracy].expand(kinds, *["f"] * function.arity) == "f"
    assert 0 < len(kinds.used) <= 160


def test_primitives_are_all_there() -> None:
    named = {n for names in Kinds.SIGNATURES.values() for n in names.split()} | {
        "const_f32",
        "const_i32",
        "select",
        "rare",
    }
    protocol = {n for n in {**vars(AnyOps), **vars(Ops)} if not n.startswith("_")}
    assert named == protocol <= set(dir(NumpyOps))


def test_fast_is_shorter_where_it_differs() -> None:
    for function in FUNCTIONS.values():
        counts: list[int] = []
        for accuracy in ("2ulp", "fast"):
            kinds = Kinds()
            function.classes[accuracy].expand(kinds, *["f"] * function.arity)
            counts.append(len(kinds.used))
        assert counts[1] <= counts[0]
        assert (counts[1] < counts[0]) == (function.classes["fast"] is not function.classes["2ulp"])


def test_polynomial_is_horner() -> None:
    x = np.array([0.0, 1.0, 2.0, -3.0], np.float32)
    assert apply(lambda o, v: polynomial(o, v, (5.0, 0.0, 2.0)), x).tolist() == [5.0, 7.0, 13.0, 23.0]
