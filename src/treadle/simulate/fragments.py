"""Fragments as one warp (or CPU task) holds them: values, which slots hold something, which slots are its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.machine.form import Frag, Mode
from treadle.simulate.memory import NEVER, View, poison

Array = NDArray[Any]
Index = tuple[Array, ...]


@cache
def holders(shape: tuple[int, ...], dist: tuple[Mode, ...], warps: int) -> tuple[Array, ...]:
    """For each warp, which slots it holds. Without a warp digit every warp holds all (replicas)."""
    whole = np.ones(shape, np.bool_)
    if not any(m.who == "warp" for m in dist):
        return (whole,) * warps
    coords = [np.zeros(1, np.int64) for _ in shape]
    warp = np.zeros(1, np.int64)
    radix = 1
    for mode in dist:
        digit = np.arange(mode.size)
        coords = [
            (c[:, None] + (digit * mode.stride if axis == mode.axis else digit * 0)[None, :]).reshape(-1)
            for axis, c in enumerate(coords)
        ]
        step = digit * radix if mode.who == "warp" else digit * 0
        warp = (warp[:, None] + step[None, :]).reshape(-1)
        radix *= mode.size if mode.who == "warp" else 1
    masks: list[Array] = []
    inside = np.ones(len(warp), np.bool_)
    for c, extent in zip(coords, shape):
        inside &= c < extent
    for number in range(warps):
        mask = np.zeros(shape, np.bool_)
        mine = inside & (warp == number)
        mask[tuple(c[mine] for c in coords)] = True
        masks.append(mask)
    return tuple(masks)


@cache
def slots_of(shape: tuple[int, ...], dist: tuple[Mode, ...], warps: int, warp: int) -> tuple[Array, Index, Array]:
    """The mask of a warp's slots, their coordinates, and which of these no earlier warp holds too."""
    masks = holders(shape, dist, warps)
    mask = masks[warp]
    coords = tuple(np.asarray(c, np.int64) for c in np.nonzero(mask)) if shape else ()
    first = np.ones(int(mask.sum()), np.bool_)
    for earlier in masks[:warp]:
        first &= ~(earlier[coords] if shape else np.ones(1, np.bool_))
    return mask, coords, first


@cache
def digits(extent: int, dist: tuple[Mode, ...], axis: int) -> tuple[tuple[str, int], ...]:
    """The digits that count an axis, the smallest stride first: who and how many. Without a distribution, slots."""
    own = sorted((m for m in dist if m.axis == axis and m.size > 1), key=lambda m: m.stride)
    return tuple((m.who, m.size) for m in own) if dist else (("slot", extent),)


def tiled(extent: int, dist: tuple[Mode, ...], axis: int) -> bool:
    """Whether the digits of an axis count its coordinates: each stride is the product of the digits below it."""
    stride = 1
    for mode in sorted((m for m in dist if m.axis == axis and m.size > 1), key=lambda m: m.stride):
        if mode.stride != stride or mode.who == "warp":
            return False
        stride *= mode.size
    return not dist or stride == extent


@cache
def order(extent: int, dist: tuple[Mode, ...], axis: int) -> Array:
    """The coordinates of an axis laid out for a fold: bits of the lane, the largest stride first, then the slots of a
    thread in order. Without lanes on the axis: just the coordinates."""
    lanes: list[int] = []
    rest = np.zeros(1, np.int64)
    for mode in dist:
        if mode.axis != axis:
            continue
        if mode.who == "lane":
            bits = (mode.size - 1).bit_length()
            lanes += [mode.stride << bit for bit in range(bits)]
        else:
            rest = (rest[:, None] + np.arange(mode.size)[None, :] * mode.stride).reshape(-1)
    if not lanes:
        return np.arange(extent)
    layout = np.sort(rest)
    for stride in sorted(lanes):
        layout = np.stack([layout, layout + stride])
    return layout


@dataclass
class Fragment:
    """The state of a fragment in one warp."""

    frag: Frag
    mask: Array
    coords: Index
    first: Array
    values: Array
    states: Array
    flying: int = 0
    grain: str = ""
    pending: list[tuple[View, Index]] = field(default_factory=list[tuple[View, Index]])

    @property
    def count(self) -> int:
        """How many slots the warp holds."""
        return len(self.first)

    @property
    def all_held(self) -> bool:
        return bool(self.mask.all())


def fresh(frag: Frag, warps: int, warp: int) -> Fragment:
    """A fragment of which nothing has been written."""
    mask, coords, first = slots_of(frag.shape, frag.dist, warps, warp)
    values = np.full(frag.shape, poison(frag.dtype), frag.dtype.numpy)
    return Fragment(frag, mask, coords, first, values, np.full(frag.shape, NEVER, np.uint8))
