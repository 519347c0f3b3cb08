"""The parser of machine text: a line a statement, braces for bodies, the inverse of `text`.

A text is read top down: header, embedded program, guard, host, kernels. Errors are `machine/syntax` with the line, what
was found and what was expected. What a line *says* is judged elsewhere: form in `verify`, meaning in the checker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from treadle.algebra.expr import Expr
from treadle.base.source import keep_text
from treadle.ir.expand import expand
from treadle.ir.guard import Bound, Divisible, Fact, Guard
from treadle.ir.parser import parse_program
from treadle.machine.expressions import MachineTokens, read_constraints, read_expr
from treadle.machine.form import (
    Body,
    Control,
    Counter,
    Host,
    If,
    Invariant,
    Kernel,
    Last,
    Loop,
    MachineProgram,
    Stmt,
    Tasks,
)
from treadle.machine.parse_declarations import (
    FACTS,
    listed,
    read_barrier,
    read_buffer,
    read_enters,
    read_extents,
    read_frag,
    read_launch,
    read_map,
    read_role,
    word_or_number,
)
from treadle.machine.parse_statement import StatementReader, memory_ref

FORMATS = (1,)

_DIVISIBLE = re.compile(r"^\s*([$%\w.]+|\(.*\))\s+%\s+(\d+)\s*==\s*0\s*$")


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
        for word, read in FACTS.items():
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
            if fact.by < 1:
                raise tokens.error("a positive divisor", found=f"the divisor {fact.by}")
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
                host.workspace.append(read_buffer(tokens))
            elif tokens.at("map"):
                host.maps.append(read_map(tokens))
            elif tokens.accept("counter"):
                host.counters.append(Counter(tokens.name("the counter's name"), read_extents(tokens)))
            elif tokens.at("launch"):
                host.launches.append(read_launch(tokens))
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
                kernel.buffers.append(read_buffer(tokens))
            elif tokens.at("frag"):
                kernel.frags.append(read_frag(tokens))
            elif tokens.at("barrier"):
                kernel.barriers.append(read_barrier(tokens))
            elif tokens.at("role"):
                role = read_role(tokens)
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
            raster = tuple(listed(tokens, word_or_number))
        tasks = Tasks(vars=tuple(names), counts=tuple(counts), over=over, raster=raster, enters=read_enters(tokens))
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
        loop = Loop(var=var, lo=lo, hi=hi, step=step, unroll=unroll, enters=read_enters(tokens))
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
        item = If(conds=conds, cond=cond, source=source, scope=scope, last=last, enters=read_enters(tokens))
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
