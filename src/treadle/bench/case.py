"""What a case of a suite is: a kernel on inputs of a shape, its float64 oracle, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from treadle.dtype.formats import DType
from treadle.runtime.memory import empty

Arrays = dict[str, Any]
Run = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One row of a suite.

    `make(rng)` gives the inputs, `output` the shape; `bind(inputs, out)` a callable that runs ours; `oracle(inputs)`
    the float64 result. `tolerance` bounds |got - want| elementwise, given the inputs. `result`: the output's dtype when
    it is not `dtype`. Units: `flops`, `bytes` a call.
    """

    family: str
    dtype: DType
    shape: tuple[int, ...]
    label: str
    flops: float
    bytes: float
    output: tuple[int, ...]
    make: Callable[[np.random.Generator], Arrays] = field(repr=False)
    bind: Callable[[Arrays, Any], Callable[[], Any]] = field(repr=False)
    oracle: Callable[[Arrays], Any] = field(repr=False)
    tolerance: Callable[[Arrays, Any], Any] = field(repr=False)
    kernel: Any = field(default=None, repr=False)
    result: DType | None = None

    @property
    def name(self) -> str:
        """`family/dtype/shape`."""
        return f"{self.family}/{self.dtype.name}/{self.label}"

    def altered(
        self,
        make: Callable[[np.random.Generator], Arrays] | None = None,
        tolerance: Callable[[Arrays, Any], Any] | None = None,
        result: DType | None = None,
    ) -> Case:
        """The case with other inputs, another bound, another dtype of its output."""
        changes = {"make": make or self.make, "tolerance": tolerance or self.tolerance}
        return replace(self, **changes, result=result or self.result)

    def room(self) -> Any:
        """An output for one side."""
        return empty(self.output, (self.result or self.dtype).name)


class Finished:
    """A run whose result reaches the output only by `finish`."""

    def __init__(self, run: Run, finish: Run) -> None:
        self.run = run
        self.finish = finish

    def __call__(self) -> Any:
        return self.run()


def aligned(values: Any, dtype: DType) -> Any:
    """A 64-byte aligned array of these values."""
    out = empty(values.shape, dtype.name)
    out[...] = values.astype(dtype.numpy)
    return out


_each_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Any) -> Any:
    """The error function of each element, in float64."""
    return _each_erf(x)
