"""More machine programs written by hand: workspace, recurrences, gathers, loaded ranges, conditions, tiles, AMX
shapes."""

from __future__ import annotations

from machines import S0, S1, S2, block, claim, each, full, machine, part, ref, tensor
from machines import at as index

from treadle.algebra.dims import dim
from treadle.algebra.expr import Constraint, Expr, Fn, ceildiv, const, eq, ge, le, lt, maximum, minimum, of, sym
from treadle.dtype.formats import bf16, bool_, f32, i64
from treadle.ir.builder import Builder
from treadle.ir.core import Block, Program, Sub
from treadle.machine import form as f

M, N, K = sym("M"), sym("N"), sym("K")


def scalars(*names: str) -> list[f.Frag]:
    return [f.Frag(n, f32, ()) for n in names]


def two_regions() -> f.MachineProgram:
    """`T[m, n] = X[m, n] * 2` assembled in parallel; then `Y[n, m] = T[m, n] - T[m, 0]`: a workspace between two
    forks."""
    dm, dn = dim("M"), dim("N")
    X, Y = tensor("X", f32, dm, dn), tensor("Y", f32, dn, dm, out=True)
    b = Builder()
    empty = full(b, None, f32, dm.whole(), dn.whole())
    two = full(b, 2.0, f32)
    with b.region("parallel", [block("m", dm), block("n", dn)], [empty], name="R0") as r:
        m, n = (a.part for a in r.args)
        x = b.load(X, [part(m), part(n)])
        d = b.elementwise("mul", x, two)
        r.body.yields = [b.insert(r.carried[0], [part(m), part(n)], d)]
    t = r.results[0]
    with b.region("parallel", [each("q", dm)], name="R1") as q:
        row = b.extract(t, [index(q.args[0].index), part(dn.whole())])
        first = b.extract(t, [index(q.args[0].index), index(const(0))])
        y = b.elementwise("sub", row, first)
        b.store(Y, [part(dn.whole()), index(q.args[0].index)], y)
    program = Program("two", [dm, dn], [X, Y], [], b.block)
    tm, tn, qq, j = (sym(s) for s in ("tm", "tn", "qq", "j"))
    inside = (lt(8 * tm + S0, M), lt(16 * tn + S1, N))
    body: f.Body = [
        f.Version(buffer="T", claim=claim(t, S0, S1)),
        f.Tasks(
            vars=("tm", "tn"),
            counts=(ceildiv(M, 8), ceildiv(N, 16)),
            over="workers",
            enters=(
                f.Enter("R0", (("m", (8 * tm, minimum(8 * tm + 8, M))), ("n", (16 * tn, minimum(16 * tn + 16, N))))),
            ),
            body=[
                f.Load(
                    dst="x",
                    src=f.MemRef("X", (8 * tm + S0, 16 * tn + S1)),
                    where=inside,
                    claim=claim(x, 8 * tm + S0, 16 * tn + S1, where=inside),
                ),
                f.Compute(dst="d", fn="mul", args=(ref("x"), 2.0)),
                f.Store(dst=f.MemRef("T", (8 * tm + S0, 16 * tn + S1)), src=ref("d"), where=inside),
            ],
        ),
        f.Tasks(
            vars=("qq",),
            counts=(M,),
            over="workers",
            enters=(f.Enter("R1", (("q", (qq,)),)),),
            body=[
                f.Loop(
                    var="j",
                    lo=const(0),
                    hi=N,
                    step=const(16),
                    body=[
                        f.Load(dst="row", src=f.MemRef("T", (qq, j + S0)), where=(lt(j + S0, N),)),
                        f.Load(dst="first", src=f.MemRef("T", (qq, const(0)))),
                        f.Compute(dst="y", fn="sub", args=(ref("row"), ref("first"))),
                        f.Store(
                            dst=f.MemRef("Y", (j + S0, qq)),
                            src=ref("y"),
                            where=(lt(j + S0, N),),
                            claim=f.StoreClaim(0, (j + S0,)),
                        ),
                    ],
                ),
            ],
        ),
    ]
    frags = [
        f.Frag("x", f32, (8, 16)),
        f.Frag("d", f32, (8, 16)),
        f.Frag("row", f32, (16,)),
        f.Frag("first", f32, ()),
        f.Frag("y", f32, (16,)),
    ]
    return machine(program, body, frags, workspace=[f.Buffer("T", f32, (M, N), "workspace")])


def recurrence() -> f.MachineProgram:
    """`s = 0; for t in serial(T.each): s = s * a + X[t, c]; Y[t, c] = s`, vectors over c; a is loaded once."""
    dt, dc = dim("T"), dim("C")
    X, A, Y = tensor("X", f32, dt, dc), tensor("A", f32), tensor("Y", f32, dt, dc, out=True)
    b = Builder()
    with b.region("parallel", [block("c", dc)], name="R0") as r:
        c = r.args[0].part
        a = b.load(A, [])
        zero = full(b, 0.0, f32, c)
        with b.region("serial", [each("t", dt)], [zero], name="R1") as q:
            t = q.args[0].index
            x = b.load(X, [index(t), part(c)])
            p = b.elementwise("mul", q.carried[0], a)
            s = b.elementwise("add", p, x)
            b.store(Y, [index(t), part(c)], s)
            q.body.yields = [s]
    program = Program("scan", [dt, dc], [X, A, Y], [], b.block)
    tc, t0, C, T = (sym(s_) for s_ in ("tc", "t0", "C", "T"))
    live = (lt(16 * tc + S0, C),)
    at = 16 * tc + S0
    body: f.Body = [
        f.Tasks(
            vars=("tc",),
            counts=(ceildiv(C, 16),),
            over="workers",
            enters=(f.Enter("R0", (("c", (16 * tc, minimum(16 * tc + 16, C))),)),),
            body=[
                f.Load(dst="a", src=f.MemRef("A", ()), claim=claim(a)),
                f.Compute(dst="s", fn="copy", args=(0.0,)),
                f.Loop(
                    var="t0",
                    lo=const(0),
                    hi=T,
                    step=const(1),
                    enters=(f.Enter("R1", (("t", (t0,)),)),),
                    invariants=(f.Invariant("s", claim(q.carried[0], at)),),
                    body=[
                        f.Load(
                            dst="x", src=f.MemRef("X", (t0, at)), where=live, fill=0.0, claim=claim(x, at, where=live)
                        ),
                        f.Compute(dst="p", fn="mul", args=(ref("s"), ref("a"))),
                        f.Compute(dst="new", fn="add", args=(ref("p"), ref("x"))),
                        f.Store(dst=f.MemRef("Y", (t0, at)), src=ref("new"), where=live, claim=f.StoreClaim(0, (at,))),
                        f.Compute(dst="s", fn="copy", args=(ref("new"),), claim=claim(s, at, where=live)),
                    ],
                ),
            ],
        )
    ]
    # the invariant speaks of all lanes, the body only of live ones: limit it
    body[0].body[2].invariants = (f.Invariant("s", claim(q.carried[0], at, where=live)),)
    frags = [f.Frag("a", f32, ()), *(f.Frag(n, f32, (16,)) for n in ("s", "x", "p", "new"))]
    return machine(program, body, frags)


def gather() -> f.MachineProgram:
    """`Y[t, d] = E[in_range(ids[t]), d] + P[t, d]`: a promised gather, several rows at a time."""
    dt, dv, dd = dim("T"), dim("V"), dim("D")
    ids, E, P, Y = (
        tensor("ids", i64, dt),
        tensor("E", f32, dv, dd),
        tensor("P", f32, dt, dd),
        tensor("Y", f32, dt, dd, out=True),
    )
    b = Builder()
    with b.region("parallel", [block("t", dt)], name="R0") as r:
        t, d = r.args[0].part, dd.whole()
        i = b.load(ids, [part(t)])
        e = b.load(E, [Sub(tile=i, promised=True), part(d)])
        p = b.load(P, [part(t), part(d)])
        y = b.elementwise("add", e, p)
        b.store(Y, [part(t), part(d)], y)
    program = Program("embed", [dt, dv, dd], [ids, E, P, Y], [], b.block)
    tt, j, T, D = (sym(s) for s in ("tt", "j", "T", "D"))
    rows = (lt(4 * tt + S0, T),)
    both = (lt(4 * tt + S0, T), lt(j + S1, D))
    body: f.Body = [
        f.Tasks(
            vars=("tt",),
            counts=(ceildiv(T, 4),),
            over="workers",
            enters=(f.Enter("R0", (("t", (4 * tt, minimum(4 * tt + 4, T))),)),),
            body=[
                f.Load(
                    dst="i",
                    src=f.MemRef("ids", (4 * tt + S0,)),
                    where=rows,
                    fill=0,
                    claim=claim(i, 4 * tt + S0, where=rows),
                ),
                f.Loop(
                    var="j",
                    lo=const(0),
                    hi=D,
                    step=const(16),
                    body=[
                        f.Load(
                            dst="e",
                            src=f.MemRef("E", (of(Fn("i", (S0,))), j + S1)),
                            where=both,
                            claim=claim(e, 4 * tt + S0, j + S1, where=both),
                        ),
                        f.Load(dst="p", src=f.MemRef("P", (4 * tt + S0, j + S1)), where=both),
                        f.Compute(dst="y", fn="add", args=(ref("e"), ref("p"))),
                        f.Store(
                            dst=f.MemRef("Y", (4 * tt + S0, j + S1)),
                            src=ref("y"),
                            where=both,
                            claim=f.StoreClaim(0, (4 * tt + S0, j + S1)),
                        ),
                    ],
                ),
            ],
        )
    ]
    return machine(program, body, [f.Frag("i", i64, (4,)), *(f.Frag(n, f32, (4, 16)) for n in ("e", "p", "y"))])


def ragged() -> f.MachineProgram:
    """Groups with loaded bounds: `for g in parallel(G.each): Y[g] = sum of X[off[g] : end[g]]`."""
    dg, dn = dim("G"), dim("N")
    off, end = tensor("off", i64, dg), tensor("end", i64, dg)
    X, Y = tensor("X", f32, dn), tensor("Y", f32, dg, out=True)
    b = Builder()
    with b.region("parallel", [each("g", dg)], name="R0") as r:
        g = r.args[0].index
        lo, hi = b.load(off, [index(g)]), b.load(end, [index(g)])
        rows = dn.whole().cut(lo.at(), hi.at())
        x = b.load(X, [part(rows)])
        s = b.reduce(x, [dn], "add")
        b.store(Y, [index(g)], s)
    program = Program("ragged", [dg, dn], [off, end, X, Y], [], b.block)
    tg, i, n, G = (sym(v) for v in ("tg", "i", "n", "G"))
    start = minimum(maximum(of(Fn("lo", ())), const(0)), N)
    stop = maximum(start, minimum(of(Fn("hi", ())), N))

    def over(until: Expr) -> tuple[Constraint, ...]:
        return (ge(n, sym("a")), lt(n, until))

    body: f.Body = [
        f.Tasks(
            vars=("tg",),
            counts=(G,),
            over="workers",
            enters=(f.Enter("R0", (("g", (tg,)),)),),
            body=[
                f.Load(dst="lo", src=f.MemRef("off", (tg,)), claim=claim(lo)),
                f.Load(dst="hi", src=f.MemRef("end", (tg,)), claim=claim(hi)),
                f.Let(name="a", expr=start),
                f.Let(name="z", expr=stop),
                f.Compute(dst="s", fn="copy", args=(0.0,)),
                f.Loop(
                    var="i",
                    lo=sym("a"),
                    hi=sym("z"),
                    step=const(1),
                    invariants=(f.Invariant("s", claim(s, bound=("n",), over=over(i))),),
                    body=[
                        f.Load(dst="x", src=f.MemRef("X", (i,)), claim=claim(x, i)),
                        f.Fold(
                            dst="s",
                            monoid="add",
                            src=ref("x"),
                            acc=ref("s"),
                            claim=claim(s, bound=("n",), over=over(i + 1)),
                        ),
                    ],
                ),
                f.Store(dst=f.MemRef("Y", (tg,)), src=ref("s"), claim=f.StoreClaim(0, ())),
            ],
        )
    ]
    return machine(program, body, [f.Frag("lo", i64, ()), f.Frag("hi", i64, ()), *scalars("s", "x")])


def conditional() -> f.MachineProgram:
    """`v = X[m]; c = v > 0; if c: w = exp(v); Z[m] = w  else: w = v;  Y[m] = w + 1`."""
    dm = dim("M")
    X, Y, Z = tensor("X", f32, dm), tensor("Y", f32, dm, out=True), tensor("Z", f32, dm, out=True)
    b = Builder()
    with b.region("parallel", [each("m", dm)], name="R0") as r:
        m = r.args[0].index
        v = b.load(X, [index(m)])
        zero = full(b, 0.0, f32)
        c = b.elementwise("gt", v, zero)
        then, orelse = Block(), Block()
        with b.inside(then):
            w = b.elementwise("exp", v)
            b.store(Z, [index(m)], w)
            then.yields = [w]
        orelse.yields = [v]
        (w2,) = b.conditional(c, then, orelse)
        one = full(b, 1.0, f32)
        y = b.elementwise("add", w2, one)
        b.store(Y, [index(m)], y)
    program = Program("cond", [dm], [X, Y, Z], [], b.block)
    t = sym("t")
    body: f.Body = [
        f.Tasks(
            vars=("t",),
            counts=(M,),
            over="workers",
            enters=(f.Enter("R0", (("m", (t,)),)),),
            body=[
                f.Load(dst="v", src=f.MemRef("X", (t,)), claim=claim(v)),
                f.Compute(dst="c", fn="gt", args=(ref("v"), 0.0)),
                f.If(
                    cond="c",
                    source=0,
                    then=[
                        f.Compute(dst="w", fn="exp", args=(ref("v"),), claim=claim(w2)),
                        f.Store(dst=f.MemRef("Z", (t,)), src=ref("w"), claim=f.StoreClaim(0, ())),
                    ],
                    orelse=[
                        f.Compute(dst="w", fn="copy", args=(ref("v"),), claim=claim(w2)),
                    ],
                ),
                f.Compute(dst="y", fn="add", args=(ref("w"), 1.0)),
                f.Store(dst=f.MemRef("Y", (t,)), src=ref("y"), claim=f.StoreClaim(1, ())),
            ],
        ),
    ]
    return machine(program, body, [*scalars("v", "w", "y"), f.Frag("c", bool_, ())])


def masked_rows() -> f.MachineProgram:
    """Causal row sums: `s = where(k <= q, X[q, k], 0); Y[q] = sum over k`, the masked part left out by a loop bound."""
    dq = dim("Q")
    dk = dim("KQ", dq.extent)
    X, Y = tensor("X", f32, dq, dk), tensor("Y", f32, dq, out=True)
    b = Builder()
    with b.region("parallel", [block("q", dq)], name="R0") as r:
        q = r.args[0].part
        x = b.load(X, [part(q), part(dk.whole())])
        cq, ck = b.coords(q), b.coords(dk.whole())
        keep = b.elementwise("le", ck, cq)
        zero = full(b, float("-inf"), f32)
        w = b.elementwise("where", keep, x, zero)
        s = b.reduce(w, [dk], "max")
        b.store(Y, [part(q)], s)
    program = Program("causal", [dq, dk], [X, Y], [], b.block)
    t, j, k, e0, Q = (sym(v) for v in ("t", "j", "k", "e0", "Q"))
    live = (lt(j + S0, Q),)

    def over(until: Expr) -> tuple[Constraint, ...]:
        return (ge(k, 0), lt(k, until), lt(k, Q), eq(k - S0 - 8 * e0, 0))

    body: f.Body = [
        f.Tasks(
            vars=("t",),
            counts=(Q,),
            over="workers",
            enters=(f.Enter("R0", (("q", (t, t + 1)),)),),
            body=[
                f.Compute(dst="top", fn="copy", args=(float("-inf"),)),
                f.Loop(
                    var="j",
                    lo=const(0),
                    hi=Q,
                    step=const(8),
                    invariants=(f.Invariant("top", claim(s, t, bound=("k",), over=over(j))),),
                    body=[
                        f.Load(
                            dst="x",
                            src=f.MemRef("X", (t, j + S0)),
                            where=(lt(j + S0, Q), le(j + S0, t)),
                            fill=float("-inf"),
                        ),
                        f.Compute(dst="w", fn="copy", args=(ref("x"),), claim=claim(w, j + S0, t, where=live)),
                        f.Fold(
                            dst="top",
                            monoid="max",
                            src=ref("w"),
                            acc=ref("top"),
                            claim=claim(s, t, bound=("k",), over=over(j + 8)),
                        ),
                    ],
                ),
                f.Fold(dst="one", monoid="max", src=ref("top"), axes=(0,), claim=claim(s, t)),
                f.Store(dst=f.MemRef("Y", (t,)), src=ref("one"), claim=f.StoreClaim(0, (t,))),
            ],
        ),
    ]
    return machine(program, body, [*scalars("one"), *(f.Frag(n, f32, (8,)) for n in ("top", "x", "w"))])


def amx_gemm() -> f.MachineProgram:
    """bf16 tiles of 16 x 16 x 32 with both operands packed, zeros at the edges; bf16 output."""
    dm, dn, dk = dim("M"), dim("N"), dim("K")
    X, W = tensor("X", bf16, dm, dk), tensor("W", bf16, dk, dn)
    Y = tensor("Y", bf16, dm, dn, out=True)
    b = Builder()
    with b.region("parallel", [block("m", dm), block("n", dn)], name="R0") as r:
        m, n = (a.part for a in r.args)
        zero = full(b, 0.0, f32, m, n)
        with b.region("reduce", [block("k", dk)], [zero], name="R1") as q:
            x = b.load(X, [part(m), part(q.args[0].part)])
            w = b.load(W, [part(q.args[0].part), part(n)])
            p = b.mma(x, w, q.carried[0])
            q.body.yields = [p]
        y = b.cast(q.results[0], bf16)
        b.store(Y, [part(m), part(n)], y)
    program = Program("amx", [dm, dn, dk], [X, W, Y], [], b.block)
    tm, tn, k0, kk, h, g = (sym(v) for v in ("tm", "tn", "k0", "kk", "h", "g"))
    k = sym("k")
    in_x = (lt(16 * tm + S0, M), lt(k0 + S1, K))
    in_w = (lt(k0 + 2 * S0 + S2, K), lt(16 * tn + S1, N))
    in_y = (lt(16 * tm + S0, M), lt(16 * tn + S1, N))
    over = (ge(k, k0), lt(k, minimum(k0 + 32, K)))
    body: f.Body = [
        f.Tasks(
            vars=("tm", "tn"),
            counts=(ceildiv(M, 16), ceildiv(N, 16)),
            over="workers",
            enters=(
                f.Enter("R0", (("m", (16 * tm, minimum(16 * tm + 16, M))), ("n", (16 * tn, minimum(16 * tn + 16, N))))),
            ),
            body=[
                f.Sync(kind="amx.config"),
                f.Compute(dst="acc", fn="copy", args=(0.0,)),
                f.Loop(
                    var="k0",
                    lo=const(0),
                    hi=K,
                    step=const(32),
                    enters=(f.Enter("R1", (("k", (k0, minimum(k0 + 32, K))),)),),
                    invariants=(f.Invariant("acc", claim(q.carried[0], 16 * tm + S0, 16 * tn + S1, where=in_y)),),
                    body=[
                        f.Version(buffer="pa", claim=claim(x, 16 * tm + S0, k0 + S1, where=in_x), fill=0.0),
                        f.Version(buffer="pb", claim=claim(w, k0 + 2 * S0 + S2, 16 * tn + S1, where=in_w), fill=0.0),
                        f.Loop(
                            var="h",
                            lo=const(0),
                            hi=const(16),
                            step=const(1),
                            body=[
                                f.Load(
                                    dst="xa",
                                    src=f.MemRef("X", (16 * tm + h, k0 + S0)),
                                    where=(lt(16 * tm + h, M), lt(k0 + S0, K)),
                                    fill=0.0,
                                ),
                                f.Store(dst=f.MemRef("pa", (h, S0)), src=ref("xa")),
                            ],
                        ),
                        f.Loop(
                            var="g",
                            lo=const(0),
                            hi=const(32),
                            step=const(1),
                            body=[
                                f.Load(
                                    dst="wb",
                                    src=f.MemRef("W", (k0 + g, 16 * tn + S0)),
                                    where=(lt(k0 + g, K), lt(16 * tn + S0, N)),
                                    fill=0.0,
                                ),
                                f.Store(dst=f.MemRef("pb", (g // 2, S0, g % 2)), src=ref("wb")),
                            ],
                        ),
                        f.Load(dst="ta", src=f.MemRef("pa", (S0, S1))),
                        f.Load(dst="tb", src=f.MemRef("pb", (S0, S1, S2))),
                        f.Mma(
                            dst="acc",
                            acc=ref("acc"),
                            a=ref("ta", S0, S2),
                            b=ref("tb", S2 // 2, S1, S2 % 2),
                            contracted=(32,),
                            atom="amx.tdpbf16ps",
                            claim=claim(p, 16 * tm + S0, 16 * tn + S1, where=in_y),
                        ),
                    ],
                ),
                f.Compute(dst="y", fn="cast", args=(ref("acc"),)),
                f.Store(
                    dst=f.MemRef("Y", (16 * tm + S0, 16 * tn + S1)),
                    src=ref("y"),
                    where=in_y,
                    claim=f.StoreClaim(0, (16 * tm + S0, 16 * tn + S1)),
                ),
                f.Sync(kind="amx.release"),
            ],
        )
    ]
    frags = [
        f.Frag("acc", f32, (16, 16), place="tile"),
        f.Frag("ta", bf16, (16, 32), place="tile"),
        f.Frag("tb", bf16, (16, 16, 2), place="tile"),
        f.Frag("xa", bf16, (32,)),
        f.Frag("wb", bf16, (16,)),
        f.Frag("y", bf16, (16, 16)),
    ]
    buffers = [
        f.Buffer("pa", bf16, (const(16), const(32)), "local"),
        f.Buffer("pb", bf16, (const(16), const(16), const(2)), "local"),
    ]
    return machine(program, body, frags, buffers, target="cpu:amx")


def split_rows() -> f.MachineProgram:
    """`Y[m] = X[m] + X[m]`: whole vectors in one loop, the rest one by one; two statements cover the store."""
    dm = dim("M")
    X, Y = tensor("X", f32, dm), tensor("Y", f32, dm, out=True)
    b = Builder()
    with b.region("parallel", [block("m", dm)], name="R0") as r:
        m = r.args[0].part
        x = b.load(X, [part(m)])
        y = b.elementwise("add", x, x)
        b.store(Y, [part(m)], y)
    program = Program("twice", [dm], [X, Y], [], b.block)
    t, i, j = (sym(v) for v in ("t", "i", "j"))
    start, stop = 1000 * t, minimum(1000 * t + 1000, M)
    whole = start + (stop - start) // 16 * 16
    body: f.Body = [
        f.Tasks(
            vars=("t",),
            counts=(ceildiv(M, 1000),),
            over="workers",
            enters=(f.Enter("R0", (("m", (start, stop)),)),),
            body=[
                f.Loop(
                    var="i",
                    lo=start,
                    hi=whole,
                    step=const(16),
                    body=[
                        f.Load(dst="x", src=f.MemRef("X", (i + S0,)), claim=claim(x, i + S0)),
                        f.Compute(dst="y", fn="add", args=(ref("x"), ref("x"))),
                        f.Store(dst=f.MemRef("Y", (i + S0,)), src=ref("y"), claim=f.StoreClaim(0, (i + S0,))),
                    ],
                ),
                f.Loop(
                    var="j",
                    lo=whole,
                    hi=stop,
                    step=const(1),
                    body=[
                        f.Load(dst="x1", src=f.MemRef("X", (j,)), claim=claim(x, j)),
                        f.Compute(dst="y1", fn="add", args=(ref("x1"), ref("x1"))),
                        f.Store(dst=f.MemRef("Y", (j,)), src=ref("y1"), claim=f.StoreClaim(0, (j,))),
                    ],
                ),
            ],
        ),
    ]
    return machine(program, body, [f.Frag("x", f32, (16,)), f.Frag("y", f32, (16,)), *scalars("x1", "y1")])


def pipelined() -> f.MachineProgram:
    """A carried pipeline with the next block loaded one iteration ahead: `s = maximum(s, sum X[k]) for k in
    pipeline(K.by(8))`."""
    dk = dim("K")
    X, Y = tensor("X", f32, dk), tensor("Y", f32, out=True)
    b = Builder()
    zero = full(b, 0.0, f32)
    with b.region("pipeline", [block("k", dk, 8)], [zero], name="R0") as r:
        x = b.load(X, [part(r.args[0].part)])
        u = b.reduce(x, [dk], "add")
        s = b.elementwise("maximum", r.carried[0], u)
        r.body.yields = [s]
    b.store(Y, [], r.results[0])
    program = Program("ahead", [dk], [X, Y], [], b.block)
    k0 = sym("k0")
    body: f.Body = [
        f.Compute(dst="s", fn="copy", args=(0.0,)),
        f.Load(
            dst="x", src=f.MemRef("X", (S0,)), where=(lt(S0, K),), fill=-0.0, claim=claim(x, S0, where=(lt(S0, K),))
        ),
        f.Loop(
            var="k0",
            lo=const(0),
            hi=K,
            step=const(8),
            enters=(f.Enter("R0", (("k", (k0, minimum(k0 + 8, K))),)),),
            invariants=(
                f.Invariant("s", claim(r.carried[0])),
                f.Invariant("x", claim(x, k0 + S0, where=(lt(k0 + S0, K),)), fill=-0.0),
            ),
            body=[
                f.Load(
                    dst="next",
                    src=f.MemRef("X", (k0 + 8 + S0,)),
                    where=(lt(k0 + 8 + S0, K),),
                    fill=-0.0,
                    claim=claim(x, k0 + 8 + S0, where=(lt(k0 + 8 + S0, K),)),
                ),
                f.Fold(dst="u", monoid="add", src=ref("x"), axes=(0,), claim=claim(u)),
                f.Compute(dst="t", fn="maximum", args=(ref("s"), ref("u"))),
                f.Compute(dst="s", fn="copy", args=(ref("t"),)),
                f.Compute(dst="x", fn="copy", args=(ref("next"),)),
            ],
        ),
        f.Store(dst=f.MemRef("Y", ()), src=ref("s"), claim=f.StoreClaim(0, ())),
    ]
    return machine(program, body, [*scalars("s", "u", "t"), f.Frag("x", f32, (8,)), f.Frag("next", f32, (8,))])


def in_place() -> f.MachineProgram:
    """`X[m] = X[m] * 2` by vectors, in place."""
    dm = dim("M")
    X = tensor("X", f32, dm, out=True)
    b = Builder()
    two = full(b, 2.0, f32)
    with b.region("parallel", [block("m", dm)], name="R0") as r:
        m = r.args[0].part
        x = b.load(X, [part(m)])
        y = b.elementwise("mul", x, two)
        b.store(X, [part(m)], y)
    program = Program("inplace", [dm], [X], [], b.block)
    t = sym("t")
    live = (lt(16 * t + S0, M),)
    at = 16 * t + S0
    body: f.Body = [
        f.Tasks(
            vars=("t",),
            counts=(ceildiv(M, 16),),
            over="workers",
            enters=(f.Enter("R0", (("m", (16 * t, minimum(16 * t + 16, M))),)),),
            body=[
                f.Load(dst="x", src=f.MemRef("X", (at,)), where=live, claim=claim(x, at, where=live)),
                f.Compute(dst="y", fn="mul", args=(ref("x"), 2.0)),
                f.Store(dst=f.MemRef("X", (at,)), src=ref("y"), where=live, claim=f.StoreClaim(0, (at,))),
            ],
        ),
    ]
    return machine(program, body, [f.Frag("x", f32, (16,)), f.Frag("y", f32, (16,))])


ALL = (two_regions, recurrence, gather, ragged, conditional, masked_rows, amx_gemm, split_rows, pipelined, in_place)
