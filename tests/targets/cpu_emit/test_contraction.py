"""Packed contractions by hand: integer-exact over ragged shapes, and what the inner loop compiles to."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, Guarded, S, assembly, integers, program

from treadle.algebra.expr import Expr, ceildiv, const, lt, minimum, sym
from treadle.dtype.formats import DType, bf16, bool_, f32, f64, i8, i32
from treadle.ir.guard import Unit
from treadle.machine.form import (
    Body,
    Buffer,
    Compute,
    Frag,
    FragRef,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Store,
    Tasks,
)

UNIT = (Unit("X", 1), Unit("W", 1), Unit("Y", 1))


def loop(var: str, hi: Expr | int, step: int, *body: object, lo: Expr | int = 0, unroll: int = 1) -> Loop:
    low, high = (const(e) if isinstance(e, int) else e for e in (lo, hi))
    return Loop(var=var, lo=low, hi=high, step=const(step), body=list(body), unroll=unroll)


def packed(
    level: str,
    rows: int,
    columns: int,
    *,
    operand: DType = f32,
    result: DType = f32,
    down: int = 2,
    across: int = 2,
    depth: int = 48,
) -> MachineProgram:
    """Y = X W by blocks of (down * rows) x (across * columns) x depth, both operands packed, a scratch for the sums."""
    m_block, n_block = rows * down, columns * across
    tm, tn, k0, ip, jp, kk = (sym(s) for s in ("tm", "tn", "k0", "ip", "jp", "kk"))
    m_dim, n_dim, k_dim = sym("M"), sym("N"), sym("K")
    m0, n0 = tm * m_block, tn * n_block
    k_stop = minimum(k0 + depth, k_dim)
    ka, kb = sym("ka"), sym("kb")
    ia, jb = sym("ia"), sym("jb")
    body: Body = [
        loop(
            "k0",
            k_dim,
            depth,
            loop(
                "jb",
                across,
                1,
                loop(
                    "kb",
                    depth,
                    4,
                    Load(
                        dst="wl",
                        src=MemRef("W", (k0 + kb + S[0], n0 + jb * columns + S[1])),
                        where=(lt(k0 + kb + S[0], k_stop), lt(n0 + jb * columns + S[1], n_dim)),
                        fill=0,
                    ),
                    Compute(dst="w", fn="cast", args=(FragRef("wl"),)),
                    Store(dst=MemRef("bP", (jb, kb + S[0], S[1])), src=FragRef("w")),
                ),
            ),
            loop(
                "ia",
                down,
                1,
                loop(
                    "ka",
                    depth,
                    16,
                    Load(
                        dst="xl",
                        src=MemRef("X", (m0 + ia * rows + S[1], k0 + ka + S[0])),
                        where=(lt(k0 + ka + S[0], k_stop), lt(m0 + ia * rows + S[1], m_dim)),
                        fill=0,
                    ),
                    Compute(dst="x", fn="cast", args=(FragRef("xl"),)),
                    Store(dst=MemRef("aP", (ia, ka + S[0], S[1])), src=FragRef("x")),
                ),
            ),
            loop(
                "jp",
                across,
                1,
                loop(
                    "ip",
                    down,
                    1,
                    Compute(dst="first", fn="index", expr=k0),
                    Load(dst="acc", src=MemRef("cS", (ip * rows + S[0], jp * columns + S[1]))),
                    Compute(dst="fresh", fn="le", args=(FragRef("first"), 0)),
                    Compute(dst="acc", fn="where", args=(FragRef("fresh", ()), 0, FragRef("acc"))),
                    loop(
                        "kk",
                        depth,
                        1,
                        Load(dst="a", src=MemRef("aP", (ip, kk, S[0]))),
                        Load(dst="b", src=MemRef("bP", (jp, kk, S[0]))),
                        Mma(
                            dst="acc",
                            acc=FragRef("acc"),
                            a=FragRef("a", (S[0],)),
                            b=FragRef("b", (S[1],)),
                            atom="fma",
                        ),
                    ),
                    Store(dst=MemRef("cS", (ip * rows + S[0], jp * columns + S[1])), src=FragRef("acc")),
                ),
            ),
        ),
        loop(
            "i",
            m_block,
            1,
            loop(
                "j",
                n_block,
                columns,
                Load(dst="y", src=MemRef("cS", (sym("i"), sym("j") + S[0]))),
                Compute(dst="y", fn="where", args=(FragRef("some", ()), FragRef("y"), 0)),
                Store(
                    dst=MemRef("Y", (m0 + sym("i"), n0 + sym("j") + S[0])),
                    src=FragRef("y"),
                    where=(lt(m0 + sym("i"), m_dim), lt(n0 + sym("j") + S[0], n_dim)),
                ),
            ),
        ),
    ]
    tasks = Tasks(
        vars=("tm", "tn"),
        counts=(ceildiv(m_dim, m_block), ceildiv(n_dim, n_block)),
        over="workers",
        raster=("group", 3),
        body=body,
    )
    frags = [
        Frag("wl", operand, (4, columns)),
        Frag("w", result, (4, columns)),
        Frag("xl", operand, (16, rows)),
        Frag("x", result, (16, rows)),
        Frag("a", result, (rows,)),
        Frag("b", result, (columns,)),
        Frag("acc", result, (rows, columns)),
        Frag("y", result, (columns,)),
        Frag("first", i32, ()),
        Frag("fresh", bool_, ()),
        Frag("some", bool_, ()),
    ]
    buffers = [
        Buffer("aP", result, (const(down), const(depth), const(rows)), "local"),
        Buffer("bP", result, (const(across), const(depth), const(columns)), "local"),
        Buffer("cS", result, (const(m_block), const(n_block)), "local"),
    ]
    # Without a contraction step nothing has written the scratch: a value captured by the tasks says so.
    some: Body = [
        Compute(dst="first", fn="index", expr=k_dim),
        Compute(dst="some", fn="gt", args=(FragRef("first"), 0)),
        tasks,
    ]
    tensors = [("X", operand, "MK"), ("W", operand, "KN"), ("Y", result, "MN")]
    return program(tensors, some, frags, level=level, buffers=buffers, facts=UNIT)


SHAPES = [(28, 64, 48), (1, 1, 1), (29, 65, 49), (5, 31, 100), (64, 100, 7), (28, 64, 0), (0, 3, 4), (113, 130, 97)]


def check(run: Compiled, operand: DType, result: DType, workers: int = 1) -> None:
    rng = np.random.default_rng(5)
    for m, n, k in SHAPES:
        x, w = integers(rng, (m, k), operand), integers(rng, (k, n), operand)
        y = np.full((m, n), 99, result.numpy)
        run(X=x, W=w, Y=y, workers=workers)
        assert (y.astype(np.int64) == x.astype(np.int64) @ w.astype(np.int64)).all(), (m, n, k)


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize(("rows", "columns"), [(14, 32), (8, 48), (6, 16), (5, 20)])
def test_integer_exact_over_ragged_shapes(level: str, rows: int, columns: int) -> None:
    check(Compiled(packed(level, rows, columns)), f32, f32)


@pytest.mark.parametrize(("operand", "result"), [(bf16, f32), (i8, i32), (f64, f64)])
def test_other_operands(operand: DType, result: DType) -> None:
    check(Compiled(packed(HOST_LEVELS[-1], 6, 16, operand=operand, result=result)), operand, result)


def test_two_workers_and_large_buffers_in_the_workspace() -> None:
    run = Compiled(packed(HOST_LEVELS[-1], 14, 32, down=4, across=4, depth=96))
    assert run.emitted.workspace.worker.constant
    check(run, f32, f32, workers=2)


def inner_loops(asm: str, marker: str) -> list[str]:
    """Blocks of the assembly that jump to their own label and contain the marker."""
    blocks = re.split(r"^(\.LBB\S+):", asm, flags=re.MULTILINE)
    found: list[str] = []
    for label, text in zip(blocks[1::2], blocks[2::2]):
        if re.search(rf"j\w+\s+{re.escape(label)}\b", text) and marker in text:
            found.append(text)
    return found


@pytest.mark.parametrize(("rows", "columns"), [(14, 32), (8, 48)])
def test_the_inner_loop_stays_in_registers(rows: int, columns: int) -> None:
    """Assembled only, so it needs no processor that has it."""
    run = packed("avx512", rows, columns, down=4, across=4, depth=96)
    loops = inner_loops(assembly(run), "vfmadd")
    assert loops
    for text in loops:
        body = text.split("\n\tj")[0]
        assert len(re.findall(r"vfmadd\w+ps", body)) % (rows * columns // 16) == 0
        assert "rsp" not in body and "rbp" not in body, "a spill"
        assert not re.search(r"vmovups\s+%zmm\d+,", body), "an accumulator in memory"


def in_place(level: str, rows: int, columns: int) -> MachineProgram:
    """Y = X W by blocks of rows x columns, both operands read where they lie, elements of X one by one."""
    i, j, k = (sym(s) for s in "ijk")
    m_dim, n_dim, k_dim = sym("M"), sym("N"), sym("K")
    inside = (lt(i * rows + S[0], m_dim), lt(j * columns + S[1], n_dim))
    products = loop(
        "k",
        k_dim,
        1,
        Load(dst="a", src=MemRef("X", (i * rows + S[0], k)), where=(lt(i * rows + S[0], m_dim),)),
        Load(dst="b", src=MemRef("W", (k, j * columns + S[0])), where=(lt(j * columns + S[0], n_dim),)),
        Mma(dst="acc", acc=FragRef("acc"), a=FragRef("a", (S[0],)), b=FragRef("b", (S[1],)), atom="fma"),
    )
    store = Store(dst=MemRef("Y", (i * rows + S[0], j * columns + S[1])), src=FragRef("acc"), where=inside)
    block = loop("j", ceildiv(n_dim, columns), 1, Compute(dst="acc", fn="copy", args=(0.0,)), products, store)
    tasks = Tasks(vars=("i",), counts=(ceildiv(m_dim, rows),), over="workers", body=[block])
    frags = [Frag("a", f32, (rows,)), Frag("b", f32, (columns,)), Frag("acc", f32, (rows, columns))]
    return program([("X", f32, "MK"), ("W", f32, "KN"), ("Y", f32, "MN")], [tasks], frags, level=level, facts=UNIT)


@pytest.mark.parametrize("level", HOST_LEVELS)
def test_operands_in_place_are_read_inside_alone(level: str) -> None:
    """Whole blocks, rows that end early, columns that end early, both: none reads or writes beyond its arrays."""
    run, rng = Compiled(in_place(level, 6, 16)), np.random.default_rng(6)
    for m, n, k in [(12, 32, 9), (12, 14, 9), (13, 32, 9), (17, 21, 9), (1, 1, 1), (6, 3, 0), (4, 40, 5)]:
        x, w = integers(rng, (m, k), f32), integers(rng, (k, n), f32)
        for at_end in (True, False):
            guarded = Guarded()
            held = {"X": x, "W": w, "Y": np.full((m, n), 99, np.float32)}
            arrays = {name: guarded.array(values, at_end=at_end) for name, values in held.items()}
            run(X=arrays["X"], W=arrays["W"], Y=arrays["Y"])
            assert (arrays["Y"] == x @ w).all(), (m, n, k)


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (7, 48), (5, 64)])
def test_columns_that_end_early_test_no_row(rows: int, columns: int) -> None:
    """A masked vector is an instruction, a masked element a test: where all rows are inside, none is tested."""
    loops = [text for text in inner_loops(assembly(in_place("avx512", rows, columns)), "vfmadd") if "{z}" in text]
    assert len(loops) == 1
    assert len(re.findall(r"vfmadd\w+ps", loops[0])) == rows * columns // 16
    assert len(re.findall(r"{%k\d} {z}", loops[0])) == columns // 16
    assert len(re.findall(r"\n\tj\w+", loops[0])) == 1
