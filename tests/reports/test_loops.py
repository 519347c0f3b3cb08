"""Loops: stores and loads that meet, few iterations and many buffers, carried elements, folds in lanes, collisions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.reports.ways import everywhere

import treadle as td
from treadle.checker import check
from treadle.machine.parse import parse_machine

M, N, K, V = td.dims("M N K V")
P = td.dims("P", 6)


# U01: a store, and a load of the same elements in the same iteration.


@td.kernel
def stored_and_loaded(X: td.Tensor[M, N], S: td.Out[M, N] = None, Y: td.Out[M, N] = None):
    for m in td.serial(M.each):
        for n in td.serial(N.by(5)):
            made = n.coords * 3 + m + X[m, n]
            S[m, n] = made
            back = S[m, n]
            Y[m, n] = back - made


@td.kernel
def stored_and_loaded_in_stages(X: td.Tensor[M, N], S: td.Out[M, N] = None, Y: td.Out[M, N] = None):
    for m in td.serial(M.each):
        for n in td.pipeline(N.by(128), versions=2):
            made = n.coords * 3 + m + X[m, n]
            S[m, n] = made
            Y[m, n] = S[m, n] - made


@pytest.mark.parametrize("kernel", [stored_and_loaded, stored_and_loaded_in_stages], ids=lambda k: k.__name__)
@pytest.mark.parametrize("shape", [(1, 1), (7, 23), (3, 700)])
def test_u01_a_store_is_seen_by_the_load_after_it(kernel: Any, shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    s, y = kernel.reference(x)
    assert (y == 0).all()
    got_s, got_y = kernel(x)
    assert (got_y == 0).all() and np.array_equal(got_s, s)
    assert shape[1] > 100 or kernel.sanitize(x) == []


def test_u01_as_many_rows_as_were_reported() -> None:
    s, y = stored_and_loaded_in_stages(np.zeros((4096, 1024), np.float32))
    assert (y == 0).all() and s[4095, 1023] == 3 * 1023 + 4095


# U04: fewer iterations than buffers.


def make_trips(kind: Any, versions: int) -> Any:
    @td.kernel
    def trips(X: td.Tensor[V, N], n: td.Scalar[td.i32], Y: td.Out[N] = None):
        td.require(V.extent >= 6)
        s = X[0, N] * 0 + 7
        for i in kind(n, versions=versions):
            s = s + X[td.in_range(i, V), N] * 2
        Y[N] = s

    return trips


@pytest.mark.parametrize("kind", [td.serial, td.pipeline, td.reduce], ids=lambda k: k.__name__)
@pytest.mark.parametrize("versions", [1, 4])
def test_u04_any_number_of_trips_with_any_number_of_versions(kind: Any, versions: int) -> None:
    kernel = make_trips(kind, versions)
    x = np.arange(6 * 9, dtype=np.float32).reshape(6, 9)
    for n in range(6):
        assert np.array_equal(everywhere(kernel, x, n), 7 + 2 * x[:n].sum(0))


@td.kernel
def ragged(X: td.Tensor[N], starts: td.Tensor[K, td.i32], ends: td.Tensor[K, td.i32], Y: td.Out[K] = None):
    for k in td.parallel(K.each):
        s = td.full(value=100.0)
        for n in td.reduce(N[starts[k] : ends[k]], versions=3):
            s = s + X[n].sum(N)
        Y[k] = s


def test_u04_ranges_that_data_make_empty() -> None:
    x = np.arange(12, dtype=np.float32)
    starts = np.array([0, 0, 5, 12, 9, 3], np.int32)
    ends = np.array([0, 1, 7, 12, 4, 12], np.int32)
    expected = [100 + x[a:b].sum() for a, b in zip(starts, ends, strict=True)]
    assert everywhere(ragged, x, starts, ends).tolist() == expected


# U05: as many instances as no group of threads has, each reading what its neighbour wrote.


@td.kernel
def neighbours(X: td.Tensor[M], Y: td.Out[M] = None):
    t = td.zeros(M)
    Y[M] = 0.0
    for m in td.parallel(M[:48]):
        t[m] = X[m] * 2
    for m in td.parallel(M[:47]):
        Y[m] = t.at(m + 1, fill=0) + t[m]


@pytest.mark.parametrize("n", [48, 100])
def test_u05_what_one_wrote_its_neighbour_reads(n: int) -> None:
    x = np.arange(1, n + 1, dtype=np.float32)
    expected = np.zeros(n, np.float32)
    expected[:47] = 2 * x[:47] + 2 * x[1:48]
    assert np.array_equal(everywhere(neighbours, x), expected)
    for _ in range(100):
        assert np.array_equal(neighbours(x), expected)


# U08: a fold and a hand-over inside a branch that only some instances take.


@td.kernel
def branch_with_a_fold(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M.each):
        Y[m, N] = X[m, N]
        if m % 2 == 0:
            s = td.zeros()
            for n in td.reduce(N.each):
                s = s + X[m, n]
            Y[m, N] = X[m, N] - s


def test_u08_a_branch_that_some_take_may_fold_and_store() -> None:
    x = np.arange(7 * 33, dtype=np.float32).reshape(7, 33)
    even = (np.arange(7) % 2 == 0)[:, None]
    assert np.array_equal(everywhere(branch_with_a_fold, x), np.where(even, x - x.sum(1, keepdims=True), x))


# U22: an overwrite is no fold.


def test_u22_an_overwrite_in_reduce_is_refused() -> None:
    @td.kernel
    def last(X: td.Tensor[N], Y: td.Out[P] = None):
        t = td.full(P, value=4.0)
        for n in td.reduce(N.each):
            t[2] = 3 * X[n] + 5
        Y[P] = t

    with pytest.raises(td.TreadleError) as caught:
        last(np.ones(3, np.float32))
    assert caught.value.code in ("reduce/not-an-update", "reduce/state-read")


@td.kernel
def overwritten(X: td.Tensor[N], Y: td.Out[M] = None):
    Y[M] = 4.0
    for n in td.serial(N.each):
        Y[td.in_range(n, M)] = 3 * X[n] + 5


def test_u22_a_serial_overwrite_leaves_the_rest() -> None:
    x = np.arange(9, dtype=np.float32)
    expected = np.full(20, 4, np.float32)
    expected[:9] = 3 * x + 5
    y = np.zeros(20, np.float32)
    overwritten.reference(x, y)
    assert np.array_equal(y, expected)
    y = np.zeros(20, np.float32)
    overwritten(x, y)
    assert np.array_equal(y, expected)


# U31: an element changed in a loop, read by a number and by a computed index.


@td.kernel
def changed_element(X: td.Tensor[M, P], at: td.Scalar[td.i32], Y: td.Out[M] = None, Z: td.Out[M] = None):
    td.require(at >= 0)
    td.require(at < 6)
    for m in td.parallel(M.each):
        cell = X[m, P]
        for _ in td.serial(7):
            cell[3] = cell[3] - 2
        Y[m] = cell[3]
        Z[m] = cell[at]


def test_u31_a_changed_element_is_the_same_by_every_index() -> None:
    x = np.arange(5 * 6, dtype=np.float32).reshape(5, 6)
    for at in range(6):
        y, z = everywhere(changed_element, x, at)
        assert np.array_equal(y, x[:, 3] - 14)
        assert np.array_equal(z, x[:, at] - (14 if at == 3 else 0))


# U56: a fold along an axis that runs in lanes.


@td.kernel
def total(X: td.Tensor[N], Y: td.Out[()] = None):
    Y[()] = X[N].sum()


@td.kernel
def total_by_blocks(X: td.Tensor[N], Y: td.Out[()] = None):
    s = td.zeros()
    for n in td.reduce(N):
        s = s + X[n].sum(N)
    Y[()] = s


@pytest.mark.parametrize("n", [0, 1, 7, 16, 17, 128, 129])
def test_u56_every_lane_is_folded(n: int) -> None:
    for kernel in (total, total_by_blocks):
        assert everywhere(kernel, np.ones(n, np.float32)) == n
        assert everywhere(kernel, np.arange(n, dtype=np.float32)) == n * (n - 1) // 2


# U58: one meaning, two ways to write it.


@td.kernel
def added_after(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        a = td.zeros(m, n)
        for k in td.reduce(K):
            a += td.dot(A[m, k], B[k, n], over=K)
        Y[m, n] = a


@td.kernel
def added_before(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        a = td.zeros(m, n)
        for k in td.reduce(K):
            a = td.dot(A[m, k], B[k, n], over=K) + a
        Y[m, n] = a


def test_u58_the_same_verdict_however_it_is_written() -> None:
    a, b = (np.random.default_rng(s).integers(-3, 4, (9, 9)).astype(np.float32) for s in (0, 1))
    for kernel in (added_after, added_before):
        assert np.array_equal(everywhere(kernel, a, b), a @ b)


@pytest.mark.parametrize("target", ["cpu:avx512", "cuda:sm_90a"])
def test_u58_one_plan_and_one_verdict_whatever_is_asked(target: str) -> None:
    """The texts differ in the names of their programs and in the order of that sum; what is undecided of one is
    undecided of the other."""
    like = td.like(td.f32, 64, 64)
    after, before = (k.plan(like, like, target=target) for k in (added_after, added_before))
    assert after.decisions.point == before.decisions.point and after.decisions.family == before.decisions.family
    assert (after.check().status, before.check().status) == ("verified", "verified")
    asked: list[list[str]] = []
    for plan in (after, before):
        text = plan.machine()
        wrong = [
            re.sub(r"loop k0 = 0 ", "loop k0 = 1 ", text, count=1),
            re.sub(r"(loop k0 = [^\n]*? step )(\d+)", lambda m: f"{m[1]}{2 * int(m[2])}", text, count=1),
            re.sub(r"\n *disjoint\(A, Y\)", "", text, count=1),
        ]
        assert text not in wrong
        asked.append([check(parse_machine(w)).status for w in wrong])
    assert asked[0] == asked[1] and "verified" not in asked[0]


# U82 and U11: contributions that collide.


@td.kernel
def scattered(ids: td.Tensor[N, td.i32], X: td.Tensor[N, td.i64], Y: td.Out[V, td.i64]):
    Y[V] = 0
    for n in td.parallel(N):
        Y.add_at(td.in_range(ids[n], V), X[n])


@pytest.mark.parametrize("n", [0, 1, 1025])
@pytest.mark.parametrize("v", [1, 16])
def test_u82_each_contribution_counts_once(n: int, v: int) -> None:
    random = np.random.default_rng(n)
    ids, x = random.integers(0, v, n).astype(np.int32), random.integers(-9, 10, n)
    expected = np.zeros(v, np.int64)
    np.add.at(expected, ids, x)
    for run in (scattered.reference, scattered):
        y = np.full(v, -1, np.int64)
        run(ids, x, y)
        assert np.array_equal(y, expected)
    assert scattered.sanitize(ids, x, np.zeros(v, np.int64)) == []
