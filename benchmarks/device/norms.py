"""Where rows that read the same vectors again and again (scale and shift of a norm) lose time, on a Hopper GPU.

`python benchmarks/device/norms.py OUT.json` builds points of the rows family, and texts of them changed by this script:
the vectors loaded before the folds of the row (`early`), once for some rows that follow one another (`rows N`), once
for all rows of a workgroup, in registers or in shared memory (`registers N`, `shared N`: workgroups a multiprocessor),
or with so many workgroups that should fit a multiprocessor (`resident N`). Changed texts are experiments: what the
judge says of each is in its row.
*Method*: values against f64 first; medians of events, calls in random order beside a copy of the same array, 512 MiB
overwritten before each, raw samples kept.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import statistics
import sys
from dataclasses import replace
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "norms"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

from treadle.algebra.expr import ceildiv, const, minimum, sym
from treadle.machine.form import (
    Buffer,
    FragRef,
    Kernel,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Store,
    Tasks,
    Version,
    walk,
)
from treadle.realise.threads import lay_out

ROWS = 4096
PROCESSORS = 132
LAST = ("", *(f"resident {n}" for n in (5, 6, 7, 8, 9, 10, 12)))
"""Workgroups that should fit a multiprocessor, beside what the assembler takes by itself."""
CASES: list[tuple[int, dict[str, Any], tuple[str, ...]]] = [
    (1024, {"warps": 1}, (*LAST, "early", "registers 4")),
    (1024, {"warps": 4}, ("", "resident 14", "resident 16")),
    (4096, {"warps": 4}, (*LAST, "early")),
    (4096, {"warps": 8}, ("", "resident 4", "resident 5", "resident 6")),
    (8192, {"warps": 4}, ("", "resident 5", "resident 6")),
    (8192, {"warps": 8}, ("", "resident 4", "resident 5", "resident 6")),
    (16384, {"warps": 8}, ("", "resident 3")),
    (16384, {"warps": 16}, ("", "resident 2", "resident 3")),
    (32768, {"warps": 16}, ("", "shared 1")),
    (32768, {"warps": 32}, ("", "resident 1")),
]
"""Columns, point, changes."""


def changed(machine: MachineProgram, how: str) -> MachineProgram:
    """The program with the loads that no task's variable is in done as `how` says."""
    word, _, number = how.partition(" ")
    for kernel in machine.kernels if word else ():
        stored = {s.dst.name for r in kernel.roles for s in walk(r.body) if isinstance(s, Store)}
        tensors = {t.name for t in machine.program.tensors} - stored
        for role in kernel.roles:
            if word != "resident":
                role.body[:] = [x for s in role.body for x in moved(kernel, s, tensors, word, int(number or 0))]
        shared = lay_out(kernel)
        machine.host.launches = [replace(x, shared_bytes=shared) for x in machine.host.launches]
        if word == "resident":
            machine.host.launches = [replace(x, resident=int(number)) for x in machine.host.launches]
        if word in ("registers", "shared") and number:
            grid = const(PROCESSORS * int(number))
            machine.host.launches = [replace(x, grid=grid) for x in machine.host.launches]
    return machine


def moved(kernel: Kernel, stmt: Any, tensors: set[str], word: str, number: int) -> list[Any]:
    """A statement of a role, and what goes before it."""
    if not isinstance(stmt, Tasks):
        return [stmt]
    reads = [s for s in stmt.body if isinstance(s, Load) and s.src.name in tensors]
    same = [s for s in reads if not any(v in e.symbols for v in stmt.vars for e in s.src.index)]
    rest = [s for s in stmt.body if s not in same]
    if not same:
        return [stmt]
    if word == "early":
        at = 1 + max((n for n, s in enumerate(rest) if s in reads), default=-1)
        return [replace(stmt, body=[*rest[:at], *same, *rest[at:]])]
    if word == "rows":
        low = number * sym("t_rows")
        high = minimum(low + number, stmt.counts[0])
        loop = Loop(var=stmt.vars[0], lo=low, hi=high, step=const(1), enters=stmt.enters, body=rest)
        counts = (ceildiv(stmt.counts[0], number),)
        return [replace(stmt, vars=("t_rows",), counts=counts, enters=(), body=[*same, loop])]
    if word == "registers":
        return [*same, replace(stmt, body=rest)]
    before: list[Any] = []
    inside: dict[int, Load] = {}
    for load in same:
        frag = next(f for f in kernel.frags if f.name == load.dst)
        kept = Buffer(f"kept{len(before)}", frag.dtype, tuple(map(const, frag.shape)), "shared", 128)
        kernel.buffers.append(kept)
        place = MemRef(kept.name, (sym("$0"),))
        before += [load, Version(buffer=kept.name, claim=load.claim)]
        before.append(Store(dst=place, src=FragRef(load.dst), claim=load.claim))
        inside[id(load)] = replace(load, src=place)
    return [*before, replace(stmt, body=[inside.get(id(s), s) for s in stmt.body])]


def make() -> list[tuple[str, dict[str, Any]]]:
    """Texts and cubins; key and description of each."""
    td, emit_make = importlib.import_module("treadle"), importlib.import_module("emit_make")
    layernorm = importlib.import_module("treadle.lib.norms").layernorm
    softmax = importlib.import_module("treadle.lib.rows").softmax
    check = importlib.import_module("treadle.checker").check
    rows = importlib.import_module("treadle.targets.cuda.rows").Rows()
    BUILD.mkdir(parents=True, exist_ok=True)
    emit_make.BUILD = BUILD
    made: list[tuple[str, dict[str, Any]]] = []
    wanted = [("layernorm", *case) for case in CASES]
    for n in sorted({n for n, _, _ in CASES}):
        wanted += [("plain", n, {}, ("",)), ("softmax", n, {}, ("",))]
    wanted += [("softmax", 1024, {"warps": 1}, LAST), ("softmax", 4096, {"warps": 4}, LAST)]
    for name, n, point, ways in wanted:
        x, y = (td.like(td.bf16, ROWS, n, align=256) for _ in range(2))
        more = [td.like(td.bf16, n, align=256) for _ in range(2)] if name == "layernorm" else []
        kernel = softmax if name == "softmax" else layernorm
        plan = kernel.plan(x, *more, Y=y, target="cuda:sm_90a")
        program = plan.program.program
        known = emit_make.contiguous(program, "cuda:sm_90a", {"M": ROWS, "N": n})
        whole = {"held": True, "exact": True, "slots": 0, "stages": 0, "close": False} | point
        whole = whole if point else dict(plan.decisions.point)
        for how in ways:
            machine = rows.build(program, known, whole, rows.guard(program, known, whole))
            machine = changed(machine, how)
            key = f"{name}{len(made)}"
            about = {"kernel": name, "columns": n, "point": whole, "changed": how, "verdict": check(machine).status}
            emit_make.compiled(key, emit_make.print_machine(machine))
            made.append((key, about))
            print(key, about, flush=True)
    return made


def run(out: str) -> None:
    """Values, then times."""
    made = make()
    torch, emit_check = importlib.import_module("torch"), importlib.import_module("emit_check")
    room = importlib.import_module("room")
    emit_check.BUILD = BUILD
    report: dict[str, Any] = {**room.where_and_how(__doc__), "cases": []}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    for n in sorted({about["columns"] for _, about in made}):
        x = torch.randn(ROWS, n, device="cuda").to(torch.bfloat16)
        y, z = torch.empty_like(x), torch.empty_like(x)
        scale, shift = (torch.randn(n, device="cuda").to(torch.bfloat16) for _ in range(2))
        normed = torch.nn.functional.layer_norm(x.double(), (n,))
        wants = {"plain": normed, "softmax": torch.softmax(x.double(), 1), "layernorm": normed * scale + shift}
        sizes = {"plain": 0.0, "softmax": 0.0, "layernorm": (normed * scale).abs()}
        calls: dict[str, Any] = {"peer": partial(z.copy_, x)}
        abouts: dict[str, dict[str, Any]] = {"peer": {"columns": n}}
        for key, about in made:
            if about["columns"] != n:
                continue
            name = about["kernel"]
            arrays = {"X": x, "Y": y} | ({"scale": scale, "shift": shift} if name == "layernorm" else {})
            calls[key] = emit_check.Loaded(key).bind({"M": ROWS, "N": n}, arrays)
            y.fill_(float("nan"))
            calls[key]()
            error = (y.double() - wants[name]).abs() / (wants[name].abs() + sizes[name] + 1e-30)
            abouts[key] = {**about, "largest_relative": float(error.max())}
        samples = room.interleaved(calls, 40, flush)
        peer = statistics.median(samples["peer"])
        for key, values in samples.items():
            row = {**abouts[key], "us": statistics.median(values), "samples_us": values}
            report["cases"].append(row | {"ratio": peer / row["us"]})
            print(key, round(row["us"], 2), round(peer / row["us"], 3), abouts[key], flush=True)
        pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 2:
        run(sys.argv[1])
    else:
        raise SystemExit(__doc__)
