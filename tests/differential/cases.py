"""What each kernel is run on, and what it must give: integers exactly, other numbers within a derived bound.

A bound is componentwise, in units u = 2^-24 of a rounding in f32 (u_b = 2^-8 in bf16). Sums of n terms in any order are
off by at most (n - 1) u of the sum of their magnitudes; functions of the class "2ulp" by 4 u of the result. First
order terms are added up and the whole is multiplied by SLACK, which covers the products of roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tests.differential import kernels as k

import treadle as td
from treadle.driver.kernel import Kernel

Array = NDArray[Any]
Sizes = Mapping[str, int]
Result = dict[str, tuple[Array, Any]]
"""Output -> the number it must be, in f64, and how far it may be off."""

F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
U, U_B, TINY, SLACK = 2.0**-24, 2.0**-8, 2.0**-126, 1.05


@dataclass(frozen=True)
class Case:
    """A kernel with arguments for given extents.

    `inputs` gives arrays by name (and numbers), `outs` the shapes and dtypes of outputs, `wants` the oracle on what is
    passed. `sizes` for the CPU, `tiny` for the simulator.
    """

    name: str
    kernel: Kernel
    inputs: Callable[[Sizes, np.random.Generator], dict[str, Any]]
    outs: Callable[[Sizes], dict[str, tuple[tuple[int, ...], np.dtype[Any]]]]
    wants: Callable[[dict[str, Any]], Result]
    sizes: list[dict[str, int]]
    tiny: list[dict[str, int]]
    staged: dict[str, Any] = field(default_factory=dict[str, Any])
    in_place: tuple[str, str] | None = None
    fixed_layout: frozenset[str] = frozenset()
    """Arguments that are indices: repeating one would change what is in range."""

    def __str__(self) -> str:
        return self.name


def whole(random: np.random.Generator, *shape: int, dtype: Any = F32, most: int = 3) -> Array:
    """Small integers: products and sums of thousands of them are exact in f32."""
    return random.integers(-most, most + 1, shape).astype(dtype)


def up(x: Any) -> Array:
    return np.asarray(x).astype(np.float64)


# ---- oracles


def wants_softmax(bf16: bool) -> Callable[[dict[str, Any]], Result]:
    """d = x - top rounds once (u |d|, which exp turns into a relative error), exp is off by 4 u; so is each term of the
    sum, which adds (n - 1) u; the quotient rounds once. bf16 results round once more."""

    def wants(a: dict[str, Any]) -> Result:
        x = up(a["X"])
        if 0 in x.shape:
            return {"Y": (x, 0.0)}
        d = x - x.max(1, keepdims=True)
        e = np.exp(d)
        y = e / e.sum(1, keepdims=True)
        reach = np.abs(d).max(1, keepdims=True)
        relative = (2 * reach + 8 + x.shape[1]) * U
        return {"Y": (y, SLACK * y * (relative + (U_B if bf16 else 0)) + TINY)}

    return wants


def wants_layernorm(a: dict[str, Any]) -> Result:
    """Sums of integers are exact. mean: u |mean|. d: eta = u (|mean| + |d|). d^2: 2 |d| eta + u d^2, their sum adds
    (n - 1) u, mean and eps two roundings: relative error rho of the variance; rsqrt rho / 2 + 4 u. Then the products
    and the last sum round."""
    x, g, s = up(a["X"]), up(a["G"]), up(a["S"])
    n = x.shape[1]
    if 0 in x.shape:
        return {"Y": (x, 0.0)}
    mean = x.mean(1, keepdims=True)
    d = x - mean
    v = (d * d).mean(1, keepdims=True) + 1e-5
    eta = U * (np.abs(mean) + np.abs(d))
    rho = (2 * np.abs(d) * eta + U * d * d).mean(1, keepdims=True) / v + (n + 3) * U
    r = 1 / np.sqrt(v)
    y = d * r * g + s
    off = np.abs(r * g) * (eta + np.abs(d) * (rho / 2 + 6 * U)) + U * (np.abs(d * r * g) + np.abs(y))
    return {"Y": (y, SLACK * off + TINY)}


def gelu(z: Array) -> tuple[Array, Array]:
    """t = z c rounds twice (c, product): erf moves by at most 2 u t erf'(t) < u; erf is off by 4 u, 1 + erf rounds by
    2 u at most; half of |z| times that, and two products round."""
    y = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in z.ravel()]).reshape(z.shape)
    return y, (0.5 * 7 * U) * np.abs(z) + 2 * U * np.abs(y)


def silu(z: Array) -> tuple[Array, Array]:
    """exp 4 u (its argument is exact), the sum u, the quotient u."""
    with np.errstate(over="ignore"):
        y = z / (1 + np.exp(-z))
    return y, 6 * U * np.abs(y)


def wants_linear(act: bool) -> Callable[[dict[str, Any]], Result]:
    """The contraction of integers is exact; what follows is the activation's."""

    def wants(a: dict[str, Any]) -> Result:
        z = up(a["X"]) @ up(a["W"])
        if a.get("bias") is not None:
            z = z + up(a["bias"])
        if not act:
            return {"Y": (z, 0.0)}
        y, off = gelu(z)
        return {"Y": (y, SLACK * off + TINY)}

    return wants


def wants_gated(act: bool) -> Callable[[dict[str, Any]], Result]:
    def wants(a: dict[str, Any]) -> Result:
        x = up(a["X"])
        g, u = x @ up(a["G"]), x @ up(a["U"])
        if not act:
            return {"Y": (g * u, 0.0)}
        y, off = silu(g)
        return {"Y": (y * u, SLACK * (off * np.abs(u) + U * np.abs(y * u)) + TINY)}

    return wants


def wants_attention(bf16: bool, causal: bool) -> Callable[[dict[str, Any]], Result]:
    """Scores of integers, times a power of two, are exact, as is their maximum; a weight p is off by 4 u, and every
    step multiplies what came before by a factor that is off by 4 u and rounds. With at most one step for each key,
    numerator and denominator are off by 6 u (keys) + (keys + 4) u of their magnitudes. bf16 weights add u_b."""

    def wants(a: dict[str, Any]) -> Result:
        q, key, v = up(a["Q"]), up(a["KX"]), up(a["VX"])
        keys = key.shape[1]
        score = np.einsum("bqd,bkd->bqk", q, key) * 0.25
        seen = np.ones(score.shape, bool)
        if causal:
            seen &= np.arange(q.shape[1])[:, None] >= np.arange(keys)[None, :]
        if a.get("length") is not None:
            seen &= np.arange(keys)[None, None, :] < np.asarray(a["length"])[:, None, None]
        with np.errstate(all="ignore"):
            if keys == 0:
                return {"Y": (np.full(q.shape, np.nan), 0.0)}
            p = np.where(seen, np.exp(score - np.where(seen, score, -np.inf).max(2, keepdims=True)), 0.0)
            weight = p / p.sum(2, keepdims=True)
            y = np.einsum("bqk,bkd->bqd", weight, v)
            magnitude = np.einsum("bqk,bkd->bqd", weight, np.abs(v))
        relative = 2 * (7 * keys + 8) * U + (U_B if bf16 else 0)
        return {"Y": (y, SLACK * relative * magnitude + TINY)}

    return wants


def wants_stencil(a: dict[str, Any]) -> Result:
    x = np.pad(up(a["X"]), ((1, 1), (2, 0)))
    return {"Y": (x[:-2, 2:] + x[2:, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 2:], 0.0)}


def wants_integers(a: dict[str, Any]) -> Result:
    x = np.asarray(a["X"]).astype(np.int64)
    return {"Y": (up(np.where(x % 3 == 1, x // 2, x * 5 - (x & 6))), 0.0)}


def wants_recurrence(a: dict[str, Any]) -> Result:
    x, g = up(a["X"]), up(a["G"])
    y, h = np.zeros(x.shape), np.zeros(x.shape[1])
    for t in range(len(x)):
        h = h * g + x[t]
        y[t] = h
    return {"Y": (y, 0.0)}


def wants_two_phases(a: dict[str, Any]) -> Result:
    x = up(a["X"])
    c = x - x.sum(1, keepdims=True)
    top = c.max(0, keepdims=True) if len(c) else np.zeros((1, x.shape[1]))
    return {"Y": ((c + top).T, 0.0)}


def wants_segments(a: dict[str, Any]) -> Result:
    x, s = up(a["X"]), np.asarray(a["start"])
    rows = [x[max(lo, 0) : hi].sum(0) for lo, hi in zip(s[:-1], s[1:])]
    return {"Y": (np.stack(rows) if rows else np.zeros((0, x.shape[1])), 0.0)}


def wants_columns(a: dict[str, Any]) -> Result:
    x = up(a["X"])
    return {"Y": (x.sum(0), 0.0), "Z": (x.max(0) if len(x) else np.full(x.shape[1], -np.inf), 0.0)}


def only(function: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Result]:
    """An oracle with one exact output Y."""
    return lambda a: {"Y": (up(function(a)), 0.0)}


# ---- the list


def grid(*names: str, **lists: list[int]) -> list[dict[str, int]]:
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


MN = grid(M=[17, 1, 64, 33, 0, 5], N=[23, 1, 96, 0, 7, 1031])
MN_TINY = grid(M=[5, 1, 0], N=[19, 1, 3])
MNK = grid(M=[17, 1, 65, 0, 3], N=[31, 1, 130, 5, 0], K=[13, 257, 70, 4, 6]) + [{"M": 9, "N": 11, "K": 0}]
MNK_TINY = grid(M=[5, 1, 3], N=[18, 1, 2], K=[7, 3, 0])


def _linear(name: str, dtype: Any, bias: bool, act: bool) -> Case:
    return Case(
        name,
        k.linear,
        lambda s, r: {
            "X": whole(r, s["M"], s["K"], dtype=dtype),
            "W": whole(r, s["K"], s["N"], dtype=dtype),
            **({"bias": whole(r, s["N"])} if bias else {}),
        },
        lambda s: {"Y": ((s["M"], s["N"]), F32)},
        wants_linear(act),
        MNK,
        MNK_TINY,
        {"act": td.gelu} if act else {},
    )


def _attention(name: str, dtype: Any, causal: bool, ragged: bool) -> Case:
    def inputs(s: Sizes, r: np.random.Generator) -> dict[str, Any]:
        made: dict[str, Any] = {
            "Q": whole(r, s["B"], s["Sq"], s["D"], dtype=dtype, most=2),
            "KX": whole(r, s["B"], s["Sk"], s["D"], dtype=dtype, most=2),
            "VX": whole(r, s["B"], s["Sk"], s["D"], dtype=dtype),
        }
        if ragged:
            made["length"] = r.integers(1, s["Sk"] + 1, s["B"]).astype(np.int32)
        return made

    sizes = grid(B=[2, 1, 3], Sq=[19, 1, 40], Sk=[37, 1, 65], D=[16, 5, 16])
    if causal:
        sizes = [{**s, "Sk": s["Sq"]} for s in sizes]
    return Case(
        name,
        k.attention,
        inputs,
        lambda s: {"Y": ((s["B"], s["Sq"], s["D"]), F32)},
        wants_attention(dtype == BF16, causal),
        sizes,
        [{"B": 1, "Sq": 3, "Sk": 3 if causal else 5, "D": 4}],
        {"causal": True} if causal else {},
        fixed_layout=frozenset({"length"}),
    )


def _mn(
    name: str,
    kernel: Kernel,
    wants: Callable[[dict[str, Any]], Result],
    *,
    dtype: Any = F32,
    out: Any = None,
    **more: Any,
) -> Case:
    """A kernel of one matrix X, with an output Y like it."""
    return Case(
        name,
        kernel,
        lambda s, r: {"X": whole(r, s["M"], s["N"], dtype=dtype)},
        lambda s: {"Y": ((s["M"], s["N"]), np.dtype(dtype))},
        wants,
        MN,
        MN_TINY,
        **more,
    )


CASES = [
    Case(
        "affine",
        k.affine,
        lambda s, r: {"X": whole(r, s["M"], s["N"]), "G": whole(r, s["N"]), "s": float(r.integers(-2, 3))},
        lambda s: {"Y": ((s["M"], s["N"]), F32)},
        only(lambda a: np.maximum(up(a["X"]) * a["s"] + up(a["G"]), 0)),
        MN,
        MN_TINY,
        in_place=("Y", "X"),
    ),
    _mn("integers_i32", k.integers, wants_integers, dtype=np.int32, in_place=("Y", "X")),
    _mn("integers_i64", k.integers, wants_integers, dtype=np.int64),
    _mn("softmax_f32", k.softmax, wants_softmax(False), in_place=("Y", "X")),
    _mn("softmax_bf16", k.softmax, wants_softmax(True), dtype=BF16),
    Case(
        "layernorm",
        k.layernorm,
        lambda s, r: {"X": whole(r, s["M"], s["N"], most=9), "G": whole(r, s["N"]), "S": whole(r, s["N"])},
        lambda s: {"Y": ((s["M"], s["N"]), F32)},
        wants_layernorm,
        MN,
        MN_TINY,
    ),
    _linear("linear_f32", F32, True, False),
    _linear("linear_f32_gelu", F32, True, True),
    _linear("linear_f32_plain", F32, False, False),
    _linear("linear_bf16", BF16, True, False),
    _linear("linear_bf16_gelu", BF16, False, True),
    Case(
        "batched",
        k.batched,
        lambda s, r: {"X": whole(r, s["B"], s["M"], s["K"]), "W": whole(r, s["B"], s["K"], s["N"])},
        lambda s: {"Y": ((s["B"], s["M"], s["N"]), F32)},
        only(lambda a: up(a["X"]) @ up(a["W"])),
        [{**s, "B": 1 + i % 3} for i, s in enumerate(MNK)] + [{"B": 0, "M": 3, "N": 4, "K": 5}],
        [{**s, "B": 2} for s in MNK_TINY],
    ),
    *(
        Case(
            f"gated{'_silu' if act else ''}_{'bf16' if dtype == BF16 else 'f32'}",
            k.gated,
            lambda s, r, dtype=dtype: {
                "X": whole(r, s["M"], s["K"], dtype=dtype, most=1),
                "G": whole(r, s["K"], s["N"], dtype=dtype, most=1),
                "U": whole(r, s["K"], s["N"], dtype=dtype, most=1),
            },
            lambda s: {"Y": ((s["M"], s["N"]), F32)},
            wants_gated(act),
            MNK,
            MNK_TINY,
            {"act": td.silu} if act else {},
        )
        for act, dtype in ((False, F32), (True, F32), (True, BF16))
    ),
    _attention("attention_f32", F32, False, False),
    _attention("attention_f32_causal", F32, True, False),
    _attention("attention_f32_ragged", F32, False, True),
    _attention("attention_bf16_causal", BF16, True, False),
    _attention("attention_bf16_ragged", BF16, False, True),
    Case(
        "embed",
        k.embed,
        lambda s, r: {
            "ids": r.integers(0, s["V"], s["T"]).astype(np.int32),
            "E": whole(r, s["V"], s["D"]),
            "P": whole(r, s["T"], s["D"]),
        },
        lambda s: {"Y": ((s["T"], s["D"]), F32)},
        only(lambda a: up(a["E"])[np.asarray(a["ids"])] + up(a["P"])),
        grid(T=[17, 1, 0, 40], V=[5, 1, 3, 100], D=[13, 64, 4, 1]),
        grid(T=[3, 0], V=[5, 1], D=[18, 2]),
    ),
    Case(
        "segments",
        k.segments,
        lambda s, r: {
            "X": whole(r, s["T"], s["D"]),
            "start": np.sort(r.integers(0, s["T"] + 1, s["B"] + 1)).astype(np.int32),
        },
        lambda s: {"Y": ((s["B"], s["D"]), F32)},
        wants_segments,
        grid(T=[29, 1, 0, 100], B=[4, 1, 3, 7], D=[13, 1, 6, 33]),
        grid(T=[7, 0], B=[3, 1], D=[5, 2]),
        fixed_layout=frozenset({"start"}),
    ),
    Case(
        "two_phases",
        k.two_phases,
        lambda s, r: {"X": whole(r, s["M"], s["N"])},
        lambda s: {"Y": ((s["N"], s["M"]), F32)},
        wants_two_phases,
        MN,
        MN_TINY,
    ),
    Case(
        "branch",
        k.branch,
        lambda s, r: {"X": whole(r, s["M"], s["N"]), "F": r.integers(-1, 2, s["M"]).astype(np.int32)},
        lambda s: {"Y": ((s["M"], s["N"]), F32)},
        only(
            lambda a: np.where(
                np.asarray(a["F"])[:, None] > 0, up(a["X"]) + up(a["X"]).sum(1, keepdims=True), -up(a["X"])
            )
        ),
        MN,
        MN_TINY,
        in_place=("Y", "X"),
    ),
    Case(
        "recurrence",
        k.recurrence,
        lambda s, r: {"X": whole(r, s["T"], s["D"]), "G": whole(r, s["D"], most=1)},
        lambda s: {"Y": ((s["T"], s["D"]), F32)},
        wants_recurrence,
        grid(T=[17, 1, 0, 70], D=[23, 1, 5, 33]),
        grid(T=[4, 0], D=[18, 2]),
        in_place=("Y", "X"),
    ),
    Case(
        "running",
        k.running,
        lambda s, r: {"X": whole(r, s["M"], s["T"])},
        lambda s: {"Y": ((s["M"], s["T"]), F32)},
        only(lambda a: np.cumsum(up(a["X"]), 1)),
        grid(M=[17, 1, 3, 40], T=[23, 1, 0, 5]),
        grid(M=[18, 1], T=[4, 0]),
    ),
    _mn("stencil", k.stencil, wants_stencil),
    Case(
        "transpose",
        k.transpose,
        lambda s, r: {"X": whole(r, s["M"], s["N"])},
        lambda s: {"Y": ((s["N"], s["M"]), F32)},
        only(lambda a: up(a["X"]).T),
        MN,
        MN_TINY,
    ),
    Case(
        "columns",
        k.columns,
        lambda s, r: {"X": whole(r, s["M"], s["N"])},
        lambda s: {"Y": ((s["N"],), F32), "Z": ((s["N"],), F32)},
        wants_columns,
        MN,
        MN_TINY,
    ),
    Case(
        "pool",
        k.pool,
        lambda s, r: {"X": whole(r, s["M"], s["A"], s["C"])},
        lambda s: {"Y": ((s["M"],), F32)},
        only(lambda a: up(a["X"]).sum((1, 2))),
        grid(M=[17, 1, 0, 5], A=[3, 1, 2, 0], C=[23, 1, 4, 9]),
        grid(M=[5, 2], A=[3, 0], C=[7, 2]),
    ),
    Case(
        "outer",
        k.outer,
        lambda s, r: {"X": whole(r, s["M"]), "W": whole(r, s["N"])},
        lambda s: {"Y": ((s["M"], s["N"]), F32)},
        only(lambda a: np.outer(up(a["X"]), up(a["W"]))),
        MN,
        MN_TINY,
    ),
    Case(
        "heads",
        k.heads,
        lambda s, r: {"X": whole(r, s["T"], 3 * s["C"])},
        lambda s: {"Y": ((3, s["T"], s["C"]), F32)},
        only(lambda a: np.moveaxis(up(a["X"]).reshape(len(a["X"]), 3, a["X"].shape[1] // 3), 1, 0)),
        grid(T=[17, 1, 40], C=[16, 1, 7]),
        grid(T=[3], C=[5]),
        {"count": 3},
    ),
    *(
        Case(
            f"totals_{order}",
            k.totals,
            lambda s, r: {"X": whole(r, s["M"], s["N"])},
            lambda s: {"S": ((), F32)},
            lambda a: {"S": (np.float64(up(a["X"]).sum()), 0.0)},
            MN,
            MN_TINY,
            {"order": getattr(td, order)},
        )
        for order in ("unordered", "ordered")
    ),
]


def off(got: Array, want: Array, bound: Any) -> str:
    """Where a result is farther from the number than it may be; empty when nowhere."""
    with np.errstate(all="ignore"):
        mine = up(got)
        right = (mine == want) | (np.isnan(mine) & np.isnan(want)) | (np.abs(mine - want) <= bound)
    if mine.shape != want.shape:
        return f"shape {mine.shape} instead of {want.shape}"
    if right.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~right)[0])
    allowed = np.broadcast_to(bound, want.shape)[at]
    return f"{mine[at]} instead of {want[at]} +- {allowed} at {at}, and {np.sum(~right) - 1} more"
