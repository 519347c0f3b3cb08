"""J5 of distributed fragments: every thread holds what it computes with.

A statement gives each thread the elements of its destination that the thread holds. The operands' elements that they
need must lie in the same thread, those that a fold needs in the same warp: nothing moves between threads unsaid.
Distributions and shapes are numbers, so this is decided at every element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.expr import Atom, Expr, Fn, sym
from treadle.checker.places import digit_values, places
from treadle.checker.verdict import Refused, Unsure
from treadle.checker.warps import check_warp_product
from treadle.hardware.layouts import WARP_ATOMS
from treadle.machine.form import (
    Compute,
    Copy,
    Fold,
    Frag,
    FragRef,
    If,
    Kernel,
    Let,
    Load,
    Loop,
    MemRef,
    Mma,
    Mode,
    Role,
    Scan,
    Stmt,
    Store,
    Tasks,
    walk,
)

Array = NDArray[np.int64]
Coords = tuple[Expr, ...]
_MOST = 1 << 24


@dataclass
class Locality:
    """The walk over one role. `at` is the statement in question."""

    kernel: Kernel
    role: Role
    at: object = None
    frags: dict[str, Frag] = field(default_factory=dict[str, Frag])
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])

    def run(self) -> None:
        """*Errors*: findings of J5."""
        if any(isinstance(s, Tasks) and s.over == "threads" for s in self.role.body) or self.role.threads == 1:
            for s in walk(self.role.body):  # an agent is one thread, which holds everything
                self.at = s
                if isinstance(s, Mma) and s.atom in WARP_ATOMS:
                    raise Refused("J5", f"{s.atom} is executed by a warp, not by one thread", {"threads": 1})
            return
        self.frags = {f.name: f for f in self.kernel.frags}
        for s in walk(self.role.body):
            self.at = s
            if isinstance(s, Let):
                self.lets[s.name] = s.expr.substitute(self.lets)
            elif isinstance(s, Load | Compute | Fold | Mma):
                self._into(s, self.frags[s.dst])
            elif isinstance(s, Store):
                self._into(s, self.frags[s.src.name])

    def _into(self, s: Stmt, made: Frag) -> None:
        """The operands of a statement whose elements are those of `made`."""
        identity = _identity(len(made.shape))
        for e in expressions(s):
            for atom in e.atoms():
                if isinstance(atom, Fn) and atom.name in self.frags:
                    self._near(made, (), atom.name, atom.args)
        match s:
            case Compute(args=args):
                # what is picked may come from another lane of the warp
                among = ("warp",) if s.fn == "pick" else ("lane", "warp")
                for x in args:
                    if isinstance(x, FragRef) and x.name in self.frags:
                        self._near(made, (), x.name, identity if x.coords is None else x.coords, among=among)
            case Store(mask=FragRef() as mask):
                self._near(made, (), mask.name, identity if mask.coords is None else mask.coords)
            case Scan():
                self._scan(s, made, identity)
            case Fold():
                self._fold(s, made, identity)
            case Mma():
                if s.acc is not None:
                    self._near(made, (), s.acc.name, identity if s.acc.coords is None else s.acc.coords)
                if s.atom.startswith("wgmma"):
                    return  # its operands lie as `hardware.layouts` says
                if s.atom in WARP_ATOMS:
                    check_warp_product(s, self.frags, self.lets, self.role.threads)
                    return
                if s.atom not in ("fma", "ffma", "muladd"):
                    raise Unsure("J5", f"{s.atom} on fragments of many threads", missing="a rule for its layout")
                for x in (s.a, s.b):
                    if isinstance(x, FragRef) and x.coords is not None:
                        self._near(made, s.contracted, x.name, x.coords)
            case _:
                pass

    def _fold(self, s: Fold, made: Frag, identity: Coords) -> None:
        if s.acc is not None:
            self._near(made, (), s.acc.name, identity if s.acc.coords is None else s.acc.coords)
        if not s.axes:
            self._near(made, (), s.src.name, identity if s.src.coords is None else s.src.coords)
            return
        source = self.frags[s.src.name]
        if any(m.who == "warp" and m.axis in s.axes and m.size > 1 for m in source.dist):
            raise Refused("J5", f"{s.src.name} is folded across warps without an exchange", {})
        kept = [a for a in range(len(source.shape)) if a not in s.axes]
        coords = [Expr(())] * len(source.shape)
        for i, axis in enumerate(kept):
            coords[axis] = sym(f"${i}")
        # of folded axes, other lanes' elements are exchanged inside the warp
        self._near(made, (), s.src.name, tuple(coords), free=frozenset(s.axes))

    def _scan(self, s: Scan, made: Frag, identity: Coords) -> None:
        """Lanes exchange what they scanned inside their warp, each its own part of a fragment of one distribution."""
        if s.acc is not None:
            self._near(made, (), s.acc.name, identity if s.acc.coords is None else s.acc.coords)
        source = self.frags[s.src.name]
        if any(m.who == "warp" and m.axis in s.axes and m.size > 1 for m in source.dist):
            raise Refused("J5", f"{s.src.name} is scanned across warps without an exchange", {})
        if source.dist != made.dist or source.shape != made.shape:
            raise Unsure("J5", f"{s.src.name} is scanned into another distribution", missing="that of the source")

    def _near(
        self,
        made: Frag,
        contracted: Sequence[int],
        name: str,
        coords: Coords,
        free: frozenset[int] = frozenset(),
        among: Sequence[str] = ("lane", "warp"),
    ) -> None:
        """The thread of each element of `made` holds the element of `name` at `coords`; a thread of its warp, where
        `among` warps alone."""
        held = self.frags[name]
        digits = tuple(
            m for m in held.dist if m.who in among and m.axis is not None and m.size > 1 and m.axis not in free
        )
        if not digits or (held.dist == made.dist and coords == _identity(len(made.shape)) and not free):
            return
        wanted = tuple(
            (m.axis, m.stride, m.size, _rest(coords[m.axis].substitute(self.lets), m.stride * m.size))
            for m in digits
            if m.axis is not None
        )
        positions = tuple(i for i, m in enumerate(held.dist) if m in digits)
        if not _held(made.dist, made.shape, tuple(contracted), held.dist, positions, wanted, self.role.threads):
            raise Refused("J5", f"a thread needs an element of {name} that another thread holds", {})


def expressions(s: object) -> Iterator[Expr]:
    """Every index expression that a statement or control evaluates; not those of its claims."""
    if isinstance(s, Load | Store | Compute | Copy):
        yield from (c.expr for c in s.where)
    if isinstance(s, Compute) and s.expr is not None:
        yield s.expr
    if isinstance(s, Loop):
        yield from (s.lo, s.hi, s.step)
    if isinstance(s, Tasks):
        yield from s.counts
    if isinstance(s, If):
        yield from (c.expr for c in s.conds)
    if isinstance(s, Let):
        yield s.expr
    for name in ("src", "dst", "a", "b", "acc", "mask", "object", "signal"):
        ref = getattr(s, name, None)
        if isinstance(ref, MemRef):
            yield from ref.index
            if ref.version is not None:
                yield ref.version
            if isinstance(ref.rank, Expr):
                yield ref.rank
        elif isinstance(ref, FragRef):
            yield from ref.coords or ()
    for ref in getattr(s, "args", ()):
        if isinstance(ref, FragRef):
            yield from ref.coords or ()
        elif isinstance(ref, MemRef):
            yield from ref.index
        elif isinstance(ref, tuple):  # numbers of a synchronisation
            yield ref[1]


def _identity(rank: int) -> Coords:
    return tuple(sym(f"${i}") for i in range(rank))


def _rest(e: Expr, period: int) -> Expr:
    """The expression without terms that are multiples of the period, whatever their variables are."""
    kept = e
    for monomial, c in e.terms:
        if monomial and c % period == 0 and not any(n.startswith("$") for n in _symbols(monomial)):
            kept = kept - Expr(((monomial, c),))
    return kept


def _symbols(monomial: tuple[Atom, ...]) -> frozenset[str]:
    return Expr(((monomial, 1),)).symbols


@lru_cache(maxsize=4096)
def _held(
    made: tuple[Mode, ...],
    shape: tuple[int, ...],
    contracted: tuple[int, ...],
    dist: tuple[Mode, ...],
    positions: tuple[int, ...],
    wanted: tuple[tuple[int, int, int, Expr], ...],
    threads: int,
) -> bool:
    coords = places(made, shape, threads)
    size = threads * (coords[0].shape[1] if coords else 1) * int(np.prod(contracted, dtype=np.int64))
    if size > _MOST:
        raise Unsure("J5", f"{size} elements to compare", missing="smaller fragments")
    extra = len(contracted)
    env: dict[str, Any] = {f"${i}": c.reshape(c.shape + (1,) * extra) for i, c in enumerate(coords)}
    for i, n in enumerate(contracted):
        env[f"${len(shape) + i}"] = np.arange(n).reshape((1, 1) + (1,) * i + (n,) + (1,) * (extra - i - 1))
    digits = digit_values(dist, threads)
    for at, (_, stride, base, e) in zip(positions, wanted):
        free = e.symbols - env.keys()
        if free or e.functions:
            raise Unsure("J5", f"the place {e} of an operand's element", missing="coordinates that are numbers")
        need = np.asarray(e.evaluate(env)) // stride % base
        own = digits[at].reshape((threads, 1) + (1,) * extra)
        if not bool(np.all(need == own)):
            return False
    return True
