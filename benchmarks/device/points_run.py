"""Random points of the CUDA families over random region graphs, run on a Hopper GPU: integers, exactly.

`python benchmarks/device/points_run.py OUT.json [--count 60] [--first 0] [--jobs 4] [--seconds S]`. The draws are those
of `points.py` (a draw is a seed of a family); here each is planned and compiled by one of `--jobs` processes and
launched three times on poisoned outputs: every result must equal what the interpreter stores. No draw begins
after `--seconds`; rows that OUT.json has already are kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import pathlib
import sys
import time
from random import Random
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "points"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

import numpy as np
from tests.targets.cuda.cuda_kit import arguments, expected
from tests.targets.cuda.graphs import GRAPHS, draw

from treadle.base.errors import TreadleError
from treadle.machine.text import print_machine
from treadle.targets.cuda.families import families

FAMILIES = {family.name: family for family in families()}
LAUNCHES = 3


def key(name: str, seed: int) -> str:
    """The name of a draw's files."""
    return f"{name.replace(' ', '_')}_{seed}"


def made(draw_: tuple[str, int, float]) -> dict[str, Any] | None:
    """A draw's text, cubin, arguments and wanted values, written; None when the time is over."""
    name, seed, until = draw_
    if time.time() > until:
        return None
    emit_make = importlib.import_module("emit_make")
    emit_make.BUILD = BUILD
    family = FAMILIES[name]
    drawn, facts, point = draw(family, Random(seed))
    row: dict[str, Any] = {"family": name, "seed": seed, "graph": drawn.program.name, "sizes": drawn.sizes}
    row |= {"point": dict(point), "wrong": ""}
    try:
        machine = family.build(drawn.program, facts, point, family.guard(drawn.program, facts, point))
        emit_make.compiled(key(name, seed), print_machine(machine))
        args = arguments(drawn.program, drawn.sizes, seed)
        wanted = expected(drawn.program, args, drawn.sizes)
        arrays = {f"arg.{n}": a for n, a in args.items()} | {f"out.{n}": a for n, a in wanted.items()}
        row["arrays"] = {n: [str(a.dtype), list(a.shape)] for n, a in arrays.items()}
        raw = {n: np.frombuffer(a.tobytes(), np.uint8) for n, a in arrays.items()}  # files do not know all dtypes
        np.savez(BUILD / f"{key(name, seed)}.npz", **raw)
    except TreadleError as error:
        row["wrong"] = f"build: {str(error)[:400]}"
    return row


def launched(torch: Any, emit_check: Any, row: dict[str, Any]) -> str:
    """What is wrong with the values of a draw; nothing where all are those of the interpreter."""
    one = emit_check.Loaded(key(row["family"], row["seed"]))
    saved = dict(np.load(BUILD / f"{one.name}.npz"))
    tensors: dict[str, Any] = {}
    for n, (dtype, shape) in row["arrays"].items():
        if n.startswith("arg."):
            raw = torch.from_numpy(saved[n].copy()).cuda()
            tensors[n[4:]] = raw.view(getattr(torch, dtype)).reshape(shape)
    outs = {n[4:]: what for n, what in row["arrays"].items() if n.startswith("out.")}
    go = one.bind(row["sizes"], tensors)
    for number in range(LAUNCHES):
        for n in outs:
            tensors[n].view(torch.uint8).fill_(0xA5)
        go()
        torch.cuda.synchronize()
        for n, (dtype, shape) in outs.items():
            raw = tensors[n].contiguous().view(torch.uint8).cpu().numpy().tobytes()
            got, want = (
                np.frombuffer(b, np.dtype(dtype)).astype(np.float64) for b in (raw, saved[f"out.{n}"].tobytes())
            )
            if not np.array_equal(got, want):
                return f"launch {number}: {n} differs in {int((got != want).sum())} elements of {shape}"
    return ""


def main() -> None:
    """Draws, one row each; ends with 1 where a value is wrong."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("out", type=pathlib.Path)
    read.add_argument("--count", type=int, default=60)
    read.add_argument("--first", type=int, default=0)
    read.add_argument("--jobs", type=int, default=4)
    read.add_argument("--seconds", type=float, default=1e9)
    asked = read.parse_args()
    until = time.time() + asked.seconds
    BUILD.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = json.loads(asked.out.read_text())["rows"] if asked.out.exists() else []
    have = {(r["family"], r["seed"]) for r in rows}
    seeds = range(asked.first, asked.first + asked.count)
    draws = [(n, s, until) for s in seeds for n in FAMILIES if n in GRAPHS and (n, s) not in have]
    with multiprocessing.get_context("fork").Pool(asked.jobs) as pool:  # before this process has a context of the GPU
        found = pool.imap_unordered(made, draws)
        torch, emit_check = importlib.import_module("torch"), importlib.import_module("emit_check")
        emit_check.BUILD = BUILD
        for row in found:
            if row is not None:
                row["wrong"] = row["wrong"] or launched(torch, emit_check, row)
                rows.append(row)
                if row["wrong"]:
                    print(row, flush=True)
    for name in GRAPHS:
        same = [r for r in rows if r["family"] == name]
        print(name, len(same), "points,", sum(bool(r["wrong"]) for r in same), "wrong", flush=True)
    rows.sort(key=lambda r: (r["family"], r["seed"]))
    room = importlib.import_module("room")
    asked.out.write_text(json.dumps({**room.where_and_how(__doc__), "rows": rows}))
    raise SystemExit(any(r["wrong"] for r in rows))


if __name__ == "__main__":
    main()
