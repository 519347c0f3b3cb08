"""From a Python function to its syntax tree, with positions of the user's file."""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator
from typing import Any

from treadle.base.source import Span
from treadle.lang.errors import NoSource

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_trees: dict[tuple[str, int], ast.Module] = {}
_codes: dict[tuple[str, int], set[Any]] = {}


def function_node(fn: types.FunctionType) -> FunctionNode:
    """The node that `fn` was compiled from. *Errors*: `capture/no-source`.

    The text is the one that was read first, unless it is not that of the function and the file's text of now is: a
    module that was edited and loaded again.
    """
    code = fn.__code__
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    if not _made_of(code, lines):
        linecache.checkcache(code.co_filename)
        now = linecache.getlines(code.co_filename, fn.__globals__)
        lines = now if not lines or _made_of(code, now) else lines
    if not lines:
        raise _missing(fn, f"no text for {code.co_filename}")
    tree = _tree(code.co_filename, lines)
    if isinstance(tree, SyntaxError):
        raise _missing(fn, f"text of {code.co_filename} that is not Python any more: {tree.msg}") from tree
    found = [n for n in _functions(tree) if _first_line(n) == code.co_firstlineno and _name(n) == code.co_name]
    found = [n for n in found if _parameters(n) == code.co_varnames[: len(_parameters(n))]]
    if len(found) > 1:
        found = [n for n in found if _covers(n, code)] or found
    if not found:
        raise _missing(fn, f"no function {code.co_name} at {code.co_filename}:{code.co_firstlineno}")
    return found[0]


def _tree(file: str, lines: list[str]) -> ast.Module | SyntaxError:
    text = "".join(lines)
    key = (file, hash(text))
    if key not in _trees:
        try:
            _trees[key] = ast.parse(text)
        except SyntaxError as error:
            return error
    return _trees[key]


def _made_of(code: types.CodeType, lines: list[str]) -> bool:
    """Whether the text, compiled, has this very code."""
    key = (code.co_filename, hash("".join(lines)))
    if key not in _codes:
        tree = _tree(code.co_filename, lines)
        whole = None if isinstance(tree, SyntaxError) else _compiled(tree, code.co_filename)
        _codes[key] = set() if whole is None else {_identity(c) for c in _nested(whole)}
    return _identity(code) in _codes[key]


def _compiled(tree: ast.Module, file: str) -> types.CodeType | None:
    try:
        return compile(tree, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _identity(code: types.CodeType) -> tuple[Any, ...]:
    """What makes code mean what it means, and where it begins."""
    constants = tuple(_identity(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts)
    return code.co_name, code.co_firstlineno, code.co_code, code.co_names, constants


def _missing(fn: types.FunctionType, found: str) -> NoSource:
    return NoSource(
        doing=f"reading the source of {fn.__qualname__}",
        found=found,
        expected="the function's text, as it was when it was defined",
        hint="define it in a file or a notebook cell, and import it again after editing",
    )


def _functions(tree: ast.Module) -> Iterator[FunctionNode]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node


def _first_line(node: FunctionNode) -> int:
    if isinstance(node, ast.Lambda) or not node.decorator_list:
        return node.lineno
    return min(d.lineno for d in node.decorator_list)


def _name(node: FunctionNode) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _parameters(node: FunctionNode) -> tuple[str, ...]:
    args = node.args
    return tuple(a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs))


def _covers(node: FunctionNode, code: types.CodeType) -> bool:
    body = node.body if isinstance(node, ast.Lambda) else node.body[0]
    places = [(line, col) for line, _, col, _ in code.co_positions() if line is not None and col]
    first = (body.lineno, body.col_offset)
    last = (body.end_lineno or body.lineno, body.end_col_offset or 0)
    return bool(places) and all(first <= p <= last for p in places)


def span_of(file: str, node: ast.AST) -> Span | None:
    """The position of a node."""
    line = getattr(node, "lineno", None)
    if line is None:
        return None
    return Span(
        file,
        line,
        getattr(node, "col_offset", 0),
        getattr(node, "end_lineno", None),
        getattr(node, "end_col_offset", None),
    )


def assigned_names(nodes: list[ast.stmt]) -> tuple[list[str], list[str]]:
    """Names that statements assign whole, and names of which they assign a part (`T[m] = v`, `s.m = v`), in order.

    Functions defined inside have names of their own and are not entered.
    """
    whole: dict[str, None] = {}
    partly: dict[str, None] = {}

    def target(node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                whole[name] = None
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for e in elts:
                    target(e)
            case ast.Starred(value=value):
                target(value)
            case ast.Subscript(value=value) | ast.Attribute(value=value):
                root = value
                while isinstance(root, (ast.Subscript, ast.Attribute)):
                    root = root.value
                if isinstance(root, ast.Name):
                    partly[root.id] = None
            case _:
                pass

    def visit(node: ast.AST) -> None:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                whole[name] = None
                return
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return
            case ast.Assign(targets=targets):
                for t in targets:
                    target(t)
            case ast.AnnAssign(target=t) | ast.AugAssign(target=t) | ast.For(target=t) | ast.NamedExpr(target=t):
                target(t)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                whole.update({(a.asname or a.name).split(".")[0]: None for a in names})
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            visit(child)

    for node in nodes:
        visit(node)
    return list(whole), list(partly)
