"""Dynamic programming: edit distance by anti-diagonals, the most likely path of a Markov model, shortest paths."""

from __future__ import annotations

import treadle as td
from treadle import i32, i64
from treadle.lib.precision import wide

M, N, M1 = td.dims("M N M1")
T, S = td.dims("T S")
S2 = S.alias("S2")
V = td.dims("V")
V2 = V.alias("V2")
FAR = 2**40


@td.kernel
def edit_distance(a: td.Tensor[M, i32], b: td.Tensor[N, i32], Y: td.Out[i32] = None):
    """The least number of insertions, deletions and replacements that make b of a.

    Anti-diagonals in order, the elements of one independent: element i of diagonal d is the distance of `a[:i]` and
    `b[:d - i]`. *Shapes*: a [M], b [N], Y a scalar. *Source*: Wagner and Fischer, 1974.
    """
    td.let(M1, M.extent + 1)
    before, last = td.full(M1, value=FAR, dtype=i64), td.where(M1 == 0, 0, FAR)
    i = M1.coords
    for d in td.serial(M.extent + N.extent):
        j = d + 1 - i
        cost = td.where(a.at(i - 1, fill=-1) == b.at(j - 1, fill=-2), 0, 1)
        best = td.minimum(last.at(i - 1, fill=FAR), last) + 1
        best = td.minimum(best, before.at(i - 1, fill=FAR) + cost)
        inside = (j >= 0) & (j <= N.extent)
        new = td.where(i == 0, d + 1, td.where(j == 0, i, best))
        before, last = last, td.where(inside, new, FAR)
    Y[()] = last[td.in_range(M.extent, M1)].to(i32)


@td.kernel
def viterbi(
    start: td.Tensor[S],
    step: td.Tensor[S, S2],
    emit: td.Tensor[T, S],
    path: td.Out[T, i64] = None,
    score: td.Out[()] = None,
):
    """The most likely states, all in logarithms: the path with the largest `start + sum of step + sum of emit`.

    Of equal predecessors the lowest is taken. Gives (path, score). *Shapes*: start [S]; step [S, S], from and to; emit
    [T, S], T >= 1; path [T], score a scalar. *Source*: Viterbi, 1967; Forney, 1973.
    """
    back = td.zeros(T, S2, dtype=i64)
    best = wide(start[S]) + wide(emit.at(0, S, fill=0))
    for t in td.serial(T[1:].each):
        through = best + wide(step[S, S2])
        back[t, S2] = through.argmax(S)
        best = through.max(S)[S] + wide(emit[t, S])
    at = best.argmax(S)
    score[()] = best.max(S)
    for t in td.serial(T.reversed.each):
        path[t] = at
        at = back[t, td.in_range(at, S2)]


@td.kernel
def shortest_paths(A: td.Tensor[V, V2], D: td.Out[V, V2] = None):
    """The least length of a path between every pair of vertices; A holds the lengths of edges, inf where there is none.

    Negative lengths are right, negative cycles are not. *Shapes*: A, D [V, V]. *Source*: Floyd, 1962; Warshall, 1962.
    """
    d = td.where(V == V2, td.minimum(wide(A[V, V2]), 0.0), wide(A[V, V2]))
    for k in td.serial(V.each):
        d = td.minimum(d, d[V, k] + d[k, V2])
    D[V, V2] = d
