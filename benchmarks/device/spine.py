"""The spine on a Hopper GPU: every plan right, then times beside cuBLAS, cuDNN and a copy.

`python benchmarks/device/spine.py OUT.json [check] [time] [PART ...]` calls kernels as a user does: they plan, are
judged and compiled there; parts are others, rows, linear, gated, attention, host (none: all). *Method*: integer-exact
where sums are exact, else a derived componentwise bound against float64; NaN around every operand; outputs poisoned
before each run; times by events, interleaved, the L2 overwritten before each sample, random data, medians.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
import traceback
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import (
    DEVICE,
    Checks,
    clock,
    described,
    exactly,
    first_choice,
    host_us,
    inside,
    interleaved,
    median,
    ran_as,
    where_and_how,
    within,
)
from spine_kernels import gather, ranges, same

import treadle as td
from treadle.lib.attention import attention
from treadle.lib.linear import gated_linear, linear
from treadle.lib.norms import layernorm
from treadle.lib.rows import softmax

BF, F32 = torch.bfloat16, torch.float32
EPS = {BF: 2.0**-8, F32: 2.0**-24}
"""A rounding to the format, relative."""


def integers(*shape: int, most: int = 4, dtype: torch.dtype = BF) -> torch.Tensor:
    return torch.randint(-most, most + 1, shape, device=DEVICE).to(dtype)


def normal(*shape: int, dtype: torch.dtype = BF, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device=DEVICE) * scale).to(dtype)


# ---- K1


ROWS = ((37, 1), (300, 31), (133, 1000), (65, 4099), (40, 32768), (0, 31), (4096, 4096), (1, 32768))
ROWS += ((1100, 8192), (600, 32768), (133, 32760), (0, 32768), (700, 16384))


def check_rows(checks: Checks) -> None:
    """Softmax of rows of any length."""
    for dtype in (F32, BF):
        for rows, n in ROWS:
            x = inside(normal(rows, n, dtype=dtype, scale=3.0), odd=n in (31, 4099))
            y = inside(torch.empty(rows, n, dtype=dtype, device=DEVICE), odd=n in (31, 4099))
            want = torch.softmax(x.double(), 1)
            reach = (x.double() - x.double().amax(1, keepdim=True)).abs() if rows else want
            # Each exponential: rounded difference and argument, 2 ulp; the sum: n roundings; the quotient: 2 ulp.
            relative = 2.0**-24 * (2 * reach + 2 * (reach.amax() if rows else 0) + n + 16) + EPS[dtype]
            bound = want * relative + 2.0**-126
            checks.call(
                f"rows/{dtype}/{rows}x{n}".replace("torch.", ""), softmax, (x,), y, within(want, bound), repeats=3
            )

    for rows, n in ((300, 32), (133, 1000), (65, 4099), (4096, 8192), (517, 16384), (1, 32768)):
        x, scale, shift = inside(normal(rows, n, scale=3.0), odd=n == 4099), inside(normal(1, n))[0], normal(n)
        y = inside(torch.empty(rows, n, dtype=BF, device=DEVICE), odd=n == 4099)
        wide = x.double()
        want = torch.nn.functional.layer_norm(wide, (n,), scale.double(), shift.double())
        # The standardised row off by some roundings of n terms, of the row's size; one rounding of the result.
        size = (wide - wide.mean(1, keepdim=True)).abs() / wide.std(1, keepdim=True, unbiased=False) + 1.0
        bound = (
            want.abs() * EPS[BF] + size * scale.double().abs() * (n + 16) * 2.0**-24 + shift.double().abs() * 2.0**-22
        )
        checks.call(f"layernorm/bf16/{rows}x{n}", layernorm, (x, scale, shift), y, within(want, bound), repeats=3)


# ---- K2


def linear_bound(x: torch.Tensor, w: torch.Tensor, bias: Any, want: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """One rounding of the result, k + 2 of the f32 state (tensor cores truncate: twice that), the function's own."""
    size = x.double().abs() @ w.double().abs() + (0 if bias is None else bias.double().abs())
    return want.abs() * EPS[BF] + size * 1.13 * (x.shape[1] + 2) * 2.0**-23 + 4e-7 * before.abs() + 1e-30


def check_linear(checks: Checks) -> None:
    """Storage orders, ragged sizes, with and without bias; the activation within the derived bound."""
    shapes = [(257, 520, 136), (128, 256, 64), (1, 8, 8), (129, 264, 72), (300, 1000, 4096), (2049, 4104, 264)]
    for m, n, k in shapes:
        values = integers(m, k), integers(k, n), integers(n, most=9)
        exact = values[0].double() @ values[1].double()
        for flip_x in (False, True):
            for flip_w in (False, True):
                if (flip_x or flip_w) and (m, n, k) in shapes[1:3]:
                    continue
                for bias in (None, values[2]):
                    x, w = inside(values[0], flip=flip_x), inside(values[1], flip=flip_w)
                    y = inside(torch.empty(m, n, dtype=BF, device=DEVICE))
                    want = (exact if bias is None else exact + bias.double()).float().to(BF)
                    order = f"{'km' if flip_x else 'mk'}-{'nk' if flip_w else 'kn'}{'' if bias is None else '-bias'}"
                    name = f"linear/bf16/{m}x{n}x{k}/{order}"
                    many = 20 if (m, n, k) == shapes[0] else 2
                    checks.call(name, linear, (x, w, bias), y, exactly(want), repeats=many)
    for m, n, k in ((257, 513, 1031), (65, 31, 7), (0, 8, 8), (8, 8, 0), (1, 1, 1)):
        x, w, bias = integers(m, k), integers(k, n), integers(n, most=9)
        want = (x.double() @ w.double() + bias.double()).float().to(BF)
        y = inside(torch.empty(m, n, dtype=BF, device=DEVICE), odd=True)
        args = (inside(x, odd=True), inside(w, odd=True), bias)
        checks.call(f"linear/bf16/{m}x{n}x{k}/misaligned", linear, args, y, exactly(want), repeats=2)
    for m, n, k in ((257, 513, 1031), (512, 512, 512), (1000, 64, 300)):
        x, w = integers(m, k, dtype=F32), integers(k, n, dtype=F32)
        want = (x.double() @ w.double()).float()
        y = inside(torch.empty(m, n, dtype=F32, device=DEVICE))
        checks.call(f"linear/f32/{m}x{n}x{k}", linear, (inside(x), inside(w), None), y, exactly(want), repeats=3)
    for m, n, k in ((257, 520, 136), (300, 1000, 4096), (1024, 1024, 1024)):
        x, w, bias = inside(normal(m, k)), inside(normal(k, n, scale=k**-0.5)), normal(n)
        before = x.double() @ w.double() + bias.double()
        want = torch.nn.functional.gelu(before)
        y = inside(torch.empty(m, n, dtype=BF, device=DEVICE))
        judge = within(want, linear_bound(x, w, bias, want, before))
        checks.call(f"linear-gelu/bf16/{m}x{n}x{k}", linear, (x, w, bias), y, judge, repeats=3, act=td.gelu)


# ---- two products of the same rows


def check_gated(checks: Checks) -> None:
    """The kernel nobody prepared for."""
    m, n, k = 257, 513, 1031
    for dtype, odd in ((BF, False), (BF, True), (F32, False)):
        name = f"{'bf16' if dtype is BF else 'f32'}/{m}x{n}x{k}/{'odd' if odd else 'even'}-pitch"
        x, g, u = (integers(*s, most=1, dtype=dtype) for s in ((m, k), (k, n), (k, n)))
        want = ((x.double() @ g.double()) * (x.double() @ u.double())).float().to(dtype)
        args = tuple(inside(a, odd=odd) for a in (x, g, u))
        y = inside(torch.empty(m, n, dtype=dtype, device=DEVICE), odd=odd)
        checks.call(f"gated-exact/{name}", gated_linear, args, y, exactly(want), repeats=20, act=same)
        x, g, u = normal(m, k, dtype=dtype), *(normal(k, n, dtype=dtype, scale=k**-0.5) for _ in range(2))
        xs, gs, us = x.double(), g.double(), u.double()
        a, b = xs @ gs, xs @ us
        want = torch.nn.functional.silu(a) * b
        slack = 1.13 * (k + 2) * 2.0**-23
        da, db = slack * (xs.abs() @ gs.abs()), slack * (xs.abs() @ us.abs())
        # |silu'| <= 1.1; the function itself within a few ulp of its argument's size.
        bound = want.abs() * EPS[dtype] + 1.1 * da * (b.abs() + db) + (a.abs() + da) * db
        bound = bound + 1e-6 * a.abs() * b.abs() + 1e-30
        args = tuple(inside(v, odd=odd) for v in (x, g, u))
        checks.call(f"gated-silu/{name}", gated_linear, args, y, within(want, bound), repeats=3)


# ---- K3


def attention_oracle(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and a componentwise bound on the error of a bf16 kernel with f32 state."""
    qd, kd, vd = q.double(), k.double(), v.double()
    scale = q.shape[-1] ** -0.5
    s = qd @ kd.transpose(-1, -2) * scale
    size = qd.abs() @ kd.abs().transpose(-1, -2) * scale
    if causal:
        sq, sk = s.shape[-2:]
        seen = torch.ones(sq, sk, dtype=torch.bool, device=DEVICE).tril(sk - sq)
        s = s.masked_fill(~seen, float("-inf"))
        size = size.masked_fill(~seen, 0.0)
    p = torch.softmax(s, -1)
    want = p @ vd
    # Scores: d roundings of products that truncate; weights: rounded to bf16, and a power of a score that is off.
    off = size.amax(-1, keepdim=True) * (q.shape[-1] + 8) * 2.0**-22 + k.shape[-2] * 2.0**-22
    bound = (p @ vd.abs()) * (2.0**-8 + 2 * off) + want.abs() * 2.0**-8 + 2.0**-100
    return want, bound


def check_attention(checks: Checks) -> None:
    """Head dimensions, ragged and unequal lengths, causal."""
    cases = [(2, 3, 128, 128), (1, 2, 200, 333), (2, 2, 77, 77), (1, 1, 1, 5), (1, 3, 256, 640), (1, 2, 100, 356)]
    for d in (64, 128):
        for causal in (False, True):
            for b, h, sq, sk in (*cases, (1, 2, 300, 172)):
                q, k, v = (inside(normal(b, h, s, d)) for s in (sq, sk, sk))
                y = inside(torch.empty(b, h, sq, d, dtype=BF, device=DEVICE))
                want, bound = attention_oracle(q, k, v, causal)
                name = f"attention{'-causal' if causal else ''}/bf16/b{b}-h{h}-s{sq}-{sk}-d{d}"
                many = 20 if (sq, sk) == (200, 333) else 2
                checks.call(name, attention, (q, k, v), y, within(want, bound), repeats=many, causal=causal)


# ---- whatever has no family of its own


def check_others(checks: Checks) -> None:
    """Gathers, ranges that are loaded, arguments that overlap, outputs left out."""
    ids = torch.randint(0, 1000, (300,), device=DEVICE, dtype=torch.int32)
    table = inside(normal(1000, 65, dtype=F32), odd=True)
    y = inside(torch.empty(300, 65, dtype=F32, device=DEVICE), odd=True)
    checks.call("gather/f32/300x65", gather, (ids, table), y, exactly(table[ids.long()]), repeats=2)
    start = torch.tensor([0, 3, 3, 90, 50], device=DEVICE, dtype=torch.int32)
    stop = torch.tensor([3, 3, 90, 100, 49], device=DEVICE, dtype=torch.int32)
    x = inside(integers(100, 33, dtype=F32), odd=True)
    want = torch.stack([x[a:b].sum(0) for a, b in zip(start.tolist(), stop.tolist(), strict=True)])
    y = inside(torch.empty(5, 33, dtype=F32, device=DEVICE), odd=True)
    checks.call("ranges/f32/5x33", ranges, (start, stop, x), y, exactly(want), repeats=2)
    both = normal(5, 40, dtype=F32)
    want, given = torch.softmax(both.double(), 1), both.clone()
    softmax(given, given)
    checks.rows.append({"case": "in place", "right": bool(((given.double() - want).abs() <= 1e-6).all())})
    made = softmax(both)
    good = (
        (made.is_cuda if DEVICE == "cuda" else True)
        and made.shape == both.shape
        and bool(((made.double() - want).abs() <= 1e-6).all())
    )
    again = softmax(both)
    checks.rows.append({"case": "output left out", "right": good and torch.equal(made, again)})
    if DEVICE != "cuda":
        return
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = softmax(both)
    side.synchronize()
    checks.rows.append({"case": "on another stream", "right": torch.equal(made, late)})
    print(checks.rows[-3:], flush=True)


# ---- times


def row_of(
    name: str, samples: dict[str, list[float]], peers: tuple[str, ...], variant: Any, **more: Any
) -> dict[str, Any]:
    """A case's row: medians, ratio to the fastest peer, raw samples."""
    ours = median(samples["ours"])
    best = min(peers, key=lambda p: median(samples[p]))
    row = {
        "case": name,
        "ours_us": ours,
        "peer": best,
        "peer_us": median(samples[best]),
        "ratio": median(samples[best]) / ours,
        **described(variant),
        **more,
        "samples_us": samples,
    }
    shown = {
        k: (round(v, 3) if isinstance(v, float) else v) for k, v in row.items() if k not in ("samples_us", "notes")
    }
    print(shown, flush=True)
    return row


def time_copy(flush: torch.Tensor) -> dict[str, Any]:
    """The copy bandwidth: 2 GiB to 2 GiB."""
    a = torch.randint(0, 255, (2 << 30,), dtype=torch.uint8, device=DEVICE)
    b = torch.empty_like(a)
    samples = interleaved({"copy": lambda: b.copy_(a)}, 30, flush)["copy"]
    return {"case": "copy 2 GiB", "us": median(samples), "bytes_per_s": 2 * a.numel() / median(samples) * 1e6}


def time_linear(flush: torch.Tensor, rounds: int) -> list[dict[str, Any]]:
    """Whole K2 (bias, gelu, bf16 output) against torch.mm alone."""
    rows: list[dict[str, Any]] = []
    for size in (2048, 4096, 8192):
        x, w, bias = normal(size, size), normal(size, size, scale=size**-0.5), normal(size)
        y, z, plain = (torch.empty(size, size, dtype=BF, device=DEVICE) for _ in range(3))
        calls = {
            "ours": linear.bind(x, w, bias, y, act=td.gelu),
            "ours without": linear.bind(x, w, None, plain),
            "torch.mm": lambda x=x, w=w, z=z: torch.mm(x, w, out=z),
        }
        samples = interleaved(calls, rounds if size < 8192 else rounds // 2, flush)
        name = f"linear-bias-gelu/bf16/{size}x{size}x{size}"
        row = row_of(name, samples, ("torch.mm",), ran_as(linear, (x, w, bias, y), {"act": td.gelu}))
        row["product_alone_us"] = median(samples["ours without"])
        row["product_alone_ratio"] = row["peer_us"] / row["product_alone_us"]
        row["tflops"] = 2 * size**3 / row["ours_us"] / 1e6
        print("  product alone", row["product_alone_us"], row["product_alone_ratio"], flush=True)
        want = torch.nn.functional.gelu(z.double() + bias.double())
        row["agrees"] = bool(((y.double() - want).abs() <= 0.02 * want.abs() + 0.02).all())
        rows.append(row)
    return rows


def time_attention(flush: torch.Tensor, rounds: int) -> list[dict[str, Any]]:
    """K3 against SDPA pinned to cuDNN."""
    rows: list[dict[str, Any]] = []
    sdpa = torch.nn.functional.scaled_dot_product_attention
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        for d in (128, 64):
            for causal in (False, True):
                q, k, v = (normal(4, 16, 4096, d) for _ in range(3))
                y = torch.empty_like(q)
                calls = {
                    "ours": attention.bind(q, k, v, y, causal=causal),
                    "cudnn": lambda q=q, k=k, v=v, c=causal: sdpa(q, k, v, is_causal=c),
                }
                samples = interleaved(calls, rounds, flush)
                name = f"attention{'-causal' if causal else ''}/bf16/b4-h16-s4096-d{d}"
                row = row_of(name, samples, ("cudnn",), ran_as(attention, (q, k, v, y), {"causal": causal}))
                row["tflops"] = 4 * 4 * 16 * 4096**2 * d * (0.5 if causal else 1.0) / row["ours_us"] / 1e6
                row["relative_2norm_to_cudnn"] = float(
                    (y.double() - calls["cudnn"]().double()).norm() / y.double().norm()
                )
                rows.append(row)
    return rows


def time_rows(flush: torch.Tensor, rounds: int, bandwidth: float) -> list[dict[str, Any]]:
    """K1 against a copy of the same array, and against the bandwidth of the large copy."""
    rows: list[dict[str, Any]] = []
    for dtype in (F32, BF):
        for n in (1024, 4096, 8192, 32768):
            x = normal(4096, n, dtype=dtype)
            y, z, s = (torch.empty_like(x) for _ in range(3))
            calls = {
                "ours": softmax.bind(x, y),
                "copy": lambda x=x, z=z: z.copy_(x),
                "torch": lambda x=x, s=s: torch.softmax(x, 1, out=s),
            }
            late = ran_as(softmax, (x, y), {}).record.meta["late_rejections"]
            if late:
                calls["rejected late"] = first_choice(softmax, (x, y), {})
            samples = interleaved(calls, rounds, flush)
            name = f"softmax/{'bf16' if dtype is BF else 'f32'}/4096x{n}"
            share = 2 * x.numel() * x.element_size() / median(samples["ours"]) * 1e6 / bandwidth
            row = row_of(name, samples, ("copy",), ran_as(softmax, (x, y), {}), copy_share=share)
            row["torch_us"] = median(samples["torch"])
            if late:
                row["rejected_late_us"] = median(samples["rejected late"])
                print("  rejected late:", row["rejected_late_us"], row["notes"], flush=True)
            rows.append(row)
    return rows


def time_layernorm(flush: torch.Tensor, rounds: int, bandwidth: float) -> list[dict[str, Any]]:
    """As `time_rows`, with scale and shift, against torch's."""
    rows: list[dict[str, Any]] = []
    for n in (1024, 4096, 8192, 32768):
        x, scale, shift = normal(4096, n, dtype=BF), normal(n, dtype=BF), normal(n, dtype=BF)
        y, z = torch.empty_like(x), torch.empty_like(x)
        calls = {
            "ours": layernorm.bind(x, scale, shift, y),
            "copy": lambda x=x, z=z: z.copy_(x),
            "torch": lambda x=x, n=n, a=scale, b=shift: torch.nn.functional.layer_norm(x, (n,), a, b),
        }
        samples = interleaved(calls, rounds, flush)
        share = 2 * x.numel() * x.element_size() / median(samples["ours"]) * 1e6 / bandwidth
        ran = ran_as(layernorm, (x, scale, shift, y), {})
        row = row_of(f"layernorm/bf16/4096x{n}", samples, ("copy",), ran, copy_share=share)
        row["torch_us"] = median(samples["torch"])
        rows.append(row)
    return rows


def time_host() -> list[dict[str, Any]]:
    """What a call costs the host: bound, generic, generic with the output left out."""
    x = normal(64, 1024, dtype=F32)
    y = torch.empty_like(x)
    bound = softmax.bind(x, y)
    q = normal(1, 1, 128, 64)
    o = torch.empty_like(q)
    cases = {
        "bound": bound,
        "generic": lambda: softmax(x, y),
        "generic, output left out": lambda: softmax(x),
        "generic, three operands": lambda: attention(q, q, q, o),
        "torch.softmax(out=)": lambda: torch.softmax(x, 1, out=y),
    }
    rows = []
    for name, call in cases.items():
        samples = host_us(call)
        rows.append({"case": f"host/{name}", "us": median(samples), "samples_us": samples})
        print(name, round(median(samples), 2), "us", flush=True)
    return rows


def main(out: str, what: list[str]) -> None:
    torch.manual_seed(1)
    only = set(what) - {"check", "time"}
    report: dict[str, Any] = {
        "experiment": "spine",
        **where_and_how(__doc__),
        "cudnn": torch.backends.cudnn.version(),
    }
    began = time.time()

    def save() -> None:
        report["seconds"] = time.time() - began
        pathlib.Path(out).write_text(json.dumps(report, default=str))

    if "check" in what:
        checks = Checks()
        report["checks"] = checks.rows
        for one in (check_others, check_rows, check_linear, check_gated, check_attention):
            if only and one.__name__.removeprefix("check_") not in only:
                continue
            try:
                one(checks)
            except Exception:
                checks.rows.append({"case": one.__name__, "right": False, "error": traceback.format_exc()[-1500:]})
                print(traceback.format_exc(), flush=True)
            print(one.__name__, f"{time.time() - began:.1f} s", flush=True)
            save()
    if "time" in what:
        flush = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
        report["times"] = rows = [time_copy(flush)]
        bandwidth = rows[0]["bytes_per_s"]
        print(rows[0], flush=True)
        for name, part in (
            ("linear", lambda: time_linear(flush, 60)),
            ("attention", lambda: time_attention(flush, 40)),
            ("rows", lambda: time_rows(flush, 60, bandwidth)),
            ("rows", lambda: time_layernorm(flush, 60, bandwidth)),
            ("host", time_host),
        ):
            if only and name not in only:
                continue
            try:
                rows += part()
            except Exception:
                rows.append({"case": "failed", "error": traceback.format_exc()[-1500:]})
                print(traceback.format_exc(), flush=True)
            report["clock_after"] = clock()
            save()
            print(f"{time.time() - began:.1f} s", flush=True)
    wrong = [r for r in report.get("checks", ()) if not r["right"]]
    print(f"{len(report.get('checks', ()))} checks, {len(wrong)} wrong")
    for row in wrong:
        print("WRONG", {k: v for k, v in row.items() if k not in ("compile_ms", "notes")}, flush=True)
    save()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["check", "time"])
