"""Index expressions: the text has the expression's value, lies in its interval, and is divided by its divisor."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.algebra.expr import Constraint, Expr, const, floordiv, maximum, minimum, sym
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
}

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
