"""What the emitter's tests share: machine programs made by hand, and running them on arrays.

A run packs the argument block, gives a workspace with a canary behind it, and calls the entry: with one worker
directly, with two through the pool.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treadle.algebra.dims import Dim, dim
from treadle.algebra.expr import Expr, const, sym
from treadle.dtype.formats import DType
from treadle.ir.core import Block, Program, ScalarParam, Tensor, TileType, Value
from treadle.ir.guard import Fact, Guard
from treadle.machine.form import Body, Buffer, Frag, Host, Kernel, Launch, MachineProgram, Role
from treadle.runtime.cpu import load_object
from treadle.runtime.host import host_features
from treadle.runtime.native import install_compiler
from treadle.runtime.pool import pool
from treadle.targets.cpu.emit import EmittedText, emit
from treadle.toolchain.features import LEVELS
from treadle.toolchain.llvm import compile_ir

S = [sym(f"${i}") for i in range(4)]
"""Coordinates."""

HOST_LEVELS = [level for level in ("avx2", "avx512") if LEVELS[level] <= host_features()]
"""Levels that this machine can run."""

install_compiler(lambda text, name: compile_ir(text, cpu_features="", name=name).object)


def program(
    tensors: Sequence[tuple[str, DType, Sequence[Any]]],
    body: Body,
    frags: Sequence[Frag],
    *,
    level: str = "avx512",
    buffers: Sequence[Buffer] = (),
    workspace: Sequence[Buffer] = (),
    facts: Sequence[Fact] = (),
    scalars: Sequence[tuple[str, DType]] = (),
    lets: Mapping[str, Expr] | None = None,
    counters: Sequence[str] = (),
    numerics: Mapping[str, str] | None = None,
) -> MachineProgram:
    """A machine program with one worker role; tensor axes are names of dimensions or numbers."""
    dims: dict[Any, Dim] = {}
    for _, _, axes in tensors:
        for a in axes:
            if a not in dims:
                dims[a] = dim(a) if isinstance(a, str) else dim(f"D{a}", const(a), static=True)
    source = Program(
        name="tried",
        dims=list(dims.values()),
        tensors=[Tensor(n, tuple(dims[a] for a in axes), d) for n, d, axes in tensors],
        scalars=[ScalarParam(n, Value(f"%{n}", TileType(d))) for n, d in scalars],
        body=Block(),
        numerics=dict(numerics or {}),
    )
    role = Role("worker", 1, 1, body, counters=tuple(counters))
    return MachineProgram(
        target=f"cpu:{level}",
        program=source,
        guard=Guard(tuple(facts)),
        host=Host(lets=dict(lets or {}), workspace=list(workspace), launches=[Launch("main", const(1))]),
        kernels=[Kernel("main", [role], list(frags), list(buffers))],
    )


class Compiled:
    """A machine program in memory."""

    def __init__(
        self,
        machine: MachineProgram,
        *,
        asm: bool = False,
        features: frozenset[str] | None = None,
        stand_in: Callable[[str], str] | None = None,
    ) -> None:
        """`stand_in` makes a text for another processor one that this machine can run."""
        level = machine.target.partition(":")[2]
        self.emitted: EmittedText = emit(machine, features or LEVELS[level])
        text, flags, effort = self.emitted.text, self.emitted.features, 3
        if stand_in is not None:
            text, flags, effort = stand_in(text), LEVELS["avx2"], 1
        done = compile_ir(text, cpu_features=flags, opt_level=effort, name="tried", want_asm=asm)
        self.asm = done.asm or ""
        self.seconds = done.seconds
        self.tensors = [t for t in machine.program.tensors if t.name in self.emitted.tensors]
        self.scalars = machine.program.scalars
        names = [self.emitted.entry, self.emitted.workspace_function]
        self._loaded = load_object(done.object, names, name="tried", features=done.features)
        self._entry = self._loaded.function(self.emitted.entry)
        self._size = self._loaded.function(
            self.emitted.workspace_function, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        )

    def block(self, arrays: Mapping[str, Any], scalars: Mapping[str, Any], workers: int) -> np.ndarray[Any, Any]:
        """The argument block, without the closing words."""
        words: list[int] = []
        for t in self.tensors:
            a = arrays[t.name]
            assert a.dtype == t.dtype.numpy, t.name
            words.append(a.ctypes.data)
            words += a.shape
            words += [s // a.itemsize for s in a.strides]
        for s in self.scalars:
            raw = np.asarray(scalars[s.name], dtype=s.value.type.dtype.numpy).tobytes()
            words.append(int.from_bytes(raw.ljust(8, b"\0"), "little", signed=True))
        return np.array([*words, 0, workers, pool().run_address if workers > 1 else 0], dtype=np.int64)

    def __call__(self, scalars: Mapping[str, Any] | None = None, workers: int = 1, **arrays: Any) -> None:
        """Runs it; arrays are changed in place."""
        block = self.block(arrays, scalars or {}, workers)
        need = self._size(block.ctypes.data)
        extents = {n: int(x) for t in self.tensors for n, x in zip((d.name for d in t.dims), arrays[t.name].shape)}
        assert need == self.emitted.workspace.bytes(extents, workers)
        space = np.full(need + 128, 0xAB, dtype=np.uint8)
        start = -space.ctypes.data % 64
        block[-3] = space.ctypes.data + start
        assert self._entry(block.ctypes.data) == 0
        assert (space[:start] == 0xAB).all() and (space[start + need :] == 0xAB).all(), "outside the workspace"


class Guarded:
    """Arrays whose memory ends (or begins) at a page that cannot be accessed."""

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []

    def array(self, values: np.ndarray[Any, Any], *, at_end: bool = True) -> np.ndarray[Any, Any]:
        """A contiguous copy that ends right before a forbidden page, or begins right behind one."""
        page = mmap.PAGESIZE
        inner = -(-max(values.nbytes, 1) // page) * page
        held = mmap.mmap(-1, inner + 2 * page)
        self._maps.append(held)
        base = ctypes.addressof(ctypes.c_char.from_buffer(held))
        libc = ctypes.CDLL(None, use_errno=True)
        for edge in (base, base + page + inner):
            assert libc.mprotect(ctypes.c_void_p(edge), ctypes.c_size_t(page), 0) == 0
        offset = page + (inner - values.nbytes if at_end else 0)
        made = np.frombuffer(held, dtype=values.dtype, count=values.size, offset=offset).reshape(values.shape)
        made[...] = values
        return made


def integers(rng: np.random.Generator, shape: Sequence[int], dtype: DType, limit: int = 8) -> np.ndarray[Any, Any]:
    """Small whole numbers of any dtype: sums and products of them are exact."""
    low = 0 if dtype.kind == "uint" else -limit
    return rng.integers(low, limit + 1, size=tuple(shape)).astype(dtype.numpy)


def assembly(machine: MachineProgram) -> str:
    """The assembly text, for a level that this machine may lack."""
    emitted = emit(machine, LEVELS[machine.target.partition(":")[2]])
    done = compile_ir(emitted.text, cpu_features=emitted.features, name="tried", want_asm=True)
    assert done.asm is not None
    return done.asm
