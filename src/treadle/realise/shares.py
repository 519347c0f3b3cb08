"""Contractions whose depth is shared out: tasks are stretches of a tile's iterations, whoever ends last folds them.

A machine program that goes through the whole depth of a tile in one task becomes one whose tasks are pairs (stretch,
tile), all of one launch: each leaves what its stretch comes to in the workspace and arrives at its tile's word; the one
that arrives last folds the stretches in their order and does what follows, as the tile's task did before. So the work
is dealt to workgroups in units of iterations, not of tiles, whatever their number, and nothing waits.

The statements stay; what changes is which contributions a sum has. The program is the one in which the contraction
starts from nothing (`apart`), so that sums of stretches may be joined, with all its iterations as one block.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from math import prod

from treadle.algebra.expr import ZERO, Constraint, Expr, const, lt, maximum, minimum, sym
from treadle.ir.core import Program
from treadle.machine.form import (
    Body,
    Claim,
    Compute,
    Control,
    Counter,
    Enter,
    Fold,
    FragRef,
    Host,
    If,
    Invariant,
    Kernel,
    Last,
    Let,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.realise.portions import MOST
from treadle.realise.replacing import replaced
from treadle.realise.ring import Stream
from treadle.realise.stretched import FOLDED, Stretched, Sum
from treadle.realise.threads import names_read
from treadle.realise.tidy import without_idle
from treadle.rules.derivation import Derivation
from treadle.rules.folds import apart

AT_ONCE = 2
"""Stretches whose loads are written out side by side."""


def starting_apart(program: Program, stream: Stream) -> Derivation:
    """The steps to a program whose contractions start from nothing. *Errors*: those of `apart`."""
    way = Derivation(program)
    for one in stream.contractions:
        way = way.then(apart, one.op.result.name)
    return way


def shareable(stream: Stream) -> str:
    """Why the depth of a stream cannot be shared out; "" where it can."""
    loop, block = stream.loop, stream.block
    if loop is None or block is None or stream.walked or loop.kind != "reduce" or len(loop.args) != 1:
        return "its contraction is no fold over blocks"
    if loop.order == "ordered" or block.reversed or block.size is not None:
        return "its contraction keeps its order"
    if block.domain.lo != ZERO or block.domain.hi != block.domain.dim.extent or stream.told:
        return "its depth hangs on the task"
    if len(stream.batches) != 1 or any(c.op.acc not in loop.carried for c in stream.contractions):
        return "its contraction is one of several steps"
    if len(loop.carried) != len(stream.contractions):
        return "it carries more than sums of products"
    pairs = [(t, v) for c in stream.contractions for t, v in ((c.left_tile, c.left), (c.right_tile, c.right))]
    if any(t is not None and t.value.name != v.name for t, v in pairs):
        return "two loads bring one operand"
    return ""


def in_shares(
    machine: MachineProgram,
    way: Derivation,
    stream: Stream,
    size: int,
    workgroups: int,
    *,
    left: bool = False,
    at_once: int = AT_ONCE,
) -> MachineProgram:
    """The program with stretches of `size` of the depth, a multiple of what an iteration takes, for so many workgroups.
    `left`: only of the tiles that are left over where all workgroups have had as many; `at_once`: stretches whose loads
    are under way together.

    *Requires*: `starting_apart` led to `way`, `shareable`. *Ensures*: the guard has what `Portions.facts` says.
    *Errors*: `realise/unsupported` for a task that is more than a loop of products and stores of threads behind it.
    """
    made = Shared(machine, way, stream, size, workgroups, left)
    made.at_once = at_once
    return made.program()


class Shared(Stretched):
    """What both roles are made of."""

    at_once = AT_ONCE

    # ---- loops over the depth

    def iterations(self, loop: Loop, step: int) -> Loop:
        """The loop over a stretch."""
        found = copy.deepcopy(loop)
        begin = self.portions.begin(sym(self.at))
        found.lo, found.enters = begin, ()
        found.hi = minimum(self.portions.end(sym(self.at), self.number), self.depth)
        here = {loop.var: sym(loop.var) - begin}
        end = sym(loop.var) + step
        for s in walk(found.body):
            if isinstance(s, Stmt) and isinstance(s.claim, Claim):
                s.claim = self.changed(s.claim, end)
            if isinstance(s, Loop):
                s.invariants = tuple(replace(i, claim=self.changed(i.claim, end)) for i in s.invariants)
            if isinstance(s, If):  # the first iteration of a task
                s.conds = tuple(Constraint(c.expr.substitute(here), c.equality) for c in s.conds)
        kept: list[Invariant] = []
        for i in found.invariants:
            one = next((s for s in self.sums if s.carried == i.claim.value), None)
            if one is None:
                raise self.unlike(f"{i.claim.value} is carried along")
            begun = (Constraint(FOLDED - begin), lt(FOLDED, sym(loop.var)))
            kept.append(replace(i, claim=self.whole_block(self.stretch(i.claim, one, *begun))))
        found.invariants = tuple(kept)
        return found

    def step_of(self, loop: Loop) -> int:
        step = loop.step.constant
        if step is None or self.portions.size % step:
            raise self.unlike(f"iterations of {loop.step} in stretches of {self.portions.size}")
        return step

    # ---- roles

    def program(self) -> MachineProgram:
        """The whole program."""
        roles = [self.produced(), self.consumed()]
        frags = [*self.kernel.frags, *self.frags]
        kernel = without_idle(replace(self.kernel, roles=roles, frags=frags))
        host, last = self.machine.host, self.machine.host.launches[-1]
        total = prod(self.nest.counts, start=self.portions.most)
        launch = replace(last, grid=maximum(1, minimum(self.workgroups, total)))
        agents = [const(self.consumer.agents)] if self.consumer.agents > 1 else []
        word = Counter(self.word, (*self.nest.counts, *agents))
        made = Host(
            {**host.lets, **self.lets},
            [*host.workspace, *(b for found in self.buffers.values() for b in found)],
            list(host.maps),
            [*host.launches[:-1], launch],
            [*host.counters, word],
        )
        return self.made(kernel, made)

    def made(self, kernel: Kernel, host: Host) -> MachineProgram:
        """The program with another kernel and host."""
        spent = tuple(f"permute {s.apart}: its stretches, which are folded in order" for s in self.sums)
        return replace(
            self.machine,
            program=self.way.program,
            host=host,
            kernels=[kernel if k is self.kernel else k for k in self.machine.kernels],
            numerics=(*spent, *self.machine.numerics),
        )

    def tasks(self, nest: Tasks, body: Body) -> Tasks:
        """A nest of tasks, a stretch each; those of one stretch follow each other."""
        if self.portions.first:
            number = Let(name=str(self.number), expr=self.portions.number([sym(v) for v in nest.vars]))
            some = If(conds=(lt(sym(self.at), self.number),), scope="workgroup", then=body)
            body = [number, some]
        counts = (self.portions.most, *nest.counts)
        return replace(nest, vars=(self.at, *nest.vars), counts=counts, body=body)

    def produced(self) -> Role:
        nest = self.nest_of(self.producer)
        loop = self.loop_of(nest)
        consumer, self.main = self.main, loop
        made = self.iterations(loop, self.step_of(loop))
        self.main = consumer
        body = [made if s is loop else s for s in nest.body]
        return replace(self.producer, body=[self.tasks(nest, body) if s is nest else s for s in self.producer.body])

    def parted(self) -> tuple[Body, Body]:
        """A consumer's task up to what its stretch comes to, and what follows."""
        first: Body = []
        tail: Body = []
        starts = {s.holder: s for s in self.sums}
        behind = False
        for s in self.nest.body:
            if s is self.main:
                first.append(self.iterations(self.main, self.step_of(self.main)))
                behind = True
            elif not behind and isinstance(s, Compute) and s.dst in starts:
                first.append(self.start(s, starts[s.dst]))
            elif _waits(s):
                first.append(s)
            else:
                tail.append(s)
        return first, tail

    def consumed(self) -> Role:
        first, tail = self.parted()
        first += [self.kept(s) for s in self.sums]
        body = [*first, self.last(tail)]
        ghosts: Body = [self.ghost(s, i) for s in self.sums for i in range(len(self.buffers[s.holder]))]
        place = self.consumer.body.index(self.nest)
        whole = [*self.consumer.body[:place], *ghosts, self.tasks(self.nest, body), *self.consumer.body[place + 1 :]]
        return replace(self.consumer, body=whole)

    def start(self, stmt: Compute, one: Sum) -> Compute:
        """A sum that begins from nothing."""
        claim = stmt.claim
        plain = stmt.fn == "copy" and len(stmt.args) == 1 and isinstance(stmt.args[0], int | float) and not stmt.where
        if not plain or not isinstance(claim, Claim) or claim.value != one.init or stmt.args[0] != 0:
            raise self.unlike(f"{one.carried} starts as something")
        return replace(stmt, claim=None)

    def kept(self, one: Sum) -> Stmt | Control:
        """An accumulator left in the workspace."""
        held = next(i.claim for i in self.main.invariants if i.holder == one.holder)
        claim = self.whole_block(self.stretch(held, one, *self.within(sym(self.at), self.number)))
        places = self.places(one, sym(self.at), claim.coords)
        made = [Store(dst=p, src=FragRef(one.holder), where=claim.where, claim=claim) for p in places]
        if len(made) == 1:
            return made[0]
        later = Constraint(sym(self.at) - 1)
        return If(conds=(later,), scope="workgroup", then=[made[1]], orelse=[made[0]])

    def ghost(self, one: Sum, number: int) -> Version:
        """What a place of the workspace holds when all have come."""
        buffer, singles = self.buffers[one.holder][number], self.singles()
        index = [sym(f"${i}") for i in range(len(buffer.shape))]
        at: Expr = ZERO
        if number or not self.portions.first:
            at = index.pop(0)
        if number:
            axis, begin = self.shortened(one)
            index[axis] = index[axis] + begin
        tile = {self.nest.vars[i]: index[k] for k, (_, i) in enumerate(singles)}
        coords = tuple(index[len(singles) :])
        tile |= {var: coords[axis] // block for var, (axis, block) in self.along(one).items()}
        stretches = self.portions.number([tile[v] for v in self.nest.vars]) if self.portions.first else self.number
        bound = tuple((name, index[k]) for k, (name, _) in enumerate(singles))
        claim = self.stretch(Claim(one.apart, coords, instance=bound), one, *self.within(at, stretches))
        return Version(buffer=buffer.name, claim=self.whole_block(claim))

    # ---- what the last one does

    def last(self, tail: Body) -> If:
        """The rest of a tile's task, by the one that arrives last."""
        index = tuple(sym(v) for v in self.nest.vars)
        me = self.consumer.index
        number: Expr = const(1)
        if me is not None:
            number = sym(me) + 1
            index = (*index, sym(me)) if self.consumer.agents > 1 else index
        body = self.folded(copy.deepcopy(tail))
        if me is not None and self.consumer.agents == 1:
            body = [replaced(s, {me: ZERO}) for s in body]
            number = const(1)
        self.refuse_held(body)
        arrival = Last(MemRef(self.word, index), self.number, number, self.consumer.threads)
        return If(last=arrival, enters=self.nest.enters, then=body)

    def refuse_held(self, body: Body) -> None:
        """Refuses a rest of a task that still meets others, or reads accumulators that are in shares."""
        held = {s.holder for s in self.sums}
        if any(isinstance(s, Sync) or held & names_read(s) for s in walk(body)):
            raise self.unlike("what follows the products reads them elsewhere, or leaves by engines")

    def folded(self, body: Body) -> Body:
        """A body in which copies of accumulators are folds of stretches."""
        made: Body = []
        for s in body:
            if isinstance(s, Loop):
                s.body = self.folded(s.body)
            elif isinstance(s, If):
                s.then, s.orelse = self.folded(s.then), self.folded(s.orelse)
            one = self.copied(s)
            made += [s] if one is None else self.fold(s, one)
        return made

    def copied(self, stmt: Stmt | Control) -> Sum | None:
        """The sum of whose accumulator a statement takes a slice."""
        if not isinstance(stmt, Compute) or stmt.fn != "copy" or not isinstance(stmt.claim, Claim) or stmt.where:
            return None
        (src,) = stmt.args if len(stmt.args) == 1 else (None,)
        if not isinstance(src, FragRef):
            return None
        return next((s for s in self.sums if s.holder == src.name and s.result == stmt.claim.value), None)

    def fold(self, stmt: Stmt | Control, one: Sum) -> Body:
        """A slice of a sum: its stretches in their order, then onto what the program starts from."""
        assert isinstance(stmt, Compute) and isinstance(stmt.claim, Claim)
        claim = stmt.claim
        frag = next(f for f in self.kernel.frags if f.name == stmt.dst)
        total, part = (replace(frag, name=self.names.fresh(f"{frag.name}_{n}")) for n in ("sum", "part"))
        self.frags += [total, part]
        at = sym(self.names.fresh("i"))
        first, *later = self.kept_at(one, at, stmt)
        alone = self.added(first, ZERO, claim, one, part.name, total.name) if later else []
        begin = const(1) if later else ZERO
        loop = Loop(var=str(at), lo=begin, hi=self.number, step=const(1), unroll=self.at_once, origin=stmt.origin)
        before = lt(FOLDED, self.portions.before(at, self.number))
        loop.invariants = (Invariant(total.name, self.stretch(claim, one, before)),)
        loop.body = self.added((first, *later)[-1], at, claim, one, part.name, total.name)
        block = self.names.fresh(self.arg.name)
        bounds = sym(block), minimum(sym(block) + MOST, self.depth)
        region = Loop(var=block, lo=ZERO, hi=self.depth, step=const(MOST))
        region.enters = (Enter(self.main.enters[0].region, ((self.arg.name, bounds),)),)
        region.invariants = (Invariant(frag.name, replace(claim, value=one.carried)),)
        both = FragRef(frag.name), FragRef(total.name)
        region.body = [
            Compute(dst=total.name, fn="copy", args=(0.0 if frag.dtype.is_float else 0,)),
            *alone,
            loop,
            Compute(dst=frag.name, fn="add", args=both, claim=replace(claim, value=one.new), origin=stmt.origin),
        ]
        zero = 0.0 if frag.dtype.is_float else 0
        return [Compute(dst=frag.name, fn="copy", args=(zero,), claim=replace(claim, value=one.init)), region]

    def added(self, place: MemRef, at: Expr, claim: Claim, one: Sum, part: str, total: str) -> Body:
        """One stretch of a slice, loaded and added to those before it."""
        of = self.stretch(claim, one, *self.within(at, self.number))
        upto = self.stretch(claim, one, lt(FOLDED, self.portions.end(at, self.number)))
        return [
            Load(dst=part, src=place, where=claim.where, claim=of),
            Fold(dst=total, monoid="add", src=FragRef(part), acc=FragRef(total), claim=upto),
        ]


def _waits(stmt: Stmt | Control) -> bool:
    """Whether a statement is of rings and groups alone."""
    return not isinstance(stmt, Compute | Load | Store | Fold | Loop | If) and isinstance(stmt, Stmt)
