"""Stencils in time, dynamic programming along anti-diagonals, blocked factorisations, solves, FFT."""

# ruff: noqa: E741 (I is a dimension)
from __future__ import annotations

import treadle as td
from treadle import f32, i32

M, N, T, K, NR = td.dims("M N T K NR")
I, P, Pi, NB = td.dims("I P Pi NB")
J, L = I.alias("J L")
inf = float("inf")


@td.kernel
def heat(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, steps=3):
    """Explicit time steps; the border keeps its values."""
    u = td.empty(M, N)
    u[M, N] = X[M, N]
    for _ in td.serial(steps):
        new = td.empty(M, N)
        for m, n in td.parallel(M, N):
            around = u.at(m - 1, n, fill=0) + u.at(m + 1, n, fill=0) + u.at(m, n - 1, fill=0) + u.at(m, n + 1, fill=0)
            inside = (m > 0) & (m < M.extent - 1) & (n > 0) & (n < N.extent - 1)
            new[m, n] = td.where(inside, u[m, n] + 0.25 * (around - 4.0 * u[m, n]), u[m, n])
        u = new
    Y[M, N] = u


@td.kernel
def heat_between_tensors(A: td.Tensor[M], B: td.Out[M], C: td.Out[M], steps: td.Scalar[i32]):
    """A traced number of double steps between two tensors."""
    B[M] = A[M]
    for _ in td.serial(steps):
        for m in td.parallel(M):
            C[m] = B[m] + B.at(m - 1, fill=0)
        for m in td.parallel(M):
            B[m] = C[m] - C.at(m + 1, fill=0)


@td.kernel
def wave(X: td.Tensor[M], Y: td.Out[M] = None, *, steps=4):
    now, before = X[M], X[M]
    for _ in td.serial(steps):
        now, before = 2.0 * now - before + 0.5 * (now.at(M - 1, fill=0) - 2.0 * now + now.at(M + 1, fill=0)), now
    Y[M] = now


M1, N1 = td.dims("M1 N1")


@td.kernel
def edit_distance(a: td.Tensor[M, i32], b: td.Tensor[N, i32], D: td.Out[(), i32] = None):
    """Anti-diagonals in order; cells of one are independent."""
    td.let(M1, M.extent + 1)
    td.let(N1, N.extent + 1)
    cost = td.empty(M1, N1, dtype=i32)
    for d in td.serial(M.extent + N.extent + 1):
        for i in td.parallel(M1[d - N.extent : d + 1]):
            j = td.in_range(d - i, N1)
            up = cost.at(i - 1, d - i, fill=100000) + 1
            left = cost.at(i, d - i - 1, fill=100000) + 1
            same = a.at(i - 1, fill=-1) == b.at(d - i - 1, fill=-2)
            diagonal = cost.at(i - 1, d - i - 1, fill=100000) + td.where(same, 0, 1)
            best = td.minimum(td.minimum(up, left), diagonal)
            cost[i, j] = td.where((i == 0) | (d == i), (d * 1).to(i32), best)
    D[()] = cost[M.extent, N.extent]


@td.kernel
def longest_common(a: td.Tensor[M, i32], b: td.Tensor[N, i32], Y: td.Out[M1, N1, i32]):
    """The whole table, in an output that later diagonals read."""
    td.let(M1, M.extent + 1)
    td.let(N1, N.extent + 1)
    Y[M1, N1] = 0
    for d in td.serial(M.extent + N.extent - 1):
        for i in td.parallel(M[d - N.extent + 1 : d + 1]):
            same = a[i] == b[td.in_range(d - i, N)]
            diagonal = Y.at(i.coords, d - i, fill=0) + same.to(i32)
            other = td.maximum(Y.at(i.coords, d - i + 1, fill=0), Y.at(i + 1, d - i, fill=0))
            Y[td.in_range(i + 1, M1), td.in_range(d - i + 1, N1)] = td.maximum(diagonal, other)


@td.kernel
def lower_solve(A: td.Tensor[I, J], B: td.Tensor[I, NR], X: td.Out[I, NR] = None):
    """Forward substitution, a row at a time."""
    x = td.zeros(I, NR)
    for i in td.serial(I.each):
        known = td.dot(A[i, J], x[J, NR], over=J)
        x[i, NR] = (B[i, NR] - known) / A[i, i]
    X[I, NR] = x


@td.kernel
def upper_solve(A: td.Tensor[I, J], B: td.Tensor[I, NR], X: td.Out[I, NR] = None):
    x = td.zeros(I, NR)
    for i in td.serial(I.each.reversed):
        known = td.dot(A[i, J], x[J, NR], over=J)
        x[i, NR] = (B[i, NR] - known) / A[i, i]
    X[I, NR] = x


@td.kernel
def lower_solve_blocked(A: td.Tensor[I, J], B: td.Tensor[I, NR], X: td.Out[I, NR] = None, *, block=4):
    """Blocks of rows: a product with what is solved, then substitution inside the block."""
    x = td.zeros(I, NR)
    for i in td.serial(I.by(block)):
        rest = B[i, NR]
        for j in td.reduce(J[: i.start]):
            rest = td.mma(-A[i, j], x[j, NR], rest)
        for r in td.serial(i.each):
            own = td.dot(A[r, J[i.start : r]], x[J[i.start : r], NR], over=J)
            x[r, NR] = (rest[r, NR] - own) / A[r, r]
    X[I, NR] = x


@td.kernel
def cholesky(A: td.Tensor[I, J], C: td.Out[I, J] = None):
    """Column by column; above the diagonal zeros."""
    c = td.zeros(I, J)
    for j in td.serial(J.each):
        row = c[j, L]
        column = A[I, j] - (c[I, L] * row).sum(L)
        pivot = td.sqrt(column[j])
        c[I, j] = td.where(I >= j, column / pivot, 0.0)
    C[I, J] = c


@td.kernel
def lu(A: td.Tensor[I, J], U: td.Out[I, J] = None):
    """Without pivoting, both factors in one matrix."""
    u = td.empty(I, J)
    u[I, J] = A[I, J]
    for k in td.serial(I.each):
        below = td.where(I > k, u[I, k] / u[k, k], 0.0)
        inner = (I > k) & (J > k)
        u[I, J] = u - td.where(inner, below * u[k, J], 0.0)
        u[I, k] = td.where(I > k, below, u[I, k])
    U[I, J] = u


@td.kernel
def lu_blocked(A: td.Tensor[I, J], U: td.Out[I, J] = None, *, block=3):
    u = td.empty(I, J)
    u[I, J] = A[I, J]
    for p in td.serial(I.by(block)):
        # The panel of the block's columns, then the rows right of it, then what is left.
        for k in td.serial(p.each):
            rows = I[k + 1 :]
            columns = J[k + 1 : p.stop]
            u[rows, k] = u[rows, k] / u[k, k]
            u[rows, columns] = u[rows, columns] - u[rows, k] * u[k, columns]
        right = J[p.stop :]
        for k in td.serial(p.each):
            rows = I[k + 1 : p.stop]
            u[rows, right] = u[rows, right] - u[rows, k] * u[k, right]
        below = I[p.stop :]
        mid = L[p.start : p.stop]
        u[below, right] = td.mma(-u[below, mid], u[mid, right], u[below, right])
    U[I, J] = u


@td.kernel
def fft(re: td.Tensor[N], im: td.Tensor[N], Re: td.Out[N] = None, Im: td.Out[N] = None, *, inverse=False):
    """Radix 2, self-sorting (Stockham): a stage reads the one before at computed places."""
    td.require(N.extent >= 1)
    sign = 1.0 if inverse else -1.0
    n = int(N.extent)
    a, b = re[N], im[N]
    stages = 0
    while 1 << stages < n:
        stages += 1
    for s in range(stages):
        half = 1 << s  # length of the transforms made so far
        k = N % (2 * half)
        block = N // (2 * half)
        low = block * half + k % half
        x = td.in_range(low, N)
        y = td.in_range(low + n // 2, N)
        angle = (k.to(f32) * (sign * 3.141592653589793 / half)).to(f32)
        c, d = td.cos(angle), td.sin(angle)
        a, b = a[x] + c * a[y] - d * b[y], b[x] + c * b[y] + d * a[y]
    Re[N], Im[N] = a, b


@td.kernel
def dft(re: td.Tensor[N], im: td.Tensor[N], Re: td.Out[K] = None, Im: td.Out[K] = None):
    td.let(K, N.extent)
    for k in td.parallel(K):
        angle = ((k * N) % N.extent).to(f32) * (-6.283185307179586 / N.extent.to(f32))
        c, d = td.cos(angle), td.sin(angle)
        Re[k] = (c * re[N] - d * im[N]).sum(N)
        Im[k] = (c * im[N] + d * re[N]).sum(N)
