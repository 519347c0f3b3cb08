"""From the arguments of a Python call to names, views and what the specialisation depends on."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.expr import sym
from treadle.base.errors import TreadleError
from treadle.base.source import user_position
from treadle.driver.devices import alike, on_one_device, one_a_device
from treadle.driver.errors import ArgumentMissing, DTypeWrong, LikeWrong
from treadle.driver.packed import held_as, in_bytes, in_elements
from treadle.dtype.formats import DType, named
from treadle.ir.devices import part_names
from treadle.lang.definition import Definition, Parameter
from treadle.lang.dtypes import as_dtype
from treadle.lang.staging import freeze
from treadle.runtime.arrays import ArrayView, check_output, numpy_dtype, same_device, view
from treadle.runtime.dlpack import contiguous

# Stand-ins for arrays lie this far apart: no two overlap.
_PLACE_BITS = 48
_places = itertools.count(1)


@dataclass(frozen=True)
class Like:
    """The description of an array that need not exist: `td.like(bf16, 4096, 4096)`. Units: strides in elements,
    `align` in bytes."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    align: int = 16

    def view(self, name: str) -> ArrayView:
        """As an argument that lies apart from all others, at an address with that alignment and no more."""
        shape = in_bytes(self.dtype, self.shape)
        strides = contiguous(shape) if self.strides is None else self.strides
        address = (next(_places) << _PLACE_BITS) + self.align
        return ArrayView(address, shape, strides, held_as(self.dtype).name, "cpu", True, self)


def like(dtype: Any, *shape: int, strides: tuple[int, ...] | None = None, align: int = 16) -> Like:
    """A stand-in for an array, for planning: dtype, extents, strides in elements (row-major), alignment in bytes.

    *Errors*: `call/like` for extents, strides or an alignment that no array has; `dtype/unknown`.
    """
    kind = as_dtype(dtype, "reading td.like", user_position(), hint="dtype, then extents: td.like(f32, 64, 256)")
    extents, steps = _whole(shape, "extents"), None if strides is None else _whole(strides, "strides")
    if any(n < 0 for n in extents) or (steps is not None and len(steps) != len(extents)):
        raise _no_array(f"extents {extents}, strides {steps}", "extents of at least 0, and one stride for each")
    if kind.packed and steps is not None:
        raise _no_array(f"strides of {kind}", "none: a packed array's rows are whole bytes, one after the other")
    size = kind.bits // 8 or 1
    if align < size or align & (align - 1):
        raise _no_array(f"align={align}", f"a power of two, at least the element size of {size} bytes")
    return Like(kind, extents, steps, align)


def _whole(numbers: Iterable[Any], what: str) -> tuple[int, ...]:
    try:
        return tuple(operator.index(n) for n in numbers)
    except TypeError as error:
        raise _no_array(f"{what} {numbers!r}: {error}", "whole numbers") from None


def _no_array(found: str, expected: str) -> LikeWrong:
    return LikeWrong(
        doing="describing an array with td.like",
        found=found,
        expected=expected,
        hint="for example td.like(td.bf16, 4096, 4096)",
        span=user_position(),
    )


@dataclass
class Call:
    """A call on its way: views by parameter name, scalars, staged values, and the key of its specialisation."""

    views: dict[str, ArrayView]
    scalars: dict[str, Any]
    staged: dict[str, Any]
    dtypes: dict[str, DType | None]
    key: Any
    device: str = "cpu"
    arrays: dict[str, Any] = field(default_factory=dict[str, Any])
    extents: dict[str, int] = field(default_factory=dict[str, int])
    outs: Any = None
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Parameters that are lists of arrays, one per device: the name that each array has among `views` and `arrays`."""
    made: dict[str, Any] = field(default_factory=dict[str, Any])
    """Outputs that the call left out and whose library does not let others write: the caller's array, by name."""

    def give(self, name: str, array: Any) -> None:
        """Adds an output that the call left out. Nobody else has seen it: it may be written, whatever it is."""
        seen = self.views[name] = view(array, name=name)
        if seen.writable:
            self.arrays[name] = array
        else:
            self.views[name] = self.arrays[name] = replace(seen, writable=True)
            self.made[name] = array

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter that was passed; of a list, its length comes first."""
        inside = {n for names in self.lists.values() for n in names}
        found = {n: v.shape for n, v in self.views.items() if n not in inside}
        return found | {n: (len(names), *self.views[names[0]].shape) for n, names in self.lists.items()}

    def order_outs(self, names: list[str]) -> None:
        """Decides what the call returns: one output, a tuple of several, or None; a list for one of several devices."""
        have = {**self.arrays, **self.made}
        found = [[have.get(one) for one in self.lists[n]] if n in self.lists else have.get(n) for n in names]
        self.outs = found[0] if len(found) == 1 else tuple(found) if found else None

    def as_numpy(self) -> dict[str, NDArray[Any]]:
        """The arguments as NumPy arrays over their own memory, whatever library made them."""
        return {name: over_memory(seen) for name, seen in self.views.items()}


def over_memory(seen: ArrayView) -> NDArray[Any]:
    """A NumPy array over the elements of a view, in place. *Requires*: the view is of this machine's memory."""
    dtype, (low, high) = numpy_dtype(seen.dtype), seen.span
    if low == high:
        return np.empty(seen.shape, dtype)
    raw: Any = (ctypes.c_char * (high - low)).from_address(low)
    raw.keeps_alive = seen.owner
    made: NDArray[Any] = np.ndarray(
        seen.shape, dtype, raw, seen.ptr - low, tuple(s * dtype.itemsize for s in seen.strides)
    )
    made.flags.writeable = seen.writable
    return made


def bind_arguments(
    definition: Definition, args: tuple[Any, ...], staged: Mapping[str, Any], *, described: bool = False
) -> Call:
    """Names, views and the specialisation key of a call. With `described`, arguments may be `td.like`.

    *Errors*: `call/arguments`, `call/dtype`, `array/*`.
    """
    given = _by_name(definition, args, staged)
    views: dict[str, ArrayView] = {}
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    dtypes: dict[str, DType | None] = {}
    lists: dict[str, tuple[str, ...]] = {}
    for parameter in _arrays_and_scalars(definition):
        value = given.get(parameter.name)
        if parameter.kind == "scalar":
            if value is not None:
                scalars[parameter.name] = _scalar(definition, parameter, value)
        elif value is not None and parameter.devices:
            each = one_a_device(definition, parameter, value)
            names = part_names(parameter.name, len(each), list(definition.parameters))
            lists[parameter.name] = tuple(names)
            for k, (name, array) in enumerate(zip(names, each, strict=True)):
                views[name], arrays[name] = _seen(parameter, array, f"{parameter.name}[{k}]", described), array
            dtypes[parameter.name] = _dtype(definition, parameter, views[names[0]])
            alike(definition, parameter, [views[n] for n in names])
        elif value is not None:
            views[parameter.name] = _seen(parameter, value, parameter.name, described)
            arrays[parameter.name] = value
            dtypes[parameter.name] = _dtype(definition, parameter, views[parameter.name])
    if lists:
        on_one_device(definition, views)
    device = same_device(views.items())
    values = definition.staged_values({n: v for n, v in staged.items() if n in _staged_names(definition)})
    key = (tuple(dtypes.items()), tuple(scalars), frozen(values))
    return Call(views, scalars, values, dtypes, key, device, arrays, lists=lists)


def tell_call(error: TreadleError) -> None:
    """Has an error tell the user's line of the call; where the kernel says what a call must be, it stays as a note."""
    here = user_position()
    if here is None or (error.span is not None and not error.code.startswith("call/")):
        return
    if error.span not in (None, here):
        error.notes = (*error.notes, (error.span, "the kernel says so here"))
    error.span = here


def _seen(parameter: Parameter, value: Any, name: str, described: bool) -> ArrayView:
    seen = value.view(name) if described and isinstance(value, Like) else view(value, name=name)
    return check_output(seen, name=name) if parameter.kind == "out" else seen


def _arrays_and_scalars(definition: Definition) -> list[Parameter]:
    return [p for p in definition.parameters.values() if p.kind != "staged"]


def _staged_names(definition: Definition) -> set[str]:
    return {p.name for p in definition.parameters.values() if p.kind == "staged"}


def _by_name(definition: Definition, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    parameters = _arrays_and_scalars(definition)
    staged = _staged_names(definition)
    if len(args) > len(parameters):
        raise _wrong(definition, f"{len(args)} positional arguments", f"at most {len(parameters)}")
    given = dict(zip((p.name for p in parameters), args, strict=False))
    names = {p.name for p in parameters}
    for name, value in keywords.items():
        if name in names:
            if name in given:
                raise _wrong(definition, f"{name} twice", "each argument once")
            given[name] = value
        elif name not in staged:
            raise _wrong(definition, f"an unknown keyword {name}", "the kernel's own parameters")
    for parameter in parameters:
        if given.get(parameter.name) is None and parameter.kind != "out" and not parameter.optional:
            raise _wrong(definition, f"no {parameter.name}", "every argument without a default")
    return given


def _wrong(definition: Definition, found: str, expected: str) -> ArgumentMissing:
    listed = ", ".join(p.name for p in _arrays_and_scalars(definition))
    staged = ", ".join(sorted(_staged_names(definition)))
    return ArgumentMissing(
        doing=f"calling {definition.name}",
        found=found,
        expected=expected,
        hint=f"call {definition.name}({listed}{', *, ' + staged if staged else ''})",
        span=definition.span,
    )


def _dtype(definition: Definition, parameter: Parameter, seen: ArrayView) -> DType:
    declared = parameter.dtype
    have = named(seen.dtype)
    if declared is None or declared == have:
        return have
    if declared.packed and have.name == "u8":
        return declared
    raise DTypeWrong(
        doing=f"calling {definition.name}",
        found=f"{parameter.name} of {have.name}",
        expected=f"{declared.name}, which the parameter declares",
        hint=f"convert it before the call, to the NumPy dtype {declared.numpy} (of ml_dtypes, for small floats)",
        span=definition.span,
    )


def _scalar(definition: Definition, parameter: Parameter, value: Any) -> int | float | bool:
    number: Any = value
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.asarray(cast(Any, value))
        number = array.item() if array.ndim == 0 else array
    dtype = parameter.dtype
    if isinstance(number, (bool, int, float)) and dtype is not None and _fits(number, dtype):
        return number
    raise DTypeWrong(
        doing=f"calling {definition.name}",
        found=f"{parameter.name} = {number!r} of type {type(number).__name__}",
        expected=f"a number of dtype {dtype}",
        hint="pass a Python number, within the range of the dtype",
        span=definition.span,
    )


def _fits(number: int | float | bool, dtype: DType) -> bool:
    """Whether a Python number is one of the dtype: whole numbers within its range, any number for a float."""
    if dtype.is_float:
        return isinstance(number, float) or abs(number) < 1 << 1023
    if dtype.name == "bool":
        return isinstance(number, bool)
    info = np.iinfo(dtype.numpy)
    return isinstance(number, int) and info.min <= number <= info.max


def frozen(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Staged values as part of a key: equal for values that make the same program."""
    return tuple((name, freeze(value)) for name, value in sorted(values.items()))


def _packed(dtype: DType | None) -> bool:
    return dtype is not None and dtype.packed


def known_extents(definition: Definition, call: Call, names: tuple[str, ...]) -> dict[str, int]:
    """Extents of the named dimensions, as far as a call's arguments tell them directly."""
    found: dict[str, int] = {}
    shapes = call.shapes
    # Packed arrays last: the others' extents are exact.
    for parameter in sorted(definition.tensors, key=lambda p: _packed(p.dtype)):
        given = shapes.get(parameter.name)
        if given is not None and parameter.devices:
            root = parameter.dims[0].identity.root.name
            if root in names:
                found.setdefault(root, given[0])
        if given is None or len(given) != len(parameter.dims):
            continue
        shape = given if parameter.dtype is None else in_elements(parameter.dtype, given)
        for dimension, extent in zip(parameter.dims, shape, strict=True):
            symbols = dimension.identity.extent.symbols
            if len(symbols) == 1 and dimension.identity.extent == sym(next(iter(symbols))):
                name = next(iter(symbols))
                if name in names:
                    found.setdefault(name, extent)
    return found
