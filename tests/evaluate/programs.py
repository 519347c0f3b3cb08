"""Small programs built by hand, for tests of rooms that stand before the language."""

from __future__ import annotations

from treadle.algebra.dims import Part, dim
from treadle.algebra.expr import Fn, of
from treadle.dtype.formats import DType, f32, i32
from treadle.ir.core import Block, Program, Region, RegionArg, Sub, Tensor, TileType, Value
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.elementwise import Elementwise, Full
from treadle.ir.ops.fold import Mma, Reduce


def tile(name: str, dtype: DType, *axes: Part) -> Value:
    return Value(f"%{name}", TileType(dtype, axes))


def at(*parts: Part) -> tuple[Sub, ...]:
    return tuple(Sub(part=p) for p in parts)


def contraction(dtype: DType = f32) -> Program:
    """Y[m, n] = sum over k of X[m, k] * W[k, n], f32 accumulation."""
    dims = dim("M"), dim("N"), dim("K")
    x, w = Tensor("X", (dims[0], dims[2]), dtype), Tensor("W", (dims[2], dims[1]), dtype)
    y = Tensor("Y", (dims[0], dims[1]), f32, out=True)
    m, n, k = (RegionArg(s, d.whole(), "block") for s, d in zip("mnk", dims, strict=True))
    zero, acc, new, total = (tile(s, f32, m.part, n.part) for s in ("zero", "acc", "new", "total"))
    a, b = tile("a", dtype, m.part, k.part), tile("b", dtype, k.part, n.part)
    inner = Block(
        [
            Load(results=[a], tensor=x, subs=at(m.part, k.part)),
            Load(results=[b], tensor=w, subs=at(k.part, n.part)),
            Mma(results=[new], a=a, b=b, acc=acc),
        ],
        [new],
    )
    fold = Region(kind="reduce", args=[k], inits=[zero], carried=[acc], results=[total], body=inner, name="R1")
    store = Store(tensor=y, subs=at(m.part, n.part), value=total)
    outer = Region(kind="parallel", args=[m, n], body=Block([Full(results=[zero], number=0.0), fold, store]), name="R0")
    return Program("contraction", list(dims), [x, w, y], [], Block([outer]))


def row_maximum() -> Program:
    """Y[m] = max over n of X[m, n]."""
    M, N = dim("M"), dim("N")
    x, y = Tensor("X", (M, N), f32), Tensor("Y", (M,), f32, out=True)
    m = RegionArg("m", M.whole(), "block")
    row, top = tile("row", f32, m.part, N.whole()), tile("top", f32, m.part)
    body = Block(
        [
            Load(results=[row], tensor=x, subs=at(m.part, N.whole())),
            Reduce(results=[top], source=row, dims=(N,), monoid="max"),
            Store(tensor=y, subs=at(m.part), value=top),
        ]
    )
    return Program("row_maximum", [M, N], [x, y], [], Block([Region(kind="parallel", args=[m], body=body, name="R0")]))


def block_mean_wrong() -> Program:
    """Y[m] = the sum of m's own block: depends on the cut, which is a broken promise."""
    M = dim("M")
    x, y = Tensor("X", (M,), f32), Tensor("Y", (M,), f32, out=True)
    m = RegionArg("m", M.whole(), "block")
    part, total, ones = tile("part", f32, m.part), tile("total", f32), tile("ones", f32, m.part)
    spread = tile("spread", f32, m.part)
    body = Block(
        [
            Load(results=[part], tensor=x, subs=at(m.part)),
            Reduce(results=[total], source=part, dims=(M,), monoid="add"),
            Full(results=[ones], number=1.0),
            Elementwise(results=[spread], fn="mul", args=(ones, total)),
            Store(tensor=y, subs=at(m.part), value=spread),
        ]
    )
    return Program("block_sum", [M], [x, y], [], Block([Region(kind="serial", args=[m], body=body, name="R0")]))


def scatter(kind: str = "parallel") -> Program:
    """Y[ids[t]] = X[t]: right as a parallel program only when the ids are distinct."""
    T, V = dim("T"), dim("V")
    x, ids = Tensor("X", (T,), f32), Tensor("ids", (T,), i32)
    y = Tensor("Y", (V,), f32, out=True)
    t = RegionArg("t", T.whole(), "each")
    one, where = tile("one", f32), tile("where", i32)
    body = Block(
        [
            Load(results=[one], tensor=x, subs=(Sub(index=t.index),)),
            Load(results=[where], tensor=ids, subs=(Sub(index=t.index),)),
            Store(tensor=y, subs=(Sub(index=of(Fn("%where")), promised=True),), value=one),
        ]
    )
    region = Region(kind=kind, args=[t], body=body, name="R0")  # a literal by construction
    return Program("scatter", [T, V], [x, ids, y], [], Block([region]))
