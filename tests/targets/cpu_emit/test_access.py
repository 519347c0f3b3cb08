"""Moving data: gathers, scatters, transposes, masks of every form, ring buffers, updates that collide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, Guarded, S, assembly, integers, program

from treadle.algebra.expr import Constraint, Expr, Fn, ceildiv, const, eq, floordiv, ge, lt, maximum, minimum, of, sym
from treadle.dtype.formats import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8
from treadle.ir.guard import Unit
from treadle.machine.form import (
    Advance,
    Buffer,
    Compute,
    Frag,
    FragRef,
    If,
    Let,
    Load,
    Loop,
    MemRef,
    Stmt,
    Store,
    Sync,
    Tasks,
)

M, N = sym("M"), sym("N")
LEVEL = HOST_LEVELS[-1]


def loop(var: str, hi: Expr | int, step: int, *body: Any) -> Loop:
    return Loop(var=var, lo=const(0), hi=const(hi) if isinstance(hi, int) else hi, step=const(step), body=list(body))


def fn(name: str, *args: Expr) -> Expr:
    return of(Fn(name, args))


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize("dtype", [f32, f64, bf16, i8, i32, bool_], ids=str)
def test_gather_of_rows_and_of_elements(level: str, dtype: DType) -> None:
    """Y[m, n] = T[ids[m], n] by rows, Z[m] = T[ids[m], cols[m]] by elements."""
    m, n = sym("m"), sym("n")
    rows = loop(
        "m",
        M,
        4,
        Load(dst="ids", src=MemRef("I", (m + S[0],)), where=(lt(m + S[0], M),), fill=0),
        loop(
            "n",
            N,
            16,
            Load(
                dst="t",
                src=MemRef("T", (fn("ids", S[0]), n + S[1])),
                where=(lt(m + S[0], M), lt(n + S[1], N)),
                fill=0,
            ),
            Store(dst=MemRef("Y", (m + S[0], n + S[1])), src=FragRef("t"), where=(lt(m + S[0], M), lt(n + S[1], N))),
        ),
    )
    e = sym("e")
    inside = (lt(e + S[0], M),)
    elements = loop(
        "e",
        M,
        16,
        Load(dst="r", src=MemRef("I", (e + S[0],)), where=inside, fill=0),
        Load(dst="c", src=MemRef("C", (e + S[0],)), where=inside, fill=0),
        Load(dst="z", src=MemRef("T", (fn("r", S[0]), fn("c", S[0]))), where=inside, fill=0),
        Store(dst=MemRef("Z", (e + S[0],)), src=FragRef("z"), where=inside),
    )
    tensors = [("T", dtype, "RN"), ("I", i64, "M"), ("C", i32, "M"), ("Y", dtype, "MN"), ("Z", dtype, "M")]
    frags = [
        Frag("ids", i64, (4,)),
        Frag("t", dtype, (4, 16)),
        Frag("r", i64, (16,)),
        Frag("c", i32, (16,)),
        Frag("z", dtype, (16,)),
    ]
    run = Compiled(program(tensors, [rows, elements], frags, level=level, facts=[Unit("T", 1)]))
    rng, guard = np.random.default_rng(7), Guarded()
    for mm, nn in ((1, 1), (7, 33), (40, 16)):
        t = guard.array(integers(rng, (9, nn), dtype))
        ids, cols = rng.integers(0, 9, mm), rng.integers(0, nn, mm).astype(np.int32)
        y, z = guard.array(np.zeros((mm, nn), dtype.numpy)), guard.array(np.zeros(mm, dtype.numpy))
        run(T=t, I=guard.array(ids), C=guard.array(cols), Y=y, Z=z)
        assert (y == t[ids]).all() and (z == t[ids, cols]).all()


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize("dtype", [f32, f64, bf16, i8], ids=str)
@pytest.mark.parametrize("shape", [(16, 16), (8, 8), (4, 24), (6, 16), (16, 14)])
def test_transposes_in_registers(level: str, dtype: DType, shape: tuple[int, int]) -> None:
    """A fragment [n, m] read from X[m, n] (turned load), written to Z[m, n] (turned store) and Y[n, m] (straight)."""
    m, n = sym("m"), sym("n")
    where = (lt(n + S[0], N), lt(m + S[1], M))
    body = loop(
        "m",
        M,
        shape[1],
        loop(
            "n",
            N,
            shape[0],
            Load(dst="x", src=MemRef("X", (m + S[1], n + S[0])), where=where, fill=0),
            Store(dst=MemRef("Y", (n + S[0], m + S[1])), src=FragRef("x"), where=where),
            Store(dst=MemRef("Z", (m + S[1], n + S[0])), src=FragRef("x"), where=where),
        ),
    )
    tensors = [("X", dtype, "MN"), ("Y", dtype, "NM"), ("Z", dtype, "MN")]
    run = Compiled(program(tensors, [body], [Frag("x", dtype, shape)], level=level, facts=[Unit(t, 1) for t in "XYZ"]))
    rng, guard = np.random.default_rng(8), Guarded()
    for mm, nn in ((1, 1), (16, 16), (37, 21), (3, 50)):
        x = guard.array(integers(rng, (mm, nn), dtype))
        y, z = guard.array(np.zeros((nn, mm), dtype.numpy)), guard.array(np.zeros((mm, nn), dtype.numpy))
        run(X=x, Y=y, Z=z)
        assert (y == x.T).all() and (z == x).all()


WHERE: dict[str, tuple[Constraint, ...]] = {
    "below": (lt(S[0], N - 3),),
    "above": (ge(S[0], minimum(N - 5, const(4))),),
    "between": (ge(S[0], const(3)), lt(S[0], maximum(N - 9, const(5)))),
    "one": (eq(S[0], floordiv(N, 2)),),
    "third": (eq(S[0] % 3, 0),),
    "every other": (ge(2 * S[0], N), lt(3 * S[0], 4 * N)),
    "rows": (lt(sym("m") * 2, M),),
    "nothing": (lt(N, const(0)),),
}


@pytest.mark.parametrize("name", WHERE)
@pytest.mark.parametrize("level", HOST_LEVELS)
def test_masks_of_every_form(name: str, level: str) -> None:
    """Rows of 24: loads with a fill, computations with a fill, stores that leave the rest alone."""
    where = (*WHERE[name], lt(S[0], N))
    m = sym("m")
    body = loop(
        "m",
        M,
        1,
        Load(dst="x", src=MemRef("X", (m, S[0])), where=where, fill=-5.0),
        Store(dst=MemRef("Y", (m, S[0])), src=FragRef("x"), where=(lt(S[0], N),)),
        Load(dst="w", src=MemRef("X", (m, S[0])), where=(lt(S[0], N),), fill=0.0),
        Compute(dst="u", fn="neg", args=(FragRef("w"),), where=where, fill=7.0),
        Store(dst=MemRef("U", (m, S[0])), src=FragRef("u"), where=(lt(S[0], N),)),
        Store(dst=MemRef("V", (m, S[0])), src=FragRef("w"), where=where),
    )
    tensors = [(t, f32, "MN") for t in "XYUV"]
    frags = [Frag(f, f32, (24,)) for f in "xwu"]
    run = Compiled(program(tensors, [body], frags, level=level, facts=[Unit(t, 1) for t in "XYUV"]))
    rng, guard = np.random.default_rng(9), Guarded()
    for rows, columns in ((3, 24), (5, 17), (2, 1)):
        x = guard.array(rng.standard_normal((rows, columns)).astype(np.float32))
        y, u, v = (guard.array(np.full((rows, columns), 3.0, np.float32)) for _ in range(3))
        run(X=x, Y=y, U=u, V=v)
        env = {"$0": np.arange(columns)[None, :], "m": np.arange(rows)[:, None], "M": rows, "N": columns}
        on = np.ones((rows, columns), bool)
        for c in WHERE[name]:
            on &= c.holds(env)
        assert (y == np.where(on, x, -5)).all() and (u == np.where(on, -x, 7)).all() and (v == np.where(on, x, 3)).all()


@pytest.mark.parametrize("lanes", [2, 8, 16])
def test_steps_other_than_one_and_scatter_by_index(lanes: int) -> None:
    """Every third element, backwards, and a store at computed places: by gathers and scatters, few lanes one by one."""
    i = sym("i")
    inside = (lt(i + S[0], N),)
    body = loop(
        "i",
        N,
        lanes,
        Load(dst="x", src=MemRef("X", (3 * (N - 1 - i - S[0]),)), where=inside, fill=0),
        Load(dst="p", src=MemRef("P", (i + S[0],)), where=inside, fill=0),
        Store(dst=MemRef("Y", (fn("p", S[0]),)), src=FragRef("x"), where=inside),
    )
    run = Compiled(
        program(
            [("X", i16, "K"), ("P", i64, "N"), ("Y", i16, "N")],
            [body],
            [Frag("x", i16, (lanes,)), Frag("p", i64, (lanes,))],
            level=LEVEL,
            facts=[Unit("X", 0), Unit("Y", 0)],
        )
    )
    rng, guard = np.random.default_rng(10), Guarded()
    for n in (1, 16, 45):
        x, p = guard.array(integers(rng, (3 * n - 2,), i16)), rng.permutation(n)
        y = guard.array(np.zeros(n, np.int16))
        run(X=x, P=p, Y=y)
        want = np.zeros(n, np.int16)
        want[p] = x[::3][::-1]
        assert (y == want).all()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("dtype", [f32, f64, bf16, f16, i32, u8], ids=str)
def test_updates_that_collide(dtype: DType, workers: int) -> None:
    """Histogram-like sums, maxima and minima: many tasks update few elements."""
    m = sym("m")
    inside = (lt(S[0], N),)

    def update(name: str, effect: str) -> Store:
        return Store(dst=MemRef(name, (fn("p", S[0]),)), src=FragRef("x"), where=inside, effect=effect)

    body = [
        Load(dst="x", src=MemRef("X", (m, S[0])), where=inside, fill=0),
        Load(dst="p", src=MemRef("P", (m, S[0])), where=inside, fill=0),
        update("A", "add"),
        update("B", "max"),
        update("C", "min"),
    ]
    tasks = Tasks(vars=("m",), counts=(M,), over="workers", body=list(body))
    tensors = [("X", dtype, "MN"), ("P", i64, "MN"), *((n, dtype, "R") for n in "ABC")]
    run = Compiled(program(tensors, [tasks], [Frag("x", dtype, (16,)), Frag("p", i64, (16,))], level=LEVEL))
    rng = np.random.default_rng(11)
    x = integers(rng, (60, 11), dtype, limit=1)
    p = rng.integers(0, 3, (60, 11))
    a, b, c = np.zeros(3, dtype.numpy), np.full(3, 0, dtype.numpy), np.full(3, 1, dtype.numpy)
    run(X=x, P=p, A=a, B=b, C=c, workers=workers)
    exact = x.astype(np.int64)
    for r in range(3):
        total = int(exact[p == r].sum())
        assert int(a[r]) == (total % 256 if dtype == u8 else total)
        assert int(b[r]) == max(0, exact[p == r].max()) and int(c[r]) == min(1, exact[p == r].min())


def test_store_masks_and_conditions_from_data() -> None:
    """`mask` of a store, `if` on a scalar fragment, a let that reads a fragment, a scalar parameter as bound."""
    m = sym("m")
    row = [
        Load(dst="x", src=MemRef("X", (m, S[0])), where=(lt(S[0], N),), fill=0),
        Compute(dst="on", fn="gt", args=(FragRef("x"), FragRef("%limit", ()))),
        Load(dst="len", src=MemRef("L", (m,))),
        Let(name="stop", expr=minimum(fn("len"), fn("%most"))),
        Store(
            dst=MemRef("Y", (m, S[0])),
            src=FragRef("x"),
            mask=FragRef("on"),
            where=(lt(S[0], sym("stop")), lt(S[0], N)),
        ),
        Compute(dst="long", fn="ge", args=(FragRef("len", ()), 4)),
        If(cond="long", then=[Store(dst=MemRef("F", (m,)), src=FragRef("one"))]),
        If(conds=(lt(m, const(2)), ge(sym("stop"), const(1))), then=[Store(dst=MemRef("G", (m,)), src=FragRef("one"))]),
    ]
    body: list[Any] = [
        Compute(dst="one", fn="copy", args=(1,)),
        Tasks(vars=("m",), counts=(M,), over="workers", body=list(row)),
    ]
    frags = [Frag("x", f32, (16,)), Frag("on", bool_, (16,)), Frag("len", i32, ()), Frag("long", bool_, ())]
    frags.append(Frag("one", i8, ()))
    tensors = [("X", f32, "MN"), ("L", i32, "M"), ("Y", f32, "MN"), ("F", i8, "M"), ("G", i8, "M")]
    run = Compiled(program(tensors, body, frags, level=LEVEL, scalars=[("limit", f32), ("most", i32)]))
    rng = np.random.default_rng(12)
    x = rng.standard_normal((30, 13)).astype(np.float32)
    length = rng.integers(-2, 15, 30).astype(np.int32)
    y, f, g = np.full((30, 13), 9, np.float32), np.zeros(30, np.int8), np.zeros(30, np.int8)
    run(X=x, L=length, Y=y, F=f, G=g, scalars={"limit": -0.25, "most": 7}, workers=2)
    stop = np.minimum(length, 7)
    on = (x > np.float32(-0.25)) & (np.arange(13) < stop[:, None])
    assert (y == np.where(on, x, 9)).all() and (f == (length >= 4)).all()
    assert (g == ((np.arange(30) < 2) & (stop >= 1))).all()


def test_ring_buffers_and_counters() -> None:
    """A row is kept in one of three slots and used two rows later."""
    m, turn = sym("m"), sym("turn")
    body: list[Any] = [
        loop(
            "m",
            M,
            1,
            Load(dst="x", src=MemRef("X", (m, S[0])), where=(lt(S[0], N),), fill=0),
            Store(dst=MemRef("ring", (S[0],), turn), src=FragRef("x")),
            If(
                conds=(ge(m, const(2)),),
                then=[
                    Load(dst="old", src=MemRef("ring", (S[0],), turn - 2)),
                    Store(dst=MemRef("Y", (m, S[0])), src=FragRef("old"), where=(lt(S[0], N),)),
                ],
            ),
            Advance(counter="turn"),
        )
    ]
    frags = [Frag("x", f32, (16,)), Frag("old", f32, (16,))]
    buffers = [Buffer("ring", f32, (const(16),), "local", versions=3)]
    tensors = [("X", f32, "MN"), ("Y", f32, "MN")]
    run = Compiled(program(tensors, body, frags, level=LEVEL, buffers=buffers, counters=["turn"]))
    x = np.random.default_rng(13).standard_normal((11, 13)).astype(np.float32)
    y = np.zeros_like(x)
    run(X=x, Y=y)
    assert (y[2:] == x[:-2]).all() and (y[:2] == 0).all()


def test_fragments_read_at_places_known_only_at_run_time() -> None:
    """An element and a window at a loop variable: a short loop is written out, else the fragment is an array."""
    body: list[Any] = [
        Load(dst="x", src=MemRef("X", (S[0],))),
        loop(
            "i",
            40,
            1,
            Compute(dst="e", fn="copy", args=(FragRef("x", (sym("i"),)),)),
            Compute(dst="w", fn="copy", args=(FragRef("x", (sym("i") + S[0],)),)),
            Store(dst=MemRef("Y", (sym("i"),)), src=FragRef("e")),
            Store(dst=MemRef("Z", (sym("i"), S[0])), src=FragRef("w")),
        ),
        loop(
            "j",
            N,
            1,
            Compute(dst="e", fn="copy", args=(FragRef("x", (sym("j"),)),)),
            Compute(dst="r", fn="copy", args=(FragRef("x", (sym("j") + 7 - S[0],)),)),
            Store(dst=MemRef("V", (sym("j"),)), src=FragRef("e")),
            Store(dst=MemRef("W", (sym("j"), S[0])), src=FragRef("r")),
        ),
    ]
    frags = [Frag("x", f32, (48,)), Frag("e", f32, ()), Frag("w", f32, (8,)), Frag("r", f32, (8,))]
    tensors = [("X", f32, (48,)), ("Y", f32, (40,)), ("Z", f32, (40, 8)), ("V", f32, "N"), ("W", f32, ("N", 8))]
    for parts in (body[:2], body):
        run = Compiled(program(tensors, parts, frags, level=LEVEL))
        x = np.random.default_rng(14).standard_normal(48).astype(np.float32)
        y, z = np.zeros(40, np.float32), np.zeros((40, 8), np.float32)
        v, w = np.zeros(20, np.float32), np.zeros((20, 8), np.float32)
        run(X=x, Y=y, Z=z, V=v, W=w)
        windows = np.lib.stride_tricks.sliding_window_view(x, 8)
        assert (y == x[:40]).all() and (z == windows[:40]).all()
        if len(parts) == 3:
            assert (v == x[:20]).all() and (w == windows[:20, ::-1]).all()


def test_jobs_one_after_another_with_workspace_between() -> None:
    """Two jobs of tasks: the second reads transposed what all tasks of the first wrote; symbolic buffer sizes."""
    m, n = sym("m"), sym("n")
    first = Tasks(
        vars=("m",),
        counts=(M,),
        over="workers",
        body=[
            loop(
                "i",
                N,
                16,
                Load(dst="x", src=MemRef("X", (m, sym("i") + S[0])), where=(lt(sym("i") + S[0], N),), fill=0),
                Store(dst=MemRef("own", (sym("i") + S[0],)), src=FragRef("x")),
            ),
            loop(
                "k",
                N,
                1,
                Load(dst="e", src=MemRef("own", (N - 1 - sym("k"),))),
                Store(dst=MemRef("T", (sym("k"), m)), src=FragRef("e")),
            ),
        ],
    )
    second = Tasks(
        vars=("n",),
        counts=(ceildiv(N, 2),),
        over="workers",
        raster=("row", "reverse"),
        body=[
            loop(
                "r",
                minimum(2, N - 2 * n),
                1,
                loop(
                    "c",
                    M,
                    16,
                    Load(
                        dst="x",
                        src=MemRef("T", (2 * n + sym("r"), sym("c") + S[0])),
                        where=(lt(sym("c") + S[0], M),),
                        fill=0,
                    ),
                    Store(
                        dst=MemRef("Y", (2 * n + sym("r"), sym("c") + S[0])),
                        src=FragRef("x"),
                        where=(lt(sym("c") + S[0], M),),
                    ),
                ),
            )
        ],
    )
    buffers = [Buffer("own", f32, (16 * ceildiv(sym("columns"), 16),), "local")]
    shared = [Buffer("T", f32, (N, M), "workspace")]
    run = Compiled(
        program(
            [("X", f32, "MN"), ("Y", f32, "NM")],
            [first, second],
            [Frag("x", f32, (16,)), Frag("e", f32, ())],
            level=LEVEL,
            buffers=buffers,
            workspace=shared,
            lets={"columns": N + 0},
        )
    )
    for shape in ((5, 40), (33, 7), (1, 1), (40, 0)):
        x = np.random.default_rng(15).standard_normal(shape).astype(np.float32)
        for workers in (1, 2):
            y = np.zeros(shape[::-1], np.float32)
            run(X=x, Y=y, workers=workers)
            assert (y == x[:, ::-1].T).all()


def test_small_workspace_that_no_task_touches_is_in_the_frame() -> None:
    """A running sum in a buffer of one element, and the same in one that tasks add to: only the second takes memory."""
    i = sym("i")
    read = [Load(dst="s", src=MemRef("total", ())), Load(dst="x", src=MemRef("X", (i,)))]
    add: list[Any] = [*read, Compute(dst="t", fn="add", args=(FragRef("s"), FragRef("x")))]
    step = [*add, Store(dst=MemRef("total", ()), src=FragRef("t")), Store(dst=MemRef("Y", (i,)), src=FragRef("t"))]
    begin = [Compute(dst="s", fn="copy", args=(0.0,)), Store(dst=MemRef("total", ()), src=FragRef("s"))]
    outside: list[Any] = [*begin, loop("i", M, 1, *step)]
    inside: list[Any] = [
        *begin,
        Tasks(vars=("j",), counts=(const(1),), over="workers", body=[loop("i", M, 1, *step)]),
    ]
    for body, size in ((outside, 0), (inside, 256)):
        run = Compiled(
            program(
                [("X", f32, "M"), ("Y", f32, "M")],
                body,
                [Frag(name, f32, ()) for name in "stx"],
                level=LEVEL,
                workspace=[Buffer("total", f32, (), "workspace")],
            )
        )
        assert run.emitted.workspace.bytes({"M": 5}, 2) == size
        x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
        run(X=x, Y=y)
        assert (y == np.cumsum(x)).all()


def test_index_computations() -> None:
    """Index expressions as data: products, floors of negative numbers, minima, per lane and narrow."""
    i = sym("i")
    e = floordiv(7 - 3 * (i + S[0]), 4) + minimum(S[0] * 2, i) - maximum(floordiv(S[0] - 9, N), const(-1)) * S[0]
    inside = (lt(i + S[0], M),)
    body: list[Stmt] = [
        Compute(dst="w", fn="index", expr=e),
        Compute(dst="n", fn="index", expr=e),
        Store(dst=MemRef("Y", (i + S[0],)), src=FragRef("w"), where=inside),
        Store(dst=MemRef("Z", (i + S[0],)), src=FragRef("n"), where=inside),
    ]
    for lanes in (16, 5):
        run = Compiled(
            program(
                [("Y", i64, "M"), ("Z", i8, "M"), ("D", i8, "N")],
                [loop("i", M, lanes, *body)],
                [Frag("w", i64, (lanes,)), Frag("n", i8, (lanes,))],
                level=LEVEL,
            )
        )
        y, z = np.zeros(50, np.int64), np.zeros(50, np.int8)
        run(Y=y, Z=z, D=np.zeros(3, np.int8))
        place = np.arange(50)
        want = e.evaluate({"i": place // lanes * lanes, "$0": place % lanes, "N": 3})
        assert (y == want).all() and (z == want.astype(np.int8)).all()


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize(("dtype", "group"), [(bf16, 2), (i8, 4), (f32, 2), (bool_, 4), (f64, 3)], ids=str)
def test_groups_that_are_interleaved_in_memory(level: str, dtype: DType, group: int) -> None:
    """Rows of X put beside one another in P[k, n, group] (packing for dot products), read back, and read turned."""
    k, n = sym("k"), sym("n")
    inside = (lt(n + S[0], N), lt(group * k + S[1], M))
    pack = loop(
        "k",
        ceildiv(M, group),
        1,
        loop(
            "n",
            N,
            16,
            Load(dst="x", src=MemRef("X", (group * k + S[1], n + S[0])), where=inside, fill=1),
            Store(dst=MemRef("P", (k, n + S[0], S[1])), src=FragRef("x"), where=(lt(n + S[0], N),)),
            Load(dst="b", src=MemRef("P", (k, n + S[0], S[1])), where=inside, fill=1),
            Compute(dst="t", fn="copy", args=(FragRef("b", (S[1], S[0])),)),
            Store(dst=MemRef("Y", (group * k + S[1], n + S[0])), src=FragRef("b"), where=inside),
            Store(
                dst=MemRef("Z", (group * k + S[0], n + S[1])),
                src=FragRef("t"),
                where=(lt(n + S[1], N), lt(group * k + S[0], M)),
            ),
        ),
    )
    g, c, j = sym("g"), sym("c"), sym("j")
    show = loop(
        "g",
        sym("G"),
        1,
        loop(
            "c",
            N,
            1,
            loop(
                "j",
                group,
                1,
                Load(dst="e", src=MemRef("P", (g, c, j))),
                Store(dst=MemRef("Q", (g, c, j)), src=FragRef("e")),
            ),
        ),
    )
    tensors = [("X", dtype, "MN"), ("Q", dtype, ("G", "N", group)), ("Y", dtype, "MN"), ("Z", dtype, "MN")]
    frags = [Frag("x", dtype, (16, group)), Frag("b", dtype, (16, group)), Frag("t", dtype, (group, 16))]
    frags.append(Frag("e", dtype, ()))
    facts = [Unit("X", 1), Unit("Y", 1), Unit("Z", 1)]
    packed = [Buffer("P", dtype, (sym("G"), N, const(group)), "workspace")]
    run = Compiled(program(tensors, [pack, show], frags, level=level, facts=facts, workspace=packed))
    rng, guard = np.random.default_rng(16), Guarded()
    for rows, columns in ((group, 16), (1, 1), (2 * group + 1, 37)):
        x = guard.array(integers(rng, (rows, columns), dtype))
        groups = -(-rows // group)
        p = guard.array(np.zeros((groups, columns, group), dtype.numpy))
        y, z = (guard.array(np.zeros((rows, columns), dtype.numpy)) for _ in range(2))
        run(X=x, Q=p, Y=y, Z=z)
        padded = np.ones((groups * group, columns), dtype.numpy)
        padded[:rows] = x
        assert (p == padded.reshape(groups, group, columns).transpose(0, 2, 1)).all()
        assert (y == x).all() and (z == x).all()


def test_packing_of_pairs_is_a_shuffle() -> None:
    k = sym("k")
    body = loop(
        "k",
        const(4096),
        1,
        Load(dst="x", src=MemRef("X", (2 * k + S[1], S[0]))),
        Store(dst=MemRef("P", (k, S[0], S[1])), src=FragRef("x")),
    )
    packed = [
        Buffer("P", bf16, (const(256), const(16), const(2)), "workspace")
    ]  # too large for the frame, where nobody would read it
    machine = program(
        [("X", bf16, (8192, 16))], [body], [Frag("x", bf16, (16, 2))], facts=[Unit("X", 1)], workspace=packed
    )
    asm = assembly(machine)
    assert "vmovups" in asm or "vmovdqu" in asm
    assert "vpextrw" not in asm and "vpinsrw" not in asm


def test_prefetches_are_hints_that_touch_nothing() -> None:
    """Both levels are in the code, and asking for what lies beyond the memory changes nothing."""
    i = sym("i")
    body = loop(
        "i",
        N,
        16,
        Sync(kind="prefetch", object=MemRef("X", (i + 4096,))),
        Sync(kind="prefetch", object=MemRef("X", (i - 4096,)), args=(("level", const(2)),)),
        Load(dst="x", src=MemRef("X", (i + S[0],)), where=(lt(i + S[0], N),)),
        Store(dst=MemRef("Y", (i + S[0],)), src=FragRef("x"), where=(lt(i + S[0], N),)),
    )
    tensors = [("X", f32, "N"), ("Y", f32, "N")]
    machine = program(tensors, [body], [Frag("x", f32, (16,))], level=LEVEL, facts=[Unit("X", 0), Unit("Y", 0)])
    run = Compiled(machine, asm=True)
    assert "prefetcht0" in run.asm and "prefetcht1" in run.asm
    x = Guarded().array(np.arange(37, dtype=np.float32))
    y = np.zeros(37, np.float32)
    run(X=x, Y=y)
    assert (y == x).all()


def test_a_task_that_is_nested_runs_in_its_worker() -> None:
    """Tasks inside tasks are a loop; a panel raster enumerates every pair once."""
    m, n = sym("m"), sym("n")
    inner = Tasks(
        vars=("n",),
        counts=(N,),
        over="workers",
        body=[
            Load(dst="x", src=MemRef("X", (m, n))),
            Compute(dst="y", fn="add", args=(FragRef("x"), 1)),
            Store(dst=MemRef("X", (m, n)), src=FragRef("y")),
        ],
    )
    pairs = Tasks(
        vars=("p", "q"),
        counts=(M, N),
        over="workers",
        raster=("group", 3, "snake"),
        body=[
            Load(dst="x", src=MemRef("X", (sym("p"), sym("q")))),
            Compute(dst="y", fn="add", args=(FragRef("x"), 10)),
            Store(dst=MemRef("X", (sym("p"), sym("q"))), src=FragRef("y")),
        ],
    )
    outer = Tasks(vars=("m",), counts=(M,), over="workers", body=[inner])
    run = Compiled(program([("X", i32, "MN")], [outer, pairs], [Frag("x", i32, ()), Frag("y", i32, ())], level=LEVEL))
    for shape in ((7, 5), (1, 1), (3, 0), (8, 2)):
        for workers in (1, 2):
            x = np.zeros(shape, np.int32)
            run(X=x, workers=workers)
            assert (x == 11).all()


def test_what_a_let_makes_a_number_is_one() -> None:
    """A list as long as a let says is in the frame of its task; one as long as an axis, in the workspace."""
    i, j, size = sym("i"), sym("j"), sym("L")
    body: list[Any] = [
        Tasks(
            vars=("t",),
            counts=(const(1),),
            over="workers",
            body=[
                loop(
                    "i",
                    size,
                    1,
                    Load(dst="x", src=MemRef("X", (i,))),
                    Store(dst=MemRef("list", (size - 1 - i,)), src=FragRef("x")),
                ),
                loop(
                    "j",
                    size,
                    1,
                    Load(dst="y", src=MemRef("list", (j,))),
                    Store(dst=MemRef("X", (j,)), src=FragRef("y")),
                ),
            ],
        )
    ]
    for lets, need in (({"L": const(8)}, 0), ({"L": sym("H") * 2, "H": const(4)}, 0), ({"L": M}, 2 * 256)):
        made = program(
            [("X", f32, "M")],
            body,
            [Frag("x", f32, ()), Frag("y", f32, ())],
            level=LEVEL,
            buffers=[Buffer("list", f32, (size,), "local")],
            lets=lets,
        )
        run = Compiled(made)
        assert run.emitted.workspace.bytes({"M": 8}, 2) == need
        x = np.arange(8, dtype=np.float32)
        run(X=x)
        assert (x == np.arange(8)[::-1]).all()
