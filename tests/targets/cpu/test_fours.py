"""Products of 8-bit integers by the instruction that takes four contracted coordinates at once: when, and exactly."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.marks import processor
from tests.targets.cpu_emit.kit import Compiled

import treadle as td
from treadle.algebra.expr import const, sym
from treadle.dtype.formats import i8, i32
from treadle.ir.parser import parse_program
from treadle.machine.form import Claim, Frag, FragRef, Invariant, Load, Loop, MemRef, Mma
from treadle.machine.parse import parse_machine
from treadle.plan.facts import contiguous
from treadle.planner.enumerate import choose, realised
from treadle.targets.cpu.contraction import TiledContraction
from treadle.targets.cpu.emit import emit
from treadle.targets.cpu.emit.control import Bodies
from treadle.targets.cpu.emit.errors import EmitUnsupported
from treadle.targets.cpu.emit.fours import shifted
from treadle.targets.cpu.emit.owed import without_sums
from treadle.targets.cpu.emit.pairs import GROUPS
from treadle.targets.cpu.families import families
from treadle.targets.cpu.instructions import CORRECTED, FEATURES
from treadle.targets.cpu.shape import shape_of
from treadle.toolchain.features import FLAGS, LEVELS, require_features

M, N, K = td.dims("M N K")


@td.kernel
def product(X: td.Tensor[M, K, td.i8], W: td.Tensor[K, N, td.i8], Y: td.Out[M, N, td.i32]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=td.i32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc


@processor("avx512_vnni")
@pytest.mark.parametrize("k", [0, 1, 3, 4, 5, 33, 400])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 16), (6, 65), (17, 63), (70, 130)])
def test_every_byte_times_every_byte(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m + n + k)
    x = rng.choice(np.array([-128, -127, -1, 0, 1, 127], np.int8), (m, k))
    w = rng.integers(-128, 128, (k, n)).astype(np.int8)
    x[:, ::2], w[::2] = -128, -128
    y = np.zeros((m, n), np.int32)
    product(x, w, y)
    assert np.array_equal(y, x.astype(np.int32) @ w.astype(np.int32))


@td.kernel
def both(X: td.Tensor[M, K, td.i8], W: td.Tensor[K, N, td.i8], V: td.Tensor[K, N, td.i8], Y: td.Out[M, N, td.i32]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=td.i32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
            acc = td.mma(X[m, k], V[k, n], acc)
        Y[m, n] = acc


@td.kernel
def turned(X: td.Tensor[K, M, td.i8], W: td.Tensor[N, K, td.i8], Y: td.Out[N, M, td.i32]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=td.i32)
        for k in td.reduce(K):
            acc = td.mma(X[k, m], W[n, k], acc)
        Y[n, m] = acc


def extreme(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Bytes at the ends of their range, half of them."""
    return np.where(rng.random(shape) < 0.5, rng.choice([-128, 127], shape), rng.integers(-128, 128, shape)).astype(
        np.int8
    )


@processor("avx512_vnni")
def test_packed_products_are_exact_however_they_are_blocked() -> None:
    rng = np.random.default_rng(7)
    m, n, k = 150, 200, 1603
    x, w, v = extreme(rng, m, k), extreme(rng, k, n), extreme(rng, k, n)
    wide = [a.astype(np.int32) for a in (x, w, v)]
    y = np.zeros((m, n), np.int32)
    for run, args, want in (
        (product, (x, w), wide[0] @ wide[1]),
        (both, (x, w, v), wide[0] @ (wide[1] + wide[2])),
        (turned, (np.ascontiguousarray(x.T), np.ascontiguousarray(w.T)), (wide[0] @ wide[1]).T),
    ):
        y = np.zeros(want.shape, np.int32)
        assert run.plan(*args, y).decisions.point["atom"] == "dpbssd"
        run(*args, y)
        assert np.array_equal(y, want), run.name


def innermost(text: str, least: int) -> list[str]:
    """The blocks of a text that branch back to where they began and have at least so many products."""
    found: list[str] = []
    for block in re.split(r"\n(?=[\w.]+:)", text):
        if block.count("vpdpbusd") >= least:
            found.append(block)
    return found


@processor("avx512_vnni")
def test_what_a_sum_owes_is_not_in_the_loop_of_its_products() -> None:
    x, w, y = np.zeros((512, 1024), np.int8), np.zeros((1024, 512), np.int8), np.zeros((512, 512), np.int32)
    plan = product.plan(x, w, y)
    rows, columns = next(f.shape for f in parse_machine(plan.machine()).kernels[0].frags if f.name.startswith("acc"))
    vectors = columns // 16
    (loop,) = innermost(plan.source(), rows * vectors)
    assert loop.count("vpdpbusd") == rows * vectors, "a product for each vector of sums, and no more"
    assert not re.search(r"= (sub|xor) ", loop), loop


@processor("avx512_vnni")
def test_factors_loaded_before_the_loop_of_their_products_owe_what_they_are_then() -> None:
    """Nothing is summed ahead of the loops around from factors that these load."""
    x, w, y = np.zeros((512, 1024), np.int8), np.zeros((1024, 512), np.int8), np.zeros((512, 512), np.int32)
    text = product.plan(x, w, y).machine()
    factor = re.findall(r"mma dpbssd \w+\[[^]]*\], (\w+)\[", text)[0]
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if re.match(rf"\s*{factor} = load b__", line))
    loops = [i for i, line in enumerate(lines[:at]) if line.lstrip().startswith("loop ")][-2:]
    # Of at most four bytes the first group is all there is, for both loops over the depth.
    load, moved = re.subn(r"\d+\*k0 \+ k_\d+", "0", lines.pop(at).partition(" ;")[0])
    assert moved == 1 and "loop k0 " in lines[loops[0]]
    lines.insert(loops[0], load)
    run = Compiled(parse_machine("\n".join(lines) + "\n"), features=LEVELS["avx512"] | {"avx512_vnni"})
    rng = np.random.default_rng(1)
    for m, n, k in ((13, 200, 4), (40, 130, 3)):
        x, w, y = extreme(rng, m, k), extreme(rng, k, n), np.zeros((m, n), np.int32)
        run(X=x, W=w, Y=y)
        assert np.array_equal(y, x.astype(np.int32) @ w.astype(np.int32))


@processor("avx512_vnni")
def test_bytes_are_moved_where_they_are_packed_and_only_where_all_that_is_read_is_a_factor() -> None:
    x, w, y = np.zeros((512, 1024), np.int8), np.zeros((1024, 512), np.int8), np.zeros((512, 512), np.int32)
    machine = parse_machine(product.plan(x, w, y).machine())
    factor = next(s.a.name for s in machine.statements() if isinstance(s, Mma))
    buffer = next(s.src.name for s in machine.statements() if isinstance(s, Load) and s.dst == factor)
    assert shifted(machine) == {buffer}
    for stmt in machine.statements():
        if isinstance(stmt, Mma):
            stmt.b = replace(stmt.b, name=factor)
    assert buffer not in shifted(machine), "the same bytes are a signed factor too"


@processor("avx512_vnni")
def test_large_products_use_it_and_are_verified() -> None:
    x, w, y = (np.zeros((256, 256), t) for t in (np.int8, np.int8, np.int32))
    plan = product.plan(x, w, y)
    assert plan.decisions.point["atom"] == "dpbssd" and plan.check().status == "verified", plan.explain()


def test_without_the_feature_it_is_not_tried() -> None:
    x, w, y = (np.zeros((256, 256), t) for t in (np.int8, np.int8, np.int32))
    parsed = parse_program(product.plan(x, w, y).source_program(), "a test")
    facts = contiguous(parsed, "cpu:avx512", dict.fromkeys("MNK", 512), workers=2, features=LEVELS["avx512"])
    with_it = replace(facts, features=facts.features | {"avx512_vnni"})
    without = replace(facts, features=facts.features - {"avx512_vnni"})
    assert choose(parsed, without, families()).plan.point["atom"] == "fma"
    assert choose(parsed, with_it, families()).plan.point["atom"] == "dpbssd"


LIKE = (td.like(td.i8, 256, 256), td.like(td.i8, 256, 256), td.like(td.i32, 256, 256))
BY_LEVEL = (("avx512", "avx512_vnni"), ("neon_dot", "asimddp"))


def test_what_families_offer_is_what_is_emitted() -> None:
    assert GROUPS.keys() == FEATURES.keys() and FLAGS >= CORRECTED.union(*FEATURES.values())
    parsed = parse_program(product.plan(*LIKE, target="cpu:avx512").source_program(), "a test")
    for level, feature in BY_LEVEL:
        have = LEVELS[level] | {feature}
        facts = contiguous(parsed, f"cpu:{level}", dict.fromkeys("MNK", 512), workers=2, features=have)
        plan = choose(parsed, facts, families()).plan
        assert plan.point["atom"] == "dpbssd"
        machine = realised(plan, parsed, facts, families())
        assert feature in require_features(emit(machine, have).text, have)
        with pytest.raises(EmitUnsupported, match="dpbssd without avx512_vnni or asimddp"):
            emit(replace(machine, target="cpu:neon") if level == "neon_dot" else machine, have - {feature})


def test_a_factor_without_a_sign_takes_registers() -> None:
    """What is taken off for an operand in place leaves fewer rows; the instruction of aarch64 needs none."""
    parsed = parse_program(product.plan(*LIKE, target="cpu:avx512").source_program(), "a test")
    family, rows = TiledContraction(), list[list[int]]()
    for level, feature in BY_LEVEL:
        have = LEVELS[level] | {feature}
        facts = contiguous(parsed, f"cpu:{level}", dict.fromkeys("MNK", 512), workers=2, features=have)
        point = {a.name: a.values[0] for a in family.axes(parsed, facts)} | {"atom": "dpbssd"}
        point |= {"columns": 32 if level == "avx512" else 8}
        rows.append([family.block(shape_of(parsed, facts), {**point, "packed": p}).rows for p in (True, False)])
    corrected, signed = rows
    assert corrected[1] < corrected[0] and signed[1] == signed[0]


def test_a_factor_that_iterations_hand_on_is_not_loaded_ahead_of_them() -> None:
    """Summing ahead loads the factors before the loop around: what one held when an iteration began would be lost."""
    i, k, r = sym("$0"), sym("$1"), sym("r")
    load = Load(dst="b", src=MemRef("P", (sym("k"), i, k)))
    step = Mma(dst="c", acc=FragRef("c"), a=FragRef("a", (k,)), b=FragRef("b", (i, k)), atom="dpbssd", contracted=(4,))
    frags = {f.name: f for f in (Frag("a", i8, (4,)), Frag("b", i8, (16, 4)), Frag("c", i32, (16,)))}
    products = Loop(var="k", lo=const(0), hi=sym("K"), step=const(1), body=[load, step])
    around = Loop(var="r", lo=const(0), hi=sym("R"), step=const(1), body=[products])
    assert without_sums(products, around, frags, frozenset("P")) is not None
    kept = Invariant("b", Claim("%b", (r,)))
    assert without_sums(products, replace(around, invariants=(kept,)), frags, frozenset("P")) is None
    inner = replace(products, invariants=(kept,))
    assert without_sums(inner, replace(around, body=[inner]), frags, frozenset("P")) is None


def test_factors_are_summed_ahead_only_of_loops_that_have_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the loop around has none, the packed factors lie nowhere: nothing is loaded then."""
    have = LEVELS["avx512"] | {"avx512_vnni"}
    parsed = parse_program(product.plan(*LIKE, target="cpu:avx512").source_program(), "a test")
    facts = contiguous(parsed, "cpu:avx512", dict.fromkeys("MNK", 512), workers=2, features=have)
    machine = realised(choose(parsed, facts, families()).plan, parsed, facts, families())
    text = emit(machine, have).text
    asked: list[str] = []

    def always(_: Bodies, stmt: Loop, ahead: Callable[[], None]) -> None:
        if stmt.lo.constant is None or stmt.hi.constant is None:
            asked.append(stmt.var)
        ahead()

    monkeypatch.setattr(Bodies, "_where_run", always)
    unasked = emit(machine, have).text
    assert asked and len(re.findall(r"^then", text, re.M)) == len(re.findall(r"^then", unasked, re.M)) + len(asked)
