"""Measures every expansion: `python -m benchmarks.accuracy.measure [--samples 24] [--only exp,log] [--out FILE]`.

f32, classes `2ulp`, `fast` and `exact`: 2^samples seeded arguments a function. f64: 2^(samples - 6). f16 and bf16:
every argument (pow: 2^(samples - 4) pairs). The samples are sifted in long double, the worst 128 and 1024 at random
computed by mpmath, which gives the reported number. An ulp is the distance of neighbouring numbers of the format at
the exact result, that of the subnormal ones below the normal ones.

What is measured are the expansions on NumPy's IEEE arithmetic, of which compiled code has the same bits
(tests/targets), and class `reference`: what the interpreter computes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
from benchmarks.accuracy.domains import FUNCTIONS, NORMAL_ONLY, Array, Long, Tried
from rich.progress import Progress

from treadle.dtype.convert import convert
from treadle.dtype.formats import DType, bf16, f16, f32, f64
from treadle.evaluate import scalar
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.math import table
from treadle.math.numpy_ops import apply
from treadle.math.numpy_wide import apply_wide

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
CHUNK = 1 << 17
WORST, RANDOM = 128, 1024
Compute = Callable[..., Array]


def ulp_of(want: Array, d: DType) -> Array:
    """The step of `d` at the numbers `want`."""
    size = np.maximum(np.abs(want), Long(d.smallest))
    exponent = np.frexp(size)[1].astype(np.int64) - 1
    return np.ldexp(Long(1), np.maximum(exponent, d.min_exponent) - d.mantissa)


def distance(got: Array, want: Array, d: DType) -> Array:
    """In ulp of the exact result; what lies beyond the largest number must have become infinite or it."""
    top = Long(float(d.finite_max))
    beyond = np.abs(want) > top
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(Long) - want) / ulp_of(np.where(beyond, 1, want), d)
        off = np.where(beyond, np.where(np.abs(got.astype(Long)) >= top, 0, np.inf), off)
    return np.where(np.isnan(off), np.inf, off).astype(np.float64)


def exact_distance(tried: Tried, got: float, arguments: tuple[float, ...], d: DType) -> float:
    """The same by mpmath."""
    with mpmath.workdps(tried.digits):
        want = tried.exact(*(mpmath.mpf(v) for v in arguments))
        if abs(want) > mpmath.mpf(float(d.finite_max)):
            return 0.0 if abs(got) >= float(d.finite_max) else float("inf")
        exponent = int(mpmath.frexp(want)[1]) - 1 if want else d.min_exponent
        return float(abs(mpmath.mpf(got) - want) / mpmath.mpf(2) ** (max(exponent, d.min_exponent) - d.mantissa))


@dataclass
class Error:
    """What is known of the error so far. Candidates for the worst are (rough error, arguments, result)."""

    d: DType
    samples: int = 0
    above_half: int = 0
    above_one: int = 0
    worst: list[tuple[float, tuple[float, ...], float]] = field(default_factory=list[Any])
    checked: int = 0

    def add(self, tried: Tried, arguments: tuple[Array, ...], got: Array, keep: Array | None = None) -> None:
        """Takes a chunk of results; `keep` selects the samples that count."""
        with np.errstate(all="ignore"):
            want = tried.near(*(a.astype(Long) for a in arguments))
        counted = np.isfinite(want) & (
            np.isfinite(got.astype(np.float64)) | (np.abs(want) > Long(float(self.d.finite_max)))
        )
        if keep is not None:
            counted &= keep(want)
        off = distance(got, want, self.d)
        lost = ~counted & ~(np.isnan(want) & np.isnan(got.astype(np.float64))) & ~(np.isinf(want))
        off = np.where(counted, off, np.where(lost & np.isfinite(want) & (keep is None), np.inf, 0))
        self.samples += int(counted.sum())
        self.above_half += int((off > 0.5000001).sum())
        self.above_one += int((off > 1).sum())
        for i in np.argpartition(off, -min(8, len(off)))[-8:]:
            self.worst.append((float(off[i]), tuple(float(a[i]) for a in arguments), float(got[i])))
        self.worst = sorted(self.worst, reverse=True)[:WORST]

    def confirm(self, tried: Tried, arguments: tuple[Array, ...], got: Array) -> None:
        """Random samples by mpmath: the sieve must not have missed anything."""
        for i in range(0, len(got), max(1, len(got) // RANDOM)):
            if not np.isfinite(got[i].astype(np.float64)):
                continue
            given = tuple(float(a[i]) for a in arguments)
            self.worst.append((exact_distance(tried, float(got[i]), given, self.d), given, float(got[i])))
            self.checked += 1

    def summary(self, tried: Tried) -> dict[str, Any]:
        """The largest error by mpmath, where, and how many are above half an ulp and one."""
        found = [(exact_distance(tried, got, at, self.d), at) for _, at, got in self.worst[: 2 * WORST]]
        ulp, at = max(found)
        return {
            "ulp": round(ulp, 5),
            "at": list(at),
            "samples": self.samples,
            "not_nearest": self.above_half,
            "above_1_ulp": self.above_one,
            "by_mpmath": self.checked + len(found),
        }


def inside(d: DType) -> Callable[[Array], Array]:
    """Results that are normal numbers, with a step to spare."""
    return lambda want: (np.abs(want) > 2.0 ** (d.min_exponent + 1)) & (np.abs(want) < float(d.finite_max) / 2)


def computers(name: str) -> Iterator[tuple[str, DType, Compute]]:
    """(class, dtype of arguments and results, what computes) for every way that a function is computed."""
    row = table.FUNCTIONS[name]
    for accuracy in dict.fromkeys(("2ulp", *row.classes)):
        chosen = row.classes[accuracy]
        if accuracy != "2ulp" and chosen is row.classes["2ulp"]:
            continue
        yield accuracy, f32, lambda *x, e=chosen.expand: apply(e, *x)
        for half in (f16, bf16):
            yield (
                accuracy,
                half,
                lambda *x, e=chosen.expand, h=half: convert(apply(e, *(convert(v, h, f32) for v in x)), f32, h),
            )
    if row.picked is not None:
        yield "picked", f32, lambda *x, e=row.picked.expand: apply(e, *x)
    if row.wide is not None:
        wide = row.wide.expand
        yield "exact", f32, lambda *x: convert(apply_wide(wide, *x), f64, f32)
        yield "2ulp", f64, lambda *x: apply_wide(wide, *x)
    if name in ELEMENTWISE:
        for d in (f32, f64, f16, bf16):
            yield "reference", d, lambda *x, d=d: scalar.apply(name, d, *x)


def chunks(name: str, tried: Tried, d: DType, samples: int) -> Iterator[tuple[Array, ...]]:
    """The arguments, chunk by chunk."""
    if d.bits == 16 and name != "pow":
        yield (np.arange(1 << 16, dtype=np.uint16).view(d.numpy),)
        return
    random = np.random.default_rng([sum(name.encode()), d.bits, d.mantissa])
    total = 1 << (samples if d == f32 else samples - 6 if d == f64 else samples - 4)
    for start in range(0, total, CHUNK):
        draw = tried.draw_wide if d == f64 else tried.draw
        drawn = draw(random, min(CHUNK, total - start))
        with np.errstate(over="ignore"):
            parts = drawn if name == "pow" else (drawn,)
            yield tuple(
                np.asarray(p).astype(np.float32).astype(d.numpy) if d.bits == 16 else p.astype(d.numpy) for p in parts
            )


def measure(names: list[str], samples: int) -> dict[str, Any]:
    """dtype -> function -> class -> summary."""
    result: dict[str, Any] = {d.name: {} for d in (f32, f64, f16, bf16)}
    work = [(n, a, d, c) for n in names for a, d, c in computers(n)]
    sizes = {f32: 1 << samples, f64: 1 << (samples - 6)}
    with Progress() as progress:
        bar = progress.add_task("measuring", total=sum(sizes.get(d, 1 << 16) for _, _, d, _ in work))
        for name, accuracy, d, compute in work:
            progress.update(bar, description=f"{name} {accuracy} {d}")
            tried, error = FUNCTIONS[name], Error(d)
            keep = inside(d) if (name, accuracy) in NORMAL_ONLY else None
            last: tuple[Array, ...] = ()
            for last in chunks(name, tried, d, samples):
                error.add(tried, last, compute(*last), keep)
                progress.advance(bar, len(last[0]) if d in sizes or name != "pow" else 0)
            if keep is None:
                error.confirm(tried, last, compute(*last))
            result[d.name].setdefault(name, {})[accuracy] = error.summary(tried)
    return result


def main() -> int:
    """Writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=24, help="log2 of the f32 samples a function and class")
    parser.add_argument("--only", default="", help="functions, separated by commas")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / f"{datetime.date.today()}-accuracy.json")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(FUNCTIONS)
    found = measure(names, args.samples)
    known = {
        "experiment": "accuracy of the functions",
        "method": " ".join((__doc__ or "").split()),
        "samples": args.samples,
    }
    args.out.write_text(json.dumps({**known, "measured": found}, indent=1) + "\n")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
