"""A layer of experts: tokens choose, are grouped by expert, pass ragged products and are combined again.

No token is dropped and nothing is padded: a group has as many rows as tokens chose its expert, none too.
"""

from __future__ import annotations

import treadle as td
from treadle import f32, i32
from treadle.lib.precision import wide

T, E, L, K, N = td.dims("T E L K N")
E1, C, B, S = td.dims("E1 C B S")
F = E.alias("F")
TL = td.product(T, L)


@td.kernel
def route(
    logits: td.Tensor[T, E],
    expert: td.Out[T, L, i32] = None,
    weight: td.Out[T, L, f32] = None,
    *,
    top,
    renormalise=True,
):
    """The `top` experts of each token by softmax(logits), the greatest first, and their weights. Gives (expert,
    weight).

    With `renormalise` the weights of a token add up to 1: softmax over the chosen ones. *Shapes*: logits [T, E];
    expert, weight [T, top]. *Source*: Shazeer et al., "Outrageously Large Neural Networks", 2017, section 2.1; Jiang
    et al., "Mixtral", 2024, section 2.1.
    """
    td.let(L, top)
    for t in td.parallel(T):
        x, y = wide(logits[t, E]), wide(logits[t, F])
        # An expert's place is the number of those before it: the greater ones, of equals the first ones, NaN last.
        lost, found = td.isnan(x), ~td.isnan(y)
        same = (y == x) | (lost & ~found)
        ahead = (y > x) | (lost & found) | (same & (F.coords < E.coords))
        place = ahead.to(i32).sum(F)
        kept = place < top
        w = td.exp(x - x.max(E))
        total = (td.where(kept, w, 0.0) if renormalise else w).sum(E)
        at = td.in_range(td.where(kept, place, 0), L)
        expert.set_at(t, at, E.coords.to(i32), where=kept)
        weight.set_at(t, at, w / total, where=kept)


RUN, RUNS = 128, 32
"""Choices that are counted together, and runs of them: what comes before a choice is told by whole stretches of runs,
the runs before its own and the choices before it there."""


@td.kernel
def group_by_expert(expert: td.Tensor[C, i32], order: td.Out[C, i32] = None, start: td.Out[E1, i32] = None, *, experts):
    """The choices in the order of their experts, and where each expert's begin: those of e are
    `order[start[e] : start[e + 1]]`.

    Stable: choices of an expert keep their order. Choice `t top + l` is the l-th of token t. Gives (order, start).
    Counts choices in runs, then places each behind those before it. *Requires*: 0 <= expert < experts.
    *Shapes*: expert [T top] (what `route` gives, as a view), order [T top], start [experts + 1].
    """
    td.let(E, experts)
    td.let(E1, experts + 1)
    td.let(B, (C.extent + RUN - 1) // RUN)
    td.let(S, (C.extent + RUN * RUNS - 1) // (RUN * RUNS))
    count, before, stretch = (td.empty(d, E, dtype=i32) for d in (B, B, S))
    all_of, first = td.empty(E, dtype=i32), td.empty(E, dtype=i32)
    for b, e in td.parallel(B.each, E.each):
        count[b, e] = (expert[C[b * RUN : b * RUN + RUN]] == e.to(i32)).to(i32).sum(C)
    for s, e in td.parallel(S.each, E.each):
        stretch[s, e] = count[B[s * RUNS : s * RUNS + RUNS], e].sum(B)
    for e in td.parallel(E.each):
        all_of[e] = stretch[S, e].sum(S)
    for e in td.parallel(E.each):
        first[e] = all_of[E[:e]].sum(E)
    for e in td.parallel(E1.each):
        start[e] = all_of[E[:e]].sum(E)
    for b, e in td.parallel(B.each, E.each):
        s = b // RUNS
        before[b, e] = first[e] + stretch[S[:s], e].sum(S) + count[B[s * RUNS : b], e].sum(B)
    for c in td.parallel(C.each):
        b, e = c // RUN, td.in_range(expert[c], E)
        same = (expert[C[b * RUN : c]] == expert[c]).to(i32).sum(C)
        order[td.in_range(before[b, e] + same, C)] = c.to(i32)


@td.kernel
def experts_up(
    X: td.Tensor[T, K],
    gate: td.Tensor[E, K, N],
    up: td.Tensor[E, K, N],
    order: td.Tensor[TL, i32],
    start: td.Tensor[E1, i32],
    Y: td.Out[TL, N] = None,
    *,
    top,
    act=td.silu,
):
    """`Y[i] = act(x gate[e]) * (x up[e])` with `x = X[order[i] // top]`, for the choices i of each expert e, as
    ordered.

    *Shapes*: X [T, K]; gate, up [E, K, N]; order [T top], start [E + 1]; Y [T top, N].
    *Source*: Gale et al., "MegaBlocks", 2022, section 4.
    """
    td.let(L, top)
    td.require(E1.extent == E.extent + 1)
    for e in td.parallel(E.each):
        for i, n in td.parallel(TL[start[e] : start[e + 1]], N):
            g, u = td.zeros(i, n), td.zeros(i, n)
            token = td.in_range(order[i] // top, T)
            for k in td.reduce(K):
                x = X[token, k]
                g = td.mma(x, gate[e, k, n], g)
                u = td.mma(x, up[e, k, n], u)
            Y[i, n] = act(g) * u


@td.kernel
def experts_down(
    X: td.Tensor[C, N],
    down: td.Tensor[E, N, K],
    order: td.Tensor[C, i32],
    start: td.Tensor[E1, i32],
    Y: td.Out[C, K] = None,
):
    """`Y[order[i]] = X[i] down[e]` for the choices i of each expert e: back in the order of the tokens.

    *Shapes*: X [T top, N]; down [E, N, K]; order [T top], start [E + 1]; Y [T top, K].
    """
    td.require(E1.extent == E.extent + 1)
    for e in td.parallel(E.each):
        for i, k in td.parallel(C[start[e] : start[e + 1]], K):
            acc = td.zeros(i, k)
            for n in td.reduce(N):
                acc = td.mma(X[i, n], down[e, n, k], acc)
            Y[td.in_range(order[i], C), k] = acc


@td.kernel
def combine(Y: td.Tensor[TL, K], weight: td.Tensor[T, L], Z: td.Out[T, K] = None):
    """`Z[t] = sum over l of weight[t, l] Y[t L + l]`. *Shapes*: Y [T L, K], weight [T, L], Z [T, K]."""
    for t, k in td.parallel(T, K):
        Z[t, k] = (wide(weight[t, L]) * wide(Y[t, L, k])).sum(L)


@td.kernel
def mixture(
    X: td.Tensor[T, K],
    router: td.Tensor[K, E],
    gate: td.Tensor[E, K, N],
    up: td.Tensor[E, K, N],
    down: td.Tensor[E, N, K],
    Z: td.Out[T, K] = None,
    *,
    top,
    act=td.silu,
):
    """The whole layer in one kernel: route, group, `experts_up`, `experts_down`, combine; what lies between is planned.

    *Shapes*: X, Z [T, K]; router [K, E]; gate, up [E, K, N]; down [E, N, K].
    """
    td.let(L, top)
    td.let(E1, E.extent + 1)
    logits = td.dot(X[T, K], router[K, E], over=K, dtype=f32)
    expert, weight = td.empty(T, L, dtype=i32), td.empty(T, L, dtype=f32)
    for t in td.parallel(T):
        best, at = td.topk(logits[t, E], E, to=L)
        w = td.exp(best - best.max(L))
        expert[t, L] = at.to(i32)
        weight[t, L] = w / w.sum(L)
    chosen = td.empty(TL, dtype=i32)
    chosen[T, L] = expert
    order = td.argsort(chosen, TL).to(i32)
    start = td.empty(E1, dtype=i32)
    for e in td.parallel(E1):
        start[e] = (chosen < e).to(i32).sum(TL)
    hidden = experts_up(X, gate, up, order, start, top=top, act=act)
    Z[T, K] = combine(experts_down(hidden, down, order, start), weight)
