"""Tensors on the device whose neighbours are poisoned, calls that are checked, and times that can be compared."""

from __future__ import annotations

import hashlib
import json
import pathlib
import random
import statistics
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from treadle.driver.cuda_variant import CudaBound
from treadle.driver.variants import load

Call = Callable[[], Any]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""Without a GPU the checks run on the CPU's plans: a trial of this script, no result."""


def synchronize() -> None:
    """Waits for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def inside(values: torch.Tensor, *, odd: bool = False, flip: bool = False) -> torch.Tensor:
    """`values` as a view into a larger tensor of NaN: rows above and below, columns left and right.

    `odd`: with a pitch and an offset that no wide access likes; else both are multiples of 16 bytes. `flip`: the
    second last axis is the contiguous one.
    """
    if flip:
        return inside(values.transpose(-1, -2), odd=odd).transpose(-1, -2)
    *outer, rows, columns = values.shape
    pad = 16 // values.element_size()
    width = -(-columns // pad) * pad + 2 * pad + (1 if odd else 0)
    left = pad + (1 if odd else 0)
    base = torch.full((*outer, rows + 4, width), float("nan"), dtype=values.dtype, device=DEVICE)
    view = base[..., 2 : rows + 2, left : left + columns]
    view.copy_(values)
    return view


def frame_untouched(view: torch.Tensor) -> bool:
    """Whether what lies around a view of `inside` still is NaN. Overwrites the view."""
    view.fill_(float("nan"))
    return bool(view._base.isnan().all())


def poisoned(view: torch.Tensor) -> torch.Tensor:
    """The view, NaN everywhere."""
    return view.fill_(float("nan"))


def ran_as(kernel: Any, args: tuple[Any, ...], staged: Mapping[str, Any]) -> Any:
    """The variant that a call runs."""
    special, call = kernel.prepare(args, dict(staged))
    return special._variant(call, special._block(call))


def first_choice(kernel: Any, args: tuple[Any, ...], staged: Mapping[str, Any]) -> Any:
    """A call bound to the plan that is best before anything is compiled, also where its cubin was rejected late."""
    special, call = kernel.prepare(args, dict(staged))
    variant = load(kernel.plan(*args, **staged).record, special.signature)
    return CudaBound(variant.kernel, special._block(call), call.outs)


def described(variant: Any) -> dict[str, Any]:
    """Plan, verdict, hash of the machine text, compile times."""
    found: dict[str, Any] = {"plan": variant.plan, "verdict": variant.verdict["status"]}
    record = getattr(variant, "record", None)
    if record is not None:
        meta = record.meta
        found["machine"] = hashlib.sha256(record.machine.encode()).hexdigest()[:16]
        found["compile_ms"] = {k: round(v * 1e3, 2) for k, v in meta["seconds"].items()}
        for key in ("registers", "late", "late_rejections", "notes"):
            found[key] = meta.get(key)
    return found


class Checks:
    """Rows of checked calls."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def call(
        self,
        case: str,
        kernel: Any,
        args: tuple[Any, ...],
        out: torch.Tensor,
        judge: Callable[[torch.Tensor], dict[str, Any]],
        *,
        repeats: int = 0,
        **staged: Any,
    ) -> None:
        """Runs `kernel(*args, out)`, holds the result against `judge`, looks at its surroundings and repeats."""
        row: dict[str, Any] = {"case": case, "shape": [list(a.shape) for a in args if a is not None]}
        self.rows.append(row)
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                poisoned(out)
                kernel(*args, out, **staged)
                synchronize()
                row["first_call_s"] = round(time.perf_counter() - began, 3)
                row |= described(ran_as(kernel, (*args, out), staged))
            row |= judge(out)
            first, differ = out.clone(), 0
            for _ in range(repeats):
                poisoned(out)
                kernel(*args, out, **staged)
                differ += int(not torch.equal(bits(out), bits(first)))
            row["runs_that_differ"], row["repeats"] = differ, repeats
            row["frame_untouched"] = frame_untouched(out) if out._base is not None else None
            row["right"] = bool(row["right"] and not differ and row["frame_untouched"] is not False)
        except Exception as error:
            row["right"] = False
            row["error"] = f"{type(error).__name__}: {error}"[:1500]
        keys = ("right", "plan", "verdict", "worst_of_bound", "wrong", "error", "first_call_s")
        print(case, {k: row[k] for k in keys if k in row}, flush=True)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits: NaN equals NaN."""
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def exactly(want: torch.Tensor) -> Callable[[torch.Tensor], dict[str, Any]]:
    """Equality."""

    def judge(out: torch.Tensor) -> dict[str, Any]:
        wrong = int((out != want).sum())
        return {"wrong": wrong, "right": wrong == 0}

    return judge


def within(want: torch.Tensor, bound: torch.Tensor) -> Callable[[torch.Tensor], dict[str, Any]]:
    """A componentwise bound on the error; NaN where, and only where, the oracle has it."""

    def judge(out: torch.Tensor) -> dict[str, Any]:
        error = (out.double() - want).abs()
        known = ~want.isnan()
        nan_wrong = int((out.isnan() != want.isnan()).sum())
        worst = float((error[known] / bound[known]).max()) if bool(known.any()) else 0.0
        size = float(want[known].norm())
        relative = float(error[known].norm()) / size if size else 0.0
        return {
            "worst_of_bound": worst,
            "relative_2norm": relative,
            "nan_wrong": nan_wrong,
            "right": worst <= 1.0 and nan_wrong == 0,
        }

    return judge


def interleaved(calls: Mapping[str, Call], rounds: int, flush: torch.Tensor) -> dict[str, list[float]]:
    """Microseconds of each call, by events, in an order that changes, the L2 overwritten before each."""
    for call in calls.values():
        for _ in range(3):
            call()
    synchronize()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(7)
    for _ in range(rounds):
        shuffle.shuffle(order)
        events = []
        for name in order:
            flush.zero_()
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            calls[name]()
            last.record()
            events.append((name, first, last))
        synchronize()
        for name, first, last in events:
            samples[name].append(first.elapsed_time(last) * 1000)
    return samples


def host_us(call: Call, calls: int = 200, rounds: int = 20) -> list[float]:
    """Microseconds of the host for one call, in each of some rounds."""
    found: list[float] = []
    for _ in range(5):
        call()
    for _ in range(rounds):
        synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - began) / calls * 1e6)
    return found


def median(values: list[float]) -> float:
    """The middle."""
    return statistics.median(values)


def clock() -> str:
    """Clock, power, driver, name; empty without a GPU."""
    if DEVICE != "cuda":
        return ""
    query = "clocks.sm,power.draw,driver_version,name"
    return subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    ).stdout.strip()


def where_and_how(method: str | None) -> dict[str, Any]:
    """What a report begins with: where a script runs, on which versions, and how: its docstring says that."""
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu, a trial"
    return {
        "device": device,
        "clock": clock(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "method": method,
    }


def part_by_part(
    out: str, report: dict[str, Any], parts: Mapping[str, Callable[[], object]], wanted: Iterable[str] = ()
) -> None:
    """Runs the parts, those of the names `wanted` where there are any. A part that fails is told and noted among the
    report's `errors`, and the next one runs; the report is written to `out` after each, with the seconds so far.
    """
    began = time.time()
    for name in list(wanted) or parts:
        try:
            parts[name]()
        except Exception:
            report.setdefault("errors", []).append([name, traceback.format_exc()])
            print(traceback.format_exc()[-1500:], flush=True)
        report["seconds"] = round(time.time() - began, 1)
        pathlib.Path(out).write_text(json.dumps(report))
    print("seconds:", report["seconds"], flush=True)
