"""What other libraries do for a case: the same result into a caller-owned output, with the same number of threads."""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from typing import Any

from treadle.bench.case import Arrays, Case, Finished, Run
from treadle.bench.torch_peers import OPERATORS, peer, tensor


def peers_of(case: Case, wanted: list[str] | None, threads: int) -> dict[str, Callable[[Arrays, Any], Run]]:
    """Name -> how the peer is bound to inputs and output, for the peers that are installed and can do the case."""
    found: dict[str, Callable[[Arrays, Any], Run]] = {}
    torch = _torch(threads)
    if torch is not None and (wanted is None or "torch" in wanted):
        maker = _TORCH.get(case.family)
        if maker is not None:
            found["torch"] = lambda a, out: maker(torch, a, out)
        elif case.family in OPERATORS:
            found["torch"] = lambda a, out: peer(torch, case.family, a, out)
    return found


def _torch(threads: int) -> Any:
    # Its workers may otherwise share the caller's core for many calls, one after the other; ours are placed, too.
    os.environ.setdefault("OMP_PROC_BIND", "true")
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(threads)
    _keep_memory()
    return torch


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def _keep_memory() -> None:
    """Has the C library keep what is freed: a peer that allocates its result gets touched pages, as in a long run."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # another C library
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _torch_linear(torch: Any, a: Arrays, out: Any) -> Run:
    x, w, bias, y = (tensor(torch, v) for v in (a["x"], a["w"], a["bias"], out))
    gelu = torch.ops.aten.gelu.out

    def run() -> Any:
        torch.addmm(bias, x, w, out=y)
        return gelu(y, out=y)

    return run


def _torch_softmax(torch: Any, a: Arrays, out: Any) -> Run:
    x, y = tensor(torch, a["x"]), tensor(torch, out)
    return lambda: torch.softmax(x, -1, out=y)


def _torch_attention(causal: bool) -> Callable[[Any, Arrays, Any], Run]:
    def make(torch: Any, a: Arrays, out: Any) -> Run:
        q, k, v, y = (tensor(torch, t) for t in (a["q"], a["k"], a["v"], out))
        attend = torch.nn.functional.scaled_dot_product_attention

        result: list[Any] = [None]

        def run() -> Any:
            # SDPA has no out=: its result is copied over once, by `finish`, and that is not counted.
            with torch.no_grad():
                result[0] = attend(q, k, v, is_causal=causal)

        return Finished(run, lambda: y.copy_(result[0]))

    return make


_TORCH: dict[str, Callable[[Any, Arrays, Any], Run]] = {
    "linear_gelu": _torch_linear,
    "softmax": _torch_softmax,
    "attention": _torch_attention(False),
    "attention-causal": _torch_attention(True),
}
