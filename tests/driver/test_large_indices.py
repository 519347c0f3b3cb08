"""Index expressions near the limits of 64 bits: nothing wraps silently, and no error of Python leaks.

Random expressions over a coordinate, an extent and a scalar parameter: compiled code and the interpreter give what
Python's integers give, or the call is refused.
"""

from __future__ import annotations

import itertools
import random
import warnings
from pathlib import Path

import numpy as np
import pytest

import treadle as td
from treadle import i64, u64
from treadle.algebra.expr import floordiv, maximum, minimum, sym
from treadle.base.errors import TreadleError
from treadle.ir.ranges import LIMIT, reach

M, N = td.dims("M N")
HEAD = """import treadle as td
M = td.dims("M")


@td.kernel
def stored(s: td.Scalar[td.i64], {outs}):
    for m in td.parallel(M.each):
        n = M.extent
"""
REFUSED = ("bounds/index-size", "dtype/number-out-of-range")


def made(rng: random.Random, depth: int) -> str:
    """A random expression as text that Python evaluates, and a kernel too."""
    if depth == 0:
        big = rng.choice([2, 7, 2**31, 2**40, 2**61, 2**62 - 1, 2**62, 2**63 - 1])
        return rng.choice(["m", "n", "s", "m", "n", str(rng.randrange(9)), str(big), f"({-big})"])
    x, y = made(rng, depth - 1), made(rng, rng.randrange(depth))
    by = rng.choice([2, 3, 2**32])
    return rng.choice([f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} // {by})", f"({x} % {by})",
                       f"least({x}, {y})", f"most({x}, {y})"])  # fmt: skip


def truth(text: str, m: int, n: int, s: int) -> int:
    return int(eval(text, {"least": min, "most": max}, {"m": m, "n": n, "s": s}))


def kernel_of(texts: list[str], path: Path) -> td.Kernel:
    outs = ", ".join(f"Y{i}: td.Out[M, td.i64]" for i in range(len(texts)))
    lines = [f"        Y{i}[m] = {t}" for i, t in enumerate(texts)]
    code = HEAD.format(outs=outs) + "\n".join(lines).replace("least", "td.minimum").replace("most", "td.maximum")
    path.write_text(code + "\n", encoding="utf-8")
    space: dict[str, object] = {}
    exec(compile(code, str(path), "exec"), space)
    return space["stored"]


def test_compiled_code_and_interpreter_are_exact_or_refuse(tmp_path: Path) -> None:
    rng = random.Random(20261130)
    numbers = itertools.count()
    accepted: list[str] = []
    refused = 0
    size, s = 4, 2**33 + 5
    for _ in range(120):
        text = made(rng, rng.choice([1, 2, 3]))
        y = np.zeros(size, np.int64)
        try:
            kernel_of([text], tmp_path / f"made_{next(numbers)}.py").reference(s, y)
        except TreadleError as error:
            assert error.code in REFUSED, f"{text}: {error}"
            refused += 1
            continue
        assert y.tolist() == [truth(text, m, size, s) for m in range(size)], text
        accepted.append(text)
    assert refused > 10 and len(accepted) > 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for start in range(0, len(accepted), 40):
            texts = accepted[start : start + 40]
            outs = [np.zeros(size, np.int64) for _ in texts]
            kernel_of(texts, tmp_path / f"made_{next(numbers)}.py")(s, *outs)
            for text, y in zip(texts, outs, strict=True):
                assert y.tolist() == [truth(text, m, size, s) for m in range(size)], text


def test_a_range_holds_every_value() -> None:
    """`reach` against the values themselves, at all corners and inside."""
    rng = random.Random(7)
    a, b = sym("a"), sym("b")
    ranges = {"a": (-3, 4), "b": (1, 5)}

    def build(depth: int):
        if depth == 0:
            return rng.choice([a, b, a, b, a * 0 + rng.randrange(-6, 7)])
        x, y = build(depth - 1), build(rng.randrange(depth))
        return rng.choice([x + y, x - y, x * y, floordiv(x, rng.randrange(1, 5)), minimum(x, y), maximum(x, y)])

    for _ in range(300):
        expr = build(3)
        (low, high), peak = reach(expr, ranges, lambda _: (0, 0))
        values = [expr.evaluate({"a": i, "b": j}) for i in range(-3, 5) for j in range(1, 6)]
        assert low <= min(values) and max(values) <= high and peak >= max(map(abs, values)), expr


@td.kernel
def spread(s: td.Scalar[i64], Y: td.Out[M, i64]):
    for m in td.parallel(M.each):
        Y[m] = (m + 1) * s


@td.kernel
def some(u: td.Scalar[u64], X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M[:u]):
        Y[m] = X[m] + 1


@td.kernel
def ranged(lo: td.Scalar[i64], hi: td.Scalar[i64], X: td.Tensor[M, N], Y: td.Out[M], Z: td.Out[N]):
    for m in td.parallel(M):
        acc = td.zeros(m)
        for n in td.reduce(N[lo:hi]):
            acc = acc + X[m, n].sum(N)
        Y[m] = acc
    for n in td.parallel(N):
        Z[n] = 0.0
    for n in td.parallel(N[lo:hi]):
        Z[n] = 1.0


@td.kernel
def lengths(length: td.Tensor[M, i64], X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M.each):
        acc = td.zeros()
        for n in td.reduce(N[: length[m]]):
            acc = acc + X[m, n].sum(N)
        Y[m] = acc


@td.kernel
def powers(Y: td.Out[M, i64]):
    for m in td.parallel(M.each):
        Y[m] = m * 2**61


def test_each_call_is_looked_at_by_itself() -> None:
    """The same kernel and shapes: numbers passed by value decide, also after a call was learned."""
    y = np.zeros(3, np.int64)
    for _ in range(3):
        spread(2**61, y)
    assert y.tolist() == [2**61, 2**62, 3 * 2**61]
    for call in (spread, spread.reference):
        with pytest.raises(TreadleError) as caught:
            call(2**62, y)
        assert caught.value.code == "bounds/index-size" and "may reach" in str(caught.value)
    powers(np.zeros(4, np.int64))
    powers(np.zeros(4, np.int64))
    with pytest.raises(TreadleError, match="bounds/index-size"):
        powers(np.zeros(9, np.int64))
    assert LIMIT == 2**63 - 1


@pytest.mark.parametrize("u", [0, 2, 5, 2**63 - 1, 2**63, 2**64 - 1])
def test_unsigned_bounds_beyond_the_signed_numbers(u: int) -> None:
    x = np.arange(5, dtype=np.float32)
    for run in (some, some.reference):
        y = np.zeros(5, np.float32)
        run(u, x, y)
        assert y.tolist() == [x[i] + 1 if i < u else 0 for i in range(5)]


EXTREMES = (-(2**63), 40 - 2**63, -(2**62), 0, 3, 2**62, 2**63 - 17, 2**63 - 2, 2**63 - 1)


def test_signed_bounds_near_the_limits() -> None:
    """Blocks are cut from bounds of run time (`hi - n + 15`): no such sum wraps, whatever the bound is."""
    x = np.arange(5 * 70, dtype=np.float32).reshape(5, 70)
    compared = 0
    for lo, hi in itertools.product(EXTREMES, repeat=2):
        try:
            ranged.reference(lo, hi, x)
        except TreadleError as error:
            assert error.code in REFUSED
            continue
        y, z = ranged(lo, hi, x)
        inside = np.array([float(lo <= n < hi) for n in range(70)], np.float32)
        assert z.tolist() == inside.tolist(), (lo, hi)
        assert y.tolist() == (x @ inside).tolist(), (lo, hi)
        compared += 1
    assert compared > 40
    length = np.array([EXTREMES[-1], EXTREMES[0], 3, EXTREMES[-2], EXTREMES[1]], np.int64)
    inside = np.arange(70) < length[:, None]
    assert lengths(length, x).tolist() == (x * inside).sum(1).tolist()
