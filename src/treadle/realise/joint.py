"""Contractions whose depth is shared out in a cluster: its workgroups have a stretch each of one tile, and fold it
together.

Each workgroup leaves what its stretch comes to in its shared memory. When all of the cluster have met, each folds the
stretches of its own slice of the tile's columns, read from the memory of all, and does what follows for that slice. So
no sum goes through memory, and all of the cluster fold. All workgroups have as many iterations, whatever the depth:
where a stretch lies beyond its end, engines deliver zeros.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from math import prod

from treadle.algebra.expr import ZERO, Expr, const, lt, maximum, minimum, sym
from treadle.machine.form import (
    Body,
    Buffer,
    Compute,
    FragRef,
    Host,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Role,
    Store,
    Sync,
    Tasks,
    Version,
)
from treadle.machine.vocabulary import RANK
from treadle.realise.clusters import Cluster
from treadle.realise.replacing import replaced
from treadle.realise.ring import Stream
from treadle.realise.shares import Shared
from treadle.realise.stretched import Sum
from treadle.realise.threads import lay_out
from treadle.realise.tidy import without_idle
from treadle.rules.derivation import Derivation

APART = 8
"""Numbers that a row of sums in shared memory is longer: rows of a warp's store begin in other banks."""


def in_clusters(
    machine: MachineProgram, way: Derivation, stream: Stream, size: int, together: int, workgroups: int
) -> MachineProgram:
    """The program with the depth of a tile in stretches of `size`, for clusters of `together` workgroups.

    *Requires*: `starting_apart` led to `way`, `shareable`; one consumer, results in `together` slices of columns; the
    guard has the depth at most `size * together`. *Errors*: `realise/unsupported` as `in_shares`.
    """
    return _Joint(machine, way, stream, size, together, workgroups).program()


class _Joint(Shared):
    """What both roles are made of."""

    at_once = 4

    def __init__(
        self, machine: MachineProgram, way: Derivation, stream: Stream, size: int, together: int, workgroups: int
    ) -> None:
        super().__init__(machine, way, stream, size, workgroups, left=False)
        self.at = RANK
        self.cluster = Cluster(together)
        self.number = const(together)
        if self.consumer.agents != 1 or len(machine.kernels) != 1:
            raise self.unlike("several consumers, or launches, of a cluster that folds")

    def buffer(self, one: Sum, later: bool) -> Buffer:
        del later
        frag = next(f for f in self.kernel.frags if f.name == one.holder)
        rows, columns = frag.shape
        shape = const(rows), const(columns + APART)
        return Buffer(self.names.fresh(f"s_{one.holder}"), frag.dtype, shape, "shared", 128)

    def kept_at(self, one: Sum, at: Expr, stmt: Compute) -> list[MemRef]:
        (src,) = stmt.args
        assert isinstance(src, FragRef) and src.coords is not None
        return [MemRef(self.buffers[one.holder][0].name, src.coords, rank=at)]

    def iterations(self, loop: Loop, step: int) -> Loop:
        """The loop over a stretch: as many steps in each workgroup, told by its number."""
        found = super().iterations(loop, step)
        begin = self.portions.begin(sym(RANK))
        found = replaced(found, {loop.var: sym(loop.var) + begin})
        found.lo, found.hi = ZERO, const(self.portions.size)
        return found

    def tasks(self, nest: Tasks, body: Body) -> Tasks:
        return replace(nest, over="clusters", body=body)

    def around(self, role: Role, nest: Tasks, body: Body) -> Role:
        """A role whose cluster meets where its workgroup did, and at the end."""
        whole: Body = []
        for s in role.body:
            if s is nest:
                whole.append(self.tasks(nest, body))
            elif isinstance(s, Sync) and s.kind == "barrier.sync":
                whole += self.cluster.farewell()
            else:
                whole.append(s)
        return replace(role, body=[*whole, *self.cluster.farewell()])

    def produced(self) -> Role:
        (nest,) = (s for s in super().produced().body if isinstance(s, Tasks))
        body = [*nest.body, *self.cluster.farewell(), *self.cluster.farewell()]
        return self.around(self.producer, self.nest_of(self.producer), body)

    def consumed(self) -> Role:
        first, tail = self.parted()
        for one in self.sums:
            first += self.left(one)
        body = [*first, *self.cluster.farewell(), *self.own_slice(tail), *self.cluster.farewell()]
        return self.around(self.consumer, self.nest, body)

    def left(self, one: Sum) -> Body:
        """What a stretch comes to, in shared memory."""
        held = next(i.claim for i in self.main.invariants if i.holder == one.holder)
        claim = self.whole_block(self.stretch(held, one, *self.within(sym(RANK), self.number)))
        buffer = self.buffers[one.holder][0]
        frag = next(f for f in self.kernel.frags if f.name == one.holder)
        inside = replace(claim, where=(*claim.where, lt(sym("$1"), frag.shape[1])))
        place = MemRef(buffer.name, (sym("$0"), sym("$1")))
        return [Version(buffer=buffer.name, claim=inside), Store(dst=place, src=FragRef(one.holder), claim=claim)]

    def own_slice(self, tail: Body) -> Body:
        """What follows the products, for the slice of columns that has the workgroup's number."""
        made: Body = []
        for s in self.folded(copy.deepcopy(tail)):
            if isinstance(s, Load | Compute):  # numbers of rows that all slices need
                made.append(s)
                continue
            if not isinstance(s, Loop) or s.enters or s.invariants or s.hi.constant != self.cluster.size:
                raise self.unlike("more than slices of columns behind the products")
            made += [replaced(x, {s.var: sym(RANK)}) for x in s.body]
        self.refuse_held(made)
        return made

    def program(self) -> MachineProgram:
        roles = [self.produced(), self.consumed()]
        buffers = [*self.kernel.buffers, *(b for found in self.buffers.values() for b in found)]
        frags = [*self.kernel.frags, *self.frags]
        kernel = without_idle(replace(self.kernel, roles=roles, frags=frags, buffers=buffers))
        shared, size = lay_out(kernel), self.cluster.size
        total = prod(self.nest.counts, start=const(1))
        host, (last,) = self.machine.host, self.machine.host.launches
        grid = maximum(1, minimum(self.workgroups // size, total)) * size
        launch = replace(last, grid=grid, cluster=size, shared_bytes=shared)
        return self.made(kernel, Host(dict(host.lets), list(host.workspace), list(host.maps), [launch]))
