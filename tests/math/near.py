"""A model of hardware whose instructions are nearly right, as wrong as it is told."""

from __future__ import annotations

import numpy as np

from treadle.math.numpy_ops import Array, NumpyOps


class NearNumpyOps(NumpyOps):
    """`off`: the relative error of the near instructions, in either direction by the parity of the argument's bits,
    so that one run holds both."""

    def __init__(self, off: float) -> None:
        self.off = off

    def _bent(self, a: Array, exact: Array) -> Array:
        sign = np.where(np.asarray(a, np.float32).view(np.int32) & 1, 1.0, -1.0)
        return np.asarray(exact * (1.0 + sign * self.off), np.float32)

    def exp2_near(self, a: Array) -> Array:
        flushed = np.where(np.abs(a) < 2.0**-126, np.float32(0), a)
        near = self._bent(a, np.exp2(flushed.astype(np.float64)))
        return np.where(np.abs(near) < 2.0**-126, np.float32(0), near)

    def reciprocal_near(self, a: Array) -> Array:
        return self._bent(a, 1.0 / a.astype(np.float64))

    def fma_unit(self, a: Array, b: Array, c: Array) -> Array:
        total = self.fma(a, b, c)
        return np.where(np.isnan(total), np.float32(0), np.clip(total, 0, 1)).astype(np.float32)
