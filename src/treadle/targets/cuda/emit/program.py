"""The whole: a machine program as one CUDA C++ text, and what a launch of each kernel needs."""

from __future__ import annotations

import re

from treadle.algebra.expr import Expr, const, maximum, sym
from treadle.ir.guard import Guard
from treadle.machine.form import Copy, Kernel, Launch, MachineProgram, Mma, Role, Sync, Tasks, walk
from treadle.machine.vocabulary import APPROXIMATE, RANK
from treadle.targets.cuda.emit.arith import Arith
from treadle.targets.cuda.emit.control import Bodies
from treadle.targets.cuda.emit.counters import periods, private
from treadle.targets.cuda.emit.emitted import ARRIVALS, Argument, EmittedCuda, KernelLaunchSpec, MapPlan
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.exponent import absorbed
from treadle.targets.cuda.emit.flight import landings, ready_for_turns
from treadle.targets.cuda.emit.index import FAR, INT_MAX, Known, Symbols, declared, symbol
from treadle.targets.cuda.emit.mentions import unrolled_variables
from treadle.targets.cuda.emit.names import cname
from treadle.targets.cuda.emit.narrow import read_later, written_once
from treadle.targets.cuda.emit.prelude import Prelude
from treadle.targets.cuda.emit.scope import Head, KernelSetting, Scope, bit_symbols
from treadle.targets.cuda.emit.signs import not_negative
from treadle.targets.cuda.emit.storage import (
    Storage,
    apart,
    element_type,
    local_plan,
    pitch,
    shared_plan,
    stride_symbol,
    tensor_storage,
    unit_axis,
    workspace_plan,
)
from treadle.targets.cuda.emit.told import by_hardware, extent_names, known_of, stored_names, tensor_names, words_of
from treadle.targets.cuda.emit.values import Val, ctype

MOST_EXTENT = 1 << 30
"""Extents of a kernel with tensor maps: its coordinates are 32 bits wide."""
WORD = 4
"""Bytes of a counter's word."""


def emit(program: MachineProgram, *, sole: bool = False) -> EmittedCuda:
    """The CUDA C++ text of a machine program, for `treadle.toolchain.nvrtc.compile_cuda` without contraction.

    `sole`: launches that do not say how many workgroups share a multiprocessor are content with one, and the assembler
    takes no register from a thread to make room for more. Errors: emit/cuda-unsupported, emit/cuda-ill-formed.
    """
    family, _, arch = program.target.partition(":")
    if family != "cuda" or not arch:
        raise ill_formed(f"the target {program.target}", "cuda:sm_90a or another architecture")
    prelude = Prelude()
    prelude.intrinsics = {m.name: m for m in program.program.intrinsics}
    accuracy = str(program.program.numerics.get("functions") or "2ulp")
    approximate, near = (by_hardware(program.numerics, words) for words in ("by the hardware (", "by the hardware's "))
    arith = Arith(prelude, accuracy, approximate, near, arch)
    texts: list[str] = []
    made: dict[str, _Kernel] = {}
    for kernel in program.kernels:
        launch = next((x for x in program.host.launches if x.kernel == kernel.name), None)
        if launch is not None:
            made[kernel.name] = _Kernel(program, kernel, launch, arch, prelude, arith, sole)
            texts.append(made[kernel.name].text())
    body = "\n".join(texts)
    prelude.scan(body)
    launches = tuple(made[x.kernel].spec(x) for x in program.host.launches)
    lets = dict(program.program.lets) | dict(program.host.lets)
    _, fixed = workspace_plan(program.host.workspace, {b.name: "" for b in program.host.workspace})
    spread = [made[x.kernel].spread_bytes(x) for x in program.host.launches]
    workspace = fixed + maximum(*spread, const(0), const(0))
    cleared = ARRIVALS * max((a.axis + 1 for x in launches for a in x.arguments if a.kind == "arrivals"), default=0)
    words: Expr = const(0)
    for counter in program.host.counters:
        words = words + words_of(counter)
    counted = (WORD * words + (ARRIVALS - 1)) // ARRIVALS * ARRIVALS
    if cleared or program.host.counters:
        workspace = (workspace + (ARRIVALS - 1)) // ARRIVALS * ARRIVALS + counted + cleared
    return EmittedCuda(prelude.text() + "\n" + body, arch, launches, lets, workspace, cleared, counted)


class _Kernel:
    """The emission of one kernel."""

    def __init__(
        self,
        program: MachineProgram,
        kernel: Kernel,
        launch: Launch,
        arch: str,
        prelude: Prelude,
        arith: Arith,
        sole: bool,
    ) -> None:
        self.program, self.kernel, self.launch = program, kernel, launch
        self.sole = sole
        self.guard: Guard = program.guard
        self.prelude = prelude
        self.shared = shared_plan(kernel)
        self.agents = sum(r.agents for r in kernel.roles)
        self.local_unit = self._local_unit()
        self.storages: dict[str, Storage] = {}
        self.pointers: dict[str, str] = {}
        self.unwritten: set[str] = set()
        self._storages()
        self.maps = {m.name: self._map(m.name) for m in program.host.maps}
        self.setting = KernelSetting(
            kernel.name,
            arch,
            prelude,
            arith,
            {f.name: f for f in kernel.frags},
            self.storages,
            self.shared,
            {n: (cname(n, "m_"), m.axes) for n, m in self.maps.items()},
            self._scalars(),
            launch.threads * max(1, launch.resident),
        )
        self.setting.cluster = launch.cluster
        if launch.cluster > 1:
            self.setting.need_hopper("launches in clusters")
        for role in kernel.roles:  # all roles meet as often, in the same order
            met = [s for s in walk(role.body) if isinstance(s, Sync) and s.kind == "grid.sync"]
            self.setting.meetings |= {id(s): i for i, s in enumerate(met, 1)}
            top = {id(s) for s in role.body}
            self.setting.counted |= any(id(s) not in top for s in met)
        statements = [s for r in kernel.roles for s in walk(r.body)]
        self.setting.counters = {c.name: c for c in program.host.counters}
        drawn = [s for s in statements if isinstance(s, Tasks) and s.over == "tickets"]
        self.setting.apart = bool(drawn) and len(kernel.roles) > 1
        if len(drawn) > len(kernel.roles):
            raise unsupported("several nests of tasks that are drawn", "one a role")
        if self.setting.apart:
            self.setting.need_hopper("tickets for several roles")
        self.setting.unsigned = not_negative(statements)
        self.setting.unwritten = frozenset(self.unwritten)
        engines = [s for s in statements if isinstance(s, Copy)]
        self.bounded = any(e.engine.startswith("tma") for e in engines) or any(
            isinstance(s, Mma) and s.atom.startswith("wgmma") for s in statements
        )
        fetched = {e.src.name for e in engines if e.engine.endswith(".load")}
        self.setting.wide_fence = bool(fetched & set(stored_names(kernel)))
        self.arguments: tuple[Argument, ...] = ()

    # ---- names and places

    def _local_unit(self) -> str:
        """Who has local buffers of its own: a thread, a warp or an agent."""
        overs = {s.over for r in self.kernel.roles for s in walk(r.body) if isinstance(s, Tasks)}
        if "threads" in overs or all(r.threads == 1 for r in self.kernel.roles):
            return "thread"
        return "warp" if "warps" in overs else "agent"

    def _storages(self) -> None:
        program = self.program
        stored = sorted({n for k in program.kernels for n in stored_names(k)})
        for tensor in program.program.tensors:
            self.storages[tensor.name] = tensor_storage(self.guard, tensor, cname(tensor.name, "p_"))
            constant = apart(self.guard, tensor.name, [n for n in stored if n in tensor_names(program)])
            self.unwritten |= {tensor.name} if constant else set()
            kind = element_type(self.storages[tensor.name])
            self.pointers[tensor.name] = f"const {kind}* __restrict__ " if constant else f"{kind}* "
        outside = {b.name: cname(b.name, "b_") for b in program.host.workspace}
        self.workspace, self.fixed = workspace_plan(program.host.workspace, outside)
        own = {b.name: cname(b.name, "b_") for b in self.kernel.buffers}
        self.local = local_plan(self.kernel, own, self.local_unit == "thread")
        self.storages |= self.workspace | self.shared.buffers | self.local.arrays | self.local.spread
        if any(b.place == "workspace" for b in self.kernel.buffers):
            raise ill_formed(f"a workspace buffer declared in kernel {self.kernel.name}", "one of the host's")

    def _scalars(self) -> dict[str, Val]:
        found: dict[str, Val] = {}
        for scalar in self.program.program.scalars:
            dtype = scalar.value.type.dtype
            value = Val(cname(scalar.name, "a_"), dtype)
            found[scalar.name] = found[scalar.value.name] = value
        return found

    def _map(self, name: str) -> MapPlan:
        entry = next(m for m in self.program.host.maps if m.name == name)
        own = self.workspace.get(entry.tensor)
        if own is not None:
            axes = tuple(reversed(range(len(own.shape))))
            return MapPlan(
                name,
                own.name,
                entry.dtype.name,
                axes,
                own.shape,
                tuple(entry.box),
                entry.swizzle,
                entry.promotion,
                entry.fill,
                own.start,
                own.strides,
            )
        tensor = self.program.program.tensor(entry.tensor)
        unit = unit_axis(self.guard, tensor)
        if unit is None or len(entry.box) != len(tensor.dims):
            raise ill_formed(
                f"the map {name} of {tensor.name}",
                "a guard that says which axis has unit stride, and a box of its rank",
            )
        axes = (unit, *(a for a in reversed(range(len(tensor.dims))) if a != unit))
        return MapPlan(
            name,
            tensor.name,
            entry.dtype.name,
            axes,
            tuple(d.extent for d in tensor.dims),
            tuple(entry.box),
            entry.swizzle,
            entry.promotion,
            entry.fill,
        )

    # ---- symbols

    def _symbols(self) -> Symbols:
        """Extents, strides and lets as parameters and constants of the kernel."""
        symbols = Symbols()
        lower, upper, by = known_of(self.guard)
        for name in extent_names(self.program):
            high = upper.get(name, FAR)
            if self.bounded and high > MOST_EXTENT:
                high = MOST_EXTENT
                self.setting.limits.append((sym(name), MOST_EXTENT))
            symbols.known[name] = symbol(cname(name, "n_"), max(0, lower.get(name, 0)), high, by.get(name, 1))
        for tensor in self.program.program.tensors:
            for axis in range(len(tensor.dims)):
                step = pitch(self.guard, tensor.name, axis)
                text = f"{cname(tensor.name, 's_')}_{axis}"
                symbols.known[stride_symbol(tensor.name, axis)] = Known(text, -FAR, FAR, step, True)
        symbols.known["cta"] = symbol("cta", 0, INT_MAX)
        symbols.known[RANK] = symbol("cta_rank", 0, self.launch.cluster - 1)
        return symbols

    def _lets(self, symbols: Symbols) -> list[tuple[str, str]]:
        lines: list[tuple[str, str]] = []
        for name, expr in (dict(self.program.program.lets) | dict(self.program.host.lets)).items():
            known = symbols.text(expr)
            text = cname(name, "n_")
            kind = "i64" if known.wide else "int"
            lines.append((text, f"  const {kind} {text} = {known.text};"))
            symbols.known[name] = Known(text, known.lo, known.hi, known.by, known.wide)
        return lines

    # ---- the text

    def text(self) -> str:
        """The kernel."""
        total = sum(r.agents * r.threads for r in self.kernel.roles)
        if total > self.launch.threads or not 1 <= self.launch.threads <= 1024:
            raise ill_formed(
                f"roles of {total} threads in workgroups of {self.launch.threads}", "at most 1024, all fit"
            )
        symbols = self._symbols()
        lets = self._lets(symbols)
        branches: list[str] = []
        first = 0
        agent = 0
        for number, role in enumerate(self.kernel.roles):
            last = first + role.agents * role.threads
            lines = self._role(role, symbols, first, agent)
            if last < self.launch.threads or number:
                word = "if" if not number else "} else if"
                branches.append(f"  {word} (thread < {last}) {{")
                branches += lines
            else:
                branches += lines
            first, agent = last, agent + role.agents
        if branches and (len(self.kernel.roles) > 1 or first < self.launch.threads):
            branches.append("  }")
        body = self._frame("\n".join(branches), lets)
        name = cname(self.kernel.name, "k_")
        head = self._parameters(body)
        bounds = str(self.launch.threads)
        if any(isinstance(s, Sync) and s.kind == "setmaxnreg" for r in self.kernel.roles for s in walk(r.body)):
            # The assembler fixes the number of registers at entry, which `setmaxnreg` divides anew, only then.
            bounds += f", {max(1, self.launch.resident)}"
        elif self.launch.resident or self.sole:
            bounds += f", {max(1, self.launch.resident)}"
        return f'extern "C" __global__ void __launch_bounds__({bounds}) {name}({head}) {{\n{body}\n}}\n'

    def _frame(self, branches: str, lets: list[tuple[str, str]]) -> str:
        lines: list[str] = []
        if self.shared.size:
            self.prelude.use("shared_address")
            lines.append("  extern __shared__ unsigned char raw[];")
            if self.shared.slack:
                lines.append(
                    f"  const u32 base = (shared_address(raw) + {self.shared.align - 1}u) & ~{self.shared.align - 1}u;"
                )
                lines.append("  unsigned char* const smem = raw + (base - shared_address(raw));")
            else:
                lines.append("  const u32 base = shared_address(raw);")
                lines.append("  unsigned char* const smem = raw;")
        each = self.launch.cluster
        numbers = (
            ("thread", "threadIdx.x"),
            ("cta", "blockIdx.x"),
            ("ctas", "gridDim.x"),
            ("cta_rank", f"blockIdx.x % {each}"),
            ("cluster", f"blockIdx.x / {each}"),
            ("clusters", f"gridDim.x / {each}"),
        )
        for name, text in numbers:
            if re.search(rf"\b{name}\b", branches):
                lines.append(f"  const int {name} = {text};")
        maps = sorted(set(re.findall(r"&(m_\w+)", branches)))
        if maps:  # on their way while barriers are set up: the first box waits for its map
            fetched = " ".join(f"{self.prelude.use('prefetch_map')}(&{name});" for name in maps)
            lines.append(f"  if (threadIdx.x == 0) {{ {fetched} }}")
        if self.setting.apart:
            lines.append(f"  draw_begin({-(-self.launch.threads // 32)});")
        places: list[str] = []
        symbols = self._symbols_again
        for name, storage in self.workspace.items():
            if re.search(rf"\b{storage.pointer}\b", branches):
                offset = symbols.text(storage.start).text
                kind = element_type(storage)
                places.append(f"  {kind}* const {storage.pointer} = ({kind}*)(workspace + {offset});  // {name}")
        before: Expr = const(0)
        for counter in self.program.host.counters:
            pointer = cname(counter.name, "c_")
            if re.search(rf"\b{pointer}\b", branches):
                places.append(f"  u32* const {pointer} = counted + {symbols.text(before).text};  // {counter.name}")
            before = before + words_of(counter)
        text = "\n".join([*places, branches])
        for name, line in reversed(lets):
            if re.search(rf"\b{name}\b", text):
                text = line + "\n" + text
        return "\n".join([*lines, text])

    @property
    def _symbols_again(self) -> Symbols:
        limits = list(self.setting.limits)
        symbols = self._symbols()
        self._lets(symbols)
        self.setting.limits[:] = limits
        return symbols

    def _role(self, role: Role, symbols: Symbols, first: int, agent: int) -> list[str]:
        """The branch of a role."""
        warps = max(1, -(-role.threads // 32))
        if role.threads > 32 and role.threads % 32:
            raise unsupported(f"agents of {role.threads} threads", "whole warps, or at most 32 threads")
        lanes = min(32, role.threads)
        if lanes & (lanes - 1):
            raise unsupported(f"agents of {role.threads} threads", "a power of two up to 32")
        own = Symbols(dict(symbols.known), dict(symbols.values))
        own.known |= bit_symbols(32, 32)
        own.known["@lane.row"] = symbol("(lane & 15)", 0, 15)
        own.known["@lane.column"] = symbol("(8 * (lane >> 4))", 0, 8, 8)
        head = Head(["u32 met = 0u;"] if self.setting.counted else [])
        scope = Scope(self.setting, head, own, lanes, warps, "member == 0", depth=2)
        own.element = scope.element
        if role.index is not None:
            own.known[role.index] = symbol(cname(role.index), 0, max(0, role.agents - 1))
        rings = {b.name: b.versions for b in self.kernel.barriers} | {b.name: b.versions for b in self.kernel.buffers}
        wraps = periods(role, rings)
        for counter, period in wraps.items():
            own.known[counter] = symbol(cname(counter), 0, FAR if period is None else period - 1)
        self.setting.landing |= landings(role.body)
        self.setting.ready |= ready_for_turns(role.body)
        self.setting.scaled, self.setting.absorbed = absorbed(
            role.body, self.setting.frags, lambda s: self.setting.arith.approximated(s.fn, APPROXIMATE in s.tags)
        )
        frags = frozenset(self.setting.frags)
        self.setting.once, self.setting.narrow = written_once(role.body), {}
        self.setting.later |= read_later(role.body)
        turns = any(isinstance(s, Sync) and "turn" in s.tags for s in walk(role.body))
        Bodies(private(role), wraps, unrolled_variables(role.body, frags), turns).emit(scope, role.body)
        for stmt in walk(role.body):
            if isinstance(stmt, Sync) and stmt.kind == "setmaxnreg" and role.threads % 128:
                raise ill_formed("setmaxnreg by a part of a warpgroup", "whole warpgroups")
        lines = self._role_head(role, first, agent, head, wraps, scope)
        return [*lines, *scope.lines]

    def _role_head(
        self, role: Role, first: int, agent: int, head: Head, wraps: dict[str, int | None], scope: Scope
    ) -> list[str]:
        """The variables of a role that its body uses."""
        body = "\n".join([*head.lines, *scope.lines])
        crew, index, mine = role.agents * role.threads, cname(role.index or "agent"), f"(thread - {first})"
        options = [
            ("crew", f"constexpr int crew = {crew};"),
            ("own_thread", f"const int own_thread = {mine};"),
            (index, f"const int {index} = {mine} / {role.threads};"),
            ("member", f"const int member = {mine} % {role.threads};"),
            ("warp", f"const int warp = {mine} % {role.threads} / 32;"),
            ("lane", f"const int lane = {'thread & 31' if role.threads >= 32 else f'{mine} % {role.threads}'};"),
        ]
        lines = [line for name, line in options if re.search(rf"\b{name}\b", body)]
        if role.threads >= 32 and first % 32:
            raise ill_formed(f"the role {role.name} of whole warps from thread {first} on", "a multiple of 32")
        for counter, period in wraps.items():
            if re.search(rf"\b{cname(counter)}\b", body):
                lines.append(f"{'i64' if period is None else 'int'} {cname(counter)} = 0;")
        for name, storage in self.local.arrays.items():
            if re.search(rf"\b{storage.pointer}\b", body):
                lines.append(f"{element_type(storage)} {storage.pointer}[{self.local.sizes[name]}];")
        lines += self._local_pointers(role, first, agent, body)
        return [f"    {line}" for line in (*lines, *head.lines)]

    def _local_pointers(self, role: Role, first: int, agent: int, body: str) -> list[str]:
        lines: list[str] = []
        symbols = self._symbols_again
        for storage in self.local.spread.values():
            if not re.search(rf"\b{storage.pointer}\b", body):
                continue
            if self.local_unit == "thread":
                unit = f"(i64)cta * {self.launch.threads} + thread"
            elif self.local_unit == "warp":
                unit = f"(i64)cta * {-(-self.launch.threads // 32)} + thread / 32"
            else:
                unit = f"(i64)cta * {self.agents} + {agent} + (thread - {first}) / {role.threads}"
            fixed, each = symbols.text(self.fixed + storage.start).text, symbols.text(self.local.per_agent).text
            kind = element_type(storage)
            lines.append(f"{kind}* const {storage.pointer} = ({kind}*)(workspace + {fixed} + ({unit}) * ({each}));")
        return lines

    def _units(self) -> int:
        """Holders of local buffers in a workgroup."""
        if self.local_unit == "thread":
            return self.launch.threads
        return -(-self.launch.threads // 32) if self.local_unit == "warp" else self.agents

    def spread_bytes(self, launch: Launch) -> Expr:
        """Bytes of the workspace for local buffers of one launch."""
        return launch.grid * self._units() * self.local.per_agent

    # ---- parameters

    def _parameters(self, body: str) -> str:
        """The parameters that the body mentions, maps first."""
        found: list[tuple[str, Argument]] = []

        def used(text: str) -> bool:
            return re.search(rf"\b{text}\b", body) is not None

        for name in self.maps:
            text = cname(name, "m_")
            if used(text):
                found.append((f"const __grid_constant__ TensorMap {text}", Argument("map", name, size=128)))
        for tensor in self.program.program.tensors:
            text = cname(tensor.name, "p_")
            if used(text):
                found.append((f"{self.pointers[tensor.name]}{text}", Argument("tensor", tensor.name)))
            for axis in range(len(tensor.dims)):
                stride = f"{cname(tensor.name, 's_')}_{axis}"
                if used(stride):
                    found.append((f"const i64 {stride}", Argument("stride", tensor.name, axis)))
        symbols = self._symbols_again
        for name in extent_names(self.program):
            known = symbols.known[name]
            if used(known.text):
                kind = declared(known)
                found.append((f"const {kind} {known.text}", Argument("extent", name, size=4 if kind == "int" else 8)))
        for scalar in self.program.program.scalars:
            text = cname(scalar.name, "a_")
            dtype = scalar.value.type.dtype
            if used(text):
                size = 1 if dtype.is_bool else dtype.itemsize
                found.append((f"const {ctype(dtype)} {text}", Argument("scalar", scalar.name, size=size)))
        if used("workspace"):
            found.append(("unsigned char* const workspace", Argument("workspace", "")))
        if used("arrivals"):
            # A counter for each launch of the program: `axis` is the launch's number.
            number = next(i for i, x in enumerate(self.program.host.launches) if x.kernel == self.kernel.name)
            found.append(("u32* const arrivals", Argument("arrivals", "", number)))
        if used("counted"):
            found.append(("u32* const counted", Argument("counted", "")))
        self.arguments = tuple(a for _, a in found)
        return ", ".join(text for text, _ in found)

    def spec(self, launch: Launch) -> KernelLaunchSpec:
        """What a launch needs."""
        needed = self.shared.size + self.shared.slack if self.shared.size else 0
        maps = tuple(self.maps[a.name] for a in self.arguments if a.kind == "map")
        limits = tuple(dict.fromkeys(self.setting.limits))
        return KernelLaunchSpec(
            cname(launch.kernel, "k_"),
            launch.grid,
            launch.threads,
            max(needed, launch.shared_bytes),
            self.arguments,
            maps,
            limits,
            launch.cluster,
            launch.cooperative,
            launch.dependent,
            self.setting.counts,
        )
