"""Where memory lies: tensor arguments, shared and workspace buffers, local arrays; and element offsets in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

from treadle.algebra.expr import ONE, ZERO, Expr, as_expr, ceildiv, sym
from treadle.dtype.formats import DType
from treadle.ir.core import Tensor
from treadle.ir.guard import Aligned, Disjoint, Guard, Pitch, Unit
from treadle.machine.form import Barrier, Buffer, Kernel
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.values import ctype

SHARED_LIMIT = 227 << 10
LOCAL_ARRAY = 512
"""Bytes of local buffers that a thread may have as arrays of its own."""
WORKSPACE_ALIGN = 256

Kind = Literal["global", "shared", "array"]


@dataclass(frozen=True)
class Storage:
    """Memory under a name. `pointer`: the C++ pointer or array of its first element ("global", "array"); `start`: bytes
    from the start of shared memory. `strides` and `version_size` in elements, `align` in bytes. `halves`: two elements
    share a byte along the last axis, and the strides count bytes (tensors of 4-bit elements; in shared memory two
    share a byte too, and strides count elements; other buffers have a byte for each)."""

    name: str
    dtype: DType
    kind: Kind
    pointer: str
    start: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    align: int
    versions: int = 0
    version_size: Expr = ZERO
    swizzle: int = 0
    halves: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element that has bytes of its own."""
        return bytes_of(self.dtype)

    def offset(self, index: Sequence[Expr], version: Expr | None) -> Expr:
        """Elements from the start to the element at `index` of a version."""
        if len(index) != len(self.strides):
            raise ill_formed(f"{len(index)} indices of {self.name}", f"{len(self.strides)}")
        total = ZERO
        for i, stride in zip(index, self.strides):
            total = total + i * stride
        if version is not None:
            if not self.versions:
                raise ill_formed(f"a version of {self.name}", "a ring")
            total = total + (version % self.versions) * self.version_size
        return total


def bytes_of(dtype: DType) -> int:
    """Bytes of an element in a buffer."""
    return 1 if dtype.packed else dtype.itemsize


def stride_symbol(tensor: str, axis: int) -> str:
    """The symbol of a tensor's stride."""
    return f"s.{tensor}.{axis}"


def unit_axis(guard: Guard, tensor: Tensor) -> int | None:
    """The axis whose stride the guard knows to be one element."""
    for fact in guard.facts:
        if isinstance(fact, Unit) and fact.tensor == tensor.name:
            return fact.axis if fact.axis >= 0 else fact.axis + len(tensor.dims)
    return None


def pitch(guard: Guard, tensor: str, axis: int) -> int:
    """What the guard knows to divide a stride."""
    known = 1
    for fact in guard.facts:
        if isinstance(fact, Pitch) and fact.tensor == tensor and fact.axis == axis:
            known = known * fact.by // gcd(known, fact.by)
    return known


def alignment(guard: Guard, tensor: Tensor) -> int:
    """What the guard knows to divide the address of a tensor's first element, in bytes."""
    known = bytes_of(tensor.dtype)
    for fact in guard.facts:
        if isinstance(fact, Aligned) and fact.tensor == tensor.name:
            known = max(known, fact.bytes)
    return known


def tensor_storage(guard: Guard, tensor: Tensor, pointer: str) -> Storage:
    """The storage of a tensor argument. Strides that the guard knows to be one are folded."""
    unit = unit_axis(guard, tensor)
    strides = tuple(ONE if a == unit else sym(stride_symbol(tensor.name, a)) for a in range(len(tensor.dims)))
    shape = tuple(d.extent for d in tensor.dims)
    return Storage(
        tensor.name,
        tensor.dtype,
        "global",
        pointer,
        ZERO,
        shape,
        strides,
        alignment(guard, tensor),
        halves=tensor.dtype.packed,
    )


def apart(guard: Guard, tensor: str, stored: Sequence[str]) -> bool:
    """Whether the guard says that the tensor shares no byte with what the program stores."""
    pairs = {frozenset((f.first, f.second)) for f in guard.facts if isinstance(f, Disjoint)}
    return tensor not in stored and all(frozenset((tensor, other)) in pairs for other in stored)


def _row_major(shape: Sequence[Expr]) -> tuple[tuple[Expr, ...], Expr]:
    strides: list[Expr] = []
    step = ONE
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent
    return tuple(strides), step


def _bytes(buffer: Buffer) -> Expr:
    if buffer.place == "shared":
        return buffer.size
    _, size = _row_major(buffer.shape)
    return size * max(1, buffer.versions) * bytes_of(buffer.dtype)


@dataclass(frozen=True)
class SharedPlan:
    """The shared memory of a kernel: its buffers, the bytes that they and the barriers take, and the largest
    alignment."""

    buffers: dict[str, Storage]
    barriers: dict[str, Barrier]
    size: int
    align: int

    @property
    def slack(self) -> int:
        """Bytes that rounding the base up may cost; dynamic shared memory itself is 16-byte aligned."""
        return self.align if self.align > 16 else 0


def shared_plan(kernel: Kernel) -> SharedPlan:
    """Places the shared buffers: at their offsets, those without one behind the rest."""
    found: dict[str, Storage] = {}
    top = max((b.offset + 8 * b.versions for b in kernel.barriers), default=0)
    align = 8 if kernel.barriers else 1
    own = [b for b in kernel.buffers if b.place == "shared"]
    for buffer in sorted(own, key=lambda b: b.offset is None):
        size, given = _bytes(buffer).constant, buffer.offset.constant if buffer.offset is not None else None
        if size is None or (buffer.offset is not None and given is None):
            raise unsupported(f"the shared buffer {buffer.name} with a symbolic size or place", "numbers")
        start = given if given is not None else -(-top // buffer.align) * buffer.align
        strides, whole = _row_major(buffer.shape)
        found[buffer.name] = Storage(
            buffer.name,
            buffer.dtype,
            "shared",
            "",
            as_expr(start),
            buffer.shape,
            strides,
            gcd(buffer.align, start) if start else buffer.align,
            buffer.versions,
            whole,
            buffer.swizzle,
            buffer.dtype.packed,
        )
        top, align = max(top, start + size), max(align, buffer.align)
    plan = SharedPlan(found, {b.name: b for b in kernel.barriers}, top, align)
    if top + plan.slack > SHARED_LIMIT:
        raise unsupported(f"{top} bytes of shared memory and {plan.slack} to align it", f"at most {SHARED_LIMIT}")
    return plan


@dataclass(frozen=True)
class LocalPlan:
    """Local buffers: arrays of a thread, and those in the workspace with the bytes that each agent needs there."""

    arrays: dict[str, Storage]
    sizes: dict[str, int]
    spread: dict[str, Storage]
    per_agent: Expr


def local_plan(kernel: Kernel, pointers: dict[str, str], single: bool) -> LocalPlan:
    """`single`: the agent is one thread. `pointers`: names in the text."""
    arrays: dict[str, Storage] = {}
    sizes: dict[str, int] = {}
    spread: dict[str, Storage] = {}
    taken, top = 0, ZERO
    for buffer in (b for b in kernel.buffers if b.place == "local"):
        strides, whole = _row_major(buffer.shape)
        size = _bytes(buffer)
        number = size.constant
        made = (buffer.name, buffer.dtype)
        tail = (buffer.shape, strides, buffer.align, buffer.versions, whole)
        if single and number is not None and taken + number <= LOCAL_ARRAY:
            taken += number
            sizes[buffer.name] = max(1, number // bytes_of(buffer.dtype))
            arrays[buffer.name] = Storage(*made, "array", pointers[buffer.name], ZERO, *tail)
            continue
        spread[buffer.name] = Storage(*made, "global", pointers[buffer.name], top, *tail)
        top = top + ceildiv(size, WORKSPACE_ALIGN) * WORKSPACE_ALIGN
    return LocalPlan(arrays, sizes, spread, top)


def workspace_plan(buffers: Sequence[Buffer], pointers: dict[str, str]) -> tuple[dict[str, Storage], Expr]:
    """Workspace buffers behind one another, and the bytes that they take together."""
    found: dict[str, Storage] = {}
    top = ZERO
    for buffer in buffers:
        strides, whole = _row_major(buffer.shape)
        found[buffer.name] = Storage(
            buffer.name,
            buffer.dtype,
            "global",
            pointers[buffer.name],
            top,
            buffer.shape,
            strides,
            min(buffer.align, WORKSPACE_ALIGN),
            buffer.versions,
            whole,
        )
        top = top + ceildiv(_bytes(buffer), WORKSPACE_ALIGN) * WORKSPACE_ALIGN
    return found, top


def element_type(storage: Storage) -> str:
    """The C++ type of an element in memory: a bool is a byte."""
    return "u8" if storage.dtype.is_bool or storage.halves else ctype(storage.dtype)
