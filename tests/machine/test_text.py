"""Printing and parsing: hand-written texts and generated programs come back as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from tests.machine.programs import RING, ROWS_SCALAR, ROWS_VECTOR, TEXTS, rows_scalar

from treadle.algebra.expr import Constraint, Expr, Fn, const, floordiv, maximum, minimum, of, sym
from treadle.base.errors import TreadleError
from treadle.dtype.formats import bf16, bool_, f32, i32
from treadle.ir.guard import Absent, Aligned, Bound, Disjoint, Divisible, Guard, Injective, Pitch, Unit
from treadle.machine import form as m
from treadle.machine.expressions import MachineSyntax
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine, statement_lines

NAMES = ("acc", "x", "A", "ring", "k0", "tm", "n", "m.start")
WORDS = st.sampled_from(NAMES)


def _combine(parts: list[Expr], how: str, number: int) -> Expr:
    a, b = parts
    match how:
        case "+":
            return a + b * number
        case "*":
            return a * b
        case "//":
            return floordiv(a, const(abs(number) + 2))
        case "min":
            return minimum(a, b, number)
        case "max":
            return maximum(a, b)
        case _:
            return of(Fn("r3" if number % 2 else "%ids.1", (a, b)[: number % 3]))


LEAVES = st.one_of(
    st.integers(-70, 70).map(const), st.sampled_from(["M", "k0", "$0", "$1", "m.start", "e0", "cta"]).map(sym)
)
EXPRS: st.SearchStrategy[Expr] = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        _combine,
        st.lists(inner, min_size=2, max_size=2),
        st.sampled_from(["+", "*", "//", "min", "max", "fn"]),
        st.integers(-9, 9),
    ),
    max_leaves=6,
)
COORDS = st.lists(EXPRS, max_size=3).map(tuple)
CONSTRAINTS = st.builds(Constraint, EXPRS, st.booleans())
WHERES = st.lists(CONSTRAINTS, max_size=2).map(tuple)
NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-9, 9), st.booleans(), st.floats(allow_nan=False, width=32), st.sampled_from([-0.0, float("-inf")])
)
FILLS = st.one_of(st.just("undef"), NUMBERS)
INSTANCES = st.lists(st.tuples(st.sampled_from(["b", "q.start"]), EXPRS), max_size=2).map(tuple)
FRAGREFS = st.builds(m.FragRef, st.sampled_from(["acc", "x"]), st.none() | COORDS)
MEMREFS = st.builds(m.MemRef, st.sampled_from(["A", "ring"]), COORDS, st.none() | EXPRS)
BARRIERS = st.builds(m.MemRef, st.just("full"), st.just(()), st.none() | EXPRS)


def _claim(value: str, coords: Any, where: Any, bound: Any, over: Any, instance: Any) -> m.Claim:
    return m.Claim(value, coords, where, bound if over is not None else (), over, instance)


CLAIMS = st.one_of(
    st.builds(
        _claim, st.sampled_from(["%4", "%acc.1"]), COORDS, WHERES, st.just(("k",)), st.none() | WHERES, INSTANCES
    ),
    st.builds(m.StoreClaim, st.integers(0, 3), COORDS, INSTANCES),
)
COMMON: dict[str, Any] = {
    "claim": st.none() | CLAIMS,
    "by": st.sampled_from(["", "elect", "warp"]),
    "origin": st.none() | st.integers(1, 99),
    "tags": st.lists(st.sampled_from(["stream", "prefetch"]), max_size=2).map(tuple),
}
STATEMENTS = st.one_of(
    st.builds(m.Load, dst=WORDS, src=MEMREFS, where=WHERES, fill=FILLS, **COMMON),
    st.builds(
        m.Store,
        dst=MEMREFS,
        src=FRAGREFS,
        where=WHERES,
        effect=st.sampled_from(["set", "add"]),
        mask=st.none() | FRAGREFS,
        **COMMON,
    ),
    st.builds(
        m.Compute,
        dst=WORDS,
        fn=st.sampled_from(["add", "cast.saturate", "index"]),
        args=st.lists(st.one_of(FRAGREFS, MEMREFS, NUMBERS), max_size=3).map(tuple),
        expr=st.none() | EXPRS,
        where=WHERES,
        fill=FILLS,
        **COMMON,
    ),
    st.builds(
        m.Fold,
        dst=WORDS,
        monoid=st.sampled_from(["add", "max"]),
        src=FRAGREFS,
        acc=st.none() | FRAGREFS,
        axes=st.sampled_from([(), (1,), (0, 2)]),
        nan=st.sampled_from(["propagate", "ignore"]),
        **COMMON,
    ),
    st.builds(
        m.Mma,
        dst=WORDS,
        acc=st.none() | FRAGREFS,
        a=FRAGREFS | MEMREFS,
        b=FRAGREFS | MEMREFS,
        atom=st.sampled_from(["fma", "wgmma.m64n16k16"]),
        contracted=st.sampled_from([(), (16,), (2, 8)]),
        **COMMON,
    ),
    st.builds(
        m.Copy,
        engine=st.just("tma.load"),
        dst=MEMREFS,
        src=MEMREFS,
        box=st.just((64, 32)),
        signal=st.none() | BARRIERS,
        map=st.sampled_from([None, "mX"]),
        **COMMON,
    ),
    st.builds(
        m.Sync,
        kind=st.sampled_from(["mbar.wait", "fence.proxy.async"]),
        object=st.none() | BARRIERS,
        args=st.lists(st.tuples(st.sampled_from(["phase", "depth"]), EXPRS), max_size=2).map(tuple),
        **COMMON,
    ),
    st.builds(m.Version, buffer=WORDS, fill=FILLS, **COMMON),
    st.builds(m.Let, name=WORDS, expr=EXPRS, **COMMON),
    st.builds(m.Advance, counter=WORDS, **COMMON),
)
BINDS = st.tuples(st.sampled_from(["m", "k"]), st.lists(EXPRS, min_size=1, max_size=2).map(tuple))
ENTERS = st.lists(st.builds(m.Enter, st.just("R0"), st.lists(BINDS, max_size=2).map(tuple)), max_size=2).map(tuple)
INVARIANTS = st.lists(
    st.builds(m.Invariant, WORDS, CLAIMS.filter(lambda c: isinstance(c, m.Claim)), st.none() | FILLS), max_size=2
).map(tuple)


def _controls(bodies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    origin = st.none() | st.integers(1, 99)
    return st.one_of(
        st.builds(
            m.Tasks,
            vars=st.just(("tm", "tn")),
            counts=st.tuples(EXPRS, EXPRS),
            over=st.just("persistent"),
            raster=st.sampled_from([("row",), ("group", 4, "snake")]),
            enters=ENTERS,
            body=bodies,
            origin=origin,
        ),
        st.builds(
            m.Loop,
            var=WORDS,
            lo=EXPRS,
            hi=EXPRS,
            step=EXPRS,
            enters=ENTERS,
            invariants=INVARIANTS,
            body=bodies,
            unroll=st.sampled_from([1, 4]),
            origin=origin,
        ),
        st.builds(
            m.If,
            conds=WHERES,
            cond=st.sampled_from([None, "x"]),
            source=st.none() | st.just(2),
            scope=st.sampled_from(["agent", "workgroup"]),
            then=bodies,
            orelse=bodies,
            origin=origin,
        ),
    )


BODIES = st.recursive(
    st.lists(STATEMENTS, max_size=2),
    lambda inner: st.lists(st.one_of(STATEMENTS, _controls(inner)), max_size=3),
    max_leaves=4,
)
FACTS = st.one_of(
    st.builds(Divisible, EXPRS, st.just(128)),
    st.builds(Bound, CONSTRAINTS),
    st.sampled_from(
        [Aligned("X", 16), Pitch("X", 0, 8), Unit("X", 1), Disjoint("X", "Y"), Injective("Y"), Absent("X")]
    ),
)


@st.composite
def programs(draw: st.DrawFn) -> m.MachineProgram:
    role = m.Role(
        "consumer",
        2,
        128,
        draw(BODIES),
        draw(st.sampled_from([None, "c"])),
        draw(st.sampled_from([None, 232])),
        draw(st.sampled_from([(), ("n", "q")])),
    )
    dist = (m.Mode("slot", 2, 1, 1), m.Mode("lane", 4, None, 0), m.Mode("warp", 4, 0, 16))
    kernel = m.Kernel(
        "main",
        [role],
        [m.Frag("acc", f32, (64, 2), dist), m.Frag("x", bool_, (), place="tile")],
        [
            m.Buffer("A", bf16, (draw(EXPRS), const(64)), "shared", 1024, 4, 128, draw(EXPRS)),
            m.Buffer("ring", i32, (), "local"),
        ],
        [m.Barrier("full", 1, 4, draw(st.booleans()), 64)],
    )
    host = m.Host(
        {"MT": draw(EXPRS)},
        [m.Buffer("T", f32, (draw(EXPRS),), "workspace")],
        [m.TensorMap("mX", "X", bf16, (64, 32), 64)],
        [m.Launch("main", draw(EXPRS), 128, draw(st.sampled_from([1, 2])), draw(st.booleans()), 1024)],
    )
    guard = Guard(tuple(draw(st.lists(FACTS, max_size=3))))
    numerics = ('regroup "sum"',) if draw(st.booleans()) else ()
    return m.MachineProgram("cuda:sm_90a", rows_scalar().program, guard, host, [kernel], numerics)


@settings(max_examples=60, deadline=None)
@given(programs())
def test_generated_programs_come_back(program: m.MachineProgram) -> None:
    text = print_machine(program)
    again = parse_machine(text)
    assert print_machine(again) == text
    assert again.guard == program.guard
    assert again.kernels == program.kernels
    assert again.host == program.host


@pytest.mark.parametrize("name", TEXTS)
def test_texts_by_hand_come_back(name: str) -> None:
    text = print_machine(parse_machine(TEXTS[name]))
    assert print_machine(parse_machine(text)) == text


def test_the_printed_form(snapshot: SnapshotAssertion) -> None:
    assert print_machine(parse_machine(RING)) == snapshot


def test_lines_are_those_of_the_text() -> None:
    program = parse_machine(RING)
    shown = print_machine(program).splitlines()
    lines = statement_lines(program)
    waits = [s for s in program.statements() if isinstance(s, m.Sync) and s.kind == "wgmma.wait"]
    assert len(waits) == 1
    assert shown[lines[id(waits[0])] - 1].strip() == "sync wgmma.wait (depth = 0)"
    assert len({lines[id(s)] for s in program.statements()}) == len(list(program.statements()))


WRONG = {
    "version": ("tdm 1", "tdm 2"),
    "missing brace": ("host {", "host"),
    "unknown word": ("host {\n", "host {\n  lett x = 1\n"),
    "bad expression": ("loop i = 0 .. N step 1", "loop i = 0 .. N + step 1"),
    "no relation": ("n < i", "n i"),
    "bad dtype": ("frag x f32[]", "frag x f33[]"),
    "unfinished line": ("store Y[m, k] = y", "store Y[m, k] ="),
    "comparison twice": ("  1 <= M\n", "  1 <= M, 1 <= N\n"),
    "cut off": ("    }\n  }\n}\n", "    }\n"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_texts(name: str, snapshot: SnapshotAssertion) -> None:
    old, new = WRONG[name]
    assert old in ROWS_SCALAR
    with pytest.raises(MachineSyntax) as caught:
        parse_machine(ROWS_SCALAR.replace(old, new))
    assert str(caught.value) == snapshot


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1" * 5000, "5000 digits"),
        ("0x1p99999", "a number that a float holds"),
        ("(" * 400 + "1" + ")" * 400, "nested too deeply"),
    ],
    ids=["long", "large", "deep"],
)
def test_numbers_beyond_all_measure_are_refused(value: str, said: str) -> None:
    assert "fill -inf" in ROWS_VECTOR and "depth = 0" in RING
    text = RING.replace("depth = 0", f"depth = {value}", 1)
    if value.startswith("0x"):
        text = ROWS_VECTOR.replace("fill -inf", f"fill {value}", 1)
    with pytest.raises(TreadleError, match=said):
        parse_machine(text)


def test_nan_is_an_argument() -> None:
    assert "t = copy -inf" in ROWS_VECTOR
    text = ROWS_VECTOR.replace("t = copy -inf", "t = copy nan", 1)
    printed = print_machine(parse_machine(text))
    assert "t = copy nan" in printed and print_machine(parse_machine(printed)) == printed
