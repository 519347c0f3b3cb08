"""Python's operators by the nodes of its syntax tree, and their signs for messages."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from treadle.lang.objects import python_operator

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: python_operator("add"),
    ast.Sub: python_operator("sub"),
    ast.Mult: python_operator("mul"),
    ast.Div: python_operator("truediv"),
    ast.FloorDiv: python_operator("floordiv"),
    ast.Mod: python_operator("mod"),
    ast.Pow: python_operator("pow"),
    ast.MatMult: python_operator("matmul"),
    ast.BitAnd: python_operator("and_"),
    ast.BitOr: python_operator("or_"),
    ast.BitXor: python_operator("xor"),
    ast.LShift: python_operator("lshift"),
    ast.RShift: python_operator("rshift"),
}
INPLACE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: python_operator("iadd"),
    ast.Sub: python_operator("isub"),
    ast.Mult: python_operator("imul"),
    ast.Div: python_operator("itruediv"),
    ast.FloorDiv: python_operator("ifloordiv"),
    ast.Mod: python_operator("imod"),
    ast.Pow: python_operator("ipow"),
    ast.MatMult: python_operator("imatmul"),
    ast.BitAnd: python_operator("iand"),
    ast.BitOr: python_operator("ior"),
    ast.BitXor: python_operator("ixor"),
    ast.LShift: python_operator("ilshift"),
    ast.RShift: python_operator("irshift"),
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: python_operator("eq"),
    ast.NotEq: python_operator("ne"),
    ast.Lt: python_operator("lt"),
    ast.LtE: python_operator("le"),
    ast.Gt: python_operator("gt"),
    ast.GtE: python_operator("ge"),
    ast.Is: python_operator("is_"),
    ast.IsNot: python_operator("is_not"),
}
BINARY_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
