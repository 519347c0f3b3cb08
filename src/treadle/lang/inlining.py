"""Kernels called in kernels: their dimensions stand for the parts passed, their omitted Outs come back as tiles."""

from __future__ import annotations

import ast
import inspect
import types
from typing import TYPE_CHECKING, Any

from treadle.algebra.dims import Dim, Part
from treadle.dtype.formats import DType, f32
from treadle.lang import pointwise
from treadle.lang.capture import Interpreter
from treadle.lang.context import Context
from treadle.lang.errors import ArgumentDType, BadArgument, DimConflict, NoEffect, NoSource, WrongRank
from treadle.lang.frames import Frame, cell_lookup, local_names
from treadle.lang.source import function_node
from treadle.lang.subscript import TensorRef
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.definition import Definition, Parameter

STORING = ("set_at", "add_at", "max_at", "min_at")


def frame_of(fn: types.FunctionType, node: Any, names: dict[str, Any]) -> Frame:
    """A frame in which the body of a function is interpreted, its parameters bound."""
    return Frame(fn.__name__, fn.__code__.co_filename, names, local_names(node), fn.__globals__, cell_lookup(fn))


def inline_kernel(interp: Interpreter, definition: Definition, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Inlines a kernel: its dimensions stand for the parts passed, its omitted Outs are returned as tiles."""
    ctx = interp.ctx
    bound = inspect.signature(definition.fn).bind_partial(*args, **kwargs)
    staged = definition.staged_values(
        {n: v for n, v in bound.arguments.items() if definition.parameters[n].kind == "staged"}
    )
    given = {n: v for n, v in bound.arguments.items() if n not in staged}
    table: dict[Dim, Part] = {}
    for p in definition.tensors:
        if given.get(p.name) is not None:
            _stand_in(ctx, definition, p, given[p.name], table)
    try:
        node = function_node(definition.fn)
    except NoSource as error:
        error.span = ctx.span
        raise
    outs = [p for p in definition.tensors if p.kind == "out" and given.get(p.name) is None]
    dtypes = {p.name: p.dtype for p in outs}
    start = ctx.checkpoint()
    while True:
        mark = len(ctx.builder.block.ops)
        ctx.stand_ins.append(table)
        try:
            names = {p.name: _passed(ctx, definition, p, given, staged, dtypes) for p in definition.parameters.values()}
            frame = frame_of(definition.fn, node, dict(names))
            interp.run(frame, node)
        finally:
            ctx.stand_ins.pop()
        found = {p.name: frame.inserted[p.name] for p in outs if dtypes[p.name] is None and p.name in frame.inserted}
        wrong = {n: d for n, d in found.items() if d != f32}
        if not wrong:
            break
        # The tile was made in f32 before its dtype was known: once more, from the stored dtype.
        del ctx.builder.block.ops[mark:]
        ctx.caches.pop(ctx.builder.block, None)
        ctx.rollback(start)
        dtypes |= wrong
    refuse_unstored(
        f"inlining {definition.name}", definition, node, {p.name for p in outs if frame.locals[p.name] is names[p.name]}
    )
    results = tuple(frame.locals[p.name] for p in outs)
    return None if not results else results[0] if len(results) == 1 else results


def refuse_unstored(doing: str, definition: Definition, node: ast.AST, unstored: set[str]) -> None:
    """Refuses an Out into which the text of the kernel never stores: left out, it would come back as memory was.

    One whose store a staged condition switched off in this specialisation is the author's choice.
    *Errors*: `capture/no-effect`.
    """
    for p in definition.tensors:
        if p.name in unstored and not _may_store(node, p.name):
            raise NoEffect(
                doing=doing,
                found=f"no store into the Out {p.name}",
                expected="a store into each Out: one that a call leaves out is allocated without values",
                hint=f"store into it, {p.name}[...] = value, or annotate what is only read as td.Tensor[...]",
                span=definition.span,
            )


def _may_store(node: ast.AST, name: str) -> bool:
    """Whether the text of a function may store into what it calls by the name: by itself or by another name or call."""
    reads: set[ast.AST] = set()
    for item in ast.walk(node):
        if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load):
            reads.add(item.value)
        if isinstance(item, ast.Attribute) and item.attr not in STORING:
            reads.add(item.value)
    named = [item for item in ast.walk(node) if isinstance(item, ast.Name) and item.id == name]
    bound_anew = any(isinstance(item.ctx, ast.Store) for item in named)
    return not bound_anew and any(item not in reads for item in named)


def _stand_in(ctx: Context, definition: Definition, p: Parameter, value: Any, table: dict[Dim, Part]) -> None:
    axes = value.axes if isinstance(value, TensorRef) else value.type.axes if isinstance(value, Tile) else None
    if axes is None or len(axes) != len(p.dims):
        raise WrongRank(
            doing=f"calling {definition.name}",
            found=f"{p.name} = {value!r}" if axes is None else f"{p.name} with {len(axes)} axes",
            expected=f"a tensor or tile with {len(p.dims)} axes: {', '.join(map(str, p.dims))}",
            hint="pass a tile of that rank",
            span=ctx.span,
        )
    lists = isinstance(value, TensorRef) and value.tensor.devices
    if lists != p.devices:
        axes_text = [f"{d}.device" if p.devices and not i else str(d) for i, d in enumerate(p.dims)]
        raise BadArgument(
            doing=f"calling {definition.name}",
            found=f"{p.name} = {value!r}, {'one array per device' if lists else 'not one array per device'}",
            expected=f"{p.name}[{', '.join(axes_text)}]",
            hint="give both parameters the device axis, or pass one device's elements: X[r, M]",
            span=ctx.span,
        )
    for d, part in zip(p.dims, axes):
        known = table.setdefault(d.identity, part)
        if known != part:
            raise DimConflict(
                doing=f"calling {definition.name}",
                found=f"{d} as {pointwise.show_part(known)} and as {pointwise.show_part(part)}",
                expected=f"one part for {d} in all arguments",
                hint="pass arguments over the same parts",
                span=ctx.span,
            )


def _passed(
    ctx: Context,
    definition: Definition,
    p: Parameter,
    given: dict[str, Any],
    staged: dict[str, Any],
    dtypes: dict[str, DType | None],
) -> Any:
    if p.kind == "staged":
        return staged[p.name]
    value = given.get(p.name)
    if value is None and p.kind == "out":
        axes = [d.part for d in p.dims]
        return ctx.tile(ctx.builder.full(None, dtypes[p.name] or f32, axes))
    if value is None and not p.optional:
        raise BadArgument(
            doing=f"calling {definition.name}",
            found=f"no argument for {p.name}",
            expected=f"{', '.join(q.name for q in definition.parameters.values() if not q.optional)}",
            hint=f"pass {p.name}",
            span=ctx.span,
        )
    if p.kind == "out" and isinstance(value, Tile):
        raise BadArgument(
            doing=f"calling {definition.name}",
            found=f"a tile for the Out {p.name}",
            expected="a tensor, or nothing: the result is returned then",
            hint=f"leave {p.name} out and use the returned tile",
            span=ctx.span,
        )
    if p.kind == "scalar" and not isinstance(value, Tile) and value is not None:
        assert p.dtype is not None
        return ctx.tile(pointwise.constant(ctx, value, p.dtype))
    if isinstance(value, (Tile, TensorRef)) and p.dtype is not None and value.dtype != p.dtype:
        raise ArgumentDType(
            doing=f"calling {definition.name}",
            found=f"{p.name} of {value.dtype}",
            expected=f"{p.dtype}, as declared",
            hint=f"convert it with .to({p.dtype})",
            span=ctx.span,
        )
    return value
