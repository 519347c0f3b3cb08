"""Stencils in Halide, each algorithm with the schedule that tutorials and papers give it: tiles over cores, the first
pass computed where the second one needs it, vectors of sixteen numbers. Compiled once, into the caller's output.

*Source* of the schedules: Ragan-Kelley et al., "Halide", PLDI 2013, section 3; Halide's repository, apps/harris.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from treadle.bench.case import Arrays, Run

LANES = 16


def load(threads: int) -> Any:
    """Halide on so many threads, or None where it is not installed. Its pool is as large as at its first call."""
    os.environ.setdefault("HL_NUM_THREADS", str(threads))
    try:
        return importlib.import_module("halide")
    except ImportError:
        return None


def peer(hl: Any, family: str, arrays: Arrays, out: Any) -> Run:
    """A family of `HALIDE` on these inputs, into that output."""
    pipeline = HALIDE[family](hl, {name: hl.Buffer(value) for name, value in arrays.items()})
    room = hl.Buffer(out)
    pipeline.compile_jit()
    return lambda: pipeline.realize(room)


def _blur(hl: Any, a: dict[str, Any]) -> Any:
    x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))
    taps = a["taps"]
    count = taps.dim(0).extent()
    image = hl.BoundaryConditions.constant_exterior(a["x"], hl.f32(0))
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = sum(image[x + r - count // 2, y] * taps[r] for r in range(count))
    blurred[x, y] = sum(across[x, y + r - count // 2] * taps[r] for r in range(count))
    blurred.tile(x, y, xi, yi, 256, 32, hl.TailStrategy.GuardWithIf).vectorize(xi, LANES).parallel(y)
    across.compute_at(blurred, x).vectorize(x, LANES)
    return blurred


def _harris(hl: Any, a: dict[str, Any]) -> Any:
    """Derivatives are of the image with zeros outside, and are zero outside it themselves."""
    x, y, yi = (hl.Var(name) for name in ("x", "y", "yi"))
    width, height = a["x"].dim(0).extent(), a["x"].dim(1).extent()
    image = hl.BoundaryConditions.constant_exterior(a["x"], hl.f32(0))
    dx, dy, response = hl.Func("dx"), hl.Func("dy"), hl.Func("response")
    eighth = hl.f32(0.125)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    right = image[x + 1, y - 1] + 2 * image[x + 1, y] + image[x + 1, y + 1]
    left = image[x - 1, y - 1] + 2 * image[x - 1, y] + image[x - 1, y + 1]
    below = image[x - 1, y + 1] + 2 * image[x, y + 1] + image[x + 1, y + 1]
    above = image[x - 1, y - 1] + 2 * image[x, y - 1] + image[x + 1, y - 1]
    dx[x, y] = hl.select(inside, (right - left) * eighth, hl.f32(0))
    dy[x, y] = hl.select(inside, (below - above) * eighth, hl.f32(0))

    def box(first: Any, second: Any) -> Any:
        places = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        return sum(first[x + i, y + j] * second[x + i, y + j] for i, j in places)

    xx, xy, yy = box(dx, dx), box(dx, dy), box(dy, dy)
    trace = xx + yy
    response[x, y] = xx * yy - xy * xy - hl.f32(0.04) * trace * trace
    response.split(y, y, yi, 32).parallel(y).vectorize(x, LANES)
    for derivative in (dx, dy):
        derivative.store_at(response, y).compute_at(response, yi).vectorize(x, LANES)
    return response


HALIDE: dict[str, Callable[[Any, dict[str, Any]], Any]] = {"blur": _blur, "harris": _harris}
