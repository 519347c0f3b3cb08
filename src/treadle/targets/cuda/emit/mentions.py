"""What statements mention: expressions, fragments, slots of rings, and loops that choose registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from treadle.algebra.expr import Constraint, Expr, Fn
from treadle.machine.form import (
    Body,
    Compute,
    Control,
    Copy,
    Fold,
    FragRef,
    If,
    Let,
    Load,
    Loop,
    MemRef,
    Mma,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)


def fragments_named(item: Stmt | Control) -> set[str]:
    """Fragments that a statement makes or reads, at any depth."""
    found: set[str] = set()
    for inner in walk([item]):
        held: list[object] = []
        for value in vars(inner).values():
            held += cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        found |= {r.name for r in held if isinstance(r, FragRef)}
        made = getattr(inner, "dst", None)
        found |= {made} if isinstance(made, str) else set()
        found |= {n for e in expressions(inner) for n in e.functions}
    return found


def expressions(stmt: Stmt | Control) -> Iterator[Expr]:
    """The expressions that a statement evaluates itself, claims not among them; phases and versions as remainders are
    not taken here."""
    match stmt:
        case Load():
            yield from _memory(stmt.src)
            yield from _facts(stmt.where)
        case Store():
            yield from _memory(stmt.dst)
            yield from _facts(stmt.where)
        case Compute():
            if stmt.expr is not None:
                yield stmt.expr
            yield from _facts(stmt.where)
            for arg in stmt.args:
                if isinstance(arg, FragRef):
                    yield from arg.coords or ()
                elif isinstance(arg, MemRef):
                    yield from _memory(arg)
        case Fold():
            yield from stmt.src.coords or ()
            yield from (stmt.acc.coords or ()) if stmt.acc is not None else ()
        case Mma():
            for ref in (stmt.a, stmt.b):
                yield from (ref.coords or ()) if isinstance(ref, FragRef) else _memory(ref)
        case Copy():
            yield from _memory(stmt.src)
            yield from _memory(stmt.dst)
            yield from _facts(stmt.where)
        case Sync():
            yield from (e for n, e in stmt.args if n != "phase")
        case Let():
            yield stmt.expr
        case Loop():
            yield from (stmt.lo, stmt.hi, stmt.step)
        case Tasks():
            yield from stmt.counts
        case If():
            yield from _facts(stmt.conds)
        case _:
            return


def versions(stmt: Stmt | Control) -> Iterator[tuple[str, Expr]]:
    """The rings and barriers that a statement names, with the sequence numbers."""
    refs: list[MemRef | None] = []
    match stmt:
        case Load():
            refs = [stmt.src]
        case Store():
            refs = [stmt.dst, stmt.signal]
        case Mma():
            refs = [r for r in (stmt.a, stmt.b) if isinstance(r, MemRef)]
        case Copy():
            refs = [stmt.src, stmt.dst, stmt.signal]
        case Sync():
            refs = [stmt.object]
        case Compute():
            refs = [a for a in stmt.args if isinstance(a, MemRef)]
        case _:
            return
    for ref in refs:
        if ref is not None and ref.version is not None:
            yield ref.name, ref.version


def _memory(ref: MemRef) -> Iterator[Expr]:
    yield from ref.index


def _facts(facts: Sequence[Constraint]) -> Iterator[Expr]:
    for fact in facts:
        yield fact.expr


def unrolled_variables(body: Body, frags: frozenset[str]) -> frozenset[str]:
    """Loop variables that choose registers or operands of a contraction: those loops are written out."""
    chosen: set[str] = set()
    lets: dict[str, Expr] = {}
    for stmt in walk(body):
        if isinstance(stmt, Let):
            lets[stmt.name] = stmt.expr
        for expr in expressions(stmt):
            for atom in expr.atoms():
                if isinstance(atom, Fn) and atom.name in frags:
                    for arg in atom.args:
                        chosen |= arg.symbols
        refs: list[FragRef] = []
        if isinstance(stmt, Compute):
            refs = [a for a in stmt.args if isinstance(a, FragRef)]
        elif isinstance(stmt, Fold):
            refs = [r for r in (stmt.src, stmt.acc) if r is not None]
        elif isinstance(stmt, Mma):
            refs = [r for r in (stmt.a, stmt.b, stmt.acc) if isinstance(r, FragRef)]
        elif isinstance(stmt, Store) and stmt.mask is not None:
            refs = [stmt.mask]
        for ref in refs:
            for coord in ref.coords or ():
                chosen |= coord.symbols
    loops = _matrix_loops(body)
    while True:
        more = {s for name in chosen if name in lets for s in lets[name].symbols} - chosen
        if not more:
            break
        chosen |= more
    variables = {s.var for s in walk(body) if isinstance(s, Loop)}
    return frozenset(variables & (chosen | loops))


def _matrix_loops(body: Body) -> set[str]:
    """Variables of loops with constant bounds that have a warpgroup contraction directly inside."""
    found: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Loop) and stmt.lo.constant is not None and stmt.hi.constant is not None:
            if any(isinstance(s, Mma) and s.atom.startswith("wgmma") for s in stmt.body):
                found.add(stmt.var)
    return found


def multiplies(stmt: Loop) -> bool:
    """Whether a loop is of products of fragments out of registers: so many instructions that it stays a loop, which the
    compiler unrolls in a fraction of the time that it takes for the same text written out."""
    return any(isinstance(s, Mma) and s.atom in ("fma", "muladd") for s in stmt.body)
