"""Norms: values and gradients within derived bounds, over ragged, tiny, empty, strided and bf16 inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, F32, clean, compare, random, reals, run

from treadle.lib import norms

EPS = r.inexact(1e-5)


def standardised(x: Any, axis: Any, eps: Num = EPS) -> tuple[Num, Num]:
    x = r.num(x)
    d = x - x.mean(axis, keepdims=True)
    s = r.rsqrt((d * d).mean(axis, keepdims=True) + eps)
    return d * s, s


def rows(m: int, n: int, dtype: Any = F32, seed: int = 0) -> tuple[Any, ...]:
    g = random(seed)
    return reals(g, m, n, dtype=dtype, scale=2), reals(g, m, n, dtype=dtype), reals(g, n), reals(g, n)


@pytest.mark.parametrize(("m", "n", "dtype"), [(5, 13, F32), (3, 1, F32), (2, 67, BF16), (0, 4, F32)])
def test_layernorm(m: int, n: int, dtype: Any) -> None:
    x, other, scale, shift = rows(m, n, dtype)
    h, _ = standardised(x, 1)
    run(norms.layernorm, x, scale, shift, want=h * scale + shift, compiled=True)
    run(norms.layernorm, x, want=h)
    z = r.num(x) + other
    h, _ = standardised(z, 1)
    run(norms.add_layernorm, x, other, scale, None, want=(h * scale, z))


@pytest.mark.parametrize(("m", "n", "dtype"), [(5, 13, F32), (7, 40, BF16), (0, 3, F32)])
def test_layernorm_backward(m: int, n: int, dtype: Any) -> None:
    x, d, scale, _ = rows(m, n, dtype, 1)
    h, s = standardised(x, 1)
    g = r.num(d) * scale
    dx = (g - g.mean(1, keepdims=True) - h * (g * h).mean(1, keepdims=True)) * s
    run(norms.layernorm_backward, x, d, scale, want=(dx, (r.num(d) * h).sum(0), r.num(d).sum(0)), compiled=m == 7)


@pytest.mark.parametrize(("m", "n", "dtype"), [(5, 13, F32), (3, 130, BF16)])
def test_rmsnorm(m: int, n: int, dtype: Any) -> None:
    x, d, scale, _ = rows(m, n, dtype, 2)
    eps = r.inexact(1e-6)

    def of(v: Num) -> tuple[Num, Num]:
        s = r.rsqrt((v * v).mean(1, keepdims=True) + eps)
        return v * s, s

    h, s = of(r.num(x))
    run(norms.rmsnorm, x, scale, offset=1.0, want=h * (r.num(scale) + 1.0))
    z = r.num(x) + d
    run(norms.add_rmsnorm, x, d, scale, want=(of(z)[0] * scale, z))
    g = r.num(d) * scale
    dx = (g - h * (g * h).mean(1, keepdims=True)) * s
    run(norms.rmsnorm_backward, x, d, scale, want=(dx, (r.num(d) * h).sum(0)))


def test_l2norm() -> None:
    x, d, _, _ = rows(5, 13)
    x[1] = 0
    length = r.maximum(r.sqrt((r.num(x) * x).sum(1, keepdims=True)), r.inexact(1e-12))
    y = r.num(x) / length
    run(norms.l2norm, x, want=y)
    inner = r.where(np.arange(5)[:, None] == 1, 0, (r.num(d) * y).sum(1, keepdims=True))
    run(norms.l2norm_backward, x, d, want=(r.num(d) - y * inner) / length)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_groupnorm(groups: int) -> None:
    g = random(3)
    x, d, scale, shift = reals(g, 2, 6, 7), reals(g, 2, 6, 7), reals(g, 6), reals(g, 6)
    cut = (2, groups, 6 // groups, 7)
    h, s = standardised(x.reshape(cut), (2, 3))
    flat = h.reshape(2, 6, 7)
    run(norms.groupnorm, x, scale, shift, groups=groups, want=flat * scale[:, None] + shift[:, None])
    e = (r.num(d) * scale[:, None]).reshape(*cut)
    dx = (e - e.mean((2, 3), keepdims=True) - h * (e * h).mean((2, 3), keepdims=True)) * s
    wants = (dx.reshape(2, 6, 7), (r.num(d) * flat).sum((0, 2)), r.num(d).sum((0, 2)))
    run(norms.groupnorm_backward, x, d, scale, groups=groups, want=wants)


def test_groups_divide_the_channels() -> None:
    with pytest.raises(Exception, match="array/|call/") as caught:
        norms.groupnorm(np.ones((1, 6, 2), np.float32), groups=4)
    assert getattr(caught.value, "code", "")


def test_batchnorm() -> None:
    g = random(4)
    x, scale, shift = reals(g, 3, 5, 8)[:, :, ::2], reals(g, 5), reals(g, 5)
    mean = r.num(x).mean((0, 2))
    d = r.num(x) - mean[:, None]
    var = (d * d).mean((0, 2))
    run(norms.batch_statistics, x, want=(mean, var))
    m, v = mean.value.astype("f"), var.value.astype("f")
    y = (r.num(x) - m[:, None]) * r.rsqrt(r.num(v) + EPS)[:, None]
    run(norms.batchnorm, x, m, v, scale, shift, want=y * scale[:, None] + shift[:, None])


def test_a_row_with_nan_spoils_no_other() -> None:
    x, _, scale, shift = rows(5, 13)
    x[2, 3] = np.nan
    want = standardised(x, 1)[0] * scale + shift
    assert np.isnan(norms.layernorm(x, scale, shift)[2]).all()
    compare(norms.layernorm(x, scale, shift), want)


def test_clean() -> None:
    x, d, scale, shift = rows(3, 5)
    clean(norms.layernorm_backward, x, d, scale)
    clean(norms.groupnorm, np.ones((2, 4, 3), np.float32), groups=2)
