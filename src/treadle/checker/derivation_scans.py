"""Validation of a chain that became a scan."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.monoids import BY_MERGE
from treadle.checker.derivation_match import Match, wrong
from treadle.checker.derivation_nests import region_of
from treadle.ir.core import Op, Region, Sub, Value
from treadle.ir.ops.access import Extract, Insert
from treadle.ir.ops.elementwise import Elementwise, Full
from treadle.ir.ops.fold import Scan


def gather(m: Match) -> None:
    """A serial region that keeps each of its states became the scan of what it merges into them."""
    x = region_of(m.before, m.step.args["at"])
    m.handlers[id(x)] = _gather


def _gather(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x, y = xs[i], ys[j] if j < len(ys) else None
    assert isinstance(x, Region)
    if not isinstance(y, Scan) or id(y) in m.claimed or not y.whole or len(y.sources) != 1:
        wrong(f"in the place of {x.name} does not stand a whole scan of one value")
    if x.kind != "serial" or x.order != "ordered" or y.order != "ordered":
        wrong(f"{x.name} is {x.kind} {x.order}, an exact chain: its states are no folds in other groups")
    if len(x.args) != 1 or x.args[0].kind != "each" or len(x.carried) != 2 or x.merges or len(x.body.ops) != 3:
        wrong(f"{x.name} does more than to merge an element into a state and to keep that")
    arg, (state, tile) = x.args[0], x.carried
    read, merged, put = _three(x)
    law = BY_MERGE.get(merged.fn)
    if law is None or y.merge != law.name or list(merged.args) != [state, read.result]:
        wrong(f"{x.name} merges by {merged.fn}, {y.results[0].name} by {y.merge}, or in another order")
    if x.body.yields != [merged.result, put.result]:
        wrong(f"{x.name} carries other things on than the merged state and the tile")
    _begins(m, x, law.name)
    if put.value is not (state if y.exclusive else merged.result):
        wrong(f"{x.name} does not keep the state {'before' if y.exclusive else 'after'} the merge")
    if put.source is not tile:
        wrong(f"{x.name} does not update its tile")
    axes = read.source.type.axes
    if arg.domain not in axes or tile.type.axes != axes:
        wrong(f"{x.name} does not go over a whole axis of {read.source.name}")
    along = tuple(Sub(index=arg.index) if a.dim is arg.domain.dim else Sub(part=a) for a in axes)
    if read.subs != along or put.subs != along or read.fill is not None:
        wrong(f"{x.name} reads or keeps elsewhere than at the coordinate where it stands")
    if y.dim.name != arg.domain.dim.name or y.reverse != arg.reversed:
        wrong(f"{y.results[0].name} goes along {y.dim}{' backwards' if y.reverse else ''}, {x.name} does not")
    if m.value(read.source) != y.sources[0].name:
        wrong(f"{y.results[0].name} scans another value than {x.name}")
    m.bind([x.results[1]], y.results)  # the last state is bound to nothing, so that nothing may use it
    return i + 1, j + 1


def _three(x: Region) -> tuple[Extract, Elementwise, Insert]:
    """What an instance does."""
    read, merged, put = x.body.ops
    if not isinstance(read, Extract) or not isinstance(merged, Elementwise) or not isinstance(put, Insert):
        wrong(f"{x.name} does more than to merge an element into a state and to keep that")
    return read, merged, put


def _begins(m: Match, x: Region, monoid: str) -> None:
    """From nothing, with a tile that holds nothing."""
    first, blank = (m.before.definitions().get(v.name) for v in x.inits)
    own: Value = x.carried[0]
    law = next(b for b in BY_MERGE.values() if b.name == monoid)
    if not isinstance(first, Full) or first.number is None or not law.starts_empty(first.number, own.type.dtype):
        wrong(f"{x.name} does not begin with the identity of {monoid}")
    if not isinstance(blank, Full) or blank.number is not None:
        wrong(f"{x.name} updates a tile that holds something")
