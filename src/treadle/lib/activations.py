"""Activations: functions of one value with their slopes, the kernels that apply them, and gates.

The functions take a tile inside a kernel and are inlined, so that any kernel with an `act=` takes them: `linear(x, w,
act=mish)`.
`td.relu`, `td.gelu` (erf form), `td.sigmoid`, `td.silu`, `td.softplus` and `td.tanh` are the language's own. A
function with parameters is bound by a Python function: `def mine(x): return leaky_relu(x, 0.2)`.
"""

from __future__ import annotations

import treadle as td
from treadle.lib.precision import wide

M, N = td.dims("M N")
ROOT_HALF, ROOT_2_OVER_PI, ROOT_2_PI = 0.7071067811865476, 0.7978845608028654, 2.5066282746310002


def gelu_tanh(x):
    """`x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`: the tanh form of gelu.

    *Source*: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2.
    """
    return 0.5 * x * (1.0 + td.tanh(ROOT_2_OVER_PI * (x + 0.044715 * (x * x * x))))


def gelu_quick(x):
    """`x sigmoid(1.702 x)`. *Source*: Hendrycks and Gimpel, 2016, section 2."""
    return x * td.sigmoid(1.702 * x)


def relu6(x):
    """`min(max(x, 0), 6)`. *Source*: Howard et al., "MobileNets", 2017."""
    return td.minimum(td.maximum(x, 0), 6)


def relu_squared(x):
    """`max(x, 0)^2`. *Source*: So et al., "Primer", 2021, section 4."""
    r = td.maximum(x, 0)
    return r * r


def leaky_relu(x, slope=0.01):
    """`x` where it is positive, else `slope x`. *Source*: Maas et al., 2013."""
    return td.where(x > 0, x, x * slope)


def elu(x, alpha=1.0):
    """`x` where it is positive, else `alpha (exp(x) - 1)`. *Source*: Clevert et al., 2015, equation 15."""
    return td.where(x > 0, x, alpha * td.expm1(td.minimum(x, 0)))


def celu(x, alpha=1.0):
    """`max(x, 0) + min(0, alpha (exp(x / alpha) - 1))`. *Source*: Barron, 2017."""
    return td.maximum(x, 0) + td.minimum(0, alpha * td.expm1(td.minimum(x, 0) / alpha))


def selu(x):
    """elu of a scale that keeps mean 0 and variance 1. *Source*: Klambauer et al., 2017, equation 2."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def mish(x):
    """`x tanh(softplus(x))`. *Source*: Misra, 2019."""
    return x * td.tanh(td.softplus(x))


def hard_sigmoid(x):
    """`min(max(x / 6 + 1/2, 0), 1)`. *Source*: Howard et al., "Searching for MobileNetV3", 2019, section 5.2."""
    return td.minimum(td.maximum(x * (1 / 6) + 0.5, 0), 1)


def hard_swish(x):
    """`x hard_sigmoid(x)`. *Source*: Howard et al., 2019, section 5.2."""
    return x * hard_sigmoid(x)


def hard_tanh(x, low=-1.0, high=1.0):
    """`x` clamped to `low .. high`."""
    return td.minimum(td.maximum(x, low), high)


def softsign(x):
    """`x / (1 + |x|)`."""
    return x / (1.0 + td.abs(x))


def log_sigmoid(x):
    """`log(sigmoid(x))`, which neither overflows nor cancels."""
    return -td.softplus(-x)


def tanh_shrink(x):
    """`x - tanh(x)`."""
    return x - td.tanh(x)


def soft_shrink(x, width=0.5):
    """`x` moved towards 0 by `width`, and 0 where that would cross it; NaN stays NaN."""
    return x - hard_tanh(x, -width, width)


def hard_shrink(x, width=0.5):
    """`x` where `|x| > width`, else 0; NaN stays NaN."""
    return td.where(td.abs(x) <= width, 0.0, x)


def relu_slope(x):
    """1 where `x > 0`, else 0: the slope of relu, 0 at 0."""
    return td.where(x > 0, 1.0, 0.0)


def sigmoid_slope(x):
    """`s (1 - s)` with `s = sigmoid(x)`."""
    s = td.sigmoid(x)
    return s * (1.0 - s)


def tanh_slope(x):
    """`1 - tanh(x)^2`."""
    t = td.tanh(x)
    return 1.0 - t * t


def silu_slope(x):
    """`s (1 + x (1 - s))` with `s = sigmoid(x)`: the slope of silu."""
    s = td.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def gelu_slope(x):
    """`Phi(x) + x phi(x)`: the slope of the erf form of gelu."""
    return 0.5 * (1.0 + td.erf(x * ROOT_HALF)) + x * td.exp(-0.5 * (x * x)) * (1 / ROOT_2_PI)


def gelu_tanh_slope(x):
    """The slope of `gelu_tanh`."""
    t = td.tanh(ROOT_2_OVER_PI * (x + 0.044715 * (x * x * x)))
    inner = ROOT_2_OVER_PI * (1.0 + 3 * 0.044715 * (x * x))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner


def softplus_slope(x):
    """`sigmoid(x)`: the slope of softplus."""
    return td.sigmoid(x)


@td.kernel
def activation(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, act):
    """`Y = act(X)`, computed in f32 (f64 of f64).

    *Shapes*: X, Y [M, N]; Y may be X itself. *Errors*: `capture/staged` without `act`.
    """
    for m, n in td.parallel(M, N):
        Y[m, n] = act(wide(X[m, n]))


@td.kernel
def activation_backward(X: td.Tensor[M, N], dY: td.Tensor[M, N], dX: td.Out[M, N] = None, *, slope):
    """`dX = dY slope(X)`: the gradient behind `activation` whose function has that slope, such as `gelu_slope`.

    *Shapes*: X, dY, dX [M, N]; dX may be dY itself.
    """
    for m, n in td.parallel(M, N):
        dX[m, n] = wide(dY[m, n]) * slope(wide(X[m, n]))


@td.kernel
def gated(G: td.Tensor[M, N], U: td.Tensor[M, N], Y: td.Out[M, N] = None, *, act=td.silu):
    """`Y = act(G) U`: swiglu with `td.silu`, geglu with `td.gelu`, reglu with `td.relu`, glu with `td.sigmoid`.

    *Shapes*: G, U, Y [M, N]; halves of one matrix are passed as its views `x[:, :n]` and `x[:, n:]`.
    *Source*: Shazeer, "GLU Variants Improve Transformer", 2020, section 2.
    """
    for m, n in td.parallel(M, N):
        Y[m, n] = act(wide(G[m, n])) * wide(U[m, n])


@td.kernel
def gated_backward(
    G: td.Tensor[M, N],
    U: td.Tensor[M, N],
    dY: td.Tensor[M, N],
    dG: td.Out[M, N] = None,
    dU: td.Out[M, N] = None,
    *,
    act=td.silu,
    slope=silu_slope,
):
    """`dG = dY U slope(G)`, `dU = dY act(G)`: the gradients behind `gated`. *Shapes*: all [M, N]."""
    for m, n in td.parallel(M, N):
        g, d = wide(G[m, n]), wide(dY[m, n])
        dG[m, n] = d * wide(U[m, n]) * slope(g)
        dU[m, n] = d * act(g)
