"""Values that only a GPU tells: conversions of fragments as emitted, subnormal operands, operands that are one row.

`python benchmarks/device/values.py make` writes texts and cubins to benchmarks/build/values (no GPU needed);
`python benchmarks/device/values.py run OUT.json` runs them there. *Method*: every text copies X into Y by way of a
picked fragment or of `ldmatrix` of 32-bit elements, on integers; products are of powers of two that no rounding
touches, so a flushed operand gives 0; a broadcast operand has pitch 0 in a tensor map. All must be equal.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import random
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "values"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

DTYPES = ("f32", "bf16", "f64", "i8")
RANDOM = 24
SUBNORMAL = {"bfloat16": (2.0**-130, 2.0**10), "float16": (2.0**-20, 2.0**10)}
"""An operand below the smallest normal number, and what it is multiplied by."""
SHAPES = ((1, 2048, 2048, 2048), (32, 512, 512, 64))
"""Of products that two kinds of instructions compute (wgmma, mma.sync)."""


def make() -> None:
    """Texts and cubins."""
    emit_make, text = importlib.import_module("emit_make"), importlib.import_module("treadle.machine.text")
    shuffles = importlib.import_module("tests.targets.cuda_emit.test_shuffles")
    matrices = importlib.import_module("tests.targets.cuda_emit.test_matrices")
    BUILD.mkdir(parents=True, exist_ok=True)
    emit_make.BUILD = BUILD
    dice = random.Random(5)
    texts = {"words": matrices.WORDS.replace("DIGITS", matrices.DIGITS)}
    texts["more"] = text.print_machine(shuffles.program(*shuffles.MORE))
    texts |= {f"rotated_{d}": text.print_machine(shuffles.program(*shuffles.ROTATED, d)) for d in DTYPES}
    for i in range(RANDOM):
        texts[f"random_{i}"] = text.print_machine(shuffles.program(*shuffles.in_one_warp(dice)))
    for name, machine in texts.items():
        emit_make.compiled(name, machine)
    (BUILD / "manifest.json").write_text(json.dumps(list(texts)))


def moved(torch: Any, emit_check: Any, name: str) -> int:
    """How many elements of Y are not those of X behind a text."""
    one = emit_check.Loaded(name)
    declared = one.program.program.tensor("X")
    shape = [int(d.extent.constant or 0) for d in declared.dims]
    dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "i8": torch.int8}
    x = torch.arange(torch.Size(shape).numel(), device="cuda").remainder(120).to(dtypes[declared.dtype.name])
    x = x.reshape(shape)
    y = torch.full_like(x, -1)
    one.bind({}, {"X": x, "Y": y})()
    torch.cuda.synchronize()
    return int((x != y).sum())


def products(torch: Any) -> dict[str, Any]:
    """Products of subnormal operands, by families whose instructions differ; and of an operand that is one row."""
    lib = importlib.import_module("treadle.lib")
    found: dict[str, Any] = {}
    for dtype, (tiny, large) in SUBNORMAL.items():
        for shape in SHAPES:
            batch, m, n, k = shape
            a = torch.full((batch, m, k), tiny, dtype=getattr(torch, dtype), device="cuda")
            b = torch.full((batch, k, n), large, dtype=a.dtype, device="cuda")
            got = lib.batched_matmul(a, b) if batch > 1 else lib.matmul(a[0], b[0])
            plan = lib.batched_matmul.plan(a, b) if batch > 1 else lib.matmul.plan(a[0], b[0])
            values = sorted(set(got.float().flatten().tolist()))
            found[f"subnormal {dtype} {shape}"] = {
                "plan": plan.record.meta["plan"],
                "want": k * tiny * large,
                "got": values,
            }
    for rows in (1, 4096):
        x = torch.randint(-4, 5, (1, 4096), device="cuda").to(torch.bfloat16).expand(4096, 4096)
        w = torch.randint(-4, 5, (4096, 1024), device="cuda").to(torch.bfloat16)
        if rows == 1:
            x, w = w.T.contiguous(), x.T[:, :256]
        got, want = lib.matmul(x, w), x.float() @ w.float()
        wrong = int((got.float() != want.to(got.dtype).float()).sum())
        found["one column broadcast" if rows == 1 else "one row broadcast"] = {"wrong": wrong, "shape": list(got.shape)}
    return found


def run(out: str) -> None:
    """Runs everything; ends with 1 where a value is wrong."""
    torch, emit_check = importlib.import_module("torch"), importlib.import_module("emit_check")
    emit_check.BUILD = BUILD
    report: dict[str, Any] = {**importlib.import_module("room").where_and_how(__doc__), "moved": {}, "products": {}}
    try:
        for name in json.loads((BUILD / "manifest.json").read_text()):
            report["moved"][name] = moved(torch, emit_check, name)
        report["products"] = products(torch)
    finally:
        pathlib.Path(out).write_text(json.dumps(report, indent=1))
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        raise SystemExit(__doc__)
