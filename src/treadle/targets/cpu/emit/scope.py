"""What one LLVM function has in hand while it is written, and how a task's function gets it from its caller.

A scope holds the symbols, memories and fragments of a function. A task function receives everything through one frame
in memory, which the caller fills before it hands out the tasks; what a task does not use, LLVM removes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from treadle.algebra.expr import Expr
from treadle.machine.form import Buffer, Frag
from treadle.targets.cpu.emit.access import Access
from treadle.targets.cpu.emit.arith import Arith
from treadle.targets.cpu.emit.folds import Folds
from treadle.targets.cpu.emit.index import Counter, IndexWriter, Known
from treadle.targets.cpu.emit.lanes import Lanes, Vec, memory_bytes
from treadle.targets.cpu.emit.layouts import Layout
from treadle.targets.cpu.emit.moves import Moves
from treadle.targets.cpu.emit.owed import Fours
from treadle.targets.cpu.emit.places import Memory
from treadle.targets.cpu.emit.registers import Registers
from treadle.targets.cpu.emit.searches import Search
from treadle.targets.cpu.emit.text import Function, Int
from treadle.targets.cpu.emit.tiles import Grid, Tiles
from treadle.targets.cpu.emit.workspace import BufferPlan


@dataclass(frozen=True)
class Setting:
    """What is the same for every function of a kernel."""

    width: int
    accuracy: str
    attributes: str
    frags: dict[str, Frag]
    layouts: dict[str, Layout]
    grids: dict[str, Grid]
    unrolled: frozenset[str]
    captured: tuple[str, ...]
    plan: BufferPlan
    features: frozenset[str]
    pairs: frozenset[str] = frozenset()
    shifted: frozenset[str] = frozenset()
    unsigned: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    searches: Mapping[int, Search] = field(default_factory=dict[int, Search])


@dataclass(frozen=True)
class Pool:
    """The launch's workspace and workers. `piece` is the first worker's, `piece_bytes` the distance of two."""

    workers: Int
    run: str
    piece: str
    piece_bytes: Int


class Scope:
    """One function being written. `worker` is the task's worker number; None outside of tasks."""

    def __init__(self, fn: Function, setting: Setting, pool: Pool, worker: str | None = None) -> None:
        self.fn = fn
        self.setting = setting
        self.pool = pool
        self.worker = worker
        self.symbols: dict[str, Known] = {}
        self.memories: dict[str, Memory] = {}
        self.lanes = Lanes(fn)
        self.registers = Registers(fn, self.lanes, setting.width, setting.frags, setting.layouts, setting.full)
        self.index = IndexWriter(fn, self.lanes, self.symbols, self.registers.read_at)
        self.registers.index = self.index
        self.arith = Arith(fn, self.lanes, setting.accuracy, setting.features)
        self.moves = Moves(fn, self.lanes, self.arith)
        self.access = Access(self.registers, self.index, self.moves, setting.width, setting.shifted)
        self.folds = Folds(self.registers, self.arith, self.moves, self.memories)
        self.fours = Fours(self.registers, setting.frags, setting.unsigned, frozenset(setting.plan.buffers))
        self.tiles = Tiles(fn, self.index, setting.grids)

    def value(self, expr: Expr) -> Int:
        """An index expression without coordinates."""
        return self.index.value(expr)

    @contextmanager
    def inner(self) -> Generator[None]:
        """Symbols named inside are forgotten afterwards: their values are known only on the way through."""
        before = dict(self.symbols)
        yield
        self.symbols.clear()
        self.symbols.update(before)

    # ---- buffers

    def add_buffer(self, buffer: Buffer, base: str) -> None:
        """Makes a buffer known: row-major from its base."""
        strides: list[Int] = []
        step: Int = 1
        for n in reversed(buffer.shape):
            strides.insert(0, step)
            step = self.fn.mul(step, self.value(n))
        self.memories[buffer.name] = Memory(buffer.name, buffer.dtype, base, tuple(strides), buffer.versions, step)

    def add_frame_buffers(self) -> None:
        """Small local buffers, in this function's frame."""
        for name in sorted(self.setting.plan.frame):
            buffer = self.setting.plan.buffers[name]
            count = max(1, buffer.versions)
            for n in buffer.shape:
                extent = self.value(n)
                assert isinstance(extent, int), "a buffer in the frame has an extent that is no number"
                count *= extent
            self.add_buffer(
                buffer, self.fn.alloca(f"[{count * memory_bytes(buffer.dtype)} x i8]", max(64, buffer.align))
            )

    def add_placed_buffers(self, base: str, offsets: dict[str, Expr]) -> None:
        """Buffers at offsets from a base."""
        for name, offset in offsets.items():
            pointer = self.fn.value(f"getelementptr i8, ptr {base}, i64 {self.value(offset)}")
            self.add_buffer(self.setting.plan.buffers[name], pointer)

    # ---- frames

    def child(self, fn: Function, frame: FrameReader, worker: str) -> Scope:
        """The scope of a task function, with everything of this scope that a task may use."""
        pool = Pool(
            frame.int(self.pool.workers), "null", frame.pointer(self.pool.piece), frame.int(self.pool.piece_bytes)
        )
        inner = Scope(fn, self.setting, pool, worker)
        for name, known in self.symbols.items():
            if isinstance(known, Counter):
                known = self.fn.value(f"load i64, ptr {known.pointer}")
            inner.symbols[name] = frame.int(known) if isinstance(known, str) else known
        plan = self.setting.plan
        for memory in self.memories.values():
            if memory.name in plan.frame or (memory.name in plan.worker and memory.name not in plan.shared):
                continue
            strides = tuple(frame.int(s) for s in memory.strides)
            step = frame.int(memory.version_step)
            base = frame.pointer(memory.base)
            inner.memories[memory.name] = Memory(
                memory.name, memory.dtype, base, strides, memory.versions, step, memory.packed
            )
        for name, value in self.registers.constants.items():
            inner.registers.constants[name] = frame.vector(value)
        for name in self.setting.captured:
            for point in self.registers.points(name):
                inner.registers.write(name, point, frame.vector(self.registers.fetch(name, point)))
        inner.add_frame_buffers()
        offset = fn.mul(pool.piece_bytes, worker)
        inner.add_placed_buffers(fn.value(f"getelementptr i8, ptr {pool.piece}, i64 {offset}"), plan.worker)
        return inner


class FrameReader:
    """Values passed through a frame: each is stored by the caller and loaded by the task function."""

    def __init__(self, outer: Function, inner: Function) -> None:
        self._outer = outer
        self._inner = inner
        self._size = 0
        self._stores: list[tuple[str, str, int]] = []

    def _slot(self, size: int) -> int:
        step = 8 if size <= 8 else 64
        at = -(-self._size // step) * step
        self._size = at + size
        return at

    def _pass(self, kind: str, text: str, size: int) -> str:
        at = self._slot(size)
        self._stores.append((kind, text, at))
        pointer = self._inner.value(f"getelementptr i8, ptr %frame, i64 {at}")
        return self._inner.value(f"load {kind}, ptr {pointer}, align {8 if size <= 8 else 64}")

    def int(self, value: Int) -> Int:
        """An integer; numbers need no passing."""
        return value if isinstance(value, int) else self._pass("i64", value, 8)

    def pointer(self, text: str) -> str:
        """A pointer."""
        return self._pass("ptr", text, 8)

    def vector(self, value: Vec) -> Vec:
        """A fragment's value."""
        if not value.text.startswith("%"):
            return value
        size = max(1, value.dtype.bits // 8) * (value.lanes or 1)
        return Vec(
            self._pass(value.type, value.text, 8 if value.lanes is None else max(size, 9)), value.dtype, value.lanes
        )

    def fill(self) -> str:
        """Writes the frame in the caller; its address."""
        frame = self._outer.alloca(f"[{max(8, self._size)} x i8]", 64)
        for kind, text, at in self._stores:
            pointer = self._outer.value(f"getelementptr i8, ptr {frame}, i64 {at}")
            self._outer.do(f"store {kind} {text}, ptr {pointer}, align 8")
        return frame
