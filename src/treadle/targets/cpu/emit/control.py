"""Sequences, loops, conditions and tasks; and the split into a part without masks and a part with them.

Most iterations of most loops have all elements of their fragments inside the tensors. Every masked statement names
the least values of its conjuncts over its fragment (`least_values`): when all are at least zero, no mask is needed.
A loop without inner control is split: it runs without masks as long as that holds, then with masks to its end. Where
the first iterations may need masks too (windows that begin before a tensor), each iteration compares its number with
the range that needs none. A run of statements elsewhere is written twice under one test. Both ways do the same; the
test only chooses the faster one.

A masked vector is one instruction, a masked element by itself a test. So behind the iterations without masks come those
in which elements that are moved one by one need none (rows of a product whose last column of blocks is not full).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from treadle.algebra.expr import Expr, as_expr, floordiv, lt, maximum, minimum, sym
from treadle.machine.form import Body, Compute, Control, Enter, If, Let, Load, Loop, Mma, Stmt, Store, Tasks, walk
from treadle.targets.cpu.emit.errors import ill_formed, unsupported
from treadle.targets.cpu.emit.index import Point, split_by
from treadle.targets.cpu.emit.layouts import Layout, written
from treadle.targets.cpu.emit.masks import all_hold, scalar_condition
from treadle.targets.cpu.emit.scope import FrameReader, Scope
from treadle.targets.cpu.emit.searches import selected
from treadle.targets.cpu.emit.statements import Statements, frag_shape, least_values
from treadle.targets.cpu.emit.text import Int

SPLIT_VECTORS = 4
"""A run of statements is written twice when at least this many vectors of it are masked."""


Whole = Callable[[Stmt], bool]
"""Whether a test ahead has shown the masks of a statement to hold."""


def _every(_: Stmt) -> bool:
    return True


def _none(_: Stmt) -> bool:
    return False


class Bodies:
    """Emission of bodies in one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.fn = scope.fn
        self.statements = Statements(scope)

    def emit(self, body: Body) -> None:
        """The statements in order."""
        run: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Control):
                self._run(run)
                run = []
                self._control(stmt)
            elif isinstance(stmt, Let) and stmt.expr.functions:
                self._run(run)
                run = []
                self.statements.emit(stmt, full=False)
            elif isinstance(stmt, Let):
                # Depends on nothing that the run changes; ahead of it, both ways of a split see the name.
                self.statements.emit(stmt, full=False)
            else:
                run.append(stmt)
        self._run(run)

    def _control(self, stmt: Control) -> None:
        match stmt:
            case Loop():
                self._loop(stmt)
            case If():
                self._if(stmt)
            case Tasks():
                self._tasks(stmt)
            case _:
                raise ill_formed(f"the control {type(stmt).__name__}", "tasks, a loop or an if")

    # ---- runs of statements

    def _run(self, run: Sequence[Stmt]) -> None:
        least = self._least(run, {})
        if not least or self._masked_vectors(run) < SPLIT_VECTORS:
            self._plain(run, _none)
            return
        whole = all_hold(self.scope.index, least)
        if whole is None:
            self._plain(run, _every)
            return
        self._choice(whole, lambda: self._plain(run, _every), lambda: self._plain(run, _none))

    def _plain(self, run: Sequence[Stmt], whole: Whole) -> None:
        at = 0
        while at < len(run):
            stmt = run[at]
            search = self.scope.setting.searches.get(id(stmt))
            at += 1 if search is None else 1 + search.size
            if search is not None and isinstance(stmt, Compute):
                some = selected(self.fn, self.scope.lanes, self.scope.registers, stmt, search)
                self.fn.guarded(some, partial(self._each, run[at - 1 - search.size : at], whole))
            else:
                self.statements.emit(stmt, whole(stmt))

    def _each(self, run: Sequence[Stmt], whole: Whole) -> None:
        for stmt in run:
            self.statements.emit(stmt, whole(stmt))

    def _choice(self, condition: str, then: Callable[[], None], orelse: Callable[[], None]) -> None:
        yes, no, done = self.fn.label("then"), self.fn.label("else"), self.fn.label("join")
        self.fn.branch(condition, yes, no)
        for label, way in ((yes, then), (no, orelse)):
            self.fn.start(label)
            with self.scope.inner():
                way()
            self.fn.jump(done)
        self.fn.start(done)

    def _least(self, run: Sequence[Stmt], lets: dict[str, Expr], around: Sequence[Stmt] = ()) -> list[Expr]:
        """The least values of a run that can be tested before it, or before the statements `around` it."""
        changed = written(list(around or run))
        found: dict[Expr, None] = {}
        for stmt in run:
            for e in least_values(self.scope, stmt):
                while e.symbols & lets.keys():
                    e = e.substitute(lets)
                if e.functions & changed:
                    return []
                found[e] = None
        return list(found)

    def _masked_vectors(self, run: Sequence[Stmt]) -> int:
        return sum(len(self._masked_points(stmt)) for stmt in run)

    def _masked_points(self, stmt: Stmt) -> list[Point]:
        """The vectors and elements of a statement that have a mask."""
        shape = frag_shape(self.scope, stmt)
        if not shape or not least_values(self.scope, stmt):
            return []
        name = stmt.src.name if isinstance(stmt, Store) else getattr(stmt, "dst", "")
        tile = self.scope.setting.layouts.get(name) is Layout.TILE
        return [] if tile else self.scope.registers.points(name)

    def _is_single(self, stmt: Stmt) -> bool:
        """Whether a statement moves element by element under masks."""
        points = self._masked_points(stmt) if isinstance(stmt, Load | Store) else []
        return bool(points) and all(p.lanes is None for p in points)

    # ---- conditions

    def _if(self, stmt: If) -> None:
        condition = scalar_condition(self.scope.index, stmt.conds)
        if stmt.cond is not None:
            flag = self.scope.registers.read_at(stmt.cond, (), Point(()))
            condition = self.fn.both(condition, flag.text)
        if condition is None:
            self.emit(stmt.then)
            return
        self._choice(condition, lambda: self.emit(stmt.then), lambda: self.emit(stmt.orelse))

    # ---- loops

    def _enter(self, enters: Sequence[Enter]) -> None:
        """Names of region arguments, where an expression uses them."""
        for enter in enters:
            for name, value in _bound_names(enter):
                if value != sym(name):
                    self.scope.symbols[name] = value

    def _loop(self, stmt: Loop) -> None:
        if stmt.var in self.scope.setting.unrolled:
            lo, hi, step = stmt.lo.constant, stmt.hi.constant, stmt.step.constant
            assert lo is not None and hi is not None and step is not None
            for number in range(lo, hi, step):
                with self.scope.inner():
                    self.scope.symbols[stmt.var] = number
                    self._enter(stmt.enters)
                    self.emit(stmt.body)
            return
        with self.scope.fours.around(stmt, self._rolled, lambda ahead: self._where_run(stmt, ahead)):
            self._rolled(stmt)

    def _where_run(self, stmt: Loop, ahead: Callable[[], None]) -> None:
        """What is done ahead of a loop, where it has an iteration."""
        condition = scalar_condition(self.scope.index, (lt(stmt.lo, stmt.hi),))
        if condition is None:
            ahead()
        else:
            self._choice(condition, ahead, lambda: None)

    def _rolled(self, stmt: Loop) -> None:
        step = stmt.step.constant
        if step is not None and step <= 0:
            raise ill_formed(f"the loop step {step}", "a positive step")
        lo, hi, by = self.scope.value(stmt.lo), self.scope.value(stmt.hi), self.scope.value(stmt.step)
        inner = [s for s in stmt.body if isinstance(s, Stmt)]
        if len(inner) == len(stmt.body):
            whole = self._whole_part(stmt, inner, inner, lo, hi)
            if whole is not None and whole[0] is not None:
                first, bound = whole[0], whole[1]
                self._counted(stmt, lo, hi, by, lambda: self._inside(stmt, inner, first, bound), plain=True)
                return
            if whole is not None:
                lo = self._counted(stmt, lo, whole[1], by, lambda: self._plain(inner, _every), plain=False)
                lo = self._vectors_only(stmt, inner, lo, hi, by)
                with self.scope.inner():
                    self._afresh(inner)
                    self._counted(stmt, lo, hi, by, lambda: self._plain(inner, _none), plain=True)
                return
        self._counted(stmt, lo, hi, by, lambda: self.emit(stmt.body), plain=False)

    def _vectors_only(self, stmt: Loop, inner: Sequence[Stmt], lo: Int, hi: Int, by: Int) -> Int:
        """The iterations from `lo` in which no element by itself needs a mask, where that is worth while; returns where
        they end."""
        singles = [s for s in inner if self._is_single(s)]
        beside = any(self._masked_points(s) for s in inner if not self._is_single(s))
        if not beside or self._masked_vectors(singles) < SPLIT_VECTORS:
            return lo
        part = self._whole_part(stmt, inner, singles, lo, hi)
        if part is None or part[0] is not None:
            return lo
        return self._counted(stmt, lo, part[1], by, lambda: self._plain(inner, self._is_single), plain=True)

    def _afresh(self, run: Sequence[Stmt]) -> None:
        """Has the masks of halves of bytes made here, where they are needed, if they are.

        They take hundreds of instructions, and are the same in all loops over what they do not depend on: LLVM would
        make them before those, although most iterations need none. So the numbers they are made of are read from
        memory here, as it cannot know them.
        """
        symbols: set[str] = set()
        for stmt in run:
            if isinstance(stmt, Load) and self.statements.memory(stmt.src).packed:
                symbols |= {s for c in stmt.where for s in c.expr.symbols}
        for name in sorted(symbols):
            known = self.scope.symbols.get(name)
            if isinstance(known, str):
                place = self.fn.alloca("i64", 8)
                self.fn.do(f"store i64 {known}, ptr {place}")
                self.scope.symbols[name] = self.fn.value(f"load volatile i64, ptr {place}")

    def _inside(self, stmt: Loop, run: Sequence[Stmt], first: Int, bound: Int) -> None:
        """An iteration that may lie before or behind those that need no masks."""
        here = self.scope.symbols[stmt.var]
        assert isinstance(here, int | str)
        whole = self.fn.both(self.fn.compare("sge", here, first), self.fn.compare("slt", here, bound))
        self._choice(whole, lambda: self._plain(run, _every), lambda: self._plain(run, _none))

    def _counted(self, stmt: Loop, lo: Int, hi: Int, by: Int, body: Callable[[], None], plain: bool) -> Int:
        """The loop from `lo`; returns the variable's value after it. `plain`: not worth unrolling."""
        if isinstance(lo, int) and isinstance(hi, int) and lo >= hi:
            return lo
        before, head, inside, done = self.fn.block, self.fn.label("head"), self.fn.label("body"), self.fn.label("exit")
        self.fn.jump(head)
        self.fn.start(head)
        following = f"%next.{head}"
        place = self.fn.hold()
        variable = self.fn.value("phi")
        self.fn.branch(self.fn.compare("slt", variable, hi), inside, done)
        self.fn.start(inside)
        with self.scope.inner():
            self.scope.symbols[stmt.var] = variable
            self._enter(stmt.enters)
            body()
        self.fn.do(f"{following} = add nsw i64 {variable}, {by}")
        latch = self.fn.block
        self.fn.do(f"br label %{head}{self._loop_hint(stmt, plain)}")
        self.fn.patch(place, f"{variable} = phi i64 [ {lo}, %{before} ], [ {following}, %{latch} ]")
        self.fn.start(done)
        return variable

    def _loop_hint(self, stmt: Loop, plain: bool) -> str:
        module = self.fn.module
        innermost = all(isinstance(s, Stmt) for s in stmt.body)
        if stmt.unroll > 1 and innermost and not plain:
            count = module.metadata(f'!{{!"llvm.loop.unroll.count", i32 {stmt.unroll}}}')
            return f", !llvm.loop {module.loop_node(count)}"
        if plain or any(isinstance(s, Mma) for s in walk(stmt.body)):
            never = module.metadata('!{!"llvm.loop.unroll.disable"}')
            return f", !llvm.loop {module.loop_node(never)}"
        return ""

    def _whole_part(
        self, stmt: Loop, inner: Sequence[Stmt], some: Sequence[Stmt], lo: Int, hi: Int
    ) -> tuple[Int | None, Int] | None:
        """From where and up to where `some` statements of iterations need no masks (None for the former: from the first
        one); None where that is not worth while or cannot be said.

        *Ensures*: every iteration from there to below the second result satisfies all least values of these statements.
        """
        lets = {s.name: s.expr for s in inner if isinstance(s, Let)}
        lets |= {n: v for e in stmt.enters for n, v in _bound_names(e) if v != sym(n)}
        least = self._least(some, lets, inner)
        if not least or not self._masked_vectors(some):
            return None
        with self.scope.inner():
            self.scope.symbols["loop.lo"] = lo
            self.scope.symbols["loop.hi"] = hi
            return self._limits(stmt.var, least, lo, hi)

    def _limits(self, variable: str, least: Sequence[Expr], lo: Int, hi: Int) -> tuple[Int | None, Int] | None:
        first: Expr | None = None
        bound: Expr | None = None
        at_start: list[Expr] = []
        for e in least:
            parts = split_by(e, (variable,))
            slope = None if parts is None else parts.factors[0].constant
            if parts is None or slope is None:
                return None
            if slope < 0:
                last = floordiv(parts.rest, -slope) + 1
                bound = last if bound is None else minimum(bound, last)
            elif slope == 0:
                at_start.append(parts.rest)
            elif not isinstance(lo, int) or ((start := (parts.rest + lo * slope).constant) is None) or start < 0:
                # Rising: not yet at the first iteration, perhaps.
                after = -floordiv(parts.rest, as_expr(slope))
                first = after if first is None else maximum(first, after)
        until: Int = hi if bound is None else self.scope.value(minimum(bound, sym("loop.hi")))
        begin = None if first is None else self.scope.value(first)
        condition = all_hold(self.scope.index, at_start)
        return begin, until if condition is None else self.fn.select(condition, until, lo)

    # ---- tasks

    def _tasks(self, stmt: Tasks) -> None:
        counts = [self.fn.smax(self.scope.value(c), 0) for c in stmt.counts]
        total: Int = 1
        for c in counts:
            total = self.fn.mul(total, c)
        if self.scope.worker is not None:
            everything = Loop(var="task.number", lo=as_expr(0), hi=as_expr(0), step=as_expr(1))
            self._counted(everything, 0, total, 1, lambda: self._task(stmt, counts, "task.number"), plain=True)
            return
        if stmt.over != "workers":
            raise unsupported(f"tasks over {stmt.over}", "tasks over workers")
        name = f"task{self.fn.label('_')}"
        params = [("ptr noalias nocapture readonly", "%frame"), ("i64", "%task"), ("i64", "%worker")]
        task = self.fn.module.function(name, "void", params, self.scope.setting.attributes)
        frame = FrameReader(self.fn, task)
        scope = self.scope.child(task, frame, "%worker")
        inside = Bodies(scope)
        scope.symbols["task.number"] = "%task"
        inside._task(stmt, [frame.int(c) for c in counts], "task.number")
        if scope.moves.streamed:
            task.fence_streams()
        task.do("ret void")
        self._launch(name, frame.fill(), total)

    def _launch(self, name: str, frame: str, total: Int) -> None:
        """One worker or one task: by the caller itself. Else by the pool."""
        workers = self.scope.pool.workers
        few = self.fn.compare("sle", self.fn.smin(total, workers), 1)

        def alone() -> None:
            everything = Loop(var="task.number", lo=as_expr(0), hi=as_expr(0), step=as_expr(1))
            self._counted(everything, 0, total, 1, lambda: self._call(name, frame), plain=True)

        def pool() -> None:
            self.fn.do(f"call void {self.scope.pool.run}(ptr @{name}, ptr {frame}, i64 {total}, i64 {workers})")

        self._choice(few, alone, pool)

    def _call(self, name: str, frame: str) -> None:
        number = self.scope.symbols["task.number"]
        self.fn.do(f"call void @{name}(ptr {frame}, i64 {number}, i64 0)")

    def _task(self, stmt: Tasks, counts: Sequence[Int], number: str) -> None:
        """One task: its variables from its number, then the body."""
        linear = self.scope.symbols[number]
        assert isinstance(linear, int | str)
        for name, value in zip(stmt.vars, self._variables(stmt.raster, linear, counts)):
            self.scope.symbols[name] = value
        self._enter(stmt.enters)
        self.emit(stmt.body)

    def _variables(self, raster: tuple[str | int, ...], linear: Int, counts: Sequence[Int]) -> list[Int]:
        words = list(raster)
        group = 0
        if "group" in words and len(counts) > 1:
            size = words[words.index("group") + 1]
            group = size if isinstance(size, int) else 0
        if "reverse" in words:
            total: Int = 1
            for c in counts:
                total = self.fn.mul(total, c)
            linear = self.fn.sub(self.fn.sub(total, 1), linear)
        if group < 1:
            return self._digits(linear, counts)
        # Panels of `group` values of the first variable; inside a panel the first variable is fastest.
        rest: Int = 1
        for c in counts[1:]:
            rest = self.fn.mul(rest, c)
        panel = self.fn.floordiv(linear, self.fn.mul(rest, group))
        first = self.fn.mul(panel, group)
        within = self.fn.sub(linear, self.fn.mul(first, rest))
        high = self.fn.smin(group, self.fn.sub(counts[0], first))
        others = self.fn.floordiv(within, high)
        own = self.fn.sub(within, self.fn.mul(others, high))
        return [self.fn.add(first, own), *self._digits(others, counts[1:])]

    def _digits(self, linear: Int, counts: Sequence[Int]) -> list[Int]:
        """Mixed radix, the last digit fastest."""
        digits: list[Int] = []
        for c in reversed(counts[1:]):
            quotient = self.fn.floordiv(linear, c)
            digits.insert(0, self.fn.sub(linear, self.fn.mul(quotient, c)))
            linear = quotient
        return [linear, *digits]


def _bound_names(enter: Enter) -> list[tuple[str, Expr]]:
    """The symbols that a region's arguments stand for."""
    found: list[tuple[str, Expr]] = []
    for name, values in enter.binds:
        names = (f"{name}.start", f"{name}.stop") if len(values) == 2 else (name,)
        found += zip(names, values)
    return found
