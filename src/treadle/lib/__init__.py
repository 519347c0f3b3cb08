"""Operators written in the language. Adding one is adding a function in a chapter here, and its name to the contents.

    from treadle.lib import layernorm, matmul

Chapters are loaded when a name of theirs is first used. Two chapters, `attention` and `linear`, have the name of an
operator: here the name is the operator.
"""

from __future__ import annotations

import importlib
from typing import Any

from treadle.lib.attention import attention, attention_backward, grouped_attention, varlen_attention
from treadle.lib.linear import gated_linear, linear

CONTENTS: dict[str, tuple[str, ...]] = {
    "activations": (
        "activation",
        "activation_backward",
        "gated",
        "gated_backward",
        "celu",
        "elu",
        "gelu_quick",
        "gelu_slope",
        "gelu_tanh",
        "gelu_tanh_slope",
        "hard_shrink",
        "hard_sigmoid",
        "hard_swish",
        "hard_tanh",
        "leaky_relu",
        "log_sigmoid",
        "mish",
        "relu6",
        "relu_slope",
        "relu_squared",
        "selu",
        "sigmoid_slope",
        "silu_slope",
        "soft_shrink",
        "softplus_slope",
        "softsign",
        "tanh_shrink",
        "tanh_slope",
    ),
    "norms": (
        "layernorm",
        "add_layernorm",
        "layernorm_backward",
        "rmsnorm",
        "add_rmsnorm",
        "rmsnorm_backward",
        "l2norm",
        "l2norm_backward",
        "groupnorm",
        "groupnorm_backward",
        "batchnorm",
        "batch_statistics",
    ),
    "rows": ("softmax", "masked_softmax", "softmax_backward", "log_softmax", "log_softmax_backward"),
    "losses": (
        "cross_entropy",
        "cross_entropy_backward",
        "linear_cross_entropy",
        "loss",
        "mean_loss",
        "loss_backward",
        "squared_error",
        "squared_error_slope",
        "absolute_error",
        "absolute_error_slope",
        "huber",
        "huber_slope",
        "bce_with_logits",
        "bce_with_logits_slope",
        "kl_divergence",
        "kl_divergence_slope",
        "hinge",
        "hinge_slope",
    ),
    "linear": ("linear", "gated_linear"),
    "products": ("matmul", "batched_matmul", "matvec", "outer", "gram", "grouped_matmul", "split_matmul"),
    "quantised": (
        "quantise_int8",
        "quantise_fp8",
        "int8_matmul",
        "int4_matmul",
        "fp8_matmul",
        "fp8_block_matmul",
        "mxfp8_matmul",
        "mxfp4_matmul",
    ),
    "attention": ("attention", "grouped_attention", "varlen_attention", "attention_backward"),
    "decode": ("decode_attention", "paged_attention", "split_decode", "merge_attention", "append_pages"),
    "rotary": ("rope", "rope_interleaved", "rotary_tables"),
    "embeddings": (
        "embedding",
        "embedding_backward",
        "embedding_bag",
        "gather_rows",
        "gather_elements",
        "scatter_rows",
        "scatter_add_rows",
    ),
    "moe": ("mixture", "route", "group_by_expert", "experts_up", "experts_down", "combine"),
    "convolution": (
        "conv1d",
        "conv2d",
        "conv2d_nhwc",
        "depthwise_conv2d",
        "conv_transposed2d",
        "conv2d_weights",
        "conv3d",
    ),
    "pooling": (
        "max_pool2d",
        "max_pool2d_backward",
        "avg_pool2d",
        "global_avg_pool",
        "resize_nearest",
        "resize_bilinear",
    ),
    "reductions": (
        "rows_sum",
        "rows_prod",
        "columns_sum",
        "total",
        "rows_mean",
        "rows_var",
        "rows_norm",
        "rows_max",
        "rows_min",
        "rows_any",
        "rows_all",
        "rows_logsumexp",
    ),
    "scans": (
        "cumsum",
        "cumprod",
        "cummax",
        "cummin",
        "logcumsumexp",
        "segmented_cumsum",
        "linear_recurrence",
        "linear_recurrence_backward",
        "state_space",
    ),
    "sorting": ("sort", "argsort", "topk", "rows_median", "ranks", "searchsorted", "compact", "unique_sorted"),
    "sparse": (
        "segment_sum",
        "segment_max",
        "segment_softmax",
        "csr_matvec",
        "csr_matmul",
        "csr_scores",
        "bincount",
        "histogram",
    ),
    "random": (
        "uniform",
        "normal",
        "integers",
        "bernoulli",
        "sample_rows",
        "permutation",
        "dropout",
        "dropout_backward",
        "dropout_add",
    ),
    "linalg": ("cholesky", "triangular_solve", "lu", "qr"),
    "fourier": ("fft", "hadamard"),
    "dynamic": ("edit_distance", "viterbi", "shortest_paths"),
    "stencils": ("filter2d", "blur", "sobel", "harris", "jacobi", "life"),
    "optimizers": ("sgd", "adamw", "lion", "squared_length"),
    "copies": ("transpose", "copy", "concatenate", "pad", "triangle", "split_heads", "one_hot"),
}
"""Chapter -> its operators, and the functions that its kernels take."""

_HOME = {name: chapter for chapter, names in CONTENTS.items() for name in names}
__all__ = [
    "CONTENTS",
    "attention",
    "attention_backward",
    "gated_linear",
    "grouped_attention",
    "linear",
    "varlen_attention",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"treadle.lib has no {name!r}: see docs/library/index.md for its names")
    value = getattr(importlib.import_module(f"treadle.lib.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_HOME, *globals()})
