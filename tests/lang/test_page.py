"""The page of the language, sentence by sentence: what it says comes out in the reference interpreter, and the checked
interpreter finds nothing. Wrong programs are in `test_wrong_programs`, kinds of kernels in `test_kinds_*`."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import treadle as td
from treadle import bf16, bool_, f8e4m3, f16, f32, f64, i8, i16, i32, i64, u8, u32

B, G, R, M, N, K, T, V, D, S = td.dims("B G R M N K T V D S")
J, L = M.alias("J L")
HQ = td.product(G, R)
D4 = td.dims("D4", 4)
RNG = np.random.default_rng(3)
X = RNG.integers(-5, 6, (5, 7)).astype(np.float32)
A = RNG.integers(-5, 6, 7).astype(np.float32)
SQUARE = RNG.integers(-5, 6, (6, 6)).astype(np.float32)
CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = {}


def says(wants: Any, *args: Any, **staged: Any) -> Any:
    """A kernel, its arguments, and what it gives."""

    def add(kernel: Any) -> Any:
        CASES[kernel.definition.name] = (kernel, args, staged, wants)
        return kernel

    return add


# ---- a kernel


@says((np.full(7, 3.0), A + 2), A)
@td.kernel
def omitted_outs_come_back_as_a_tuple(X: td.Tensor[N], Y: td.Out[N, f64] = None, Z: td.Out[N] = None):
    Y[N] = 3.0
    Z[N] = X[N] + 2


@says(np.float32(A.sum()), A)
@td.kernel
def rank_0(X: td.Tensor[N], Y: td.Out[()] = None):
    Y[()] = X[N].sum(N)


@says(np.int64(7), A)
@td.kernel
def rank_0_with_a_dtype(X: td.Tensor[N], Y: td.Out[i64] = None):
    Y[()] = N.extent


@says(X * 2 + 1, X, None)
@td.kernel
def absence_is_staged(X: td.Tensor[M, N], bias: td.Tensor[N] = None, Y: td.Out[M, N] = None):
    y = X[M, N] * 2
    y = y + (bias[N] if bias is not None else 1)
    Y[M, N] = y


FACTOR = 3


@says(A * 3 + 5, A)
@td.kernel
def globals_and_defaults_are_staged(X: td.Tensor[N], Y: td.Out[N] = None, *, shift=5):
    Y[N] = X[N] * FACTOR + shift


@says(np.arange(7) * 7.0, A)
@td.kernel
def python_needs_the_number(X: td.Tensor[N], Y: td.Out[N] = None):
    total = td.zeros(N)
    for _ in range(N.extent):
        total = total + N
    Y[N] = total


@says(np.stack([A[:-2], A[1:-1], A[2:]]), A)
@td.kernel
def a_let_gives_an_extent(X: td.Tensor[N], Y: td.Out[R, S] = None, *, radius=3):
    td.let(R, radius)
    td.let(S, N.extent - R.extent + 1)
    Y[R, S] = X.at(S + R, fill=0)


@td.kernel
def column_sums(A: td.Tensor[M, N], Y: td.Out[N] = None):
    Y[N] = A[M, N].sum(M)


def centred(x, mean, *, scale=1.0):
    shifted = x - mean
    for _ in range(2):
        shifted = shifted * scale
    return shifted, mean


@says(4 * (X - X.sum(0) / 5), X)
@td.kernel
def functions_and_kernels_are_inlined(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    mean = column_sums(X[M, N]) / M.extent
    Y[M, N], _ = centred(X[M, N], mean, scale=2.0)


@says(X[1:4].sum(0), X)
@td.kernel
def a_called_kernel_sees_the_part_passed(X: td.Tensor[M, N], Y: td.Out[N] = None):
    part = M[1:4]
    Y[N] = column_sums(X[part, N])


@says(2 * X, X)
@td.kernel
def a_called_kernel_gives_its_out(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        Y[m, N] = doubled(X[m, N])


@td.kernel
def doubled(A: td.Tensor[M, N], Y: td.Out[M, N] = None):
    Y[M, N] = A[M, N] * 2


# ---- regions


class Pair(NamedTuple):
    """A state with names."""

    low: Any
    high: Any


@dataclasses.dataclass
class Box:
    """A state that is changed in place."""

    n: Any
    items: list[Any]


@says((A.min(), A.max(), np.float32(14), A[-1] + A[-2]), A)
@td.kernel
def containers_are_carried_leaf_by_leaf(
    X: td.Tensor[N], Lo: td.Out[()] = None, Hi: td.Out[()] = None, C: td.Out[(), f32] = None, P: td.Out[()] = None
):
    pair = Pair(float("inf"), -float("inf"))
    box = Box(0, [0.0, 0.0])
    for n in td.serial(N.each):
        pair = Pair(td.minimum(pair.low, X[n]), td.maximum(pair.high, X[n]))
        box.n += 2
        box.items[0], box.items[1] = box.items[1], X[n]
    Lo[()], Hi[()], C[()], P[()] = pair.low, pair.high, box.n, box.items[0] + box.items[1]


@says((A + 1, A), A)
@td.kernel
def an_update_keeps_the_old_tile(X: td.Tensor[N], Y: td.Out[N] = None, Z: td.Out[N] = None):
    t = td.empty(N)
    t[N] = X[N]
    u = t
    for n in td.parallel(N):
        t[n] = t[n] + 1
    Y[N], Z[N] = t, u


@says((A * 0 - 4, np.float32(0)), A)
@td.kernel
def no_iteration_changes_nothing(X: td.Tensor[N], Y: td.Out[N] = None, Z: td.Out[()] = None):
    s, t = -4.0, 0.0
    for n in td.reduce(N[3:3]):
        s = s + X[n].sum(n)
    for _ in td.serial(0):
        t = t + 1.0
    Y[N], Z[()] = s, t


INTS = RNG.integers(0, 200, (6,)).astype(np.int32)


@says(
    [np.bitwise_and.reduce(INTS), np.bitwise_or.reduce(INTS), np.bitwise_xor.reduce(INTS), np.prod(INTS % 3 + 1)]
    + [INTS.max(), INTS.min(), INTS.sum(), INTS[0::2].sum()],
    INTS,
)
@td.kernel
def every_update_of_a_state(X: td.Tensor[N, i32], Y: td.Out[S, i32] = None):
    td.let(S, 8)
    a, o, x, p, hi, lo, s = -1, 0, 0, 1, -(1 << 31), (1 << 31) - 1, td.zeros(dtype=i32)
    parts = td.zeros(D4, dtype=i32)
    for n in td.reduce(N.each):
        v = X[n]
        a, o, x, p = a & v, o | v, x ^ v, p * (v % 3 + 1)
        hi, lo = td.maximum(hi, v), td.minimum(lo, v)
        s = td.mma(v, 1 + 0 * v, s)
        if n % 2 == 0:
            parts[1] = parts[1] + v
    for i, v in enumerate((a, o, x, p, hi, lo, s, parts[1])):
        Y[td.in_range(i, S)] = v


@says((np.array([3, 3, 1]), np.array([0, 3, 6])), A)
@td.kernel
def fixed_blocks_know_their_number(X: td.Tensor[N], E: td.Out[S, i64] = None, F: td.Out[S, i64] = None):
    td.let(S, (N.extent + 2) // 3)
    for n in td.parallel(N.by(3)):
        E[td.in_range(n.index, S)] = n.extent
        F[td.in_range(n.index, S)] = n.start


@says([5, 4, 3, 2], A)
@td.kernel
def parts_of_parts_backwards(X: td.Tensor[N], Y: td.Out[D4, i64] = None):
    at = 0
    for n in td.serial(N[1:][1:6].each.reversed):
        if at < 4:
            Y[td.in_range(at, D4)] = n
        at = at + 1


@says(np.tril(SQUARE).sum(1), SQUARE)
@td.kernel
def bounds_follow_an_outer_block(X: td.Tensor[M, J], Y: td.Out[M] = None):
    for m in td.parallel(M):
        s = td.zeros(m)
        for j in td.reduce(J[: m.stop]):
            s = s + td.where(m >= j, X[m, j], 0).sum(j)
        Y[m] = s


@says(X.sum(1), X)
@td.kernel
def a_block_is_subdivided(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M.by(4)):
        for mm in td.parallel(m.by(2)):
            for e in td.parallel(mm.each):
                Y[e] = X[e, N].sum(N)


@says([0, 1, 4, 9, 16, 25], np.int32(6))
@td.kernel
def a_region_over_a_number(n: td.Scalar[i32], Y: td.Out[S, i64] = None):
    td.let(S, 6)
    for i in td.parallel(n):
        Y[td.in_range(i, S)] = i * i


@says(np.where(A > 0, A, 0) + np.where((A > -3) & (A < 3), 10, 20), A)
@td.kernel
def conditions_keep_pythons_meaning(X: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N.each):
        x = X[n]
        y = 0.0
        if x > 0 and not x < 0:
            y = x
        y = y + (10 if -3 < x < 3 else 20)
        Y[n] = y


@says(np.float32(np.cumsum(np.abs(A))[np.argmax(np.cumsum(np.abs(A)) > 6)]), A)
@td.kernel
def a_loop_ends_by_a_flag(X: td.Tensor[N], Y: td.Out[()] = None):
    done, s = False, 0.0
    for n in td.serial(N.each):
        if not done:
            s = s + td.abs(X[n])
            done = s > 6
    Y[()] = s


@says(X @ X.T, X)
@td.kernel
def stages_scopes_and_versions(X: td.Tensor[M, N], Y: td.Out[M, J] = None):
    for i, j in td.parallel(M.by(2), J, scope="workgroup", name="tiles"):
        acc = td.zeros(i, j)
        for n in td.reduce(N, versions=3):
            td.stage("load")
            a, b = X[i, n], X[j, n]
            td.stage("compute")
            acc = td.mma(a, b, acc)
        Y[i, j] = acc


# ---- values


LABELS = np.array([3, 0, 6, 6, 1], np.int32)


@says((X[np.arange(5), LABELS], X[:, ::-1]), X, LABELS)
@td.kernel
def subscripts_join_their_dimensions(
    X: td.Tensor[M, N], label: td.Tensor[M, i32], Y: td.Out[M] = None, Z: td.Out[M, N] = None
):
    Y[M] = X[M, td.in_range(label[M], N)]
    Z[M, N] = X[M, N.extent - 1 - N]


@says((SQUARE.T, SQUARE.T @ SQUARE), SQUARE)
@td.kernel
def aliases_rename(X: td.Tensor[M, J], Y: td.Out[M, J] = None, Z: td.Out[M, J] = None):
    x = X[M, J]
    Y[M, J] = x[J, M]
    Z[M, J] = td.mma(x[L, M], x[L, J], td.zeros(M, J))


@says((np.eye(6, dtype=bool), np.arange(6) * 2), SQUARE)
@td.kernel
def a_part_is_its_coordinates(X: td.Tensor[M, J], E: td.Out[M, J, bool_] = None, C: td.Out[M, i64] = None):
    E[M, J] = M == J
    C[M] = M + M.coords


Q = RNG.integers(-5, 6, (2, 6, 4)).astype(np.float32)


@says((Q.reshape(2, 3, 2, 4).sum(2), Q[:, 1::2, 0], Q[:, 4]), Q)
@td.kernel
def product_axes(Q: td.Tensor[B, HQ, D4], Y: td.Out[B, G, D4] = None, Z: td.Out[B, G] = None, W: td.Out[B, D4] = None):
    td.require(R.extent == 2)
    Y[B, G, D4] = Q[B, G, R, D4].sum(R)
    Z[B, G] = Q[B, (G, td.in_range(1, R)), 0]
    W[B, D4] = Q[B, td.in_range(4, HQ), D4]


@says((np.concatenate([[X[2, 3]] * 2, X[2:5, 3]]), X[4]), X)
@td.kernel
def tiles_have_global_coordinates(X: td.Tensor[M, N], Y: td.Out[M] = None, Z: td.Out[N] = None):
    td.require(M.extent >= 5)
    td.require(N.extent >= 4)
    part = X[M[2:5], N]
    Y[M[2:5]] = part[M[2:5], 3]
    Y[M[:2]] = X[2, 3]
    Z[N] = part[4, N]


@says(np.stack([A * 2, A * 2 + 1]), A)
@td.kernel
def memory_has_identity(X: td.Tensor[N], Y: td.Out[S, N] = None):
    td.let(S, 2)
    for n in td.parallel(N):
        buffer = td.memory(S, n, place="shared", layout="row")
        same = buffer
        for s in td.serial(S.each):
            buffer[s, n] = X[n]
        twice(same, n)
        buffer[1, n] = same[1, n] + 1
        Y[S, n] = buffer[S, n]


def twice(memory, n):
    memory[S, n] = memory[S, n] * 2


@says((X @ X.T, X @ A, np.multiply.outer(A, A), X.sum(), np.einsum("mn,n,mn->m", X, A, X)), X, A)
@td.kernel
def einsums(
    X: td.Tensor[M, N],
    A: td.Tensor[N],
    P: td.Out[M, J] = None,
    Q: td.Out[M] = None,
    Outer: td.Out[N, K] = None,
    S: td.Out[()] = None,
    W: td.Out[M] = None,
):
    td.let(K, N.extent)
    P[M, J] = td.einsum("mn,jn->mj", X[M, N], X[J, N])
    Q[M] = td.einsum("mn,n->m", X[M, N], A[N])
    Outer[N, K] = td.einsum("n,k", A[N], A.at(K.coords, fill=0))
    S[()] = td.einsum("mn->", X[M, N])
    W[M] = td.einsum("mn,n,mn->m", X[M, N], A[N], X[M, N])


@says(
    (X.mean(1), X.var(1, ddof=1), X.argmax(), (X > 4).any(1), (X > -6).all(), X.prod(0)),
    X,
)
@td.kernel
def folds_of_a_value(
    X: td.Tensor[M, N],
    A: td.Out[M] = None,
    V: td.Out[M] = None,
    P: td.Out[(), i64] = None,
    Y: td.Out[M, bool_] = None,
    Z: td.Out[(), bool_] = None,
    W: td.Out[N] = None,
):
    x = X[M, N]
    A[M], V[M], P[()] = x.mean(N), x.var(N, ddof=1), x.argmax()
    Y[M], Z[()], W[N] = (x > 4).any(N), (x > -6).all(), x.prod(M, order=td.fold_right)


TIES = np.array([2, 5, 2, 5, -1, 5, 2], np.float32)


@says((np.sort(TIES), np.argsort(TIES, kind="stable"), [5, 5, 5], [1, 3, 5], [1, 3, 5, 0, 2, 6, 4]), TIES)
@td.kernel
def sorting_is_stable(
    X: td.Tensor[N],
    Y: td.Out[N] = None,
    P: td.Out[N, i64] = None,
    V: td.Out[T] = None,
    At: td.Out[T, i64] = None,
    Down: td.Out[N, i64] = None,
):
    td.let(T, 3)
    Y[N], P[N] = td.sort(X[N], N), td.argsort(X[N], N)
    V[T], At[T] = td.topk(X[N], N, to=T)
    Down[N] = td.argsort(X[N], N, descending=True)


@says((A.astype(np.float16).astype(np.float32), (A > 0), A.view(np.int32)), A)
@td.kernel
def conversions(X: td.Tensor[N], H: td.Out[N] = None, P: td.Out[N, bool_] = None, I: td.Out[N, i32] = None):  # noqa: E741 (I is an output)
    H[N] = X[N].to(f16).to(f32)
    P[N] = td.maximum(X[N], 0).to(bool_)
    I[N] = X[N].bitcast(i32)


SMALL = RNG.integers(-100, 100, 7).astype(np.int8)


@says((SMALL.sum(dtype=np.int32), (SMALL / 2).astype(np.float32), SMALL // 3, SMALL % 3, (SMALL * 0.5)), SMALL)
@td.kernel
def integers(
    X: td.Tensor[N, i8],
    Sum: td.Out[()] = None,
    Half: td.Out[N] = None,
    Q: td.Out[N] = None,
    P: td.Out[N] = None,
    W: td.Out[N] = None,
):
    x = X[N]
    Sum[()], Half[N], Q[N], P[N], W[N] = x.sum(N), x / 2, x // 3, x % 3, x * 0.5


@says((np.int32((A > 0).sum()), np.int8(A[-1] > 0), np.where(A > 1, 6, 3) + 4, np.where(A > 0, 300, 0)), A)
@td.kernel
def selected_numbers_are_weak(
    X: td.Tensor[N], Y: td.Out[()] = None, F: td.Out[()] = None, Z: td.Out[N] = None, W: td.Out[N] = None
):
    count, last = td.zeros(dtype=i32), td.zeros(dtype=i8)
    for n in td.serial(N.each):
        count = count + td.where(X[n] > 0, 1, 0)
        last = 1 if X[n] > 0 else 0
    Y[()], F[()] = count, last
    four = td.full(N, value=4, dtype=i16)
    Z[N] = four + 3 * td.where(X[N] > 1, 2, 1)
    W[N] = td.zeros(N, dtype=i8) + td.where(X[N] > 0, 300, 0)  # too large for i8: i64


@pytest.mark.parametrize("dtype", [td.bf16, td.f16, td.f32, td.f64])
def test_selected_floats_are_weak(dtype: td.DType) -> None:
    @td.kernel
    def selected(X: td.Tensor[N, dtype], Y: td.Out[N] = None, Z: td.Out[N] = None, W: td.Out[()] = None):
        Y[N] = X[N] * td.where(X[N] > 0, 0.1, -0.3)
        Z[N] = 0.5 * td.where(X[N] > 1, 2.0, 1) + X[N]
        step = td.zeros(dtype=dtype)
        for n in td.serial(N.each):
            step = td.where(X[n] > 0, 0.7, 0.0)
        W[()] = step

    x = A.astype(dtype.numpy)
    found = selected.reference(x)
    assert [y.dtype for y in found] == [dtype.numpy] * 3, [y.dtype for y in found]
    factor = np.where(A > 0, 0.1, -0.3).astype(dtype.numpy)  # as a number beside the tile: rounded to its dtype
    assert (found[0] == (x.astype(np.float64) * factor.astype(np.float64)).astype(dtype.numpy)).all()
    assert (found[1] == np.where(A > 1, 1.0, 0.5).astype(dtype.numpy) + x).all()
    assert found[2] == np.asarray(0.7 * (A[-1] > 0)).astype(dtype.numpy)


def test_selected_floats_that_overflow_stay_wide() -> None:
    @td.kernel
    def masked(X: td.Tensor[N, td.f16], Y: td.Out[N] = None):
        Y[N] = X[N] + td.where(X[N] > 0, 0.0, -1e30)

    found = masked.reference(A.astype(np.float16))
    assert found.dtype == np.float32 and np.isfinite(found).all()


def later_if_greater(p, q):
    more = q[0] > p[0]
    return td.where(more, q[0], p[0]), td.where(more, q[1], p[1])


FIRST = td.Monoid((-float("inf"), -1), later_if_greater)


@says((X.argmax(1), [int(np.argmax(row[: i + 1])) for row in X[:1] for i in range(7)]), X)
@td.kernel
def a_part_in_a_state_is_its_coordinates(X: td.Tensor[M, N], P: td.Out[M, i64] = None, S: td.Out[N, i64] = None):
    for m in td.parallel(M.each):
        state = (-float("inf"), -1)
        for n in td.reduce(N, order=td.ordered):
            state = FIRST.merge(state, td.fold((X[m, n], n), N, FIRST))
        P[m] = state[1]
    S[N] = td.scan((X.at(0, N, fill=0), N), N, FIRST)[1]


@td.intrinsic
def triple(x):
    return x * 3


@says(A * 3, A)
@td.kernel
def an_intrinsic_computes_its_pattern(X: td.Tensor[N], Y: td.Out[N] = None):
    Y[N] = triple(X[N])


@pytest.mark.parametrize("name", CASES)
def test_sentence(name: str) -> None:
    kernel, args, staged, wants = CASES[name]
    found = kernel.reference(*args, **staged)
    several = isinstance(found, tuple)
    for mine, wanted in zip(found if several else (found,), wants if several else (wants,), strict=True):
        mine, wanted = np.asarray(mine), np.asarray(wanted)
        assert mine.shape == wanted.shape, (mine.shape, wanted.shape)
        np.testing.assert_allclose(mine.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-6)
    assert not kernel.sanitize(*args, **staged)


def test_old_values_of_colliding_writes() -> None:
    @td.kernel
    def counted(at: td.Tensor[M, i32], H: td.Out[D4, i32], Old: td.Out[M, i32] = None):
        for m in td.serial(M.each):
            Old[m] = H.add_at(td.in_range(at[m], D4), 1, order=td.fold_left)

    h = np.array([5, 3, 2, 0], np.int32)
    old = counted.reference(np.array([2, 0, 2, 2], np.int32), h)
    got = old[-1] if isinstance(old, tuple) else old
    assert got.tolist() == [2, 5, 3, 4] and h.tolist() == [6, 3, 5, 0]


@td.kernel
def mixed(
    a: td.Tensor[N, f16],
    b: td.Tensor[N, bf16],
    c: td.Tensor[N, i16],
    d: td.Tensor[N, u8],
    Halves: td.Out[N] = None,
    Half: td.Out[N] = None,
    Short: td.Out[N] = None,
    Weak: td.Out[N] = None,
    Single: td.Out[N] = None,
    Ratio: td.Out[N] = None,
    Place: td.Out[N] = None,
    Wide: td.Out[()] = None,
    Count: td.Out[()] = None,
    Scaled: td.Out[N] = None,
    Brain: td.Out[N] = None,
    Truth: td.Out[N] = None,
    Eighth: td.Out[N] = None,
):
    Halves[N], Half[N], Short[N], Weak[N] = a[N] + b[N], a[N] + c[N], c[N] + d[N], c[N] + 1
    Single[N], Ratio[N], Place[N] = c[N] + 0.5, d[N] / d[N], N + 1
    Wide[()], Count[()] = b[N].sum(N), d[N].sum(N)
    Scaled[N], Brain[N], Truth[N] = a[N] * 2.5, td.exp(b[N]), a[N] > 1
    Eighth[N] = a[N].to(f8e4m3, saturate=True).to(f32)


def test_promotion_follows_the_page() -> None:
    """An Out that declares no dtype has that of the value stored."""
    args = np.ones(3, np.float16), np.ones(3, ml_dtypes.bfloat16), np.ones(3, np.int16), np.ones(3, np.uint8)
    wanted = [f32, f16, i16, i16, f32, f32, i64, f32, u32, f16, bf16, bool_, f32]
    assert [np.asarray(x).dtype for x in mixed.reference(*args)] == [d.numpy for d in wanted]


def test_prints_and_checks_change_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    @td.kernel
    def shown(X: td.Tensor[N], Y: td.Out[N] = None):
        td.print("x", X[N], where=X[N] > 0)
        td.check(X[N] < 100, "too much")
        Y[N] = X[N] * 2

    x = np.array([1, -2, 3], np.float32)
    assert shown.reference(x).tolist() == [2, -4, 6]
    out = capsys.readouterr().out
    assert out.splitlines() == ["x[N = 0] = 1.0", "x[N = 2] = 3.0"]
    with pytest.raises(td.UserError, match="too much") as caught:
        shown.reference(np.array([1, 200], np.float32))
    assert caught.value.code == "check/failed" and "N = 1" in str(caught.value)


def test_a_kernel_is_paired_with_its_backward() -> None:
    @td.kernel
    def square(X: td.Tensor[N], Y: td.Out[N] = None):
        Y[N] = X[N] * X[N]

    @square.backward
    @td.kernel
    def square_gradient(X: td.Tensor[N], dY: td.Tensor[N], dX: td.Out[N] = None):
        dX[N] = 2.0 * X[N] * dY[N]

    assert square.gradient is square_gradient
    assert square.gradient.reference(A, np.ones(7, np.float32)).tolist() == (2 * A).tolist()
    with pytest.raises(td.UserError) as caught:
        square.backward(abs)
    assert caught.value.code == "capture/argument"


def test_a_dimension_is_folded_once() -> None:
    @td.kernel
    def twice(X: td.Tensor[N], Y: td.Out[()] = None):
        Y[()] = X[N].sum(N, N)

    with pytest.raises(td.TreadleError, match="named twice") as caught:
        twice.program(A)
    assert caught.value.code == "dims/twice"
