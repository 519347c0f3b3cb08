"""Trying a machine program: form, round trip, adversarial runs against the interpreter."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from treadle.driver.cuda_variant import compiled
from treadle.evaluate.interpreter import evaluate
from treadle.ir.core import Program
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.machine.verify import verify
from treadle.simulate.run import simulate
from treadle.targets.cuda.emit import emit


def arguments(program: Program, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Small integers (exact in every format) for what is read, zeros for what is written."""
    rng = np.random.default_rng(seed)
    args: dict[str, Any] = {}
    for tensor in program.tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in tensor.dims)
        if tensor.out:
            args[tensor.name] = np.zeros(shape, tensor.dtype.numpy)
        elif tensor.dtype.is_int:
            args[tensor.name] = rng.integers(0, 3, shape).astype(tensor.dtype.numpy)
        else:
            args[tensor.name] = rng.integers(-3, 4, shape).astype(tensor.dtype.numpy)
    return args


def expected(program: Program, args: dict[str, Any], extents: dict[str, int]) -> dict[str, Any]:
    """What the interpreter stores."""
    arrays = {t.name: args[t.name].copy() for t in program.tensors}
    evaluate(program, arrays, extents=extents)
    return {t.name: arrays[t.name] for t in program.tensors if t.out}


def tried(
    machine: MachineProgram,
    program: Program,
    extents: dict[str, int],
    *,
    args: dict[str, Any] | None = None,
    tolerance: float = 0.0,
    seeds: int = 1,
    symbols: dict[str, int] | None = None,
) -> None:
    """Asserts form, round trip, no finding, and the interpreter's values."""
    verify(machine)
    text = print_machine(machine)
    assert print_machine(parse_machine(text)) == text
    given = arguments(program, extents) if args is None else args
    wanted = expected(program, given, extents)
    for seed in range(seeds):
        run = simulate(machine, given, seed=seed, symbols=symbols or {})
        assert [str(f) for f in run.findings] == [], "\n".join(map(str, run.findings[:4]))
        for name, array in wanted.items():
            got = run.outputs[name].astype(np.float64)
            gap = np.abs(got - array.astype(np.float64))
            limit = tolerance * np.maximum(1.0, np.abs(array.astype(np.float64)))
            assert np.all(gap <= limit), (name, float(gap.max()))


def clean(machine: MachineProgram) -> None:
    """Asserts that the text assembles without a message, a spill or a stack frame (where the compiler is installed)."""
    if importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("cuda") is None:
        emit(machine)
        return
    emitted, made = compiled(machine)
    assert [m.text for m in made.messages] == [], str([m.text for m in made.messages])
    for launch in emitted.launches:
        found = made.kernel(launch.kernel)
        assert (found.spill_stores, found.spill_loads, found.stack) == (0, 0, 0)
