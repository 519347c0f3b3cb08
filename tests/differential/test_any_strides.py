"""Shapes and strides drawn at random: any view that NumPy can make is an argument, and nothing beside it is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.differential.cases import CASES, off
from tests.differential.frames import Framed, poison

Array = NDArray[Any]
NAMES = ("affine", "integers_i32", "softmax_f32", "linear_f32", "embed", "columns", "stencil", "transpose", "heads")
BY_NAME = {c.name: c for c in CASES}


def viewed(content: Array, draw: st.DrawFn, *, output: bool) -> Framed:
    """The content in a view with random strides: axes in any order, apart by gaps, either way round; an input's axis
    may also repeat (stride 0)."""
    shape = content.shape
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), draw(st.integers(1, 3))
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1) + draw(st.integers(0, 2))
    flip = [draw(st.booleans()) for _ in shape]
    still = [not output and draw(st.integers(0, 5)) == 0 for _ in shape]
    start = 5 + sum((n - 1) * s for n, s, f in zip(shape, strides, flip) if f and n)
    size = content.itemsize
    steps = tuple(0 if z else (-s if f else s) * size for s, f, z in zip(strides, flip, still))

    def cut(base: Array) -> Array:
        return np.ndarray(shape, content.dtype, base, start * size, steps)

    made = Framed(np.full(step + start + 9, poison(content.dtype), content.dtype), cut)
    made.array[...] = content
    made.keep()
    return made


@pytest.mark.parametrize("name", NAMES)
def test_any_view(name: str) -> None:
    case = BY_NAME[name]

    @settings(max_examples=12)
    @given(st.data())
    def run(data: Any) -> None:
        draw = data.draw
        names = sorted({n for s in case.sizes for n in s})
        sizes = {n: draw(st.integers(1 if n == "V" else 0, 21), label=n) for n in names}
        random = np.random.default_rng(draw(st.integers(0, 9)))
        passed: dict[str, Any] = {}
        frames: dict[str, Framed] = {}
        for key, value in case.inputs(sizes, random).items():
            if isinstance(value, np.ndarray):
                frames[key] = viewed(value, draw, output=False)
                value = frames[key].array
            passed[key] = value
        for key, (shape, dtype) in case.outs(sizes).items():
            frames[key] = viewed(np.zeros(shape, dtype), draw, output=True)
            passed[key] = frames[key].array
        wants = case.wants(passed)
        case.kernel(**passed, **case.staged)
        for key, (want, bound) in wants.items():
            assert off(passed[key], want, bound) == "", f"{case} at {sizes}: {key}"
        assert [n for n, f in frames.items() if not f.unchanged(written=n in wants)] == []

    run()
