"""Arguments on which accepted mutants run: random ones in the guard, and ones that only a dropped fact would exclude.

Rows of arrays begin at multiples of 16 elements, so that pitches and alignments which a guard may ask for hold at any
extent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.driver.locate import known_dims
from treadle.driver.samples import arguments, default_extents
from treadle.driver.trial import close_enough, expected
from treadle.ir.guard import Bound, Divisible, Fact, Guard, Pitch, Unit
from treadle.machine.form import MachineProgram
from treadle.simulate.findings import WrongArguments
from treadle.simulate.run import simulate

ROW = 16
"""Elements to whose multiples the strides of arrays are rounded."""
SPECIAL_VALUES = "special values"
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0)


@dataclass
class Trial:
    """Arguments of one shape, and what the program must store for them. `what`: what is peculiar about them."""

    dims: dict[str, int]
    what: str
    args: dict[str, Any]
    want: dict[str, Any]


def trials_of(program: MachineProgram, shapes: Sequence[Mapping[str, int]], seed: int) -> list[Trial]:
    """Arguments for each shape: small integers, and (floats) ones with NaN, infinities and zeros of both signs among
    them, where the program itself is right on such. Shapes outside the guard are left out.

    One shape cannot tell all bounds apart: take some below and above each block.
    """
    found: list[Trial] = []
    for dims in shapes:
        for what in ("", SPECIAL_VALUES):
            trial = _trial(program, dims, what, seed, None)
            if _admitted(program, trial) and (not what or _right(program, trial)):
                found.append(trial)
    return found


def excluded_trials(program: MachineProgram, fact: Fact, shapes: Sequence[Mapping[str, int]], seed: int) -> list[Trial]:
    """Arguments that meet all facts of the guard but this one; none where the simulator cannot tell (alignment, memory
    that two arguments share)."""
    rest = MachineProgram(
        program.target,
        program.program,
        Guard(tuple(f for f in program.guard.facts if f is not fact)),
        program.host,
        program.kernels,
    )
    for dims in shapes[:2]:
        for other in _other_dims(fact, dims):
            trial = _trial(program, other, f"without {fact}", seed, fact)
            if _admitted(rest, trial) and not _admitted(program, trial):
                return [trial]
    return []


def _other_dims(fact: Fact, dims: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The extents, or for a fact about extents ones that differ from them in one."""
    if not isinstance(fact, Bound | Divisible):
        yield dict(dims)
        return
    constraint = fact.constraint() if isinstance(fact, Divisible) else fact.constraint
    for symbol in sorted(constraint.symbols & dims.keys()):
        yield from ({**dims, symbol: n} for n in (0, 1, 2, dims[symbol] + 1, dims[symbol] + 2, 4 * dims[symbol] + 1))


def _trial(program: MachineProgram, dims: Mapping[str, int], what: str, seed: int, fact: Fact | None) -> Trial:
    known_dims(program.program, dims)
    extents = default_extents(program.program, dims)
    arrays, scalars = arguments(program.program, extents, seed)
    random = np.random.default_rng(seed)
    laid = {name: _laid_out(name, array, fact) for name, array in arrays.items()}
    if what == SPECIAL_VALUES:
        for tensor in program.program.tensors:
            if tensor.dtype.is_float and not tensor.out:
                array: Any = laid[tensor.name]
                shape: tuple[int, ...] = array.shape
                places = random.random(shape) < min(0.5, 2.0 / max(1, int(array.size)))
                array[places] = random.choice(SPECIAL, np.count_nonzero(places)).astype(array.dtype)
    want = expected(program, laid, scalars, extents)
    return Trial(dict(dims), what, {**laid, **scalars}, want)


def _laid_out(name: str, array: Any, fact: Fact | None) -> Any:
    """The array with padded rows; where the fact is about its strides, with strides that break it."""
    strides: list[int] = []
    step = 1
    for axis in reversed(range(array.ndim)):
        if isinstance(fact, Unit) and (fact.tensor, fact.axis) == (name, axis):
            step *= 2
        if isinstance(fact, Pitch) and (fact.tensor, fact.axis) == (name, axis):
            step += 1
        strides.insert(0, step)
        step = -(-(step * max(1, array.shape[axis])) // ROW) * ROW
    flat = np.zeros(max(1, step), array.dtype)
    laid = np.lib.stride_tricks.as_strided(flat, array.shape, tuple(s * array.itemsize for s in strides))
    laid[...] = array
    return laid


def _admitted(program: MachineProgram, trial: Trial) -> bool:
    try:
        simulate(program, trial.args, schedule="program", max_steps=1, check_form=False)
    except WrongArguments:
        return False
    return True


def _right(program: MachineProgram, trial: Trial) -> bool:
    run = simulate(program, trial.args, schedule="program", check_form=False)
    return run.clean and all(close_enough(run.outputs[n], want) for n, want in trial.want.items())
