"""Set questions against brute force: implications, equality, injectivity, covers, over small valuations."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.algebra.expr import Constraint, Expr, Fn, Sym, ceildiv, const, eq, ge, le, lt, maximum, minimum, of, sym
from treadle.algebra.maps import IndexMap, box, joined
from treadle.algebra.sets import (
    Facts,
    Inexpressible,
    Region,
    Relation,
    SetError,
    before,
    complements,
    fresh_budget,
    is_opaque,
)

M, N, i, j, t = (sym(s) for s in ("M", "N", "i", "j", "t"))

affine = st.builds(lambda a, b, c: a * i + b * j + c, st.integers(-3, 3), st.integers(-3, 3), st.integers(-6, 6))
terms = st.one_of(
    affine,
    st.builds(lambda e, d: e // d, affine, st.integers(1, 4)),
    st.builds(lambda a, b: minimum(a, b), affine, affine),
    st.builds(lambda a, b: maximum(a, b), affine, affine),
    st.builds(lambda e, d: e % d, affine, st.integers(2, 4)),
)
constraints = st.builds(lambda e, f, q: Constraint(e - f, q), terms, terms, st.booleans())
BOX = (ge(i, -3), le(i, 3), ge(j, -3), le(j, 3))
POINTS = [{"i": a, "j": b} for a, b in product(range(-3, 4), repeat=2)]


@settings(max_examples=150, deadline=None)
@given(st.lists(constraints, max_size=2), constraints)
def test_implies(given_: list[Constraint], fact: Constraint) -> None:
    facts = Facts(BOX).also(*given_)
    wanted = all(fact.holds(p) for p in POINTS if all(c.holds(p) for c in given_))
    assert facts.implies(fact) == wanted
    case = facts.against(fact)
    assert (case is None) == wanted
    if case is not None:
        point = {"i": case.get("i", 0), "j": case.get("j", 0)}
        assert all(c.holds(point) for c in given_) and not fact.holds(point)


@settings(max_examples=80, deadline=None)
@given(st.lists(constraints, min_size=1, max_size=3))
def test_complements_are_disjoint_and_whole(cs: list[Constraint]) -> None:
    for p in POINTS:
        outside = sum(all(c.holds(p) for c in other) for other in complements(cs))
        assert outside == (0 if all(c.holds(p) for c in cs) else 1)


@settings(max_examples=80, deadline=None)
@given(affine, affine, st.lists(constraints, max_size=1))
def test_relations_are_their_points(a: Expr, b: Expr, where: list[Constraint]) -> None:
    map_ = IndexMap(("i", "j"), (a, b), (*BOX, *where))
    pairs = list(map_.points({}, {"i": range(-3, 4), "j": range(-3, 4)}))
    relation = Relation.of(map_, Facts())
    assert relation.is_injective == (len({out for _, out in pairs}) == len(pairs))
    assert relation.is_empty == (not pairs)
    reached = relation.range()
    listed = Region.nothing(2)
    for _, (x, y) in pairs:
        listed = listed | Region.of(IndexMap((), (const(x), const(y))), Facts())
    assert reached.equals(listed)
    collision = relation.collision()
    assert (collision is None) == relation.is_injective


@settings(max_examples=60, deadline=None)
@given(terms, st.lists(constraints, max_size=2), terms, terms)
def test_whole_extrema_answer_as_split_ones(out: Expr, given_: list[Constraint], a: Expr, b: Expr) -> None:
    """A set has a tuple exactly where one of the conjunctions holds, whichever way minima are read; and what follows
    of whole ones follows."""
    facts, last = Facts(BOX).also(*given_), minimum(a, maximum(b, 2))
    where = (ge(t, out), lt(t, last))
    for under in (facts, facts.unsplit):
        found = Region.of(IndexMap(("t",), (t,), where), under).when(under)
        for p in POINTS:
            if all(c.holds(p) for c in given_):
                holding = sum(all(c.holds(p) for c in conds) for conds in found)
                assert holding == (out.evaluate(p) < last.evaluate(p)), (under.whole_extrema, found, p)
    fact = ge(last, out)
    assert not facts.unsplit.implies(fact) or facts.implies(fact)


def test_whole_extrema_are_one_piece() -> None:
    """What lies behind the least of four ends is one conjunction, not one for each of them."""
    last = minimum(i + N, j + M, i + j, 2 * j)
    facts = Facts((ge(t, maximum(i, j)),))
    behind = IndexMap((), (t,), (ge(t, last),))
    whole = facts.unsplit
    assert Region.of(behind, whole).when(whole) == [(ge(t, last),)]
    assert len(Region.of(behind, facts).when(facts)) > 3
    assert whole.implies(ge(t, i)) and not whole.implies(ge(t, last))
    with pytest.raises(Inexpressible):  # over a tuple's own coordinates there is no parameter
        Region.of(IndexMap(("t",), (t,), (ge(N, minimum(t, M)),)), whole)


def test_blocks_of_any_size_cover_exactly() -> None:
    facts = Facts((ge(M, 0),))
    blocks = IndexMap(
        ("t", "i"), (16 * t + i,), (ge(t, 0), lt(t, ceildiv(M, 16)), *box(["i"], [16]), lt(16 * t + i, M))
    )
    relation, whole = Relation.of(blocks, facts), Region.of(IndexMap(("j",), (j,), box(["j"], [M])), facts)
    assert relation.is_injective and relation.range().equals(whole)
    short = IndexMap(blocks.dims, blocks.outs, (*blocks.where, lt(t, M // 16)))
    assert (whole - Relation.of(short, facts).range()).sample() is not None


def test_products_are_parameters_and_decided_by_lemmas() -> None:
    H, D, h, d = (sym(s) for s in ("H", "D", "h", "d"))
    facts = Facts((ge(H, 0), ge(D, 0), *box(["h", "d"], [H, D])))
    assert facts.implies(ge(D * h + d, 0)) and facts.implies(lt(D * h + d, H * D))
    assert not facts.implies(lt(D * h + d + 1, H * D))
    for sizes in product(range(4), repeat=2):
        for x, y in product(range(sizes[0]), range(sizes[1])):
            assert 0 <= sizes[1] * x + y < sizes[0] * sizes[1]


def test_opaque_functions_are_any_integer_but_the_same_one() -> None:
    f = of(Fn("ids", (i,)))
    facts = Facts((ge(f, 0),))
    assert facts.implies(ge(2 * f, 0)) and not facts.implies(ge(f, 1))
    case = facts.against(ge(f, 1))
    assert case is not None and is_opaque(case)
    with pytest.raises(Inexpressible):
        Relation.of(IndexMap(("i",), (f,), box(["i"], [4])), Facts())


@settings(max_examples=40, deadline=None)
@given(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), st.tuples(st.integers(-2, 2), st.integers(-2, 2)))
def test_before_is_the_lexicographic_order(a: tuple[int, int], b: tuple[int, int]) -> None:
    ways = before([const(x) for x in a], [const(x) for x in b])
    assert sum(all(c.holds({}) for c in way) for way in ways) == (1 if a < b else 0)


def test_facts_are_shared_between_extensions() -> None:
    facts = Facts((ge(N, 1),))
    assert facts.also(ge(N, 0)) is facts  # known already
    assert facts.also(lt(i, N)) is facts.also(lt(i, N))
    assert facts.also(eq(N, 0)).contradictory


def test_a_question_ends_when_its_budget_is_spent() -> None:
    fresh_budget(50)
    with pytest.raises(SetError):
        Facts((ge(M, 0), *box(["i", "j"], [M, M]))).also(eq(3 * i, 5 * j + 1)).implies(ge(7 * i, 11 * j))
    fresh_budget()
    assert Facts((ge(M, 1),)).implies(ge(2 * M, 2))


@settings(max_examples=80, deadline=None)
@given(st.lists(constraints, max_size=2), st.lists(constraints, max_size=2))
def test_when_is_where_the_set_has_a_tuple(given_: list[Constraint], inside: list[Constraint]) -> None:
    facts = Facts(BOX).also(*given_)
    spots = Region.of(IndexMap(("t",), (t,), (ge(t, i), le(t, j), *(c.substitute({"j": t}) for c in inside))), facts)
    try:
        cases = spots.when(facts)
    except Inexpressible:
        return  # isl may describe a set by divisions that it does not show
    for p in POINTS:
        if not all(c.holds(p) for c in given_):
            continue
        some = any(all(c.holds({"i": p["i"], "j": k}) for c in inside) for k in range(p["i"], p["j"] + 1))
        assert sum(all(c.holds(p) for c in case) for case in cases) == some


def test_when_reads_opaque_terms_back() -> None:
    facts = Facts([ge(M, 1), ge(i, 0)])
    (case,) = Region.of(IndexMap((), (i,), (lt(i, M * N),)), facts).when(facts)
    assert case == (lt(i, M * N),)


def test_products_inside_minima_are_not_negative() -> None:
    facts = Facts([ge(M, 0), ge(N, 0), ge(i, minimum(M, 4 * M * N))])
    assert facts.implies(ge(i, 0)) and not facts.implies(ge(i, 1))
    assert not Facts([ge(M, 0), ge(i, minimum(M, 4 * M * N))]).implies(ge(i, 0))


def test_products_with_a_known_symbol_are_no_products() -> None:
    facts = Facts([eq(N, 2), ge(M, 0), lt(i, M * N)])
    assert facts.implies(lt(i, 2 * M)) and facts.equal(M * N, 2 * M) and not facts.implies(lt(i, M))
    reached = Region.of(IndexMap(("t",), (N * t,), (ge(t, 0), lt(t, M))), facts)
    assert reached.equals(Region.of(IndexMap(("t",), (2 * t,), (ge(t, 0), lt(t, M))), facts))


@pytest.mark.parametrize("divisor", [N, N + 1])
def test_quotients_and_remainders_by_symbols(divisor: Expr) -> None:
    facts = Facts([ge(N, 1), ge(i, 0), lt(i, M * N), ge(M, 0)])
    q, r = i // divisor, i % divisor
    assert facts.implies(ge(r, 0)) and facts.implies(lt(r, divisor))
    assert facts.implies(ge(q, 0)) and facts.implies(le(q, i))
    assert facts.implies(lt(i // N, M)) and not facts.implies(lt(i // N, M - 1))
    unknown = Facts([ge(i, 0)])
    assert not unknown.implies(ge(i % N, 0)) and not unknown.implies(ge(i // N, 0))


def test_a_multiple_is_no_known_value() -> None:
    facts = Facts([eq(M % 4, 0), ge(M, 0), ge(N, 0)])
    assert facts.known == {} and not facts.implies(le(M * N, 0))
    assert Facts([eq(3 - M, 0), eq(N, M)]).known == {"M": 3}


A, B, C = sym("A"), sym("B"), sym("C")
a, b, c = sym("a"), sym("b"), sym("c")
POSITIONS = {
    "two digits": IndexMap(("a", "b"), (B * a + b,), box("ab", (A, B))),
    "two digits of some rows": IndexMap(("a", "b"), (B * a + b + 1,), (*box("ab", (A, B)), ge(a, 2), le(a, C))),
    "three digits": IndexMap(("a", "b", "c"), (B * C * a + C * b + c,), box("abc", (A, B, C))),
    "a row of its own": IndexMap(("a", "b"), (B * a + b,), (*box("ab", (A, B)), eq(a, C - 1), lt(b, A))),
    "another coordinate": IndexMap(("a", "b", "c"), (c, B * a + b), box("abc", (A, B, C))),
}
NO_POSITIONS = {
    "a row too short": IndexMap(("a", "b"), (B * a + b,), box("ab", (A, B - 1))),
    "another radix": IndexMap(("a", "b"), (A * a + b,), box("ab", (A, B))),
    "a digit that is used alone": IndexMap(("a", "b"), (B * a + b, b), box("ab", (A, B))),
    "digits that hang together": IndexMap(("a", "b"), (B * a + b,), (*box("ab", (A, B)), le(a, b))),
    "rows without end": IndexMap(("a", "b"), (B * a + b,), (ge(a, 0), *box("b", (B,)))),
    "a digit that is limited more": IndexMap(("a", "b"), (B * a + b,), (*box("ab", (A, B)), ge(b, 1))),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_in_a_mixed_radix_are_one_coordinate(name: str) -> None:
    whole = POSITIONS[name]
    one = joined(whole, lambda _: True)
    assert len(one.dims) < len(whole.dims)
    assert not any(len(m) > 1 and Sym(d) in m for e in one.outs for m, _ in e.terms for d in one.dims)
    for sizes in product(range(4), repeat=3):
        params = dict(zip("ABC", sizes))
        ranges = {d: range(-2, 40) for d in one.dims} if len(one.dims) == 1 else {d: range(-1, 13) for d in "abc"}
        digits = {d: range(4) for d in "abc"}
        assert {o for _, o in whole.points(params, digits)} == {o for _, o in one.points(params, ranges)}


@pytest.mark.parametrize("name", NO_POSITIONS)
def test_what_is_no_such_position_stays(name: str) -> None:
    assert joined(NO_POSITIONS[name], lambda _: True) is NO_POSITIONS[name]


def test_positions_need_a_radix_that_is_not_negative() -> None:
    whole = POSITIONS["two digits"]
    assert joined(whole, lambda _: False) is whole
    some = Facts([ge(B, 0), ge(A, 0), ge(sym("i"), 0), lt(sym("i"), A * B)])
    assert Region.of(IndexMap((), (sym("i"),)), some) <= Region.of(whole, some)
    assert not Region.of(IndexMap((), (sym("i") + 1,)), some) <= Region.of(whole, some)
    with pytest.raises(Inexpressible):
        Region.of(whole, Facts())
