"""The cases as ONNX graphs for onnxruntime: one node where the standard has one. Weights and inputs are bound once, the
output is the caller's. Its CPU kernels are of f32 and of quantised integers; other dtypes it does not have.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.bench.case import Arrays, Run


@dataclass(frozen=True)
class Libraries:
    """The packages, and how many threads a session may use."""

    onnx: Any
    runtime: Any
    threads: int


Node = tuple[str, Sequence[str], str, dict[str, Any]]
"""An operation: its name, its operands, its result, its attributes."""


@dataclass(frozen=True)
class Graph:
    """A case as a graph: what it takes, which operations make `y`, and constants beside."""

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: dict[str, Any]


def load(threads: int) -> Libraries | None:
    """onnxruntime and what writes its models, or None where one of them is not installed."""
    try:
        onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
        importlib.import_module("onnx.helper")
    except ImportError:
        return None
    return Libraries(onnx, runtime, threads)


def session_of(libraries: Libraries, model: Any) -> Any:
    """A session for a model, with all optimisations, on the threads that were asked for."""
    options = libraries.runtime.SessionOptions()
    options.intra_op_num_threads = libraries.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return libraries.runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def peer(libraries: Libraries, family: str, arrays: Arrays, out: Any) -> Run:
    """A family of `ONNX` on these inputs, into that output."""
    graph = ONNX[family](arrays)
    helper, numpy_helper = libraries.onnx.helper, importlib.import_module("onnx.numpy_helper")
    # A weight that lies transposed is taken as it lies: its graph says `transB`.
    given = {name: a if (a := arrays[name]).flags.c_contiguous else a.T for name in graph.inputs}

    def info(name: str, array: Any) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, list(args), [result], **attributes) for op, args, result, attributes in graph.nodes],
            family.replace("-", "_"),
            [info(name, array) for name, array in given.items()],
            [info("y", out)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 22)],
        ir_version=10,
    )
    session = session_of(libraries, model.SerializeToString())
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def _linear(act: bool) -> Callable[[Arrays], Graph]:
    """`Gemm`, and the erf form of `Gelu`; a transposed weight as its attribute, as exporters write it."""

    def write(a: Arrays) -> Graph:
        turned = int(not a["w"].flags.c_contiguous)
        product: Node = ("Gemm", ("x", "w", "bias"), "z" if act else "y", {"transB": turned})
        after: list[Node] = [("Gelu", ("z",), "y", {})] if act else []
        return Graph(("x", "w", "bias"), (product, *after), {})

    return write


def _attention(causal: bool) -> Callable[[Arrays], Graph]:
    """As exporters write it: two products with the softmax between them; onnxruntime fuses what it can."""

    def write(a: Arrays) -> Graph:
        length, depth = a["q"].shape[-2:]
        mask = np.where(np.tri(length, dtype=bool), 0, -np.inf).astype(np.float32)
        nodes: list[Node] = [
            ("Transpose", ("k",), "kt", {"perm": [0, 1, 3, 2]}),
            ("MatMul", ("q", "kt"), "s", {}),
            ("Mul", ("s", "scale"), "t", {}),
        ]
        nodes += [("Add", ("t", "mask"), "u", {})] if causal else []
        nodes += [("Softmax", ("u" if causal else "t",), "p", {"axis": -1}), ("MatMul", ("p", "v"), "y", {})]
        constants = {"scale": np.float32(1 / math.sqrt(depth)), **({"mask": mask} if causal else {})}
        return Graph(("q", "k", "v"), tuple(nodes), constants)

    return write


def _conv(depthwise: bool) -> Callable[[Arrays], Graph]:
    def write(a: Arrays) -> Graph:
        pad, groups = a["w"].shape[-1] // 2, a["x"].shape[1] if depthwise else 1
        return Graph(("x", "w", "bias"), (("Conv", ("x", "w", "bias"), "y", {"pads": [pad] * 4, "group": groups}),), {})

    return write


def _int8(a: Arrays) -> Graph:
    nodes: tuple[Node, ...] = (
        ("MatMulInteger", ("x", "w"), "i", {}),
        ("Cast", ("i",), "f", {"to": 1}),
        ("Unsqueeze", ("x_scale", "last"), "rows", {}),
        ("Mul", ("f", "rows"), "g", {}),
        ("Mul", ("g", "w_scale"), "y", {}),
    )
    return Graph(("x", "w", "x_scale", "w_scale"), nodes, {"last": np.array([1], np.int64)})


def _norm(residual: bool) -> Callable[[Arrays], Graph]:
    def write(a: Arrays) -> Graph:
        norm: Node = ("LayerNormalization", ("z" if residual else "x", "scale", "shift"), "y", {"epsilon": 1e-5})
        if not residual:
            return Graph(("x", "scale", "shift"), (norm,), {})
        return Graph(("x", "residual", "scale", "shift"), (("Add", ("x", "residual"), "z", {}), norm), {})

    return write


def _rmsnorm(a: Arrays) -> Graph:
    nodes: tuple[Node, ...] = (
        ("Mul", ("x", "x"), "square", {}),
        ("ReduceMean", ("square", "last"), "mean", {"keepdims": 1}),
        ("Add", ("mean", "eps"), "shifted", {}),
        ("Sqrt", ("shifted",), "size", {}),
        ("Div", ("x", "size"), "unit", {}),
        ("Mul", ("unit", "scale"), "y", {}),
    )
    return Graph(("x", "scale"), nodes, {"last": np.array([-1], np.int64), "eps": np.float32(1e-6)})


def _gelu_residual(a: Arrays) -> Graph:
    nodes: tuple[Node, ...] = (
        ("Add", ("x", "bias"), "z", {}),
        ("Gelu", ("z",), "g", {}),
        ("Add", ("g", "residual"), "y", {}),
    )
    return Graph(("x", "bias", "residual"), nodes, {})


def _swiglu(a: Arrays) -> Graph:
    nodes: tuple[Node, ...] = (
        ("Sigmoid", ("gate",), "s", {}),
        ("Mul", ("gate", "s"), "g", {}),
        ("Mul", ("g", "up"), "y", {}),
    )
    return Graph(("gate", "up"), nodes, {})


def _blur(a: Arrays) -> Graph:
    """Two convolutions of one channel."""
    n = a["taps"].shape[0]
    nodes: tuple[Node, ...] = (
        ("Reshape", ("x", "image"), "x4", {}),
        ("Reshape", ("taps", "row"), "across", {}),
        ("Reshape", ("taps", "column"), "down", {}),
        ("Conv", ("x4", "across"), "t", {"pads": [0, n // 2, 0, n // 2]}),
        ("Conv", ("t", "down"), "y4", {"pads": [n // 2, 0, n // 2, 0]}),
        ("Reshape", ("y4", "shape"), "y", {}),
    )
    shapes = {"image": (1, 1, *a["x"].shape), "row": (1, 1, 1, n), "column": (1, 1, n, 1), "shape": a["x"].shape}
    return Graph(("x", "taps"), nodes, {name: np.array(shape, np.int64) for name, shape in shapes.items()})


def _reduction(op: str, *, axis: bool = True) -> Callable[[Arrays], Graph]:
    def write(a: Arrays) -> Graph:
        operands, constants = (("x", "last"), {"last": np.array([-1], np.int64)}) if axis else (("x",), {})
        return Graph(("x",), ((op, operands, "y", {"keepdims": 0}),), constants)

    return write


ONNX: dict[str, Callable[[Arrays], Graph]] = {
    "linear_gelu": _linear(True),
    "linear": _linear(False),
    "linear-turned": _linear(False),
    "softmax": lambda a: Graph(("x",), (("Softmax", ("x",), "y", {"axis": -1}),), {}),
    "attention": _attention(False),
    "attention-causal": _attention(True),
    "layernorm": _norm(False),
    "add_layernorm": _norm(True),
    "rmsnorm": _rmsnorm,
    "bias_gelu_residual": _gelu_residual,
    "swiglu": _swiglu,
    "conv2d": _conv(False),
    "depthwise_conv2d": _conv(True),
    "int8_linear": _int8,
    "rows_sum": _reduction("ReduceSum"),
    "total": _reduction("ReduceSum", axis=False),
    "cumsum": lambda a: Graph(("x",), (("CumSum", ("x", "axis"), "y", {}),), {"axis": np.array(1, np.int64)}),
    "argmax": lambda a: Graph(("x",), (("ArgMax", ("x",), "y", {"axis": -1, "keepdims": 0}),), {}),
    "blur": _blur,
}
