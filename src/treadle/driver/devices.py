"""Arguments for several devices: a list of arrays, one per device, whose shapes and dtypes agree.

Compiled code takes each array by itself, under the name that `ir.devices` gives it; the reference interpreter runs the
captured program on stacks of them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.driver.errors import ListWrong, SeveralDevices
from treadle.lang.definition import Definition, Parameter
from treadle.lang.objects import listed
from treadle.runtime.arrays import ArrayView

Array = NDArray[Any]


def one_a_device(definition: Definition, parameter: Parameter, value: Any) -> list[Any]:
    """The arrays of a list or tuple. *Errors*: `call/devices` for anything else, and for none."""
    if isinstance(value, (list, tuple)) and value:
        return listed(value)
    found = "an empty list" if isinstance(value, (list, tuple)) else f"one object of type {type(value).__name__}"
    raise ListWrong(
        doing=f"calling {definition.name}",
        found=f"{parameter.name}: {found}",
        expected=f"a list of arrays, one per device of {parameter.dims[0]}",
        hint=f"pass {parameter.name}=[first, second, ...]",
        span=definition.span,
    )


def alike(definition: Definition, parameter: Parameter, views: Sequence[ArrayView]) -> None:
    """*Errors*: `call/devices` for arrays of different shapes or dtypes."""
    first = views[0]
    for k, seen in enumerate(views):
        if seen.shape != first.shape or seen.dtype != first.dtype:
            name = parameter.name
            raise ListWrong(
                doing=f"calling {definition.name}",
                found=f"{name}[{k}] of {seen.dtype} and shape {seen.shape}, "
                f"but {name}[0] of {first.dtype} and shape {first.shape}",
                expected="arrays of one shape and dtype, one per device",
                hint="pad the shorter ones, and pass how long each is in a tensor of its own",
                span=definition.span,
            )


def on_one_device(definition: Definition, views: Mapping[str, ArrayView]) -> None:
    """*Errors*: `limit/devices` for arrays of several GPUs."""
    places = sorted({v.device for v in views.values()})
    if len(places) > 1:
        raise SeveralDevices(
            doing=f"planning {definition.name}",
            found=f"arrays on {', '.join(places)}",
            expected="arrays in this machine's memory, or all on one GPU",
            hint="no plan of this version moves data between GPUs: run the kernel on one of them",
            span=definition.span,
        )


@contextmanager
def stacked(lists: Mapping[str, Sequence[str]], arrays: Mapping[str, Array]) -> Generator[dict[str, Array]]:
    """The arrays with each list as one array; what is stored into those goes back, also when the run ends early."""
    inside = {n for names in lists.values() for n in names}
    whole = {n: a for n, a in arrays.items() if n not in inside}
    stacks = {name: np.stack([arrays[n] for n in names]) for name, names in lists.items()}
    before = {name: stack.copy() for name, stack in stacks.items()}
    try:
        yield whole | stacks
    finally:
        for name, names in lists.items():
            for k, one in enumerate(names):
                if stacks[name][k].tobytes() != before[name][k].tobytes():
                    arrays[one][...] = stacks[name][k]


def apart(lists: Mapping[str, Sequence[str]], arrays: Mapping[str, Array], outs: Sequence[str]) -> bool:
    """Whether stacks mean what the arrays mean: no list holds, or is, memory of an output elsewhere."""
    inside = {n for names in lists.values() for n in names}
    stored = {n for out in outs for n in lists.get(out, (out,)) if n in arrays}
    return not any(
        a != b and (a in inside or b in inside) and np.may_share_memory(arrays[a], arrays[b])
        for a in stored
        for b in arrays
    )
