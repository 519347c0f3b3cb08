"""Finding a kernel by `FILE:KERNEL`, and describing its arguments on the command line."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from treadle.base.errors import UserError
from treadle.dtype.formats import DType, f32, named
from treadle.ir.core import Program
from treadle.lang import api
from treadle.lang.definition import Definition


class KernelNotFound(UserError):
    """A `FILE:KERNEL` that names no kernel."""

    code = "cli/kernel"


class ArgumentForm(UserError):
    """A command-line argument that cannot be read."""

    code = "cli/argument"


def locate(where: str) -> Any:
    """The kernel object (or `Definition`) that `FILE:KERNEL` names; the file is imported.

    *Errors*: `cli/kernel`.
    """
    file, colon, name = where.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file():
        raise KernelNotFound(
            doing="looking for a kernel",
            found=where,
            expected="FILE:KERNEL with a Python file that exists",
            hint="for example examples/minilm/kernels.py:linear",
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
    finally:
        sys.path.remove(str(path.parent))
    return module


_ARG = re.compile(r"^(\w+)=(\w+)(?:\[.*\])?$")


def dtypes_of(definition: Definition, specs: Iterable[str], absent: Iterable[str] = ()) -> dict[str, DType]:
    """Parameter name -> dtype from `--arg 'X=bf16[M,K]'`; those not named are f32, or what they declare.

    *Errors*: `cli/argument`, `dtype/unknown`.
    """
    given: dict[str, DType] = {}
    for spec in specs:
        match = _ARG.match(spec.replace(" ", ""))
        if match is None or match[1] not in definition.parameters:
            raise ArgumentForm(
                doing=f"reading --arg {spec!r}",
                found=spec,
                expected="NAME=DTYPE or NAME=DTYPE[DIMS] with a parameter of the kernel: "
                + ", ".join(definition.parameters),
                hint="for example --arg 'X=bf16[M,K]'",
            )
        given[match[1]] = named(match[2])
    out = set(absent)
    return {
        p.name: given.get(p.name, p.dtype or f32)
        for p in definition.tensors
        if p.name not in out and (p.kind != "out" or p.name in given)
    }


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
        except (ValueError, SyntaxError, AttributeError) as error:
            equals = ""
            value = str(error)
        if not equals or not name.isidentifier():
            raise ArgumentForm(
                doing=f"reading --set {pair!r}",
                found=str(pair),
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
        if not text.isdigit():
            raise ArgumentForm(
                doing=f"reading --dim {pair!r}",
                found=pair,
                expected="NAME=NUMBER",
                hint="for example --dim M=4096",
            )
        found[name] = int(text)
    return found


def captured(definition: Definition, dtypes: Mapping[str, DType], staged: Mapping[str, Any]) -> Program:
    """The program for these dtypes and staged values."""
    return definition.capture(dict(dtypes), dict(staged), frozenset(dtypes))
