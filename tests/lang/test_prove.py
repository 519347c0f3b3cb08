"""The prover never proves what is false, and proves what subscripts need."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.algebra.expr import Constraint, Expr, const, floordiv, maximum, minimum, sym
from treadle.algebra.expr_text import parse_constraint, parse_expr
from treadle.lang.prove import prove_nonneg

NAMES = ("a", "b", "c")


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([sym(n) for n in NAMES]) | st.integers(-3, 3).map(const)

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pairs = st.tuples(inner, inner)
        return (
            pairs.map(lambda p: p[0] + p[1])
            | pairs.map(lambda p: p[0] - p[1])
            | pairs.map(lambda p: minimum(*p))
            | pairs.map(lambda p: maximum(*p))
            | st.tuples(inner, st.integers(1, 3)).map(lambda p: floordiv(*p))
            | pairs.map(lambda p: p[0] * p[1])
        )

    return st.recursive(leaves, grow, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(expressions(), st.lists(expressions(), max_size=3))
def test_a_proof_is_true(goal, facts):
    if not prove_nonneg(goal, [Constraint(f) for f in facts]):
        return
    for values in itertools.product(range(-3, 4), repeat=len(NAMES)):
        env = dict(zip(NAMES, values))
        if all(f.evaluate(env) >= 0 for f in facts):
            assert goal.evaluate(env) >= 0, env


@settings(max_examples=100, deadline=None)
@given(expressions())
def test_expressions_read_back(expr):
    assert parse_expr(str(expr)) == expr
    assert parse_constraint(str(Constraint(expr))) == Constraint(expr)
    assert parse_constraint(str(Constraint(expr, True))) == Constraint(expr, True)


@pytest.mark.parametrize(
    ("goal", "facts"),
    [
        ("M - 1 - i", ["i >= 0", "i < M"]),
        ("M - m.stop", ["m.start >= 0", "m.stop <= M"]),
        ("M - min(M, q)", []),
        ("min(M, q) - 1", ["M > 0", "q > 2"]),
        ("q - max(0, q - 5)", ["q >= 0"]),
        ("N - 1 - i // 4", ["i >= 0", "i < 4*N"]),
        ("S - 1 - (t % S)", []),
        ("P - 1 - t // S", ["t >= 0", "t < P*S"]),
        ("K - 128*(K // 128)", []),
        ("E - e - 1", ["E == E1 - 1", "e < E1 - 1"]),
        ("M*N", ["M >= 0", "N >= 0"]),
    ],
)
def test_proofs_that_are_needed(goal, facts):
    assert prove_nonneg(parse_expr(goal), [parse_constraint(f) for f in facts])
