"""Finding a kernel by `FILE:KERNEL`, and describing its arguments on the command line."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from treadle.base.errors import TreadleError, UserError
from treadle.base.source import Span
from treadle.dtype.formats import DType, f32, named
from treadle.ir.core import Program
from treadle.lang import api
from treadle.lang.definition import Definition
from treadle.lang.errors import NeedsExtent


class KernelNotFound(UserError):
    """A `FILE:KERNEL` that names no kernel."""

    code = "cli/kernel"


class FileBroken(UserError):
    """A Python file that cannot be imported: its text is no Python, or running it raises."""

    code = "cli/file"


class ArgumentForm(UserError):
    """A command-line argument that cannot be read."""

    code = "cli/argument"


def locate(where: str) -> Any:
    """The kernel object (or `Definition`) that `FILE:KERNEL` names; the file is imported.

    *Errors*: `cli/kernel`, `cli/file`.
    """
    file, colon, name = where.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file():
        alone = not colon and Path(where).is_file()
        raise KernelNotFound(
            doing="looking for a kernel",
            found=f"{where}, a file without the name of a kernel" if alone else where,
            expected="FILE:KERNEL with a Python file that exists",
            hint="for example examples/first.py:softmax",
        )
    module = _import(path)
    found = getattr(module, name, None)
    if getattr(found, "__treadle_definition__", None) is None:
        kernels = [n for n in dir(module) if getattr(getattr(module, n), "__treadle_definition__", None) is not None]
        raise KernelNotFound(
            doing=f"looking for {name} in {file}",
            found="no kernel of that name",
            expected="one of " + (", ".join(kernels) or "(no kernels)"),
            hint="name a function with @td.kernel",
        )
    return found


def _import(path: Path) -> Any:
    name = re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (TreadleError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the file may even leave by SystemExit
        raise _broken(path, error) from error
    finally:
        if str(path.parent) in sys.path:
            sys.path.remove(str(path.parent))
    return module


def _broken(path: Path, error: BaseException) -> FileBroken:
    """What the file raised, at the line where it did."""
    places = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    lines = [line for file, line in places if line and file and Path(file).resolve() == path.resolve()]
    return FileBroken(
        doing=f"importing {path}",
        found=f"{type(error).__name__}: {error}",
        expected="a Python file that can be imported",
        hint=f"run python {path} until it ends without an error",
        span=Span(str(path), lines[-1]) if lines else None,
    )


def _short(text: str) -> str:
    """What a user wrote, as long as a line at most."""
    return text if len(text) <= 100 else text[:97] + "..."


_ARG = re.compile(r"^(\w+)=(\w+)(?:\[(.*)\])?$")


def dtypes_of(definition: Definition, specs: Iterable[str], absent: Iterable[str] = ()) -> dict[str, DType]:
    """Parameter name -> dtype from `--arg 'X=bf16[M,K]'`; those not named are f32, or what they declare.

    *Errors*: `cli/argument`, `dtype/unknown`.
    """
    given: dict[str, DType] = {}
    tensors = {p.name: p for p in definition.tensors}
    for spec in specs:
        match = _ARG.match(spec.replace(" ", ""))
        if match is None or match[1] not in tensors:
            raise ArgumentForm(
                doing=f"reading --arg {spec!r}",
                found=spec,
                expected="NAME=DTYPE or NAME=DTYPE[DIMS] with a tensor parameter: " + ", ".join(tensors),
                hint="for example --arg 'X=bf16[M,K]'; staged values are given by --set",
            )
        dims = [d.name for d in tensors[match[1]].dims]
        if match[3] is not None and [d for d in match[3].split(",") if d] != dims:
            raise ArgumentForm(
                doing=f"reading --arg {spec!r}",
                found=f"the dimensions [{match[3]}]",
                expected=f"those of the parameter, [{','.join(dims)}], or none",
                hint="extents are given by --dim M=4096; dimensions keep their names",
            )
        given[match[1]] = named(match[2])
    out = _absent(definition, absent)
    return {
        p.name: given.get(p.name, p.dtype or f32)
        for p in definition.tensors
        if p.name not in out and (p.kind != "out" or p.name in given)
    }


def _absent(definition: Definition, names: Iterable[str]) -> set[str]:
    """The names given by --absent. *Errors*: `cli/argument` for one that is no parameter which a call may leave out."""
    found = set(names)
    known = [p.name for p in definition.parameters.values() if p.optional or p.kind == "out"]
    for name in sorted(found.difference(known)):
        raise ArgumentForm(
            doing=f"reading --absent {name}",
            found=name,
            expected="one of the optional parameters: " + (", ".join(known) or "(none)"),
            hint="only parameters with the default None can be left out",
        )
    return found


def settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Staged values from `--set causal=True`: Python literals, names of dtypes, or `td.NAME`.

    *Errors*: `cli/argument`.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            if text.startswith("td."):
                value: Any = getattr(api, text[3:])
            else:
                value = ast.literal_eval(text)
        except (ValueError, SyntaxError, AttributeError, RecursionError, MemoryError) as error:
            equals = ""
            value = str(error)
        if not equals or not name.isidentifier():
            raise ArgumentForm(
                doing=f"reading --set {_short(pair)!r}",
                found=_short(pair),
                expected="NAME=VALUE with a Python literal or td.NAME",
                hint="for example --set causal=True",
            )
        found[name] = value
    return found


def numbers(pairs: Iterable[str]) -> dict[str, int]:
    """Extents from `--dim M=4096`. *Errors*: `cli/argument`."""
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not (text.isascii() and text.isdigit() and len(text) < 19 and name.isidentifier()):
            raise ArgumentForm(
                doing=f"reading --dim {_short(pair)!r}",
                found=_short(pair),
                expected="NAME=NUMBER, of at most 18 digits",
                hint="for example --dim M=4096",
            )
        found[name] = int(text)
    return found


def known_dims(program: Program, dims: Mapping[str, int]) -> None:
    """*Errors*: `cli/argument` for an extent of a dimension that the program does not have."""
    names = {d.name for d in program.dims} | {s for d in program.dims for s in d.extent.symbols} | {*program.lets}
    for name, extent in dims.items():
        if name not in names:
            raise ArgumentForm(
                doing=f"reading --dim {name}={extent}",
                found=f"{name}, which is no dimension of {program.name}",
                expected="one of " + ", ".join(sorted(names)),
                hint="the names are those that td.dims was given",
            )


def numbers_in(definition: Definition, program: Program) -> dict[str, int]:
    """Numbers of the dimensions that a program has as numbers, and its definition as symbols."""
    symbols = {d.name for t in definition.tensors for d in t.dims if d.identity.extent.constant is None}
    return {d.name: d.extent.constant for d in program.dims if d.name in symbols and d.extent.constant is not None}


def _counts_devices(definition: Definition, name: str) -> bool:
    return any(p.devices and p.dims[0].name == name for p in definition.parameters.values())


def captured(
    definition: Definition,
    dtypes: Mapping[str, DType],
    staged: Mapping[str, Any],
    dims: Mapping[str, int],
    absent: Iterable[str] = (),
    *,
    specialised: Mapping[str, int] | None = None,
) -> Program:
    """The program for these dtypes and staged values, with every scalar that is not `absent`.

    `dims` has the extents that Python code of the kernel asks for; `specialised` those that are numbers in any case.

    *Errors*: `cli/argument` for such an extent that `dims` lacks; those of capture.
    """
    scalars = {p.name for p in definition.parameters.values() if p.kind == "scalar"}
    present = frozenset(dtypes) | (scalars - {*absent})
    fixed = dict(specialised or {})
    while True:
        try:
            return definition.capture(dict(dtypes), dict(staged), present, extents=fixed)
        except NeedsExtent as error:
            if error.name in fixed:
                raise
            if error.name not in dims:
                raise ArgumentForm(
                    doing=f"capturing {definition.name}",
                    found=f"no extent of {error.name}, which the kernel uses as a Python number",
                    expected=f"--dim {error.name}=NUMBER",
                    hint=f"for example --dim {error.name}={2 if _counts_devices(definition, error.name) else 64}",
                    span=error.span,
                ) from None
            fixed[error.name] = dims[error.name]
