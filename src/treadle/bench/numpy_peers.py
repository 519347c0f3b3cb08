"""What NumPy's users write for the cases: expressions, into the caller's output where a function takes `out=`.

NumPy itself runs on one thread; its products run on as many threads of its BLAS library as ours.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from treadle.bench.case import Arrays, Run

Make = Callable[[Arrays, Any], Run]


def use_threads(threads: int) -> None:
    """Has the BLAS library of NumPy's wheels use so many threads; another one keeps its own setting."""
    folder = Path(np.__file__).resolve().parent.parent / "numpy.libs"
    for path in folder.glob("*openblas*"):
        library = ctypes.CDLL(str(path))
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(threads)
                return


def _linear(a: Arrays, out: Any) -> Run:
    def run() -> Any:
        np.matmul(a["x"], a["w"], out=out)
        return np.add(out, a["bias"], out=out)

    return run


def _softmax(a: Arrays, out: Any) -> Run:
    def run() -> Any:
        np.subtract(a["x"], a["x"].max(-1, keepdims=True), out=out)
        np.exp(out, out=out)
        return np.divide(out, out.sum(-1, keepdims=True), out=out)

    return run


def _layernorm(a: Arrays, out: Any) -> Run:
    def run() -> Any:
        x = a["x"]
        np.subtract(x, x.mean(-1, keepdims=True), out=out)
        deviation = np.sqrt(np.square(out).mean(-1, keepdims=True) + np.float32(1e-5))
        np.divide(out, deviation, out=out)
        np.multiply(out, a["scale"], out=out)
        return np.add(out, a["shift"], out=out)

    return run


def _rmsnorm(a: Arrays, out: Any) -> Run:
    def run() -> Any:
        size = np.sqrt(np.square(a["x"]).mean(-1, keepdims=True) + np.float32(1e-6))
        np.divide(a["x"], size, out=out)
        return np.multiply(out, a["scale"], out=out)

    return run


def _swiglu(a: Arrays, out: Any) -> Run:
    def run() -> Any:
        np.exp(-a["gate"], out=out)
        np.divide(a["gate"], 1 + out, out=out)
        return np.multiply(out, a["up"], out=out)

    return run


def _cross_entropy(a: Arrays, out: Any) -> Run:
    rows = np.arange(len(a["x"]))

    def run() -> Any:
        x = a["x"]
        top = x.max(-1)
        sums = np.log(np.exp(x - top[:, None]).sum(-1)) + top
        return np.subtract(sums, x[rows, a["label"]], out=out)

    return run


def _sort(a: Arrays, out: Any) -> Run:
    def run() -> None:
        a["at"][...] = np.argsort(a["x"], -1, kind="stable")
        out[...] = np.take_along_axis(a["x"], a["at"], -1)

    return run


def _topk(a: Arrays, out: Any) -> Run:
    k = out.shape[-1]

    def run() -> None:
        some = np.argpartition(a["x"], -k, -1)[:, -k:]
        order = np.argsort(-np.take_along_axis(a["x"], some, -1), -1, kind="stable")
        a["at"][...] = np.take_along_axis(some, order, -1)
        out[...] = np.take_along_axis(a["x"], a["at"], -1)

    return run


def _int8(a: Arrays, out: Any) -> Run:
    def run() -> Any:
        exact = a["x"].astype(np.float32) @ a["w"].astype(np.float32)
        return np.multiply(exact * a["x_scale"][:, None], a["w_scale"], out=out)

    return run


def _blur(a: Arrays, out: Any) -> Run:
    """Shifted views of a padded image, added up."""
    taps, reach = a["taps"], len(a["taps"]) // 2

    def run() -> Any:
        x = np.pad(a["x"], reach)
        rows, columns = a["x"].shape
        across = np.zeros((len(x), columns), np.float32)
        for r, tap in enumerate(taps):
            across += tap * x[:, r : r + columns]
        out[...] = 0
        for r, tap in enumerate(taps):
            np.add(out, tap * across[r : r + rows], out=out)

    return run


def _harris(a: Arrays, out: Any) -> Run:
    def run() -> Any:
        rows, columns = a["x"].shape
        p = np.pad(a["x"], 1)
        at = {(i, j): p[1 + i : 1 + i + rows, 1 + j : 1 + j + columns] for i in (-1, 0, 1) for j in (-1, 0, 1)}
        dx = (at[-1, 1] + 2 * at[0, 1] + at[1, 1] - at[-1, -1] - 2 * at[0, -1] - at[1, -1]) * np.float32(0.125)
        dy = (at[1, -1] + 2 * at[1, 0] + at[1, 1] - at[-1, -1] - 2 * at[-1, 0] - at[-1, 1]) * np.float32(0.125)

        def box(t: Any) -> Any:
            q = np.pad(t, 1)
            return sum(q[i : i + rows, j : j + columns] for i in range(3) for j in range(3))

        xx, xy, yy = box(dx * dx), box(dx * dy), box(dy * dy)
        trace = xx + yy
        out[...] = xx * yy - xy * xy - np.float32(0.04) * trace * trace

    return run


NUMPY: dict[str, Make] = {
    "linear": _linear,
    "linear-turned": _linear,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "swiglu": _swiglu,
    "cross_entropy": _cross_entropy,
    "int8_linear": _int8,
    "rows_sum": lambda a, out: lambda: np.sum(a["x"], -1, out=out),
    "total": lambda a, out: lambda: np.sum(a["x"], out=out),
    "cumsum": lambda a, out: lambda: np.cumsum(a["x"], -1, out=out),
    "argmax": lambda a, out: lambda: np.argmax(a["x"], -1, out=out),
    "sort": _sort,
    "topk": _topk,
    "blur": _blur,
    "harris": _harris,
}
