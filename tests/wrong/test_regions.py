"""Regions, what they carry, and reductions: promises that a program breaks on its face."""

# ruff: noqa: B007 (kernels loop over blocks that they do not name)
from __future__ import annotations

from tests.wrong.pairs import Pairs

import treadle.lang.api as td
from treadle.dtype.formats import bf16, f32, i32

M, N, K = td.dims("M N K")
EMPTY = td.dims("EMPTY", 0)
pairs = Pairs()


# ---- parallel


@pairs.wrong("region/parallel-assign")
def total_in_parallel(X: td.Tensor[M], Y: td.Out[()]):
    total = td.zeros()
    for m in td.parallel(M.each):
        total = total + X[m]  # wrong
    Y[()] = total


@pairs.right
def total_in_reduce(X: td.Tensor[M], Y: td.Out[()]):
    total = td.zeros()
    for m in td.reduce(M.each):
        total = total + X[m]
    Y[()] = total


@pairs.wrong("region/parallel-assign")
def collected_in_parallel(X: td.Tensor[M], Y: td.Out[M]):
    kept = [0.0]
    for m in td.parallel(M):
        kept[0] = X[m]  # wrong
    Y[M] = 1.0


@pairs.right
def collected_inside(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        kept = [0.0]
        kept[0] = X[m]
        Y[m] = kept[0]


@pairs.wrong("region/parallel-assign")
def whole_tile_in_parallel(X: td.Tensor[M], Y: td.Out[M]):
    t = td.zeros(M)
    for _ in td.parallel(M.each):
        t = t * 2  # wrong
    Y[M] = t


@pairs.right
def parts_of_a_tile_in_parallel(X: td.Tensor[M], Y: td.Out[M]):
    t = td.zeros(M)
    for m in td.parallel(M):
        t[m] = X[m] * 2
    Y[M] = t


@pairs.wrong("region/parallel-assign")
def augmented_in_parallel(X: td.Tensor[M, N], Y: td.Out[N]):
    total = td.zeros(N)
    for m in td.parallel(M.each):
        total += X[m, N]  # wrong
    Y[N] = total


@pairs.right
def augmented_in_serial(X: td.Tensor[M, N], Y: td.Out[N]):
    total = td.zeros(N)
    for m in td.serial(M.each):
        total += X[m, N]
    Y[N] = total


# ---- open blocks


@pairs.wrong("block/observed")
def mean_of_a_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] - X[m].mean(M)  # wrong


@pairs.right
def mean_of_the_dimension(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] - X[M].mean(M)


@pairs.wrong("block/observed")
def largest_of_a_block(X: td.Tensor[M, N], Y: td.Out[N]):
    for m, n in td.parallel(M, N):
        Y[n] = X[m, n].max(M)  # wrong


@pairs.right
def largest_of_a_fixed_block(X: td.Tensor[M, N], Y: td.Out[N]):
    for n in td.parallel(N):
        best = td.full(n, value=-1e9)
        for m in td.reduce(M):
            best = td.maximum(best, X[m, n].max(M))
        Y[n] = best


@pairs.wrong("block/observed")
def contraction_of_a_block(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, k in td.parallel(M, K):
        Y[m, N] = td.dot(A[m, k], B[k, N], over=K)  # wrong


@pairs.right
def contraction_of_blocks_in_reduce(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        acc = td.zeros(m, N)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, N], acc)
        Y[m, N] = acc


@pairs.wrong("block/observed")
def reduce_over_a_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros()
        for i in td.reduce(m.each):  # wrong
            s = s + X[i]
        Y[m] = s


@pairs.right
def reduce_over_a_fixed_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.by(4)):
        s = td.zeros()
        for i in td.reduce(m.each):
            s = s + X[i]
        Y[m] = s


@pairs.wrong("block/open-extent")
def size_of_an_open_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] / m.extent  # wrong


@pairs.right
def size_of_a_fixed_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.by(8)):
        Y[m] = X[m] / m.extent


@pairs.wrong("block/open-extent")
def number_of_an_open_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M):
        Y[m] = X[m] + m.index  # wrong


@pairs.right
def number_of_a_fixed_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M.by(4)):
        Y[m] = X[m] + m.index


@pairs.wrong("block/size")
def fractional_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.by(2.5)):  # wrong
        Y[m] = X[m]


@pairs.right
def whole_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.by(2)):
        Y[m] = X[m]


# ---- what is carried


@pairs.wrong("region/carried-type")
def widened_state(X: td.Tensor[M, N, bf16], Y: td.Out[M]):
    s = td.zeros(M, dtype=bf16)
    for n in td.serial(N.each):
        s = s + X[M, n].to(f32)  # wrong
    Y[M] = s


@pairs.right
def wide_state(X: td.Tensor[M, N, bf16], Y: td.Out[M]):
    s = td.zeros(M, dtype=f32)
    for n in td.serial(N.each):
        s = s + X[M, n].to(f32)
    Y[M] = s


@pairs.wrong("region/carried-type")
def grown_state(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros()
    for n in td.serial(N.each):
        s = s + X[M, n]  # wrong
    Y[M] = s


@pairs.right
def full_state(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros(M)
    for n in td.serial(N.each):
        s = s + X[M, n]
    Y[M] = s


@pairs.wrong("region/carried-type")
def number_replaced_by_bools(X: td.Tensor[M, N], Y: td.Out[M]):
    hit = 0.0
    for n in td.serial(N.each):
        hit = X[M, n] > 1  # wrong
    Y[M] = td.where(hit, 1.0, 0.0)


@pairs.right
def bools_from_the_start(X: td.Tensor[M, N], Y: td.Out[M]):
    hit = False
    for n in td.serial(N.each):
        hit = hit | (X[M, n] > 1)
    Y[M] = td.where(hit, 1.0, 0.0)


@pairs.wrong("region/carried-kind")
def nothing_replaced_by_a_tile(X: td.Tensor[M, N], Y: td.Out[M]):
    last = None
    for n in td.serial(N.each):
        last = X[M, n]  # wrong
    Y[M] = last


@pairs.right
def zeros_replaced_by_a_tile(X: td.Tensor[M, N], Y: td.Out[M]):
    last = td.zeros(M)
    for n in td.serial(N.each):
        last = X[M, n]
    Y[M] = last


@pairs.wrong("region/carried-kind")
def list_that_grows(X: td.Tensor[M, N], Y: td.Out[M]):
    rows = []
    for n in td.serial(N.each):  # wrong
        rows.append(X[M, n])
    Y[M] = sum(rows)


@pairs.right
def list_of_fixed_length(X: td.Tensor[M, N], Y: td.Out[M]):
    rows = [td.zeros(M), td.zeros(M)]
    for n in td.serial(N.each):
        rows[0], rows[1] = rows[1], X[M, n]
    Y[M] = sum(rows)


@pairs.wrong("region/branch-type")
def branches_of_two_shapes(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        y = X[m, N]
        if m > 2:  # wrong
            y = y.sum(N)
        Y[m, N] = y


@pairs.right
def branches_of_one_shape(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        y = X[m, N]
        if m > 2:
            y = y * 0 + y.sum(N)
        Y[m, N] = y


@pairs.wrong("region/branch-type")
def conditional_of_two_kinds(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        Y[m, N] = X[m, N] if m > 2 else "none"  # wrong


@pairs.right
def conditional_of_one_kind(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        Y[m, N] = X[m, N] if m > 2 else 0.0


# ---- arguments of regions


@pairs.wrong("region/arguments")
def names_for_one_argument(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M):  # wrong
        Y[m, N] = X[m, N]


@pairs.right
def name_for_each_argument(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n]


@pairs.wrong("region/arguments")
def range_as_an_argument(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M]
    for _ in td.serial(range(3)):  # wrong
        Y[M] = X[M] * 2


@pairs.right
def count_as_an_argument(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M]
    for _ in td.serial(3):
        Y[M] = X[M] * 2


@pairs.wrong("region/arguments")
def region_in_a_list(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = max([X[m] for m in td.parallel(M.each)])  # wrong


@pairs.right
def extremum_of_a_tile(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M].max()


@pairs.wrong("region/arguments")
def region_without_a_loop(X: td.Tensor[M], Y: td.Out[M]):
    m = next(iter(td.serial(M)))  # wrong
    Y[m] = X[m]


@pairs.right
def region_with_a_loop(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M):
        Y[m] = X[m]


@pairs.wrong("region/arguments")
def region_name_with_a_space(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M, name="first pass"):  # wrong
        Y[m] = X[m]


@pairs.right
def region_name_of_one_word(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M, name="first"):
        Y[m] = X[m]


@pairs.wrong("capture/outside")
def loop_over_a_dimension(X: td.Tensor[M], Y: td.Out[M]):
    for m in M:  # wrong
        Y[m] = X[m]


@pairs.right
def region_over_a_dimension(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m]


@pairs.wrong("capture/unsupported")
def region_with_else(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M):
        Y[m] = X[m]
    else:
        Y[M] = 0.0  # wrong


@pairs.right
def region_and_then(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M):
        Y[m] = X[m]
    Y[M] = 0.0


@pairs.wrong("region/stage")
def stage_in_parallel(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        td.stage("load")  # wrong
        Y[m] = X[m]


@pairs.right
def stage_in_pipeline(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.pipeline(M):
        td.stage("load")
        x = X[m]
        td.stage("store")
        Y[m] = x


# ---- reductions


@pairs.wrong("reduce/state-read")
def running_total_in_reduce(X: td.Tensor[N], Y: td.Out[N]):
    s = td.zeros()
    for n in td.reduce(N.each):
        s = s + X[n]
        Y[n] = s  # wrong


@pairs.right
def running_total_in_serial(X: td.Tensor[N], Y: td.Out[N]):
    s = td.zeros()
    for n in td.serial(N.each):
        s = s + X[n]
        Y[n] = s


@pairs.wrong("reduce/not-an-update")
def last_one_wins(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = X[m, n]  # wrong
        Y[m] = s


@pairs.right
def last_one_in_order(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.serial(N.each):
            s = X[m, n]
        Y[m] = s


@pairs.wrong("reduce/not-an-update")
def decayed_sum(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = s * 0.9 + X[m, n]  # wrong
        Y[m] = s


@pairs.right
def decayed_sum_in_pipeline(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.pipeline(N.each):
            s = s * 0.5 + X[m, n]
        Y[m] = s


@pairs.wrong("reduce/not-an-update")
def two_monoids(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = s - X[m, n]  # wrong
        Y[m] = s


@pairs.right
def one_monoid(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = s + -X[m, n]
        Y[m] = s


@pairs.wrong("capture/argument")
def unknown_order(X: td.Tensor[M], Y: td.Out[()]):
    s = td.zeros()
    for m in td.reduce(M.each, order="left"):  # wrong
        s = s + X[m]
    Y[()] = s


@pairs.right
def known_order(X: td.Tensor[M], Y: td.Out[()]):
    s = td.zeros()
    for m in td.reduce(M.each, order=td.fold_left):
        s = s + X[m]
    Y[()] = s


@pairs.wrong("reduce/empty")
def largest_of_nothing(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + td.zeros(EMPTY).max()  # wrong


@pairs.right
def sum_of_nothing(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + td.zeros(EMPTY).sum()


subtract = td.Monoid(0.0, lambda a, b: a - b, laws=None)
last = td.Monoid((0.0, False), lambda a, b: (td.where(b[1], b[0], a[0]), a[1] | b[1]), lift=lambda x: (x, True))


@pairs.wrong("reduce/no-merge")
def tree_of_no_law(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, subtract, order=td.ordered)  # wrong


@pairs.right
def chain_of_no_law(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, subtract, order=td.fold_left)


@pairs.wrong("reduce/not-commutative")
def permuted_last(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, last, order=td.unordered)  # wrong


@pairs.right
def ordered_last(X: td.Tensor[N], Y: td.Out[()]):
    Y[()] = td.fold(X[N], N, last, order=td.ordered)[0]


affine = td.Monoid((1.0, 0.0), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]))


@pairs.wrong("reduce/not-commutative")
def permuted_region(X: td.Tensor[N], Y: td.Out[()]):
    s = (td.full(value=1.0), td.zeros())
    for n in td.reduce(N.each):
        s = affine(s, (X[n] / 4, 1.0))  # wrong
    Y[()] = s[1]


@pairs.right
def ordered_region(X: td.Tensor[N], Y: td.Out[()]):
    s = (td.full(value=1.0), td.zeros())
    for n in td.reduce(N.each, order=td.ordered):
        s = affine(s, (X[n] / 4, 1.0))
    Y[()] = s[1]


pair_sum = td.Monoid((0.0, 0), lambda a, b: (a[0] + b[0], a[1] + b[1]), lift=lambda x: (x, 1), commutative=True)


@pairs.wrong("reduce/state-shape")
def one_for_a_pair(X: td.Tensor[N], Y: td.Out[()]):
    s = td.zeros()
    for n in td.reduce(N.each):
        s = pair_sum(s, X[n])  # wrong
    Y[()] = s


@pairs.right
def pair_for_a_pair(X: td.Tensor[N], Y: td.Out[()], *, start=0):
    s = (td.zeros(), td.zeros(dtype=i32))
    for n in td.reduce(N.each):
        s = pair_sum(s, X[n])
    Y[()] = s[0] / s[1]


test_wrong, test_right = pairs.tests()
