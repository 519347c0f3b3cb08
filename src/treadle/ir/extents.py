"""Where the extents of a call come from: which axis of which tensor tells each dimension symbol.

A symbol is told by the first axis that has it alone as its extent. A product axis tells a factor when the others are
known: its extent divided by theirs. `td.let` and required equations tell the rest. Emitters write these steps as code,
`told_extents` takes them: both must give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from treadle.algebra.expr import ONE, Expr, Sym, maximum, of
from treadle.ir.core import Program, Tensor


@dataclass(frozen=True)
class ExtentSource:
    """`symbol = extent of axis of tensor // divisor`; or, without a tensor, `symbol = expr` (a let)."""

    symbol: str
    tensor: str | None = None
    axis: int = 0
    divisor: Expr = ONE
    expr: Expr | None = None


def extent_sources(program: Program, tensors: Iterable[Tensor] | None = None) -> list[ExtentSource]:
    """How each extent symbol is computed from the arguments that are present, in an order in which it can be.

    *Ensures*: a source mentions only symbols of earlier sources; symbols that nothing tells are left out.
    """
    present = list(program.tensors if tensors is None else tensors)
    axes = [(t.name, i, d.extent) for t in present for i, d in enumerate(t.dims)]
    found: dict[str, ExtentSource] = {}
    for tensor, axis, extent in axes:
        symbol = only_symbol(extent)
        if symbol is not None and symbol not in found:
            found[symbol] = ExtentSource(symbol, tensor, axis)
    while True:
        before = len(found)
        for name, expr in program.lets.items():
            if name not in found and expr.symbols <= found.keys():
                found[name] = ExtentSource(name, expr=expr)
        for tensor, axis, extent in axes:
            unknown = sorted(extent.symbols - found.keys())
            if len(unknown) == 1:
                divisor = extent.substitute({unknown[0]: 1})
                # Only a plain product can be divided: the symbol occurs once, as a factor.
                if divisor * Expr((((Sym(unknown[0]),), 1),)) == extent:
                    found[unknown[0]] = ExtentSource(unknown[0], tensor, axis, divisor)
        if len(found) == before:
            _solve(program, found)
        if len(found) == before:
            return list(found.values())


def _solve(program: Program, found: dict[str, ExtentSource]) -> None:
    """Adds a symbol that a required equation gives, as `S1 == S + 1` does: never less than 0, so that an equation that
    asks for less is broken."""
    for fact in program.requires:
        unknown = sorted(fact.symbols - found.keys()) if fact.equality and not fact.expr.functions else []
        if len(unknown) != 1:
            continue
        symbol = Sym(unknown[0])
        factor = fact.expr.coefficient(symbol)
        rest = fact.expr - of(symbol) * factor
        if abs(factor) == 1 and symbol.name not in rest.symbols:
            found[symbol.name] = ExtentSource(symbol.name, expr=maximum(0, rest * -factor))
            return


def told_extents(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Symbol -> extent, as far as the shapes of the arguments that are present tell.

    *Ensures*: a factor is told only by a product axis that the other factors divide, and never by an empty axis whose
    other factors are empty too: that axis goes with every extent.
    """
    found: dict[str, int] = {}
    for source in extent_sources(program, [t for t in program.tensors if t.name in shapes]):
        if source.tensor is None:
            assert source.expr is not None
            if source.expr.symbols <= found.keys():
                found[source.symbol] = int(source.expr.evaluate(found))
            continue
        if not source.divisor.symbols <= found.keys():
            continue
        extent, divisor = shapes[source.tensor][source.axis], int(source.divisor.evaluate(found))
        if divisor > 0 and extent % divisor == 0:
            found[source.symbol] = extent // divisor
    return found


def only_symbol(expr: Expr) -> str | None:
    """The name when an expression is one symbol."""
    if len(expr.terms) == 1 and expr.terms[0][1] == 1 and len(expr.terms[0][0]) == 1:
        atom = expr.terms[0][0][0]
        return atom.name if isinstance(atom, Sym) else None
    return None
