"""What calls cost the host on a GPU, and what streams, captures and libraries do to them: checked, then timed.

`python benchmarks/device/host.py OUT.json [check] [time]` (without either: both). *Checks*: torch's side streams,
CUDA graphs of torch and of treadle with and without workspace, a first call inside a capture, several streams at
once, CuPy and JAX arrays, arguments on their own device; results against float64 or bit for bit against an ordinary
call. *Times*: microseconds of the host for a call, median of 20 rounds of 200; graphs also per replay.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import host_us, inside, median, where_and_how

import treadle as td
from treadle.lib.attention import attention
from treadle.lib.linear import linear
from treadle.lib.rows import softmax
from treadle.runtime.errors import CaptureRefused

M, N = td.dims("M N")


@td.kernel
def scaled(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        Y[m, N] = X[m, N] * 2


@td.kernel
def shifted(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        Y[m, N] = X[m, N] + 1


@td.kernel
def positive(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        td.check(X[m, N].min(N) > 0, "X is positive")
        Y[m, N] = X[m, N]


Row = dict[str, Any]


class Rows:
    """Rows of what was checked; an exception is a row, too."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def check(self, case: str, run: Callable[[], bool | Row]) -> None:
        """Runs and notes."""
        began = time.perf_counter()
        try:
            said = run()
            row = said if isinstance(said, dict) else {"right": bool(said)}
        except Exception:
            row = {"right": False, "error": traceback.format_exc()[-1500:]}
        row = {"case": case, **row, "s": round(time.perf_counter() - began, 3)}
        self.rows.append(row)
        print(row, flush=True)


def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    """Operands whose odd rows no engine takes: the plan copies them to a workspace first."""
    x = inside(torch.randint(-4, 5, (257, 513), device="cuda").to(torch.bfloat16), odd=True)
    w = inside(torch.randint(-4, 5, (513, 259), device="cuda").to(torch.bfloat16), odd=True)
    return x, w


def exact(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.double() @ w.double()).float().to(torch.bfloat16)


def check_streams(rows: Rows) -> None:
    """Launches on current streams; several at once with workspaces of their own."""
    x = torch.randn(4096, 1024, device="cuda")
    want = torch.softmax(x, 1)

    def side() -> bool:
        stream, late = torch.cuda.Stream(), torch.empty_like(x)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # what runs elsewhere would read too early
            late.copy_(x)
            y = softmax(late)
            z = y * 1.0
        stream.synchronize()
        return bool(((z - want).abs() <= 1e-6).all())

    rows.check("a side stream of torch orders the call", side)

    def together() -> Row:
        x, w = ragged()
        want, wrong = exact(x, w), []
        linear.bind(x, w, None, torch.empty(257, 259, dtype=torch.bfloat16, device="cuda"))()

        def many(k: int) -> None:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(50):
                    y = torch.full((257, 259), float("nan"), dtype=torch.bfloat16, device="cuda")
                    linear(x, w, None, y)
                    stream.synchronize()
                    wrong.extend([k] if not torch.equal(y, want) else [])

        threads = [threading.Thread(target=many, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return {"right": not wrong, "wrong": len(wrong), "calls": 200}

    rows.check("four threads on four streams, workspace each", together)


def check_graphs(rows: Rows) -> None:
    """Captured calls, replayed on new values."""
    rows.check("torch.cuda.graph, bound, workspace", lambda: captured_by_torch(bound=True, first=False))
    rows.check("torch.cuda.graph, generic, workspace", lambda: captured_by_torch(bound=False, first=False))
    rows.check("torch.cuda.graph, first call inside the capture", lambda: captured_by_torch(bound=False, first=True))
    rows.check("td.graph of three calls", captured_by_treadle)
    rows.check("inputs that lie on outputs, also captured", captured_in_place)
    rows.check("td.check inside a capture is refused, and works afterwards", refused_inside)


def captured_by_torch(bound: bool, first: bool) -> bool:
    """A graph of torch around a call; with `first`, around the first call of its kernel."""
    x, w = ragged()
    kernel = td.kernel(linear.definition.fn) if first else linear
    y = torch.empty(257, 259, dtype=torch.bfloat16, device="cuda")
    call = kernel.bind(x, w, None, y) if bound else (lambda: kernel(x, w, None, y))
    if not first:
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
        z = y + 1
    good = True
    for _ in range(3):
        x.copy_(torch.randint(-4, 5, x.shape, device="cuda").to(torch.bfloat16))
        y.fill_(float("nan"))
        graph.replay()
        want = exact(x, w)
        good = good and torch.equal(y, want) and torch.equal(z, want + 1)
    return good


def captured_by_treadle() -> bool:
    """A graph of ours of three calls, one of which reads what the one before stored."""
    x, w = ragged()
    a = torch.randn(64, 1024, device="cuda")
    b, c = torch.empty_like(a), torch.empty_like(a)
    y = torch.empty(257, 259, dtype=torch.bfloat16, device="cuda")
    with td.graph() as graph:
        scaled(a, b)
        shifted(b, c)
        linear(x, w, None, y)
    good = True
    for _ in range(3):
        a.normal_()
        y.fill_(float("nan"))
        graph()
        good = good and torch.equal(c, a * 2 + 1) and torch.equal(y, exact(x, w))
    return good


def captured_in_place() -> bool:
    """Rows stored over the rows that are read, called and captured."""
    whole = torch.randn(66, 1024, device="cuda")
    before = whole.clone()
    call = scaled.bind(whole[:64], whole[1:65])
    call()
    good = torch.equal(whole[1:65], before[:64] * 2) and torch.equal(whole[0], before[0])
    graph = torch.cuda.CUDAGraph()
    whole.copy_(before)
    with torch.cuda.graph(graph):
        call()
    for _ in range(2):
        whole.copy_(before)
        graph.replay()
        good = good and torch.equal(whole[1:65], before[:64] * 2)
    return good


def refused_inside() -> bool:
    """A kernel with `td.check` says no inside a capture, and runs behind it."""
    a = torch.ones(4, 64, device="cuda")
    b = torch.empty_like(a)
    positive(a, b)
    try:
        with td.graph():
            positive(a, b)
    except CaptureRefused:
        positive(a, b)
        return torch.equal(a, b)
    return False


def check_libraries(rows: Rows) -> None:
    """CuPy and JAX arrays, in place and in order."""

    def cupys() -> Row:
        cupy: Any = importlib.import_module("cupy")
        x = cupy.random.standard_normal((4096, 1024), dtype=cupy.float32)
        y = softmax(x)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            late = x * 2
            z = scaled(late)
            good = bool((z == x * 4).all())
        want = cupy.exp(x - x.max(1, keepdims=True))
        want /= want.sum(1, keepdims=True)
        good = good and type(y) is cupy.ndarray and bool((abs(y - want) <= 1e-6).all())
        mixed = torch.empty(4096, 1024, device="cuda")
        with stream:
            late = x * 3
            scaled(late, mixed)
        good = good and bool((cupy.asarray(mixed) == x * 6).all())
        us = median(host_us(lambda: softmax(x, y), 100, 10))
        return {"right": good, "generic_us": us, "version": cupy.__version__}

    rows.check("CuPy: outputs, streams, mixed with torch", cupys)

    def jaxs() -> Row:
        jax: Any = importlib.import_module("jax")
        x = jax.random.normal(jax.random.key(0), (4096, 1024))
        before = x.unsafe_buffer_pointer()
        for _ in range(5):
            late = jax.numpy.sin(x)  # runs when the call is made
            y = softmax(late)
            want = jax.nn.softmax(late, axis=1)
            good = bool((abs(y - want) <= 1e-6).all())
        try:
            softmax(x, x)
            good = False
        except td.UserError as error:
            good = good and error.code == "array/read-only"
        us = median(host_us(lambda: softmax(x), 50, 10))
        return {
            "right": good and isinstance(y, jax.Array) and x.unsafe_buffer_pointer() == before,
            "generic_us_until_ready": us,
            "version": jax.__version__,
        }

    rows.check("JAX: arrays in, a JAX array out, outputs refused", jaxs)


def times() -> list[Row]:
    """Microseconds of the host."""
    x = torch.randn(64, 1024, device="cuda")
    y = torch.empty_like(x)
    a, w = ragged()
    z = torch.empty(257, 259, dtype=torch.bfloat16, device="cuda")
    q = torch.randn(1, 1, 128, 64, device="cuda").to(torch.bfloat16)
    o = torch.empty_like(q)
    bound, room = softmax.bind(x, y), linear.bind(a, w, None, z)
    graph, ten = torch.cuda.CUDAGraph(), td.graph()
    with torch.cuda.graph(graph):
        bound()
    with td.graph() as one:
        bound()
    with ten:
        for _ in range(10):
            bound()
    side = torch.cuda.Stream()

    def aside() -> None:
        with torch.cuda.stream(side):
            bound()

    cases: dict[str, Callable[[], Any]] = {
        "bound": bound,
        "bound, on a side stream (entering it included)": aside,
        "bound, workspace": room,
        "td.graph of one": one,
        "td.graph of ten": ten,
        "torch graph of one": graph.replay,
        "generic": lambda: softmax(x, y),
        "generic, workspace": lambda: linear(a, w, None, z),
        "generic, output left out": lambda: softmax(x),
        "generic, three operands": lambda: attention(q, q, q, o),
        "torch.softmax(out=)": lambda: torch.softmax(x, 1, out=y),
        "torch.mm(out=)": lambda: torch.mm(q[0, 0], q[0, 0].T),
    }
    found: list[Row] = []
    for name, call in cases.items():
        try:
            samples = host_us(call)
        except Exception:
            found.append({"case": name, "error": traceback.format_exc()[-800:]})
            print(found[-1], flush=True)
            continue
        found.append({"case": name, "us": median(samples), "samples_us": samples})
        print(name, round(median(samples), 2), "us", flush=True)
    return found


def main(out: str, what: list[str]) -> None:
    torch.manual_seed(1)
    rows = Rows()
    report: Row = {
        "experiment": "host path",
        **where_and_how(__doc__),
        "checks": rows.rows,
    }
    if "time" in what:
        report["times"] = times()
    for part in (check_streams, check_graphs, check_libraries) if "check" in what else ():
        part(rows)
        pathlib.Path(out).write_text(json.dumps(report))
    wrong = [r for r in rows.rows if not r["right"]]
    print(f"{len(rows.rows)} checks, {len(wrong)} wrong")
    pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["check", "time"])
