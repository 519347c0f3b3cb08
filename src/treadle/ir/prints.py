"""`td.print` as stores: what a launch prints is kept in hidden tensors, and shown after it.

A print inside regions over single coordinates happens once for each of them, and shows elements along the axes of its
value. Both make the axes of a hidden tensor of values, and of one of flags, which are 1 where an element is to be
shown. Inside blocks of open size a print happens as often as there are blocks; it is kept only where its value, or a
coordinate inside, lies along the block, so that each element is shown once however blocks are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.algebra.dims import Dim, dim
from treadle.algebra.expr import Expr, sym
from treadle.dtype.formats import i32
from treadle.ir.core import Block, Hidden, Program, Region, RegionArg, Sub, Tensor
from treadle.ir.ops.debug import Print

if TYPE_CHECKING:
    from treadle.ir.expand import Expander


def recordable(program: Program) -> bool:
    """Whether every print of the program shows elements whose number extents alone tell, each of them once."""
    return unrecordable(program) is None


def unrecordable(program: Program) -> tuple[Print, str] | None:
    """The first print that no launch can keep, and why; None where there is no such print."""
    known = {d.name for d in program.dims if d.extent == sym(d.name)}
    found = ((op, _obstacle(op, args, known)) for op, args in _prints(program.body, []))
    return next(((op, why) for op, why in found if why is not None), None)


def _prints(block: Block, args: list[RegionArg]) -> list[tuple[Print, list[RegionArg]]]:
    """The prints of a block, with the arguments of the regions around each."""
    found: list[tuple[Print, list[RegionArg]]] = []
    for op in block.ops:
        if isinstance(op, Print):
            found.append((op, args))
        inner = [*args, *op.args] if isinstance(op, Region) else args
        for one in op.blocks:
            found += _prints(one, inner)
    return found


def _obstacle(op: Print, args: Sequence[RegionArg], known: set[str]) -> str | None:
    """Why the elements that a print shows are not told by extents alone, if they are not."""
    if op.value.type.dtype.packed:
        return f"shows elements of {op.value.type.dtype}"
    each = [a.domain.dim for a in args if a.kind == "each"]
    untold = next((d for d in [*each, *op.value.type.dims] if not _told(d.extent, known)), None)
    if untold is not None:
        return f"shows as many elements as {untold} has, which no extent of an argument tells"
    cut = next((a for i, a in enumerate(args) if a.kind == "block" and not _along(a, op, args[i + 1 :])), None)
    return None if cut is None else f"is shown once a block, however {cut.domain.dim} is cut into blocks"


def _told(extent: Expr, known: set[str]) -> bool:
    return not extent.functions and extent.symbols <= known


def _along(arg: RegionArg, op: Print, inner: Sequence[RegionArg]) -> bool:
    """Whether the value, or an argument inside, ranges over the block."""
    bounds = {f"{arg.name}.start", f"{arg.name}.stop"}
    parts = [*op.value.type.axes, *(a.domain for a in inner)]
    return any(bounds <= (p.lo.symbols | p.hi.symbols) and p.dim.root is arg.domain.dim.root for p in parts)


def record(expander: Expander, op: Print, args: Sequence[RegionArg]) -> None:
    """Appends the stores that keep what a print shows, and makes their tensors."""
    b, each = expander.b, [a for a in args if a.kind == "each"]
    outer: list[Dim] = []
    for arg in each:
        made = dim(expander.names.fresh(f"printed_{arg.source or arg.name}"), arg.domain.dim.extent)
        expander.program.dims.append(made)
        outer.append(made)
    dims = (*outer, *op.value.type.dims)
    subs = [*(Sub(index=a.index) for a in each), *(Sub(part=a) for a in op.value.type.axes)]
    printed = Tensor(expander.names.fresh("printed"), dims, op.value.type.dtype, True, hidden=True)
    shown = Tensor(expander.names.fresh("shown"), dims, i32, True, hidden=True)
    expander.program.tensors += [printed, shown]
    expander.program.hidden.append(Hidden(printed, "print", (op.label,), (op.span,)))
    expander.program.hidden.append(Hidden(shown, "shown", (op.label,), (op.span,)))
    b.store(printed, subs, op.value)
    b.store(shown, subs, b.full(1, i32), where=op.where)
