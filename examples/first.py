"""The first kernel: a linear layer with an activation, written once, run on whatever its arguments live on."""

import numpy as np

import treadle as td
from treadle import f32

M, N, K = td.dims("M N K")


@td.kernel
def linear_gelu(X: td.Tensor[M, K], W: td.Tensor[K, N], bias: td.Tensor[N] = None, Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        if bias is not None:
            acc = acc + bias[n]
        Y[m, n] = td.gelu(acc)


@td.kernel
def softmax(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        x = X[m, N].to(f32)
        e = td.exp(x - x.max(N))
        Y[m, N] = e / e.sum(N)


@td.kernel
def gate_up(X: td.Tensor[M, K], Wg: td.Tensor[K, N], Wu: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        g, u = td.zeros(m, n), td.zeros(m, n)
        for k in td.reduce(K):
            x = X[m, k]
            g = td.mma(x, Wg[k, n], g)
            u = td.mma(x, Wu[k, n], u)
        Y[m, n] = td.silu(g) * u


def main() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((257, 1031), dtype=np.float32)
    w = random.standard_normal((1031, 513), dtype=np.float32)
    b = random.standard_normal(513, dtype=np.float32)
    y = linear_gelu(x, w, b)  # planned, judged, compiled; the next call of this shape class compiles nothing
    want = linear_gelu.reference(x, w, b)
    off = float(np.abs(y - want).max() / np.abs(want).max())
    variant = linear_gelu.variants[0]
    print(variant.plan)
    print(f"{variant.verdict['status']}; relative difference to the reference interpreter {off:.1e}")


if __name__ == "__main__":
    main()
