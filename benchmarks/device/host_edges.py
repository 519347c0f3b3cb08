"""Arguments at their limits on a GPU: beyond 2^31 elements, misaligned, odd pitches, empty, overlapping, NaN around.

`python benchmarks/device/host_edges.py OUT.json`. *Method*: integers, so that results are exact in any order, or
bounds as in spine.py; NaN in everything that no argument covers, so that one element read or written beside its range
is seen; of arrays beyond 2^31 elements the first, last and some rows in between are compared, and all by a second way
in torch.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from host import Rows, scaled, shifted
from room import described, frame_untouched, inside, interleaved, median, poisoned, ran_as, where_and_how
from spine_kernels import gather, ranges

import treadle as td
from treadle.lib.attention import attention
from treadle.lib.linear import linear
from treadle.lib.rows import softmax

BF, F32 = torch.bfloat16, torch.float32
Row = dict[str, Any]


def whole(*shape: int, dtype: torch.dtype = F32, most: int = 4) -> torch.Tensor:
    return torch.randint(-most, most + 1, shape, device="cuda", dtype=torch.int8).to(dtype)


def plan_of(kernel: Any, *args: Any, **staged: Any) -> Row:
    found = described(ran_as(kernel, args, staged))
    return {k: found[k] for k in ("plan", "verdict")}


def large(rows: Rows) -> None:
    """More elements than 31 bits count."""

    def elementwise() -> Row:
        x = torch.empty((1 << 31) // 4096 + 3, 4096, dtype=BF, device="cuda")
        x.copy_(torch.randint(-100, 100, (1, 4096), device="cuda") + torch.arange(len(x), device="cuda")[:, None] % 7)
        y = torch.full_like(x, float("nan"))
        scaled(x, y)
        right = all(torch.equal(y[a : a + 65536], x[a : a + 65536] * 2) for a in range(0, len(x), 65536))
        return {"right": right, "elements": x.numel(), **plan_of(scaled, x, y)}

    def one_row() -> Row:
        x = torch.ones(1, (1 << 31) + 4099, dtype=torch.int8, device="cuda")
        x[0, -1] = 5
        y = torch.zeros_like(x)
        scaled(x, y)
        tail = y[0, -2:].tolist()
        return {"right": tail == [2, 10] and int((y == 2).sum()) == x.numel() - 1, "elements": x.numel()}

    def softmaxes() -> Row:
        x = whole(65541, 32768, dtype=BF)
        y = torch.full_like(x, float("nan"))
        softmax(x, y)
        picks = [0, 1, 32767, 65536, 65540]
        error = (y[picks].double() - torch.softmax(x[picks].double(), 1)).abs()
        sums = torch.cat([part.float().sum(1) for part in y.split(4096)])
        right = bool((error <= 2.0**-8 * 0.01).all()) and bool(((sums - 1).abs() < 0.01).all())
        return {"right": right, "elements": x.numel(), **plan_of(softmax, x, y)}

    def tall() -> Row:
        x, w = whole((1 << 25) + 5, 64, dtype=BF, most=2), whole(64, 72, dtype=BF, most=2)
        y = torch.full((len(x), 72), float("nan"), dtype=BF, device="cuda")
        linear(x, w, None, y)
        parts = range(0, len(x), 1 << 20)
        right = all(torch.equal(y[a : a + (1 << 20)], (x[a : a + (1 << 20)].float() @ w.float()).to(BF)) for a in parts)
        return {"right": right, "elements": [x.numel(), y.numel()], **plan_of(linear, x, w, None, y)}

    def gathered() -> Row:
        table = torch.empty((1 << 25) + 9, 65, dtype=torch.int8, device="cuda")
        table.copy_((torch.arange(len(table), device="cuda") % 101)[:, None])
        ids = torch.tensor([0, 5, len(table) - 1, 1 << 25], dtype=torch.int32, device="cuda")
        y = torch.empty(4, 65, dtype=torch.int8, device="cuda")
        gather(ids, table, y)
        return {"right": torch.equal(y, table[ids.long()]), "elements": table.numel()}

    for one in (elementwise, one_row, softmaxes, tall, gathered):
        rows.check(f"beyond 2^31: {one.__name__}", one)
        torch.cuda.empty_cache()


def awkward(rows: Rows) -> None:
    """Bases off by one element, odd pitches, strides that go backwards or stand still; NaN all around."""
    for dtype in (F32, BF):
        for odd in (False, True):
            for n in (1, 7, 1000, 4099):

                def row_program(dtype: torch.dtype = dtype, odd: bool = odd, n: int = n) -> bool:
                    x = inside(whole(133, n, dtype=dtype), odd=odd)
                    y = inside(torch.empty(133, n, dtype=dtype, device="cuda"), odd=not odd)
                    poisoned(y)
                    shifted(x, y)
                    right = torch.equal(y, x + 1)
                    return right and frame_untouched(y)

                rows.check(f"shifted/{dtype}/133x{n}/{'odd' if odd else 'even'}".replace("torch.", ""), row_program)

    def product() -> bool:
        good = True
        for m, n, k in ((257, 513, 1031), (64, 1, 7), (1, 129, 65)):
            x, w = inside(whole(m, k, dtype=BF), odd=True), inside(whole(k, n, dtype=BF), odd=True)
            y = inside(torch.empty(m, n, dtype=BF, device="cuda"), odd=True)
            poisoned(y)
            linear(x, w, None, y)
            good = good and torch.equal(y, (x.double() @ w.double()).float().to(BF)) and frame_untouched(y)
        return good

    rows.check("products with odd bases and pitches", product)

    def still() -> bool:
        x = torch.arange(64.0, device="cuda")[None].expand(33, 64)
        y = torch.full((33, 64), float("nan"), device="cuda")
        scaled(x, y)
        turned = inside(whole(64, 33)).T
        z = torch.full((33, 64), float("nan"), device="cuda")
        scaled(turned, z)
        every = inside(whole(33, 128))[:, ::2]
        v = torch.full((33, 64), float("nan"), device="cuda")
        scaled(every, v)
        return torch.equal(y, x * 2) and torch.equal(z, turned * 2) and torch.equal(v, every * 2)

    rows.check("strides of 0, turned, every other element", still)


def empty(rows: Rows) -> None:
    """Extents of 0, one after the other."""

    def rows_of() -> bool:
        good = True
        for m, n in ((0, 31), (31, 0), (0, 0)):
            y = torch.empty(m, n, device="cuda")
            softmax(torch.empty(m, n, device="cuda"), y)
            good = good and y.shape == (m, n)
        return good

    def products() -> bool:
        good = True
        for m, n, k in ((0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0), (300, 520, 0)):
            y = torch.full((m, n), float("nan"), dtype=BF, device="cuda")
            linear(whole(m, k, dtype=BF), whole(k, n, dtype=BF), None, y)
            good = good and bool((y == 0).all())
        return good

    def queries() -> bool:
        q, k = torch.randn(1, 2, 0, 64, device="cuda").to(BF), torch.randn(1, 2, 77, 64, device="cuda").to(BF)
        y = attention(q, k, k)
        return y.shape == q.shape

    for one in (rows_of, products, queries):
        rows.check(f"empty: {one.__name__}", one)


def overlapping(rows: Rows) -> None:
    """Outputs on inputs: the same view, shifted either way, turned, interleaved."""
    base = whole(130, 130)

    def one(name: str, x: Any, y: Any) -> None:
        def run() -> bool:
            memory = base.clone()
            source, out = x(memory), y(memory)
            want = memory.clone()
            y(want).copy_(source * 2)
            scaled(source, out)
            bound = memory.clone()
            call = scaled.bind(x(bound), y(bound))
            bound.copy_(base)
            call()
            return torch.equal(memory, want) and torch.equal(bound, want)

        rows.check(f"overlap: {name}", run)

    one("one view", lambda m: m, lambda m: m)
    one("a row down", lambda m: m[:-1], lambda m: m[1:])
    one("a row up", lambda m: m[1:], lambda m: m[:-1])
    one("a column right", lambda m: m[:, :-1], lambda m: m[:, 1:])
    one("turned", lambda m: m.T, lambda m: m)
    one("halves", lambda m: m[:65], lambda m: m[65:])
    one("every other column", lambda m: m[:, ::2], lambda m: m[:, 1::2])

    def rows_in_place() -> Row:
        x = torch.randn(4096, 4096, device="cuda")
        want = torch.softmax(x, 1)
        before = x.clone()
        right = True
        for _ in range(3):  # the first call, the one that is remembered, the short way
            x.copy_(before)
            softmax(x, x)
            right = right and bool(((x - want).abs() <= 1e-6).all())
        apart, there = torch.empty_like(x), before.clone()
        flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
        softmax(there, apart)
        sides = {"in place": softmax.bind(there, there), "apart": softmax.bind(before, apart)}
        samples = interleaved(sides, 30, flush)
        plans = [v.plan for v in softmax.variants if "same(X, Y)" in v.record.machine]
        return {"right": right and bool(plans), "us": {s: median(v) for s, v in samples.items()}, "plan": plans[:1]}

    rows.check("overlap: softmax in place", rows_in_place)


def beside(rows: Rows) -> None:
    """Parts of arrays whose neighbours are NaN."""

    def parts() -> bool:
        start = torch.tensor([0, 3, 3, 90, 50], device="cuda", dtype=torch.int32)
        stop = torch.tensor([3, 3, 60, 100, 49], device="cuda", dtype=torch.int32)
        x = inside(whole(100, 33), odd=True)
        x[60:90] = float("nan")
        y = inside(torch.empty(5, 33, device="cuda"), odd=True)
        poisoned(y)
        ranges(start, stop, x, y)
        pairs = zip(start.tolist(), stop.tolist(), strict=True)
        return torch.equal(y, torch.stack([x[a:b].sum(0) for a, b in pairs])) and frame_untouched(y)

    def keys() -> bool:
        q = inside(torch.randn(1, 2, 77, 64, device="cuda").to(BF))
        k, v = (inside(torch.randn(1, 2, 130, 64, device="cuda").to(BF)) for _ in range(2))
        y = inside(torch.empty(1, 2, 77, 64, dtype=BF, device="cuda"))
        poisoned(y)
        attention(q, k, v, y)
        want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
        return bool(((y.float() - want).abs() <= 0.02).all()) and frame_untouched(y)

    for one in (parts, keys):
        rows.check(f"NaN beside: {one.__name__}", one)


def main(out: str) -> None:
    torch.manual_seed(2)
    rows = Rows()
    report: Row = {"experiment": "edges", **where_and_how(__doc__)}
    report["treadle"], report["checks"] = td.__version__, rows.rows
    for part in (awkward, empty, overlapping, beside, large):
        part(rows)
        pathlib.Path(out).write_text(json.dumps(report))
    wrong = [r for r in rows.rows if not r["right"]]
    print(f"{len(rows.rows)} checks, {len(wrong)} wrong")
    for row in wrong:
        print("WRONG", row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
