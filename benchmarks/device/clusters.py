"""Contractions by pairs of workgroups that fetch what both need once, beside workgroups alone and cuBLAS.

`python benchmarks/device/clusters.py make` plans, judges and compiles (no GPU needed) to benchmarks/build/clusters;
`python benchmarks/device/clusters.py run OUT.json` runs there. *Method*: integers first, exactly; then random values:
medians of events, calls in random order, 512 MiB overwritten before each, raw samples kept.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import statistics
import sys
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "clusters"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

WAYS = ("alone", "rows", "columns")
CASES: list[tuple[str, int, int]] = [
    (kind, size, columns)
    for kind, size, columns in (
        ("product", 2048, 256),
        ("product", 2048, 128),
        ("product", 4096, 256),
        ("product", 4096, 128),
        ("product", 4096, 64),
        ("product", 8192, 256),
        ("product", 8192, 128),
        ("gated", 4096, 128),
        ("gated", 4096, 64),
    )
]
"""Kind of contraction, extent of all its dimensions, columns of a workgroup's block."""


def make() -> None:
    """Texts and cubins."""
    emit_make = importlib.import_module("emit_make")
    check = importlib.import_module("treadle.checker").check
    tests = importlib.import_module("tests.targets.cuda.test_cuda_streams")
    texts = importlib.import_module("tests.realise.texts")
    family = importlib.import_module("treadle.targets.cuda.streams").Streams()
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in BUILD.iterdir():
        old.unlink()
    emit_make.BUILD = BUILD
    sources = {
        "product": tests.read(tests.halves(texts.linear("bf16", gelu=False))),
        "gated": tests.read(tests.halves(tests.gated())),
    }
    manifest: list[Any] = []
    for kind, size, columns in CASES:
        program = sources[kind]
        known = emit_make.contiguous(program, "cuda:sm_90a", dict.fromkeys("MNK", size))
        first = {a.name: a.values[0] for a in family.axes(program, known)}
        for way in WAYS:
            point = first | {"columns": columns, "cluster": way, "versions": 4}
            machine = family.build(program, known, point, family.guard(program, known, point))
            key = f"{kind}_{size}_{columns}_{way}"
            emit_make.compiled(key, emit_make.print_machine(machine))
            predicted = family.cost(program, known, point).total
            manifest.append([key, kind, size, columns, way, check(machine).status, predicted])
            print(key, manifest[-1][-2:], flush=True)
    (BUILD / "manifest.json").write_text(json.dumps(manifest))


def arrays(torch: Any, kind: str, size: int, whole: bool) -> dict[str, Any]:
    """Operands: small integers, or normal values."""

    def one() -> Any:
        made = torch.randint(-2, 3, (size, size), device="cuda") if whole else torch.randn(size, size, device="cuda")
        return made.to(torch.bfloat16)

    found = {"X": one()} | ({"W": one()} if kind == "product" else {"G": one(), "U": one()})
    if kind == "product":
        found["bias"] = torch.zeros(size, dtype=torch.float32, device="cuda")
    return found | {"Y": torch.empty(size, size, dtype=torch.bfloat16, device="cuda")}


def peer(torch: Any, kind: str, given: dict[str, Any]) -> Any:
    """The products by cuBLAS."""
    if kind == "product":
        return partial(torch.matmul, given["X"], given["W"])
    return lambda: (given["X"] @ given["G"], given["X"] @ given["U"])


def run(out: str) -> None:
    """Values, then times."""
    torch, emit_check = importlib.import_module("torch"), importlib.import_module("emit_check")
    room = importlib.import_module("room")
    emit_check.BUILD = BUILD
    manifest = json.loads((BUILD / "manifest.json").read_text())
    report: dict[str, Any] = {**room.where_and_how(__doc__), "cases": []}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    for kind, size, columns in CASES:
        mine = [row for row in manifest if row[1:4] == [kind, size, columns]]
        extents = dict.fromkeys("MNK", size)
        exact = arrays(torch, kind, size, True)
        want = None
        wrong: dict[str, int] = {}
        for key, *_ in mine:
            exact["Y"].fill_(float("nan"))
            emit_check.Loaded(key).bind(extents, exact)()
            if want is None:
                want = (
                    (exact["X"].float() @ exact["W"].float()).to(torch.bfloat16)
                    if kind == "product"
                    else exact["Y"].clone()
                )
            wrong[key] = int((exact["Y"] != want).sum())
        given = arrays(torch, kind, size, False)
        calls = {"peer": peer(torch, kind, given)}
        calls |= {key: emit_check.Loaded(key).bind(extents, given) for key, *_ in mine}
        samples = room.interleaved(calls, 30 if size < 8192 else 10, flush)
        best = statistics.median(samples["peer"])
        for key, values in samples.items():
            about = next(([way, status, predicted] for k, _, _, _, way, status, predicted in mine if k == key), None)
            us = statistics.median(values)
            row = {"case": [kind, size, columns], "key": key, "us": us, "ratio": best / us, "samples_us": values}
            report["cases"].append(row | {"about": about, "wrong": wrong.get(key)})
            print(key, round(us, 1), round(best / us, 3), about, wrong.get(key), flush=True)
        pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        raise SystemExit(__doc__)
