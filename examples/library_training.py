"""A classifier trained with the library: every operator, forward and backward, is a kernel written in the language.

Three spirals, two layers, gelu, cross-entropy with label smoothing, AdamW. Weights are updated in place; shapes repeat,
so that after the first step nothing is planned or compiled.
"""

import sys

import numpy as np

import treadle as td
from treadle.lib import (
    activation,
    activation_backward,
    adamw,
    columns_sum,
    cross_entropy,
    cross_entropy_backward,
    gelu_slope,
    linear,
    matmul,
    rows_max,
)

CLASSES, POINTS, HIDDEN = 3, 120, 48


def spirals(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points of three arms, and the arm of each."""
    along = np.tile(np.linspace(0.1, 1, POINTS), CLASSES)
    label = np.repeat(np.arange(CLASSES), POINTS)
    angle = 4 * along + label * 2 * np.pi / CLASSES + random.standard_normal(along.shape) * 0.15
    return np.stack([along * np.cos(angle), along * np.sin(angle)], 1).astype(np.float32), label.astype(np.int32)


class Parameter:
    """A weight or bias with the two moments of AdamW. A bias is one row."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value.astype(np.float32)
        self.first, self.second = np.zeros_like(self.value), np.zeros_like(self.value)

    def step(self, grad: np.ndarray, number: int, rate: float = 0.02) -> None:
        grad = grad.reshape(self.value.shape)
        correct = 1 - 0.9**number, 1 - 0.999**number
        adamw(self.value, grad, self.first, self.second, rate, *correct, decay=0.001)


def main(steps: int) -> float:
    random = np.random.default_rng(0)
    x, label = spirals(random)
    w1, b1 = Parameter(random.standard_normal((2, HIDDEN))), Parameter(np.zeros((1, HIDDEN)))
    w2, b2 = Parameter(random.standard_normal((HIDDEN, CLASSES)) / HIDDEN**0.5), Parameter(np.zeros((1, CLASSES)))
    weight = np.full(len(x), 1 / len(x), np.float32)
    right = 0.0
    for number in range(1, steps + 1):
        before = linear(x, w1.value, b1.value[0])
        hidden = activation(before, act=td.gelu)
        logits = linear(hidden, w2.value, b2.value[0])
        cost, lse = cross_entropy(logits, label, smoothing=0.05)

        dlogits = cross_entropy_backward(logits, label, lse, weight, smoothing=0.05)
        dbefore = activation_backward(before, matmul(dlogits, w2.value.T), slope=gelu_slope)
        w2.step(matmul(hidden.T, dlogits), number)
        b2.step(columns_sum(dlogits), number)
        w1.step(matmul(x.T, dbefore), number)
        b1.step(columns_sum(dbefore), number)

        if number % 100 == 0 or number == steps:
            right = float((rows_max(logits)[1] == label).mean())
            print(f"step {number:4}: loss {cost.mean():.3f}, {right:.0%} of the points on their arm")
    return right


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
