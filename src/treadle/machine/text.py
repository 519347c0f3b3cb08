"""The printer of machine text: one statement a line, everything that the judge reads in one file.

`print_machine` gives the text, `statement_lines` the line of every statement, declaration and invariant by identity, so
that a verdict, a finding and a mutant name the same line that the user sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.algebra.expr import Constraint, Expr, sym
from treadle.base.text import Writer, quoted
from treadle.ir.guard import Bound, Divisible, Fact
from treadle.ir.printer import print_program
from treadle.machine.expression_text import show
from treadle.machine.form import (
    Advance,
    Barrier,
    Body,
    Buffer,
    Claim,
    Compute,
    Control,
    Copy,
    Counter,
    Enter,
    Fold,
    Frag,
    FragRef,
    Host,
    If,
    Invariant,
    Kernel,
    Last,
    Launch,
    Let,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Operand,
    Role,
    Scan,
    Stmt,
    Store,
    StoreClaim,
    Sync,
    Tasks,
    TensorMap,
    Version,
)


def print_machine(program: MachineProgram) -> str:
    """The text of the machine program. Ensures: `print_machine(parse_machine(text)) == text` for printed texts."""
    return str(_Printer().program(program))


def statement_lines(program: MachineProgram) -> dict[int, int]:
    """`id` of each statement, control, invariant and declaration -> its line in `print_machine`'s text.

    The host's `lets` have the line of the first of them."""
    printer = _Printer()
    printer.program(program)
    return printer.numbers


class _Printer(Writer):
    """A writer that remembers on which line each object stands."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.numbers: dict[int, int] = {}

    def line(self, text: str = "") -> None:
        self.count += 1
        super().line(text)

    def put(self, what: object, text: str) -> None:
        """The line of `what`."""
        self.numbers.setdefault(id(what), self.count + 1)
        self.line(text)

    def program(self, program: MachineProgram) -> _Printer:
        self.line(f"tdm {program.format}")
        self.line(f"target {program.target}")
        for entry in program.numerics:
            self.line(f"numerics {quoted(entry)}")
        with self.indent("program {", "}"):
            self.lines(print_program(program.captured or program.program))
        with self.indent("guard {", "}"):
            for fact in program.guard.facts:
                self.put(fact, fact_text(fact))
        with self.indent("host {", "}"):
            self.host(program.host)
        for kernel in program.kernels:
            with self.indent(f"kernel {kernel.name} {{", "}"):
                self.kernel(kernel)
        return self

    def host(self, host: Host) -> None:
        self.numbers[id(host.lets)] = self.count + 1
        for name, expr in host.lets.items():
            self.line(f"let {name} = {show(expr)}")
        for buffer in host.workspace:
            self.put(buffer, _buffer(buffer))
        for entry in host.maps:
            self.put(entry, _map(entry))
        for counter in host.counters:
            self.put(counter, _counter(counter))
        for launch in host.launches:
            self.put(launch, _launch(launch))

    def kernel(self, kernel: Kernel) -> None:
        for buffer in kernel.buffers:
            self.put(buffer, _buffer(buffer))
        for frag in kernel.frags:
            self.put(frag, _frag(frag))
        for barrier in kernel.barriers:
            self.put(barrier, _barrier(barrier))
        for role in kernel.roles:
            self.put(role, _role(role))
            with self.indent(None, "}"):
                self.body(role.body)

    def body(self, body: Body) -> None:
        for item in body:
            if isinstance(item, Stmt):
                self.put(item, statement_text(item))
            else:
                self.control(item)

    def control(self, item: Control) -> None:
        self.put(item, head_text(item))
        with self.indent():
            if isinstance(item, Loop):
                for invariant in item.invariants:
                    self.put(invariant, _invariant(invariant))
            if isinstance(item, Tasks | Loop):
                self.body(item.body)
            elif isinstance(item, If):
                self.body(item.then)
        if isinstance(item, If) and item.orelse:
            with self.indent("} else {"):
                self.body(item.orelse)
        self.line("}")


# ---- statements


def statement_text(item: Stmt) -> str:
    """The line of one statement, without indentation."""
    text = _core(item)
    if item.by:
        text += f" by {item.by}"
    if item.tags:
        text += f" tags ({', '.join(item.tags)})"
    if item.origin is not None:
        text += f" origin {item.origin}"
    if item.claim is not None:
        text += f" ; {claim_text(item.claim)}"
    return text


def _core(item: Stmt) -> str:
    match item:
        case Load():
            return f"{item.dst} = load {memory(item.src)}{_where(item.where)}{_fill(item.fill)}"
        case Store():
            effect = "" if item.effect == "set" else f" effect {item.effect}"
            mask = "" if item.mask is None else f" mask {fragment(item.mask)}"
            old = "" if item.old is None else f" old {item.old}"
            signal = "" if item.signal is None else f" signal {_object(item.signal)}"
            return f"store {memory(item.dst)} = {fragment(item.src)}{_where(item.where)}{effect}{mask}{old}{signal}"
        case Compute():
            args = "".join((" " if i == 0 else ", ") + operand(a) for i, a in enumerate(item.args))
            expr = "" if item.expr is None else f" expr {show(item.expr)}"
            return f"{item.dst} = {item.fn}{args}{expr}{_where(item.where)}{_fill(item.fill)}"
        case Scan():
            onto = "" if item.acc is None else f" onto {fragment(item.acc)}"
            nan = "" if item.nan == "propagate" else f" nan {item.nan}"
            flags = (" exclusive" if item.exclusive else "") + (" reverse" if item.reverse else "")
            return f"{item.dst} = scan {item.monoid} {fragment(item.src)} axes {_numbers(item.axes)}{flags}{onto}{nan}"
        case Fold():
            axes = "" if not item.axes else f" axes {_numbers(item.axes)}"
            onto = "" if item.acc is None else f" onto {fragment(item.acc)}"
            nan = "" if item.nan == "propagate" else f" nan {item.nan}"
            return f"{item.dst} = fold {item.monoid} {fragment(item.src)}{axes}{onto}{nan}"
        case Mma():
            onto = "" if item.acc is None else f" onto {fragment(item.acc)}"
            contract = "" if not item.contracted else f" contract {_numbers(item.contracted)}"
            return f"{item.dst} = mma {item.atom} {operand(item.a)}, {operand(item.b)}{onto}{contract}"
        case Copy():
            signal = "" if item.signal is None else f" signal {_object(item.signal)}"
            through = "" if item.map is None else f" map {item.map}"
            box = _numbers(item.box) + _where(item.where)
            box += f" multicast {item.multicast}" if item.multicast else ""
            return f"copy {item.engine} {memory(item.dst)} = {memory(item.src)} box {box}{signal}{through}"
        case Sync():
            target = "" if item.object is None else f" {_object(item.object)}"
            args = "" if not item.args else f" ({_pairs(item.args)})"
            return f"sync {item.kind}{target}{args}"
        case Version():
            return f"version {item.buffer}{_fill(item.fill)}"
        case Let():
            return f"let {item.name} = {show(item.expr)}"
        case Advance():
            return f"advance {item.counter}"
        case _:
            raise AssertionError(f"a statement class without text: {type(item).__name__}")


def head_text(item: Control) -> str:
    """The first line of a control, without indentation."""
    origin = "" if item.origin is None else f" origin {item.origin}"
    match item:
        case Tasks():
            pairs = ", ".join(f"{v} < {show(c)}" for v, c in zip(item.vars, item.counts))
            raster = "" if item.raster == ("row",) else f" raster ({', '.join(map(str, item.raster))})"
            return f"tasks ({pairs}) over {item.over}{raster}{_enters(item.enters)}{origin} {{"
        case Loop():
            unroll = "" if item.unroll == 1 else f" unroll {item.unroll}"
            bounds = f"{item.var} = {show(item.lo)} .. {show(item.hi)} step {show(item.step)}"
            return f"loop {bounds}{unroll}{_enters(item.enters)}{origin} {{"
        case If():
            conds = "" if not item.conds else f" {constraints(item.conds)}"
            cond = "" if item.cond is None else f" cond {item.cond}"
            source = "" if item.source is None else f" source {item.source}"
            scope = "" if item.scope == "agent" else f" scope {item.scope}"
            last = "" if item.last is None else _last(item.last)
            return f"if{last}{conds}{cond}{source}{scope}{_enters(item.enters)}{origin} {{"
        case _:
            raise AssertionError(f"a control class without text: {type(item).__name__}")


def _last(last: Last) -> str:
    return f" last {memory(last.counter)} of {show(last.of)} id {show(last.id)} threads {last.threads}"


def claim_text(claim: Claim | StoreClaim) -> str:
    """The text of a witness clause, without its semicolon."""
    if isinstance(claim, StoreClaim):
        return f"store {claim.store} [{_list(claim.coords)}]{_instance(claim.instance)}"
    over = ""
    if claim.over is not None:
        over = f" over ({', '.join(claim.bound)})"
        if claim.over:
            over += f" : {constraints(claim.over)}"
    return f"{claim.value}[{_list(claim.coords)}]{_where(claim.where)}{over}{_instance(claim.instance)}"


def _invariant(invariant: Invariant) -> str:
    fill = "" if invariant.fill is None else f" fill {number(invariant.fill)}"
    within = f" within {constraints(invariant.within)}" if invariant.within else ""
    return f"invariant {invariant.holder}{fill}{within} ; {claim_text(invariant.claim)}"


def _instance(instance: tuple[tuple[str, Expr], ...]) -> str:
    return "" if not instance else f" at ({_pairs(instance)})"


def _enters(enters: tuple[Enter, ...]) -> str:
    if not enters:
        return ""
    parts: list[str] = []
    for enter in enters:
        binds = ", ".join(f"{name} = {' .. '.join(map(show, bounds))}" for name, bounds in enter.binds)
        parts.append(f"{enter.region}({binds})")
    return f" enters {', '.join(parts)}"


# ---- operands


def fragment(ref: FragRef) -> str:
    """`acc` whole, `acc[$0, 3]` at coordinates."""
    return ref.name if ref.coords is None else f"{ref.name}[{_list(ref.coords)}]"


def memory(ref: MemRef) -> str:
    """`X[m, k]`, `ring{n}[$0]` with a version, `S@(r)[$0]` of another workgroup."""
    return f"{_named(ref)}[{_list(ref.index)}]"


def _object(ref: MemRef) -> str:
    return _named(ref) if not ref.index else memory(ref)


def _named(ref: MemRef) -> str:
    rank = "" if ref.rank is None else f"@({ref.rank if isinstance(ref.rank, str) else show(ref.rank)})"
    version = "" if ref.version is None else f"{{{show(ref.version)}}}"
    return f"{ref.name}{rank}{version}"


def operand(value: Operand) -> str:
    """A fragment, a memory element or a number."""
    if isinstance(value, FragRef):
        return fragment(value)
    return memory(value) if isinstance(value, MemRef) else number(value)


def number(value: float | bool | str) -> str:
    """A number that reads back with its type: `true`, `3`, `3.0`, `-0.0`, `inf`, `nan`; words as they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return repr(int(value)) if isinstance(value, int) else repr(float(value))


def constraint(fact: Constraint) -> str:
    """An inequality with what is subtracted on its left: `64*tm + $0 < M` rather than `M - 64*tm - $0 - 1 >= 0`."""
    positive = Expr(tuple((m, c) for m, c in fact.expr.terms if c > 0))
    negative = Expr(tuple((m, -c) for m, c in fact.expr.terms if c < 0))
    if fact.equality:
        return f"{show(positive)} == {show(negative)}"
    if fact.expr.offset == -1 and len(negative.terms) > 1:
        return f"{show(negative - 1)} < {show(positive)}"
    return f"{show(negative)} <= {show(positive)}"


def constraints(facts: Iterable[Constraint]) -> str:
    """A conjunction, separated by commas."""
    return ", ".join(map(constraint, facts))


def fact_text(fact: Fact) -> str:
    """A fact of the guard."""
    if isinstance(fact, Divisible):
        alone = fact.expr == sym(str(fact.expr))
        whole = str(fact.expr) if alone else f"({show(fact.expr)})"
        return f"{whole} % {fact.by} == 0"
    return constraint(fact.constraint) if isinstance(fact, Bound) else str(fact)


def _where(facts: tuple[Constraint, ...]) -> str:
    return "" if not facts else f" where {constraints(facts)}"


def _fill(fill: float | bool | str) -> str:
    return "" if fill == "undef" else f" fill {number(fill)}"


def _list(items: Sequence[Expr]) -> str:
    return ", ".join(map(show, items))


def _pairs(items: Sequence[tuple[str, Expr]]) -> str:
    return ", ".join(f"{name} = {show(expr)}" for name, expr in items)


def _numbers(items: Sequence[int]) -> str:
    return f"({', '.join(map(str, items))})"


# ---- declarations


def _buffer(buffer: Buffer) -> str:
    text = f"buffer {buffer.name} {buffer.dtype}[{_list(buffer.shape)}] {buffer.place} align {buffer.align}"
    if buffer.versions:
        text += f" versions {buffer.versions}"
    if buffer.swizzle:
        text += f" swizzle {buffer.swizzle}"
    return text if buffer.offset is None else f"{text} @ {show(buffer.offset)}"


def _frag(frag: Frag) -> str:
    text = f"frag {frag.name} {frag.dtype}[{', '.join(map(str, frag.shape))}]"
    if frag.dist:
        modes = (f"{m.who} {m.size} axis {'-' if m.axis is None else m.axis} stride {m.stride}" for m in frag.dist)
        text += f" dist ({', '.join(modes)})"
    return text if frag.place == "register" else f"{text} place {frag.place}"


def _barrier(barrier: Barrier) -> str:
    tx = " tx" if barrier.tx else ""
    return f"barrier {barrier.name} count {barrier.count} versions {barrier.versions}{tx} @ {barrier.offset}"


def _role(role: Role) -> str:
    text = f"role {role.name} agents {role.agents} threads {role.threads}"
    if role.index is not None:
        text += f" index {role.index}"
    if role.registers is not None:
        text += f" registers {role.registers}"
    if role.counters:
        text += f" counters ({', '.join(role.counters)})"
    return f"{text} {{"


def _map(entry: TensorMap) -> str:
    box = _numbers(entry.box)
    layout = f"box {box} swizzle {entry.swizzle} fill {entry.fill} promotion {entry.promotion}"
    return f"map {entry.name} of {entry.tensor} {entry.dtype} {layout}"


def _counter(counter: Counter) -> str:
    return f"counter {counter.name}[{_list(counter.shape)}]"


def _launch(launch: Launch) -> str:
    text = f"launch {launch.kernel} grid {show(launch.grid)} threads {launch.threads}"
    if launch.cluster != 1:
        text += f" cluster {launch.cluster}"
    if launch.cooperative:
        text += " cooperative"
    if launch.dependent:
        text += " dependent"
    text += f" shared {launch.shared_bytes}" if launch.shared_bytes else ""
    return text + (f" resident {launch.resident}" if launch.resident else "")
