"""`td.check` and `td.print` in compiled code: what a launch leaves in hidden tensors, and what becomes of it.

Expansion makes of each check and print stores into hidden tensors (`ir.expand`). Here they are allocated, cleared,
passed with the arguments of the call, and read after the launch: values are printed, flags become the exception.
"""

from __future__ import annotations

from typing import Any

from treadle.base.errors import TreadleError
from treadle.driver.arguments import Call, Like
from treadle.driver.extents import shape_of
from treadle.driver.outputs import fresh
from treadle.driver.prints import show
from treadle.driver.rooms import room
from treadle.ir.core import Program
from treadle.runtime.launch import called_with


def give_flags(program: Program, call: Call) -> None:
    """Adds the hidden tensors of an expanded program to a call, cleared. *Errors*: `cuda/capture`."""
    if program.hidden and call.device != "cpu":
        room("cuda").refuse_recorded(call, f"calling {program.name}, which has td.check or td.print")
    for hidden in program.hidden:
        tensor = hidden.tensor
        if tensor.name not in call.arrays:
            shape = shape_of(program, tensor, call.extents)
            given = list(call.arrays.values())
            call.give(tensor.name, fresh(program.name, tensor.name, shape, tensor.dtype.name, call.device, given))
        call.arrays[tensor.name][...] = 0


def describe_flags(program: Program, call: Call) -> None:
    """The same for planning: they are only described."""
    for hidden in program.hidden:
        shape = shape_of(program, hidden.tensor, call.extents)
        call.views[hidden.tensor.name] = Like(hidden.tensor.dtype, shape).view(hidden.tensor.name)


def conclude(program: Program, call: Call) -> None:
    """Shows what was printed; raises the first check that failed, and clears the flags. *Errors*: `check/failed`."""
    show(program, call)
    for hidden in program.hidden:
        if hidden.kind != "check":
            continue
        flags = call.arrays[hidden.tensor.name]
        failed = [number for number in range(len(hidden.messages)) if int(flags[number])]
        if failed:
            flags[...] = 0
            raise _failure(program, hidden.messages[failed[0]], hidden.spans[failed[0]])


def _failure(program: Program, message: str, span: Any) -> TreadleError:
    kind: type[TreadleError] = room("checks").CheckFailed
    return kind(
        doing=f"running {program.name}",
        found=f"td.check failed: {message}",
        expected="the condition to hold",
        hint="look at the values that enter the condition, for instance with td.print",
        span=span,
    )


class CheckedLaunch:
    """A call made ready whose checks are looked at after each launch."""

    def __init__(self, launch: Any, program: Program, call: Call) -> None:
        self._launch = launch
        self._program = program
        self._call = call
        self.outs = call.outs

    def __repr__(self) -> str:
        return repr(self._launch)

    def __call__(self, *given: Any) -> Any:
        """Launches; returns the Outs. *Errors*: `check/failed`, `call/bound`."""
        if given:
            raise called_with(self, given)
        self._launch()
        conclude(self._program, self._call)
        return self.outs

    launch = __call__
