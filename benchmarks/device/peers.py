"""Everybody in one run on a GPU: cuBLAS and cuDNN through torch, Triton, torch.compile, flex_attention, and treadle.

`python benchmarks/device/peers.py OUT.json CUBINS.tar.gz [PART ...]`. *Method*: outputs of every side are compared with
float64 (long attention with cuDNN's) before anything is timed; sides in turn, in an order that changes, the L2
overwritten before each sample, events, medians. Triton's products are persistent and fed by tensor descriptors, the
best of the listed configurations; its softmax holds a row in a program. Losses stay in the table. The code of treadle's
and Triton's kernels goes into an archive that peers_sass.py reads.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

_FOLDER = tempfile.mkdtemp()
os.environ["TRITON_CACHE_DIR"] = f"{_FOLDER}/triton"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{_FOLDER}/inductor"
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
import triton
import triton.language as tl
from room import described, interleaved, median, ran_as, where_and_how
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from triton.tools.tensor_descriptor import TensorDescriptor

import treadle as td
from treadle.lib.attention import attention
from treadle.lib.linear import linear
from treadle.lib.norms import layernorm
from treadle.lib.rows import softmax

BF, F32 = torch.bfloat16, torch.float32
Call = Callable[[], Any]
Row = dict[str, Any]


@triton.jit
def product_kernel(
    x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr
):
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    wide = GROUP * columns
    for tile in range(tl.program_id(0), rows * columns, PROGRAMS):
        first = tile // wide * GROUP
        size = min(rows - first, GROUP)
        m, n = first + tile % wide % size, tile % wide // size
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(x.load([m * BM, k * BK]), w.load([k * BK, n * BN]), acc)
        y.store([m * BM, n * BN], acc.to(tl.bfloat16))


@triton.jit
def softmax_kernel(x, y, pitch, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * pitch + at, mask=at < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * pitch + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=at < n)


CONFIGURATIONS = (
    (128, 256, 64, 3, 8),
    (128, 256, 64, 4, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 4),
    (128, 128, 128, 3, 8),
)
"""Rows, columns, depth of a tile; stages; warps."""


def triton_products(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> dict[str, Call]:
    """Launches by configuration."""
    (m, k), n = x.shape, w.shape[1]
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    found: dict[str, Call] = {}
    for bm, bn, bk, stages, warps in CONFIGURATIONS:
        maps = (
            TensorDescriptor.from_tensor(x, [bm, bk]),
            TensorDescriptor.from_tensor(w, [bk, bn]),
            TensorDescriptor.from_tensor(y, [bm, bn]),
        )
        grid = (min(programs, triton.cdiv(m, bm) * triton.cdiv(n, bn)),)

        def call(
            maps: Any = maps, grid: Any = grid, sizes: Any = (bm, bn, bk), stages: int = stages, warps: int = warps
        ) -> None:
            product_kernel[grid](*maps, m, n, k, *sizes, 8, programs, num_stages=stages, num_warps=warps)

        found[f"triton {bm}x{bn}x{bk} stages={stages} warps={warps}"] = call
    return found


def triton_softmax(x: torch.Tensor, y: torch.Tensor) -> Call:
    rows, n = x.shape
    block = triton.next_power_of_2(n)
    warps = 4 if block <= 2048 else 8 if block <= 8192 else 16

    def call() -> None:
        softmax_kernel[(rows,)](x, y, x.stride(0), n, block, num_warps=warps)

    return call


class Report:
    """Rows of cases, each side checked before it is timed."""

    def __init__(self, out: str) -> None:
        self.rows: list[Row] = []
        self.cubins: dict[str, bytes] = {}
        self.out = out
        self.head: Row = {}
        self.flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")

    def case(
        self,
        name: str,
        kernel: Any,
        args: tuple[Any, ...],
        staged: Row,
        peers: dict[str, Call],
        right: Callable[[torch.Tensor], bool],
        rounds: int,
        fastest: str = "",
    ) -> None:
        """Times the sides that are right; of those whose name begins with `fastest` only the fastest one."""
        try:
            sides: dict[str, Call] = {"treadle": kernel.bind(*args, **staged), **peers}
            wrong: list[str] = []
            for side, call in list(sides.items()):
                try:
                    result = call()
                    good = right(args[-1] if side == "treadle" else result if result is not None else OUT[0])
                except Exception as error:
                    good = False
                    wrong.append(f"{side}: {type(error).__name__}: {str(error)[:200]}")
                if not good:
                    wrong.append(f"{side}: left out")
                    del sides[side]
            torch.cuda.synchronize()
            if fastest:
                known = [s for s in sides if s.startswith(fastest)]
                first = interleaved({s: sides[s] for s in known}, 6, self.flush)
                best = min(known, key=lambda s: median(first[s]))
                for s in known:
                    if s != best:
                        del sides[s]
            samples = interleaved(sides, rounds, self.flush)
            us = {s: median(v) for s, v in samples.items()}
            variant = ran_as(kernel, args, staged)
            self.cubins[name.replace("/", "-")] = variant.record.code
            ratios = {s: us[s] / us["treadle"] for s in us if s != "treadle"}
            row: Row = {"case": name, "us": us, "ratios": ratios, "wrong": wrong, **described(variant)}
            print(
                name, {s: round(v, 1) for s, v in us.items()}, {s: round(v, 3) for s, v in ratios.items()}, flush=True
            )
            if wrong:
                print("  ", wrong, flush=True)
            row["samples_us"] = samples
        except Exception:
            row = {"case": name, "error": traceback.format_exc()[-1500:]}
            print(row, flush=True)
        self.rows.append(row)
        pathlib.Path(self.out).write_text(json.dumps({**self.head, "rows": self.rows}, default=str))


OUT: list[Any] = [None]
"""What a side that returns nothing has stored into."""


def products(report: Report) -> None:
    """Products alone."""
    for m, n, k in ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (16, 8192, 8192)):
        x, w = torch.randn(m, k, device="cuda").to(BF), (torch.randn(k, n, device="cuda") * k**-0.5).to(BF)
        y, z, t = (torch.empty(m, n, dtype=BF, device="cuda") for _ in range(3))
        want = x.double() @ w.double()
        size = want.abs().amax()
        OUT[0] = t
        peers: dict[str, Call] = {"cublas (torch.mm)": lambda x=x, w=w, z=z: torch.mm(x, w, out=z)}
        if m >= 128:
            peers |= triton_products(x, w, t)

        def near(got: torch.Tensor, want: torch.Tensor = want, size: Any = size) -> bool:
            return bool(((got.double() - want).abs() <= 2.0**-8 * want.abs() + 2.0**-9 * size).all())

        fastest = "triton" if m >= 128 else ""
        report.case(f"product/bf16/{m}x{n}x{k}", linear, (x, w, None, y), {}, peers, near, 40, fastest)


def activated(report: Report) -> None:
    """A product with bias and activation."""
    x, w = torch.randn(4096, 4096, device="cuda").to(BF), (torch.randn(4096, 4096, device="cuda") / 64).to(BF)
    bias, y = torch.randn(4096, device="cuda").to(BF), torch.empty(4096, 4096, dtype=BF, device="cuda")

    def plain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(torch.addmm(b, x, w))

    compiled = torch.compile(plain)
    want = torch.nn.functional.gelu(x.double() @ w.double() + bias.double())
    sides: dict[str, Call] = {"torch eager": lambda: plain(x, w, bias), "torch.compile": lambda: compiled(x, w, bias)}
    bound = 2.0**-7 * want.abs() + 2.0**-6

    def near(got: torch.Tensor) -> bool:
        return bool(((got.double() - want).abs() <= bound).all())

    report.case("product-bias-gelu/bf16/4096x4096x4096", linear, (x, w, bias, y), {"act": td.gelu}, sides, near, 40)


def attentions(report: Report) -> None:
    """Attention beside cuDNN, the flash kernels of torch, and flex_attention, which is Triton."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    flex = torch.compile(flex_attention)
    for d, causal in ((128, False), (128, True), (64, False), (64, True)):
        q, k, v = (torch.randn(4, 16, 4096, d, device="cuda").to(BF) for _ in range(3))
        y = torch.empty_like(q)
        want = sdpa(q.float(), k.float(), v.float(), is_causal=causal) if d == 64 else None
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            reference = sdpa(q, k, v, is_causal=causal).float() if want is None else want

        def pinned(backend: Any, q: Any = q, k: Any = k, v: Any = v, c: bool = causal) -> Call:
            def call() -> torch.Tensor:
                with sdpa_kernel(backend):
                    return sdpa(q, k, v, is_causal=c)

            return call

        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 4096, 4096) if causal else None
        sides: dict[str, Call] = {
            "cudnn": pinned(SDPBackend.CUDNN_ATTENTION),
            "flash (torch)": pinned(SDPBackend.FLASH_ATTENTION),
            "flex_attention (triton)": lambda q=q, k=k, v=v, m=mask: flex(q, k, v, block_mask=m),
        }

        def near(got: torch.Tensor, r: torch.Tensor = reference) -> bool:
            return float((got.float() - r).norm() / r.norm()) <= 0.01

        name = f"attention{'-causal' if causal else ''}/bf16/b4-h16-s4096-d{d}"
        report.case(name, attention, (q, k, v, y), {"causal": causal}, sides, near, 25)


def rows(report: Report) -> None:
    """Row operators beside torch, torch.compile, Triton."""
    compiled = torch.compile(lambda x: torch.softmax(x, 1), dynamic=False)
    normed = torch.compile(lambda x, s, b: torch.nn.functional.layer_norm(x, (x.shape[1],), s, b), dynamic=False)
    for dtype, n in ((F32, 4096), (BF, 4096), (BF, 32768)):
        x = torch.randn(4096, n, device="cuda").to(dtype)
        y, z, t = (torch.empty_like(x) for _ in range(3))
        want = torch.softmax(x.double(), 1)
        OUT[0] = t
        sides: dict[str, Call] = {
            "torch": lambda x=x, z=z: torch.softmax(x, 1, out=z),
            "torch.compile": lambda x=x: compiled(x),
            "triton": triton_softmax(x, t),
            "copy": lambda x=x, z=z: z.copy_(x),
        }

        def near(got: torch.Tensor, w: torch.Tensor = want, z: torch.Tensor = z) -> bool:
            # What is stored into z is torch's, or a copy.
            return got is z or bool(((got.double() - w).abs() <= 0.01 * w + 1e-6).all())

        name = f"softmax/{str(dtype)[6:]}/4096x{n}"
        report.case(name, softmax, (x, y), {}, sides, near, 40)
    x, s, b = (torch.randn(*shape, device="cuda").to(BF) for shape in ((4096, 8192), (8192,), (8192,)))
    y = torch.empty_like(x)
    want = torch.nn.functional.layer_norm(x.double(), (8192,), s.double(), b.double())
    sides = {
        "torch": lambda: torch.nn.functional.layer_norm(x, (8192,), s, b),
        "torch.compile": lambda: normed(x, s, b),
    }

    def close(got: torch.Tensor) -> bool:
        return bool(((got.double() - want).abs() <= 0.02 * want.abs() + 0.05).all())

    report.case("layernorm/bf16/4096x8192", layernorm, (x, s, b, y), {}, sides, close, 40)


def archive(report: Report, path: str) -> None:
    """The cubins of both sides; of Triton's also the PTX."""
    with tarfile.open(path, "w:gz") as file:
        found = {f"treadle/{name}.cubin": code for name, code in report.cubins.items()}
        for one in pathlib.Path(_FOLDER).rglob("*"):
            if one.suffix in (".cubin", ".ptx"):
                found[f"triton/{one.parent.name[:8]}-{one.name}"] = one.read_bytes()
        for name, data in found.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))


def main(out: str, cubins: str) -> None:
    torch.manual_seed(4)
    only = sys.argv[3:]
    began = time.time()
    report = Report(out)
    report.head = {
        "experiment": "peers in one run",
        **where_and_how(__doc__),
        "triton": triton.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "tilelang": "installed" if importlib.util.find_spec("tilelang") else "not installed",
    }
    for part in (rows, products, activated, attentions):
        if only and part.__name__ not in only:
            continue
        try:
            part(report)
        except Exception:
            report.rows.append({"case": part.__name__, "error": traceback.format_exc()[-1500:]})
            print(traceback.format_exc(), flush=True)
        archive(report, cubins)
        print(f"{time.time() - began:.0f} s", flush=True)
    pathlib.Path(out).write_text(json.dumps({**report.head, "rows": report.rows}, default=str))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
