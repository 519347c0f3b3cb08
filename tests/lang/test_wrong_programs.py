"""Wrong programs: each is refused with its code at its line, which a comment `# wrong: CODE` marks."""

# ruff: noqa: B007 (kernels loop over blocks that they do not name)
from __future__ import annotations

import dataclasses
import inspect
import math
import re

import numpy as np
import pytest

import treadle.lang.api as td
from treadle.base.errors import TreadleError
from treadle.base.source import shown_path
from treadle.dtype.formats import bf16, f32, i32, i64

M, N, K, T, V = td.dims("M N K T V")
M2 = M.alias("M2")
E1 = td.dims("E1")
C4 = td.dims("C4", 4)
GM = td.product(M, C4)

WRONG: list[td.Definition] = []


def wrong(fn=None, **options):
    def keep(f):
        WRONG.append(td.kernel(f))
        return WRONG[-1]

    return keep(fn) if fn is not None else keep


def helper_that_divides(x):
    return x / 0


def helper_that_returns_early(x):
    if x > 0:
        return x
    return -x


def endless(x):
    return endless(x)


@dataclasses.dataclass
class State:
    """A state that two names may share."""

    a: td.Tile


# ---- capture


@wrong
def while_traced(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        x = X[m]
        while x > 1:  # wrong: capture/while
            x = x / 2
        Y[m] = x


@wrong
def break_in_region(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.serial(M.each):
        break  # wrong: capture/jump
    Y[M] = X[M]


@wrong
def return_in_traced_if(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = helper_that_returns_early(X[m])


@wrong
def continue_in_traced_if(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        for i in range(3):
            if X[m] > i:
                continue  # wrong: capture/jump
        Y[m] = X[m]


@wrong
def tile_as_bool(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        if X[m, n] > 0:  # wrong: capture/tile-bool
            Y[m, n] = 1.0


@wrong
def tile_and_tile(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n] > 0 and X[m, n] < 1  # wrong: capture/tile-bool


@wrong
def chained_on_tiles(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = 0 < X[m, n] < 1  # wrong: capture/tile-bool


@wrong
def handle_after_region(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m]
    Y[m] = 0.0  # wrong: capture/gone


@wrong
def name_after_region(X: td.Tensor[M, N], Y: td.Out[M]):
    for n in td.serial(N):
        s = X[M, n].sum(n)
    Y[M] = s  # wrong: capture/gone


@wrong
def list_leaks_a_tile(X: td.Tensor[M, N], Y: td.Out[M]):
    kept = []
    for n in td.serial(N.each):  # wrong: region/carried-kind
        kept.append(X[M, n])
    Y[M] = kept[0]


@wrong
def branch_name(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        if X[m] > 0:
            t = X[m]
        Y[m] = t  # wrong: capture/gone


@wrong
def numpy_function(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = np.exp(X[m])  # wrong: capture/opaque-call


@wrong
def math_function(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = math.sqrt(X[m])  # wrong: capture/opaque-call


@wrong
def python_number(X: td.Tensor[M], n: td.Scalar[i32], Y: td.Out[M]):
    for m in td.parallel(M):
        for i in range(n):  # wrong: capture/traced-number
            Y[m] = X[m] * i


@wrong
def python_error(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * [1, 2][3]  # wrong: capture/python-error


@wrong
def unbound_name(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * undefined_name  # wrong: capture/unbound  # noqa: F821 (the name is the mistake)


@wrong
def with_statement(X: td.Tensor[M], Y: td.Out[M]):
    with open("x", encoding="utf-8"):  # wrong: capture/unsupported
        Y[M] = X[M]


@wrong
def yielding(X: td.Tensor[M], Y: td.Out[M]):
    rows = lambda: (yield X[M])  # wrong: capture/unsupported  # noqa: E731 (such a lambda is the mistake)
    Y[M] = X[M]


@wrong
def stores_nothing(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m] + 1


@wrong
def whole_tensor(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X + 1  # wrong: capture/argument


@wrong
def axis_is_a_number(X: td.Tensor[M], Y: td.Out[M]):
    t = td.zeros(16)  # wrong: capture/argument
    Y[M] = X[M]


@wrong
def assert_traced(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        assert X[m] > 0  # wrong: capture/argument
        Y[m] = X[m]


@wrong
def recursion(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = endless(X[M])


@wrong
def iterates_a_part(X: td.Tensor[M], Y: td.Out[M]):
    for m in M:  # wrong: capture/outside
        Y[m] = X[m]


@wrong
def assigns_to_a_part(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        m[0] = X[m]  # wrong: capture/assignment
        Y[m] = X[m]


@wrong
def unknown_dtype(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M].to("f33")  # wrong: capture/argument


@wrong
def require_inside(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        td.require(M.extent > 4)  # wrong: capture/argument
        Y[m] = X[m]


@wrong
def require_of_data(X: td.Tensor[M, i32], Y: td.Out[M]):
    td.require(X.at(0, fill=0) > 4)  # wrong: capture/argument
    Y[M] = X[M]


# ---- blocks


@wrong
def sum_over_open_block(X: td.Tensor[M, N], Y: td.Out[N]):
    for m in td.parallel(M):
        Y[N] = X[m, N].sum(m)  # wrong: block/observed


@wrong
def contraction_over_open_block(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, k in td.parallel(M, K):
        Y[m, N] = td.dot(X[m, k], W[k, N], over=K)  # wrong: block/observed


@wrong
def fold_over_open_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros()
        for i in td.reduce(m.each):  # wrong: block/observed
            s = s + X[i]
        Y[m] = X[m] / s


@wrong
def part_of_an_open_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] / X[m[m.start :]].max()  # wrong: block/observed


@wrong
def extent_of_open_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * m.extent  # wrong: block/open-extent


@wrong
def index_of_open_block(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] * m.index  # wrong: block/open-extent


@wrong
def size_of_zero(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.by(0)):  # wrong: block/size
        Y[m] = X[m]


# ---- bounds


@wrong
def next_element(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.each):
        Y[m] = X[m + 1]  # wrong: bounds/unproved


@wrong
def loaded_index(W: td.Tensor[V], ids: td.Tensor[T, i32], Y: td.Out[T]):
    for t in td.parallel(T):
        Y[t] = W[ids[t]]  # wrong: bounds/unproved


@wrong
def first_of_maybe_empty(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[0]  # wrong: bounds/unproved


@wrong
def negative_index(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[-1]  # wrong: bounds/outside


@wrong
def negative_bound(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M[:-1]):  # wrong: bounds/outside
        Y[m] = X[m]


@wrong
def beyond_fixed(X: td.Tensor[C4], Y: td.Out[C4]):
    Y[C4] = X[4]  # wrong: bounds/outside


@wrong
def beyond_a_tile(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        x = X[m]
        Y[m] = x[M].sum() + x  # wrong: bounds/unproved


@wrong
def negative_count(X: td.Tensor[M], Y: td.Out[M]):
    for i in td.serial(-2):  # wrong: bounds/outside
        Y[M] = X[M]


# ---- dims


@wrong
def two_parts_of_one_dimension(A: td.Tensor[M, K], C: td.Out[M, M2]):
    for i in td.parallel(M):
        for j in td.parallel(M):
            x = A[i, K] * A[j, K]  # wrong: dims/part-mismatch
            C[i, M2] = x


@wrong
def equal_extents_are_not_equal(X: td.Tensor[M], Z: td.Tensor[N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m] + Z[m]  # wrong: dims/wrong-dimension


@wrong
def sum_over_missing(X: td.Tensor[M, N], Y: td.Out[M]):
    Y[M] = X[M, N].sum(K)  # wrong: dims/missing


@wrong
def sum_over_another_part(X: td.Tensor[M, N], Y: td.Out[M]):
    for n in td.serial(N):
        Y[M] = X[M, N].sum(n)  # wrong: dims/part-mismatch


@wrong
def one_dimension_twice(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, M):  # wrong: dims/twice
        Y[m, N] = X[m, N]


@wrong
def too_many_subscripts(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M, N]  # wrong: dims/rank


@wrong
def missing_from_accumulator(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = td.mma(X[m, K], W[K, N], td.zeros(m))  # wrong: dims/missing


@wrong
def two_shared_dimensions(X: td.Tensor[M, K], W: td.Tensor[M, K], Y: td.Out[M]):
    Y[M] = X[M, K] @ W[M, K]  # wrong: dims/wrong-dimension


@wrong
def negative_extent(X: td.Tensor[M], Y: td.Out[M]):
    D = td.dims("D", -1)  # wrong: dims/definition
    Y[M] = X[M]


@wrong
def factors_of_a_product(X: td.Tensor[GM], Y: td.Out[GM]):
    Y[(M, C4, N)] = X[GM]  # wrong: dims/rank


# ---- dtypes


@wrong
def float_subscript(X: td.Tensor[M], Z: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[Z[m]]  # wrong: dtype/operand


@wrong
def bits_of_floats(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] & 1  # wrong: dtype/operand


@wrong
def narrowing_accumulator(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=bf16)
        Y[m, n] = td.mma(X[m, K], W[K, n], acc)  # wrong: dtype/narrowing


@wrong
def bits_of_another_width(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M].bitcast(i64)  # wrong: dtype/operand


@wrong
def condition_of_floats(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = td.where(X[M], 1.0, 0.0)  # wrong: dtype/operand


@wrong
def number_too_big(X: td.Tensor[M, i32], Y: td.Out[M]):
    Y[M] = X[M] + 2**40  # wrong: dtype/number-out-of-range


# ---- regions


@wrong
def assigns_in_parallel(X: td.Tensor[M], Y: td.Out[M]):
    s = td.zeros()
    for m in td.parallel(M.each):
        s = s + X[m]  # wrong: region/parallel-assign
    Y[M] = s


@wrong
def assigns_an_object_in_parallel(X: td.Tensor[M], Y: td.Out[M]):
    state = State(td.zeros())
    for m in td.parallel(M.each):
        state.a = state.a + X[m]  # wrong: region/parallel-assign
    Y[M] = state.a


@wrong
def carried_dtype(X: td.Tensor[M, N, bf16], Y: td.Out[M]):
    s = td.zeros(M, dtype=bf16)
    for n in td.serial(N.each):
        s = s + X[M, n].to(f32)  # wrong: region/carried-type
    Y[M] = s


@wrong
def carried_dimensions(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros()
    for n in td.serial(N.each):
        s = s + X[M, n]  # wrong: region/carried-type
    Y[M] = s


@wrong
def carried_along_a_block(X: td.Tensor[M, N], Y: td.Out[M]):
    s = td.zeros(M)
    for n in td.serial(N):
        s = s + X[M, n]  # wrong: region/carried-type
    Y[M] = s


@wrong
def carried_without_a_dimension(X: td.Tensor[M, N], Y: td.Out[M, N]):
    s = td.zeros(M, N)
    for n in td.serial(N.each):
        s = s.max(N) + X[M, n]  # wrong: region/carried-type
    Y[M, N] = s


@wrong
def carried_none(X: td.Tensor[M, N], Y: td.Out[M]):
    last = None
    for n in td.serial(N.each):
        last = X[M, n]  # wrong: region/carried-kind
    Y[M] = last


@wrong
def branches_differ(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        y = X[m, N]
        if m > 2:  # wrong: region/branch-type
            y = y.sum(N)
        Y[m, N] = y


@wrong
def region_without_arguments(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel():  # wrong: region/arguments
        Y[M] = X[M]


@wrong
def names_and_arguments(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M):  # wrong: region/arguments
        Y[m, N] = X[m, N]


@wrong
def region_in_comprehension(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = sum([X[m] for m in td.serial(M.each)])  # wrong: region/arguments


@wrong
def stage_outside(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        td.stage("load")  # wrong: region/stage
        Y[m] = X[m]


# ---- stores


@wrong
def store_of_an_extra_dimension(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N]  # wrong: store/extra-dimension


@wrong
def store_of_another_part(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[M]  # wrong: dims/part-mismatch


@wrong
def insert_of_an_extra_dimension(X: td.Tensor[M, N], Y: td.Out[M]):
    t = td.zeros(M)
    for m in td.parallel(M):
        t[m] = X[m, N]  # wrong: store/extra-dimension
    Y[M] = t


# ---- reductions


@wrong
def state_is_read(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = s + X[m, n]
            Y[m, n] = s  # wrong: reduce/state-read


@wrong
def state_is_not_updated(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = X[m, n]  # wrong: reduce/not-an-update
        Y[m] = s


@wrong
def state_is_scaled(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = s * 0.5 + X[m, n]  # wrong: reduce/not-an-update
        Y[m] = s


@wrong
def state_is_squared(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.full(m, value=1.0)
        for n in td.reduce(N.each):
            s = s * s  # wrong: reduce/state-read
        Y[m] = s


@wrong
def part_goes_elsewhere(X: td.Tensor[C4, N], Y: td.Out[C4]):
    s = td.zeros(C4)
    for n in td.reduce(N.each):
        s[0] = s[1] + X[0, n]  # wrong: reduce/not-an-update
    Y[C4] = s


AFFINE = td.Monoid((1.0, 0.0), lambda s, t: (s[0] * t[0], s[1] * t[0] + t[1]))
LAWLESS = td.Monoid(0.0, lambda s, t: s * 0.5 + t, laws=None)
TRIPLE = td.Monoid((0.0, 0.0, 0.0), lambda s, t: (s[0] + t[0], s[1] + t[1], s[2] + t[2]), commutative=True)
GROWING = td.Monoid(0.0, lambda s, t: (s + t) * td.zeros(N), commutative=True)
PAIR = td.Monoid((0.0, 0.0), lambda s, t: (s[0] + t[0], s[1] + t[1]), commutative=True)


@wrong
def maps_in_any_order(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = (td.full(m, value=1.0), td.zeros(m))
        for n in td.reduce(N.each):
            s = AFFINE(s, (X[m, n], 1.0))  # wrong: reduce/not-commutative
        Y[m] = s[1]


@wrong
def fold_in_any_order(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = td.fold((X[m, N], X[m, N]), N, AFFINE, order=td.unordered)[1]  # wrong: reduce/not-commutative


@wrong
def tree_without_laws(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each, order=td.ordered):
            s = LAWLESS(s, X[m, n])  # wrong: reduce/no-merge
        Y[m] = s


@wrong
def fold_without_laws(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = td.fold(X[m, N], N, LAWLESS, order=td.ordered)  # wrong: reduce/no-merge


@wrong
def contribution_of_another_shape(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = td.fold((X[m, N], X[m, N]), N, TRIPLE)[0]  # wrong: reduce/state-shape


@wrong
def merge_that_grows(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            s = GROWING(s, X[m, n])  # wrong: region/carried-type
        Y[m, N] = s


@wrong
def leaf_that_is_no_state(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s, other = td.zeros(m), td.zeros(m)
        for n in td.reduce(N.each):
            s = PAIR((s, other), (X[m, n], 1.0))[0]  # wrong: reduce/not-an-update
        Y[m] = s


@wrong
def merge_that_looks_at_the_instance(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m)
        for n in td.reduce(N.each):
            w = X[m, n]
            weighted = td.Monoid(0.0, lambda a, b, w=w: a + b * w, commutative=True)
            s = weighted(s, X[m, n])  # wrong: reduce/not-an-update
        Y[m] = s


@wrong
def two_monoids(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        s = (td.zeros(m), td.zeros(m))
        for n in td.reduce(N.each):
            s = PAIR(s, (X[m, n], 1.0))
            s = (s[0] * 2.0, s[1])  # wrong: reduce/not-an-update
        Y[m] = s[0]


@wrong
def state_read_beside_its_monoid(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        s = (td.zeros(m), td.zeros(m))
        for n in td.reduce(N.each):
            s = PAIR(s, (X[m, n], 1.0))
            Y[m, n] = s[0]  # wrong: reduce/state-read


@wrong
def scan_along_an_open_block(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = td.scan(X[m, n], n, td.Add)  # wrong: block/observed


@wrong
def sort_along_an_open_block(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = td.sort(X[m, n], n)  # wrong: block/observed


@wrong
def scan_of_no_monoid(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = td.scan(X[M], M, sum)  # wrong: capture/argument


@wrong
def more_than_there_are(X: td.Tensor[M, C4], Y: td.Out[M]):
    K9 = td.dims("K9", 9)
    for m in td.parallel(M):
        Y[m] = td.topk(X[m, C4], C4, to=K9)[0].max(K9)  # wrong: bounds/unproved


@wrong
def new_axis_is_old(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = td.topk(X[m, N], N, to=N)[0]  # wrong: dims/twice


@wrong
def einsum_with_too_few_letters(X: td.Tensor[M, N], Y: td.Out[M]):
    Y[M] = td.einsum("m->m", X[M, N])  # wrong: dims/rank


@wrong
def einsum_of_two_dimensions(X: td.Tensor[M, N], Z: td.Tensor[K], Y: td.Out[M]):
    Y[M] = td.einsum("mn,n->m", X[M, N], Z[K])  # wrong: dims/wrong-dimension


@wrong
def seed_that_is_no_integer(Y: td.Out[M]):
    Y[M] = td.uniform(0.5, M)  # wrong: dtype/operand


@wrong
def memory_as_an_operand(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        buffer = td.memory(m, N)
        buffer[m, N] = X[m, N]
        Y[m, N] = buffer + 1.0  # wrong: capture/argument


@wrong
def memory_nowhere(Y: td.Out[M]):
    buffer = td.memory(M, place="attic")  # wrong: capture/argument
    Y[M] = buffer[M]


@wrong
def scope_of_no_machine(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M, scope="galaxy"):  # wrong: capture/argument
        Y[m] = X[m]


@wrong
def intrinsic_with_an_effect(X: td.Tensor[M], Y: td.Out[M]):
    double = td.intrinsic(lambda x: x + x, effects="writes")  # wrong: capture/argument
    Y[M] = double(X[M])


@wrong
def nothing_to_take_the_maximum_of(X: td.Tensor[M], Y: td.Out[M]):
    Z = td.dims("Z", 0)
    Y[M] = td.zeros(Z).max() + X[M]  # wrong: reduce/empty


# ---- numbers that 64 bits do not hold


@wrong
def a_count_beyond_all(X: td.Tensor[M], Y: td.Out[M]):
    for _ in td.serial(10**30):  # wrong: bounds/index-size
        Y[M] = X[M]


@wrong
def a_block_beyond_all(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M.by(10**30)):  # wrong: block/size
        Y[m] = X[m]


@wrong
def an_extent_beyond_all(X: td.Tensor[M], Y: td.Out[M]):
    D = td.dims("D", 2**70)  # wrong: dims/definition
    Y[M] = X[M] + td.zeros(D).sum()


@wrong
def a_let_beyond_all(X: td.Tensor[M], Y: td.Out[N]):
    td.let(N, 10**30)  # wrong: bounds/index-size
    Y[N] = X[0]


@wrong
def a_slice_beyond_all(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M[: 10**30]):  # wrong: bounds/index-size
        Y[m] = X[m]


@wrong
def a_subscript_beyond_all(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X.at(2**70, fill=0.0)  # wrong: bounds/index-size


@wrong
def an_index_that_grows(X: td.Tensor[M], Y: td.Out[M, i64]):
    for m in td.parallel(M.each):
        n = m * 2**62
        Y[m] = n * 4  # wrong: bounds/index-size


@wrong
def a_fill_beyond_its_dtype(X: td.Tensor[M], Y: td.Out[M, i32]):
    Y[M] = td.full(M, value=10**30, dtype=i32)  # wrong: dtype/number-out-of-range


@wrong
def a_stored_number_beyond_all(X: td.Tensor[M], Y: td.Out[M, i32]):
    Y[M] = 10**30  # wrong: dtype/number-out-of-range


# ---- several devices


D2 = td.dims("D2", 2)


@wrong
def devices_that_no_tensor_has(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each, scope="device"):  # wrong: region/device
        Y[m, N] = X[m, N]


@wrong
def blocks_of_devices(X: td.Tensor[D2.device, N], Y: td.Out[D2.device, N]):
    for r in td.parallel(D2, scope="device"):  # wrong: region/device
        Y[r, N] = X[r, N]


@wrong
def devices_inside_a_region(X: td.Tensor[D2.device, N], Y: td.Out[D2.device, N]):
    for n in td.parallel(N):
        for r in td.parallel(D2.each, scope="device"):  # wrong: region/device
            Y[r, n] = X[r, n]


@wrong
def devices_and_rows(X: td.Tensor[D2.device, N], Y: td.Out[D2.device, N]):
    for r, n in td.parallel(D2.each, N, scope="device"):  # wrong: region/device
        Y[r, n] = X[r, n]


@wrong
def a_device_axis_as_a_region(X: td.Tensor[D2.device, N], Y: td.Out[D2.device, N]):
    for r in td.parallel(D2.device):  # wrong: region/arguments
        Y[r, N] = X[r, N]


@wrong
def devices_that_a_tile_picks(X: td.Tensor[N], W: td.Tensor[N, i32], Y: td.Out[D2.device, N]):
    Y[td.in_range(W[N], D2), N] = X[N]  # wrong: limit/form


@wrong
def a_device_beyond_the_last(X: td.Tensor[D2.device, N], Y: td.Out[N]):
    Y[N] = X[2, N]  # wrong: bounds/outside


@td.kernel
def of_one_device(X: td.Tensor[N], Y: td.Out[N] = None):
    Y[N] = X[N] * 2


@wrong
def a_list_for_one_device(X: td.Tensor[D2.device, N], Y: td.Out[N]):
    Y[N] = of_one_device(X)  # wrong: dims/rank


@td.kernel
def of_all_rows(X: td.Tensor[M, N], Y: td.Out[N] = None):
    Y[N] = X[M, N].sum(M)


@wrong
def a_list_for_a_tensor(X: td.Tensor[D2.device, N], Y: td.Out[N]):
    Y[N] = of_all_rows(X)  # wrong: capture/argument


LINES = {
    "return_in_traced_if": ("capture/jump", helper_that_returns_early, "return x"),
    "recursion": ("capture/recursion", endless, "return endless(x)"),
    "stores_nothing": ("capture/no-effect", None, "def stores_nothing"),
}


def expected(definition: td.Definition) -> tuple[str, int]:
    """The code and line that a wrong program's comment marks."""
    if definition.name in LINES:
        code, where, text = LINES[definition.name]
        lines, first = inspect.getsourcelines(where or definition.fn)
        return code, first + next(i for i, line in enumerate(lines) if text in line)
    lines, first = inspect.getsourcelines(definition.fn)
    for i, line in enumerate(lines):
        if (found := re.search(r"# wrong: (\S+)", line)) is not None:
            return found.group(1), first + i
    raise AssertionError(definition.name)


def relative_lines(message: str, definition: td.Definition) -> str:
    """The message with lines counted from the kernel's first, so that a change above it leaves the snapshot alone."""
    first = inspect.getsourcelines(definition.fn)[1]
    shown = message.replace(shown_path(__file__), "FILE")
    shown = re.sub(r"(?<=FILE:)\d+", lambda m: f"{int(m.group()) - first:+d}", shown)
    return re.sub(r"(?m)^( *)(\d+)(?= \| )", lambda m: f"{m.group(1)}{int(m.group(2)) - first:+d}", shown)


@pytest.mark.parametrize("definition", WRONG, ids=lambda d: d.name)
def test_wrong_program(definition, snapshot):
    code, line = expected(definition)
    with pytest.raises(TreadleError) as caught:
        definition.capture()
    assert caught.value.code == code, str(caught.value)
    assert caught.value.span is not None
    assert caught.value.span.line == line, str(caught.value)
    assert caught.value.span.file == __file__
    assert relative_lines(str(caught.value), definition) == snapshot
