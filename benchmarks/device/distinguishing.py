"""The distinguishing programs on a Hopper GPU: values of every case, times of every case and of its ablations.

`python benchmarks/device/distinguishing.py OUT.json [--only NAME ...] [--plan] [--rounds 20]`. *Method*: each case of
examples/distinguishing for sm_90a is planned, judged and compiled (`--plan`: no more than that, which needs no GPU) and
launched three times on small arguments and poisoned outputs: every result has the values of the reference interpreter.
Then all cases of a program and the plans that an ablation makes of them run at the sizes of the page, in random order,
512 MiB overwritten before each; raw samples of events are kept. `against`: the case that knows what the ablated one
does not. `times`, `predicted`: the ablated plan's time over that one's, measured and by the model; `off`: how far apart
their results are.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import statistics
import sys
from typing import Any

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "distinguishing"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

from examples.distinguishing.evidence import Case

from treadle.driver.build import choose
from treadle.driver.describe import described_facts
from treadle.driver.samples import arguments, default_extents
from treadle.driver.trial import close_enough, expected
from treadle.machine.form import MachineProgram
from treadle.machine.text import print_machine
from treadle.planner.ablation import ablated

NAMES = ("one_nest", "owners", "siblings", "folds", "ring", "gather")
TARGET = "cuda:sm_90a"
LAUNCHES = 3


def built(case: Case, ablation: str | None = None) -> list[MachineProgram]:
    """The machine programs of a case, one behind the other; under `no-interface` one for each scope. All verified:
    `choose` takes no other."""
    parts = ablated(case.source(), ablation)
    found = [choose(p, case.target, described_facts(p, case.sizes), ablate=ablation) for p in parts]
    return [one.machine for one in found]


def filled(machine: MachineProgram, sizes: dict[str, int], seed: int) -> tuple[dict[str, int], dict[str, Any]]:
    """Extents and arrays by name. Offsets cut their rows into equal groups, and choices are anywhere."""
    extents = default_extents(machine.program, sizes)
    arrays, scalars = arguments(machine.program, extents, seed)
    assert not scalars, "a program with scalars"
    if "start" in arrays:
        arrays["start"][:] = np.linspace(0, extents["R"], extents["E1"]).astype(np.int32)
        arrays["order"][:] = np.random.default_rng(seed).integers(0, extents["T"], extents["R"])
    return extents, arrays


class Device:
    """What runs there. `torch`, `emit_check`, `room`: modules that need a GPU."""

    def __init__(self) -> None:
        names = ("torch", "emit_check", "room")
        self.torch, self.emit_check, self.room = (importlib.import_module(n) for n in names)
        self.emit_check.BUILD = BUILD
        self.flush = self.torch.empty(512 << 20, dtype=self.torch.uint8, device="cuda")

    def moved(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Arrays as tensors on the device."""
        as_bits = {n: a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for n, a in arrays.items()}
        return {n: self.emit_check.tensor_of(a) for n, a in as_bits.items()}

    def bound(self, keys: list[str], machines: list[MachineProgram], extents: dict[str, int], tensors: Any) -> Any:
        """A callable that runs programs one behind the other."""
        calls = []
        for key, machine in zip(keys, machines, strict=True):
            mine = {t.name: tensors[t.name] for t in machine.program.tensors}
            calls.append(self.emit_check.Loaded(key).bind(extents, mine))

        def go() -> None:
            for call in calls:
                call()

        return go

    def values(self, key: str, case: Case, machine: MachineProgram) -> str:
        """What is wrong with the values of a case at its small sizes."""
        extents, arrays = filled(machine, dict(case.tiny), 0)
        want = expected(machine, arrays, {}, extents)
        tensors = self.moved(arrays)
        call = self.bound([key], [machine], extents, tensors)
        for number in range(LAUNCHES):
            for name in want:
                tensors[name].view(self.torch.uint8).fill_(0xA5)
            call()
            self.torch.cuda.synchronize()
            for name, array in want.items():
                got = self.emit_check.back(tensors[name])
                if not close_enough(array, got.view(array.dtype) if got.dtype == np.uint16 else got):
                    return f"launch {number}: {name} differs"
        return ""


Side = tuple[str, str | None]
"""The label of a case, and what its plan does not know."""


def sides(program: Any) -> list[Side]:
    """The cases of a program for the target, and their ablations."""
    labels = [c.label for c in program.cases if c.target == TARGET]
    return [(label, a) for label in labels for a in (None, *program.ablations.get(label, ()))]


def made(name: str, program: Any) -> dict[Side, list[MachineProgram]]:
    """Each side's machine programs, and their objects written."""
    emit_make = importlib.import_module("emit_make")
    emit_make.BUILD = BUILD
    found: dict[Side, list[MachineProgram]] = {}
    for number, side in enumerate(sides(program)):
        found[side] = built(program.case(side[0]), side[1])
        for part, machine in enumerate(found[side]):
            emit_make.compiled(f"{name}_{number}_{part}", print_machine(machine))
    return found


def ran(device: Device, name: str, program: Any, found: dict[Side, list[MachineProgram]], rounds: int) -> list[Any]:
    """A row for each side."""
    rows: dict[Side, dict[str, Any]] = {}
    calls: dict[str, Any] = {}
    kept: dict[Side, dict[str, Any]] = {}  # all of them: a call knows the addresses of its tensors only
    for number, (side, machines) in enumerate(found.items()):
        label, ablation = side
        case = program.case(label)
        keys = [f"{name}_{number}_{part}" for part in range(len(machines))]
        row = rows[side] = {"program": name, "case": label, "without": ablation, "launches": len(machines)}
        row["wrong"] = device.values(keys[0], case, machines[0]) if ablation is None else ""
        row["predicted_us"] = case.seconds(ablation) * 1e6
        extents, arrays = filled(built_whole(case, machines), dict(case.sizes), 1)
        kept[side] = device.moved(arrays)
        calls[f"{label} {ablation}"] = device.bound(keys, machines, extents, kept[side])
    samples = device.room.interleaved(calls, rounds, device.flush)
    for side, row in rows.items():
        row["samples_us"] = samples[f"{side[0]} {side[1]}"]
        row["us"] = statistics.median(row["samples_us"])
    for side, row in rows.items():
        label, ablation = side
        if ablation is not None:
            other = (program.whole.get(label, label), None)
            row["against"] = other[0]
            row["times"] = row["us"] / rows[other]["us"]
            row["predicted"] = row["predicted_us"] / rows[other]["predicted_us"]
            outs = [t.name for t in program.case(label).source().tensors if t.out and t.name in kept[other]]
            pairs = [(kept[side][n].double(), kept[other][n].double()) for n in outs]
            row["off"] = max(float((a - b).norm() / b.norm()) for a, b in pairs)
    return list(rows.values())


def built_whole(case: Case, machines: list[MachineProgram]) -> MachineProgram:
    """A machine program whose source has all tensors of a case."""
    return machines[0] if len(machines) == 1 else built(case)[0]


def main() -> int:
    """A line for each side; 1 where a value is wrong."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("out", type=pathlib.Path)
    read.add_argument("--only", nargs="*", default=list(NAMES))
    read.add_argument("--plan", action="store_true")
    read.add_argument("--rounds", type=int, default=20)
    asked = read.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"method": __doc__, "rows": []}
    programs = {n: importlib.import_module(f"examples.distinguishing.{n}").PROGRAM for n in asked.only}
    device = None if asked.plan else Device()
    for name, program in programs.items():
        found = made(name, program)
        if device is None:
            print(name, *(f"{label} {a or ''}: {len(ms)}" for (label, a), ms in found.items()), sep="\n  ", flush=True)
            continue
        report["rows"] += (rows := ran(device, name, program, found, asked.rounds))
        for row in rows:
            said = f"{row['times']:.2f} of {row['against']} ({row['predicted']:.2f})" if "times" in row else ""
            told = f"{row['us']:.1f} us ({row['predicted_us']:.1f})"
            print(name, row["case"], row["without"] or "", told, said, row["wrong"] or "right", flush=True)
        asked.out.write_text(json.dumps({**report, "device": device.room.clock()}))
    return int(any(row["wrong"] for row in report["rows"]))


if __name__ == "__main__":
    sys.exit(main())
