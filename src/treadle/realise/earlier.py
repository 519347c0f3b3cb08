"""Loads of a loop one iteration earlier: what the next tile needs is on its way while this one is computed.

A loop that carries something from tile to tile (a scan) waits for each tile's elements where nothing else is there to
run. So a load of such a loop fills a second fragment: for the first tile in front of the loop, then for the next tile
where it stood; there its own fragment takes over what has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from treadle.algebra.expr import Constraint, Expr, ExprLike, lt, sym
from treadle.base.names import Names
from treadle.machine.form import (
    Body,
    Claim,
    Compute,
    Frag,
    FragRef,
    Invariant,
    Kernel,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Scan,
    Stmt,
    Store,
    walk,
)


def loads_earlier(machine: MachineProgram) -> MachineProgram:
    """The program with the loads of its loops that scan one iteration earlier.

    *Ensures*: every element is loaded as often as before, from tensors that nothing stores to.
    """
    for kernel in machine.kernels:
        stored = {s.dst.name for r in kernel.roles for s in walk(r.body) if isinstance(s, Store)}
        tensors = {t.name for t in machine.program.tensors} - stored
        names = Names([f.name for f in kernel.frags])
        for role in kernel.roles:
            role.body[:] = _body(kernel, role.body, tensors, names)
    return machine


def _body(kernel: Kernel, body: Body, tensors: set[str], names: Names) -> Body:
    found: Body = []
    for item in body:
        for inner in ("body", "then", "orelse"):
            part = getattr(item, inner, None)
            if part:
                part[:] = _body(kernel, part, tensors, names)
        if isinstance(item, Loop) and not item.enters and any(isinstance(s, Scan) for s in item.body):
            found += _first(kernel, item, tensors, names)
        found.append(item)
    return found


def _first(kernel: Kernel, loop: Loop, tensors: set[str], names: Names) -> Body:
    """The loads in front of a loop; those inside are changed."""
    front: Body = []
    made: Body = []
    for item in loop.body:
        if not isinstance(item, Load) or not _movable(item, loop, tensors):
            made.append(item)
            continue
        own = next(f for f in kernel.frags if f.name == item.dst)
        early = replace(own, name=names.fresh(f"{item.dst}_next"))
        kernel.frags.append(early)
        there = _within(item, lt(sym(loop.var), loop.hi))
        front.append(_at(there, early, {loop.var: loop.lo}))
        claim = there.claim
        assert isinstance(claim, Claim)
        fill = None if item.fill == "undef" else item.fill
        loop.invariants += (Invariant(early.name, claim, fill),)
        made.append(Compute(dst=item.dst, fn="copy", args=(FragRef(early.name),), claim=item.claim, origin=item.origin))
        made.append(_at(there, early, {loop.var: sym(loop.var) + loop.step}))
    loop.body[:] = made
    return front


def _movable(item: Load, loop: Loop, tensors: set[str]) -> bool:
    """Whether a load is of a tensor at places that the loop's variable alone tells, into a fragment of its own."""
    exprs = [*item.src.index, *(c.expr for c in item.where)]
    writes = [s for s in walk(loop.body) if isinstance(s, Stmt) and getattr(s, "dst", None) == item.dst]
    return (
        item.src.name in tensors
        and isinstance(item.claim, Claim)
        and not item.by
        and not any(e.functions for e in exprs)
        and any(loop.var in e.symbols for e in item.src.index)
        and len(writes) == 1
    )


def _within(item: Load, more: Constraint) -> Load:
    """The load, and its claim, under one condition more."""
    claim = item.claim
    assert isinstance(claim, Claim)
    return replace(item, where=(*item.where, more), claim=replace(claim, where=(*claim.where, more)))


def _at(item: Load, into: Frag, env: Mapping[str, ExprLike]) -> Load:
    """The load of another iteration."""

    def changed(e: Expr) -> Expr:
        return e.substitute(env)

    def conditions(cs: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
        return tuple(Constraint(changed(c.expr), c.equality) for c in cs)

    claim = item.claim
    assert isinstance(claim, Claim)
    return replace(
        item,
        dst=into.name,
        src=MemRef(item.src.name, tuple(map(changed, item.src.index))),
        where=conditions(item.where),
        claim=replace(claim, coords=tuple(map(changed, claim.coords)), where=conditions(claim.where)),
    )
