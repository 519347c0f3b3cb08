"""Scans of few long rows in stretches: a launch folds each stretch, the next scans it behind all that came before.

A plan that goes through a row tile by tile keeps one executor busy a row. In stretches of some tiles the same loop is
run twice: the first launch stores nothing but what its stretch comes to, in the plan's workspace; in the second one an
executor scans what the stretches before its own came to, a lane each, and goes on from there. What a state holds is
said by the contributions in it, so statements and claims stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from math import prod

from treadle.algebra.expr import Constraint, Expr, ceildiv, const, lt, maximum, minimum, sym
from treadle.base.names import Names
from treadle.machine.form import (
    Body,
    Buffer,
    Claim,
    Compute,
    Frag,
    FragRef,
    Host,
    Invariant,
    Kernel,
    Launch,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mode,
    Role,
    Scan,
    Stmt,
    Store,
    StoreClaim,
    Tasks,
    Version,
)
from treadle.realise.chained import chained
from treadle.realise.choices import NotLowered
from treadle.realise.folds import identity
from treadle.realise.tidy import without_idle

LANES = 32
"""Of a warp."""


def in_stretches(machine: MachineProgram, width: int, tiles: int, most: int, workgroups: int) -> MachineProgram:
    """The program with rows in stretches of `tiles` tiles of `width` coordinates; `most`, a multiple of 32, is the
    greatest number of stretches that the guard admits.

    *Errors*: `realise/unsupported` for programs other than one scan in one loop of one nest of tasks.
    """
    made = _Stretches(machine, width, tiles, most)
    first, second = made.totals(), made.prefixes()
    (launch,) = machine.host.launches
    launches: list[Launch] = []
    for kernel in (first, second):
        (nest,) = (s for s in kernel.roles[0].body if isinstance(s, Tasks))
        count = prod(nest.counts, start=const(1))
        grid = maximum(1, minimum(workgroups, ceildiv(count, kernel.roles[0].agents)))
        launches.append(replace(launch, kernel=kernel.name, grid=grid))
    host = Host(dict(machine.host.lets), [*machine.host.workspace, made.buffer], [], launches)
    return chained(replace(machine, kernels=[first, second], host=host))


class _Stretches:
    """What both launches are made of."""

    def __init__(self, machine: MachineProgram, width: int, tiles: int, most: int) -> None:
        self.machine, self.most = machine, most
        (self.kernel,) = machine.kernels
        (role,) = self.kernel.roles
        nest = role.body[0] if len(role.body) == 1 else None
        loops = [s for s in nest.body if isinstance(s, Loop)] if isinstance(nest, Tasks) else []
        carried = [i for x in loops for i in x.invariants]
        start = None if not carried or not isinstance(nest, Tasks) else _made(nest.body, carried[0].holder)
        if not isinstance(nest, Tasks) or len(loops) != 1 or len(carried) != 1 or start is None:
            raise self.unlike()
        scans = {s.claim.value for s in loops[0].body if isinstance(s, Scan) and isinstance(s.claim, Claim)}
        if scans != {carried[0].claim.value} or any(not isinstance(s, Compute | Loop) for s in nest.body):
            raise self.unlike()
        self.role, self.nest, self.loop, self.start = role, nest, loops[0], start
        self.value, self.carry = carried[0].claim.value, carried[0].holder
        self.scan = next(s for s in loops[0].body if isinstance(s, Scan))
        self.names = Names([*(f.name for f in self.kernel.frags), *(b.name for b in self.kernel.buffers), *nest.vars])
        self.frag = next(f for f in self.kernel.frags if f.name == self.carry)
        if self.frag.shape:
            raise self.unlike()
        self.at = self.names.fresh("t_stretch")
        self.tiles, self.length = tiles, width * tiles
        self.count = ceildiv(self.loop.hi, tiles)
        self.end = self.loop.hi * width
        counts = (*nest.counts, self.count)
        self.buffer = Buffer(self.names.fresh(f"b_{self.carry}"), self.frag.dtype, counts, "workspace")

    def unlike(self) -> NotLowered:
        return NotLowered(
            doing=f"realising {self.machine.program.name} in stretches",
            found="more than one scan in one loop over the tiles of a row",
            expected="a row that one scan goes through",
            hint="another plan has one executor a row",
        )

    # ---- claims

    def visited(self, upto: Expr) -> Constraint:
        """That a contribution is visited before so many coordinates are."""
        c = sym("c0")
        return Constraint(c - self.end + upto) if self.scan.reverse else lt(c, upto)

    def after(self, upto: Expr) -> Constraint:
        """That it is not."""
        c = sym("c0")
        return lt(c, self.end - upto) if self.scan.reverse else Constraint(c - upto)

    def state(self, *over: Constraint) -> Claim:
        """A state with these of all contributions."""
        held = self.loop.invariants[0].claim
        own = [c for c in held.over or () if self.loop.var not in c.symbols]
        return replace(held, over=(*own, *over))

    # ---- launches

    def kernel_of(self, name: str, body: Body, loop: Loop, more: list[Frag], ghosts: Body) -> Kernel:
        """A launch: each stretch of each row is a task."""
        here = sym(self.at)
        loop.lo, loop.hi = here * self.tiles, minimum((here + 1) * self.tiles, self.loop.hi)
        nest = replace(self.nest, vars=(*self.nest.vars, self.at), counts=(*self.nest.counts, self.count), body=body)
        role = Role(self.role.name, self.role.agents, self.role.threads, body=[*ghosts, nest])
        return replace(self.kernel, name=name, roles=[role], frags=[*self.kernel.frags, *more])

    def totals(self) -> Kernel:
        """What each stretch comes to."""
        begun = self.after(sym(self.at) * self.length)
        tensors = {t.name for t in self.machine.program.tensors}
        loop = _claims(copy.deepcopy(self.loop), self.value, lambda c: replace(c, over=(*(c.over or ()), begun)))
        loop.body = [s for s in loop.body if not (isinstance(s, Store) and s.dst.name in tensors)]
        here = sym(self.at)
        claim = self.state(begun, self.visited((here + 1) * self.length))
        index = (*(sym(v) for v in self.nest.vars), here)
        body: Body = [copy.deepcopy(self.start), loop]
        body.append(Store(dst=MemRef(self.buffer.name, index), src=FragRef(self.carry), claim=claim))
        places = tuple(sym(f"${i}") for i in range(len(index)))
        ghost = Version(buffer=self.buffer.name, claim=self.of_stretch(places))
        return without_idle(self.kernel_of("totals", body, loop, [], [ghost]))

    def of_stretch(self, at: tuple[Expr, ...]) -> Claim:
        """The state of a stretch, at the coordinates of the buffer."""
        held = self.state()
        here = dict(zip(self.nest.vars, at, strict=False))
        return replace(
            held,
            coords=tuple(c.substitute(here) for c in held.coords),
            over=(
                *(Constraint(c.expr.substitute(here), c.equality) for c in held.over or ()),
                self.after(at[-1] * self.length),
                self.visited((at[-1] + 1) * self.length),
            ),
        )

    def prefixes(self) -> Kernel:
        """The scan of each stretch, behind those before it."""
        here, other = sym(self.at), sym("$0")
        warps = self.role.threads // LANES
        dist = (Mode("lane", LANES, 0, 1), Mode("slot", self.most // LANES, 0, LANES), Mode("warp", warps, None, 0))
        dist = tuple(m for m in dist if m.size > 1)
        names = [self.names.fresh(f"{self.carry}_{part}") for part in ("parts", "upto")]
        parts, upto = (Frag(n, self.frag.dtype, (self.most,), dist) for n in names)
        before = lt(other, here)
        index = tuple(sym(v) for v in self.nest.vars)
        of_part = self.of_stretch((*index, other))
        neutral = identity(self.scan.monoid, self.frag.dtype)
        body: Body = [
            Load(
                dst=parts.name,
                src=MemRef(self.buffer.name, (*index, other)),
                where=(before,),
                fill=neutral,
                claim=replace(of_part, where=(before,)),
            ),
            Scan(
                dst=upto.name,
                monoid=self.scan.monoid,
                src=FragRef(parts.name),
                axes=(0,),
                claim=self.state(self.visited((other + 1) * self.length), self.visited(here * self.length)),
                origin=self.scan.origin,
            ),
            Compute(
                dst=self.carry,
                fn="pick",
                args=(FragRef(upto.name, (const(self.most - 1),)),),
                claim=self.state(self.visited(here * self.length)),
                origin=self.scan.origin,
            ),
        ]
        loop = copy.deepcopy(self.loop)
        return without_idle(self.kernel_of("prefixes", [*body, loop], loop, [parts, upto], []))


def _made(body: Body, name: str) -> Stmt | None:
    """The statement that makes a fragment."""
    return next((s for s in body if isinstance(s, Stmt) and getattr(s, "dst", None) == name), None)


def _claims(loop: Loop, value: str, change: Callable[[Claim], Claim]) -> Loop:
    """The loop with its claims on states of a value changed."""

    def changed(claim: Claim | StoreClaim | None) -> Claim | StoreClaim | None:
        if isinstance(claim, Claim) and claim.value == value and claim.over is not None:
            return change(claim)
        return claim

    for item in loop.body:
        if isinstance(item, Stmt):
            item.claim = changed(item.claim)
    loop.invariants = tuple(
        Invariant(i.holder, change(i.claim) if i.claim.value == value else i.claim, i.fill, i.within)
        for i in loop.invariants
    )
    return loop
