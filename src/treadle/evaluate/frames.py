"""Python frames that stand on the lines of functions which no Python code runs: what debuggers step through.

`code_of` makes the code of one call. It has the file, name and lines of the user's function, and one *arm* for each
line: the arm's instructions carry that line, and what chooses the next arm carries none, so that debuggers never stop
there. All calls in it are of C functions; its names begin with a dot, which no name of a user does.
"""

from __future__ import annotations

import ast
import dis
import functools
from collections.abc import Iterable
from types import CodeType
from typing import TypeVar

from treadle.ir.trail import Call

Node = TypeVar("Node", bound=ast.AST)

NEXT, ERROR, CODE, GLOBALS, LOCALS, FRAME = range(6)
"""What the list `.s` of a frame holds: the key of the next arm (0: return), and what the arms need."""
LINE, CALL, STOP = 1, 2, 3
"""What an arm does: run a statement; run the frame of a function called there; stop for `breakpoint()`, then run."""


def arm_key(line: int, kind: int) -> int:
    """The number that chooses the arm of a line."""
    return line * 4 + kind


@functools.lru_cache(maxsize=256)
def code_of(call: Call) -> CodeType:
    """The code of a call's frame; it is run by `exec` with the module's names and the call's own.

    The names must have the list `.s` and the functions `.go` and `.wait` (of the hand-shake with whatever computes),
    `.exec`, `.stop` and `.frame` (those of Python).
    """
    last = max(call.lines, default=call.line)
    glue = last + 1
    lines = sorted({*call.lines, call.line})
    arms = [_if(arm_key(n, kind), body(n), glue) for n in lines for kind, body in _ARMS.items()]
    loop = ast.While(test=_slot(NEXT, glue), body=arms, orelse=[])
    first = ast.Assign(targets=[_slot(FRAME, glue, ast.Store())], value=_call(".frame", glue))
    module = ast.Module(body=[_at(first, glue), _at(loop, glue, deep=False)], type_ignores=[])
    code = compile(ast.fix_missing_locations(module), call.file, "exec", dont_inherit=True)
    table = _line_table(_instruction_lines(code, glue, call), call.line)
    name = call.name
    return code.replace(co_name=name, co_qualname=name, co_firstlineno=call.line, co_linetable=table)


# ---- arms


def _run(line: int) -> list[ast.stmt]:
    """The statement is run elsewhere: let it go on, wait, raise what went wrong."""
    error = ast.Compare(_slot(ERROR, line), [ast.IsNot()], [ast.Constant(None)])
    wrong = ast.If(test=error, body=[ast.Raise(exc=_slot(ERROR, line))], orelse=[])
    return [ast.Expr(_call(".go", line)), ast.Expr(_call(".wait", line)), wrong]


def _enter(line: int) -> list[ast.stmt]:
    return [ast.Expr(_call(".exec", line, *(_slot(i, line) for i in (CODE, GLOBALS, LOCALS))))]


def _stop(line: int) -> list[ast.stmt]:
    return [ast.Expr(_call(".stop", line)), *_run(line)]


_ARMS = {LINE: _run, CALL: _enter, STOP: _stop}


def _if(key: int, body: list[ast.stmt], glue: int) -> ast.stmt:
    test = ast.Compare(_slot(NEXT, glue), [ast.Eq()], [ast.Constant(key)])
    line = key // 4
    return _at(ast.If(test=_at(test, glue), body=[_at(s, line) for s in body], orelse=[]), glue, deep=False)


def _slot(index: int, line: int, ctx: ast.expr_context | None = None) -> ast.expr:
    name = ast.Name(".s", ast.Load())
    return _at(ast.Subscript(name, ast.Constant(index), ctx or ast.Load()), line)


def _call(name: str, line: int, *args: ast.expr) -> ast.expr:
    return _at(ast.Call(ast.Name(name, ast.Load()), list(args), []), line)


def _at(node: Node, line: int, *, deep: bool = True) -> Node:
    for part in ast.walk(node) if deep else (node,):
        if isinstance(part, (ast.expr, ast.stmt)):
            part.lineno = part.end_lineno = line
            part.col_offset = part.end_col_offset = 0
    return node


# ---- lines


def _instruction_lines(code: CodeType, glue: int, call: Call) -> list[int | None]:
    """The line of each code unit: none for glue, the last captured one for the return."""
    lines: list[int | None] = [p[0] for p in code.co_positions()]
    lines = [None if n == glue else n for n in lines]
    for i in dis.get_instructions(code):
        if i.opname == "RESUME":
            lines[i.offset // 2] = call.line
        elif i.opname.startswith("RETURN"):
            lines[i.offset // 2] = call.last or call.line
    return lines


def _line_table(lines: Iterable[int | None], first: int) -> bytes:
    """CPython's location table (3.11 and later) with lines and no columns."""
    table = bytearray()
    now = first
    runs: list[tuple[int | None, int]] = []
    for line in lines:
        if runs and runs[-1][0] == line and runs[-1][1] < 8:
            runs[-1] = (line, runs[-1][1] + 1)
        else:
            runs.append((line, 1))
    for line, units in runs:
        if line is None:
            table.append(0x80 | 15 << 3 | units - 1)
            continue
        table.append(0x80 | 13 << 3 | units - 1)
        delta, now = line - now, line
        rest = -delta << 1 | 1 if delta < 0 else delta << 1
        while rest > 63:
            table.append(0x40 | rest & 63)
            rest >>= 6
        table.append(rest)
    return bytes(table)
