"""Machine programs written by hand, right for all sizes of their guard. The tests break them in many ways."""

from __future__ import annotations

from treadle.algebra.dims import Dim, Part, dim
from treadle.algebra.expr import Constraint, Expr, ceildiv, const, eq, ge, lt, minimum, sym
from treadle.dtype.formats import DType, f32
from treadle.ir.builder import Builder
from treadle.ir.core import Program, RegionArg, Sub, Tensor, TileType, Value
from treadle.ir.guard import Disjoint, Guard, Injective
from treadle.ir.ops.elementwise import Full
from treadle.machine import form as f

S0, S1, S2 = sym("$0"), sym("$1"), sym("$2")


def tensor(name: str, dtype: DType, *dims: Dim, out: bool = False) -> Tensor:
    return Tensor(name, dims, dtype, out=out)


def block(name: str, d: Dim | Part, size: int | None = None) -> RegionArg:
    part = d if isinstance(d, Part) else d.whole()
    return RegionArg(name, part, "block", None if size is None else const(size))


def each(name: str, d: Dim | Part) -> RegionArg:
    return RegionArg(name, d if isinstance(d, Part) else d.whole(), "each")


def part(p: Part) -> Sub:
    return Sub(part=p)


def at(e: Expr) -> Sub:
    return Sub(index=e)


def full(b: Builder, number: float | None, dtype: DType, *axes: Part) -> Value:
    return b.emit(Full(number=number), TileType(dtype, tuple(axes))).result


def guard(outs: list[Tensor], others: list[Tensor], *facts: object) -> Guard:
    found: list[object] = [Injective(t.name) for t in outs if t.dims]
    for i, t in enumerate(outs):
        found += [Disjoint(t.name, o.name) for o in [*others, *outs[:i]]]
    return Guard((*found, *facts))


def machine(
    program: Program,
    body: f.Body,
    frags: list[f.Frag],
    buffers: list[f.Buffer] | None = None,
    workspace: list[f.Buffer] | None = None,
    facts: tuple[object, ...] = (),
    target: str = "cpu:avx512",
) -> f.MachineProgram:
    outs = [t for t in program.tensors if t.out]
    return f.MachineProgram(
        target,
        program,
        guard(outs, [t for t in program.tensors if not t.out], *facts),
        f.Host(workspace=workspace or [], launches=[f.Launch("main", const(1))]),
        [f.Kernel("main", [f.Role("worker", 1, 1, body)], frags, buffers or [])],
    )


def claim(value: Value, *coords: Expr, where: tuple[Constraint, ...] = (), **more: object) -> f.Claim:
    return f.Claim(value.name, tuple(coords), where, **more)


def ref(name: str, *coords: Expr) -> f.FragRef:
    return f.FragRef(name, tuple(coords) or None)


# ---- rows: y = exp(x - max) / sum over a row


class Rows:
    """`for m in parallel(M.each): x = X[m, :]; e = exp(x - max x); Y[m, :] = e / sum e`."""

    def __init__(self) -> None:
        self.M, self.N = dim("M"), dim("N")
        self.X, self.Y = tensor("X", f32, self.M, self.N), tensor("Y", f32, self.M, self.N, out=True)
        b = Builder()
        n = self.N.whole()
        with b.region("parallel", [each("m", self.M)], name="R0") as r:
            self.x = b.load(self.X, [at(r.args[0].index), part(n)])
            self.top = b.reduce(self.x, [self.N], "max")
            self.d = b.elementwise("sub", self.x, self.top)
            self.e = b.elementwise("exp", self.d)
            self.total = b.reduce(self.e, [self.N], "add")
            self.y = b.elementwise("div", self.e, self.total)
            b.store(self.Y, [at(r.args[0].index), part(n)], self.y)
        self.program = Program("rows", [self.M, self.N], [self.X, self.Y], [], b.block)


def rows_scalar() -> f.MachineProgram:
    """One element at a time; the exponentials are computed twice."""
    s = Rows()
    N, m, i, j, k = sym("N"), sym("m"), sym("i"), sym("j"), sym("k")
    n = sym("n")

    def over(until: Expr) -> tuple[Constraint, ...]:
        return (ge(n, 0), lt(n, until))

    def load(dst: str, at_: Expr) -> f.Load:
        return f.Load(dst=dst, src=f.MemRef("X", (m, at_)), claim=claim(s.x, at_))

    body: f.Body = [
        f.Tasks(
            vars=("m",),
            counts=(sym("M"),),
            over="workers",
            enters=(f.Enter("R0", (("m", (m,)),)),),
            body=[
                f.Compute(
                    dst="top", fn="copy", args=(float("-inf"),), claim=claim(s.top, bound=("n",), over=over(const(0)))
                ),
                f.Loop(
                    var="i",
                    lo=const(0),
                    hi=N,
                    step=const(1),
                    invariants=(f.Invariant("top", claim(s.top, bound=("n",), over=over(i))),),
                    body=[
                        load("x1", i),
                        f.Fold(
                            dst="top",
                            monoid="max",
                            src=ref("x1"),
                            acc=ref("top"),
                            claim=claim(s.top, bound=("n",), over=over(i + 1)),
                        ),
                    ],
                ),
                f.Compute(dst="sum", fn="copy", args=(0.0,)),
                f.Loop(
                    var="j",
                    lo=const(0),
                    hi=N,
                    step=const(1),
                    invariants=(f.Invariant("sum", claim(s.total, bound=("n",), over=over(j))),),
                    body=[
                        load("x2", j),
                        f.Compute(dst="d2", fn="sub", args=(ref("x2"), ref("top"))),
                        f.Compute(dst="e2", fn="exp", args=(ref("d2"),), claim=claim(s.e, j)),
                        f.Compute(
                            dst="sum",
                            fn="add",
                            args=(ref("sum"), ref("e2")),
                            claim=claim(s.total, bound=("n",), over=over(j + 1)),
                        ),
                    ],
                ),
                f.Loop(
                    var="k",
                    lo=const(0),
                    hi=N,
                    step=const(1),
                    body=[
                        load("x3", k),
                        f.Compute(dst="d3", fn="sub", args=(ref("x3"), ref("top"))),
                        f.Compute(dst="e3", fn="exp", args=(ref("d3"),)),
                        f.Compute(dst="y3", fn="div", args=(ref("e3"), ref("sum"))),
                        f.Store(dst=f.MemRef("Y", (m, k)), src=ref("y3"), claim=f.StoreClaim(0, (k,))),
                    ],
                ),
            ],
        )
    ]
    frags = [f.Frag(name, f32, ()) for name in ("top", "sum", "x1", "x2", "d2", "e2", "x3", "d3", "e3", "y3")]
    return machine(s.program, body, frags)


def rows_vector(width: int = 16) -> f.MachineProgram:
    """Vectors of `width`, masked tails, lane-split folds, exponentials kept in a local row."""
    s = Rows()
    N, m, i, j, k, n, e0 = (sym(x) for x in ("N", "m", "i", "j", "k", "n", "e0"))
    w = const(width)

    def over(until: Expr) -> tuple[Constraint, ...]:
        return (ge(n, 0), lt(n, until), lt(n, N), eq(n - S0 - width * e0, 0))

    def tail(v: Expr) -> tuple[Constraint, ...]:
        return (lt(v + S0, N),)

    def load(dst: str, v: Expr, fill: float) -> f.Load:
        return f.Load(
            dst=dst, src=f.MemRef("X", (m, v + S0)), where=tail(v), fill=fill, claim=claim(s.x, v + S0, where=tail(v))
        )

    body: f.Body = [
        f.Tasks(
            vars=("m",),
            counts=(sym("M"),),
            over="workers",
            enters=(f.Enter("R0", (("m", (m,)),)),),
            body=[
                f.Compute(dst="tops", fn="copy", args=(float("-inf"),)),
                f.Loop(
                    var="i",
                    lo=const(0),
                    hi=N,
                    step=w,
                    invariants=(f.Invariant("tops", claim(s.top, bound=("n",), over=over(i))),),
                    body=[
                        load("x1", i, float("-inf")),
                        f.Fold(
                            dst="tops",
                            monoid="max",
                            src=ref("x1"),
                            acc=ref("tops"),
                            claim=claim(s.top, bound=("n",), over=over(i + width)),
                        ),
                    ],
                ),
                f.Fold(dst="top", monoid="max", src=ref("tops"), axes=(0,), claim=claim(s.top)),
                f.Version(buffer="row", claim=claim(s.e, S0)),
                f.Compute(dst="sums", fn="copy", args=(-0.0,)),
                f.Loop(
                    var="j",
                    lo=const(0),
                    hi=N,
                    step=w,
                    invariants=(f.Invariant("sums", claim(s.total, bound=("n",), over=over(j))),),
                    body=[
                        load("x2", j, 0.0),
                        f.Compute(
                            dst="d2",
                            fn="sub",
                            args=(
                                ref("x2"),
                                ref(
                                    "top",
                                ),
                            ),
                        ),
                        f.Compute(
                            dst="e2",
                            fn="exp",
                            args=(ref("d2"),),
                            where=tail(j),
                            fill=-0.0,
                            claim=claim(s.e, j + S0, where=tail(j)),
                        ),
                        f.Store(dst=f.MemRef("row", (j + S0,)), src=ref("e2"), where=tail(j)),
                        f.Fold(
                            dst="sums",
                            monoid="add",
                            src=ref("e2"),
                            acc=ref("sums"),
                            claim=claim(s.total, bound=("n",), over=over(j + width)),
                        ),
                    ],
                ),
                f.Fold(dst="sum", monoid="add", src=ref("sums"), axes=(0,), claim=claim(s.total)),
                f.Loop(
                    var="k",
                    lo=const(0),
                    hi=N,
                    step=w,
                    body=[
                        f.Load(
                            dst="e3",
                            src=f.MemRef("row", (k + S0,)),
                            where=tail(k),
                            claim=claim(s.e, k + S0, where=tail(k)),
                        ),
                        f.Compute(
                            dst="y3", fn="div", args=(ref("e3"), ref("sum")), claim=claim(s.y, k + S0, where=tail(k))
                        ),
                        f.Store(
                            dst=f.MemRef("Y", (m, k + S0)),
                            src=ref("y3"),
                            where=tail(k),
                            claim=f.StoreClaim(0, (k + S0,)),
                        ),
                    ],
                ),
            ],
        )
    ]
    frags = [f.Frag(name, f32, ()) for name in ("top", "sum")]
    frags += [f.Frag(name, f32, (width,)) for name in ("tops", "sums", "x1", "x2", "d2", "e2", "e3", "y3")]
    return machine(s.program, body, frags, [f.Buffer("row", f32, (N,), "local")])


# ---- contraction: Y = relu(X W + bias)


class Gemm:
    """`for m, n in parallel(M, N): acc over k in reduce(K); Y = maximum(acc + bias[n], 0)`."""

    def __init__(self, dtype: DType = f32) -> None:
        self.M, self.N, self.K = dim("M"), dim("N"), dim("K")
        self.X, self.W = tensor("X", dtype, self.M, self.K), tensor("W", dtype, self.K, self.N)
        self.bias, self.Y = tensor("bias", f32, self.N), tensor("Y", f32, self.M, self.N, out=True)
        b = Builder()
        with b.region("parallel", [block("m", self.M), block("n", self.N)], name="R0") as r:
            m, n = (a.part for a in r.args)
            self.zero = full(b, 0.0, f32, m, n)
            with b.region("reduce", [block("k", self.K)], [self.zero], name="R1") as q:
                (k,) = (a.part for a in q.args)
                self.x = b.load(self.X, [part(m), part(k)])
                self.w = b.load(self.W, [part(k), part(n)])
                self.product = b.mma(self.x, self.w, q.carried[0])
                q.body.yields = [self.product]
                self.acc = q.carried[0]
            self.result = q.results[0]
            self.c = b.load(self.bias, [part(n)])
            self.s = b.elementwise("add", self.result, self.c)
            self.floor = full(b, 0.0, f32)
            self.y = b.elementwise("maximum", self.s, self.floor)
            b.store(self.Y, [part(m), part(n)], self.y)
        self.program = Program("gemm", [self.M, self.N, self.K], [self.X, self.W, self.bias, self.Y], [], b.block)


def gemm_scalar() -> f.MachineProgram:
    """One element a task."""
    s = Gemm()
    tm, tn, k0, k = (sym(x) for x in ("tm", "tn", "k0", "k"))

    def over(until: Expr) -> tuple[Constraint, ...]:
        return (ge(k, k0), lt(k, until))

    body: f.Body = [
        f.Tasks(
            vars=("tm", "tn"),
            counts=(sym("M"), sym("N")),
            over="workers",
            enters=(f.Enter("R0", (("m", (tm, tm + 1)), ("n", (tn, tn + 1)))),),
            body=[
                f.Compute(dst="acc", fn="copy", args=(0.0,), claim=claim(s.zero, tm, tn)),
                f.Loop(
                    var="k0",
                    lo=const(0),
                    hi=sym("K"),
                    step=const(1),
                    enters=(f.Enter("R1", (("k", (k0, k0 + 1)),)),),
                    invariants=(f.Invariant("acc", claim(s.acc, tm, tn)),),
                    body=[
                        f.Load(dst="x", src=f.MemRef("X", (tm, k0)), claim=claim(s.x, tm, k0)),
                        f.Load(dst="w", src=f.MemRef("W", (k0, tn)), claim=claim(s.w, k0, tn)),
                        f.Compute(
                            dst="acc",
                            fn="fma",
                            args=(ref("x"), ref("w"), ref("acc")),
                            claim=claim(s.product, tm, tn, bound=("k",), over=over(k0 + 1)),
                        ),
                    ],
                ),
                f.Load(dst="c", src=f.MemRef("bias", (tn,)), claim=claim(s.c, tn)),
                f.Compute(dst="sum", fn="add", args=(ref("acc"), ref("c"))),
                f.Compute(dst="y", fn="maximum", args=(ref("sum"), 0.0), claim=claim(s.y, tm, tn)),
                f.Store(dst=f.MemRef("Y", (tm, tn)), src=ref("y"), claim=f.StoreClaim(0, (tm, tn))),
            ],
        )
    ]
    return machine(s.program, body, [f.Frag(x, f32, ()) for x in ("acc", "x", "w", "c", "sum", "y")])


def gemm_packed(
    dtype: DType = f32, rows: int = 6, cols: int = 32, bm: int = 48, bn: int = 128, bk: int = 256
) -> f.MachineProgram:
    """Tasks of bm x bn, chunks of bk of the contraction packed with zeros at the edges, register blocks rows x cols."""
    s = Gemm(dtype)
    M, N, K = sym("M"), sym("N"), sym("K")
    tm, tn, k0, ip, jp, i, j, kk, kp, kq, k = (
        sym(x) for x in ("tm", "tn", "k0", "ip", "jp", "i", "j", "kk", "kp", "kq", "k")
    )
    m0, n0 = bm * tm, bn * tn
    mend, nend, kend = minimum(m0 + bm, M), minimum(n0 + bn, N), minimum(k0 + bk, K)
    depth = minimum(const(bk), K - k0)
    packs = bn // cols
    in_block = (lt(m0 + S0, M), lt(n0 + S1, N))
    here = (lt(m0 + i + S0, M), lt(n0 + cols * j + S1, N))
    fits = lt(i + S0, const(bm))

    def over(until: Expr) -> tuple[Constraint, ...]:
        return (ge(k, k0), lt(k, until))

    def in_w(jj: Expr, kkk: Expr, x: Expr) -> tuple[Constraint, ...]:
        return (lt(n0 + cols * jj + x, N), lt(k0 + kkk, K))

    def in_x(ii: Expr, kkk: Expr) -> tuple[Constraint, ...]:
        return (lt(m0 + ii, M), lt(k0 + kkk, K))

    widen: list[f.Stmt] = []
    body: f.Body = [
        f.Tasks(
            vars=("tm", "tn"),
            counts=(ceildiv(M, bm), ceildiv(N, bn)),
            over="workers",
            enters=(f.Enter("R0", (("m", (m0, mend)), ("n", (n0, nend)))),),
            body=[
                f.Version(buffer="C", claim=claim(s.zero, m0 + S0, n0 + S1)),
                f.Compute(dst="z", fn="copy", args=(0.0,)),
                f.Loop(
                    var="ip",
                    lo=const(0),
                    hi=const(bm),
                    step=const(1),
                    body=[
                        f.Loop(
                            var="jp",
                            lo=const(0),
                            hi=const(packs),
                            step=const(1),
                            body=[
                                f.Store(dst=f.MemRef("C", (ip, cols * jp + S0)), src=ref("z")),
                            ],
                        ),
                    ],
                ),
                f.Loop(
                    var="k0",
                    lo=const(0),
                    hi=K,
                    step=const(bk),
                    enters=(f.Enter("R1", (("k", (k0, kend)),)),),
                    invariants=(f.Invariant("C", claim(s.acc, m0 + S0, n0 + S1, where=in_block)),),
                    body=[
                        f.Version(
                            buffer="bW",
                            fill=0.0,
                            claim=claim(s.w, k0 + S1, n0 + cols * S0 + S2, where=in_w(S0, S1, S2)),
                        ),
                        f.Loop(
                            var="jq",
                            lo=const(0),
                            hi=const(packs),
                            step=const(1),
                            body=[
                                f.Loop(
                                    var="kp",
                                    lo=const(0),
                                    hi=depth,
                                    step=const(1),
                                    body=[
                                        f.Load(
                                            dst="w0",
                                            src=f.MemRef("W", (k0 + kp, n0 + cols * sym("jq") + S0)),
                                            where=in_w(sym("jq"), kp, S0),
                                            fill=0.0,
                                            claim=claim(
                                                s.w, k0 + kp, n0 + cols * sym("jq") + S0, where=in_w(sym("jq"), kp, S0)
                                            ),
                                        ),
                                        *([] if dtype == f32 else [f.Compute(dst="w1", fn="cast", args=(ref("w0"),))]),
                                        f.Store(
                                            dst=f.MemRef("bW", (sym("jq"), kp, S0)),
                                            src=ref("w0" if dtype == f32 else "w1"),
                                        ),
                                    ],
                                ),
                            ],
                        ),
                        f.Version(buffer="C", claim=claim(s.product, m0 + S0, n0 + S1, where=in_block)),
                        f.Loop(
                            var="i",
                            lo=const(0),
                            hi=const(bm),
                            step=const(rows),
                            body=[
                                f.Loop(
                                    var="j",
                                    lo=const(0),
                                    hi=const(packs),
                                    step=const(1),
                                    body=[
                                        f.Load(
                                            dst="acc",
                                            src=f.MemRef("C", (i + S0, cols * j + S1)),
                                            claim=claim(s.acc, m0 + i + S0, n0 + cols * j + S1, where=here),
                                        ),
                                        f.Loop(
                                            var="kk",
                                            lo=const(0),
                                            hi=depth,
                                            step=const(1),
                                            invariants=(
                                                f.Invariant(
                                                    "acc",
                                                    claim(
                                                        s.product,
                                                        m0 + i + S0,
                                                        n0 + cols * j + S1,
                                                        where=here,
                                                        bound=("k",),
                                                        over=over(k0 + kk),
                                                    ),
                                                ),
                                            ),
                                            body=[
                                                f.Load(
                                                    dst="a0",
                                                    src=f.MemRef("X", (m0 + i + S0, k0 + kk)),
                                                    where=in_x(i + S0, kk),
                                                    fill=0.0,
                                                    claim=claim(s.x, m0 + i + S0, k0 + kk, where=in_x(i + S0, kk)),
                                                ),
                                                *(
                                                    []
                                                    if dtype == f32
                                                    else [f.Compute(dst="a1", fn="cast", args=(ref("a0"),))]
                                                ),
                                                f.Load(dst="b", src=f.MemRef("bW", (j, kk, S0))),
                                                f.Mma(
                                                    dst="acc",
                                                    acc=ref("acc"),
                                                    a=ref("a0" if dtype == f32 else "a1", S0),
                                                    b=ref("b", S1),
                                                    atom="fma",
                                                    claim=claim(
                                                        s.product,
                                                        m0 + i + S0,
                                                        n0 + cols * j + S1,
                                                        where=here,
                                                        bound=("k",),
                                                        over=over(k0 + kk + 1),
                                                    ),
                                                ),
                                            ],
                                        ),
                                        f.Store(
                                            dst=f.MemRef("C", (i + S0, cols * j + S1)), src=ref("acc"), where=(fits,)
                                        ),
                                    ],
                                ),
                            ],
                        ),
                    ],
                ),
                f.Loop(
                    var="r",
                    lo=const(0),
                    hi=mend - m0,
                    step=const(1),
                    body=[
                        f.Loop(
                            var="q",
                            lo=const(0),
                            hi=nend - n0,
                            step=const(16),
                            body=[
                                f.Load(
                                    dst="acc1",
                                    src=f.MemRef("C", (sym("r"), sym("q") + S0)),
                                    where=(lt(n0 + sym("q") + S0, N),),
                                ),
                                f.Load(
                                    dst="c",
                                    src=f.MemRef("bias", (n0 + sym("q") + S0,)),
                                    where=(lt(n0 + sym("q") + S0, N),),
                                ),
                                f.Compute(dst="sum", fn="add", args=(ref("acc1"), ref("c"))),
                                f.Compute(dst="y", fn="maximum", args=(ref("sum"), 0.0)),
                                f.Store(
                                    dst=f.MemRef("Y", (m0 + sym("r"), n0 + sym("q") + S0)),
                                    src=ref("y"),
                                    where=(lt(n0 + sym("q") + S0, N),),
                                    claim=f.StoreClaim(0, (m0 + sym("r"), n0 + sym("q") + S0)),
                                ),
                            ],
                        ),
                    ],
                ),
            ],
        )
    ]
    del widen
    frags = [
        f.Frag("z", f32, (cols,)),
        f.Frag("w0", dtype, (cols,)),
        f.Frag("w1", f32, (cols,)),
        f.Frag("acc", f32, (rows, cols)),
        f.Frag("a0", dtype, (rows,)),
        f.Frag("a1", f32, (rows,)),
        f.Frag("b", f32, (cols,)),
    ]
    frags += [f.Frag(x, f32, (16,)) for x in ("acc1", "c", "sum", "y")]
    buffers = [
        f.Buffer("C", f32, (const(bm), const(bn)), "local"),
        f.Buffer("bW", f32, (const(packs), const(bk), const(cols)), "local"),
    ]
    return machine(s.program, body, frags, buffers)
