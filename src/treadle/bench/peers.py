"""What other libraries do for a case: the same result into a caller-owned output, with the same number of threads."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from treadle.base.errors import UserError
from treadle.bench import halide_peers, jax_peers, onnx_peers
from treadle.bench.case import Arrays, Case, Finished, Run
from treadle.bench.halide_peers import HALIDE
from treadle.bench.jax_peers import JAX
from treadle.bench.numpy_peers import NUMPY, use_threads
from treadle.bench.onnx_peers import ONNX
from treadle.bench.torch_peers import COMPILED, OPERATORS, compiled_peer, peer, tensor
from treadle.dtype.formats import f32, i8


def peers_of(case: Case, wanted: list[str] | None, threads: int) -> dict[str, Callable[[Arrays, Any], Run]]:
    """Name -> how the peer is bound to inputs and output, for the peers that are installed and can do the case.

    A peer that was asked for by name and is not installed is named on standard error, and left out.
    *Errors*: `bench/no-peer` for a name that is none of `PEERS`.
    """
    odd = next((name for name in wanted or () if name not in PEERS), None)
    if odd is not None:
        raise NoPeer(
            doing="choosing peers",
            found=odd,
            expected=f"some of {', '.join(PEERS)}, separated by commas",
            hint="leave --peers out for all that are installed",
        )
    found: dict[str, Callable[[Arrays, Any], Run]] = {}
    for name, (module, load, binder) in PEERS.items():
        if not _can(name, case) or (wanted is not None and name not in wanted):
            continue
        with everywhere(name):
            library = load(threads)
        if library is None:
            if wanted is not None:
                print(f"no {name}: {module} is not installed", file=sys.stderr)
            continue
        found[name] = partial(binder, library, case.family)
    return found


_CORES: frozenset[int] = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


@contextmanager
def everywhere(peer: str) -> Generator[None]:
    """Has a peer make its threads while the calling thread may run on every core.

    Torch's OpenMP binds the calling thread to its first core, and threads inherit where they may run: those of any
    library that starts them later would share that one core. Torch itself runs from where it has put its caller.
    """
    if not _CORES or peer.startswith("torch"):
        yield
        return
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, bound)


class NoPeer(UserError):
    """A peer that no case has."""

    code = "bench/no-peer"


def _can(name: str, case: Case) -> bool:
    """Whether a peer has the family, and the dtype: NumPy and onnxruntime have no arithmetic of bf16 on a CPU."""
    families: dict[str, Collection[str]] = {
        "torch": {*_TORCH, *OPERATORS},
        "torch-compile": COMPILED,
        "jax": JAX,
        "onnxruntime": ONNX,
        "numpy": NUMPY,
        "halide": HALIDE,
    }
    return case.family in families[name] and (case.dtype in (f32, i8) or name in ("torch", "torch-compile", "jax"))


def _bind_torch(torch: Any, family: str, a: Arrays, out: Any) -> Run:
    maker = _TORCH.get(family)
    return peer(torch, family, a, out) if maker is None else maker(torch, a, out)


def _bind_numpy(_: Any, family: str, a: Arrays, out: Any) -> Run:
    return NUMPY[family](a, out)


def _numpy(threads: int) -> Any:
    use_threads(threads)
    return True


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

PEERS: dict[str, tuple[str, Callable[[int], Any], Callable[[Any, str, Arrays, Any], Run]]] = {
    "torch": ("torch", _torch, _bind_torch),
    "torch-compile": ("torch", _torch, compiled_peer),
    "jax": ("jax", jax_peers.load, jax_peers.peer),
    "onnxruntime": ("onnxruntime or onnx", onnx_peers.load, onnx_peers.peer),
    "numpy": ("numpy", _numpy, _bind_numpy),
    "halide": ("halide", halide_peers.load, halide_peers.peer),
}
"""Name -> the package, how it is loaded for a number of threads, how a family of it is bound to inputs and output."""
