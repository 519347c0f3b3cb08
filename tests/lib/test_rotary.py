"""Rotary embedding: both layouts against complex numbers, the way back, and the tables."""

from __future__ import annotations

import numpy as np
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, clean, random, reals, run

from treadle.lib import rotary as lib


def angles(tokens: int, pairs: int) -> tuple[np.ndarray, np.ndarray, Num]:
    position = np.arange(tokens, dtype=np.int32)
    frequency = (100.0 ** -(np.arange(pairs) / pairs)).astype(np.float32)
    return position, frequency, r.num(position)[:, None] * frequency


def turned(a: Num, b: Num, c: np.ndarray, s: np.ndarray) -> tuple[Num, Num]:
    c, s = c[:, None], s[:, None]
    return a * c - b * s, a * s + b * c


def test_tables() -> None:
    position, frequency, angle = angles(50, 4)
    run(lib.rotary_tables, position, frequency, want=(r.cos(angle), r.sin(angle)))


def test_both_layouts_and_back() -> None:
    position, frequency, _ = angles(5, 4)
    c, s = lib.rotary_tables(position, frequency)
    x = reals(random(), 5, 3, 8)
    u, v = turned(r.num(x[..., :4]), r.num(x[..., 4:]), c, s)
    halves = Num(np.concatenate([u.value, v.value], -1), np.concatenate([u.off, v.off], -1))
    y = run(lib.rope, x, c, s, want=halves)
    u, v = turned(r.num(x[..., ::2]), r.num(x[..., 1::2]), c, s)
    pairs = Num(np.stack([u.value, v.value], -1).reshape(x.shape), np.stack([u.off, v.off], -1).reshape(x.shape))
    z = run(lib.rope_interleaved, x, c, s, want=pairs)
    back = Num(r.up(x), 16 * r.U * (np.abs(x) + np.abs(np.roll(x, 4, -1)) + np.abs(x[..., ::-1]).max()))
    run(lib.rope, y, c, s, inverse=True, want=back)
    run(lib.rope_interleaved, z, c, s, inverse=True, want=back)
    clean(lib.rope, x, c, s)


def test_in_place_and_bf16() -> None:
    position, frequency, _ = angles(5, 4)
    c, s = lib.rotary_tables(position, frequency)
    x = reals(random(1), 5, 3, 8).astype(BF16)
    want = lib.rope.reference(x, c, s).astype(BF16)
    lib.rope(x, c, s, x)
    np.testing.assert_array_equal(x, want)
