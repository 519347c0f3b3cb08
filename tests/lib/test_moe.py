"""The layer of experts: routing with ties, ragged and empty groups, and the layer against its definition, token by
token.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, clean, random, reals, run, whole

import treadle as td
from treadle.lib import moe as lib


@pytest.mark.parametrize("renormalise", [True, False])
def test_route(renormalise: bool) -> None:
    x = reals(random(), 9, 6)
    x[3] = 1
    at = np.argsort(-x.astype(float), 1, kind="stable")[:, :2]
    n = r.num(x)
    e = r.exp(n - x.max(1, keepdims=True))
    best = Num(np.take_along_axis(e.value, at, 1), np.take_along_axis(e.off, at, 1))
    want = best / (best if renormalise else e).sum(1, keepdims=True)
    expert, weight = run(lib.route, x, top=2, renormalise=renormalise, want=(at, want))
    assert expert[3].tolist() == [0, 1] and (not renormalise or np.allclose(weight.sum(1), 1))


def test_what_is_no_number_is_chosen_last() -> None:
    x = np.array([[np.nan, 2, 1], [np.nan, np.nan, 0]], np.float32)
    assert lib.route.reference(x, top=2)[0].tolist() == [[1, 2], [2, 0]]
    with np.errstate(invalid="ignore"):
        assert lib.route(x, top=2)[0].tolist() == [[1, 2], [2, 0]]


@pytest.mark.parametrize("chosen", [[2, 0, 2, 5, 0, 2], [], [3, 3, 3]])
def test_groups(chosen: list[int]) -> None:
    expert = np.array(chosen, np.int32)
    start = np.searchsorted(np.sort(expert), np.arange(7))
    run(
        lib.group_by_expert,
        expert,
        experts=6,
        want=(np.argsort(expert, kind="stable"), start),
    )


def test_groups_of_many_choices() -> None:
    """Several runs, and several stretches of them, neither whole at the end."""
    expert = random(3).integers(0, 7, 9001).astype(np.int32)
    order, start = lib.group_by_expert(expert, experts=7)
    assert np.array_equal(order, np.argsort(expert, kind="stable"))
    assert np.array_equal(start, np.searchsorted(np.sort(expert), np.arange(8)))


def layer(x, expert, weight, gate, up, down):
    """The layer by its definition, in float64, with relu."""
    x, gate, up, down = (t.astype(float) for t in (x, gate, up, down))
    return np.stack(
        [
            sum(w * ((np.maximum(x[t] @ gate[e], 0) * (x[t] @ up[e])) @ down[e]) for w, e in zip(weight[t], expert[t]))
            for t in range(len(x))
        ]
    )


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_layer(dtype: object) -> None:
    """Integers: every step is exact, as long as the weights are powers of two."""
    g = random(1)
    x, gate, up, down = (whole(g, *s, most=1, dtype=dtype) for s in ((9, 6), (4, 6, 5), (4, 6, 5), (4, 5, 6)))
    expert = np.array([[0, 2], [2, 0], [2, 3]] * 3, np.int32)
    weight = np.array([[0.5, 0.25]] * 9, np.float32)
    order, start = lib.group_by_expert.reference(expert.reshape(-1), experts=4)
    hidden = lib.experts_up.reference(x, gate, up, order, start, top=2, act=td.relu)
    run(lib.experts_up, x, gate, up, order, start, top=2, act=td.relu, want=hidden)
    back = lib.experts_down.reference(hidden, down.astype(np.float32), order, start)
    run(lib.experts_down, hidden, down.astype(np.float32), order, start, want=back)
    run(lib.combine, back, weight, want=layer(x, expert, weight, gate, up, down))
    clean(lib.experts_up, x, gate, up, order, start, top=2, act=td.relu)


def test_the_whole_layer() -> None:
    """Logits that are far apart route surely; with one expert a token its weight is 1, and integers stay exact."""
    g = random(2)
    x, gate, up, down = (whole(g, *s, most=1) for s in ((7, 6), (4, 6, 5), (4, 6, 5), (4, 5, 6)))
    router = whole(g, 6, 4, most=2) + np.linspace(0, 0.5, 4, dtype=np.float32)
    expert = np.argmax(x @ router, 1)[:, None]
    want = layer(x, expert, np.ones((7, 1)), gate, up, down)
    run(lib.mixture, x, router, gate, up, down, top=1, act=td.relu, want=want)
