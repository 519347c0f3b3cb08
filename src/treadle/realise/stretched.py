"""What stretches of a depth come to: which sums a program of whole tiles carries, where the workspace holds those of
each stretch, and the claims of a stretch in the place of those of the whole depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.algebra.expr import ZERO, Constraint, Expr, Sym, lt, maximum, sym
from treadle.base.names import Names
from treadle.ir.ops.elementwise import Elementwise
from treadle.ir.ops.fold import Mma
from treadle.machine.form import (
    Buffer,
    Claim,
    Compute,
    Frag,
    Loop,
    MachineProgram,
    MemRef,
    Role,
    Tasks,
    walk,
)
from treadle.realise.choices import NotLowered
from treadle.realise.portions import Portions, left_over
from treadle.realise.ring import Stream
from treadle.rules.derivation import Derivation

FOLDED = sym("c0")
"""The coordinate along the depth in claims."""


@dataclass(frozen=True)
class Sum:
    """A contraction's names: what it carries, starts as, yields and ends as, its sum apart, its accumulator."""

    carried: str
    init: str
    new: str
    result: str
    apart: str
    holder: str


class Stretched:
    """A machine program whose tasks are tiles, and names for one whose tasks are stretches of them."""

    def __init__(
        self, machine: MachineProgram, way: Derivation, stream: Stream, size: int, workgroups: int, left: bool
    ) -> None:
        self.machine, self.way, self.workgroups = machine, way, workgroups
        self.args = {a.name: a for r in stream.nest for a in r.args}
        self.kernel = next(k for k in machine.kernels if k.name == machine.host.launches[-1].kernel)
        self.producer, self.consumer = self.kernel.roles
        self.nest = self.nest_of(self.consumer)
        loop, block = stream.loop, stream.block
        assert loop is not None and block is not None
        self.region, self.arg = loop, block
        self.depth = block.domain.hi
        names = [*(f.name for f in self.kernel.frags), *(b.name for b in self.kernel.buffers), *self.nest.vars]
        names += [s.var for r in self.kernel.roles for s in walk(r.body) if isinstance(s, Loop)]
        names += [c for r in self.kernel.roles for c in (r.index or "", *r.counters)]
        names += [b.name for b in (*self.kernel.barriers, *machine.host.workspace)]
        names += [m.name for m in machine.host.maps]
        self.names = Names(
            [*names, *(t.name for t in machine.program.tensors), *(d.name for d in machine.program.dims)]
        )
        self.inside = {v.name for op in loop.body.ops for v in op.results}
        self.main = self.loop_of(self.nest)
        self.at = self.names.fresh("share")
        self.lets: dict[str, Expr] = {}
        first = left_over(self.nest.counts, workgroups) if left else ()
        for var, at in zip(self.nest.vars, first):
            self.lets[self.names.fresh(f"first_{var}")] = at
        self.portions = Portions(self.depth, size, tuple(sym(n) for n in self.lets))
        self.number = sym(self.names.fresh("stretches")) if left else self.portions.most
        """Stretches of the task's tile."""
        self.sums = [self.sum(i) for i in range(len(loop.carried))]
        self.frags: list[Frag] = []
        self.buffers = {
            s.holder: [self.buffer(s, cut) for cut in ((False, True) if left else (False,))] for s in self.sums
        }
        self.word = self.names.fresh("shares")

    def unlike(self, found: str) -> NotLowered:
        return NotLowered(
            doing=f"realising {self.machine.program.name} in shares of its depth",
            found=found,
            expected="a loop of products and stores of threads behind it",
            hint="another plan has a task a tile",
        )

    # ---- what is there

    def nest_of(self, role: Role) -> Tasks:
        found = [s for s in role.body if isinstance(s, Tasks)]
        if len(found) != 1 or found[0].over != "persistent":
            raise self.unlike(f"{role.name} has no nest of tasks over workgroups that stay")
        return found[0]

    def loop_of(self, nest: Tasks) -> Loop:
        found = [s for s in nest.body if isinstance(s, Loop) and _binds(s, self.arg.name)]
        if len(found) != 1:
            raise self.unlike("a task goes through its depth in several loops")
        return found[0]

    def sum(self, number: int) -> Sum:
        """The names of a carried sum."""
        carried, new = self.region.carried[number].name, self.region.body.yields[number].name
        held = [i.holder for i in self.main.invariants if i.claim.value == carried]
        made = next(op for op in self.way.program.body.walk() if any(r.name == new for r in op.results))
        if len(held) != 1 or not isinstance(made, Elementwise) or len(made.args) != 2:
            raise self.unlike(f"{carried} is no sum of products")
        of = made.args[1]
        ops = (op for op in self.way.program.body.walk() if isinstance(op, Mma))
        if not any(op.result.name == of.name for op in ops):
            raise self.unlike(f"{carried} is no sum of products")
        return Sum(carried, self.region.inits[number].name, new, self.region.results[number].name, of.name, held[0])

    def singles(self) -> list[tuple[str, int]]:
        """Arguments that are one coordinate of a task, with the place of their variable among the task's."""
        found: list[tuple[str, int]] = []
        for enter in self.nest.enters:
            for name, bounds in enter.binds:
                if len(bounds) == 1:
                    found.append((name, next(i for i, v in enumerate(self.nest.vars) if bounds[0] == sym(v))))
        return found

    # ---- workspace

    def buffer(self, one: Sum, later: bool) -> Buffer:
        """Where the sums of stretches lie: by stretch, single coordinates, the tile's own. Where tiles differ, the
        first stretch of all of them has a place apart from the `later` ones of those that are cut."""
        value = next(v for v in self.region.carried if v.name == one.carried)
        axes = [*(self.nest.counts[i] for _, i in self.singles()), *(p.dim.extent for p in value.type.axes)]
        if later:
            axis, begin = self.shortened(one)
            axes[axis] = maximum(0, axes[axis] - begin)
        counts = () if self.portions.first and not later else (self.portions.most,)
        return Buffer(self.names.fresh(f"b_{one.holder}"), value.type.dtype, (*counts, *axes), "workspace")

    def shortened(self, one: Sum) -> tuple[int, Expr]:
        """The axis behind the stretch along which tiles that are cut begin, and where."""
        var, first = self.nest.vars[0], self.portions.first[0]
        for number, (_, i) in enumerate(self.singles()):
            if i == 0:
                return number, first
        axis, block = self.along(one)[var]
        return len(self.singles()) + axis, block * first

    def along(self, one: Sum) -> dict[str, tuple[int, int]]:
        """Variables of tasks that are blocks of a sum's axes: which axis, how many coordinates."""
        value = next(v for v in self.region.carried if v.name == one.carried)
        found: dict[str, tuple[int, int]] = {}
        for enter in self.nest.enters:
            for name, bounds in enter.binds:
                var = next((v for v in self.nest.vars if v in bounds[0].symbols), "")
                part = self.args[name].part if len(bounds) == 2 else None
                if var and part in value.type.axes:
                    found[var] = value.type.axes.index(part), bounds[0].coefficient(Sym(var))
        return found

    def places(self, one: Sum, at: Expr, coords: Sequence[Expr]) -> list[MemRef]:
        """Where a stretch's sum lies, if it is the first of a tile, and if it is a later one; one place where all
        tiles are cut."""
        index = [*(sym(self.nest.vars[i]) for _, i in self.singles()), *coords]
        first, *more = self.buffers[one.holder]
        if not more:
            return [MemRef(first.name, (at, *index))]
        axis, begin = self.shortened(one)
        later = [e - begin if i == axis else e for i, e in enumerate(index)]
        return [MemRef(first.name, tuple(index)), MemRef(more[0].name, (at, *later))]

    def kept_at(self, one: Sum, at: Expr, stmt: Compute) -> list[MemRef]:
        """The same, of the slice that a statement takes of an accumulator."""
        assert isinstance(stmt.claim, Claim)
        return self.places(one, at, stmt.claim.coords)

    # ---- claims

    def whole_block(self, claim: Claim) -> Claim:
        """A claim on a value of the ordered region, all iterations of which are one block."""
        name = self.arg.name
        return replace(claim, instance=(*claim.instance, (f"{name}.start", ZERO), (f"{name}.stop", self.depth)))

    def stretch(self, of: Claim, one: Sum, *over: Constraint) -> Claim:
        """The sum apart, where `of` says a state, with these contributions."""
        bounds = (Constraint(FOLDED), lt(FOLDED, self.depth))
        return replace(of, value=one.apart, bound=(str(FOLDED),), over=(*bounds, *over))

    def within(self, at: Expr, number: Expr) -> tuple[Constraint, ...]:
        """That a contribution is of a stretch, of a tile that has so many."""
        return Constraint(FOLDED - self.portions.begin(at)), lt(FOLDED, self.portions.end(at, number))

    def changed(self, claim: Claim, end: Expr) -> Claim:
        """A claim of an iteration, whose contributions end at `end`."""
        if claim.value not in self.inside:
            return claim
        one = next((s for s in self.sums if s.new == claim.value), None)
        if one is None:
            return self.whole_block(claim)
        own = [c for c in claim.over or (lt(FOLDED, end),) if not self.begins(c)]
        return self.whole_block(
            self.stretch(replace(claim, bound=()), one, *self.within(sym(self.at), self.number), *own)
        )

    def begins(self, c: Constraint) -> bool:
        """Whether a condition says that contributions are none of an earlier iteration."""
        return self.main.var in c.symbols and c.expr.coefficient(Sym(str(FOLDED))) == 1


def _binds(loop: Loop, name: str) -> bool:
    """Whether a loop goes through the blocks of an argument."""
    return len(loop.enters) == 1 and [n for n, _ in loop.enters[0].binds] == [name]
