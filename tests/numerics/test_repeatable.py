"""`repeatable`: the same bits from run to run, on any number of workers, whatever else is in the batch, whatever ran
before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle as td
from treadle import bf16, f32

Array = NDArray[Any]
M, N, K = td.dims("M N K")
SIZES = (1, 2, 33, 300)

pytestmark = pytest.mark.usefixtures("with_workers")


def products(repeatable: str | None) -> Any:
    @td.kernel(numerics=td.Numerics(repeatable=repeatable))
    def product(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N, f32] = None):
        for m, n in td.parallel(M, N):
            acc = td.zeros(m, n, dtype=f32)
            for k in td.reduce(K):
                acc = td.mma(X[m, k], W[k, n], acc)
            Y[m, n] = acc

    return product


def normed(repeatable: str | None) -> Any:
    @td.kernel(numerics=td.Numerics(repeatable=repeatable))
    def norm(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
        for m in td.parallel(M):
            x = X[m, N]
            Y[m, N] = (x - x.mean(N)) * td.rsqrt(x.var(N) + 1e-5)

    return norm


def softmaxed(repeatable: str | None) -> Any:
    @td.kernel(numerics=td.Numerics(repeatable=repeatable))
    def softmax(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
        for m in td.parallel(M):
            e = td.exp(X[m, N] - X[m, N].max(N))
            Y[m, N] = e / e.sum(N)

    return softmax


def bits_of_rows(kernel: Any, x: Array, *rest: Array, counts: tuple[int, ...] = (1, 2)) -> set[bytes]:
    """What the first row became, in batches of all sizes and on several numbers of workers."""
    found: set[bytes] = set()
    for count in counts:
        td.set_workers(count)
        for size in SIZES:
            found.add(kernel(x[:size], *rest)[0].tobytes())
    return found


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("columns", [1, 64, 1000])
@pytest.mark.parametrize("make", [normed, softmaxed])
def test_rows(make: Any, columns: int) -> None:
    kernel = make("batch")
    assert len(bits_of_rows(kernel, normal(300, columns))) == 1
    assert len(kernel.variants) == 1


@pytest.mark.parametrize(("depth", "columns", "dtype"), [(64, 64, f32), (1000, 33, f32), (129, 200, bf16)], ids=str)
def test_products(depth: int, columns: int, dtype: Any) -> None:
    kernel = products("batch")
    x, w = normal(300, depth).astype(dtype.numpy), normal(depth, columns, seed=1).astype(dtype.numpy)
    assert len(bits_of_rows(kernel, x, w)) == 1
    assert len(kernel.variants) == 1


def test_one_plan_is_the_price() -> None:
    """Without the demand plans are chosen by extents, and their folds have different orders."""
    shapes = [(1, 64), (300, 64), (300, 5000), (5000, 1)]
    given = [td.like(f32, *shape) for shape in shapes]
    assert len({normed(None).plan(x).decisions.line() for x in given}) > 1
    assert len({normed("batch").plan(x).decisions.line() for x in given[:3]}) == 1


def test_the_past_does_not_matter() -> None:
    """Kernels that saw other calls first, in either order."""
    x = normal(300, 64)
    fresh, used = normed("run"), normed("run")
    for size in (1, 2, 33):
        for columns in (1, 7, 64, 1000, 5000):
            used(normal(size, columns))
    assert fresh(x).tobytes() == used(x).tobytes()


def test_runs_are_alike() -> None:
    kernel = normed("run")
    x = normal(257, 999)
    assert len({kernel(x).tobytes() for _ in range(20)}) == 1


def test_the_plan_is_the_same_for_a_strided_batch_of_one() -> None:
    """One row has no stride to tell; the innermost contiguous axis is taken, as for many rows."""
    kernel = normed("batch")
    x = normal(600, 64)[::2]
    assert kernel(x[:1])[0].tobytes() == kernel(x)[0].tobytes()
