"""Arguments of 4-bit dtypes: arrays of u8 whose bytes hold two elements along the last axis.

Compiled code reads and writes them as they are; the reference interpreter runs on copies with one byte an element. The
half byte behind the last element of an odd row belongs to nobody: it stays what it is, and is 0 in an output that a
call leaves out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.driver.errors import ArgumentsOverlap
from treadle.dtype.formats import DType, u8
from treadle.dtype.packing import pack, unpack
from treadle.ir.core import Program, Tensor
from treadle.ir.extents import told_extents
from treadle.ir.ops.access import Store

Array = NDArray[Any]
Shape = tuple[int, ...]


def held_as(dtype: DType) -> DType:
    """The dtype of the array that holds elements of `dtype`."""
    return u8 if dtype.packed else dtype


def in_bytes(dtype: DType, shape: Shape) -> Shape:
    """The shape of the array that holds so many elements."""
    return (*shape[:-1], -(-shape[-1] // 2)) if dtype.packed and shape else shape


def in_elements(dtype: DType, shape: Shape) -> Shape:
    """The most elements that an array of this shape holds. Requires: for a packed dtype, `shape` counts bytes."""
    return (*shape[:-1], 2 * shape[-1]) if dtype.packed and shape else shape


def element_shapes(program: Program, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of arguments in elements.

    A packed row of `n` bytes has `2 * n - 1` elements where another argument tells that extent, else `2 * n`.
    Requires: each shape has its tensor's rank.
    """
    whole = {t.name: shapes[t.name] for t in program.tensors if t.name in shapes and not t.dtype.packed}
    known = told_extents(program, whole)
    for tensor in program.tensors:
        if tensor.name in shapes and tensor.dtype.packed:
            whole[tensor.name] = _packed_shape(tensor, shapes[tensor.name], known)
    return whole


def _packed_shape(tensor: Tensor, shape: Shape, known: Mapping[str, int]) -> Shape:
    full = in_elements(tensor.dtype, shape)
    extent = tensor.dims[-1].extent if full else None
    if extent is not None and extent.symbols <= known.keys() and int(extent.evaluate(known)) == full[-1] - 1:
        return (*full[:-1], full[-1] - 1)
    return full


@contextmanager
def element_arrays(
    program: Program, extents: Mapping[str, int], arrays: Mapping[str, Array]
) -> Generator[dict[str, Array]]:
    """The arrays, packed ones as copies with one byte an element; what the program changes in those goes back.

    *Errors*: `call/overlap` for packed arrays that overlap a stored one and are not the same.
    """
    packed = {t.name: t for t in program.tensors if t.dtype.packed and t.name in arrays}
    stored = {op.tensor.name for op in program.body.walk() if isinstance(op, Store)}
    given: dict[str, Array] = dict(arrays)
    copies: dict[Any, Array] = {}
    for name, tensor in packed.items():
        held, shape = arrays[name], tuple(int(d.extent.evaluate(extents)) for d in tensor.dims)
        _apart(program, name, arrays, stored)
        key = (tensor.dtype.name, shape, _place(held))
        if key not in copies:
            copies[key] = unpack(np.atleast_1d(held), tensor.dtype, shape[-1] if shape else 1).reshape(shape)
        given[name] = copies[key]
    before = {n: pack(np.atleast_1d(given[n]), t.dtype) for n, t in packed.items() if n in stored}
    yield given
    for name, old in before.items():
        new = pack(np.atleast_1d(given[name]), packed[name].dtype)
        if (new != old).any():
            held = arrays[name]
            if given[name].ndim and given[name].shape[-1] % 2:
                new[..., -1] |= np.atleast_1d(held)[..., -1] & np.uint8(0xF0)
            held[...] = new.reshape(held.shape)


def _place(array: Array) -> tuple[int, Shape, Shape]:
    return array.__array_interface__["data"][0], array.shape, array.strides


def _apart(program: Program, name: str, arrays: Mapping[str, Array], stored: set[str]) -> None:
    for other, array in arrays.items():
        meet = other != name and (name in stored or other in stored) and np.may_share_memory(arrays[name], array)
        if meet and _place(array) != _place(arrays[name]):
            raise ArgumentsOverlap(
                doing=f"calling {program.name}",
                found=f"{name} and {other} share memory, and are not the same array",
                expected="packed arrays that lie apart from what is stored, or are the array that is stored",
                hint="pass a copy of one of them",
                span=program.span,
            )
