"""Positions of orders in symbols: what a hand writes, where facts allow it; else the division stays."""

from __future__ import annotations

import random

import pytest

from treadle.algebra.expr import Expr, Floor, const, eq, ge, lt, maximum, minimum, sym
from treadle.algebra.orders import Grouped, Permuted
from treadle.algebra.positions import factored, settled
from treadle.algebra.sets import Facts

M, N, K, GRID_M, GRID_K, PID, STEP, ROW, COLUMN = map(sym, ("M", "N", "K", "gm", "gk", "pid", "step", "i", "j"))
ROWS, DEPTH = 64, 32


def inside(x: Expr, extent: Expr) -> list:
    return [ge(x, 0), lt(x, extent)]


def blocks(across: Expr) -> Grouped:
    """Blocks of 64 x 32 over a row-major matrix: (block row, block column, row, column) to the position."""
    extents = (GRID_M, across, const(ROWS), const(DEPTH))
    return Grouped(extents, (Permuted(extents, (0, 2, 1, 3)),))


def operand(across: Expr) -> tuple[Expr, list]:
    """The position of an element of a block, and that its coordinates are inside."""
    point = (PID, STEP, ROW, COLUMN)
    digits = [c for x, n in zip(point, (GRID_M, across, const(ROWS), const(DEPTH)), strict=True) for c in inside(x, n)]
    return blocks(across).apply(point), digits


def test_an_operand_of_a_contraction_takes_no_more_than_a_hand_written_offset() -> None:
    """`(pid * 64 + i) * K + (step * 32 + j)`: three products, three sums."""
    position, digits = operand(K // DEPTH)
    facts = Facts([*digits, eq(K - DEPTH * (K // DEPTH), 0), ge(K, 1)])
    found = settled(position, facts)
    hand = (PID * ROWS + ROW) * K + (STEP * DEPTH + COLUMN)
    assert found == hand
    text, count = factored(found)
    assert count <= 6 and "//" not in text and "//" in factored(position)[0]


def test_without_the_fact_the_division_stays() -> None:
    position, digits = operand(K // DEPTH)
    found = settled(position, Facts([*digits, ge(K, 1)]))
    assert any(isinstance(a, Floor) for a in found.atoms()) and "//" in factored(found)[0]
    loose = settled(position, Facts([eq(K - DEPTH * (K // DEPTH), 0), ge(K, 1)]))  # no digit is known to be one
    assert factored(loose)[0].count("//") > factored(found)[0].count("//")


@pytest.mark.parametrize("known", [False, True])
def test_settled_positions_are_equal_wherever_the_facts_hold(known: bool) -> None:
    position, digits = operand(K // DEPTH)
    facts = [*digits, ge(K, 1), *([eq(K - DEPTH * (K // DEPTH), 0)] if known else [])]
    found = settled(position, Facts(facts))
    dice = random.Random(1)
    for _ in range(300):
        gm, gk = dice.randint(1, 5), dice.randint(1, 5)
        env = {"gm": gm, "K": DEPTH * gk + (0 if known else dice.randrange(DEPTH)), "pid": dice.randrange(gm)}
        env |= {"step": dice.randrange(gk), "i": dice.randrange(ROWS), "j": dice.randrange(DEPTH)}
        assert all(f.holds(env) for f in facts)
        assert found.evaluate(env) == position.evaluate(env)
        if known:
            at = (env["pid"] * ROWS + env["i"]) * env["K"] + env["step"] * DEPTH + env["j"]
            assert found.evaluate(env) == at


def random_expr(dice: random.Random, depth: int) -> Expr:
    if depth == 0:
        return dice.choice((M, N, K, ROW, const(dice.randint(-3, 9))))
    a, b = random_expr(dice, depth - 1), random_expr(dice, depth - 1)
    return dice.choice((a + b, a - b, a * b, a // dice.randint(2, 9), minimum(a, b), maximum(a, b)))


def test_factored_text_has_the_value() -> None:
    dice = random.Random(2)
    for _ in range(300):
        e = random_expr(dice, 3)
        text, count = factored(e)
        env = {name: dice.randint(0, 30) for name in ("M", "N", "K", "i")}
        assert eval(text, {"min": min, "max": max}, env) == e.evaluate(env), (text, e)
        assert count == sum(text.count(s) for s in (" + ", " * ", " // ", ", "))
