"""Entering regions: a loop or task nest must enumerate the instances of a source region exactly.

Blocks `[start(v), stop(v))` for v = first, next, ... must be non-empty, begin where the domain begins, each begin where
the last one stopped, and end where the domain ends; single coordinates are blocks of one. Tasks may enumerate the
blocks
of a `parallel` region backwards too. Its blocks may be dealt out: a variable of the tasks around a loop, which
enumerates nothing else, is the first of every so many that the loop goes through.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.algebra.expr import ZERO, Constraint, Expr, Max, Min, eq, ge, lt, maximum, minimum, sym
from treadle.algebra.sets import Facts
from treadle.checker.source import Source
from treadle.checker.verdict import Finding, Refused, require
from treadle.ir.core import Region, RegionArg


@dataclass(frozen=True)
class Range:
    """The values of a control variable: `lo, lo + step, ... < hi`."""

    var: str
    lo: Expr
    hi: Expr
    step: int = 1

    @property
    def inside(self) -> tuple[Constraint, ...]:
        """What holds of the variable."""
        v = sym(self.var)
        found = [ge(v, self.lo), lt(v, self.hi)]
        # Of a minimum of loaded numbers the remainder is a case for each side, and nothing hangs on it.
        told = self.lo.functions and any(isinstance(a, Min | Max) for a in self.lo.atoms())
        if self.step != 1 and not told:
            found.append(eq((v - self.lo) % self.step, 0))
        return tuple(found)

    @property
    def exit(self) -> Expr:
        """The first value that is not in the range."""
        length = self.hi - self.lo
        known = length.constant
        if known is not None:
            return self.lo + self.step * max(0, -(-known // self.step))
        return self.lo + self.step * ((maximum(length, 0) + self.step - 1) // self.step)

    def whole(self, shares: Range) -> Range | None:
        """The range of which each value of another variable has every so many values, from its own on: together they
        are the values of that range, each once."""
        p, count = sym(shares.var), (shares.hi - shares.lo).constant
        if shares.step != 1 or shares.lo != ZERO or count is None or count < 1 or self.step % count:
            return None
        each = self.step // count
        first = self.lo - each * p
        if shares.var in first.symbols | self.hi.symbols:
            return None
        return Range(self.var, first, self.hi, each)


@dataclass
class Cut:
    """One argument of a region bound by a control variable."""

    facts: Facts
    region: Region
    arg: RegionArg
    range: Range
    start: Expr
    stop: Expr
    bindings: dict[str, Expr]

    def check(self, source: Source) -> None:
        """*Errors*: findings of J1."""
        lo = source.expr_at(self.arg.domain.lo, self.bindings)
        hi = source.expr_at(self.arg.domain.hi, self.bindings)
        forward = not self.arg.reversed
        try:
            self._chain(lo, hi, forward)
        except Finding as wrong:
            if self.region.kind != "parallel":
                raise
            try:
                self._chain(lo, hi, not forward)
            except Finding:
                raise wrong from None
        if self.arg.size is not None:
            self._sized(source.expr_at(self.arg.size, self.bindings), lo, hi)

    def _chain(self, lo: Expr, hi: Expr, forward: bool) -> None:
        r, name = self.range, f"{self.region.name}.{self.arg.name}"
        v = sym(r.var)
        inside = self.facts.also(*r.inside)
        require(inside, ge(self.stop, self.start + 1), "J1", f"a block of {name} may be empty")
        first, last = (self.start, self.stop) if forward else (self.stop, self.start)
        begin, end = (lo, hi) if forward else (hi, lo)
        some = self.facts.also(lt(r.lo, r.hi))
        if not some.contradictory:
            require(
                some,
                eq(first.substitute({r.var: r.lo}), begin),
                "J1",
                f"the first block of {name} is not where its domain begins",
            )
        follow = inside.also(lt(v + r.step, r.hi))
        if not follow.contradictory:
            require(
                follow,
                eq(last, first.substitute({r.var: v + r.step})),
                "J1",
                f"consecutive blocks of {name} leave a gap or overlap",
            )
        final = inside.also(ge(v + r.step, r.hi))
        if not final.contradictory:
            require(final, eq(last, end), "J1", f"the last block of {name} does not end with its domain")
        none = self.facts.also(ge(r.lo, r.hi))
        if not none.contradictory:
            require(none, ge(lo, hi), "J1", f"no block of {name} is executed although its domain is not empty")

    def _sized(self, size: Expr, lo: Expr, hi: Expr) -> None:
        """Blocks of fixed size begin at `lo`, whichever way they are visited: with the chain proved, the one at `lo`
        stops at `lo + size`, the next one begins there, and only the one that reaches `hi` is shorter."""
        inside = self.facts.also(*self.range.inside)
        name = f"{self.region.name}.{self.arg.name}"
        require(inside, eq(self.stop, minimum(self.start + size, hi)), "J1", f"a block of {name} has not its size")


def argument_of(region: Region, name: str) -> RegionArg:
    """The argument called so. *Errors*: refused if the region has none."""
    for arg in region.args:
        if arg.name == name:
            return arg
    raise Refused("J1", f"{region.name} has no argument {name}", {})
