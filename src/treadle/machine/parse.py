"""The parser of machine text: a line a statement, braces for bodies, the inverse of `text`.

A text is read top down: header, embedded program, guard, host, kernels. Errors are `machine/syntax` with the line, what
was found and what was expected. What a line *says* is judged elsewhere: form in `verify`, meaning in the checker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from treadle.algebra.expr import Expr
from treadle.base.source import keep_text
from treadle.dtype.formats import BY_NAME, DType
from treadle.ir.expand import expand
from treadle.ir.guard import Absent, Aligned, Bound, Disjoint, Divisible, Fact, Guard, Injective, Pitch, Same, Unit
from treadle.ir.parser import parse_program
from treadle.machine.expressions import MachineTokens, read_constraints, read_expr
from treadle.machine.form import (
    Barrier,
    Body,
    Buffer,
    Control,
    Counter,
    Enter,
    Frag,
    Host,
    If,
    Invariant,
    Kernel,
    Last,
    Launch,
    Loop,
    MachineProgram,
    Mode,
    Role,
    Stmt,
    Tasks,
    TensorMap,
)
from treadle.machine.parse_statement import StatementReader, memory_ref

FORMATS = (1,)

_DIVISIBLE = re.compile(r"^\s*([$%\w.]+|\(.*\))\s+%\s+(\d+)\s*==\s*0\s*$")

T = TypeVar("T")


def parse_machine(text: str, file: str = "<machine text>") -> MachineProgram:
    """The machine program of a text. Errors: `machine/syntax`, and those of the embedded program's parser."""
    keep_text(file, text)
    parser = _Parser(text, file)
    try:
        return parser.program()
    except RecursionError:
        row = parser.row()
    raise row.error("fewer brackets or bodies inside one another", found="text nested too deeply")


class _Parser:
    """Reads lines from top to bottom; `row` holds the tokens of the current one."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.raw = text.splitlines()
        self.at = 0
        self.scalars: set[str] = set()

    # ---- lines

    def row(self) -> MachineTokens:
        """The tokens of the next line that carries something; it stays the next."""
        while self.at < len(self.raw):
            raw = self.raw[self.at]
            tokens = MachineTokens(raw, self.file, self.at + 1)
            if not tokens.done:
                return tokens
            self.at += 1
        return MachineTokens("", self.file, max(1, len(self.raw)))

    def take(self) -> MachineTokens:
        """The tokens of the next line, which is then read."""
        tokens = self.row()
        if tokens.done:
            raise tokens.error("another line", found="the end of the text")
        self.at += 1
        return tokens

    def lines(self) -> Iterator[MachineTokens]:
        """The lines of an open block up to its closing brace, which is read too."""
        while True:
            tokens = self.take()
            if tokens.at("}"):
                tokens.next()
                tokens.end()
                return
            yield tokens

    # ---- the parts of a text

    def program(self) -> MachineProgram:
        head = self.take()
        head.expect("tdm")
        version = head.integer("a format version")
        if version not in FORMATS:
            raise head.error(f"format version {' or '.join(map(str, FORMATS))}", found=f"format version {version}")
        head.end()
        line = self.take()
        line.expect("target")
        target = self._rest(line)
        ledger: list[str] = []
        while (line := self.row()).at("numerics"):
            self.take()
            line.next()
            ledger.append(line.string("the text of a ledger entry"))
            line.end()
        self._open("program")
        # Errors count lines within the embedded program.
        captured = parse_program(self._embedded(), f"<the program in {self.file}>")
        program = expand(captured)
        self.scalars = {name for s in program.scalars for name in (s.name, s.value.name)}
        self._open("guard")
        guard = Guard(tuple(self._fact(tokens) for tokens in self.lines()))
        self._open("host")
        host = self._host()
        kernels: list[Kernel] = []
        while not self.row().done:
            kernels.append(self._kernel())
        return MachineProgram(
            target,
            program,
            guard,
            host,
            kernels,
            tuple(ledger),
            version,
            captured=None if captured is program else captured,
        )

    def _rest(self, tokens: MachineTokens) -> str:
        words = [tokens.name("a target")]
        while tokens.accept(":"):
            words.append(tokens.name("a target's variant"))
        tokens.end()
        return ":".join(words)

    def _open(self, word: str) -> None:
        tokens = self.take()
        tokens.expect(word)
        tokens.expect("{")
        tokens.end()

    def _embedded(self) -> str:
        """The raw lines of the embedded program: up to the brace in the first column."""
        start = self.at
        while self.at < len(self.raw):
            if self.raw[self.at].rstrip() == "}":
                self.at += 1
                return "".join(line.removeprefix("  ") + "\n" for line in self.raw[start : self.at - 1])
            self.at += 1
        raise self.row().error("the brace that closes the program, in the first column", found="the end of the text")

    def _fact(self, tokens: MachineTokens) -> Fact:
        for word, read in _FACTS.items():
            if tokens.accept(word, "("):
                fact = read(tokens)
                tokens.end()
                return fact
        number = tokens.peek().span.line
        divisible = _DIVISIBLE.match(self.raw[number - 1])
        if divisible is not None:
            left = MachineTokens(divisible.group(1), self.file, number, divisible.start(1))
            fact = Divisible(read_expr(left), int(divisible.group(2)))
            left.end()
            return fact
        facts = read_constraints(tokens)
        tokens.end()
        if len(facts) != 1:
            raise tokens.error("one comparison a line", found=f"{len(facts)} comparisons")
        return Bound(facts[0])

    def _host(self) -> Host:
        host = Host()
        for tokens in self.lines():
            if tokens.accept("let"):
                name = tokens.name()
                tokens.expect("=")
                host.lets[name] = read_expr(tokens)
            elif tokens.at("buffer"):
                host.workspace.append(_buffer(tokens))
            elif tokens.at("map"):
                host.maps.append(_map(tokens))
            elif tokens.accept("counter"):
                host.counters.append(Counter(tokens.name("the counter's name"), _shape(tokens)))
            elif tokens.at("launch"):
                host.launches.append(_launch(tokens))
            else:
                raise tokens.error("let, buffer, map, counter or launch")
            tokens.end()
        return host

    def _kernel(self) -> Kernel:
        head = self.take()
        head.expect("kernel")
        kernel = Kernel(head.name("the kernel's name"), [])
        head.expect("{")
        head.end()
        for tokens in self.lines():
            if tokens.at("buffer"):
                kernel.buffers.append(_buffer(tokens))
            elif tokens.at("frag"):
                kernel.frags.append(_frag(tokens))
            elif tokens.at("barrier"):
                kernel.barriers.append(_barrier(tokens))
            elif tokens.at("role"):
                role = _role(tokens)
                tokens.end()
                role.body = self._body(StatementReader({f.name for f in kernel.frags} | self.scalars))
                kernel.roles.append(role)
                continue
            else:
                raise tokens.error("buffer, frag, barrier or role")
            tokens.end()
        return kernel

    # ---- bodies

    def _body(self, reader: StatementReader) -> Body:
        """Statements up to the closing brace."""
        body: Body = []
        for tokens in self.lines():
            body.append(self._item(tokens, reader))
        return body

    def _item(self, tokens: MachineTokens, reader: StatementReader) -> Stmt | Control:
        for word, read in (("tasks", self._tasks), ("loop", self._loop), ("if", self._if)):
            if tokens.accept(word):
                return read(tokens, reader)
        item = reader.statement(tokens)
        tokens.end()
        return item

    def _tasks(self, tokens: MachineTokens, reader: StatementReader) -> Tasks:
        tokens.expect("(")
        names: list[str] = []
        counts: list[Expr] = []
        while True:
            names.append(tokens.name("a task variable"))
            tokens.expect("<")
            counts.append(read_expr(tokens))
            if not tokens.accept(","):
                break
        tokens.expect(")")
        tokens.expect("over")
        over = tokens.name("what the tasks are handed to")
        raster: tuple[str | int, ...] = ("row",)
        if tokens.accept("raster"):
            raster = tuple(_listed(tokens, _word_or_number))
        tasks = Tasks(vars=tuple(names), counts=tuple(counts), over=over, raster=raster, enters=_enters(tokens))
        _open_body(tasks, tokens)
        tasks.body = self._body(reader)
        return tasks

    def _loop(self, tokens: MachineTokens, reader: StatementReader) -> Loop:
        var = tokens.name("a loop variable")
        tokens.expect("=")
        lo = read_expr(tokens)
        tokens.expect("..")
        hi = read_expr(tokens)
        tokens.expect("step")
        step = read_expr(tokens)
        unroll = tokens.integer() if tokens.accept("unroll") else 1
        loop = Loop(var=var, lo=lo, hi=hi, step=step, unroll=unroll, enters=_enters(tokens))
        _open_body(loop, tokens)
        invariants: list[Invariant] = []
        while (row := self.row()).at("invariant"):
            self.take()
            invariants.append(reader.invariant(row))
        loop.invariants = tuple(invariants)
        loop.body = self._body(reader)
        return loop

    def _if(self, tokens: MachineTokens, reader: StatementReader) -> If:
        words = ("cond", "source", "scope", "enters", "origin", "{")
        told = tokens.at("last") and tokens.peek(2).text == "["
        last = _last(tokens) if told else None
        conds = () if any(tokens.at(w) for w in words) else read_constraints(tokens)
        cond = tokens.name("a fragment") if tokens.accept("cond") else None
        source = tokens.integer() if tokens.accept("source") else None
        scope = tokens.name("a scope") if tokens.accept("scope") else "agent"
        item = If(conds=conds, cond=cond, source=source, scope=scope, last=last, enters=_enters(tokens))
        _open_body(item, tokens)
        while True:
            row = self.take()
            if row.accept("}"):
                if row.accept("else"):
                    row.expect("{")
                    row.end()
                    item.orelse = self._body(reader)
                else:
                    row.end()
                return item
            item.then.append(self._item(row, reader))


def _last(tokens: MachineTokens) -> Last:
    tokens.expect("last")
    counter = memory_ref(tokens)
    tokens.expect("of")
    of = read_expr(tokens)
    tokens.expect("id")
    number = read_expr(tokens)
    tokens.expect("threads")
    return Last(counter, of, number, tokens.integer("a number of threads"))


def _open_body(item: Control, tokens: MachineTokens) -> None:
    if tokens.accept("origin"):
        item.origin = tokens.integer("a source line")
    tokens.expect("{")
    tokens.end()


# ---- pieces


def _listed(tokens: MachineTokens, read: Callable[[MachineTokens], T]) -> list[T]:
    """`(a, b, ...)`, possibly empty."""
    tokens.expect("(")
    items: list[T] = []
    while not tokens.at(")"):
        items.append(read(tokens))
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return items


def _word_or_number(tokens: MachineTokens) -> str | int:
    return tokens.integer() if tokens.peek().kind == "int" else tokens.name("a word or a number")


def _enters(tokens: MachineTokens) -> tuple[Enter, ...]:
    enters: list[Enter] = []
    if not tokens.accept("enters"):
        return ()
    while True:
        region = tokens.name("a region")
        enters.append(Enter(region, tuple(_listed(tokens, _bind))))
        if not tokens.accept(","):
            return tuple(enters)


def _bind(tokens: MachineTokens) -> tuple[str, tuple[Expr, ...]]:
    name = tokens.name("an argument of the region")
    tokens.expect("=")
    start = read_expr(tokens)
    return (name, (start, read_expr(tokens))) if tokens.accept("..") else (name, (start,))


def _dtype(tokens: MachineTokens) -> DType:
    if tokens.peek().text not in BY_NAME:
        raise tokens.error(f"a dtype: {', '.join(BY_NAME)}")
    return BY_NAME[tokens.name()]


def _shape(tokens: MachineTokens) -> tuple[Expr, ...]:
    tokens.expect("[")
    extents: list[Expr] = []
    while not tokens.at("]"):
        extents.append(read_expr(tokens))
        if not tokens.accept(","):
            break
    tokens.expect("]")
    return tuple(extents)


def _buffer(tokens: MachineTokens) -> Buffer:
    tokens.expect("buffer")
    name, dtype, shape = tokens.name(), _dtype(tokens), _shape(tokens)
    place = tokens.name("a place")
    tokens.expect("align")
    align = tokens.integer()
    versions = tokens.integer() if tokens.accept("versions") else 0
    swizzle = tokens.integer() if tokens.accept("swizzle") else 0
    offset = read_expr(tokens) if tokens.accept("@") else None
    return Buffer(name, dtype, shape, place, align, versions, swizzle, offset)


def _frag(tokens: MachineTokens) -> Frag:
    tokens.expect("frag")
    name, dtype = tokens.name(), _dtype(tokens)
    extents = [e.constant for e in _shape(tokens)]
    shape = tuple(n for n in extents if n is not None)
    if len(shape) != len(extents):
        raise tokens.error("extents that are numbers")
    dist = tuple(_listed(tokens, _mode)) if tokens.accept("dist") else ()
    place = tokens.name() if tokens.accept("place") else "register"
    return Frag(name, dtype, shape, dist, place)


def _mode(tokens: MachineTokens) -> Mode:
    who, size = tokens.name("slot, lane, warp or replica"), tokens.integer()
    tokens.expect("axis")
    axis = None if tokens.accept("-") else tokens.integer("an axis or -")
    tokens.expect("stride")
    return Mode(who, size, axis, tokens.integer())


def _barrier(tokens: MachineTokens) -> Barrier:
    tokens.expect("barrier")
    name = tokens.name()
    tokens.expect("count")
    count = tokens.integer()
    tokens.expect("versions")
    versions = tokens.integer()
    tx = tokens.accept("tx")
    tokens.expect("@")
    return Barrier(name, count, versions, tx, tokens.integer())


def _role(tokens: MachineTokens) -> Role:
    tokens.expect("role")
    name = tokens.name()
    tokens.expect("agents")
    agents = tokens.integer()
    tokens.expect("threads")
    threads = tokens.integer()
    index = tokens.name() if tokens.accept("index") else None
    registers = tokens.integer() if tokens.accept("registers") else None
    counters = tuple(_listed(tokens, lambda t: t.name())) if tokens.accept("counters") else ()
    tokens.expect("{")
    return Role(name, agents, threads, [], index, registers, counters)


def _map(tokens: MachineTokens) -> TensorMap:
    tokens.expect("map")
    name = tokens.name()
    tokens.expect("of")
    tensor, dtype = tokens.name("a tensor"), _dtype(tokens)
    tokens.expect("box")
    box = tuple(_listed(tokens, lambda t: t.integer()))
    tokens.expect("swizzle")
    swizzle = tokens.integer()
    tokens.expect("fill")
    fill = tokens.name()
    tokens.expect("promotion")
    return TensorMap(name, tensor, dtype, box, swizzle, fill, tokens.integer())


def _launch(tokens: MachineTokens) -> Launch:
    tokens.expect("launch")
    kernel = tokens.name("a kernel")
    tokens.expect("grid")
    grid = read_expr(tokens)
    tokens.expect("threads")
    threads = tokens.integer()
    cluster = tokens.integer() if tokens.accept("cluster") else 1
    cooperative = tokens.accept("cooperative")
    dependent = tokens.accept("dependent")
    shared = tokens.integer() if tokens.accept("shared") else 0
    resident = tokens.integer() if tokens.accept("resident") else 0
    return Launch(kernel, grid, threads, cluster, cooperative, shared, resident, dependent)


def _align(tokens: MachineTokens) -> Fact:
    tensor = tokens.name("a tensor")
    tokens.expect(")")
    tokens.expect(">=")
    return Aligned(tensor, tokens.integer())


def _pitch(tokens: MachineTokens) -> Fact:
    tensor = tokens.name("a tensor")
    tokens.expect(",")
    axis = tokens.integer()
    tokens.expect(")")
    tokens.expect("%")
    by = tokens.integer()
    tokens.expect("==")
    tokens.expect("0")
    return Pitch(tensor, axis, by)


def _unit(tokens: MachineTokens) -> Fact:
    tensor = tokens.name("a tensor")
    tokens.expect(",")
    fact = Unit(tensor, tokens.integer())
    tokens.expect(")")
    return fact


def _disjoint(tokens: MachineTokens) -> Fact:
    first = tokens.name("a tensor")
    tokens.expect(",")
    fact = Disjoint(first, tokens.name("a tensor"))
    tokens.expect(")")
    return fact


def _same(tokens: MachineTokens) -> Fact:
    first = tokens.name("a tensor")
    tokens.expect(",")
    fact = Same(first, tokens.name("a tensor"))
    tokens.expect(")")
    return fact


def _injective(tokens: MachineTokens) -> Fact:
    fact = Injective(tokens.name("a tensor"))
    tokens.expect(")")
    return fact


def _absent(tokens: MachineTokens) -> Fact:
    fact = Absent(tokens.name("a tensor"))
    tokens.expect(")")
    return fact


_FACTS: dict[str, Callable[[MachineTokens], Fact]] = {
    "align": _align,
    "pitch": _pitch,
    "unit": _unit,
    "disjoint": _disjoint,
    "same": _same,
    "injective": _injective,
    "absent": _absent,
}
