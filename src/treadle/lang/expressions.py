"""Interpreting expressions of captured functions. Python values are computed; traced ones make operations."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, cast

from treadle.dtype.formats import bool_
from treadle.ir.core import Block
from treadle.lang import merging, pointwise
from treadle.lang.advice import unsupported
from treadle.lang.context import Context
from treadle.lang.dims import PartRef
from treadle.lang.errors import BadArgument, Gone, TracedBool, Unbound, Unsupported
from treadle.lang.frames import Frame, GoneName
from treadle.lang.loops import Loops
from treadle.lang.merging import Merge
from treadle.lang.python_operators import BINARY, BINARY_SIGNS, COMPARE
from treadle.lang.source import span_of
from treadle.lang.storage import Memory
from treadle.lang.tile import Tile
from treadle.lang.trail import Recorder


class Expressions(ABC):
    """Evaluates expression nodes in a frame."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.trail = Recorder(ctx.builder)
        self.loops = Loops(ctx.builder)

    # ---- what the classes above this one do

    @abstractmethod
    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Calls `fn` as captured code does."""

    @abstractmethod
    def closure(self, frame: Frame, node: ast.Lambda | ast.FunctionDef) -> Any:
        """A function defined in captured code."""

    @abstractmethod
    def assign(self, frame: Frame, target: ast.expr, value: Any) -> None:
        """Assigns to a target."""

    # ---- entry

    def eval(self, frame: Frame, node: ast.expr) -> Any:
        """The value of an expression."""
        method: Callable[[Frame, Any], Any] | None = getattr(self, f"eval_{type(node).__name__}", None)
        if method is None:
            raise self.unsupported(frame, node)
        return method(frame, node)

    def at(self, frame: Frame, node: ast.AST) -> None:
        """Makes the node the position of what is captured next."""
        self.ctx.builder.span = span_of(frame.file, node)

    def unsupported(self, frame: Frame, node: ast.AST, form: str = "") -> Unsupported:
        """The error for a form of Python that kernels do not have."""
        self.at(frame, node)
        found, hint = unsupported(form or type(node).__name__)
        return Unsupported(
            doing=f"capturing {frame.name}",
            found=found,
            expected="assignments, for, if, calls and expressions",
            hint=hint,
            span=self.ctx.span,
        )

    # ---- names and constants

    def eval_Constant(self, frame: Frame, node: ast.Constant) -> Any:
        return node.value

    def eval_Name(self, frame: Frame, node: ast.Name) -> Any:
        name = node.id
        if name in frame.locals:
            value = frame.locals[name]
            if isinstance(value, GoneName):
                self.at(frame, node)
                raise Gone(
                    doing=f"reading {name} in {frame.name}",
                    found=f"a name that was first assigned inside {value.where}, which has ended",
                    expected="a name that is assigned before, or whose parts are kept in an outer tile",
                    hint=f"give {name} a value before {value.where}, or keep parts in T = td.empty(...)",
                    span=self.ctx.span,
                    notes=[(value.span, "it was assigned here")],
                )
            return value
        found, value = (False, None) if name in frame.local_names else frame.closure(name)
        if found:
            return value
        if name not in frame.local_names:
            if name in frame.globals:
                return frame.globals[name]
            if hasattr(builtins, name):
                return getattr(builtins, name)
        self.at(frame, node)
        raise Unbound(
            doing=f"reading {name} in {frame.name}",
            found="a name without a value",
            expected="a parameter, an earlier assignment, or a name of the module",
            hint=f"assign {name} before this line",
            span=self.ctx.span,
        )

    def eval_NamedExpr(self, frame: Frame, node: ast.NamedExpr) -> Any:
        value = self.eval(frame, node.value)
        self.assign(frame, node.target, value)
        return value

    # ---- structures

    def elements(self, frame: Frame, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self.iterate(frame, node, self.eval(frame, node.value)))
            else:
                found.append(self.eval(frame, node))
        return found

    def eval_Tuple(self, frame: Frame, node: ast.Tuple) -> Any:
        return tuple(self.elements(frame, node.elts))

    def eval_List(self, frame: Frame, node: ast.List) -> Any:
        return self.elements(frame, node.elts)

    def eval_Set(self, frame: Frame, node: ast.Set) -> Any:
        return set(self.elements(frame, node.elts))

    def eval_Dict(self, frame: Frame, node: ast.Dict) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                made.update(self.eval(frame, value))
            else:
                made[self.eval(frame, key)] = self.eval(frame, value)
        return made

    def eval_Slice(self, frame: Frame, node: ast.Slice) -> Any:
        ends = [None if n is None else self.eval(frame, n) for n in (node.lower, node.upper, node.step)]
        return slice(*ends)

    def eval_JoinedStr(self, frame: Frame, node: ast.JoinedStr) -> Any:
        return "".join(str(self.eval(frame, v)) for v in node.values)

    def eval_FormattedValue(self, frame: Frame, node: ast.FormattedValue) -> Any:
        value = self.eval(frame, node.value)
        if node.conversion != -1:
            value = {"s": str, "r": repr, "a": ascii}[chr(node.conversion)](value)
        spec = "" if node.format_spec is None else self.eval(frame, node.format_spec)
        return format(value, spec)

    def eval_ListComp(self, frame: Frame, node: ast.ListComp) -> Any:
        return [self.eval(inner, node.elt) for inner in self.comprehend(frame, node.generators)]

    def eval_SetComp(self, frame: Frame, node: ast.SetComp) -> Any:
        return {self.eval(inner, node.elt) for inner in self.comprehend(frame, node.generators)}

    def eval_GeneratorExp(self, frame: Frame, node: ast.GeneratorExp) -> Any:
        return iter([self.eval(inner, node.elt) for inner in self.comprehend(frame, node.generators)])

    def eval_DictComp(self, frame: Frame, node: ast.DictComp) -> Any:
        frames = self.comprehend(frame, node.generators)
        return {self.eval(inner, node.key): self.eval(inner, node.value) for inner in frames}

    def comprehend(self, frame: Frame, generators: list[ast.comprehension]) -> Iterator[Frame]:
        """Frames with the loop names of a comprehension set, one an element."""
        inner = Frame(
            frame.name,
            frame.file,
            dict(frame.locals),
            set(frame.local_names),
            frame.globals,
            frame.closure,
            frame.nest,
            frame.parent,
        )
        yield from self._comprehend(inner, generators)

    def _comprehend(self, inner: Frame, generators: list[ast.comprehension]) -> Iterator[Frame]:
        if not generators:
            yield inner
            return
        first, rest = generators[0], generators[1:]
        items = self.iterate(inner, first.iter, self.eval(inner, first.iter))
        with self.loops.loop(inner.name) as loop:
            for item in items:
                self.loops.turn(loop)
                self.assign(inner, first.target, item)
                if all(self.staged_truth(inner, test) for test in first.ifs):
                    yield from self._comprehend(inner, rest)

    def iterate(self, frame: Frame, node: ast.AST, value: Any) -> Iterator[Any]:
        """The elements of a Python iterable; traced values and parts refuse."""
        self.at(frame, node)
        return iter(value)

    # ---- access

    def eval_Attribute(self, frame: Frame, node: ast.Attribute) -> Any:
        value = self.eval(frame, node.value)
        self.at(frame, node)
        return getattr(value, node.attr)

    def eval_Subscript(self, frame: Frame, node: ast.Subscript) -> Any:
        value = self.eval(frame, node.value)
        key = self.eval(frame, node.slice)
        self.at(frame, node)
        return value[key]

    def eval_Lambda(self, frame: Frame, node: ast.Lambda) -> Any:
        return self.closure(frame, node)

    def eval_Call(self, frame: Frame, node: ast.Call) -> Any:
        fn = self.eval(frame, node.func)
        args = self.elements(frame, node.args)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.eval(frame, keyword.value)
            if keyword.arg is None:
                kwargs.update(value)
            else:
                kwargs[keyword.arg] = value
        self.at(frame, node)
        return self.call(fn, args, kwargs)

    # ---- operators

    def eval_BinOp(self, frame: Frame, node: ast.BinOp) -> Any:
        left, right = self.eval(frame, node.left), self.eval(frame, node.right)
        self.at(frame, node)
        self.operands(BINARY_SIGNS[type(node.op)], left, right)
        return BINARY[type(node.op)](left, right)

    def operands(self, sign: str, left: Any, right: Any) -> None:
        """*Errors*: `capture/argument` for a traced value beside something that is no operand, a whole tensor say."""
        for x, other in ((left, right), (right, left)):
            if isinstance(x, (Tile, PartRef)) and not isinstance(other, (str, type(None))):
                pointwise.lift(self.ctx, other, f"computing {sign}")
        for x in (left, right):
            if isinstance(x, Memory) or hasattr(x, "set_at"):
                pointwise.lift(self.ctx, x, f"computing {sign}")

    def eval_UnaryOp(self, frame: Frame, node: ast.UnaryOp) -> Any:
        value = self.eval(frame, node.operand)
        self.at(frame, node)
        match node.op:
            case ast.Not():
                found = self.truth(value)
                return self.ctx.unary("not", found) if isinstance(found, Tile) else not found
            case ast.USub():
                return -value
            case ast.UAdd():
                return +value
            case _:
                return ~value

    def eval_Compare(self, frame: Frame, node: ast.Compare) -> Any:
        left = self.eval(frame, node.left)
        result: Any = True
        for i, (op, right_node) in enumerate(zip(node.ops, node.comparators)):
            right = self.eval(frame, right_node)
            self.at(frame, node)
            this = self.compare(op, left, right)
            result = this if i == 0 else self.both(result, this)
            if result is False:
                return False
            left = right
        return result

    def both(self, a: Any, b: Any) -> Any:
        """`a and b` of two comparisons that have been made."""
        first = self.truth(a)
        if not isinstance(first, Tile):
            return b if first else a
        second = self.truth(b)
        if not isinstance(second, Tile):
            return a if second else b
        return self.ctx.binary("and", first, second)

    def compare(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self.contains(left, right)
            return found if isinstance(op, ast.In) else not found
        if isinstance(op, (ast.Is, ast.IsNot)):
            return COMPARE[type(op)](left, right)
        self.operands("a comparison", left, right)
        return COMPARE[type(op)](left, right)

    def contains(self, item: Any, where: Any) -> bool:
        """`item in where`; parts are found by identity, traced values refuse to be compared."""
        if not isinstance(item, (Tile, PartRef)):
            if isinstance(where, (list, tuple, set, dict)):
                plain = [x for x in cast("list[Any]", where) if not isinstance(x, (Tile, PartRef))]
                return item in plain
            return item in where
        if isinstance(item, Tile):
            raise TracedBool(
                doing="evaluating `in`",
                found=f"a traced value {item.type}",
                expected="a staged value",
                hint="compare with each element: (x == a) | (x == b)",
                span=self.ctx.span,
            )
        return any(x is item for x in where)

    # ---- truth

    def truth(self, value: Any) -> bool | Tile:
        """The truth of a value: a Python bool, or a scalar bool tile. *Errors*: `capture/tile-bool`."""
        if not isinstance(value, Tile):
            return bool(value)
        self.ctx.alive(value)
        if value.rank:
            bool(value)
        return value if value.dtype == bool_ else self.ctx.binary("ne", value, 0)

    def staged_truth(self, frame: Frame, node: ast.expr) -> bool:
        """The truth of a condition that must be staged."""
        value = self.eval(frame, node)
        self.at(frame, node)
        found = self.truth(value)
        return bool(found)

    def eval_BoolOp(self, frame: Frame, node: ast.BoolOp) -> Any:
        return self.logic(frame, node, node.values)

    def logic(self, frame: Frame, node: ast.BoolOp, values: list[ast.expr]) -> Any:
        left = self.eval(frame, values[0])
        if len(values) == 1:
            return left
        self.at(frame, node)
        found = self.truth(left)
        conjunction = isinstance(node.op, ast.And)
        if not isinstance(found, Tile):
            return self.logic(frame, node, values[1:]) if found == conjunction else left
        facts = (found.fact or ()) if conjunction else merging.negated(found)
        block = Block()
        with self.ctx.scope(block, facts):
            right = self.logic(frame, node, values[1:])
        self.at(frame, node)
        return self.short_circuit(conjunction, left, found, right, block)

    def short_circuit(self, conjunction: bool, left: Any, cond: Tile, right: Any, block: Block) -> Any:
        """`left and right` or `left or right`; `right` was captured into `block`."""
        both_bool = left is cond and isinstance(right, Tile) and right.dtype == bool_ and not right.rank
        if both_bool and merging.is_plain(block):
            assert isinstance(right, Tile)
            merging.splice(self.ctx, block)
            moved = self.moved(right)
            return self.ctx.binary("and" if conjunction else "or", cond, moved)
        other = Block()
        first, second = (block, other) if conjunction else (other, block)
        merge = Merge(self.ctx, cond, first, second, self.ctx.span)
        pair = (right, left) if conjunction else (left, right)
        result = merge.tree("the value of " + ("and" if conjunction else "or"), *pair)
        merge.finish()
        if conjunction and isinstance(result, Tile) and result.dtype == bool_:
            return pointwise.both_facts(result, cond, right)
        return result

    def moved(self, x: Tile) -> Tile:
        """A tile of a spliced block, alive in the current one."""
        if x.known_value is None:
            x.block = self.ctx.builder.block
            return x
        made = Tile(x.type, self.ctx.builder.block, value=x.known_value, expr=x.expr, safe=x.safe, fact=x.fact)
        made.exact = x.exact
        return made

    def eval_IfExp(self, frame: Frame, node: ast.IfExp) -> Any:
        test = self.eval(frame, node.test)
        self.at(frame, node.test)
        cond = self.truth(test)
        if not isinstance(cond, Tile):
            return self.eval(frame, node.body if cond else node.orelse)
        then, orelse = Block(), Block()
        with self.ctx.scope(then, cond.fact or ()):
            a = self.eval(frame, node.body)
        with self.ctx.scope(orelse, merging.negated(cond)):
            b = self.eval(frame, node.orelse)
        self.at(frame, node)
        operands = all(isinstance(x, Tile) or merging.is_number(x) for x in (a, b))
        if operands and merging.is_plain(then) and merging.is_plain(orelse):
            merging.splice(self.ctx, then)
            merging.splice(self.ctx, orelse)
            return pointwise.where(self.ctx, cond, *(self.moved(x) if isinstance(x, Tile) else x for x in (a, b)))
        merge = Merge(self.ctx, cond, then, orelse, self.ctx.span)
        result = merge.tree("the value of x if c else y", a, b)
        merge.finish()
        return result

    def refuse_iteration(self, value: Any) -> None:
        """*Errors*: `capture/argument` for values that only regions iterate over."""
        if hasattr(value, "set_at"):
            raise BadArgument(
                doing="iterating in captured code",
                found=f"the tensor {value}",
                expected="a Python iterable, or a region",
                hint="iterate over a dimension: for m in td.parallel(M):",
                span=self.ctx.span,
            )
