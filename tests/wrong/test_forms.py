"""Scans, sorts, random numbers, memory, einsum and kernels in kernels: what these forms refuse."""

from __future__ import annotations

from tests.wrong.pairs import Pairs

import treadle.lang.api as td
from treadle.dtype.formats import bf16, f32

M, N, K, T = td.dims("M N K T")
TOP = td.dims("TOP", 3)
M2 = M.alias("M2")
pairs = Pairs()


# ---- along open blocks


@pairs.wrong("block/observed")
def scan_of_a_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = td.scan(X[m], M, td.Add)  # wrong


@pairs.right
def scan_of_the_dimension(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = td.scan(X[M], M, td.Add)


@pairs.wrong("block/observed")
def sort_of_a_block(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = td.sort(X[m, n], N)  # wrong


@pairs.right
def sort_of_rows(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = td.sort(X[m, N], N)


@pairs.wrong("block/observed")
def fold_of_a_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] - td.fold(X[m], M, td.Max)  # wrong


@pairs.right
def fold_of_the_dimension(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] - td.fold(X[M], M, td.Max)


# ---- dimensions of the forms


@pairs.wrong("dims/missing")
def scan_of_an_absent_dimension(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = td.scan(X[M], N, td.Add)  # wrong


@pairs.right
def scan_of_its_dimension(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = td.scan(X[M], M, td.Add, reverse=True)


@pairs.wrong("dims/missing")
def sort_of_an_absent_dimension(X: td.Tensor[M, N], Y: td.Out[M, N]):
    Y[M, N] = td.sort(X[M, N], K)  # wrong


@pairs.right
def sort_of_its_dimension(X: td.Tensor[M, N], Y: td.Out[M, N]):
    Y[M, N] = td.sort(X[M, N], N)


@pairs.wrong("capture/argument")
def greatest_to_a_number(X: td.Tensor[M, N], Y: td.Out[M, TOP]):
    td.require(N.extent >= 3)
    for m in td.parallel(M):
        values, _ = td.topk(X[m, N], N, to=3)  # wrong
        Y[m, TOP] = values


@pairs.right
def greatest_to_a_dimension(X: td.Tensor[M, N], Y: td.Out[M, TOP]):
    td.require(N.extent >= 3)
    for m in td.parallel(M):
        values, _ = td.topk(X[m, N], N, to=TOP)
        Y[m, TOP] = values


@pairs.wrong("dtype/operand")
def seed_of_a_fraction(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + td.uniform(0.5, M)  # wrong


@pairs.right
def seed_of_a_number(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + td.uniform(5, M)


# ---- kernels in kernels


@td.kernel
def inner(X: td.Tensor[N], Z: td.Tensor[N, f32] = None, Y: td.Out[N] = None, *, by=2):
    Y[N] = X[N] * by if Z is None else X[N] * by + Z[N]


@pairs.wrong("dims/rank")
def inner_of_a_matrix(X: td.Tensor[M, K], Y: td.Out[M, K]):
    Y[M, K] = inner(X[M, K])  # wrong


@pairs.right
def inner_of_rows(X: td.Tensor[M, K], Y: td.Out[M, K]):
    for m in td.parallel(M.each):
        Y[m, K] = inner(X[m, K])


@pairs.wrong("dims/part-mismatch")
def inner_of_two_parts(X: td.Tensor[M], Z: td.Tensor[K], Y: td.Out[M]):
    Y[M] = inner(X[M], Z[K])  # wrong


@pairs.right
def inner_of_one_part(X: td.Tensor[M], Z: td.Tensor[M], Y: td.Out[M]):
    Y[M] = inner(X[M], Z[M])


@pairs.wrong("dtype/argument")
def inner_of_another_dtype(X: td.Tensor[M], Z: td.Tensor[M, bf16], Y: td.Out[M]):
    Y[M] = inner(X[M], Z[M])  # wrong


@pairs.right
def inner_of_its_dtype(X: td.Tensor[M], Z: td.Tensor[M, bf16], Y: td.Out[M]):
    Y[M] = inner(X[M], Z[M].to(f32))


@pairs.wrong("capture/argument")
def inner_without_an_argument(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + inner()  # wrong


@pairs.right
def inner_with_its_argument(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + inner(X[M], by=3)


test_wrong, test_right = pairs.tests()
