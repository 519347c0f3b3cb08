"""A machine program as a module of LLVM IR: the entry that reads the argument block, and everything below it.

The entry is `i32 <name>(ptr argblock)`; `i64 <name>_workspace(ptr argblock)` tells the bytes of workspace for the
same block. The block has 64-bit words: for each tensor its data pointer, extents and strides in elements; for each
scalar its bits in the low part; then the workspace, the number of workers, and the address of the pool's `run`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from treadle.algebra.expr import ONE
from treadle.base.names import identifier
from treadle.dtype.formats import DType
from treadle.ir.core import ScalarParam
from treadle.ir.extents import extent_sources
from treadle.ir.guard import Absent, Unit
from treadle.machine.form import Kernel, MachineProgram, Role, Stmt, Tasks, walk
from treadle.targets.cpu.emit.control import Bodies
from treadle.targets.cpu.emit.errors import EmitFeature, unsupported
from treadle.targets.cpu.emit.fours import shifted, unsigned
from treadle.targets.cpu.emit.index import Counter
from treadle.targets.cpu.emit.lanes import Vec, lane_type
from treadle.targets.cpu.emit.layouts import choose, full, reads, unrolled_loops, written
from treadle.targets.cpu.emit.pairs import narrowed, paired
from treadle.targets.cpu.emit.places import Memory
from treadle.targets.cpu.emit.scope import Pool, Scope, Setting
from treadle.targets.cpu.emit.searches import searches
from treadle.targets.cpu.emit.text import Function, Module
from treadle.targets.cpu.emit.tiles import grids
from treadle.targets.cpu.emit.workspace import Workspace, numbers, plan_buffers
from treadle.toolchain.features import LEVELS, is_arm

WIDTHS = {"avx2": 8, "avx512": 16, "amx": 16, "neon": 4, "neon_dot": 4, "sve": 8}
"""f32 lanes of a vector at each level; vectors of other dtypes have as many lanes."""


@dataclass(frozen=True)
class EmittedText:
    """LLVM IR and how to call it.

    `entry` and `workspace_function` are symbols of the text; `workspace` is the same size as an expression. `tensors`
    and `scalars` are the parameters in the order of the block. `features` is what the text must be compiled for.
    """

    text: str
    entry: str
    workspace_function: str
    workspace: Workspace
    tensors: tuple[str, ...]
    scalars: tuple[str, ...]
    features: frozenset[str]
    parallel: bool


def emit(program: MachineProgram, features: Iterable[str]) -> EmittedText:
    """The machine program as LLVM IR for a processor with `features`.

    *Requires*: a program of a `cpu` target that the verifier of form accepts.
    *Errors*: emit/cpu-feature, emit/cpu-unsupported, math/no-expansion; emit/cpu-ill-formed is a bug of ours.
    """
    level = program.target.partition(":")[2] or "avx2"
    if not program.target.startswith("cpu") or level not in WIDTHS:
        raise unsupported(f"the target {program.target}", ", ".join(f"cpu:{name}" for name in WIDTHS))
    on = frozenset(features)
    missing = LEVELS[level] - on
    if missing - {"amx_int8"}:
        raise EmitFeature(
            doing=f"emitting LLVM IR for {program.target}",
            found=f"features without {', '.join(sorted(missing))}",
            expected="every feature of the level",
            hint="plan for a lower level: cpu:avx512 or cpu:avx2",
        )
    return _Program(program, WIDTHS[level], on).emit()


class _Program:
    def __init__(self, program: MachineProgram, width: int, features: frozenset[str]) -> None:
        self.program = program
        self.source = program.program
        self.width = width
        self.features = features
        bits = 32 * width
        self.attributes = f'nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        if "sve_256" in features:
            # Vectors of two granules of 128 bits, exactly: LLVM then keeps fixed vectors in scalable registers.
            self.attributes += " vscale_range(2,2)"
        self.module = Module(width, arm=is_arm(features))
        self.module.intrinsics = {m.name: m for m in self.source.intrinsics if m.text(program.target) is not None}
        for meaning in self.module.intrinsics.values():
            self.module.own(meaning.symbol, meaning.text(program.target) or "")
        name = identifier(self.source.name, "kernel")
        self.entry = f"treadle_{name}"
        absent = {f.tensor for f in program.guard.facts if isinstance(f, Absent)}
        self.tensors = [t for t in self.source.tensors if t.name not in absent]
        self.lets = {**self.source.lets, **program.host.lets}
        self.numbers = numbers(self.lets)
        self.plan = plan_buffers(program, self.lets)
        self.shifted = frozenset[str]() if self.module.arm else shifted(program)

    def emit(self) -> EmittedText:
        self._entry()
        self._workspace_function()
        return EmittedText(
            text=str(self.module),
            entry=self.entry,
            workspace_function=f"{self.entry}_workspace",
            workspace=self.plan.workspace,
            tensors=tuple(t.name for t in self.tensors),
            scalars=tuple(s.name for s in self.source.scalars),
            features=self.features,
            parallel=any(isinstance(s, Tasks) for s in self.program.statements()),
        )

    # ---- the block

    def _words(self) -> int:
        """The number of the first closing word."""
        return sum(1 + 2 * len(t.dims) for t in self.tensors) + len(self.source.scalars)

    def _word(self, fn: Function, number: int, kind: str = "i64") -> str:
        pointer = fn.value(f"getelementptr i64, ptr %block, i64 {number}")
        return fn.value(f"load {kind}, ptr {pointer}, align 8")

    def _extents(self, scope: Scope) -> None:
        """Symbols of extents, as the axes of arguments and `td.let` tell them: numbers where a let says so."""
        scope.symbols.update(self.numbers)
        starts: dict[str, int] = {}
        number = 0
        for tensor in self.tensors:
            starts[tensor.name] = number
            number += 1 + 2 * len(tensor.dims)
        # Bytes tell only how many elements there are room for: what other arguments tell is exact.
        exact_first = sorted(self.tensors, key=lambda t: t.dtype.packed)
        packed = {t.name: len(t.dims) - 1 for t in self.tensors if t.dtype.packed}
        for source in extent_sources(self.source, exact_first):
            if source.symbol in self.numbers:
                continue
            if source.tensor is None:
                assert source.expr is not None
                scope.symbols[source.symbol] = source.expr
                continue
            extent = self._word(scope.fn, starts[source.tensor] + 1 + source.axis)
            if packed.get(source.tensor) == source.axis:
                extent = scope.fn.value(f"shl i64 {extent}, 1")
            if source.divisor != ONE:
                # No positive extent divides by zero: an empty factor makes the axis empty, and its quotient 0.
                divisor = scope.fn.smax(scope.value(source.divisor), 1)
                extent = scope.fn.value(f"sdiv i64 {extent}, {divisor}")
            scope.symbols[source.symbol] = extent
        for name, expr in self.lets.items():
            scope.symbols.setdefault(name, expr)

    def _tensors(self, scope: Scope) -> None:
        unit = {(f.tensor, f.axis) for f in self.program.guard.facts if isinstance(f, Unit)}
        number = 0
        for tensor in self.tensors:
            rank = len(tensor.dims)
            base = self._word(scope.fn, number, "ptr")
            strides = [
                1 if (tensor.name, i) in unit else self._word(scope.fn, number + 1 + rank + i) for i in range(rank)
            ]
            scope.memories[tensor.name] = Memory(
                tensor.name, tensor.dtype, base, tuple(strides), packed=tensor.dtype.packed
            )
            number += 1 + 2 * rank
        for scalar in self.source.scalars:
            value = self._scalar(scope.fn, number, scalar)
            scope.registers.constants[scalar.name] = value
            scope.registers.constants[scalar.value.name] = value
            number += 1

    def _scalar(self, fn: Function, number: int, scalar: ScalarParam) -> Vec:
        dtype: DType = scalar.value.type.dtype
        word = self._word(fn, number)
        if dtype.is_bool:
            low = fn.value(f"and i64 {word}, 255")
            return Vec(fn.value(f"icmp ne i64 {low}, 0"), dtype)
        kind = lane_type(dtype)
        text = word if dtype.bits == 64 else fn.value(f"trunc i64 {word} to i{dtype.bits}")
        if kind in ("float", "double"):
            text = fn.value(f"bitcast i{dtype.bits} {text} to {kind}")
        return Vec(text, dtype)

    # ---- functions

    def _workspace_function(self) -> None:
        fn = self.module.function(f"{self.entry}_workspace", "i64", [("ptr", "%block")], self.attributes)
        scope = Scope(fn, self._setting(None), Pool(1, "null", "null", 0))
        self._extents(scope)
        shared = scope.value(self.plan.workspace.shared)
        each = scope.value(self.plan.workspace.worker)
        workers = self._word(fn, self._words() + 1)
        fn.do(f"ret i64 {fn.add(shared, fn.mul(each, workers))}")

    def _entry(self) -> None:
        roles = self._roles()
        fn = self.module.function(self.entry, "i32", [("ptr", "%block")], self.attributes)
        base = self._word(fn, self._words(), "ptr")
        workers = self._word(fn, self._words() + 1)
        run = self._word(fn, self._words() + 2, "ptr")
        outline = Scope(fn, self._setting(None), Pool(workers, run, base, 0))
        self._extents(outline)
        piece = fn.value(f"getelementptr i8, ptr {base}, i64 {outline.value(self.plan.workspace.shared)}")
        pool = Pool(workers, run, piece, outline.value(self.plan.workspace.worker))
        for kernel, role in roles:
            scope = Scope(fn, self._setting((kernel, role)), pool)
            scope.symbols.update(outline.symbols)
            scope.symbols["cta"] = 0
            self._tensors(scope)
            scope.add_placed_buffers(base, self.plan.shared)
            scope.add_frame_buffers()
            self._start_role(scope, role)
            Bodies(scope).emit(role.body)
            if scope.moves.streamed:
                fn.fence_streams()
        fn.do("ret i32 0")

    def _start_role(self, scope: Scope, role: Role) -> None:
        if role.index is not None:
            scope.symbols[role.index] = 0
        for name in role.counters:
            pointer = scope.fn.alloca("i64", 8)
            scope.fn.do(f"store i64 0, ptr {pointer}")
            scope.symbols[name] = Counter(pointer)

    def _roles(self) -> list[tuple[Kernel, Role]]:
        """The roles to run, one a launch, in order."""
        kernels = {k.name: k for k in self.program.kernels}
        found: list[tuple[Kernel, Role]] = []
        for launch in self.program.host.launches:
            kernel = kernels[launch.kernel]
            if any(r.agents > 1 for r in kernel.roles):
                raise unsupported(f"the gang of {launch.kernel}", "workers that run tasks apart")
            if launch.grid.constant != 1 or len(kernel.roles) != 1:
                raise unsupported(f"the launch of {launch.kernel}", "one role with one agent, launched once on the CPU")
            if kernel.barriers or self.program.host.maps:
                raise unsupported("barriers or tensor maps", "a CPU program, which has none")
            found.append((kernel, kernel.roles[0]))
        return found

    def _setting(self, of: tuple[Kernel, Role] | None) -> Setting:
        accuracy = str(self.source.numerics.get("functions") or "2ulp")
        if of is None:
            return Setting(self.width, accuracy, self.attributes, {}, {}, {}, frozenset(), (), self.plan, self.features)
        kernel, role = of
        frags = {f.name: f for f in kernel.frags}
        captured = _captured(role, set(frags))
        unrolled = unrolled_loops(role.body, frags)
        pairs = paired(role.body, frags)
        frags |= {name: narrowed(frags[name]) for name in pairs}
        layouts = choose(role.body, frags, unrolled, set(captured), pairs)
        return Setting(
            self.width,
            accuracy,
            self.attributes,
            frags,
            layouts,
            grids(kernel.frags),
            frozenset(unrolled),
            captured,
            self.plan,
            self.features,
            pairs,
            self.shifted,
            unsigned(role, {f.name: f for f in kernel.frags}, self.shifted),
            full(role.body, frags, layouts, {t.name for t in self.tensors if t.dtype.packed}, self.width)
            - frozenset(captured),
            searches(role.body, frags),
        )


def _captured(role: Role, frags: set[str]) -> tuple[str, ...]:
    """Fragments that tasks read and the code around them writes."""
    tasks = [s for s in walk(role.body) if isinstance(s, Tasks)]
    within = {id(s) for t in tasks for s in walk(t.body)}
    outside: list[Stmt] = [s for s in walk(role.body) if isinstance(s, Stmt) and id(s) not in within]
    table = {s: s for s in frags}
    read = {name for t in tasks for s in walk(t.body) for name, _, _ in reads(s, {}) if name in table}
    return tuple(sorted(read & written(list(outside))))
