"""A call from the command line: a kernel of a file, with arrays from files or made up."""

from __future__ import annotations

import contextlib
import copy
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treadle.driver.locate import ArgumentForm, captured, dtypes_of, known_dims, locate, numbers, settings
from treadle.driver.packed import element_shapes
from treadle.driver.samples import arguments, default_extents
from treadle.dtype.packing import pack
from treadle.ir.core import Program
from treadle.ir.extents import told_extents
from treadle.ir.infer import flat_subs
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.debug import Print

MOST = 1 << 31
"""Bytes of made-up arrays: who wants more says which extents are meant."""


@dataclass(frozen=True)
class MadeUp:
    """A kernel and what to call it with, by keyword. `extents` are those of its dimensions."""

    kernel: Any
    keywords: dict[str, Any]
    program: Program
    extents: dict[str, int]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        return [t.name for t in self.program.tensors if t.out and not t.hidden]

    @property
    def changed(self) -> list[str]:
        """Names of the tensors that are no outputs, which a call changes in place, in order."""
        names = {op.tensor.name for op in self.program.body.walk() if isinstance(op, Store)}
        return [t.name for t in self.program.tensors if t.name in names and not t.out]

    @property
    def prints(self) -> bool:
        """Whether the kernel has a `td.print`, which tells of every call."""
        return any(isinstance(op, Print) for op in self.program.body.walk())

    def try_promises(self) -> None:
        """Runs the interpreter on copies, where a subscript is promised: made-up arrays need not keep what compiled
        code trusts. *Errors*: `bounds/out-of-range`."""
        if any(s.promised for op in self.program.body.walk() for s in flat_subs(getattr(op, "subs", ()))):
            with contextlib.redirect_stdout(io.StringIO()):
                self.kernel.reference(**copy.deepcopy(self.keywords))


def made_up(
    where: str,
    args: Sequence[str],
    absent: Sequence[str],
    dims: Sequence[str],
    sets: Sequence[str],
    *,
    files: Sequence[str] = (),
    seed: int = 0,
    extent: int | None = None,
) -> MadeUp:
    """The call that the command line describes. Extents come from `--dim`, else from arrays of `files` (`X=x.npy`),
    else `extent`, or small primes where that is None. *Errors*: `cli/*`; those of capture."""
    kernel = locate(where)
    definition = kernel.__treadle_definition__
    loaded = _loaded(files, [p.name for p in definition.tensors])
    dtypes, staged, known = dtypes_of(definition, args, absent), settings(sets), numbers(dims)
    for name, array in loaded.items():
        if name in dtypes and array.dtype == dtypes[name].numpy:
            continue
        dtypes |= dtypes_of(definition, [f"{name}={_name_of(array)}"])
    program = captured(definition, dtypes, staged, known, absent)
    known_dims(program, known)
    shapes = element_shapes(program, {n: a.shape for n, a in loaded.items()})
    fixed = {**told_extents(program, shapes), **known}
    symbols = {s for d in program.dims for s in d.extent.symbols} - program.lets.keys()
    if extent is not None:
        fixed = {**dict.fromkeys(sorted(symbols), extent), **fixed}
    extents = default_extents(program, fixed)
    _affordable(program, extents)
    arrays, scalars = arguments(program, extents, seed)
    given: dict[str, Any] = dict(loaded)
    for tensor in program.tensors:
        name = tensor.name
        read = tensor.out and _read(program, name)
        if read:
            arrays[name][...] = 0  # who reads an output begins with values: a sum, a count
        if (name in dtypes or read) and name not in given and not tensor.hidden:
            given[name] = pack(arrays[name], tensor.dtype) if tensor.dtype.packed else arrays[name]
        if tensor.devices and name in given:
            given[name] = [*given[name]]  # one array for each device
    return MadeUp(kernel, {**given, **scalars, **staged}, program, extents)


def _read(program: Program, name: str) -> bool:
    """Whether the kernel reads the tensor: by a load, or by a store that combines."""
    ops = [op for op in program.body.walk() if isinstance(op, Load | Store) and op.tensor.name == name]
    return any(isinstance(op, Load) or op.effect != "set" for op in ops)


def _loaded(files: Sequence[str], tensors: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in files:
        name, _, path = text.partition("=")
        try:
            array = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise _no_file(text, str(error)) from error
        if name not in tensors or not isinstance(array, np.ndarray):
            raise _no_file(text, f"{name}, which is no tensor parameter" if name not in tensors else "no single array")
        found[name] = array
    return found


def _no_file(text: str, found: str) -> ArgumentForm:
    return ArgumentForm(
        doing=f"reading --in {text!r}",
        found=found,
        expected="NAME=FILE.npy with the name of a tensor parameter and an array that NumPy saved",
        hint="for example --in X=x.npy, after numpy.save('x.npy', x)",
    )


def _name_of(array: Any) -> str:
    names: Mapping[str, str] = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "bool"}
    name = str(array.dtype)
    return names.get(name, name.replace("uint", "u").replace("int", "i"))


def _affordable(program: Program, extents: Mapping[str, int]) -> None:
    """*Errors*: `cli/argument` for arrays that are too large to be made up."""
    sizes: dict[str, float] = {}
    for tensor in program.tensors:
        elements = math.prod(int(d.extent.evaluate(extents)) for d in tensor.dims)
        sizes[tensor.name] = elements * tensor.dtype.bits / 8
    if sum(sizes.values()) > MOST:
        largest = max(sizes, key=lambda n: sizes[n])
        raise ArgumentForm(
            doing=f"making up arguments of {program.name}",
            found=f"{sum(sizes.values()) / 1e9:.3g} GB, most of it for {largest}",
            expected=f"at most {MOST / 1e9:.3g} GB",
            hint="give smaller extents: " + " ".join(f"--dim {s}=64" for s in sorted(extents)),
        )
