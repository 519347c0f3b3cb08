"""Kernels of the device run beside those of `treadle.lib`."""

from __future__ import annotations

import treadle as td
from treadle import f32, i32

T, V, D, B = td.dims("T V D B")


def same(x):
    """No activation."""
    return x


@td.kernel
def gather(ids: td.Tensor[T, i32], E: td.Tensor[V, D], Y: td.Out[T, D] = None):
    """Rows by number."""
    for t, d in td.parallel(T, D):
        Y[t, d] = E[td.in_range(ids[t], V), d]


@td.kernel
def ranges(start: td.Tensor[B, i32], stop: td.Tensor[B, i32], X: td.Tensor[T, D], Y: td.Out[B, D] = None):
    """Sums of ranges of rows that are loaded from tensors."""
    for b, d in td.parallel(B.each, D):
        acc = td.zeros(d, dtype=f32)
        for t in td.reduce(T[td.in_range(start[b], T) : td.in_range(stop[b], T)]):
            acc = acc + X[t, d].to(f32).sum(t)
        Y[b, d] = acc
