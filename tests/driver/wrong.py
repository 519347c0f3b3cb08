"""Kernels of the error texts; the texts quote their lines."""

from __future__ import annotations

import treadle as td

M, N = td.dims("M N")


@td.kernel
def scale(X: td.Tensor[M], s: td.Scalar[td.f32], Y: td.Out[M] = None, *, by=1):
    for m in td.parallel(M):
        Y[m] = X[m] * s * by


@td.kernel
def pairs(X: td.Tensor[M], Y: td.Out[M] = None, Z: td.Out[M] = None):
    td.require(M.extent % 2 == 0)
    for m in td.parallel(M):
        Y[m] = X[m] + 1
        Z[m] = X[m] - 1


@td.kernel
def spread(X: td.Tensor[M, td.f16], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m]


@td.kernel
def added(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] += X[m]


@td.kernel
def counted(X: td.Tensor[M, td.i32], Y: td.Out[N, td.i32], Z: td.Out[N, td.i32]):
    for m in td.parallel(M):
        Y.add_at(td.in_range(X[m], N), 1)
        Z.add_at(td.in_range(X[m], N), 1)


@td.kernel
def unrolled(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        total = 0.0
        for n in range(N.extent):
            total = total + X[m, n]
        Y[m] = total


R = td.dims("R")


@td.kernel
def of_devices(X: td.Tensor[R.device, M], Y: td.Out[R.device, M] = None):
    for r in td.parallel(R.each, scope="device"):
        Y[r, M] = X[r, M]


def twice(x):
    return x + x


twice_on_gpus = td.intrinsic(twice, emit={"cuda": "__device__ float twice(float x) { return x + x; }"})


@td.kernel
def own(X: td.Tensor[M], Y: td.Out[M] = None):
    Y[M] = twice_on_gpus(X[M])


twice_misspelt = td.intrinsic(twice, emit={"cpu": "define float @twice(float %x) {\n  ret float %y\n}"})


@td.kernel
def misspelt(X: td.Tensor[M], Y: td.Out[M] = None):
    Y[M] = twice_misspelt(X[M])
