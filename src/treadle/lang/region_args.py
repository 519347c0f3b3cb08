"""The arguments of a region: what it ranges over, the names of its loop variables, and what an instance knows."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, const, maximum
from treadle.ir.core import Block, RegionArg, TileType
from treadle.lang import pointwise
from treadle.lang.context import Bounds, Context
from treadle.lang.dims import PartRef
from treadle.lang.errors import BadDevice, BadRegion, DimTwice, OutOfRange
from treadle.lang.objects import class_of, is_identifier, is_word
from treadle.lang.specs import RegionSpec
from treadle.lang.tile import Tile


class RegionArguments:
    """Reads the arguments of one `for` over a region."""

    def __init__(self, ctx: Context, node: ast.For, spec: RegionSpec) -> None:
        self.ctx = ctx
        self.node = node
        self.spec = spec
        self.span = ctx.span

    def arguments(self) -> tuple[list[RegionArg], list[Callable[[Block], Any]]]:
        names = self.argument_names()
        args: list[RegionArg] = []
        binders: list[Callable[[Block], Any]] = []
        for given, name in zip(self.spec.args, names):
            arg, binder = self.argument(given, name)
            if any(arg.domain.dim is a.domain.dim for a in args):
                raise DimTwice(
                    doing=f"making td.{self.spec.kind}",
                    found=f"{arg.domain.dim} twice",
                    expected="each dimension once",
                    hint=f"use an alias: {arg.domain.dim}2 = {arg.domain.dim}.alias(...)",
                    span=self.span,
                )
            args.append(arg)
            binders.append(binder)
        if not (is_word(self.spec.name, ("",)) or is_identifier(self.spec.name)):
            raise BadRegion(
                doing=f"making td.{self.spec.kind}",
                found=f"name={self.spec.name!r}",
                expected="an identifier",
                hint="name the region by one word of letters, digits and _",
                span=self.span,
            )
        if is_word(self.spec.scope, ("device",)):
            self.over_devices(args)
        if not args:
            raise BadRegion(
                doing=f"making td.{self.spec.kind}",
                found="no argument",
                expected="dimensions, parts of them, or a number",
                hint=f"write td.{self.spec.kind}(M)",
                span=self.span,
            )
        return args, binders

    def over_devices(self, args: list[RegionArg]) -> None:
        """`scope="device"` runs over the single devices that tensors have arrays for; around it are only steps."""
        roots = {t.dims[0].root for t in self.ctx.tensors if t.devices}
        wrong = None
        if len(args) != 1 or args[0].kind != "each" or args[0].domain.dim.root not in roots:
            wrong = ", ".join(f"{a.domain}{'.each' if a.kind == 'each' else ''}" for a in args) or "no argument"
        elif around := [r.kind for r in self.ctx.regions if r.kind in ("parallel", "reduce")]:
            wrong = f"td.{around[-1]} around it"
        if wrong is not None:
            names = ", ".join(sorted(f"{r}.each" for r in roots)) or "R.each, with a parameter td.Tensor[R.device, ...]"
            raise BadDevice(
                doing='making td.parallel(..., scope="device")',
                found=wrong,
                expected=f"{names}, and around it no region but td.serial and td.pipeline",
                hint='write for r in td.parallel(R.each, scope="device"): and other regions inside',
                span=self.span,
            )

    def argument_names(self) -> list[str]:
        target, count = self.node.target, len(self.spec.args)
        if count == 1 and isinstance(target, ast.Name):
            return [target.id]
        if isinstance(target, (ast.Tuple, ast.List)):
            if len(target.elts) != count:
                raise BadRegion(
                    doing=f"making td.{self.spec.kind}",
                    found=f"{len(target.elts)} loop names for {count} arguments",
                    expected="one name an argument",
                    hint="name every argument: for m, n in td.parallel(M, N):",
                    span=self.span,
                )
            return [e.id if isinstance(e, ast.Name) else f"i{i}" for i, e in enumerate(target.elts)]
        return [f"{target.id}_{i}" if isinstance(target, ast.Name) else f"i{i}" for i in range(count)]

    def argument(self, given: Any, name: str) -> tuple[RegionArg, Callable[[Block], Any]]:
        ctx = self.ctx
        name = "it" if name.strip("_") == "" else name
        if isinstance(given, PartRef):
            ctx.alive(given)
            size = None if given.size is None else const(given.size)
            arg = RegionArg(ctx.names.fresh(name), given.part, given.mode, size, given.backward, name)
        else:
            if not isinstance(given, (int, np.integer, Tile)):
                raise BadRegion(
                    doing=f"making td.{self.spec.kind}",
                    found=f"an argument of type {class_of(given).__name__}",
                    expected="a dimension, a part of one, or an integer",
                    hint="write td.serial(n) for 0 .. n - 1, and M[lo:hi] for a part",
                    span=self.span,
                )
            count = ctx.expr_of(given, f"an argument of td.{self.spec.kind}")
            number = count.constant
            if number is not None and number < 0:
                raise OutOfRange(
                    doing=f"making td.{self.spec.kind}",
                    found=f"the count {number}",
                    expected="a count of at least 0",
                    hint="clamp it: max(0, n)",
                    span=self.span,
                )
            stop = count if ctx.proves(count) else maximum(0, count)
            dim = ctx.anonymous_dim(f"{name}_range", stop)
            part = Part(dim, const(0), stop)
            ctx.bounds.setdefault(part, Bounds((const(0),), (stop, count)))
            arg = RegionArg(ctx.names.fresh(name), part, "each", source=name)
        return arg, self.binder(arg)

    def binder(self, arg: RegionArg) -> Callable[[Block], Any]:
        if arg.kind == "each":
            expr = arg.index
            return lambda block: Tile(TileType(pointwise.i64), block, expr=expr, safe=True)
        return lambda block: PartRef(arg.part, arg=arg, block=block)

    def facts(self, arg: RegionArg) -> list[Constraint]:
        """What an instance knows: the part is not empty, and its coordinates keep the domain's bounds."""
        known = self.ctx.bounds_of(arg.domain)
        lows, highs = (arg.domain.lo, *known.lows), (arg.domain.hi, *known.highs)
        if arg.kind == "each":
            c = arg.index
            return [Constraint(c - low) for low in lows] + [Constraint(high - 1 - c) for high in highs]
        start, stop = arg.part.lo, arg.part.hi
        found = [Constraint(start - low) for low in lows] + [Constraint(high - stop) for high in highs]
        found.append(Constraint(stop - start - 1))
        if arg.size is not None:
            found.append(Constraint(start + arg.size - stop))
        return found
