"""Subscripts, bounds, dimensions and stores: what cannot be proved in range, or has no place where it is put."""

from __future__ import annotations

from tests.wrong.pairs import Pairs

import treadle.lang.api as td
from treadle.dtype.formats import f32, i32, i64

M, N, K, T, V = td.dims("M N K T V")
M2 = M.alias("M2")
D = td.dims("D", 4)
KV, R = td.dims("KV R")
H = td.product(KV, R)
pairs = Pairs()


# ---- bounds


@pairs.wrong("bounds/unproved")
def gathered_rows(W: td.Tensor[V, N], ids: td.Tensor[T, i32], Y: td.Out[T, N]):
    for t in td.parallel(T):
        Y[t, N] = W[ids[t], N]  # wrong


@pairs.right
def promised_rows(W: td.Tensor[V, N], ids: td.Tensor[T, i32], Y: td.Out[T, N]):
    for t in td.parallel(T):
        Y[t, N] = W[td.in_range(ids[t], V), N]


@pairs.wrong("bounds/unproved")
def window_beyond_the_end(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = X[m] + X[m + 1] + X[m + 2]  # wrong


@pairs.right
def window_filled(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = X[m] + X.at(m + 1, fill=0) + X.at(m + 2, fill=0)


@pairs.wrong("bounds/unproved")
def window_before_the_start(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m - 1]  # wrong


@pairs.right
def window_guarded(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = X[m]
        if m > 0:
            Y[m] = X[m - 1]


@pairs.wrong("bounds/unproved")
def first_of_a_dimension(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] - X[0]  # wrong


@pairs.right
def first_of_a_required_dimension(X: td.Tensor[M], Y: td.Out[M]):
    td.require(M.extent >= 1)
    Y[M] = X[M] - X[0]


@pairs.wrong("bounds/unproved")
def other_dimension_as_index(X: td.Tensor[M], Y: td.Out[N]):
    for n in td.parallel(N):
        Y[n] = X[n.coords]  # wrong


@pairs.right(M=7, N=7)
def other_dimension_of_known_extent(X: td.Tensor[M], Y: td.Out[N]):
    td.require(M.extent == N.extent)
    for n in td.parallel(N):
        Y[n] = X[n.coords]


@pairs.wrong("bounds/unproved")
def strided_reads(X: td.Tensor[M], Y: td.Out[N]):
    for n in td.parallel(N):
        Y[n] = X[2 * n + 1]  # wrong


@pairs.right(M=15, N=7)
def strided_reads_with_a_fact(X: td.Tensor[M], Y: td.Out[N]):
    td.require(2 * N.extent <= M.extent)
    for n in td.parallel(N):
        Y[n] = X[2 * n + 1]


@pairs.wrong("bounds/unproved")
def store_at_a_loaded_index(X: td.Tensor[T], ids: td.Tensor[T, i32], Y: td.Out[V]):
    Y[V] = 0.0
    for t in td.serial(T.each):
        Y[ids[t]] = X[t]  # wrong


@pairs.right
def store_at_a_promised_index(X: td.Tensor[T], ids: td.Tensor[T, i32], Y: td.Out[V]):
    Y[V] = 0.0
    for t in td.serial(T.each):
        Y[td.in_range(ids[t], V)] = X[t]


@pairs.wrong("bounds/unproved")
def count_at_a_loaded_index(ids: td.Tensor[T, i32], Y: td.Out[V, i32]):
    Y[V] = 0
    for t in td.parallel(T):
        Y.add_at(ids[t], 1)  # wrong


@pairs.right
def count_at_a_promised_index(ids: td.Tensor[T, i32], Y: td.Out[V, i32]):
    Y[V] = 0
    for t in td.parallel(T):
        Y.add_at(td.in_range(ids[t], V), 1)


@pairs.wrong("bounds/outside")
def last_element(X: td.Tensor[M, N], Y: td.Out[M]):
    td.require(N.extent >= 1)
    Y[M] = X[M, -1]  # wrong


@pairs.right
def last_element_by_extent(X: td.Tensor[M, N], Y: td.Out[M]):
    td.require(N.extent >= 1)
    Y[M] = X[M, N.extent - 1]


@pairs.wrong("bounds/outside")
def all_but_the_last(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = 0.0
    for m in td.parallel(M[:-1]):  # wrong
        Y[m] = X[m]


@pairs.right
def all_but_the_last_by_extent(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = 0.0
    for m in td.parallel(M[: M.extent - 1]):
        Y[m] = X[m]


@pairs.wrong("bounds/outside")
def beyond_a_fixed_extent(X: td.Tensor[M, D], Y: td.Out[M]):
    Y[M] = X[M, 0] + X[M, 4]  # wrong


@pairs.right
def within_a_fixed_extent(X: td.Tensor[M, D], Y: td.Out[M]):
    Y[M] = X[M, 0] + X[M, 3]


@pairs.wrong("bounds/outside")
def negative_repetitions(X: td.Tensor[M], Y: td.Out[M], *, n=-1):
    Y[M] = X[M]
    for _ in td.serial(n):  # wrong
        Y[M] = X[M] * 2


@pairs.right
def clamped_repetitions(X: td.Tensor[M], Y: td.Out[M], *, n=-1):
    Y[M] = X[M]
    for _ in td.serial(max(n, 0)):
        Y[M] = X[M] * 2


# ---- dimensions


@pairs.wrong("dims/part-mismatch")
def gram_matrix(A: td.Tensor[M, K], C: td.Out[M, M2]):
    for i in td.parallel(M):
        for j in td.parallel(M):
            C[i, M2] = (A[i, K] * A[j, K]).sum(K)  # wrong


@pairs.right
def gram_matrix_of_an_alias(A: td.Tensor[M, K], C: td.Out[M, M2]):
    for i, j in td.parallel(M, M2):
        C[i, j] = td.dot(A[i, K], A[j, K], over=K)


@pairs.wrong("dims/part-mismatch")
def block_beside_the_whole(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + X[M]  # wrong


@pairs.right
def block_beside_a_total(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + X[M].sum(M)


@pairs.wrong("dims/wrong-dimension")
def axes_in_the_wrong_order(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[n, m]  # wrong


@pairs.right
def axes_in_order(X: td.Tensor[M, N], Y: td.Out[N, M]):
    for m, n in td.parallel(M, N):
        Y[n, m] = X[m, n]


@pairs.wrong("dims/wrong-dimension")
def matmul_of_two_shared(A: td.Tensor[M, K], B: td.Tensor[M, K], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = A[m, K] @ B[m, K]  # wrong


@pairs.right
def dot_over_one(A: td.Tensor[M, K], B: td.Tensor[M, K], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = (A[m, K] * B[m, K]).sum(K)


@pairs.wrong("dims/missing")
def sum_over_an_absent_dimension(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(K)  # wrong


@pairs.right
def sum_over_its_dimension(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N)


@pairs.wrong("dims/missing")
def accumulator_without_a_dimension(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M]):
    for m in td.parallel(M):
        acc = td.zeros(m, dtype=f32)
        Y[m] = td.mma(X[m, K], W[K, N], acc)  # wrong


@pairs.right
def accumulator_with_its_dimensions(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M]):
    for m in td.parallel(M):
        acc = td.zeros(m, N, dtype=f32)
        Y[m] = td.mma(X[m, K], W[K, N], acc).sum(N)


@pairs.wrong("dims/twice")
def product_region_of_one_dimension(X: td.Tensor[M], Y: td.Out[M, M2]):
    for i, j in td.parallel(M, M):  # wrong
        Y[i, M2] = X[j]


@pairs.right
def product_region_of_an_alias(X: td.Tensor[M], Y: td.Out[M, M2]):
    for i, j in td.parallel(M, M2):
        Y[i, j] = X[i] - X[j]


@pairs.wrong("dims/twice")
def tile_with_a_dimension_twice(X: td.Tensor[M], Y: td.Out[M]):
    t = td.zeros(M, M)  # wrong
    Y[M] = X[M] + t.sum(M)


@pairs.right
def tile_over_an_alias(X: td.Tensor[M], Y: td.Out[M]):
    t = td.zeros(M, M2)
    Y[M] = X[M] + t.sum(M2)


@pairs.wrong("dims/rank")
def too_few_subscripts(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m] = X[m]  # wrong


@pairs.right
def all_subscripts(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, :] = X[m, :]


@pairs.wrong("dims/rank")
def subscripts_of_a_scalar_output(X: td.Tensor[M], Y: td.Out[()]):
    Y[0] = X[M].sum()  # wrong


@pairs.right
def empty_subscript(X: td.Tensor[M], Y: td.Out[()]):
    Y[()] = X[M].sum()


@pairs.wrong("dims/rank")
def product_axis_with_three(Q: td.Tensor[H, K], Y: td.Out[H, K]):
    for g, r in td.parallel(KV, R):
        Y[(g, r), K] = Q[(g, r, 0), K]  # wrong


@pairs.right
def product_axis_with_its_factors(Q: td.Tensor[H, K], Y: td.Out[H, K]):
    for g, r in td.parallel(KV, R):
        Y[(g, r), K] = Q[g, r, K]


@pairs.wrong("dims/definition")
def product_of_one(X: td.Tensor[M], Y: td.Out[M]):
    P = td.product(M)  # wrong
    Y[M] = X[M] + td.zeros(P).sum()


@pairs.right
def product_of_two(X: td.Tensor[M], Y: td.Out[M]):
    P = td.product(M, D)
    Y[M] = X[M] + td.zeros(P).sum()


# ---- stores


@pairs.wrong("store/extra-dimension")
def row_into_an_element(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N] * 2  # wrong


@pairs.right
def row_reduced(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = (X[m, N] * 2).sum(N)


@pairs.wrong("store/extra-dimension")
def condition_of_another_dimension(X: td.Tensor[M], C: td.Tensor[N, td.bool_], Y: td.Out[M]):
    Y[M] = 0.0
    Y.set_at(M, X[M], where=C[N])  # wrong


@pairs.right
def condition_of_its_dimension(X: td.Tensor[M], C: td.Tensor[M, td.bool_], Y: td.Out[M]):
    Y[M] = 0.0
    Y.set_at(M, X[M], where=C[M])


@pairs.wrong("dims/part-mismatch")
def whole_into_a_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[M]  # wrong


@pairs.right
def block_into_a_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m]


@pairs.wrong("capture/no-effect")
def forgotten_store(X: td.Tensor[M], Y: td.Out[M]):  # wrong
    for m in td.parallel(M):
        y = X[m] * 2


@pairs.right
def remembered_store(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        y = X[m] * 2
        Y[m] = y


@pairs.wrong("dtype/operand")
def fraction_as_a_subscript(X: td.Tensor[M], Z: td.Tensor[T], Y: td.Out[T]):
    for t in td.parallel(T):
        Y[t] = X[td.in_range(Z[t] / 2, M)]  # wrong


@pairs.right
def integer_as_a_subscript(X: td.Tensor[M], Z: td.Tensor[T, i64], Y: td.Out[T]):
    for t in td.parallel(T):
        Y[t] = X[td.in_range(Z[t] // 2, M)]


test_wrong, test_right = pairs.tests()
