"""Distributions as arrays: which digit of a fragment each thread has, and which elements it holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treadle.machine.form import Mode

Array = NDArray[np.int64]


def digit_values(dist: tuple[Mode, ...], threads: int) -> list[Array]:
    """Of each mode: the digit of every thread; of slot digits, nothing."""
    lane, warp = np.arange(threads) % 32, np.arange(threads) // 32
    weight = {"lane": 1, "warp": 1}
    found: list[Array] = []
    for m in dist:
        if m.who not in weight:
            found.append(np.zeros(threads, np.int64))
            continue
        number = lane if m.who == "lane" else warp
        found.append(number // weight[m.who] % m.size)
        weight[m.who] *= m.size
    return found


def places(dist: tuple[Mode, ...], shape: tuple[int, ...], threads: int) -> list[Array]:
    """Coordinates, by axis, of the elements that each thread holds (threads x slots)."""
    if not dist:
        grid = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), np.int64)
        return [np.broadcast_to(g, (threads, g.size)) for g in grid]
    slots = [m for m in dist if m.who == "slot"]
    count = int(np.prod([m.size for m in slots])) if slots else 1
    coords = [np.zeros((threads, count), np.int64) for _ in shape]
    for m, value in zip(dist, digit_values(dist, threads)):
        if m.axis is not None and m.who != "slot":
            coords[m.axis] += (value * m.stride)[:, None]
    weight = 1
    for m in slots:
        if m.axis is not None:
            coords[m.axis] += (np.arange(count) // weight % m.size * m.stride)[None, :]
        weight *= m.size
    return coords
