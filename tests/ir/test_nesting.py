"""Nests of parallel regions become one region where the outer instance owns nothing, and mean what they meant."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from treadle import f32, i32
from treadle.algebra.expr import ZERO, Fn, of, sym
from treadle.evaluate.cuts import Random
from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program, Region
from treadle.ir.expand import expand
from treadle.ir.nesting import nested
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify

B, B1, M, N, K = td.dims("B B1 M N K")


@td.kernel
def product(X: td.Tensor[B, M, K], W: td.Tensor[B, N, K], Y: td.Out[B, M, N] = None):
    """Three regions in one another."""
    for b in td.parallel(B.each):
        for m in td.parallel(M):
            for n in td.parallel(N):
                s = td.zeros(m, n, dtype=f32)
                for k in td.reduce(K):
                    s = td.mma(X[b, m, k], W[b, n, k], s)
                Y[b, m, n] = s.to(Y.dtype)


@td.kernel
def segments(X: td.Tensor[N, K], ends: td.Tensor[B1], Y: td.Out[B, K] = None):
    """Sums of ranges that a run tells, columns by themselves."""
    td.require(B.extent + 1 == B1.extent)
    for b in td.parallel(B.each):
        for k in td.parallel(K):
            acc = td.zeros(k, dtype=f32)
            for n in td.reduce(N[ends[b] : ends[b + 1]]):
                acc = acc + X[n, k].sum(n)
            Y[b, k] = acc


@td.kernel
def owned(X: td.Tensor[M, N], S: td.Tensor[M], Y: td.Out[M, N] = None):
    """What an instance loads is shared by those inside it: the author's choice."""
    for m in td.parallel(M.each):
        s = S[m]
        for n in td.parallel(N):
            Y[m, n] = X[m, n] * s


@td.kernel
def triangle(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    """Ranges that differ from instance to instance."""
    for m in td.parallel(M.each):
        for n in td.parallel(N[0 : m + 1]):
            Y[m, n] = X[m, n]


@td.kernel
def siblings(X: td.Tensor[M, N], Y: td.Out[M, N] = None, Z: td.Out[M, K] = None):
    """Two regions in an instance."""
    for m in td.parallel(M.each):
        for n in td.parallel(N):
            Y[m, n] = X[m, n]
        for k in td.parallel(K):
            Z[m, k] = td.zeros(k, dtype=f32)


TILES = """\
program tiles
  dim M
  dim N
  tensor X: i64[M, N]
  tensor Y: i64[M, N] out
  body
    %t: i64[M, N] = full 7
    region R0 parallel (m in M each) carry (%v: i64[M, N] = %t) -> (%u)
      region R1 parallel (n in N each) carry (%p: i64[M, N] = %v) -> (%w)
        %x: i64[] = load X[m, n]
        %q: i64[M, N] = insert %p[m, n] = %x
        yield %q
      yield %w
    store Y[M, N] = %u
"""


def parallels(program: Program) -> list[list[str]]:
    """The arguments of each parallel region."""
    return [
        [a.source for a in op.args] for op in program.body.walk() if isinstance(op, Region) and op.kind == "parallel"
    ]


def arrays(program: Program, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    found = {}
    for number, tensor in enumerate(program.tensors):
        shape = [sizes[d.name] for d in tensor.dims]
        found[tensor.name] = np.random.default_rng(number).integers(-3, 4, shape).astype(tensor.dtype.numpy)
    if "ends" in found:
        found["ends"] = np.array([0, 2, 2, 5], found["ends"].dtype)
    return found


SIZES = {"B": 3, "B1": 4, "M": 3, "N": 5, "K": 2}
CASES = [
    (product, {}, [["b", "m", "n"]]),
    (segments, {"ends": i32}, [["b", "k"]]),
    (owned, {}, [["m"], ["n"]]),
    (triangle, {}, [["m"], ["n"]]),
    (siblings, {}, [["m"], ["n"], ["k"]]),
]


@pytest.mark.parametrize(("kernel", "dtypes", "wanted"), CASES)
def test_instances_are_those_of_both(kernel: td.Kernel, dtypes: dict[str, td.DType], wanted: list[list[str]]) -> None:
    program = kernel.definition.capture(dtypes, {})
    expanded = expand(program)
    verify(expanded)
    assert parallels(expanded) == wanted
    assert not nested(expanded) and expand(expanded) is expanded
    assert (expanded is program) == (not nested(program))
    assert print_program(parse_program(print_program(expanded))) == print_program(expanded)
    results = []
    for one, cuts in ((program, None), (expanded, None), (expanded, Random(3))):
        results.append(arrays(program, SIZES))
        evaluate(one, results[-1], extents=SIZES, cuts=cuts)
    for got in results[1:]:
        for name, array in results[0].items():
            np.testing.assert_array_equal(got[name], array)


def test_tiles_go_through() -> None:
    program = parse_program(TILES)
    verify(program)
    expanded = expand(program)
    verify(expanded)
    assert [r.args for r in expanded.body.walk() if isinstance(r, Region)][0][1].name == "n" and not nested(expanded)
    x = np.arange(12).reshape(3, 4)
    for one in (program, expanded):
        given = {"X": x.copy(), "Y": np.zeros_like(x)}
        evaluate(one, given, extents={"M": 3, "N": 4})
        np.testing.assert_array_equal(given["Y"], x)


APART = {
    "another kind": lambda outer, inner: setattr(outer, "kind", "serial"),
    "another order": lambda outer, inner: setattr(inner, "order", "ordered"),
    "another scope": lambda outer, inner: setattr(inner, "scope", "memory"),
    "other versions": lambda outer, inner: setattr(inner, "versions", 2),
    "stages around": lambda outer, inner: outer.stages.append(("load", 0)),
    "stages inside": lambda outer, inner: inner.stages.append(("load", 0)),
    "another beginning": lambda outer, inner: inner.inits.__setitem__(0, outer.inits[0]),
    "another end": lambda outer, inner: outer.body.yields.__setitem__(0, outer.carried[0]),
    "blocks of another size in each": lambda outer, inner: setattr(inner.args[0], "size", sym("m") + 1),
    "blocks of a size that is handed in": lambda outer, inner: setattr(
        inner.args[0], "size", of(Fn(outer.carried[0].name, (ZERO, ZERO)))
    ),
}


@pytest.mark.parametrize("why", APART)
def test_what_differs_stays_apart(why: str) -> None:
    program = parse_program(TILES)
    outer, inner = (op for op in program.body.walk() if isinstance(op, Region))
    assert nested(program)
    APART[why](outer, inner)
    assert not nested(program)


@pytest.mark.parametrize(
    ("target", "family"), [("cuda:sm_90a", "streams"), ("cuda:sm_80", "warps"), ("cpu:avx512", "")]
)
def test_a_nest_is_planned_as_one_region(target: str, family: str) -> None:
    @td.kernel
    def flat(X: td.Tensor[B, M, K], W: td.Tensor[B, N, K], Y: td.Out[B, M, N] = None):
        for b, m, n in td.parallel(B.each, M, N):
            s = td.zeros(m, n, dtype=f32)
            for k in td.reduce(K):
                s = td.mma(X[b, m, k], W[b, n, k], s)
            Y[b, m, n] = s.to(Y.dtype)

    given = [td.like(td.bf16, 8, 512, 256, align=256) for _ in range(2)]
    plans = [kernel.plan(*given, target=target) for kernel in (product, flat)]
    nest, one = (plan.decisions for plan in plans)
    assert (nest.family, nest.point) == (one.family, one.point) and ": verified>" in repr(plans[0])
    assert nest.family != "universal"
