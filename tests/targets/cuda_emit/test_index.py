"""Index expressions: the text has the expression's value, lies in its interval, and is divided by its divisor."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.algebra.expr import Constraint, Expr, Fn, const, floordiv, maximum, minimum, of, sym
from treadle.targets.cuda.emit.index import FAR, Symbols, symbol

RANGES = {"a": (0, 40, 1), "b": (-7, 9, 1), "n": (1, 1 << 40, 8), "z": (-FAR, FAR, 1)}
SAMPLES = {"a": [0, 3, 17, 40], "b": [-7, -1, 0, 9], "n": [8, 64, 4096], "z": [-1000, 5, 1 << 33]}


def symbols() -> Symbols:
    return Symbols({name: symbol(name, lo, hi, by) for name, (lo, hi, by) in RANGES.items()})


def python(text: str) -> str:
    """C++ of this emitter as Python: casts away, division of numbers that are not negative as floor division."""
    bare = re.sub(r"\((i64|u32|int)\)", "", text)
    return re.sub(r"(\d)(u|ll)\b", r"\1", bare).replace(" / ", " // ")


NAMES = {
    "least": min,
    "most": max,
    "floor_div": lambda a, b: a // b,
    "floor_mod": lambda a, b: a % b,
    "held_add": lambda a, b: held(a + b),
    "held_sub": lambda a, b: held(a - b),
    "held_times": lambda a, b: held(a * b),
}


def held(number: int) -> int:
    """The nearest number of 64 bits."""
    return max(-(1 << 63), min((1 << 63) - 1, number))


leaves = st.one_of(st.integers(-30, 30).map(const), st.sampled_from(sorted(RANGES)).map(sym))


def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        st.tuples(inner, st.integers(-5, 5)).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 12)).map(lambda p: floordiv(p[0], p[1])),
        st.tuples(inner, st.integers(1, 12)).map(lambda p: p[0] % p[1]),
        pairs.map(lambda p: minimum(*p)),
        pairs.map(lambda p: maximum(*p)),
    )


expressions = st.recursive(leaves, grown, max_leaves=6)


@settings(max_examples=300, deadline=None)
@given(expressions, st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))
def test_the_text_has_the_value(expr: Expr, a: int, b: int, n: int, z: int) -> None:
    env = {"a": SAMPLES["a"][a], "b": SAMPLES["b"][b], "n": SAMPLES["n"][n], "z": SAMPLES["z"][z]}
    known = symbols().text(expr)
    want = expr.evaluate(env)
    assert eval(python(known.text), {**NAMES, **env}) == want, known.text
    assert known.lo <= want <= known.hi
    assert want % known.by == 0 if known.by else want == 0


@settings(max_examples=150, deadline=None)
@given(expressions, st.booleans(), st.integers(0, 3), st.integers(0, 2))
def test_a_condition_holds_when_the_constraint_does(expr: Expr, equality: bool, a: int, n: int) -> None:
    env = {"a": SAMPLES["a"][a], "b": -1, "n": SAMPLES["n"][n], "z": 5}
    fact = Constraint(expr, equality)
    text = symbols().condition(fact)
    if text == "false":
        assert not fact.holds(env)
    else:
        assert (text is None or eval(python(text), {**NAMES, **env})) == fact.holds(env)


def test_arithmetic_is_as_wide_as_it_must_be() -> None:
    found = symbols()
    assert not found.text(sym("a") * 1000 + 7).wide
    assert found.text(sym("a") * (1 << 30)).text == "(i64)1073741824 * a"
    assert found.text(sym("n") + sym("a")).wide


def test_remainders_are_written_as_remainders() -> None:
    found = symbols()
    assert found.text(sym("b") % 4).text == "(b & 3)"
    assert found.text(64 * sym("a") - 64 * floordiv(sym("a"), 8) * 8).text == "64 * (a & 7)"


ANY = (-(1 << 63), -(1 << 63) + 1, -5, 0, 3, 70, (1 << 62) + 1, (1 << 63) - 2, (1 << 63) - 1)


@pytest.mark.parametrize("how", ["least", "blocks", "difference", "many"])
def test_sums_with_any_number_do_not_wrap(how: str) -> None:
    """Where they are compared: each intermediate result is one that 64 bits hold, and decides as the sum does."""
    first, second, a = of(Fn("first", ())), of(Fn("second", ())), sym("a")
    expr = {
        "least": minimum(first - a + 15, 256),
        "blocks": maximum(minimum(floordiv(first - a + 15, 16), sym("n")), 0),
        "difference": maximum(minimum(first - second + a, 256), -256),
        "many": maximum(minimum(3 * first + a - 7, 300), -300),
    }[how]
    found = symbols()
    found.element = lambda fn: symbol(fn.name, -FAR, FAR)
    known = found.text(expr)
    condition = found.condition(Constraint(expr - 5))
    assert condition is not None
    for x, y, b in product(ANY, ANY, SAMPLES["a"]):
        env = {"first": x, "second": y, "a": b, "n": 64}
        names = {**NAMES, **env, "least": smallest, "most": largest}
        want = expr.evaluate(env, {"first": lambda x=x: x, "second": lambda y=y: y})
        assert eval(python(known.text), names) == held(want)
        assert eval(python(condition), names) == (want >= 5)


def smallest(a: int, b: int) -> int:
    """The smaller one of two numbers that 64 bits hold."""
    assert held(a) == a and held(b) == b
    return min(a, b)


def largest(a: int, b: int) -> int:
    """The larger one."""
    assert held(a) == a and held(b) == b
    return max(a, b)
