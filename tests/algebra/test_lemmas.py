"""Lemmas about products and quotients of symbols, and positions as digits: against brute force."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.algebra.expr import Constraint, Expr, Fn, as_expr, eq, ge, le, lt, maximum, minimum, of, sym
from treadle.algebra.lemmas import division_lemmas, divisions, product_lemmas
from treadle.algebra.maps import IndexMap, box, digits, radix
from treadle.algebra.sets import Facts

A, B, C, x, a, b = (sym(s) for s in "ABCxab")
NAMES = "ABCxab"
POINTS = [
    dict(zip(NAMES, p)) for p in product(range(4), range(1, 4), range(1, 3), range(-1, 13, 2), range(-1, 4), range(3))
]
FUNCTIONS = {"div": lambda n, d: n // d, "mod": lambda n, d: n % d}

quotients = st.sampled_from([x // B, x // C, (x // C) // B, (B * a + b) // B, x // (B * C), of(Fn("mod", (x, B)))])
positions = st.sampled_from(
    [
        as_expr(minimum(a, B * a + b)),
        as_expr(maximum(b, A * B)),
        B * a,
        B * a + b,
        B * C * a + C * b,
        B * a + B,
        A * B,
        A * B * C,
        a,
        b,
        A,
        B,
        x,
    ]
)
facts_ = st.builds(
    lambda e, f, k, q: Constraint(e - f - k, q),
    st.one_of(quotients, positions),
    positions,
    st.integers(-1, 1),
    st.booleans(),
)
SIZES = (ge(A, 0), ge(B, 1), ge(C, 1))


def holding(facts: list[Constraint]) -> list[dict[str, int]]:
    return [p for p in POINTS if all(f.holds(p, FUNCTIONS) for f in facts)]


@settings(max_examples=120, deadline=None)
@given(st.lists(facts_, max_size=4), st.one_of(st.none(), facts_))
def test_products(given_: list[Constraint], about: Constraint | None) -> None:
    facts = [*SIZES, ge(a, 0), *given_]
    points = holding(facts)
    for lemma in product_lemmas(about, facts):
        assert all(lemma.holds(p, FUNCTIONS) for p in points), lemma


@settings(max_examples=120, deadline=None)
@given(st.lists(facts_, max_size=4))
def test_divisions(given_: list[Constraint]) -> None:
    facts = [*SIZES, *given_]
    points = holding(facts)
    for atom in divisions(f.expr for f in facts):
        for lemma in division_lemmas(atom, facts, lambda c: all(c.holds(p, FUNCTIONS) for p in points)):
            assert all(lemma.holds(p, FUNCTIONS) for p in points), (atom, lemma)


@settings(max_examples=60, deadline=None)
@given(st.lists(facts_, max_size=3), facts_)
def test_facts_about_quotients_are_sound(given_: list[Constraint], fact: Constraint) -> None:
    facts = Facts([*SIZES, *given_])
    points = holding([*SIZES, *given_])
    assert not (facts.contradictory and points)
    if facts.implies(fact):
        assert all(fact.holds(p, FUNCTIONS) for p in points)


def test_a_minimum_of_a_bound_takes_part_in_products() -> None:
    """`a < min(2, A - 2 x)`, so a row of block `x` is one of A rows of B elements, and an element of it one of A*B."""
    block = Facts([*SIZES, ge(a, 0), lt(a, minimum(2, A - 2 * x)), ge(b, 0), lt(b, B)])
    assert block.implies(lt(B * (a + 2 * x) + b, A * B))
    assert not block.implies(lt(B * (a + 2 * x) + b + 1, A * B))


def test_digits_of_a_position_are_decided() -> None:
    rows = Facts([*SIZES, ge(a, 0), lt(a, A), ge(x, 0), lt(x, A * B)])
    inside = rows.also(ge(x, B * a), lt(x, B * a + B))
    assert inside.equal(x // B, a) and inside.implies(lt(x // B, A))
    assert rows.also(eq(x // B, a), lt(x, B * a)).contradictory
    assert rows.also(eq(x // B, a), ge(x, B * a + B)).contradictory
    assert not rows.also(eq(x // B, a), ge(x, B * a + 1)).contradictory
    assert not rows.also(ge(x // B, a)).equal(x // B, a)
    three = Facts([*SIZES, ge(a, 0), ge(b, 0), lt(b, B), ge(x, 0), lt(x, A * B * C)])
    inside = three.also(ge(x, B * C * a + C * b), lt(x, B * C * a + C * b + C))
    assert inside.equal(x // C, B * a + b) and inside.equal((x // C) // B, a) and inside.implies(lt(a, A))
    assert not three.implies(lt(a, A))


def test_digits_of_a_sum_of_three_are_decided() -> None:
    """`(c*B + a)*C + b` with each digit in its radix, of extents that are only known not to be negative."""
    c = sym("c")
    given_ = Facts([ge(B, 0), ge(C, 0), ge(c, 0), ge(a, 0), lt(a, B), ge(b, 0), lt(b, C)])
    at = (c * B + a) * C + b
    assert given_.equal(at // (B * C), c) and given_.equal(at // C % B, a) and given_.equal(at % C, b)
    wide = Facts([ge(B, 0), ge(C, 0), ge(c, 0), ge(a, 0), lt(a, B + 1), ge(b, 0), lt(b, C)])
    assert not wide.equal(at // (B * C), c)


MAPS = {
    "two digits": IndexMap(("a", "b"), (B * a + b,), box("ab", (A, B))),
    "a row": IndexMap(("b",), (B * sym("r") + b,), (*box("b", (B,)), ge(sym("r"), 0), lt(sym("r"), A))),
    "a column": IndexMap(("a",), (B * a + sym("r"),), (*box("a", (A,)), ge(sym("r"), 0), lt(sym("r"), B))),
    "every position": IndexMap(("a",), (a,), box("a", (A * B,))),
    "a parameter": IndexMap((), (sym("r"),), (ge(sym("r"), 0), lt(sym("r"), A * B))),
    "the last row": IndexMap(("b",), (A * B - B + b,), (*box("b", (B,)), ge(A, 1))),
}
NO_DIGITS = {
    "another radix": IndexMap(("a", "b"), (A * a + b,), box("ab", (A, B))),
    "a digit too many": IndexMap(("a", "b"), (B * a + b,), box("ab", (A, B + 1))),
    "some positions": IndexMap(("a",), (a,), (*box("a", (A * B,)), lt(a, C))),
}


def proves(where: tuple[Constraint, ...], c: Constraint) -> bool:
    return Facts([ge(A, 0), ge(B, 0), *where]).implies(c)


@pytest.mark.parametrize("name", MAPS)
def test_digits_are_those_of_the_positions(name: str) -> None:
    whole = MAPS[name]
    found = digits(whole, 0, (A, B), proves)
    assert found is not None and len(found.outs) == 2
    assert not any(
        len(m) > 1 and s in {*found.dims} for e in found.outs for m, _ in e.terms for y in m for s in of(y).symbols
    )
    for sizes in product(range(4), range(4), range(6)):
        params = dict(zip("ABr", sizes))
        ranges = {d: range(12) for d in (*whole.dims, *found.dims)}
        wanted = {(o[0] // sizes[1], o[0] % sizes[1]) for _, o in whole.points(params, ranges)} if sizes[1] else set()
        assert {o for _, o in found.points(params, ranges)} == wanted if sizes[1] else True


@pytest.mark.parametrize("name", NO_DIGITS)
def test_what_has_no_known_digits(name: str) -> None:
    assert digits(NO_DIGITS[name], 0, (A, B), proves) is None


def test_three_digits_in_the_order_that_positions_show() -> None:
    position: Expr = A * B * x + B * sym("y") + sym("z")
    assert radix(A * B * C, (position,)) == (C, A, B)
    assert radix(A * B * C, (x,)) == () and radix(2 * A, (position,)) == () and radix(A, (position,)) == ()
    whole = IndexMap(("x", "y", "z"), (position,), box("xyz", (C, A, B)))
    found = digits(whole, 0, (C, A, B), lambda where, c: Facts([*SIZES, *where]).implies(c))
    assert found is not None and found.outs == (x, sym("y"), sym("z"))
    assert le(A, B) not in found.where
