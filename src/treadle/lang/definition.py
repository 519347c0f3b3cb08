"""`Definition`: a kernel as written, captured into a program for given dtypes, staged values and present parameters."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from treadle.algebra.expr import Fn, of
from treadle.base.errors import TreadleError
from treadle.base.source import Span, source_line
from treadle.dtype.formats import DType, f32
from treadle.ir.core import Program, ScalarParam, Tensor, TileType, Value
from treadle.ir.ops.access import Store
from treadle.ir.ops.intrinsic import Intrinsic
from treadle.ir.ranges import large_numbers
from treadle.ir.rewrite import drop_dead, rename
from treadle.ir.trail import keep_trail
from treadle.ir.verifier import verify
from treadle.lang.capture import Interpreter
from treadle.lang.context import Context
from treadle.lang.dims import Dimension
from treadle.lang.errors import (
    ArgumentDType,
    BadArgument,
    BadSignature,
    IndexTooLarge,
    MissingStaged,
    NoEffect,
)
from treadle.lang.inlining import frame_of, inline_kernel, refuse_unstored
from treadle.lang.objects import listed
from treadle.lang.permissions import require_repeatable
from treadle.lang.source import function_node
from treadle.lang.specs import Numerics, ScalarSpec, Subscripted, TensorSpec
from treadle.lang.staging import freeze
from treadle.lang.state import current, span_here
from treadle.lang.subscript import TensorRef
from treadle.lang.tile import Tile
from treadle.lang.trail import Recorder, values_by_name

MAX_GUESSES = 4


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: `kind` is "tensor", "out", "scalar" or "staged"."""

    name: str
    kind: str
    dims: tuple[Dimension, ...] = ()
    dtype: DType | None = None
    optional: bool = False
    default: Any = inspect.Parameter.empty
    devices: bool = False  # one array for each coordinate of the first dimension

    @property
    def shown(self) -> str:
        """Its name and what it declares: `X[M, K, bf16]`, `s`."""
        inside = [*map(str, self.dims), *([] if self.dtype is None or self.kind == "scalar" else [str(self.dtype)])]
        return self.name if self.kind == "scalar" else f"{self.name}[{', '.join(inside)}]"


class Definition:
    """A kernel as written. `parameters` describe it; `capture` gives its program."""

    def __init__(
        self,
        fn: Any,
        numerics: Numerics | None = None,
        names: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(fn, types.FunctionType):
            raise BadSignature(
                doing="making a kernel with td.kernel",
                found=f"an object of type {type(fn).__name__}",
                expected="a function that def made",
                hint="decorate the function itself: @td.kernel above its def, below other decorators",
                span=span_here(),
            )
        if not (numerics is None or isinstance(numerics, Numerics)):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not type-checked
            raise BadArgument(
                doing="making a kernel with td.kernel",
                found=f"numerics={numerics!r}",
                expected="td.Numerics(...)",
                hint='write numerics=td.Numerics(functions="fast")',
                span=span_here(),
            )
        self.fn: types.FunctionType = fn
        self.name = fn.__name__
        self.numerics = numerics or Numerics()
        self.options = dict(options or {})
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__treadle_definition__ = self
        self.span = _heading(fn)
        self.parameters: dict[str, Parameter] = _parameters(fn, names or {}, self.span)
        self._programs: dict[Any, Program] = {}

    def __repr__(self) -> str:
        return f"<treadle kernel {self.heading}>"

    @property
    def heading(self) -> str:
        """Its name, with its arguments, staged values and Outs: `scaled(X[M, N], *, by) -> Y[M]`."""
        every = self.parameters.values()
        given = [p.shown for p in every if p.kind in ("tensor", "scalar")]
        staged = [p.name for p in every if p.kind == "staged"]
        outs = [p.shown for p in every if p.kind == "out"]
        inside = ", ".join([*given, *(["*", *staged] if staged else [])])
        return f"{self.name}({inside})" + (f" -> {', '.join(outs)}" if outs else "")

    def under(self, numerics: Any) -> Definition:
        """The same with another numerical contract. *Errors*: `capture/argument` for what is no `td.Numerics`."""
        if not isinstance(numerics, Numerics):
            raise BadArgument(
                doing=f"calling {self.name} with numerics=",
                found=f"{numerics!r}",
                expected="a td.Numerics",
                hint="write numerics=td.Numerics(...)",
                span=span_here(),
            )
        other = copy.copy(self)
        other.numerics = numerics
        other.__treadle_definition__ = other
        other._programs = {}
        return other

    @property
    def tensors(self) -> list[Parameter]:
        """The tensor parameters, in order, Outs included."""
        return [p for p in self.parameters.values() if p.kind in ("tensor", "out")]

    def capture(
        self,
        arg_dtypes: Mapping[str, DType | None] | None = None,
        staged: Mapping[str, Any] | None = None,
        present: set[str] | frozenset[str] | None = None,
        *,
        extents: Mapping[str, int] | None = None,
    ) -> Program:
        """The verified program for these dtypes and staged values, captured once for each.

        *Requires*: `arg_dtypes` has the dtype of each argument passed (left out: the declared one, else f32);
        `present` names the parameters passed (left out: all, but optional ones without a dtype); `extents` numbers
        the dimensions that are specialised.

        *Errors*: those of `lang.errors`; `dims/needs-extent` carries the `name` of a dimension to specialise.
        """
        values = self.staged_values(staged or {})
        dtypes = {k: v for k, v in (arg_dtypes or {}).items() if v is not None}
        here = self._present(dtypes, present)
        self._check_dtypes(dtypes)
        sizes = dict(extents or {})
        key = _key(dtypes, values, here, sizes)
        found = self._programs.get(key)
        if found is None:
            found = self._capture(dtypes, values, here, sizes)
            self._programs[key] = found
        return found

    def staged_values(self, staged: Mapping[str, Any]) -> dict[str, Any]:
        """The staged parameters' values, defaults filled in. *Errors*: `capture/staged`."""
        known = {p.name: p.default for p in self.parameters.values() if p.kind == "staged"}
        wrong = [n for n in staged if n not in known] + [
            n for n, d in known.items() if n not in staged and d is inspect.Parameter.empty
        ]
        if wrong:
            raise MissingStaged(
                doing=f"specialising {self.name}",
                found=f"{'an unknown' if wrong[0] in staged else 'no'} value for {wrong[0]}",
                expected=f"the staged parameters {', '.join(known) or '(none)'}",
                hint=f"pass {wrong[0]}=... by keyword" if wrong[0] in known else "remove the argument",
                span=self.span,
            )
        return {n: staged.get(n, d) for n, d in known.items()}

    def _present(self, dtypes: Mapping[str, DType], present: set[str] | frozenset[str] | None) -> frozenset[str]:
        params = [p for p in self.parameters.values() if p.kind != "staged"]
        if present is None:
            return frozenset(p.name for p in params if not p.optional or p.name in dtypes or p.kind == "out")
        missing = [p.name for p in params if p.name not in present and p.kind != "out" and not p.optional]
        if missing:
            raise BadArgument(
                doing=f"specialising {self.name}",
                found=f"no argument for {missing[0]}",
                expected=f"{', '.join(p.name for p in params if not p.optional)}",
                hint=f"pass {missing[0]}, or give the parameter the default None",
                span=self.span,
            )
        return frozenset(present) | {p.name for p in params if p.kind == "out"}

    def _check_dtypes(self, dtypes: Mapping[str, DType]) -> None:
        for name, dtype in dtypes.items():
            declared = self.parameters[name].dtype if name in self.parameters else None
            packed = declared is not None and declared.packed and dtype.name == "u8"
            if declared is not None and dtype != declared and not packed:
                raise ArgumentDType(
                    doing=f"specialising {self.name}",
                    found=f"{name} of {dtype}",
                    expected=f"{declared}, as declared",
                    hint=f"convert the argument, or leave the dtype out of the annotation of {name}",
                    span=self.span,
                )

    def _capture(
        self, dtypes: dict[str, DType], values: dict[str, Any], here: frozenset[str], extents: dict[str, int]
    ) -> Program:
        guess: dict[str, DType] = {}
        for _ in range(MAX_GUESSES):
            ctx = Context(self.name, extents)
            token = current.set(ctx)
            try:
                program, trail = self._once(ctx, dtypes, values, here, guess)
            finally:
                current.reset(token)
            stored = {n: d for n, d in ctx.stored_dtypes.items() if guess.get(n, f32) != d}
            if not stored:
                return self._finished(ctx, program, trail)
            guess |= stored
        raise BadArgument(
            doing=f"capturing {self.name}",
            found="an Out whose stored dtype depends on its own dtype",
            expected="a dtype that a store settles",
            hint="declare it: td.Out[M, N, f32]",
            span=self.span,
        )

    def _once(
        self,
        ctx: Context,
        dtypes: dict[str, DType],
        values: dict[str, Any],
        here: frozenset[str],
        guess: dict[str, DType],
    ) -> tuple[Program, Recorder]:
        names: dict[str, Any] = {}
        ctx.builder.span = self.span
        for p in self.parameters.values():
            names[p.name] = self._bound(ctx, p, dtypes, values, here, guess)
        node = function_node(self.fn)
        frame = frame_of(self.fn, node, names)
        interpreter = Interpreter(ctx, inline_kernel)
        result = interpreter.run(frame, node)
        if result is not None:
            raise BadArgument(
                doing=f"capturing {self.name}",
                found="a kernel that returns a value",
                expected="results stored in td.Out parameters",
                hint="add a parameter Y: td.Out[...] = None and store: Y[...] = value",
                span=self.span,
            )
        program = Program(
            name=self.name,
            dims=ctx.program_dims,
            tensors=ctx.tensors,
            scalars=ctx.scalars,
            body=ctx.builder.block,
            lets=ctx.lets,
            requires=ctx.requires,
            staged={n: staged_text(v) for n, v in values.items()}
            | {f"{n}.extent": str(v) for n, v in ctx.extents.items()},
            numerics=dict(asdict(self.numerics)),
            span=self.span,
        )
        require_repeatable(program)
        return program, interpreter.trail

    def _bound(
        self,
        ctx: Context,
        p: Parameter,
        dtypes: dict[str, DType],
        values: dict[str, Any],
        here: frozenset[str],
        guess: dict[str, DType],
    ) -> Any:
        if p.kind == "staged":
            return values[p.name]
        if p.name not in here:
            return None
        if p.kind == "scalar":
            assert p.dtype is not None
            value = Value(f"%{p.name}", TileType(p.dtype), p.name)
            ctx.scalars.append(ScalarParam(p.name, value, self.span))
            safe = p.dtype.is_int
            return Tile(
                value.type, ctx.builder.block, value=value, expr=of(Fn(value.name)) if safe else None, safe=safe
            )
        declared = p.dtype if p.dtype is not None else dtypes.get(p.name)
        dtype = declared if declared is not None else guess.get(p.name, f32)
        tensor = Tensor(
            p.name,
            tuple(ctx.program_dim(d.identity) for d in p.dims),
            dtype,
            out=p.kind == "out",
            optional=p.optional,
            span=self.span,
            devices=p.devices,
        )
        if p.devices and tensor.dims[0].extent.constant is None:
            root = p.dims[0].identity.root
            raise ctx.needs_extent(root.name, f"{root}.device, of which no argument is a list")
        ctx.tensors.append(tensor)
        return TensorRef(ctx, tensor, known=declared is not None or p.kind == "tensor")

    def _finished(self, ctx: Context, program: Program, trail: Recorder) -> Program:
        if not ctx.stored:
            raise NoEffect(
                doing=f"capturing {self.name}",
                found="a kernel that stores nothing",
                expected="at least one store into a tensor",
                hint="store the result: Y[m, n] = value",
                span=self.span,
            )
        stored = {op.tensor.name for op in program.body.walk() if isinstance(op, Store)}
        unstored = {p.name for p in self.tensors if p.kind == "out"} - stored
        refuse_unstored(f"capturing {self.name}", self, function_node(self.fn), unstored)
        order = trail.order(program)
        drop_dead(program)
        used = {op.meaning.name for op in program.body.walk() if isinstance(op, Intrinsic)}
        program.intrinsics = [m for m in ctx.meanings.values() if m.name in used]
        before = values_by_name(program)
        rename(program)
        keep_trail(program, trail.settled(order, before))
        verify(program, pass_name="capture")
        for found in large_numbers(program):
            raise IndexTooLarge(
                doing=f"capturing {self.name}",
                found=f"the number {found.reaches} in the index expression {found.text}",
                expected="numbers of indices and extents within 64 bits: -(2^63 - 1) to 2^63 - 1",
                hint="index scalars never wrap: reduce the number with %, or load it from a tensor",
                span=found.span,
            )
        return program


def _heading(fn: types.FunctionType) -> Span:
    """The line of `def`, below the decorators; the first line where the text is not to be had."""
    file, first = fn.__code__.co_filename, fn.__code__.co_firstlineno
    for line in range(first, first + 20):
        text = source_line(file, line)
        if text is not None and text.lstrip().startswith("def "):
            return Span(file, line, len(text) - len(text.lstrip()), line, len(text.rstrip()))
    return Span(file, first)


def _key(dtypes: Mapping[str, DType], values: Mapping[str, Any], here: frozenset[str], sizes: Mapping[str, int]) -> Any:
    """The cache key: staged values that a program could tell apart differ in it."""
    typed = tuple((n, freeze(v)) for n, v in values.items())
    return (tuple(sorted((n, d.name) for n, d in dtypes.items())), typed, here, tuple(sorted(sizes.items())))


def staged_text(value: Any) -> str:
    """A staged value as text without addresses: numbers and strings as Python shows them, functions by name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (DType, Dimension)):
        return str(value)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if isinstance(name, str):
        return f"{getattr(value, '__module__', '')}.{name}".lstrip(".")
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(staged_text, listed(value)))})"
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


# ---- signatures


def _parameters(fn: types.FunctionType, names: Mapping[str, Any], span: Span) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for p in inspect.signature(fn, follow_wrapped=False).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise _signature(fn, span, f"the parameter *{p.name}", "parameters with names")
        if p.kind is p.KEYWORD_ONLY:
            found[p.name] = Parameter(p.name, "staged", default=p.default)
            continue
        found[p.name] = _annotated(fn, span, p, _evaluated(fn, p.annotation, names, span))
    return found


def _annotated(fn: types.FunctionType, span: Span, p: inspect.Parameter, spec: Any) -> Parameter:
    if p.default is not p.empty and p.default is not None:
        raise _signature(fn, span, f"the default {p.default!r} of {p.name}", "None, or a keyword-only parameter")
    optional = p.default is None
    if isinstance(spec, TensorSpec):
        kind = "out" if spec.out else "tensor"
        return Parameter(p.name, kind, spec.dims, spec.dtype, optional, devices=spec.devices)
    if isinstance(spec, ScalarSpec):
        return Parameter(p.name, "scalar", (), spec.dtype, optional)
    if spec is p.empty:
        found = "without annotation"
    elif isinstance(spec, type) and issubclass(spec, Subscripted):
        found = f"annotated td.{spec.__name__}, without a subscript"
    else:
        found = f"annotated {spec.__qualname__ if isinstance(spec, type) else repr(spec)}"
    raise _signature(fn, span, f"the parameter {p.name} {found}", "td.Tensor[...], td.Out[...] or td.Scalar[...]")


def _signature(fn: types.FunctionType, span: Span, found: str, expected: str) -> BadSignature:
    return BadSignature(
        doing=f"reading the parameters of {fn.__name__}",
        found=found,
        expected=expected,
        hint="annotate tensors as X: td.Tensor[M, K]; put staged values behind a bare *",
        span=span,
    )


def _evaluated(fn: types.FunctionType, annotation: Any, names: Mapping[str, Any], span: Span) -> Any:
    """Annotations may be strings, of names that the function itself does not use."""
    if not isinstance(annotation, str):
        return annotation
    cells = _cells(fn)
    try:
        found = eval(annotation, fn.__globals__, {**names, **cells})
        # Quoted annotations are text within text under `from __future__ import annotations`.
        return eval(found, fn.__globals__, {**names, **cells}) if isinstance(found, str) else found
    except TreadleError as error:
        error.span = span
        raise
    except Exception as error:
        found = f"the annotation {annotation!r}: {error}"
        raise _signature(fn, span, found, "td.Tensor[...], td.Out[...] or td.Scalar[...] of names in sight") from error


def _cells(fn: types.FunctionType) -> dict[str, Any]:
    """What the function's free names hold; those that have no value yet are left out."""
    found: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


# ---- the decorator


def inspect_caller() -> types.FrameType:
    """The frame that called the caller."""
    here = inspect.currentframe()
    assert here is not None and here.f_back is not None and here.f_back.f_back is not None
    return here.f_back.f_back


def kernel(fn: Any = None, *, numerics: Numerics | None = None, **options: Any) -> Any:
    """The `Definition` of a function; also `@kernel(numerics=...)`. Further options are kept for the driver.

    *Errors*: `capture/signature`.
    """
    names = dict(inspect_caller().f_locals)

    def define(f: types.FunctionType) -> Definition:
        return Definition(f, numerics, names, options)

    return define(fn) if fn is not None else define
