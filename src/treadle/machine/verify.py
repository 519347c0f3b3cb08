"""Form of a machine program: every name declared once, every reference of the right rank, every word a known one.

What a well-formed program *means*, and whether it is right, is for the checker. Variables (of loops, tasks, lets)
belong to a role and are defined once in it; fragments, buffers and barriers belong to the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treadle.algebra.expr import Expr
from treadle.base.errors import UserError
from treadle.machine.form import Body, Buffer, Control, Frag, If, Last, Loop, MachineProgram, Role, Stmt, Tasks
from treadle.machine.text import print_machine, statement_lines
from treadle.machine.verify_names import HostNames, Names, Problem, Source, fact_problem
from treadle.machine.verify_statement import check_claim, check_counter, check_number, check_statement
from treadle.machine.vocabulary import DIGITS, FRAGMENT_PLACES, OVER, PLACES, RASTERS, SYMBOLS


class FormError(UserError):
    """A machine program whose form is wrong."""

    code = "machine/form"


def verify(program: MachineProgram) -> None:
    """Errors: `machine/form` for the first line whose form is wrong, with the others in its notes."""
    problems = form_problems(program)
    if not problems:
        return
    first, *rest = problems
    shown = print_machine(program).splitlines()
    raise FormError(
        doing="reading the form of a machine program",
        found=f"line {first.line}: {shown[first.line - 1].strip() if first.line else ''}\n{first.text}",
        expected="declared names, fitting ranks and known words, as docs/machine_format.md lists them",
        hint="correct the line and parse the text again",
        notes=[(None, str(p)) for p in rest[:8]],
    )


def form_problems(program: MachineProgram) -> list[Problem]:
    """All problems of form, in order of lines."""
    from_program = Source.of(program.program)
    lines = statement_lines(program)
    problems: list[Problem] = []
    host = _check_host(program, from_program, lines, problems)
    for kernel in program.kernels:
        KernelForm(kernel, from_program, host, lines, problems).check()
    return sorted(problems, key=lambda p: p.line)


def _check_host(
    program: MachineProgram, source: Source, lines: Mapping[int, int], problems: list[Problem]
) -> HostNames:
    host = HostNames(set(source.symbols))
    for fact in program.guard.facts:
        wrong = fact_problem(fact, source)
        if wrong:
            problems.append(Problem(lines.get(id(fact), 1), f"the guard's {fact} {wrong}"))
    for name, expr in program.host.lets.items():
        for missing in expr.symbols - host.symbols:
            problems.append(Problem(0, f"host let {name}: {missing} has no value"))
        host.symbols.add(name)
    for buffer in program.host.workspace:
        host.workspace[buffer.name] = buffer
        if buffer.place != "workspace":
            problems.append(Problem(lines[id(buffer)], f"the host provides workspace, not {buffer.place} memory"))
        if buffer.align < 1 or buffer.align & (buffer.align - 1):
            problems.append(Problem(lines[id(buffer)], f"an alignment of {buffer.align}: a power of two is needed"))
    for entry in program.host.maps:
        if entry.name in host.maps:
            problems.append(Problem(lines[id(entry)], f"{entry.name} is declared twice"))
        host.maps[entry.name] = entry.tensor
        known = source.tensors.get(entry.tensor)
        buffer = host.workspace.get(entry.tensor)
        rank = known[1] if known else len(buffer.shape) if buffer else None
        if rank is None:
            problems.append(Problem(lines[id(entry)], f"no tensor or workspace {entry.tensor}"))
        elif rank != len(entry.box):
            problems.append(Problem(lines[id(entry)], f"a box of {len(entry.box)} axes for {entry.tensor} of {rank}"))
    for counter in program.host.counters:
        if counter.name in source.tensors or counter.name in (*host.symbols, *host.workspace, *host.counters):
            problems.append(Problem(lines[id(counter)], f"{counter.name} is declared twice"))
        host.counters[counter.name] = counter
        for expr in counter.shape:
            for missing in (expr.symbols - host.symbols) | expr.functions:
                problems.append(Problem(lines[id(counter)], f"{missing} has no value on the host"))
    names = [k.name for k in program.kernels]
    for launch in program.host.launches:
        if names.count(launch.kernel) != 1:
            problems.append(
                Problem(lines[id(launch)], f"{names.count(launch.kernel)} kernels are called {launch.kernel}")
            )
        if launch.cluster < 1 or host.clusters.setdefault(launch.kernel, launch.cluster) != launch.cluster:
            problems.append(Problem(lines[id(launch)], f"{launch.kernel} in clusters of {launch.cluster}"))
        for missing in (launch.grid.symbols - host.symbols) | launch.grid.functions:
            problems.append(Problem(lines[id(launch)], f"{missing} has no value on the host"))
    return host


class KernelForm(Names):
    """The walk over one kernel: declarations, roles, control; `verify_statement` checks single lines."""

    def check(self) -> None:
        """The whole kernel."""
        taken: set[str] = set(self.source.tensors) | self.host.symbols | set(SYMBOLS) | set(self.host.counters)
        for declared in (*self.kernel.buffers, *self.kernel.frags, *self.kernel.barriers):
            self.at(declared)
            self.declare(declared.name, taken)
            if isinstance(declared, Buffer):
                self._buffer(declared)
            elif isinstance(declared, Frag):
                self._frag(declared)
            elif declared.count < 1 or declared.versions < 1:
                self.problem("a barrier has at least one arrival and one version")
        names = [r.name for r in self.kernel.roles]
        for role in self.kernel.roles:
            self.at(role)
            if names.count(role.name) > 1:
                self.problem(f"{names.count(role.name)} roles are called {role.name}")
            if role.agents < 1 or role.threads < 1:
                self.problem("a role has at least one agent and one thread")
            variables = set(taken)
            for name in (*role.counters, *((role.index,) if role.index is not None else ())):
                self.declare(name, variables)
            self.scope = self.host.symbols | set(SYMBOLS) | set(role.counters)
            self.scope |= {role.index} if role.index is not None else set()
            self.body(role, role.body, variables, inside_tasks=False)

    def _buffer(self, buffer: Buffer) -> None:
        if buffer.place not in PLACES:
            self.problem(f"no place {buffer.place}: {', '.join(PLACES)}")
        if buffer.align < 1 or buffer.align & (buffer.align - 1):
            self.problem(f"an alignment of {buffer.align}: a power of two is needed")
        if buffer.swizzle not in (0, 32, 64, 128):
            self.problem(f"no swizzle of {buffer.swizzle} bytes")
        for expr in (*buffer.shape, *((buffer.offset,) if buffer.offset is not None else ())):
            for missing in expr.symbols - self.host.symbols:
                self.problem(f"{missing} has no value on the host")

    def _frag(self, frag: Frag) -> None:
        if frag.place not in FRAGMENT_PLACES:
            self.problem(f"no place {frag.place}: {', '.join(FRAGMENT_PLACES)}")
        if any(n < 1 for n in frag.shape):
            self.problem("extents of fragments are positive")
        if not frag.dist:
            return
        sizes = [1] * len(frag.shape)
        for mode in frag.dist:
            if mode.who not in DIGITS:
                self.problem(f"no digit {mode.who}: {', '.join(DIGITS)}")
            if mode.axis is None:
                continue
            if not 0 <= mode.axis < len(frag.shape):
                self.problem(f"no axis {mode.axis}")
                continue
            sizes[mode.axis] *= mode.size
        for axis, (size, extent) in enumerate(zip(sizes, frag.shape)):
            if size != extent:
                self.problem(f"digits of axis {axis} make {size} coordinates of {extent}")

    # ---- walking

    def body(self, role: Role, body: Body, taken: set[str], *, inside_tasks: bool) -> None:
        """A body; names that it defines are known to what follows in it."""
        before = set(self.scope)
        for item in body:
            self.at(item)
            if isinstance(item, Stmt):
                check_statement(self, role, item, taken)
            else:
                self._control(role, item, taken, inside_tasks=inside_tasks)
        self.scope = before

    def _control(self, role: Role, item: Control, taken: set[str], *, inside_tasks: bool) -> None:
        match item:
            case Tasks():
                self._tasks(item, inside_tasks=inside_tasks)
                self._within(role, item.vars, item, taken, inside_tasks=True)
            case Loop():
                for expr in (item.lo, item.hi, item.step):
                    self.known(expr, 0)
                step = item.step.constant
                if step is not None and step < 1:
                    self.problem(f"a step of {step}")
                self._within(role, (item.var,), item, taken, inside_tasks=inside_tasks)
            case If():
                if not item.conds and item.cond is None and item.last is None:
                    self.problem("an `if` without a condition")
                if item.last is not None:
                    self._last(item, item.last)
                for enter in item.enters:
                    self._enter(enter.region, enter.binds)
                self.constraints(item.conds, 0)
                if item.cond is not None and (item.cond not in self.frags or self.frags[item.cond].shape):
                    self.problem(f"{item.cond} is no fragment without axes")
                if item.source is not None and not 0 <= item.source < self.source.ifs:
                    self.problem(f"the program has {self.source.ifs} conditionals")
                self.body(role, item.then, taken, inside_tasks=inside_tasks)
                self.body(role, item.orelse, taken, inside_tasks=inside_tasks)
            case _:
                self.problem(f"no control {type(item).__name__}")

    def _last(self, item: If, last: Last) -> None:
        check_counter(self, last.counter)
        for expr in (last.of, last.id):
            self.known(expr, 0)
        if item.conds or item.cond is not None or item.source is not None or item.orelse:
            self.problem("the last arrival decides alone, and only what happens then is said")
        if last.threads < 1 or (last.id.constant is not None and not 0 <= last.id.constant <= 15):
            self.problem(f"the arrivals meet at barrier {last.id} of {last.threads} threads")

    def _within(
        self, role: Role, names: Iterable[str], item: Tasks | Loop, taken: set[str], *, inside_tasks: bool
    ) -> None:
        before = set(self.scope)
        for name in names:
            self.declare(name, taken)
            self.scope.add(name)
        for enter in item.enters:
            self._enter(enter.region, enter.binds)
        if isinstance(item, Loop):
            for invariant in item.invariants:
                self.at(invariant)
                if invariant.holder not in self.frags and invariant.holder not in self.buffers:
                    self.problem(f"no fragment or buffer {invariant.holder}")
                self.constraints(invariant.within, self.rank_of(invariant.holder))
                check_number(self, invariant.fill, self.dtype_of(invariant.holder))
                check_claim(self, invariant.claim, self.rank_of(invariant.holder))
        self.body(role, item.body, taken, inside_tasks=inside_tasks)
        self.scope = before

    def _tasks(self, item: Tasks, *, inside_tasks: bool) -> None:
        if inside_tasks:
            self.problem("tasks inside tasks")
        if item.over not in OVER:
            self.problem(f"no pool {item.over}: {', '.join(OVER)}")
        if len(item.vars) != len(item.counts) or not item.vars:
            self.problem("as many counts as task variables, at least one")
        for count in item.counts:
            self.known(count, 0)
        words = [w for w in item.raster if isinstance(w, str)]
        if any(w not in RASTERS for w in words):
            self.problem(f"no raster {' '.join(words)}: {', '.join(RASTERS)}")
        if sum(RASTERS.get(w, 0) for w in words) != len(item.raster) - len(words):
            self.problem("a raster `group` or `slow` takes one number, the others none")

    def _enter(self, region: str, binds: tuple[tuple[str, tuple[Expr, ...]], ...]) -> None:
        args = self.source.regions.get(region)
        if args is None:
            self.problem(f"the program has no region {region}")
            return
        for name, bounds in binds:
            kind = args.get(name)
            if kind is None:
                self.problem(f"region {region} has no argument {name}")
            elif len(bounds) != (2 if kind == "block" else 1):
                self.problem(f"{name} of {region} is bound by {'start .. stop' if kind == 'block' else 'a coordinate'}")
            for expr in bounds:
                self.known(expr, 0)
