"""Make ready what `emit_check.py` runs on a device: machine texts, cubins, arguments and expected values.

`python benchmarks/device/emit_make.py` needs no GPU; it writes to benchmarks/device/build, which git ignores.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import sys
import time
from typing import Any

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(__file__).parent / "build"
TEXTS = ROOT / "tests" / "targets" / "cuda_emit" / "texts"
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.realise.oracle import EXTENTS, arguments, expected
from tests.realise.texts import TEXTS as SAMPLES
from tests.realise.texts import program as sample

from treadle.analysis.uses import Uses
from treadle.dtype.convert import convert
from treadle.dtype.formats import BY_NAME
from treadle.ir.guard import Guard
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.ir.parser import parse_program
from treadle.ir.verifier import verify
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.math.table import FUNCTIONS
from treadle.plan.facts import contiguous
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.threads import one_thread_each
from treadle.realise.universal import base_facts, task_regions
from treadle.simulate.arithmetic import elementwise
from treadle.simulate.run import simulate
from treadle.targets.cuda.emit import emit
from treadle.targets.cuda.rows import Rows
from treadle.toolchain.nvrtc import compile_cuda

HAND = ("k2_product", "k2_gemm", "k3_plain", "k3_plain_fused", "k3_ahead", "k3_ahead_fused")
ROWS = {
    "softmax_bf16_1024": ("softmax_bf16", {"M": 4096, "N": 1024}, {"warps": 1, "held": True}),
    "softmax_bf16_4096": ("softmax_bf16", {"M": 4096, "N": 4096}, {"warps": 4, "held": True}),
    "softmax_bf16_8192": ("softmax_bf16", {"M": 4096, "N": 8192}, {"warps": 8, "held": True}),
    "softmax_bf16_32768": ("softmax_bf16", {"M": 4096, "N": 32768}, {"warps": 16, "held": True}),
    "layernorm_1024": ("layernorm", {"M": 4096, "N": 1024}, {"warps": 1, "held": True}),
    "layernorm_4096": ("layernorm", {"M": 4096, "N": 4096}, {"warps": 8, "held": True}),
}


def make() -> None:
    """Machine texts to cubins, with arguments and expected values of the small programs."""
    BUILD.mkdir(exist_ok=True)
    for old in BUILD.iterdir():
        old.unlink()
    manifest: dict[str, Any] = {"hand": [], "small": [], "rows": [], "ops": []}
    operations(manifest)
    for name in HAND:
        compiled(name, (TEXTS / f"{name}.tdm").read_text())
        manifest["hand"].append(name)
    for name in SAMPLES:
        source = sample(name)
        uses = Uses(source)
        guard = Guard(tuple(base_facts(source, uses, disjoint=True)))
        universal = one_thread_each(
            source, Choices(tasks=frozenset(task_regions(source))), guard, "cuda:sm_90a", 8 * 132
        )
        plans = {f"universal_{name}": universal}
        extents = EXTENTS[name][0]
        family, facts = Rows(), contiguous(source, "cuda:sm_90a", extents)
        if not family.admits(source, facts):
            for warps, held in ((1, True), (1, False), (4, True), (4, False)):
                point = {"warps": warps, "held": held}
                try:
                    built = family.build(source, facts, point, family.guard(source, facts, point))
                except NotLowered as error:
                    print(name, point, type(error).__name__)
                    continue
                plans[f"rows_{name}_{warps}_{int(held)}"] = built
        for key, machine in plans.items():
            compiled(key, print_machine(machine))
            for number, small in enumerate(EXTENTS[name] if key.startswith("universal") else [extents]):
                arrays = arguments(name, source, small)
                saved: dict[str, Any] = {f"in.{n}": bits(a) for n, a in arrays.items()}
                saved |= {f"want.{n}": bits(a) for n, a in expected(source, arrays, small).items()}
                began = time.time()
                run = simulate(machine, {n: a.copy() for n, a in arrays.items()}, seed=1)
                if run.clean and not any("by the hardware" in line for line in machine.numerics):
                    saved |= {f"same.{n}": bits(run.outputs[n]) for n in run.outputs if f"want.{n}" in saved}
                print(key, small, f"{time.time() - began:.1f} s", run.findings[:1])
                np.savez(BUILD / f"{key}.{number}.npz", **saved)
                manifest["small"].append([key, number, small])
    for key, (name, extents, point) in ROWS.items():
        source = sample(name)
        facts = contiguous(source, "cuda:sm_90a", extents)
        family = Rows()
        text = print_machine(family.build(source, facts, point, family.guard(source, facts, point)))
        compiled(key, text)
        manifest["rows"].append([key, name, extents])
        if "= exp " in text:
            compiled(f"{key}_approx", re.sub(r"(= exp \w+)", r"\1 tags (approx)", text))
            manifest["rows"].append([f"{key}_approx", name, extents])
    (BUILD / "manifest.json").write_text(json.dumps(manifest))


NUMBERS = ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "i32", "u32", "i64", "u64", "bool")


def operations(manifest: dict[str, Any]) -> None:
    """Every elementwise operation on every dtype that has it, and every conversion: one kernel a dtype, all outputs."""
    rng = np.random.default_rng(3)
    letters = {"bool": "b", "int": "i", "uint": "u", "float": "f"}
    for name in NUMBERS:
        dtype = BY_NAME[name]
        a, b = (values_of(dtype, rng, 4096) for _ in range(2))
        lines, stores, saved = [], [], {"in.A": raw(a), "in.B": raw(b)}
        for fn, (arity, kinds, result) in ELEMENTWISE.items():
            if letters[dtype.kind] not in kinds or fn == "where":
                continue
            if dtype.name == "f64" and fn in FUNCTIONS and fn not in ("sqrt", "rsqrt"):
                continue
            out = "bool" if result == "bool" else name
            lines.append(f"      %{fn}: {out}[n] = {fn} {', '.join(('%a', '%b')[:arity])}")
            stores.append((f"Y_{fn}", out, f"%{fn}"))
            with np.errstate(all="ignore"):
                want = elementwise(fn, dtype, [a, b][:arity])
            saved[f"want.Y_{fn}"] = raw(np.asarray(want).astype(BY_NAME[out].numpy))
        for other in NUMBERS:
            if other != name:
                lines.append(f"      %to_{other}: {other}[n] = cast %a")
                stores.append((f"Y_to_{other}", other, f"%to_{other}"))
                saved[f"want.Y_to_{other}"] = raw(convert(a, dtype, BY_NAME[other]))
        text = "\n".join(
            [f"program ops_{name}", "  dim N", f"  tensor A: {name}[N]", f"  tensor B: {name}[N]"]
            + [f"  tensor {y}: {out}[N] out" for y, out, _ in stores]
            + ["  body", "    region R0 parallel (n in N)"]
            + [f"      %{x.lower()}: {name}[n] = load {x}[n]" for x in "AB"]
            + lines
            + [f"      store {y}[n] = {value}" for y, _, value in stores]
        )
        source = parse_program(text)
        verify(source)
        guard = Guard(tuple(base_facts(source, Uses(source), disjoint=True)))
        machine = one_thread_each(source, Choices(tasks=frozenset(task_regions(source))), guard, "cuda:sm_90a", 8 * 132)
        compiled(f"ops_{name}", print_machine(machine))
        np.savez(BUILD / f"ops_{name}.npz", **saved)
        manifest["ops"].append([f"ops_{name}", {y: out for y, out, _ in stores}])


def values_of(dtype: Any, rng: np.random.Generator, count: int) -> np.ndarray:
    """Special values, small ones, and random bits."""
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_)
    bits_ = rng.integers(0, 1 << 63, count, np.uint64) * 2 + rng.integers(0, 2, count, np.uint64)
    found = bits_.astype({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[dtype.bits]).view(dtype.numpy)
    small = rng.integers(-5, 6, count // 4).astype(np.float64)
    if dtype.is_float:
        small = np.concatenate(
            [small, rng.normal(0, 4, count // 4), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 0.5, 2.5]]
        )
        with np.errstate(all="ignore"):
            found[: len(small)] = small.astype(dtype.numpy)
    else:
        found[: len(small)] = small.astype(np.int64).astype(dtype.numpy)
    return found[rng.permutation(count)]


def raw(array: np.ndarray) -> np.ndarray:
    """The bytes: NumPy's files do not know every dtype."""
    return np.ascontiguousarray(array).view(np.uint8)


def compiled(name: str, text: str) -> None:
    """Writes the text, its cubin and what the cubin was made from."""
    emitted = emit(parse_machine(text))
    done = compile_cuda(emitted.source, arch=emitted.arch, name=name)
    if done.messages:
        print(name, done.messages)
    (BUILD / f"{name}.tdm").write_text(text)
    (BUILD / f"{name}.cubin").write_bytes(done.cubin)
    (BUILD / f"{name}.sha").write_text(hashlib.sha256(emitted.source.encode()).hexdigest())


def bits(array: np.ndarray) -> np.ndarray:
    """bf16 as its bits: NumPy's files do not know it."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


if __name__ == "__main__":
    make()
