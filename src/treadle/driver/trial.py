"""Running a machine text on random arguments under many schedules, against the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.base.errors import InternalError
from treadle.driver.locate import known_dims
from treadle.driver.samples import arguments, default_extents
from treadle.dtype.formats import f32
from treadle.evaluate.interpreter import evaluate
from treadle.ir.verifier import verify as verify_program
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.verify import FormError, verify
from treadle.simulate.run import Trials, run_schedules


@dataclass
class Outcome:
    """What the schedules gave. `symbols` are host symbols that got a value (number of multiprocessors, ...)."""

    extents: dict[str, int]
    trials: Trials
    notes: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        """Whether every schedule was clean and right."""
        return self.trials.right

    def text(self) -> str:
        """A few lines for a terminal."""
        dims = ", ".join(f"{k} = {v}" for k, v in sorted(self.extents.items()))
        lines = [f"{self.trials.runs} schedules at {dims}: {len(self.trials.failures)} with findings or wrong results"]
        lines += [f"  seed {seed}: {what}" for seed, what in self.trials.failures[:10]]
        return "\n".join([*lines, *self.notes])


def expected(
    machine: MachineProgram, arrays: Mapping[str, Any], scalars: Mapping[str, Any], extents: Mapping[str, int]
) -> dict[str, Any]:
    """What the source program stores for these arguments, by the reference interpreter."""
    copies = {name: array.copy() for name, array in arrays.items()}
    evaluate(machine.program, copies, scalars, extents=extents)
    return {t.name: copies[t.name] for t in machine.program.tensors if t.out}


def close_enough(want: Any, got: Any) -> bool:
    """Equal, or (floats that went through functions) within a few units of the last place of the largest element."""
    if want.dtype.kind in "iub":
        return bool((want == got).all())
    a, b = want.astype(np.float64), got.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    bits = f32.mantissa if want.dtype.itemsize >= 4 else 7
    scale = np.nanmax(np.abs(a[np.isfinite(a)]), initial=1.0)
    with np.errstate(invalid="ignore"):
        off = np.abs(a - b)
    return bool((np.nan_to_num(off[a != b], nan=0.0, posinf=np.inf) <= 32 * scale * 2.0**-bits).all())


def _whole(machine: MachineProgram) -> None:
    """*Errors*: `machine/form` where the embedded program is malformed: nothing could be expected of it."""
    try:
        verify_program(machine.captured or machine.program)
    except InternalError as no:
        raise FormError(
            doing="reading the program that a machine text embeds",
            found=f"{no.found} ({no.code})",
            expected=no.expected,
            hint="correct the program and parse the text again",
        ) from None


def try_machine(text: str, file: str, dims: Mapping[str, int], seed: int, schedules: int) -> Outcome:
    """Runs a machine text under `schedules` schedules. *Errors*: `machine/syntax`, `machine/form`, `simulate/*`."""
    machine = parse_machine(text, file)
    _whole(machine)
    verify(machine)
    known_dims(machine.program, dims)
    extents = default_extents(machine.program, dims)
    arrays, scalars = arguments(machine.program, extents, seed)
    want = expected(machine, arrays, scalars, extents)
    trials = run_schedules(machine, {**arrays, **scalars}, schedules, seed, expected=want, same=close_enough)
    return Outcome(extents, trials)
