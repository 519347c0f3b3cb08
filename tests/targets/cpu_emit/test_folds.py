"""Folds: the documented order, bit for bit, for every monoid and shape; contractions with more than one coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, S, integers, program

from treadle.dtype.formats import DType, bf16, bool_, f16, f32, f64, i8, i32, u64
from treadle.evaluate.scalar import apply
from treadle.machine.form import Compute, Fold, Frag, FragRef, Load, MemRef, Mma, Stmt, Store

MERGE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor"}


def halved(monoid: str, dtype: DType, x: np.ndarray[Any, Any], axes: tuple[int, ...], nan: str) -> Any:
    """The documented order: axes ascending, each by halving."""
    for n, axis in enumerate(sorted(axes)):
        x = np.moveaxis(x, axis - n, 0)
        while len(x) > 1:
            half = 1 << ((len(x) - 1).bit_length() - 1)
            front = merged(monoid, dtype, x[: len(x) - half], x[half:], nan)
            x = np.concatenate([front, x[len(x) - half : half]])
        x = x[0]
    return x


def merged(monoid: str, dtype: DType, a: Any, b: Any, nan: str) -> Any:
    if nan == "ignore":
        return (np.fmax if monoid == "max" else np.fmin)(a, b)
    return apply(MERGE[monoid], dtype, a, b)


def folded(shape: tuple[int, ...], axes: tuple[int, ...], monoid: str, dtype: DType, nan: str, level: str) -> Compiled:
    kept = tuple(n for i, n in enumerate(shape) if i not in axes)
    body: list[Stmt] = [
        Load(dst="x", src=MemRef("X", tuple(S[: len(shape)]))),
        Load(dst="a", src=MemRef("A", tuple(S[: len(kept)]))),
        Fold(dst="y", monoid=monoid, src=FragRef("x"), axes=axes, nan=nan),
        Fold(dst="z", monoid=monoid, src=FragRef("x"), axes=axes, acc=FragRef("a"), nan=nan),
        Store(dst=MemRef("Y", tuple(S[: len(kept)])), src=FragRef("y")),
        Store(dst=MemRef("Z", tuple(S[: len(kept)])), src=FragRef("z")),
    ]
    frags = [Frag("x", dtype, shape), *(Frag(n, dtype, kept) for n in "ayz")]
    return Compiled(program([("X", dtype, shape), *((n, dtype, kept) for n in "AYZ")], list(body), frags, level=level))


SHAPES = [
    ((16,), (0,)),
    ((31,), (0,)),
    ((48,), (0,)),
    ((70,), (0,)),
    ((1,), (0,)),
    ((5, 16), (0,)),
    ((4, 16), (1,)),
    ((20, 7), (1,)),
    ((5, 16), (1,)),
    ((37, 16), (1,)),
    ((3, 40), (1,)),
    ((3, 5, 24), (0, 2)),
    ((6, 4, 17), (0, 1, 2)),
    ((3, 6, 8), (1,)),
    ((3, 16, 4), (0,)),
    ((24, 2), (1,)),
    ((9, 3), (0,)),
    ((2, 9, 2), (0, 2)),
]


def close(a: Any, b: Any, dtype: DType) -> bool:
    if not dtype.is_float:
        return bool((np.asarray(a) == np.asarray(b)).all())
    x, y = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    return bool(((x == y) | (np.isnan(x) & np.isnan(y))).all())


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_sums_have_the_documented_order(shape: tuple[int, ...], axes: tuple[int, ...], level: str) -> None:
    run = folded(shape, axes, "add", f32, "propagate", level)
    kept = tuple(n for i, n in enumerate(shape) if i not in axes)
    rng = np.random.default_rng(20)
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(np.float32)
    a = rng.standard_normal(kept).astype(np.float32)
    y, z = np.zeros(kept, np.float32), np.zeros(kept, np.float32)
    run(X=x, A=a, Y=y, Z=z)
    want = halved("add", f32, x, axes, "propagate")
    assert (y == want).all() and (z == a + want).all()


CASES = [
    *((m, d, "propagate") for m in ("add", "mul", "max", "min") for d in (f16, bf16, f64, i8, i32, u64)),
    *((m, f32, nan) for m in ("max", "min") for nan in ("propagate", "ignore")),
    *((m, d, "propagate") for m in ("and", "or", "xor") for d in (bool_, i32)),
]


@pytest.mark.parametrize(("monoid", "dtype", "nan"), CASES, ids=lambda v: str(v))
def test_every_monoid(monoid: str, dtype: DType, nan: str) -> None:
    shape, axes = (3, 21), (1,)
    run = folded(shape, axes, monoid, dtype, nan, HOST_LEVELS[-1])
    rng = np.random.default_rng(21)
    x, a = integers(rng, shape, dtype, limit=3), integers(rng, (3,), dtype, limit=3)
    if dtype.is_bool:
        x = rng.integers(0, 5, shape) != 0
    if dtype == f32:
        x[0, 5] = np.nan
        x[1, :] = np.nan
    y, z = np.zeros(3, dtype.numpy), np.zeros(3, dtype.numpy)
    run(X=x, A=a, Y=y, Z=z)
    want = halved(monoid, dtype, x, axes, nan)
    assert close(y, want, dtype) and close(z, merged(monoid, dtype, a, want, nan), dtype)


@pytest.mark.parametrize("dtype", [f32, i32], ids=str)
@pytest.mark.parametrize("atom", ["fma", "muladd"])
def test_contractions_inside_a_statement(dtype: DType, atom: str) -> None:
    """Two contracted coordinates, one operand read from memory, no accumulator: the outer sum of products."""
    body: list[Stmt] = [
        Load(dst="b", src=MemRef("B", (S[0], S[1], S[2]))),
        Mma(
            dst="c",
            acc=None,
            a=MemRef("A", (S[0], S[2], S[3])),
            b=FragRef("b", (S[2], S[3], S[1])),
            atom=atom,
            contracted=(3, 2),
        ),
        Store(dst=MemRef("C", (S[0], S[1])), src=FragRef("c")),
    ]
    frags = [Frag("b", dtype, (3, 2, 20)), Frag("c", dtype, (4, 20))]
    tensors = [("A", dtype, (4, 3, 2)), ("B", dtype, (3, 2, 20)), ("C", dtype, (4, 20))]
    run = Compiled(program(tensors, list(body), frags, level=HOST_LEVELS[-1]))
    rng = np.random.default_rng(22)
    a, b = integers(rng, (4, 3, 2), dtype), integers(rng, (3, 2, 20), dtype)
    c = np.zeros((4, 20), dtype.numpy)
    run(A=a, B=b, C=c)
    assert (c == np.einsum("rkl,klc->rc", a, b)).all()


def test_only_the_fused_atom_is_fused() -> None:
    eps = np.float32(2.0**-12)
    a, b = np.array([[1 + eps]], np.float32), np.full((1, 16), 1 + eps, np.float32)
    exact = np.float32(float(1 + eps) ** 2 - 1.0)
    for atom, want in (("fma", exact), ("muladd", np.float32(a[0, 0] * b[0, 0]) - np.float32(1))):
        body: list[Stmt] = [
            Load(dst="b", src=MemRef("B", (S[0], S[1]))),
            Load(dst="a", src=MemRef("A", (S[0], S[1]))),
            Compute(dst="c", fn="copy", args=(-1.0,)),
            Mma(
                dst="c",
                acc=FragRef("c"),
                a=FragRef("a", (S[0], S[2])),
                b=FragRef("b", (S[2], S[1])),
                atom=atom,
                contracted=(1,),
            ),
            Store(dst=MemRef("C", (S[0], S[1])), src=FragRef("c")),
        ]
        frags = [Frag("a", f32, (1, 1)), Frag("b", f32, (1, 16)), Frag("c", f32, (1, 16))]
        tensors = [("A", f32, (1, 1)), ("B", f32, (1, 16)), ("C", f32, (1, 16))]
        run = Compiled(program(tensors, list(body), frags, level=HOST_LEVELS[-1]))
        c = np.zeros((1, 16), np.float32)
        run(A=a, B=b, C=c)
        assert (c == want).all()
    assert exact != np.float32(a[0, 0] * b[0, 0]) - np.float32(1)


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize("acc", [True, False])
def test_an_operand_is_another_part_of_the_destination(level: str, acc: bool) -> None:
    """A step onto the same fragment backwards, of more slots than a vector has: all of it is read first."""
    n = 40
    moved, plain = FragRef("a", (n - 1 - S[0],)), FragRef("x")
    body: list[Stmt] = [
        Load(dst="x", src=MemRef("X", (S[0],))),
        Load(dst="a", src=MemRef("A", (S[0],))),
        Fold(dst="a", monoid="add", src=plain if acc else moved, acc=moved if acc else plain),
        Store(dst=MemRef("Y", (S[0],)), src=FragRef("a")),
    ]
    frags = [Frag("x", f32, (n,)), Frag("a", f32, (n,))]
    run = Compiled(program([("X", f32, "N"), ("A", f32, "N"), ("Y", f32, "N")], body, frags, level=level))
    x, a, y = np.arange(n, dtype=np.float32), np.arange(n, dtype=np.float32) ** 2, np.zeros(n, np.float32)
    run(X=x, A=a, Y=y)
    assert np.array_equal(y, a[::-1] + x)
