"""Copies, bit for bit: of every view, with NaN in them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib.ways import BF16, clean, random, reals, run

import treadle as td
from treadle.lib import copies as lib


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int64])
def test_transpose(dtype: object) -> None:
    x = reals(random(), 17, 35, dtype=dtype, scale=9)
    run(lib.transpose, x[::2, ::-1], want=x[::2, ::-1].T)


def test_views() -> None:
    x = reals(random(1), 2, 3, 4, 5)
    x[0, 0, 0, 0] = np.nan
    y = run(lib.copy, x.transpose(0, 2, 1, 3), want=x.transpose(0, 2, 1, 3))
    assert y.flags.c_contiguous
    run(
        lib.copy, np.broadcast_to(x[:1], x.shape), dtype=td.f16, want=np.broadcast_to(x[:1], x.shape).astype(np.float16)
    )
    z = reals(random(2), 3, 7, 8)
    run(lib.split_heads, z, heads=4, want=z.reshape(3, 7, 4, 2).transpose(0, 2, 1, 3))


def test_columns_rows_and_triangles() -> None:
    x, z = reals(random(3), 5, 7), reals(random(4), 5, 3)
    run(lib.concatenate, x, z, want=np.concatenate([x, z], 1))
    run(lib.concatenate, x, z[:, :0], want=x)
    run(lib.pad, x, before=(1, 2), after=(0, 3), value=7, want=np.pad(x, ((1, 0), (2, 3)), constant_values=7))
    run(lib.pad, x, before=(-1, 0), after=(0, -2), want=x[1:, :-2])
    run(lib.triangle, x, diagonal=1, want=np.tril(x, 1))
    run(lib.triangle, x, lower=False, want=np.triu(x))
    clean(lib.concatenate, x, z)


def test_one_hot() -> None:
    at = np.array([2, -1, 0, 9], np.int32)
    run(lib.one_hot, at, np.full((4, 3), np.nan, np.float32), want=np.eye(10)[at][:, :3] * (at >= 0)[:, None])
