"""The next block's first contraction issued together with this block's second: a chain whose consumers are one step
ahead in the first of two rings.

While threads compute what stands between the two contractions of a block, the tensor cores have nothing of theirs to
do. So the first block's product is made in front of the loop; an iteration computes with what it finds, then issues the
product of the block after it and its own second one, and gives the first ring's slot back before the second's is read
out. The producer fills the rings in the order of the loop, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from treadle.algebra.expr import Constraint, Expr, const, lt, sym
from treadle.machine.form import Advance, Body, Claim, Compute, FragRef, If, Invariant, Loop, Mma, Sync
from treadle.realise.replacing import renamed


@dataclass(frozen=True)
class Parts:
    """What an iteration of a chain's loop does, in order: waits for the first ring, issues its contraction, waits for
    it and gives the slot back; `between`; waits for the second ring (and for its turn), issues, waits and gives back;
    the rest. Hand-overs of turns are left out of the first."""

    first: Body
    given: Body
    between: Body
    awaited: Body
    second: Body
    rest: Body


def parts(body: Body, first: tuple[str, str], second: tuple[str, str]) -> Parts | None:
    """The parts of an iteration, whose rings are told by the barrier of full slots and the counter; None where there is
    more in it than two contractions with what is computed between them."""
    bounds: list[int] = []
    for full, counter in (first, second):
        start = next((i for i, s in enumerate(body) if isinstance(s, Sync) and _waits(s, full)), None)
        stop = next((i for i, s in enumerate(body) if isinstance(s, Advance) and s.counter == counter), None)
        if start is None or stop is None:
            return None
        bounds += [start, stop + 1]
    a, b, c, d = bounds
    if a != 0 or not b <= c:
        return None
    own = [s for s in body[:b] if not _turns(s)]
    other = body[c:d]
    done, over = (next((i for i, s in enumerate(x) if _drains(s)), None) for x in (own, other))
    issues = next((i for i, s in enumerate(other) if isinstance(s, Sync) and s.kind == "wgmma.fence"), None)
    if done is None or over is None or issues is None or not all(isinstance(s, Sync | Mma | Loop) for s in own[:done]):
        return None
    return Parts(own[:done], own[done + 1 :], body[b:c], other[:issues], other[issues:over], [*other[over:], *body[d:]])


def ahead(
    loop: Loop, found: Parts, holder: str, claim: Claim, hand_over: Sequence[Sync], fresh: Callable[[str], str]
) -> If:
    """Puts an iteration's first contraction one step ahead; gives the one in front of the loop. `claim`: what its
    accumulator `holder` holds; `hand_over`: statements that let another consumer issue."""
    step = sym(loop.var) + loop.step
    claim = replace(claim, where=(*claim.where, lt(sym(loop.var), loop.hi)))  # of the last iteration's next, nothing
    now: Mapping[str, Expr] = {loop.var: loop.lo}
    then: Mapping[str, Expr] = {loop.var: step}
    wait = Sync(kind="wgmma.wait", args=(("depth", const(0)),))
    before = If(conds=(lt(loop.lo, loop.hi),), scope="workgroup")
    before.then += moved([*found.first, wait, *found.given], now, fresh)
    more = If(conds=(lt(step, loop.hi),), scope="workgroup")
    behind = Sync(kind="wgmma.wait", args=(("depth", const(1)),))
    more.then += [*moved(found.first, then, fresh), *found.second, behind, *found.given]
    nothing = Compute(dst=holder, fn="copy", args=(0.0,), claim=_moved(claim, then, fresh))
    more.orelse += [*moved(found.second, {}, fresh), nothing]
    loop.invariants = (*loop.invariants, Invariant(holder, claim))
    between = found.between
    copy = only_copied(between, [*found.awaited, more, *found.rest], holder)
    if copy is not None:
        between = renamed(between, {copy: holder})
    loop.body[:] = [*between, *found.awaited, more, *hand_over, *found.rest]
    return before


def only_copied(body: Body, later: Body, holder: str) -> str | None:
    """The fragment that is nothing but a copy of an accumulator, some of its elements masked: in its place it takes no
    registers of its own.

    *Ensures*: what is computed stays the same with `holder` in place of it in `body`: the accumulator is not read
    there after the copy is begun, and `later`, where it holds another block's, does not read the copy. Of several such
    copies, which would take one another's place, it is the first."""
    made: dict[str, list[Compute]] = {}
    order = list(_statements(body))
    for one in order:
        if isinstance(one, Compute):
            made.setdefault(one.dst, []).append(one)
    for name, makers in made.items():
        plain = all(m.fn == "copy" and _read(m) and set(_read(m)) <= {holder, name} for m in makers)
        first = next(i for i, s in enumerate(order) if s in makers)
        behind = any(holder in _read(s) and s not in makers for s in order[first + 1 :])
        if plain and not behind and name not in _read(later):
            return name
    return None


def _statements(body: Body) -> Iterator[Any]:
    for one in body:
        if isinstance(one, If):
            yield from _statements([*one.then, *one.orelse])
        elif isinstance(one, Loop):
            yield from _statements(one.body)
        else:
            yield one


def _read(one: Any) -> list[str]:
    """The fragments that a statement reads."""
    if isinstance(one, FragRef):
        return [one.name]
    if isinstance(one, tuple | list):
        return [n for x in cast("list[Any]", one) for n in _read(x)]
    if is_dataclass(one) and not isinstance(one, type):
        return [n for f in fields(one) for n in _read(getattr(one, f.name))]
    return []


def moved(body: Body, env: Mapping[str, Expr], fresh: Callable[[str], str]) -> Body:
    """Statements of another iteration, with loop variables of their own."""
    return [_moved(s, env, fresh) for s in body]


def _moved(one: Any, env: Mapping[str, Expr], fresh: Callable[[str], str]) -> Any:
    if isinstance(one, Expr | Constraint):
        return one.substitute(env)
    if isinstance(one, Loop):
        var = fresh(one.var.split("_")[0])
        env = {**env, one.var: sym(var)}
        inner = replace(one, var=var, body=[])
        return _fields(inner, env, fresh, body=moved(one.body, env, fresh))
    if is_dataclass(one) and not isinstance(one, type):
        return _fields(one, env, fresh)
    if isinstance(one, tuple):
        return tuple(_moved(x, env, fresh) for x in cast("tuple[Any, ...]", one))
    if isinstance(one, list):
        return [_moved(x, env, fresh) for x in cast("list[Any]", one)]
    return one


def _fields(one: Any, env: Mapping[str, Expr], fresh: Callable[[str], str], **known: Any) -> Any:
    changed = {f.name: _moved(getattr(one, f.name), env, fresh) for f in fields(one) if f.init and f.name not in known}
    return replace(one, **changed, **known)


def _waits(one: Sync, barrier: str) -> bool:
    return one.kind == "mbar.wait" and one.object is not None and one.object.name == barrier


def _drains(one: object) -> bool:
    return isinstance(one, Sync) and one.kind == "wgmma.wait"


def _turns(one: object) -> bool:
    return isinstance(one, Sync) and "turn" in one.tags
