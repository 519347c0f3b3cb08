"""Stencils of `treadle bench cpu`: a separable blur and Harris' corner response, zeros outside the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treadle.bench.case import Arrays, Case, aligned
from treadle.dtype.formats import f32
from treadle.lib.stencils import blur, harris

UNIT = 2.0**-24
TAPS = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)


def stencil_cases(side: int = 2048) -> Iterator[Case]:
    """The cases, on a square image."""

    def case(
        family: str,
        make: Callable[[np.random.Generator], Arrays],
        bind: Callable[[Arrays, Any], Callable[[], Any]],
        oracle: Callable[[Arrays], Any],
        tolerance: Callable[[Arrays, Any], Any],
        kernel: Any,
        work: float,
    ) -> Case:
        return Case(
            family=family,
            dtype=f32,
            shape=(side, side),
            label=f"{side}x{side}",
            flops=work * side * side,
            bytes=8.0 * side * side,
            output=(side, side),
            make=make,
            bind=bind,
            oracle=oracle,
            tolerance=tolerance,
            kernel=kernel,
        )

    def image(rng: np.random.Generator) -> Any:
        return aligned(rng.random((side, side)), f32)

    yield case(
        "blur",
        lambda rng: {"x": image(rng), "taps": aligned(np.array(TAPS), f32)},
        lambda a, out: blur.bind(a["x"], a["taps"], out),
        lambda a: blurred(a["x"].astype(np.float64), a["taps"].astype(np.float64)),
        # Two sums of five products of numbers of one sign: each within 5 units of itself, the second of what the first
        # one left.
        lambda a, want: 11 * UNIT * want,
        blur,
        4.0 * len(TAPS),
    )
    yield case(
        "harris",
        lambda rng: {"x": image(rng)},
        lambda a, out: harris.bind(a["x"], out),
        lambda a: corners(a["x"].astype(np.float64)),
        # Derivatives are at most 1, within 6 units; their products within 13, sums of nine of them (at most 9) within
        # 9 * (13 + 8); products of two such sums at most 81, within 2 * 9 * 189 + 81 units, twice; 0.04 * 18^2 more.
        lambda a, want: np.full_like(want, 2 * (2 * 9 * 189 + 81) * UNIT + 2 * 0.04 * 18 * 2 * 189 * UNIT),
        harris,
        60.0,
    )


def moved(t: Any, i: int, j: int) -> Any:
    """`t[y + i, x + j]`, zeros outside."""
    reach = max(abs(i), abs(j), 1)
    rows, columns = t.shape
    return np.pad(t, reach)[reach + i : reach + i + rows, reach + j : reach + j + columns]


def blurred(x: Any, taps: Any) -> Any:
    """Rows, then columns, filtered."""
    reach = len(taps) // 2
    across = sum(w * moved(x, 0, r - reach) for r, w in enumerate(taps))
    return sum(w * moved(across, r - reach, 0) for r, w in enumerate(taps))


def corners(x: Any) -> Any:
    """Harris' response of Sobel derivatives over 8, summed over 3 x 3."""
    mask = {-1: 1, 0: 2, 1: 1}
    dx = sum(w * (moved(x, i, 1) - moved(x, i, -1)) for i, w in mask.items()) / 8
    dy = sum(w * (moved(x, 1, j) - moved(x, -1, j)) for j, w in mask.items()) / 8

    def box(t: Any) -> Any:
        return sum(moved(t, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1))

    a, b, c = box(dx * dx), box(dx * dy), box(dy * dy)
    return a * c - b * b - 0.04 * (a + c) ** 2
