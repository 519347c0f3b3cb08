"""Interpreting statements: assignments, staged and traced control flow. Region loops are in `regions`."""

from __future__ import annotations

import ast
import importlib
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from treadle.base.errors import TreadleError
from treadle.ir.core import Block
from treadle.lang import merging
from treadle.lang.advice import advice
from treadle.lang.assignments import Assignments
from treadle.lang.errors import BadArgument, Jump, PythonError, Recursion, TracedWhile
from treadle.lang.frames import (
    Frame,
    GoneName,
    Nest,
    Snapshot,
    copied,
    frame_leaves,
    with_leaf,
)
from treadle.lang.loops import Loop
from treadle.lang.merging import Merge
from treadle.lang.specs import RegionSpec
from treadle.lang.tile import Tile


class Returned(Exception):
    """`return` on its way to the call."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Broke(Exception):
    """`break` on its way to its loop."""


class Continued(Exception):
    """`continue` on its way to its loop."""


JUMPS = (Returned, Broke, Continued)


class Statements(Assignments):
    """Executes statement nodes in a frame."""

    @abstractmethod
    def region_loop(self, frame: Frame, node: ast.For, spec: RegionSpec) -> None:
        """Captures a `for` over a region."""

    def block(self, frame: Frame, nodes: list[ast.stmt]) -> None:
        """Executes statements in order."""
        for node in nodes:
            self.execute(frame, node)

    def execute(self, frame: Frame, node: ast.stmt) -> None:
        """Executes one statement. *Errors*: treadle's own; Python's as `capture/python-error`."""
        method: Callable[[Frame, Any], None] | None = getattr(self, f"exec_{type(node).__name__}", None)
        if method is None:
            raise self.unsupported(frame, node)
        self.at(frame, node)
        self.trail.step(frame, node)
        try:
            method(frame, node)
        except (TreadleError, *JUMPS):
            raise
        except RecursionError:
            raise Recursion(
                doing=f"running {frame.name} at capture",
                found="calls inside one another beyond Python's limit",
                expected="calls that end at capture",
                hint="recursion must stop on a staged condition",
                span=self.ctx.span,
            ) from None
        except Exception as error:
            raise PythonError(
                doing=f"running {frame.name} at capture",
                found=f"{type(error).__name__}: {error}",
                expected="Python code that runs",
                hint=advice(error) or "the marked code runs when the kernel is captured; its exception is the cause",
                span=self.ctx.span,
            ) from error

    # ---- plain statements

    def exec_Pass(self, frame: Frame, node: ast.Pass) -> None:
        pass

    def exec_Expr(self, frame: Frame, node: ast.Expr) -> None:
        self.eval(frame, node.value)

    def exec_Assert(self, frame: Frame, node: ast.Assert) -> None:
        value = self.eval(frame, node.test)
        self.at(frame, node)
        found = self.truth(value)
        if isinstance(found, Tile):
            raise BadArgument(
                doing=f"checking an assert in {frame.name}",
                found="a traced condition",
                expected="a staged one",
                hint='write td.check(condition, "message")',
                span=self.ctx.span,
            )
        if not found:
            message = "" if node.msg is None else str(self.eval(frame, node.msg))
            raise AssertionError(message)

    def exec_Raise(self, frame: Frame, node: ast.Raise) -> None:
        if node.exc is None:
            raise self.unsupported(frame, node)
        error = self.eval(frame, node.exc)
        self.at(frame, node)
        raise error

    def exec_Import(self, frame: Frame, node: ast.Import) -> None:
        for alias in node.names:
            module = importlib.import_module(alias.name)
            top = module if alias.asname else importlib.import_module(alias.name.split(".")[0])
            frame.locals[alias.asname or alias.name.split(".")[0]] = top

    def exec_ImportFrom(self, frame: Frame, node: ast.ImportFrom) -> None:
        module = importlib.import_module(node.module or "", frame.globals.get("__package__"))
        for alias in node.names:
            frame.locals[alias.asname or alias.name] = getattr(module, alias.name)

    def exec_FunctionDef(self, frame: Frame, node: ast.FunctionDef) -> None:
        if node.decorator_list:
            raise self.unsupported(frame, node.decorator_list[0], "decorator")
        self.assign_name(frame, node.name, self.closure(frame, node))

    def exec_Return(self, frame: Frame, node: ast.Return) -> None:
        self.jump(frame, "return")
        raise Returned(None if node.value is None else self.eval(frame, node.value))

    def exec_Break(self, frame: Frame, node: ast.Break) -> None:
        self.jump(frame, "break")
        raise Broke

    def exec_Continue(self, frame: Frame, node: ast.Continue) -> None:
        self.jump(frame, "continue")
        raise Continued

    def jump(self, frame: Frame, word: str) -> None:
        """*Errors*: `capture/jump` where a region or traced branch lies between the word and its target."""
        inner = frame.nest
        if word != "return":
            last = max((i for i, n in enumerate(inner) if n.kind == "loop"), default=-1)
            inner = inner[last + 1 :]
        blocking = next((n.kind for n in reversed(inner) if n.kind != "loop"), None)
        if blocking is None:
            return
        place = "a traced if" if blocking == "if" else f"td.{blocking}"
        raise Jump(
            doing=f"capturing {word} in {frame.name}",
            found=f"{word} inside {place}",
            expected="regions and traced branches that run to their end",
            hint="carry a flag: if not done: ...; or assign a name and return it afterwards",
            span=self.ctx.span,
        )

    # ---- loops and branches

    def exec_For(self, frame: Frame, node: ast.For) -> None:
        value = self.eval(frame, node.iter)
        self.at(frame, node)
        if isinstance(value, RegionSpec):
            if node.orelse:
                raise self.unsupported(frame, node.orelse[0], "orelse")
            self.region_loop(frame, node, value)
            return
        items = self.iterate(frame, node.iter, value)
        with self.loop(frame) as loop:
            for item in items:
                self.loops.turn(loop)
                self.assign(frame, node.target, item)
                try:
                    self.block(frame, node.body)
                except Continued:
                    continue
                except Broke:
                    break
            else:
                self.block(frame, node.orelse)

    @contextmanager
    def loop(self, frame: Frame) -> Generator[Loop]:
        """A loop that runs at capture."""
        frame.nest.append(Nest("loop"))
        try:
            with self.loops.loop(frame.name) as loop:
                yield loop
        finally:
            frame.nest.pop()

    def iterate(self, frame: Frame, node: ast.AST, value: Any) -> Iterator[Any]:
        self.at(frame, node)
        self.refuse_iteration(value)
        return iter(value)

    def exec_While(self, frame: Frame, node: ast.While) -> None:
        with self.loop(frame) as loop:
            while self.while_truth(frame, node):
                self.loops.turn(loop)
                try:
                    self.block(frame, node.body)
                except Continued:
                    continue
                except Broke:
                    break
            else:
                self.block(frame, node.orelse)

    def while_truth(self, frame: Frame, node: ast.While) -> bool:
        value = self.eval(frame, node.test)
        self.at(frame, node.test)
        found = self.truth(value)
        if isinstance(found, Tile):
            raise TracedWhile(
                doing=f"capturing while in {frame.name}",
                found="a condition that is known only when the kernel runs",
                expected="a staged condition",
                hint="use td.serial(limit) with a carried flag: if not done: ...",
                span=self.ctx.span,
            )
        return found

    def exec_If(self, frame: Frame, node: ast.If) -> None:
        value = self.eval(frame, node.test)
        self.at(frame, node.test)
        cond = self.truth(value)
        if not isinstance(cond, Tile):
            self.block(frame, node.body if cond else node.orelse)
            return
        self.traced_if(frame, node, cond)

    def traced_if(self, frame: Frame, node: ast.If, cond: Tile) -> None:
        """Both branches captured from the same state; names that differ afterwards become results of the `if`."""
        span = self.ctx.span
        before = Snapshot(frame)
        old = frame_leaves(before.locals)
        states: list[dict[str, Any]] = []
        blocks: list[Block] = []
        facts = (cond.fact or (), merging.negated(cond))
        for body, known in zip((node.body, node.orelse), facts):
            block = Block()
            frame.nest.append(Nest("if"))
            try:
                with self.ctx.scope(block, known):
                    self.block(frame, body)
            finally:
                frame.nest.pop()
            states.append({name: (x, copied(x)) for name, x in frame.locals.items()})
            blocks.append(block)
            before.restore()
        merge = Merge(self.ctx, cond, blocks[0], blocks[1], span)
        self.at(frame, node.test)
        for name in dict.fromkeys([*states[0], *states[1]]):
            self.merge_name(frame, name, states, before, old, merge)
        merge.finish()

    def merge_name(
        self,
        frame: Frame,
        name: str,
        states: list[dict[str, Any]],
        before: Snapshot,
        old: dict[Any, Any],
        merge: Merge,
    ) -> None:
        """What a name holds after a traced `if`."""
        first, second = (s.get(name) for s in states)
        gone = GoneName("one branch of an if", frame.written.get(name))
        if first is None or second is None or isinstance(first[0], GoneName) or isinstance(second[0], GoneName):
            frame.locals[name] = gone
            return
        entry = before.locals.get(name)
        if first[0] is entry and second[0] is entry and name in before.locals:
            mine, other = (frame_leaves({name: s[1]}) for s in (first, second))
            if mine.keys() != other.keys():
                merge.tree(name, first[1], second[1])
            for path, leaf in mine.items():
                merged = merge.leaf(name, leaf, other[path], name)
                if merged is not old.get(path):
                    frame.locals[name] = with_leaf(frame.locals[name], path[1:], merged)
            return
        frame.locals[name] = merge.tree(name, first[1], second[1], name)
