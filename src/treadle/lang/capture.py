"""Calls in captured code: which functions are interpreted, which run as they are, which refuse traced values."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from treadle.base.errors import TreadleError
from treadle.lang.advice import builtin_advice
from treadle.lang.context import Context
from treadle.lang.dims import PartRef
from treadle.lang.errors import NoSource, Opaque, Recursion, TracedBool, TracedNumber, Unsupported
from treadle.lang.frames import Frame, GoneName, cell_lookup, is_container, items, local_names
from treadle.lang.monoids import Monoid
from treadle.lang.objects import class_of
from treadle.lang.regions import RegionCapture
from treadle.lang.source import FunctionNode, function_node, span_of
from treadle.lang.specs import RegionSpec
from treadle.lang.statements import Returned, Statements
from treadle.lang.subscript import TensorRef
from treadle.lang.tile import Tile

MAX_DEPTH = 60
OPAQUE_PACKAGES = ("numpy", "ml_dtypes", "torch", "scipy", "jax", "cupy", "math", "cmath")
YIELDS = (ast.Yield, ast.YieldFrom, ast.Await)

Inliner = Callable[["Interpreter", Any, list[Any], dict[str, Any]], Any]


class Closure:
    """A function defined in captured code: called by the interpreter, or by Python (as a key function, say)."""

    def __init__(self, interp: Interpreter, frame: Frame, node: ast.Lambda | ast.FunctionDef) -> None:
        self.interp = interp
        self.frame = frame
        self.node = node
        self.names = local_names(node)
        self.defaults = [interp.eval(frame, d) for d in node.args.defaults]
        self.kw_defaults = [None if d is None else interp.eval(frame, d) for d in node.args.kw_defaults]
        self.__name__ = "<lambda>" if isinstance(node, ast.Lambda) else node.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.interp.call(self, list(args), kwargs)

    def look(self, name: str) -> tuple[bool, Any]:
        """Reads a name of the frame that defined it."""
        if name in self.frame.locals:
            value = self.frame.locals[name]
            if isinstance(value, GoneName):
                self.interp.eval_Name(self.frame, ast.copy_location(ast.Name(name, ast.Load()), self.node))
            return True, value
        return self.frame.closure(name)

    def signature(self) -> inspect.Signature:
        """Its parameters, with the defaults of the definition."""
        spec = self.node.args
        kinds = inspect.Parameter
        found: list[inspect.Parameter] = []
        positional = [*((a, kinds.POSITIONAL_ONLY) for a in spec.posonlyargs)]
        positional += [(a, kinds.POSITIONAL_OR_KEYWORD) for a in spec.args]
        bare = len(positional) - len(self.defaults)
        for i, (arg, kind) in enumerate(positional):
            default = self.defaults[i - bare] if i >= bare else kinds.empty
            found.append(kinds(arg.arg, kind, default=default))
        if spec.vararg is not None:
            found.append(kinds(spec.vararg.arg, kinds.VAR_POSITIONAL))
        for arg, node, default in zip(spec.kwonlyargs, spec.kw_defaults, self.kw_defaults):
            found.append(kinds(arg.arg, kinds.KEYWORD_ONLY, default=kinds.empty if node is None else default))
        if spec.kwarg is not None:
            found.append(kinds(spec.kwarg.arg, kinds.VAR_KEYWORD))
        return inspect.Signature(found)


class Interpreter(Statements):
    """Interprets captured functions. `inline_kernel` is given by `definition`, which knows kernels."""

    def __init__(self, ctx: Context, inline_kernel: Inliner) -> None:
        super().__init__(ctx)
        self.inline_kernel = inline_kernel
        ctx.call = self.call

    def closure(self, frame: Frame, node: ast.Lambda | ast.FunctionDef) -> Closure:
        self.no_generator(frame, node)
        return Closure(self, frame, node)

    def region_loop(self, frame: Frame, node: ast.For, spec: RegionSpec) -> None:
        RegionCapture(self, frame, node, spec).run()

    # ---- calls

    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(fn, functools.partial):
            return self.call(fn.func, [*fn.args, *args], {**fn.keywords, **kwargs})
        if fn is breakpoint:
            return self.trail.stop()
        definition = getattr(fn, "__treadle_definition__", None)
        if definition is not None:
            return self.inlined(f"{definition.name}", lambda: self.inline_kernel(self, definition, args, kwargs))
        if isinstance(fn, Closure):
            return self.call_closure(fn, args, kwargs)
        if isinstance(fn, Monoid):
            return fn(*args, **kwargs)
        if isinstance(fn, types.MethodType):
            owner = fn.__self__
            if isinstance(owner, (Tile, PartRef, TensorRef)) or _module(fn.__func__).startswith("treadle."):
                return fn(*args, **kwargs)
            return self.call(fn.__func__, [owner, *args], kwargs)
        wrapped = getattr(fn, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType) and not isinstance(fn, (types.FunctionType, type)):
            return self.call(wrapped, args, kwargs)
        if isinstance(fn, types.FunctionType):
            return self.call_function(fn, args, kwargs)
        self.refuse_opaque(fn, args, kwargs)
        if not isinstance(fn, (type, types.BuiltinFunctionType)) and not _module(type(fn)).startswith("treadle."):
            method = class_of(fn).__call__
            if isinstance(method, types.FunctionType):
                static = isinstance(inspect.getattr_static(class_of(fn), "__call__"), staticmethod)
                return self.call(method, args if static else [fn, *args], kwargs)
        try:
            return fn(*args, **kwargs)
        except (TracedBool, TracedNumber) as error:
            # The built-in function asked, not the user: what to write instead is known for it.
            error.hint = builtin_advice(getattr(fn, "__name__", "")) or error.hint
            raise

    def call_function(self, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A Python function: the language's and the standard library's run as they are, others are interpreted."""
        module = _module(fn)
        native = module.startswith("treadle.") and not module.startswith("treadle.lib.")
        if native or module.split(".")[0] in sys.stdlib_module_names - {"__main__"}:
            return fn(*args, **kwargs)
        self.refuse_opaque(fn, args, kwargs)
        if module.split(".")[0] in OPAQUE_PACKAGES:
            return fn(*args, **kwargs)
        try:
            node = function_node(fn)
        except NoSource as error:
            error.span = self.ctx.span
            raise
        bound = inspect.signature(fn, follow_wrapped=False).bind(*args, **kwargs)
        bound.apply_defaults()
        frame = Frame(
            fn.__name__,
            fn.__code__.co_filename,
            dict(bound.arguments),
            local_names(node),
            fn.__globals__,
            cell_lookup(fn),
        )
        return self.inlined(fn.__name__, lambda: self.run(frame, node))

    def call_closure(self, fn: Closure, args: list[Any], kwargs: dict[str, Any]) -> Any:
        bound = fn.signature().bind(*args, **kwargs)
        bound.apply_defaults()
        outer = fn.frame
        frame = Frame(fn.__name__, outer.file, dict(bound.arguments), fn.names, outer.globals, fn.look, parent=outer)
        return self.inlined(fn.__name__, lambda: self.run(frame, fn.node))

    def run(self, frame: Frame, node: FunctionNode) -> Any:
        """Executes a function's body in a prepared frame and gives what it returns."""
        self.no_generator(frame, node)
        with self.trail.calling(frame, node):
            if isinstance(node, ast.Lambda):
                self.trail.step(frame, node.body)
                return self.eval(frame, node.body)
            try:
                self.block(frame, node.body)
            except Returned as done:
                return done.value
        return None

    def no_generator(self, frame: Frame, node: FunctionNode) -> None:
        """*Errors*: `capture/unsupported` for generators and coroutines."""
        bodies: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        nested = (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef)

        def search(item: ast.AST) -> bool:
            if isinstance(item, YIELDS):
                return True
            return not isinstance(item, nested) and any(map(search, ast.iter_child_nodes(item)))

        if isinstance(node, ast.AsyncFunctionDef) or any(map(search, bodies)):
            raise Unsupported(
                doing=f"capturing {frame.name}",
                found="a generator or coroutine",
                expected="a function that returns",
                hint="return a list",
                span=span_of(frame.file, node),
            )

    def inlined(self, name: str, body: Callable[[], Any]) -> Any:
        """Runs an inlined call: its errors say where it was called, and the position is the caller's again after it."""
        span = self.ctx.span
        if self.ctx.depth >= MAX_DEPTH:
            raise Recursion(
                doing=f"inlining {name}",
                found=f"{MAX_DEPTH} calls inside one another",
                expected="calls that end at capture",
                hint="recursion must stop on a staged condition",
                span=span,
            )
        self.ctx.depth += 1
        try:
            return body()
        except TreadleError as error:
            if len(error.notes) < 8 and error.notes[-1:] != ((span, f"{name} is called here"),):
                error.notes = (*error.notes, (span, f"{name} is called here"))
            raise
        finally:
            self.ctx.depth -= 1
            self.ctx.builder.span = span

    def refuse_opaque(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """*Errors*: `capture/opaque-call` for functions that cannot know traced values."""
        package = _module(fn).split(".")[0] or _module(type(fn)).split(".")[0]
        if package not in OPAQUE_PACKAGES or not any(map(is_traced, (*args, *kwargs.values()))):
            return
        name = getattr(fn, "__name__", type(fn).__name__)
        known = name in (
            "exp",
            "log",
            "sqrt",
            "sin",
            "cos",
            "tanh",
            "where",
            "maximum",
            "minimum",
            "floor",
            "abs",
            "erf",
        )
        raise Opaque(
            doing=f"calling {package}.{name}",
            found="a traced value as an argument",
            expected="staged values only: the function is not captured",
            hint=f"use td.{name}" if known else "write it with the functions of treadle",
            span=self.ctx.span,
        )


def is_traced(x: Any) -> bool:
    """Whether a value is traced or contains one."""
    if isinstance(x, (Tile, PartRef, TensorRef)):
        return True
    return is_container(x) and any(is_traced(v) for _, v in items(x))


def _module(fn: Any) -> str:
    return str(getattr(fn, "__module__", "") or "")
