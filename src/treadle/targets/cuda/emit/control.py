"""Sequences, loops, conditions and tasks.

Loops stay loops (`#pragma unroll 1`), so that what the assembler sees is what the machine text says; loops whose
variable chooses registers, and those that the text unrolls wholly, are written out. What one elected thread does alone
stands under one `if`, with the loops around it where nobody else has a part in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import const, sym
from treadle.machine.form import (
    Advance,
    Body,
    Compute,
    Control,
    Copy,
    Enter,
    Fold,
    If,
    Let,
    Load,
    Loop,
    Mma,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.machine.itself import moves_itself
from treadle.machine.text import statement_text
from treadle.targets.cuda.emit.access import load, store
from treadle.targets.cuda.emit.compute import compute, fold, multiply_add
from treadle.targets.cuda.emit.copies import copy
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.index import Known, declared, symbol
from treadle.targets.cuda.emit.matrices import load_matrices
from treadle.targets.cuda.emit.matrix import contract
from treadle.targets.cuda.emit.mentions import expressions, fragments_named, multiplies
from treadle.targets.cuda.emit.names import cname
from treadle.targets.cuda.emit.runs import Run, gathered
from treadle.targets.cuda.emit.scope import Scope
from treadle.targets.cuda.emit.sends import send
from treadle.targets.cuda.emit.syncs import arrives_last, sync
from treadle.targets.cuda.emit.warps import warp_contract

MOST_COPIES = 512
"""Iterations of a loop that is written out."""
MOST_TASKS = 1 << 30
_STAY = {"persistent": ("cta", "ctas"), "clusters": ("cluster", "clusters")}
"""Pools whose executors go from task to task: the number of one, and how many there are."""
AHEAD = "ahead"
"""Tag of a load in a body of tasks: the executor's next task may read before this one is through."""


@dataclass
class Bodies:
    """Emission of a role's bodies. `private`: counters that only the elected thread uses; `periods`: counters that
    wrap; `unrolled`: variables of loops that are written out."""

    private: frozenset[str]
    periods: dict[str, int | None]
    unrolled: frozenset[str]
    turns: bool = False
    """Whether agents take turns: then each has the issue slots almost for itself, and its latencies show."""

    # ---- sequences

    def emit(self, scope: Scope, body: Body) -> None:
        """The statements in order."""
        pending: list[Stmt | Control] = []
        for item in gathered(body) if self.turns else body:
            if isinstance(item, Version):
                continue
            if isinstance(item, Run):
                self._flush(scope, pending)
                self._run(scope, item)
                continue
            if not scope.elected and self._alone(item) and self._elects(item):
                pending.append(item)
                continue
            self._flush(scope, pending)
            self._item(scope, item)
        self._flush(scope, pending)

    def _flush(self, scope: Scope, pending: list[Stmt | Control]) -> None:
        if not pending:
            return
        inner = scope.child()
        inner.elected = True
        with inner.block(f"if ({scope.single}) {{"):
            for item in pending:
                self._item(inner, item)
        pending.clear()

    def _alone(self, item: Stmt | Control) -> bool:
        """Whether only the elected thread does anything in it."""
        if isinstance(item, Version):
            return True
        if isinstance(item, Stmt):
            return item.by == "elect"
        if any(isinstance(s, If) and s.last is not None for s in walk([item])):
            return False
        leaves = [s for s in walk([item]) if isinstance(s, Stmt)]
        return all(
            s.by == "elect" or isinstance(s, Version | Let) or (isinstance(s, Advance) and s.counter in self.private)
            for s in leaves
        ) and not any(isinstance(s, Tasks) and s.over in ("threads", "warps", "tickets") for s in walk([item]))

    def _elects(self, item: Stmt | Control) -> bool:
        return any(isinstance(s, Stmt) and s.by == "elect" for s in walk([item]))

    def _item(self, scope: Scope, item: Stmt | Control) -> None:
        if isinstance(item, Stmt):
            self._statement(scope, item)
        elif isinstance(item, Loop):
            self._loop(scope, item)
        elif isinstance(item, If):
            self._if(scope, item)
        elif isinstance(item, Tasks):
            self._tasks(scope, item)
        else:
            raise ill_formed(f"the control {type(item).__name__}", "tasks, a loop or an if")

    # ---- statements

    def _statement(self, scope: Scope, stmt: Stmt) -> None:
        if isinstance(stmt, Version):
            return
        if isinstance(stmt, Let):
            _let(scope, stmt)
            return
        if isinstance(stmt, Advance):
            self._advance(scope, stmt)
            return
        claim, stmt.claim = stmt.claim, None
        scope.line(f"// {statement_text(stmt)}")
        stmt.claim = claim
        if stmt.by == "warp":
            with scope.block("if (lane == 0) {"):
                _plain(scope, stmt)
        elif stmt.by == "elect" and not scope.elected:
            with scope.block(f"if ({scope.single}) {{"):
                _plain(scope, stmt)
        else:
            _plain(scope, stmt)

    def _advance(self, scope: Scope, stmt: Advance) -> None:
        name = cname(stmt.counter)
        period = self.periods.get(stmt.counter)
        if period is None:
            scope.line(f"{name} += 1;")
        elif period & (period - 1) == 0:
            scope.line(f"{name} = ({name} + 1) & {period - 1};")
        else:
            scope.line(f"{name} = {name} + 1 == {period} ? 0 : {name} + 1;")

    # ---- conditions

    def _if(self, scope: Scope, stmt: If) -> None:
        tests = [t for t in (scope.symbols.condition(c) for c in stmt.conds) if t is not None]
        if stmt.cond is not None:
            tests.append(scope.read(stmt.cond, 0).text)
        if stmt.last is not None:
            tests.append(arrives_last(scope, stmt.last))
        inner = scope.child()
        condition = " && ".join(f"({t})" if len(tests) > 1 else t for t in tests) or "true"
        with inner.block(f"if ({condition}) {{", "} else {" if stmt.orelse else "}"):
            _enter(inner, stmt.enters)
            self.emit(inner, stmt.then)
        if stmt.orelse:
            other = scope.child()
            other.depth += 1
            self.emit(other, stmt.orelse)
            scope.line("}")

    def _run(self, scope: Scope, run: Run) -> None:
        """Computation with conditions in it: as it stands where one of them holds, else in one piece."""
        tests: list[str] = []
        for choice in run.choices:
            parts = [t for t in (scope.symbols.condition(c) for c in choice.conds) if t is not None]
            tests.append(" && ".join(f"({t})" for t in parts) or "true")
        tests = list(dict.fromkeys(tests))
        inner = scope.child()
        if "true" in tests:
            with inner.block("{"):
                for item in run.items:
                    self._item(inner, item)
            return
        with inner.block(f"if ({' || '.join(f'({t})' for t in tests)}) {{", "} else {"):
            for item in run.items:
                self._item(inner, item)
        other = scope.child()
        other.depth += 1
        for item in run.items:
            for rest in item.orelse if isinstance(item, If) else (item,):
                self._item(other, rest)
        scope.line("}")

    # ---- loops

    def _loop(self, scope: Scope, stmt: Loop) -> None:
        lo, hi, step = (scope.symbols.text(e) for e in (stmt.lo, stmt.hi, stmt.step))
        if step.hi <= 0 or (step.number is not None and step.number <= 0):
            raise ill_formed(f"the loop step {stmt.step}", "a positive step")
        if lo.number is not None and hi.number is not None and step.number is not None:
            values = range(lo.number, hi.number, step.number)
            if stmt.var in self.unrolled or (stmt.unroll >= len(values) and not multiplies(stmt)):
                if len(values) > MOST_COPIES:
                    raise unsupported(f"{len(values)} copies of a loop body", f"at most {MOST_COPIES}")
                for value in values:
                    inner = scope.child()
                    inner.symbols.values[stmt.var] = const(value)
                    _enter(inner, stmt.enters)
                    with inner.block(f"{{  // {stmt.var} = {value}"):
                        self.emit(inner, stmt.body)
                return
        if stmt.var in self.unrolled:
            raise unsupported(
                f"the loop over {stmt.var}, which chooses registers and has no constant bounds", "constant bounds"
            )
        name = cname(stmt.var)
        by = _gcd(lo.by, step.by)
        last = Known("", lo.lo, max(lo.lo, hi.hi - 1 + step.hi))
        kind = declared(last)
        inner = scope.child()
        inner.symbols.known[stmt.var] = symbol(name, lo.lo, max(lo.lo, hi.hi - 1), by)
        if kind == "i64":
            inner.symbols.known[stmt.var] = Known(name, lo.lo, max(lo.lo, hi.hi - 1), by, True)
        _enter(inner, stmt.enters)
        inner.turning = stmt.var if stmt.unroll > 1 else ""
        scope.line(f"#pragma unroll {stmt.unroll}")
        first, end = (lo.text, hi.text) if kind == "i64" else (lo.narrow(), hi.narrow())
        with inner.block(f"for ({kind} {name} = {first}; {name} < {end}; {name} += {step.text}) {{"):
            self.emit(inner, stmt.body)

    # ---- tasks

    def _tasks(self, scope: Scope, stmt: Tasks) -> None:
        counts = [scope.symbols.text(c) for c in stmt.counts]
        inner = scope.child()
        if stmt.over in ("threads", "warps"):
            _spread(inner, stmt)
        expr = const(1)
        for count in stmt.counts:
            expr = expr * count
        total = scope.symbols.text(expr)
        wide = stmt.over in ("threads", "warps") and not total.small
        if not wide and not total.small:
            scope.setting.limits.append((expr, MOST_TASKS))
        kind = "i64" if wide else "int"
        number, whole = scope.head.fresh("task"), scope.head.fresh("tasks")
        with inner.block("{"):
            inner.line(f"const {kind} {whole} = {_as(kind, total)};")
            grouped = "group" in stmt.raster and len(counts) > 1
            names: list[str] = []
            for i, count in enumerate(counts):
                names.append(scope.head.fresh("count"))
                if i == 0 if grouped and i < 2 else i > 0:
                    inner.line(f"const {kind} {names[-1]} = {_as(kind, count)};")
            start, step = _start(stmt, kind), _step(stmt, kind)
            opening = _dealing(stmt, kind, number, whole)
            early = {} if step is None else _early(scope, stmt)

            def fetch(loads: Sequence[Load], which: str, what: str) -> None:
                """Loads of another task: the names of its variables hide those of this one."""
                other = scope.head.fresh(which)
                with inner.block("{"):
                    inner.line(f"const {kind} {other} = {what};")
                    with inner.block(f"if ({other} < {whole}) {{"):
                        self._decode(inner, stmt, kind, other, whole, names, counts)
                        _enter(inner, stmt.enters)
                        for item in loads:
                            load(inner, item)

            if early:
                fetch([x for loads in early.values() for x in loads], "first", start)
            inner.line("#pragma unroll 1")
            with inner.block(opening):
                if stmt.over == "tickets":
                    inner.line(f"const int {number} = {_drawn(scope, number)};")
                    inner.line(f"if ({number} >= {whole}) break;")
                if "snake" in stmt.raster and stmt.over in _STAY:
                    mine, all_ = _STAY[stmt.over]
                    turned = f"({number}r / {all_} & 1) ? {all_} - 1 - {mine} : {mine}"
                    inner.line(f"const {kind} {number} = {number}r + ({turned});")
                    inner.line(f"if ({number} >= {whole}) continue;")
                self._decode(inner, stmt, kind, number, whole, names, counts)
                _enter(inner, stmt.enters)
                gone = {id(x) for loads in early.values() for x in loads}
                done = 0
                for last, loads in sorted(early.items()):
                    self.emit(inner, [x for x in stmt.body[done:last] if id(x) not in gone])
                    fetch(loads, "next", f"{number} + {step}")
                    done = last
                self.emit(inner, [x for x in stmt.body[done:] if id(x) not in gone])

    def _slow(self, scope: Scope, kind: str, left: str, whole: str, variable: str, count: str, size: str | int) -> str:
        """The last variable, slowest in groups of the others; the number of the others' combination."""
        others, tall, first, within, high, one = (
            scope.head.fresh(h) for h in ("others", "tall", "first", "within", "high", "one")
        )
        scope.use("least")
        scope.line(f"const {kind} {others} = {whole} / {count};")
        scope.line(f"const {kind} {tall} = least<{kind}>({size}, {others});")
        scope.line(f"const {kind} {first} = {left} / ({tall} * {count}) * {tall};")
        scope.line(f"const {kind} {within} = {left} - {first} * {count};")
        scope.line(f"const {kind} {high} = least<{kind}>({tall}, {others} - {first});")
        scope.line(f"const {kind} {variable} = {within} / {high};")
        scope.line(f"const {kind} {one} = {first} + {within} % {high};")
        return one

    def _decode(
        self,
        scope: Scope,
        stmt: Tasks,
        kind: str,
        number: str,
        whole: str,
        names: Sequence[str],
        counts: Sequence[Known],
    ) -> None:
        """The task's variables from its number."""
        words = list(stmt.raster)
        left = number
        if "reverse" in words:
            left = scope.head.fresh("back")
            scope.line(f"const {kind} {left} = {whole} - 1 - {number};")
        variables = [cname(v) for v in stmt.vars]
        size = words[words.index("group") + 1] if "group" in words else 0
        if isinstance(size, int) and size > 0 and len(variables) > 1:
            rest, first, within, high = (scope.head.fresh(h) for h in ("rest", "first", "within", "high"))
            scope.line(f"const {kind} {rest} = {whole} / {names[0]};")
            scope.line(f"const {kind} {first} = {left} / ({size} * {rest}) * {size};")
            scope.line(f"const {kind} {within} = {left} - {first} * {rest};")
            scope.use("least")
            scope.line(f"const {kind} {high} = least<{kind}>({size}, {names[0]} - {first});")
            scope.line(f"const {kind} {variables[0]} = {first} + {within} % {high};")
            left = scope.head.fresh("other")
            scope.line(f"const {kind} {left} = {within} / {high};")
            todo = list(range(1, len(variables)))
        elif "slow" in words and len(variables) > 1:
            left = self._slow(scope, kind, left, whole, variables[-1], names[-1], words[words.index("slow") + 1])
            todo = list(range(len(variables) - 1))
        else:
            todo = list(range(len(variables)))
        for i in reversed(todo[1:]):
            scope.line(f"const {kind} {variables[i]} = {left} % {names[i]};")
            follow = scope.head.fresh("left")
            scope.line(f"const {kind} {follow} = {left} / {names[i]};")
            left = follow
        if todo:
            scope.line(f"const {kind} {variables[todo[0]]} = {left};")
        for var, name, count in zip(stmt.vars, variables, counts):
            # The text is as wide as the loop over tasks; a number of tasks below 2^30 bounds every variable.
            high = count.hi - 1 if kind == "i64" else min(count.hi - 1, MOST_TASKS)
            scope.symbols.known[var] = Known(name, 0, max(0, high), 1, kind == "i64")


def _as(kind: str, known: Known) -> str:
    return f"(int)({known.text})" if kind == "int" and known.wide else known.text


def _dealing(stmt: Tasks, kind: str, number: str, whole: str) -> str:
    """The head of the loop over this executor's tasks."""
    start, step = _start(stmt, kind), _step(stmt, kind)
    if stmt.over == "tickets":
        return f"for (u32 {number}r = 0;; {number}r++) {{"
    if stmt.over == "grid":
        step = whole
    elif stmt.over in _STAY and step is None:
        number, start, step = f"{number}r", "0", _STAY[stmt.over][1]
    return f"for ({kind} {number} = {start}; {number} < {whole}; {number} += {step}) {{"


def _drawn(scope: Scope, number: str) -> str:
    """The number that the workgroup draws."""
    tickets = "arrivals + 1"
    if scope.setting.apart:
        return f"{scope.use('draw_apart')}({tickets}, {number}r)"
    return f"{scope.use('draw')}({tickets})"


def _start(stmt: Tasks, kind: str) -> str:
    """The executor's first task."""
    if stmt.over == "tickets":
        return "0"
    if stmt.over == "grid":
        return "cta"
    if stmt.over in _STAY:
        return _STAY[stmt.over][0]
    mine = f"({kind})cta * crew + own_thread"
    if stmt.over == "threads":
        return mine
    if stmt.over == "warps":
        return f"({mine}) / 32"
    raise unsupported(f"tasks over {stmt.over}", "tasks over grid, persistent, clusters, tickets, threads or warps")


def _step(stmt: Tasks, kind: str) -> str | None:
    """From a task's number to that of the executor's next; None where it has none, or by another rule."""
    if stmt.over in _STAY:
        return None if "snake" in stmt.raster else _STAY[stmt.over][1]
    return {"threads": f"({kind})ctas * crew", "warps": f"({kind})ctas * (crew / 32)"}.get(stmt.over)


def _early(scope: Scope, stmt: Tasks) -> dict[int, list[Load]]:
    """Loads tagged `ahead`, by the place in the body after which their registers are free: there the executor's next
    task reads. Only of tensors that nobody writes, into fragments that nothing else makes or needs at the end."""
    found: dict[int, list[Load]] = {}
    for item in stmt.body:
        if not isinstance(item, Load) or AHEAD not in item.tags or item.src.name not in scope.setting.unwritten:
            continue
        uses = [i for i, other in enumerate(stmt.body) if item.dst in fragments_named(other)]
        inputs = {n for e in expressions(item) for n in e.functions}
        if stmt.body[uses[0]] is item and not inputs & scope.setting.frags.keys():
            found.setdefault(uses[-1] + 1, []).append(item)
    return found


def _spread(scope: Scope, stmt: Tasks) -> None:
    """The body is executed by single threads or warps."""
    if stmt.over == "threads":
        scope.lanes, scope.warps, scope.single = 1, 1, "true"
    else:
        scope.lanes, scope.warps, scope.single = 32, 1, "lane == 0"


def _enter(scope: Scope, enters: Sequence[Enter]) -> None:
    """Names of region arguments, where an expression uses them."""
    for enter in enters:
        for name, bounds in enter.binds:
            names = (f"{name}.start", f"{name}.stop") if len(bounds) == 2 else (name,)
            for key, value in zip(names, bounds):
                if value != sym(key):
                    scope.symbols.values[key] = value


def _let(scope: Scope, stmt: Let) -> None:
    expr = scope.symbols.resolve(stmt.expr)
    known = scope.symbols.render(expr)
    if known.number is not None:
        scope.symbols.values[stmt.name] = const(known.number)
        return
    name = cname(stmt.name)
    kind = "i64" if known.wide else "int"
    scope.line(f"const {kind} {name} = {known.text};")
    scope.symbols.known[stmt.name] = Known(name, known.lo, known.hi, known.by, known.wide)


def _plain(scope: Scope, stmt: Stmt) -> None:
    """One statement, by whoever is here."""
    assigned = stmt.old if isinstance(stmt, Store) else getattr(stmt, "dst", None)
    if isinstance(assigned, str):
        moved = moves_itself(stmt, expressions(stmt), len(scope.layout(assigned).frag.shape))
        if moved:
            raise unsupported(f"a statement that finds its way by other slots of {moved}", "a fragment of its own")
    match stmt:
        case Load():
            if not load_matrices(scope, stmt):
                load(scope, stmt)
        case Store() if stmt.signal is not None:
            send(scope, stmt)
        case Store():
            store(scope, stmt)
        case Compute():
            compute(scope, stmt)
        case Fold():
            fold(scope, stmt)
        case Mma():
            family = stmt.atom.split(".")[0]
            if family in ("fma", "ffma", "muladd"):
                multiply_add(scope, stmt)
            elif family == "wgmma":
                contract(scope, stmt)
            elif family == "mma":
                warp_contract(scope, stmt)
            else:
                raise unsupported(f"the atom {stmt.atom}", "fma, muladd, mma or wgmma")
        case Copy():
            copy(scope, stmt)
        case Sync():
            sync(scope, stmt)
        case _:
            raise ill_formed(f"the statement {type(stmt).__name__}", "a statement of the form")


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a
