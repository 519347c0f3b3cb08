"""What the checked interpreter finds, and that it finds nothing where all is well."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import treadle as td
from treadle import f32, i32, i64

M, N, K, T, V = td.dims("M N K T V")
M2 = M.alias("M2")
C = td.dims("C", 3)
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def line_of(kernel: Any, mark: str) -> int:
    lines, first = inspect.getsourcelines(kernel.definition.fn)
    return first + next(i for i, line in enumerate(lines) if f"# {mark}" in line)


def finding(kernel: Any, *args: Any, code: str, **staged: Any) -> Any:
    """The first finding: of the code, at the line that is marked `here`, with the other one marked `there`, if any."""
    found = kernel.sanitize(*args, **staged)
    assert found and found[0].code == code, [str(f) for f in found]
    assert found[0].span.line == line_of(kernel, "here"), str(found[0])
    source = inspect.getsource(kernel.definition.fn)
    if "# there" in source:
        assert found[0].other is not None and found[0].other.line == line_of(kernel, "there"), str(found[0])
    return found[0]


@td.kernel
def reads_its_neighbour(A: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = A[m]
        left = Y.at(m - 1, fill=0.0)  # here
        Y[m] = A[m] + left  # there


@td.kernel
def two_write_one(A: td.Tensor[M, N], Y: td.Out[M]):
    for m, n in td.parallel(M, N.each):
        Y[m] = A[m, n]  # here


@td.kernel
def writes_what_is_read(A: td.Tensor[M], Y: td.Out[M]):
    Y[M] = A[M]
    for m in td.parallel(M.each):
        x = Y.at(m + 1, fill=0.0)  # there
        Y[m] = x  # here


@td.kernel
def writes_what_is_added(ids: td.Tensor[T, i32], Y: td.Out[V]):
    Y[V] = 0.0
    for t in td.parallel(T.each):
        Y.add_at(td.in_range(ids[t], V), 1.0)  # here
        Y[td.in_range(0, V)] = 5.0  # there


@td.kernel
def fold_that_stores_twice(A: td.Tensor[M], Y: td.Out[V], S: td.Out[()]):
    s = td.zeros()
    for m in td.reduce(M.each):
        s = s + A[m]
        Y[td.in_range(0, V)] = A[m]  # here
    S[()] = s


def test_broken_promises_name_instances_and_both_lines() -> None:
    found = finding(reads_its_neighbour, X[0], np.zeros(3, np.float32), code="parallel/interference")
    assert found.instances == ("m = 1", "m = 0") and "Y[0]" in found.message
    finding(two_write_one, X, np.zeros(4, np.float32), code="parallel/interference")
    finding(writes_what_is_read, X[0], np.zeros(3, np.float32), code="parallel/interference")
    ids = np.array([1, 0], np.int32)
    finding(writes_what_is_added, ids, np.zeros(2, np.float32), code="parallel/interference")
    finding(
        fold_that_stores_twice, X[0], np.zeros(2, np.float32), np.zeros((), np.float32), code="parallel/interference"
    )


@td.kernel
def assembles_twice(A: td.Tensor[M, N], Y: td.Out[N] = None):
    t = td.empty(N)
    for m, n in td.parallel(M.each, N):
        t[n] = A[m, n]  # here
    Y[N] = t


@td.kernel
def scatter(ids: td.Tensor[M, i32], A: td.Tensor[M], Y: td.Out[V]):
    for m in td.parallel(M):
        Y[td.in_range(ids[m], V)] = A[m]  # here


@td.kernel
def scatter_into_a_tile(ids: td.Tensor[M, i32], A: td.Tensor[M], Y: td.Out[V]):
    t = td.zeros(V)
    t[td.in_range(ids[M], V)] = A[M]  # here
    Y[V] = t


def test_collisions() -> None:
    found = finding(assembles_twice, X, code="parallel/assembled-twice")
    assert found.instances == ("m = 1, n = 0", "m = 0, n = 0") and "t[0]" in found.message
    ids, y = np.array([3, 1, 3], np.int32), np.zeros(5, np.float32)
    assert "Y[3]" in finding(scatter, ids, X[0], y, code="parallel/interference").message
    assert "t[3]" in finding(scatter_into_a_tile, ids, X[0], y, code="store/collides").message
    good = np.array([3, 1, 2], np.int32)
    assert not scatter.sanitize(good, X[0], y) and not scatter_into_a_tile.sanitize(good, X[0], y)


def test_broken_ranges() -> None:
    found = finding(scatter, np.array([0, 5, 1], np.int32), X[0], np.zeros(5, np.float32), code="bounds/out-of-range")
    assert "promised by td.in_range" in found.message
    found = finding(scatter, np.array([0, -1, 1], np.int32), X[0], np.zeros(5, np.float32), code="bounds/out-of-range")
    assert "index -1" in found.message


@td.kernel
def half_written(A: td.Tensor[M], Y: td.Out[M] = None, *, how="plain"):
    t = td.empty(M)
    for m in td.parallel(M[1:]):
        t[m] = A[m]
    if how == "plain":
        Y[M] = t  # here
    elif how == "selected":
        Y[M] = td.where(M > 0, t, 0.0)
    elif how == "filled":
        Y[M] = td.where(M < M.extent - 1, t.at(M + 1, fill=0.0), 7.0)


@td.kernel
def sums_too_much(A: td.Tensor[M], Y: td.Out[()] = None):
    t = td.empty(M)
    t[td.in_range(0, M)] = A.at(0, fill=0.0)
    Y[()] = (t * 2.0).sum(M)  # here


@td.kernel
def output_before_it_is_written(A: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.serial(M.each):
        Y[m] = A[m] + Y.at(m + 1, fill=0.0)  # here


def test_uninitialised_elements() -> None:
    finding(half_written, X[0], code="read/uninitialised")
    assert not half_written.sanitize(X[0], how="selected") and not half_written.sanitize(X[0], how="filled")
    finding(sums_too_much, X[0], code="read/uninitialised")
    finding(output_before_it_is_written, X[0], code="read/uninitialised")


@td.kernel
def computed_from_holes(A: td.Tensor[M], Y: td.Out[M] = None):
    t = td.empty(M)
    for m in td.parallel(M[1:]):
        t[m] = A[m]
    Y[M] = (t * 2.0 + A[M]).to(f32)  # here


@td.kernel
def memory_assembled_twice(A: td.Tensor[M], Y: td.Out[M] = None):
    buffer = td.memory(M)
    for m in td.parallel(M.each):
        buffer[td.in_range(m // 2, M)] = A[m]  # here
    Y[M] = buffer[M]


def test_findings_name_the_users_variable() -> None:
    found = finding(computed_from_holes, X[0], code="read/uninitialised")
    assert found.message == "t has elements that were never written"
    findings = memory_assembled_twice.sanitize(X[0])
    assert findings[0].code == "parallel/assembled-twice" and "assemble one element: buffer[0]" in findings[0].message
    assert findings[1].message == "buffer has elements that were never written", findings


@td.kernel
def observes_its_cut(A: td.Tensor[M], Y: td.Out[M] = None, Z: td.Out[M] = None):
    for m in td.serial(M):
        Z[m] = A[m]
        Y[m] = A[m] - A[m].max(m)  # here


@td.kernel
def counts_blocks(A: td.Tensor[M], Y: td.Out[()] = None):
    n = 0
    for _ in td.serial(M):
        n = n + 1
    Y[()] = n.to(f32) + A[M].sum(M)  # here


def one_of_nothing():
    return td.full(value=1.0)


def larger(s, t):
    return td.maximum(s, t)


LAWLESS = td.Monoid(0.0, lambda s, t: s - t, commutative=True)
NEARLY = td.Monoid((0.0, 0.0), lambda s, t: (s[0] + t[0], td.where(t[1] != 0, t[1], s[1])), commutative=True)


NOT_ZERO = td.Monoid(1.0, lambda s, t: s + t, commutative=True)
NOT_LOWEST = td.Monoid(one_of_nothing, larger, commutative=True)
CHAINED = td.Monoid(0.0, lambda s, t: td.where(s == 0, t, td.where(t == 0, s, s - t)))


@td.kernel
def lies_about_its_identity(A: td.Tensor[M], Y: td.Out[()] = None, *, how="fold", use=NOT_ZERO):
    if how == "fold":
        Y[()] = td.fold(A[M], M, use, order=td.ordered)  # fold
    elif how == "scan":
        Y[()] = td.scan(A[M], M, use).sum(M)  # scan
    elif how == "exact":
        Y[()] = td.fold(A[M], M, use, order=td.fold_left)
    else:
        s = 0.0
        for m in td.reduce(M.each, order=td.ordered):  # reduce
            s = use(s, A[m])
        Y[()] = s


def lawful_moments(s, t):
    """Count, mean and squared deviations of two parts as one."""
    n = s[0] + t[0]
    delta = t[1] - s[1]
    some = td.maximum(n, 1.0)
    return n, s[1] + delta * (t[0] / some), s[2] + t[2] + delta * delta * (s[0] * t[0] / some)


MOMENTS = td.Monoid((0.0, 0.0, 0.0), lawful_moments, lift=lambda x: (1.0, x, 0.0), commutative=True)


@td.kernel
def keeps_its_laws(A: td.Tensor[M], Y: td.Out[()] = None, Z: td.Out[M] = None):
    Y[()] = td.fold(A[M], M, MOMENTS)[2]
    Z[M] = td.scan(A[M], M, MOMENTS, order=td.ordered)[1]


@td.kernel
def lies_about_its_laws(A: td.Tensor[M], Y: td.Out[()] = None):
    s = 0.0
    for m in td.reduce(M.each):  # region
        s = LAWLESS(s, A[m])
    Y[()] = s


@td.kernel
def lies_about_commuting(A: td.Tensor[M], Y: td.Out[()] = None):
    Y[()] = td.fold((A[M], A[M]), M, NEARLY)[1]  # here


def test_results_that_depend_on_the_cut() -> None:
    found = finding(observes_its_cut, X[1], code="block/observed")
    assert found.values == (0.0, -2.0) and found.message.startswith("Y[0] is 0.0 with blocks of 1 and -2.0 with whole")
    finding(counts_blocks, X[0], code="block/observed")


def broken_law(kernel: Any, *args: Any, code: str, monoid: td.Monoid, mark: str, **staged: Any) -> str:
    """The message of the only finding: at the line of the monoid, and the fold's."""
    found = kernel.sanitize(*args, **staged)
    assert [f.code for f in found][:1] == [code], [str(f) for f in found]
    first = monoid.function.__code__.co_firstlineno
    assert first <= found[0].span.line <= first + 5, str(found[0])
    assert found[0].other.line == line_of(kernel, mark), str(found[0])
    return found[0].message


def test_broken_laws_of_monoids() -> None:
    big = np.arange(1, 40, dtype=np.float32)
    for how in ("fold", "scan", "reduce"):
        text = broken_law(lies_about_its_identity, big, code="reduce/not-identity", monoid=NOT_ZERO, mark=how, how=how)
        assert text.startswith("merge(identity, x) is ") and ", not x, for x = " in text
    text = broken_law(lies_about_its_laws, big, code="reduce/not-identity", monoid=LAWLESS, mark="region")
    assert text.startswith("merge(identity, x) is ") and ", not x, for x = -" in text
    text = broken_law(lies_about_commuting, big, code="reduce/not-commutative", monoid=NEARLY, mark="here")
    assert text == "merge(x, y) is (3.0, 2.0), merge(y, x) is (3.0, 1.0), for x = (1.0, 1.0), y = (2.0, 2.0)"
    text = broken_law(
        lies_about_its_identity, big, code="reduce/not-associative", monoid=CHAINED, mark="fold", use=CHAINED
    )
    assert text == "merge(merge(x, y), z) is -4.0, merge(x, merge(y, z)) is 2.0, for x = 1.0, y = 2.0, z = 3.0"
    found = lies_about_its_identity.sanitize(big - 5, use=NOT_LOWEST)[0]
    assert found.code == "reduce/not-identity" and found.message == "merge(identity, x) is 1.0, not x, for x = -4.0"
    assert found.span.line == inspect.getsourcelines(one_of_nothing)[1] + 1
    assert not lies_about_its_identity.sanitize(big, use=NOT_LOWEST), "lawful on these numbers"
    assert not lies_about_its_identity.sanitize(big, how="exact", use=CHAINED), "no order relies on the laws"


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e5])
def test_rounding_breaks_no_law(offset: float) -> None:
    a = (offset + np.random.default_rng(3).normal(size=60)).astype(np.float32)
    assert not keeps_its_laws.sanitize(a), keeps_its_laws.sanitize(a)


@td.kernel
def shifted(A: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = A[m] + 1.0  # here


def test_overlapping_arguments() -> None:
    memory = np.arange(8, dtype=np.float32)
    assert not shifted.sanitize(memory[:7], np.zeros(7, np.float32))
    assert not shifted.sanitize(memory, memory)  # each instance reads and writes its own
    found = shifted.sanitize(memory[:7], memory[1:])
    assert [f.code for f in found] == ["parallel/interference"], [str(f) for f in found]
    assert found[0].span.line == line_of(shifted, "here") and memory.tolist() == list(range(8))


@td.kernel
def two_outputs(A: td.Tensor[M], Y: td.Out[M], Z: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = A[m]  # there
        Z[m] = A[m] * 2.0  # here


def test_overlapping_outputs() -> None:
    memory = np.zeros(9, np.float32)
    a = np.arange(4, dtype=np.float32)
    assert not two_outputs.sanitize(a, memory[:4], memory[5:])
    finding(two_outputs, a, memory[1:5], memory[:4], code="parallel/interference")
    interleaved = as_strided(memory, (4,), (8,)), as_strided(memory[1:], (4,), (8,))
    assert not two_outputs.sanitize(a, *interleaved)


@td.kernel
def tickets(A: td.Tensor[T], Y: td.Out[T], n: td.Out[C, i64], S: td.Out[T]):
    n[C] = 0
    for t in td.parallel(T.each):
        at = n.add_at(0, 1)
        Y[td.in_range(at, T)] = A[t]
        S[t] = A[t] * 2.0


def test_tickets_may_be_drawn_in_any_order() -> None:
    a = np.arange(9, dtype=np.float32)
    assert not tickets.sanitize(a, np.zeros(9, np.float32), np.zeros(3, np.int64), np.zeros(9, np.float32))


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_found_in_sums_with_cancellation(seed: int) -> None:
    @td.kernel
    def total(A: td.Tensor[M, N], Y: td.Out[M] = None):
        for m in td.parallel(M):
            s = td.zeros(m)
            for n in td.reduce(N):
                s = s + A[m, n].sum(n)
            Y[m] = s

    a = np.random.default_rng(seed).normal(size=(3, 500)).astype(np.float32) * 100
    assert not total.sanitize(a)
