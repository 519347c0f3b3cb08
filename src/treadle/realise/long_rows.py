"""Folds of few long rows: each fold of a row by many workgroups, a stretch each.

A plan that sweeps over a row keeps one executor busy a row, a sweep for each fold that needs the one before. Here
every sweep is a launch whose tasks are (row, stretch): a fold leaves what its stretch comes to in the workspace, and
each task of the launches behind folds those of its row, a lane each, before it goes on. Where no sweep follows a fold,
none does: whoever arrives last at a row's word folds its stretches and does the rest. What a state holds is said by
the contributions in it, so statements and claims stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from treadle.algebra.expr import ZERO, Constraint, Expr, ceildiv, const, lt, maximum, minimum, sym
from treadle.base.names import Names
from treadle.machine.form import (
    Body,
    Buffer,
    Claim,
    Compute,
    Control,
    Counter,
    Fold,
    Frag,
    FragRef,
    Host,
    If,
    Kernel,
    Last,
    Launch,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mode,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.realise.chained import chained
from treadle.realise.choices import NotLowered
from treadle.realise.folds import identity
from treadle.realise.replacing import renamed
from treadle.realise.tidy import without_idle

LANES = 32
"""Of a warp."""


def in_long_rows(machine: MachineProgram, width: int, tiles: int, most: int, workgroups: int) -> MachineProgram:
    """The program with rows in stretches of `tiles` tiles of `width` coordinates; `most`, a multiple of 32, is the
    greatest number of stretches that the guard admits.

    *Errors*: `realise/unsupported` for what is no nest of rows whose sweeps follow one another.
    """
    return _Rows(machine, width, tiles, most).program(workgroups)


@dataclass
class _Section:
    """A fold: its statements, what it folds, the fragment that holds it in the end."""

    body: Body
    value: str
    claim: Claim
    total: str
    monoid: str
    origin: int | None


class _Rows:
    """What all launches are made of."""

    def __init__(self, machine: MachineProgram, width: int, tiles: int, most: int) -> None:
        self.machine, self.width, self.tiles, self.most = machine, width, tiles, most
        if len(machine.kernels) != 1 or len(machine.kernels[0].roles) != 1:
            raise self.unlike("several launches")
        (self.kernel,) = machine.kernels
        (self.role,) = self.kernel.roles
        self.tiles_said: Body = [s for s in self.role.body if isinstance(s, Version)]
        nest = self.role.body[-1] if len(self.role.body) == len(self.tiles_said) + 1 else None
        if not isinstance(nest, Tasks) or self.role.agents != 1:
            raise self.unlike("more than a workgroup's tasks")
        self.nest = nest
        names = [*(f.name for f in self.kernel.frags), *(b.name for b in self.kernel.buffers), *nest.vars]
        names += [s.var for s in walk(nest.body) if isinstance(s, Loop)]
        names += [b.name for b in machine.host.workspace]
        names += [t.name for t in machine.program.tensors] + [d.name for d in machine.program.dims]
        self.names = Names(names)
        self.at = self.names.fresh("t_stretch")
        self.length = width * tiles
        self.frags: list[Frag] = []
        body = list(nest.body)
        while body and isinstance(body[-1], Sync):
            body.pop()
        self.items = self.sections(body)
        found = [s for s in self.items if isinstance(s, _Section)]
        loops = [s for x in found for s in x.body if isinstance(s, Loop)]
        loops += [s for s in self.items if isinstance(s, Loop)]
        choices: Body = [s for s in self.items if isinstance(s, If)]
        if any(isinstance(x, Loop) for x in walk(choices)):
            raise self.unlike("a sweep under a condition")
        if not found or len({str(x.hi) for x in loops}) != 1:
            raise self.unlike("sweeps over other coordinates than a row's")
        self.sweep = loops[0].hi
        self.count = ceildiv(self.sweep, tiles)
        self.buffers = {s.value: self.buffer(s) for s in found}

    def unlike(self, found: str) -> NotLowered:
        return NotLowered(
            doing=f"realising {self.machine.program.name} with long rows in stretches",
            found=found,
            expected="tasks that sweep over a row, fold after fold, and over what is stored",
            hint="another plan has one executor a row",
        )

    # ---- what a task does

    def sections(self, body: Body) -> list[_Section | Stmt | Control]:
        """The folds of a task, and what stands between them."""
        found: list[_Section | Stmt | Control] = []
        todo = list(body)
        while todo:
            place = next((i for i, s in enumerate(todo) if self.folds(s)), None)
            if place is None:
                return [*found, *todo]
            loop = todo[place]
            assert isinstance(loop, Loop)
            claim = loop.invariants[0].claim
            begin = next((i for i, s in enumerate(todo) if _makes(s) == loop.invariants[0].holder), None)
            end = next((i for i, s in enumerate(todo) if i > place and self.ends(s, claim.value)), None)
            fold = next((s for s in loop.body if isinstance(s, Fold) and s.dst == loop.invariants[0].holder), None)
            if begin is None or end is None or fold is None or begin > place or len(claim.bound) != 1:
                raise self.unlike(f"how {claim.value} is folded")
            last = todo[end]
            assert isinstance(last, Stmt) and isinstance(last.claim, Claim)
            beside = [s for s in todo[begin:place] if isinstance(s, Stmt) and _value(s) != claim.value]
            own = [s for s in todo[begin : end + 1] if not any(s is x for x in beside)]
            found += [*todo[:begin], *beside]
            total = _makes(last)
            found.append(_Section(own, claim.value, last.claim, total, fold.monoid, last.origin))
            todo = todo[end + 1 :]
        return found

    def folds(self, stmt: Stmt | Control) -> bool:
        """Whether a statement sweeps over a row and folds it."""
        if not isinstance(stmt, Loop) or not stmt.invariants:
            return False
        if len(stmt.invariants) != 1 or stmt.invariants[0].claim.over is None or stmt.lo != ZERO or stmt.enters:
            raise self.unlike("a sweep that carries more than a fold")
        return True

    def ends(self, stmt: Stmt | Control, value: str) -> bool:
        """Whether a statement is what a fold comes to in all."""
        claim = stmt.claim if isinstance(stmt, Stmt) else None
        return isinstance(claim, Claim) and claim.value == value and claim.over is None and bool(_makes(stmt))

    # ---- claims

    def within(self, at: Expr) -> tuple[Constraint, ...]:
        """That a contribution is of a stretch."""
        c = sym("c0")
        return Constraint(c - self.length * at), lt(c, self.length * at + self.length)

    def of_stretch(self, claim: Claim, at: Expr, extent: Expr) -> Claim:
        """What a stretch comes to, for what the whole row does."""
        c = sym("c0")
        return replace(claim, bound=("c0",), over=(Constraint(c), lt(c, extent), *self.within(at)))

    def extent(self, section: _Section) -> Expr:
        """How many coordinates are folded."""
        loop = next(s for s in section.body if isinstance(s, Loop))
        over = loop.invariants[0].claim.over or ()
        c = sym("c0")
        # Of the conditions on contributions, the one that names no variable of the sweep and no slot.
        ends = [e.expr + c + 1 for e in over if not e.equality and e.expr.coefficient(_C0) == -1]
        own = [e for e in ends if loop.var not in e.symbols and not any(s.startswith("$") for s in e.symbols)]
        plain = [e for e in own if ceildiv(e, self.width) == self.sweep]
        if not plain:
            raise self.unlike(f"how far {section.value} is folded")
        return plain[0]

    # ---- statements

    def limited(self, loop: Loop) -> Loop:
        """A sweep over a stretch."""
        here = sym(self.at)
        found = copy.deepcopy(loop)
        found.lo, found.hi = here * self.tiles, minimum((here + 1) * self.tiles, loop.hi)
        return found

    def folded(self, section: _Section) -> Body:
        """A fold of a stretch, left in the workspace."""
        here, made = sym(self.at), list[Stmt | Control]()

        def changed(claim: Claim) -> Claim:
            if claim.value != section.value:
                return claim
            if claim.over is None:
                return self.of_stretch(claim, here, self.extent(section))
            return replace(claim, over=(*claim.over, *self.within(here)))

        for s in section.body:
            own = self.limited(s) if isinstance(s, Loop) else copy.deepcopy(s)
            for x in walk([own]):
                if isinstance(x, Stmt) and isinstance(x.claim, Claim):
                    x.claim = changed(x.claim)
                if isinstance(x, Loop):
                    x.invariants = tuple(replace(i, claim=changed(i.claim)) for i in x.invariants)
            made.append(own)
        index = (*(sym(v) for v in self.nest.vars), here)
        claim = self.of_stretch(section.claim, here, self.extent(section))
        made.append(Store(dst=MemRef(self.buffers[section.value].name, index), src=FragRef(section.total), claim=claim))
        meetings = [s for s in section.body if isinstance(s, Sync)]
        return [*made, *copy.deepcopy(meetings[-1:])]  # nobody writes again what others still read

    def gathered(self, section: _Section) -> Body:
        """What the stretches of a row come to together."""
        frag = self.frag(section.total)
        dist = (Mode("lane", LANES, 0, 1), Mode("slot", self.most // LANES, 0, LANES))
        warps = self.role.threads // LANES
        dist = tuple(m for m in (*dist, Mode("warp", warps, None, 0)) if m.size > 1)
        parts = Frag(self.names.fresh(f"{section.total}_parts"), frag.dtype, (self.most,), dist)
        self.frags.append(parts)
        at = sym("$0")
        there = (lt(at, self.count),)
        index = (*(sym(v) for v in self.nest.vars), at)
        return [
            Load(
                dst=parts.name,
                src=MemRef(self.buffers[section.value].name, index),
                where=there,
                fill=identity(section.monoid, frag.dtype),
                claim=replace(self.of_stretch(section.claim, at, self.extent(section)), where=there),
            ),
            Fold(
                dst=section.total,
                monoid=section.monoid,
                src=FragRef(parts.name),
                axes=(0,),
                claim=section.claim,
                origin=section.origin,
            ),
        ]

    def frag(self, name: str) -> Frag:
        return next(f for f in self.kernel.frags if f.name == name)

    def buffer(self, section: _Section) -> Buffer:
        """Where stretches leave what they come to."""
        frag = self.frag(section.total)
        if frag.shape or len(section.claim.coords) > len(self.nest.vars):
            raise self.unlike(f"{section.value}, which is no number of a row")
        return Buffer(self.names.fresh(f"b_{section.total}"), frag.dtype, (*self.nest.counts, self.count), "workspace")

    def ghost(self, section: _Section) -> Version:
        """What the workspace holds."""
        env = {v: sym(f"${i}") for i, v in enumerate(self.nest.vars)}
        claim = replace(section.claim, coords=tuple(c.substitute(env) for c in section.claim.coords))
        at = sym(f"${len(self.nest.vars)}")
        return Version(buffer=self.buffers[section.value].name, claim=self.of_stretch(claim, at, self.extent(section)))

    # ---- launches

    def program(self, workgroups: int) -> MachineProgram:
        """The whole program."""
        kernels: list[Kernel] = []
        before: Body = []
        rest: Body = []
        for item in self.items:
            if isinstance(item, _Section):
                if any(isinstance(s, Loop) for s in rest):
                    raise self.unlike("a sweep between two folds")
                # What is stored of a row, the last launch stores.
                own = [s for s in (*before, *rest) if not _stores(s)]
                body = [*copy.deepcopy(own), *self.folded(item)]
                kernels.append(self.kernel_of(f"fold_{len(kernels)}", body, True, [self.ghost(item)]))
                before += [*rest, *self.gathered(item)]
                rest = []
            else:
                rest.append(item)
        counters: list[Counter] = []
        if not any(isinstance(s, Loop) for s in rest):
            counters = [self.closed(kernels[-1], [*before, *rest])]
        else:
            kernels.append(self.stored([*before, *rest]))
        kernels[-1].roles[0].body[:0] = self.tiles_said  # of the program's tiles, which the last launch fills
        host, launches = self.machine.host, list[Launch]()
        for kernel in kernels:
            (nest,) = (s for s in kernel.roles[0].body if isinstance(s, Tasks))
            grid = maximum(1, minimum(workgroups, prod(nest.counts, start=const(1))))
            launches.append(replace(host.launches[0], kernel=kernel.name, grid=grid))
        made = Host(dict(host.lets), [*host.workspace, *self.buffers.values()], [], launches, counters)
        kernels = [without_idle(replace(k, frags=[*self.kernel.frags, *self.frags])) for k in kernels]
        return chained(replace(self.machine, kernels=kernels, host=made))

    def kernel_of(self, name: str, body: Body, stretches: bool, ghosts: Sequence[Version] = ()) -> Kernel:
        """A launch: each stretch of each row is a task, or each row."""
        more = ((self.at,), (self.count,)) if stretches else ((), ())
        nest = replace(self.nest, vars=(*self.nest.vars, *more[0]), counts=(*self.nest.counts, *more[1]), body=body)
        return replace(self.kernel, name=name, roles=[replace(self.role, body=[*ghosts, nest])])

    def closed(self, kernel: Kernel, body: Body) -> Counter:
        """Has the last one that arrives at a row do the rest."""
        if any(isinstance(s, Sync) for s in walk(body)):
            raise self.unlike("threads that meet behind a fold")
        (nest,) = (s for s in kernel.roles[0].body if isinstance(s, Tasks))
        word = Counter(self.names.fresh("stretches"), self.nest.counts)
        fresh = self.of_its_own(body)
        arrival = Last(
            MemRef(word.name, tuple(sym(v) for v in self.nest.vars)), self.count, const(1), self.role.threads
        )
        nest.body.append(If(last=arrival, enters=self.nest.enters, then=fresh))
        return word

    def of_its_own(self, body: Body) -> Body:
        """The same with fragments of its own."""
        names: dict[str, str] = {}
        for s in walk(body):
            name = _makes(s)
            if name and name not in names:
                names[name] = self.names.fresh(f"{name}_last")
                frag = next(f for f in (*self.kernel.frags, *self.frags) if f.name == name)
                self.frags.append(replace(frag, name=names[name]))
        return renamed(body, names)

    def stored(self, body: Body) -> Kernel:
        """The last launch: sweeps that store, a stretch each, and what is stored of a row by its first stretch."""
        sweeps = any(isinstance(s, Loop) for s in body)
        made: Body = []
        for s in copy.deepcopy(body):
            if isinstance(s, Loop):
                made.append(self.limited(s))
            elif sweeps and _stores(s):
                made.append(If(conds=(Constraint(-sym(self.at)),), scope="workgroup", then=[s]))
            else:
                made.append(s)
        return self.kernel_of("rest", made, sweeps)


_C0 = next(iter(sym("c0").terms))[0][0]


def _makes(stmt: Stmt | Control) -> str:
    """The fragment that a statement makes; "" where it makes none."""
    return stmt.dst if isinstance(stmt, Compute | Load | Fold) else ""


def _stores(stmt: Stmt | Control) -> bool:
    """Whether a statement, or one under its condition, stores."""
    return any(isinstance(s, Store) for s in walk([stmt]))


def _value(stmt: Stmt) -> str:
    """The value of the program of which a statement's claim is."""
    return stmt.claim.value if isinstance(stmt.claim, Claim) else ""
